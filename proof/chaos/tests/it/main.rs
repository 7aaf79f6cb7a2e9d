//! Command line. `cargo xtask chaos` and a part of `cargo xtask test` make real runs: they need the gateway's program
//! beside this one.

use std::process::Command;

fn refusal(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_semel-chaos")).args(arguments).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8(output.stderr).expect("it is text")
}

#[test]
fn wrong_arguments_print_the_error_and_the_usage() {
    for (arguments, expected) in [
        (&[][..], "--store says where"),
        (&["--store", "redis"], "`--store` is unknown, or has no value"),
        (&["--store", "sqlite", "--seconds", "soon"], "\"soon\" is no number"),
        (&["--dance"], "`--dance` is unknown"),
    ] {
        let told = refusal(arguments);
        assert!(told.contains(expected) && told.contains("usage: semel-chaos"), "{arguments:?}: {told}");
    }
}
