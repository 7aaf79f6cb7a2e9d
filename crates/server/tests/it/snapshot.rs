//! Reviewed texts in files, compared with the current output.
//!
//! `SEMEL_SNAPSHOTS=rewrite cargo nextest run -p semel-server` writes the files anew. Review the difference
//! before you commit it.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

/// Variable that makes a test write its snapshot instead of comparing it.
const REWRITE: &str = "SEMEL_SNAPSHOTS";

/// Returns the workspace's root folder.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns true if files are to be written anew.
pub(crate) fn rewrites() -> bool {
    match std::env::var(REWRITE).as_deref() {
        Ok("rewrite") => true,
        Ok(other) => panic!("{REWRITE}={other}: the only thing to ask for is `rewrite`"),
        Err(_) => false,
    }
}

/// Returns the difference of this text from the file, with masks; `None` if there is none.
pub(crate) fn difference(file: &Path, actual: &str) -> Option<String> {
    compare(file, actual, masked)
}

/// Returns the difference of this text from the file, without masks; `None` if there is none.
pub(crate) fn exact_difference(file: &Path, actual: &str) -> Option<String> {
    compare(file, actual, str::to_owned)
}

fn compare(file: &Path, actual: &str, mask: fn(&str) -> String) -> Option<String> {
    let shown = file.strip_prefix(root()).unwrap_or(file).display();
    if rewrites() {
        std::fs::write(file, actual).expect("it can be written");
        return None;
    }
    let expected = std::fs::read_to_string(file).unwrap_or_default();
    let (expected, actual) = (mask(&expected), mask(actual));
    let lines = expected.lines().map(Some).chain(std::iter::repeat(None));
    let mut pairs = lines.zip(actual.lines().map(Some).chain(std::iter::repeat(None))).zip(1..);
    let first = pairs.find(|((expected, actual), _)| expected != actual || expected.is_none());
    let ((expected, actual), line) = first.expect("it has an end");
    (expected != actual).then(|| {
        let line_of = |text: Option<&str>| text.unwrap_or("(the end)").to_owned();
        format!(
            "{shown}:{line}:\n  expected: {}\n  it is:    {}\n  if that is right: {REWRITE}=rewrite cargo nextest run \
             -p semel-server, and look at the difference",
            line_of(expected),
            line_of(actual)
        )
    })
}

/// Patterns of values that differ between runs and machines, with their replacements.
static MASKS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<ID>"),
        (r"verify-[0-9a-f]{32}", "<KEY>"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<TIME>"),
        (r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT", "<TIME>"),
        (r"127\.0\.0\.1:\d{2,5}\b", "127.0.0.1:<PORT>"),
        (r"\S*/semel-demo-\d+/", "<FOLDER>/"),
        (r"\d+ got the answer, \d+ were told to retry: it is still in progress", "<FIFTY ANSWERS>"),
        (r"all 50 got the same answer", "<FIFTY ANSWERS>"),
    ]
    .into_iter()
    .map(|(pattern, mask)| (Regex::new(pattern).expect("it is a pattern"), mask))
    .collect()
});

/// Returns the text with masks for values that differ between runs.
pub(crate) fn masked(text: &str) -> String {
    MASKS.iter().fold(text.to_owned(), |text, (pattern, mask)| pattern.replace_all(&text, *mask).into_owned())
}

#[test]
fn masks_replace_only_ids_times_and_random_ports() {
    let text =
        "01a1df32-caa3-786d-a196-45c465f24292 at 2026-11-15T12:33:01.5Z on 127.0.0.1:8080, 201 Created";
    assert_eq!(masked(text), "<ID> at <TIME> on 127.0.0.1:<PORT>, 201 Created");
    assert_eq!(masked("127.0.0.1:1 and schema version 3"), "127.0.0.1:1 and schema version 3");
}

#[test]
fn a_snapshot_difference_is_reported_with_the_expected_line() {
    let folder = tempfile::TempDir::new().expect("there is room");
    let file = folder.path().join("said.txt");
    if rewrites() {
        return;
    }
    std::fs::write(&file, "one\ntwo\n").expect("there is room");
    assert_eq!(difference(&file, "one\ntwo\n"), None);
    for wrong in ["one\nthree\n", "one\n", "one\ntwo\nthree\n", ""] {
        let told = difference(&file, wrong).expect("it is not so");
        assert!(told.contains("expected: ") && told.contains("SEMEL_SNAPSHOTS=rewrite"), "{told}");
    }
}
