//! `cargo xtask threats`: every row of docs/src/explanation/threat-model.md names a test, and each of them is there and runs.
//!
//! A row is a heading of the third level that begins with its id; its tests are what stands in backticks behind
//! `**Tests**`. They are compared with what the built test programs list themselves, never with the source.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::root;

const DOCUMENT: &str = "docs/src/explanation/threat-model.md";

/// Which tests are built to be listed.
#[derive(Clone, Copy)]
pub(crate) enum Build {
    /// Those of the packages that the document names.
    Named,
    /// All of them, which costs nothing where they have just been run.
    Everything,
}

/// Says which rows lack a test that runs.
pub(crate) fn check(build: Build) -> Result<(), String> {
    let document = std::fs::read_to_string(root().join(DOCUMENT));
    let document = document.map_err(|error| format!("{DOCUMENT}: {error}"))?;
    let rows = rows(&document);
    if rows.is_empty() {
        return Err(format!(
            "{DOCUMENT} has no rows: each begins with a heading such as `### T1 What may go wrong`"
        ));
    }
    let faults = faults(&rows, &existing(&arguments(&rows, build))?);
    if faults.is_empty() {
        let tests: usize = rows.iter().map(|row| row.tests.len()).sum();
        println!("── threats: {} rows, {tests} tests, all of them there", rows.len());
        return Ok(());
    }
    Err(format!("{DOCUMENT} and the tests disagree:\n  {}", faults.join("\n  ")))
}

/// One threat, as far as this check reads it.
#[derive(Debug, PartialEq)]
struct Row<'a> {
    id: &'a str,
    tests: Vec<&'a str>,
}

fn rows(document: &str) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    let (mut inside, mut listing) = (false, false);
    for line in document.lines() {
        if line.starts_with('#') {
            (inside, listing) = (false, false);
            if let Some(title) = line.strip_prefix("### ") {
                let id = title.split_whitespace().next().unwrap_or_default();
                rows.push(Row { id, tests: Vec::new() });
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

/// What cargo is to build.
fn arguments<'a>(rows: &[Row<'a>], build: Build) -> Vec<&'a str> {
    match build {
        Build::Named => packages(rows).into_iter().flat_map(|package| ["-p", package]).collect(),
        Build::Everything => vec!["--workspace"],
    }
}

/// The packages whose tests are named.
fn packages<'a>(rows: &[Row<'a>]) -> BTreeSet<&'a str> {
    let tests = rows.iter().flat_map(|row| &row.tests);
    tests.filter_map(|test| test.split([':', ' ']).next()).collect()
}

/// What is wrong, row by row. `existing` says of each test whether it is ignored.
fn faults(rows: &[Row<'_>], existing: &BTreeMap<String, bool>) -> Vec<String> {
    let mut faults = Vec::new();
    for Row { id, tests } in rows {
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

/// Insertions, deletions and replacements from one text to the other.
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

/// Every test that cargo builds so, as its own program lists it, and whether it is ignored.
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

/// The test programs, built, each with the name that `cargo nextest` gives it.
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

/// The test program that a message of cargo is about.
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
        let expected = [
            Row { id: "T1", tests: vec!["a::it race::one_wins", "a race::tests::the_other_waits"] },
            Row { id: "T2", tests: vec!["a::it race::gone"] },
            Row { id: "T3", tests: vec![] },
        ];
        assert_eq!(rows(DOCUMENT), expected);
        assert_eq!(arguments(&expected, Build::Named), ["-p", "a"]);
    }

    #[test]
    fn what_is_missing_ignored_or_misspelled_is_told_with_its_row() {
        let tests = [("a::it race::one_wins", false), ("a race::tests::the_other_waits", true)];
        let existing = tests.map(|(name, ignored)| (name.to_owned(), ignored)).into();
        let expected = [
            "T1: `a race::tests::the_other_waits` is ignored, and proves nothing",
            "T2: there is no test `a::it race::gone`; the nearest is `a::it race::one_wins`",
            "T3: names no test",
        ];
        assert_eq!(faults(&rows(DOCUMENT), &existing), expected);
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
