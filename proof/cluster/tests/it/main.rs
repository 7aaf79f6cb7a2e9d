//! Command line. `cargo xtask cluster` and a part of `cargo xtask test` make real runs: they need the gateway's program
//! beside this one, and PostgreSQL.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_semel-cluster");

fn refusal(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    String::from_utf8(output.stderr).expect("it is text")
}

#[test]
fn wrong_arguments_print_the_error_and_the_usage() {
    for (arguments, expected) in [
        (&["--faults", "flood"][..], "`flood` is no fault; they are leader, standby,"),
        (&["--failovers", "many"], "\"many\" is no number"),
        (&["--failovers"], "`--failovers` is unknown, or has no value"),
        (&["--dance", "1"], "`--dance` is unknown"),
        (&["--loopback", "--faults", "etcd"], "--loopback knows only the fault `leader`"),
    ] {
        let told = refusal(Command::new(PROGRAM).args(arguments));
        assert!(told.contains(expected) && told.contains("usage: semel-cluster"), "{arguments:?}: {told}");
    }
}

#[test]
fn run_that_may_not_make_namespaces_is_refused_before_anything_starts() {
    let is_root = std::path::Path::new("/proc/self").metadata().is_ok_and(|own| own.uid() == 0);
    let mut command = if is_root {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-net_admin", "--", PROGRAM]);
        command
    } else {
        Command::new(PROGRAM)
    };
    let told = refusal(&mut command);
    assert!(told.contains("may not make network namespaces: run it as root, or with --loopback"), "{told}");
}
