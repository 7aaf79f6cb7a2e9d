//! Real processes on one file: they race, and they are killed.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use semel_core::{Change, Decision, Store};
use semel_stores::SqliteStore;
use semel_testkit::sample;
use tempfile::TempDir;

/// Variable that makes this test binary a process that works on a file: the folder, and the task.
const FOLDER: &str = "SEMEL_TEST_FOLDER";
const WORK: &str = "SEMEL_TEST_WORK";

const KEYS: usize = 100;

#[tokio::test]
async fn a_process_that_works_on_a_file() {
    let (Ok(folder), Ok(work)) = (std::env::var(FOLDER), std::env::var(WORK)) else { return };
    let store = SqliteStore::open(Path::new(&folder).join("semel.db")).expect("the file opens");
    let mut out = std::io::stdout();
    let mut say =
        |line: String| out.write_all(line.as_bytes()).and_then(|()| out.flush()).expect("somebody listens");
    match work.as_str() {
        "race" => {
            say("\nready\n".into());
            for key in 0..KEYS {
                let answer = store.claim(&sample::claim(&format!("key-{key}"))).await.expect("it is decided");
                if answer.decision == Decision::Execute {
                    say(format!("won {key}\n"));
                }
            }
            say("done\n".into());
        }
        _ => {
            say("\nready\n".into());
            for key in 0.. {
                let claim = sample::claim(&format!("key-{key}"));
                let fence =
                    store.claim(&claim).await.expect("it is claimed").record.expect("it is").head.fence();
                say(format!("claimed {key}\n"));
                let change = Change::complete(fence, sample::created(&format!("result {key}")));
                store.apply(&sample::id(&claim), &change).await.expect("it is completed");
                say(format!("completed {key}\n"));
            }
        }
    }
}

fn start(folder: &Path, work: &str) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().expect("tests run from a file"))
        .args(["--exact", "sqlite_processes::a_process_that_works_on_a_file", "--nocapture"])
        .env(FOLDER, folder)
        .env(WORK, work)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a process can be started");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    while line != "ready\n" {
        line.clear();
        assert!(lines.read_line(&mut line).expect("it can be read") > 0, "it says that it is ready");
    }
    (child, lines)
}

#[test]
fn of_several_processes_one_wins_each_key() {
    let folder = TempDir::new().expect("there is room for a test");
    let processes: Vec<_> = (0..4).map(|_| start(folder.path(), "race")).collect();
    let mut winners: HashMap<String, usize> = HashMap::new();
    for (mut child, lines) in processes {
        for line in lines.lines().map_while(Result::ok) {
            if let Some(key) = line.strip_prefix("won ") {
                *winners.entry(key.to_owned()).or_default() += 1;
            }
        }
        assert!(child.wait().expect("it ends").success());
    }
    assert_eq!(winners.len(), KEYS);
    assert!(winners.values().all(|count| *count == 1), "{winners:?}");
}

#[tokio::test]
async fn changes_acknowledged_to_a_killed_process_are_durable() {
    let mut acknowledged = 0;
    for round in 0..8 {
        let folder = TempDir::new().expect("there is room for a test");
        let (mut child, mut lines) = start(folder.path(), "work");
        let mut said = Vec::new();
        while said.len() < 20 + 7 * round {
            let mut line = String::new();
            lines.read_line(&mut line).expect("it can be read");
            said.push(line);
        }
        child.kill().expect("SIGKILL is delivered");
        said.extend(lines.lines().map_while(Result::ok));
        child.wait().expect("it is gone");

        let store = SqliteStore::open(folder.path().join("semel.db")).expect("the file opens");
        for line in said.iter().filter_map(|line| line.trim().split_once(' ')) {
            let (what, key) = line;
            let id = sample::id(&sample::claim(&format!("key-{key}")));
            let record =
                store.get(&id).await.expect("it reads").record.expect("what was acknowledged is there");
            if what == "completed" {
                assert_eq!(record.result, Some(sample::created(&format!("result {key}"))));
            }
            acknowledged += 1;
        }
    }
    println!("{acknowledged} acknowledged writes, none lost, 8 kills");
}
