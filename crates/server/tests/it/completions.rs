//! Scripts by which shells complete commands and flags.

use std::process::Command;

use tempfile::TempDir;

use crate::commands::{run, text};
use crate::gateway::lab::semel;

const SHELLS: [&str; 5] = ["bash", "zsh", "fish", "elvish", "powershell"];

fn script(shell: &str) -> String {
    let folder = TempDir::new().expect("there is room");
    let output = run(folder.path(), &["completions", shell]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    text(&output.stdout)
}

#[test]
fn every_shell_learns_the_commands_and_flags_and_nothing_hidden() {
    let command = semel_server::cli::command();
    let (hidden, shown): (Vec<_>, Vec<_>) =
        command.get_subcommands().partition(|command| command.is_hide_set());
    assert!(!hidden.is_empty(), "there is something to hide");
    for shell in SHELLS {
        let script = script(shell);
        for command in &shown {
            assert!(script.contains(command.get_name()), "{shell} knows {}", command.get_name());
        }
        assert!(script.contains("older-than"), "{shell} knows the flags of `records list`");
        for command in &hidden {
            assert!(!script.contains(command.get_name()), "{shell} does not know {}", command.get_name());
        }
    }
}

#[test]
fn the_shells_that_are_here_accept_their_scripts() {
    let folder = TempDir::new().expect("there is room");
    for (shell, check) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let file = folder.path().join(shell);
        std::fs::write(&file, script(shell)).expect("there is room");
        match Command::new(shell).arg(check).arg(&file).output() {
            Ok(checked) => assert!(checked.status.success(), "{shell}: {checked:?}"),
            Err(_) => println!("there is no {shell} here: its script was not tried"),
        }
    }
}

/// Calls the script's own function like bash does at the Tab key.
#[test]
fn bash_completes_a_command() {
    let folder = TempDir::new().expect("there is room");
    let file = folder.path().join("semel.bash");
    std::fs::write(&file, script("bash")).expect("there is room");
    let complete = r#"source "$0"; COMP_WORDS=(semel recor); COMP_CWORD=1; _semel semel recor semel; echo "${COMPREPLY[@]}""#;
    let Ok(completed) = Command::new("bash").args(["-c", complete]).arg(&file).output() else {
        println!("there is no bash here: completing was not tried");
        return;
    };
    assert_eq!(text(&completed.stdout).trim(), "records", "{completed:?}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let folder = TempDir::new().expect("there is room");
    let (reader, writer) = std::io::pipe().expect("there is a pipe");
    drop(reader);
    let output = semel(folder.path()).args(["completions", "bash"]).stdout(writer).output();
    let output = output.expect("the program runs");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn an_unknown_shell_is_wrong_use() {
    let folder = TempDir::new().expect("there is room");
    let output = run(folder.path(), &["completions", "tcsh"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("bash, elvish, fish, powershell, zsh"), "{output:?}");
}
