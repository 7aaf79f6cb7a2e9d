//! The README as it is printed: runs its `sh` blocks one after the other in one shell, and compares the output of each
//! with the `text` block behind it.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::process::folder;

/// Separator between the outputs of the blocks.
const MARK: &str = "──";

/// Preamble: `cargo run` starts the programs under test, and everything ends with the shell.
const BEFORE: &str = r#"
    set -um
    cargo() { local program=$6; shift 7; exec "$PROGRAMS/$program" "$@"; }
    trap 'kill -9 $(jobs -p) 2> /dev/null' EXIT
"#;

/// Runs after the block that starts both programs.
const STARTED: &str = "
    until curl -s -o /dev/null 127.0.0.1:3000 && curl -s -o /dev/null 127.0.0.1:4000; do sleep 0.05; done
";

/// Commands of a block, and their expected output.
struct Block {
    commands: String,
    shown: Option<String>,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for part in page.split("\n```").collect::<Vec<_>>().chunks(2) {
        let [between, block] = part else { break };
        match (block.split_once('\n'), blocks.last_mut()) {
            (Some(("sh", commands)), _) => blocks.push(Block { commands: commands.to_owned(), shown: None }),
            // Directly behind it.
            (Some(("text", shown)), Some(last)) if between.is_empty() => last.shown = Some(shown.to_owned()),
            _ => {}
        }
    }
    blocks
}

/// Returns an address that is free now.
fn address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("it has one").to_string()
}

#[test]
fn every_command_of_the_readme_prints_the_shown_output() {
    let page = include_str!("../../README.md");
    let walk = page.split("\n## The provider\n").next().expect("there is a first part");
    let blocks = blocks(walk);
    let compared = blocks.iter().filter(|block| block.shown.is_some()).count();
    assert_eq!(compared, blocks.len() - 2, "each but those that prepare it says what it says");
    assert!(compared > 8, "the blocks are found: {compared}");
    let mut script = BEFORE.to_owned();
    for (number, block) in blocks.iter().enumerate() {
        script.push_str(&block.commands);
        script.push_str(if number == 0 { STARTED } else { "" });
        script.push_str(&format!("\necho '{MARK}'\n"));
    }
    let here = [address(), address()];
    let script = script.replace("127.0.0.1:3000", "SERVICE").replace("127.0.0.1:4000", &here[1]);
    let script = script.replace("SERVICE", &here[0]);
    let folder = folder();
    let programs = Path::new(env!("CARGO_BIN_EXE_payments")).parent().expect("it is in a folder");
    let output = Command::new("timeout")
        .args(["--kill-after=5", "60", "bash", "-c", &script])
        .current_dir(folder.path())
        .env("PROGRAMS", programs)
        .env_remove("DATABASE_URL")
        .env("RUST_LOG", "error")
        .stdin(Stdio::null())
        .output()
        .expect("bash runs");
    let said = String::from_utf8_lossy(&output.stdout).replace(&here[0], "127.0.0.1:3000");
    let complaints = String::from_utf8_lossy(&output.stderr);
    let parts: Vec<&str> = said.split(&format!("{MARK}\n")).collect();
    assert_eq!(
        parts.len(),
        blocks.len() + 1,
        "it came to its end; it said\n{said}\nand complained\n{complaints}"
    );
    for (block, said) in blocks.iter().zip(parts) {
        if let Some(shown) = &block.shown {
            assert_eq!(said.trim_end(), shown, "{}\n{complaints}", block.commands);
        }
    }
}
