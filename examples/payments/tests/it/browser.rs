//! Runs a script of `browser/` in a real browser.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout of a script.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs `browser/SCRIPT ADDRESS PICTURE MORE`, and fails with its output unless it succeeds. Returns the picture.
pub(crate) fn run(script: &str, address: &str, more: &[&str]) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("browser").join(script);
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(script.with_extension("png").file_name().expect("it has one"));
    let _ = std::fs::remove_file(&picture);
    let seen = picture.display().to_string();
    let arguments = [&[address, &seen], more].concat();
    if let Err(why) = semel_testkit::browser::run(&script, &arguments, LIMIT) {
        panic!("how it looked: {seen}; {why}");
    }
    picture
}
