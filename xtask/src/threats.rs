//! `cargo xtask threats`: checks that every threat in docs/src/explanation/threats-*.md names tests, and that
//! each exists and runs. A row is a heading of the third level that begins with its id; its tests are the
//! names in backticks after `**Tests**`. They are compared with the lists that the built test programs print,
//! never with the source. The index in threat-model.md links to every row.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::root;

/// Folder of the pages.
const FOLDER: &str = "docs/src/explanation";
/// Page with the index of all rows.
const INDEX: &str = "threat-model.md";
/// Prefix of the names of pages with rows.
const PREFIX: &str = "threats-";

/// Tests that are built for the list.
#[derive(Clone, Copy)]
pub(crate) enum Build {
    /// Tests of the packages that the pages name.
    Named,
    /// All tests: free if they have just been run.
    Everything,
}

/// Reports rows without a test that runs, and rows that the index does not list.
pub(crate) fn check(build: Build) -> Result<(), String> {
    let (index, pages) = (read(INDEX)?, pages()?);
    let rows: Vec<Row<'_>> = pages.iter().flat_map(|(page, text)| rows(page, text)).collect();
    if rows.is_empty() {
        return Err(format!(
            "{FOLDER}/{PREFIX}*.md have no rows: each begins with a heading such as `### T1 Two first writers`"
        ));
    }
    let mut faults = unlisted(&rows, &index);
    faults.extend(self::faults(&rows, &existing(&arguments(&rows, build))?));
    if faults.is_empty() {
        let tests: usize = rows.iter().map(|row| row.tests.len()).sum();
        println!("── threats: {} rows, {tests} tests, all of them there", rows.len());
        return Ok(());
    }
    Err(format!("the threat model and the tests disagree:\n  {}", faults.join("\n  ")))
}

/// Reads one page of the folder.
fn read(page: &str) -> Result<String, String> {
    let path = root().join(FOLDER).join(page);
    std::fs::read_to_string(path).map_err(|error| format!("{FOLDER}/{page}: {error}"))
}

/// Reads all pages with rows, sorted by name.
fn pages() -> Result<Vec<(String, String)>, String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root().join(FOLDER)).map_err(|error| format!("{FOLDER}: {error}"))? {
        let name = entry.map_err(|error| format!("{FOLDER}: {error}"))?.file_name();
        names.extend(name.to_str().filter(|name| name.starts_with(PREFIX)).map(str::to_owned));
    }
    names.sort();
    names.into_iter().map(|name| Ok((name.clone(), read(&name)?))).collect()
}

/// One threat, as far as this check reads it.
#[derive(Clone, Debug, PartialEq)]
struct Row<'a> {
    page: &'a str,
    id: &'a str,
    tests: Vec<&'a str>,
}

fn rows<'a>(page: &'a str, document: &'a str) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    let (mut inside, mut listing) = (false, false);
    for line in document.lines() {
        if line.starts_with('#') {
            (inside, listing) = (false, false);
            if let Some(title) = line.strip_prefix("### ") {
                let id = title.split_whitespace().next().unwrap_or_default();
                rows.push(Row { page, id, tests: Vec::new() });
                inside = true;
            }
        }
        let tests = match line.split_once("**Tests**") {
            Some((_, rest)) => {
                listing = inside;
                rest
            }
            None => line,
        };
        if let (true, Some(row)) = (listing, rows.last_mut()) {
            row.tests.extend(tests.split('`').skip(1).step_by(2));
        }
    }
    rows
}

/// Returns rows without a link in the index, ids that two rows share, and ids in the index without a row.
fn unlisted(rows: &[Row<'_>], index: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for Row { page, id, .. } in rows {
        let link = format!("]({page}#{}-", id.to_lowercase());
        if !index.contains(&link) {
            faults.push(format!("{id}: {INDEX} has no link to it in {page}"));
        }
        if rows.iter().filter(|row| row.id == *id).count() != 1 {
            faults.push(format!("{id}: two rows have this id"));
        }
    }
    let listed = index.lines().filter_map(|line| line.strip_prefix("| T")?.split_once(' '));
    for id in listed.map(|(number, _)| format!("T{number}")) {
        if !rows.iter().any(|row| row.id == id) {
            faults.push(format!("{id}: {INDEX} lists it, and no page has it"));
        }
    }
    faults
}

