//! Output of the program.

use std::process::{Command, Output};

fn simulate(arguments: &[&str]) -> (Output, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_semel-simulate")).args(arguments).output();
    let output = output.expect("the program can be run");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, told)
}

#[test]
fn failing_seed_is_reported_with_its_story_and_rerun_command() {
    let (output, told) = simulate(&["--seeds", "80", "--broken", "rerun"]);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("invariant 1 (at most one effect) is violated"), "{told}");
    assert!(told.contains("EFFECT"), "{told}");
    let command = told.lines().find_map(|line| line.strip_prefix("run it again: cargo xtask simulate "));
    let words: Vec<&str> = command.expect("it tells the command").split(' ').collect();
    let (output, again) = simulate(&words);
    assert_eq!(output.status.code(), Some(1), "{again}");
    assert!(again.contains("invariant 1 (at most one effect) is violated"), "{again}");
    assert!(again.contains("store, for node-0"), "the trace is there: {again}");
}

#[test]
fn passing_seed_is_reported_with_its_hash() {
    let (output, told) = simulate(&["--seed", "3"]);
    assert_eq!(output.status.code(), Some(0), "{told}");
    let hash = told.lines().last().and_then(|line| line.rsplit_once("hash ")).map(|(_, hash)| hash);
    assert_eq!(hash.map(str::len), Some(32), "{told}");
}

#[test]
fn history_of_a_seed_passes_the_checker() {
    let (_, told) = simulate(&["--seed", "3", "--history"]);
    let events = semel_checker::read(told.as_bytes()).expect("it is a history");
    let report = semel_checker::check(&events).expect("it is whole");
    assert!(report.violations.is_empty(), "{report}");
    assert!(events.len() > 50);
}

#[test]
fn unknown_arguments_are_refused() {
    for arguments in [&["--seeds"][..], &["--seeds", "many"], &["--broken", "nothing"], &["--unknown"]] {
        let (output, told) = simulate(arguments);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("usage: cargo xtask simulate"));
    }
}
