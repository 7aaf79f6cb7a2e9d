//! README as a test: every command of every `sh` block is run, in order, in one folder, and every `text`
//! block is compared with the output before it.
//!
//! `demo` and `semel serve` stay up on ports of their own, and addresses are translated. A command that
//! cannot run here is in `ELSEWHERE`, with the reason.

pub(crate) mod blocks;
mod session;

use blocks::{blocks, commands, says};
use session::Session;

use crate::commands::{run, text};
use crate::snapshot::{self, root};

/// Commands that other tests run, with those tests.
const ELSEWHERE: [(&str, &str); 2] = [
    ("cargo xtask test", "it is what runs this test, in CI as well"),
    ("cargo install --path crates/server", "`semel` is in the search path here: the program under test"),
];

/// The page with the recording of the demo.
const RECORDING: &str = "docs/src/start/demo.md";

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_readme_prints_the_shown_output() {
    let readme = std::fs::read_to_string(root().join("README.md")).expect("it is there");
    let mut session = Session::new();
    let (mut said, mut tried) = (String::new(), 0);
    for block in blocks(&readme) {
        match block.language.as_str() {
            "sh" => {
                said.clear();
                for command in commands(&block.text) {
                    tried += 1;
                    if !ELSEWHERE.iter().any(|(elsewhere, _)| *elsewhere == command.line) {
                        said.push_str(&session.run(&command, block.line));
                    }
                }
            }
            // Before the first command: a part of the demo's recording.
            "text" if tried == 0 => {
                let recording = std::fs::read_to_string(root().join(RECORDING)).expect("it is there");
                let part = says(&recording, &format!("…\n{}…\n", block.text));
                part.unwrap_or_else(|why| panic!("README.md:{}: not in {RECORDING}: {why}", block.line));
            }
            "text" => {
                if let Err(why) = says(&said, &block.text) {
                    panic!("README.md:{}: {why}\nThe commands before it said:\n{said}", block.line);
                }
            }
            "toml" => session.write("semel.toml", &block.text),
            "rust,no_run" => {} // Compiled as a documentation test of the crate `semel`.
            other => panic!("README.md:{}: nobody tries a block of {other:?}", block.line),
        }
    }
    assert!(tried > 8, "the blocks are found: {tried}");
    for (elsewhere, _) in ELSEWHERE {
        assert!(readme.contains(elsewhere), "the README does not have `{elsewhere}` any more");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_on_unknown_outcomes_settle_one() {
    let page = std::fs::read_to_string(root().join("docs/src/how-to/settle-an-unknown.md"));
    let blocks = blocks(&page.expect("it is there"));
    let mut session = Session::new();
    let serve = commands("semel serve --upstream http://127.0.0.1:3000");
    session.run(&serve[0], 0);
    let said: Vec<String> =
        commands(&blocks[0].text).iter().map(|command| session.run(command, blocks[0].line)).collect();
    assert!(said[0].contains("unknown"), "{said:?}");
    assert!(said.last().is_some_and(|last| last.contains("is succeeded now")), "{said:?}");
}

#[test]
fn the_readme_states_the_real_numbers_of_cases_and_broken_stores() {
    use semel_testkit::{broken::Flaw, conformance::CASES};
    let readme = std::fs::read_to_string(root().join("README.md")).expect("it is there");
    for count in [format!("one suite of {} cases", CASES.len()), format!("reject {} stores", Flaw::ALL.len())]
    {
        assert!(readme.contains(&count), "{count}");
    }
}

/// Compares the recording in `docs/src/start/demo.md` with the demo's output.
#[test]
fn the_recording_of_the_demo_is_current() {
    let folder = tempfile::TempDir::new().expect("there is room");
    let demo = run(folder.path(), &["demo", "--once"]);
    assert_eq!(demo.status.code(), Some(0), "{demo:?}");
    // If a port was taken, the first lines say so, which is not part of the story.
    let said = text(&demo.stdout);
    let story = said.find("A payment service listens on").expect("it begins so");
    let file = root().join(RECORDING);
    let page = std::fs::read_to_string(&file).expect("it is there");
    let (before, rest) = page.split_once("```text\n").expect("it has a block");
    let (_, after) = rest.split_once("```\n").expect("the block ends");
    let now = format!("{before}```text\n{}\n```\n{after}", said[story..].trim_end());
    if let Some(difference) = snapshot::difference(&file, &now) {
        panic!("{difference}");
    }
}