/// Returns the arguments for cargo's build.
fn arguments<'a>(rows: &[Row<'a>], build: Build) -> Vec<&'a str> {
    match build {
        Build::Named => packages(rows).into_iter().flat_map(|package| ["-p", package]).collect(),
        Build::Everything => vec!["--workspace"],
    }
}

/// Returns the packages whose tests are named.
fn packages<'a>(rows: &[Row<'a>]) -> BTreeSet<&'a str> {
    let tests = rows.iter().flat_map(|row| &row.tests);
    tests.filter_map(|test| test.split([':', ' ']).next()).collect()
}

/// Returns the faults, row by row. `existing` maps each test to true if it is ignored.
fn faults(rows: &[Row<'_>], existing: &BTreeMap<String, bool>) -> Vec<String> {
    let mut faults = Vec::new();
    for Row { id, tests, .. } in rows {
        if tests.is_empty() {
            faults.push(format!("{id}: names no test"));
        }
        for test in tests {
            match existing.get(*test) {
                Some(false) => {}
                Some(true) => faults.push(format!("{id}: `{test}` is ignored, and proves nothing")),
                None => {
                    let near = existing.keys().min_by_key(|known| distance(test, known));
                    let near = near.map(|near| format!("; the nearest is `{near}`")).unwrap_or_default();
                    faults.push(format!("{id}: there is no test `{test}`{near}"));
                }
            }
        }
    }
    faults
}

/// Returns the number of insertions, deletions and replacements from one text to the other.
fn distance(from: &str, to: &str) -> usize {
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.bytes().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in to.bytes().enumerate() {
            row.push((last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1));
        }
        last = row;
    }
    last[to.len()]
}

/// Returns every test of this build, as its own program lists it, with true if it is ignored.
fn existing(arguments: &[&str]) -> Result<BTreeMap<String, bool>, String> {
    let mut tests = BTreeMap::new();
    for (binary, program) in programs(arguments)? {
        let list = |which: &[&str]| -> Result<Vec<String>, String> {
            let listed = Command::new(&program).args(["--list", "--format", "terse"]).args(which).output();
            let listed = listed.map_err(|error| format!("{}: {error}", program.display()))?;
            let text = String::from_utf8_lossy(&listed.stdout).into_owned();
            let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
            Ok(names.map(|name| format!("{binary} {name}")).collect())
        };
        tests.extend(list(&[])?.into_iter().map(|test| (test, false)));
        tests.extend(list(&["--ignored"])?.into_iter().map(|test| (test, true)));
    }
    Ok(tests)
}

/// Returns the built test programs, each with the name that `cargo nextest` gives it.
fn programs(arguments: &[&str]) -> Result<Vec<(String, PathBuf)>, String> {
    let mut build = Command::new(env!("CARGO"));
    build.args(["test", "--no-run", "--message-format=json-render-diagnostics"]);
    build.args(arguments);
    let built = build.current_dir(root()).stderr(Stdio::inherit()).output();
    let built = built.map_err(|error| format!("threats: cargo cannot be run: {error}"))?;
    if !built.status.success() {
        return Err("threats: the tests cannot be built, or a package is not there".to_owned());
    }
    let messages = String::from_utf8_lossy(&built.stdout).into_owned();
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(messages.filter_map(|message| program(&message)).collect())
}

