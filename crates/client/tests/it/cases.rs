//! The shared cases, over both transports and with every journal. A test for each file of cases.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::case_run::{CaseRun, JournalKind};
use crate::faults::Form;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk/cases")
}

/// Returns the cases of a file.
fn cases(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder().join(file)).expect("the cases are there");
    let table: Value = serde_json::from_str(&text).expect("the cases are JSON");
    table["cases"].as_array().expect("a list of cases").clone()
}

/// Returns the journals that a case is run with.
fn journals(case: &Value) -> Vec<JournalKind> {
    if matches!(case.get("journal"), None | Some(Value::Bool(false))) {
        return vec![JournalKind::None];
    }
    let calls = case["calls"].as_array().expect("a list of calls");
    if calls.iter().any(|call| call["do"] == "tear_journal") {
        return vec![JournalKind::File];
    }
    vec![JournalKind::File, JournalKind::Sqlite]
}

/// Runs the cases of a file, and tells of all that fail.
fn run(file: &str, form: Form) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let real = form.real();
    let mut failures = Vec::new();
    for case in cases(file) {
        for journal in journals(&case) {
            let name = format!("{} ({form:?}, {journal:?})", case["name"]);
            // A task of its own: a panic in a case must not hide the cases after it.
            let done = runtime
                .block_on(async { tokio::spawn(CaseRun::run(case.clone(), real.clone(), journal)).await });
            match done {
                Ok(Ok(())) => {}
                Ok(Err(why)) => failures.push(format!("{name}: {why}")),
                Err(panic) => failures.push(format!("{name}: {panic}")),
            }
        }
    }
    assert!(failures.is_empty(), "{} cases failed:\n{}", failures.len(), failures.join("\n"));
}

macro_rules! files {
    ($($file:ident),+) => {
        $(mod $file {
            use super::*;

            #[test]
            fn over_reqwest() {
                run(concat!(stringify!($file), ".json"), Form::Reqwest);
            }

            #[test]
            fn over_tower() {
                run(concat!(stringify!($file), ".json"), Form::Tower);
            }
        })+

        const FILES: &[&str] = &[$(concat!(stringify!($file), ".json")),+];
    };
}

files!(ambiguity, answers, faults, journal, limits, operations, profiles, requests, waits);

#[test]
fn every_file_of_cases_is_run_and_every_name_is_unique() {
    let entries = fs::read_dir(folder()).expect("the cases are there");
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let found: BTreeSet<_> = names.filter(|name| name.ends_with(".json")).collect();
    assert_eq!(found, FILES.iter().map(|file| (*file).to_owned()).collect());
    let names: Vec<_> =
        FILES.iter().flat_map(|file| cases(file)).map(|case| case["name"].to_string()).collect();
    assert!(names.len() >= 150, "{} cases", names.len());
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
}