/// Returns the test program of a message of cargo.
fn program(message: &Value) -> Option<(String, PathBuf)> {
    message["profile"]["test"].as_bool().filter(|test| *test)?;
    let program = message["executable"].as_str()?.into();
    // `path+file:///…/crates/server#semel-server@0.1.0`, or `…/xtask#0.1.0` where the folder has the name.
    let (folder, rest) = message["package_id"].as_str()?.rsplit_once('#')?;
    let package = rest.split_once('@').map_or_else(|| folder.rsplit('/').next(), |(name, _)| Some(name))?;
    let target = message["target"]["name"].as_str()?;
    let binary = match message["target"]["kind"][0].as_str()? {
        "test" => format!("{package}::{target}"),
        "bin" => format!("{package}::bin/{target}"),
        _ => package.to_owned(),
    };
    Some((binary, program))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "\
# Threats
### T1 Two writers
- **Control**: `transition` decides
- **Tests**:
  - `a::it race::one_wins`
  - `a race::tests::the_other_waits`
### T2 Nobody
- **Tests**: `a::it race::gone`
### T3 Forgotten
- **Control**: `none`
## What follows
- **Tests**: `no row, no test`
";

    #[test]
    fn a_row_has_the_tests_that_stand_behind_the_word() {
        let page = "threats-a.md";
        let expected = [
            Row { page, id: "T1", tests: vec!["a::it race::one_wins", "a race::tests::the_other_waits"] },
            Row { page, id: "T2", tests: vec!["a::it race::gone"] },
            Row { page, id: "T3", tests: vec![] },
        ];
        assert_eq!(rows(page, DOCUMENT), expected);
        assert_eq!(arguments(&expected, Build::Named), ["-p", "a"]);
    }

    #[test]
    fn missing_ignored_and_misspelled_tests_are_reported_with_their_row() {
        let tests = [("a::it race::one_wins", false), ("a race::tests::the_other_waits", true)];
        let existing = tests.map(|(name, ignored)| (name.to_owned(), ignored)).into();
        let expected = [
            "T1: `a race::tests::the_other_waits` is ignored, and proves nothing",
            "T2: there is no test `a::it race::gone`; the nearest is `a::it race::one_wins`",
            "T3: names no test",
        ];
        assert_eq!(faults(&rows("threats-a.md", DOCUMENT), &existing), expected);
    }

    #[test]
    fn the_index_and_the_rows_agree() {
        let index =
            "[T1](threats-a.md#t1-two-writers) [T2](threats-b.md#t2-nobody) [T3](threats-a.md#t30-other)";
        let expected = [
            "T2: threat-model.md has no link to it in threats-a.md",
            "T3: threat-model.md has no link to it in threats-a.md",
        ];
        assert_eq!(unlisted(&rows("threats-a.md", DOCUMENT), index), expected);
        let twice = [rows("threats-a.md", DOCUMENT), rows("threats-b.md", DOCUMENT)].concat();
        assert!(unlisted(&twice, index).contains(&"T1: two rows have this id".to_owned()));
        assert_eq!(
            unlisted(&[], "| | threat |\n| T4 | gone |\n"),
            ["T4: threat-model.md lists it, and no page has it"]
        );
    }

    #[test]
    fn a_program_has_the_name_of_its_package_and_target() {
        let message = |package: &str, kind: &str, name: &str| {
            serde_json::json!({
                "package_id": format!("path+file:///somewhere/{package}"), "executable": "/program",
                "profile": { "test": true }, "target": { "kind": [kind], "name": name },
            })
        };
        let name = |package, kind, name| program(&message(package, kind, name)).map(|(binary, _)| binary);
        assert_eq!(name("server#semel-server@0.1.0", "test", "it").as_deref(), Some("semel-server::it"));
        assert_eq!(name("server#semel-server@0.1.0", "lib", "semel_server").as_deref(), Some("semel-server"));
        assert_eq!(name("xtask#0.1.0", "bin", "xtask").as_deref(), Some("xtask::bin/xtask"));
        assert_eq!(program(&serde_json::json!({ "reason": "build-finished" })), None);
    }

    #[test]
    fn a_program_lists_its_own_tests() {
        let own = std::env::current_exe().expect("tests run from a file");
        let listed = Command::new(own).args(["--list", "--format", "terse"]).output().expect("it runs");
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(listed.lines().any(|line| line == "threats::tests::a_program_lists_its_own_tests: test"));
    }
}
