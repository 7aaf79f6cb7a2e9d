//! Real processes on one database: they race for the same commands, and are killed with SIGKILL at every step.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use semel_flow::{PostgresTransactions, SqliteTransactions};
use semel_testkit::proxy::{FaultProxy, Matching};

use crate::lab::{Lab, Postgres, Saw, Sqlite, Step, Work, command, on_postgres, on_sqlite, pays, pool, saw};

/// Environment variable that makes this test binary a worker process: it names the database, and the task.
pub(crate) const PLACE: &str = "SEMEL_TEST_PLACE";
pub(crate) const TASK: &str = "SEMEL_TEST_TASK";

const KEYS: usize = 30;

pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout();
    out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).expect("somebody listens");
}

/// Blocks until the process is killed.
pub(crate) fn stand() {
    say("here");
    loop {
        std::thread::park();
    }
}

/// The database that this process works on.
enum Place {
    Postgres(PostgresTransactions),
    Sqlite(SqliteTransactions),
}

impl Place {
    async fn see(&self, key: &str, work: Work) -> Saw {
        saw(&match self {
            Place::Postgres(transactions) => on_postgres(transactions, &command(key), work).await,
            Place::Sqlite(transactions) => on_sqlite(transactions, &command(key), work).await,
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_works_on_a_database() {
    let (Ok(place), Ok(task)) = (std::env::var(PLACE), std::env::var(TASK)) else { return };
    let place = if place.starts_with("postgres://") {
        Place::Postgres(PostgresTransactions::new(pool(&place, 2).await))
    } else {
        Place::Sqlite(SqliteTransactions::open(&place).expect("the file opens"))
    };
    say("\nready");
    match task.as_str() {
        "race" => {
            for key in 0..KEYS {
                let saw = place.see(&format!("key-{key}"), pays()).await;
                assert!(saw.executed() || saw.replayed(), "{saw:?}");
                say(&format!("{} {key}", if saw.executed() { "ran" } else { "saw" }));
            }
        }
        "work" => {
            place.see("key", pays().then(Step::Call(stand))).await;
        }
        "commit" => {
            place.see("key", pays()).await;
        }
        task => panic!("nobody knows how to {task}"),
    }
}

/// A started process, with its output.
pub(crate) struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    fn start(place: &str, task: &str) -> Process {
        Process::running("killed::a_process_that_works_on_a_database", place, task)
    }

    /// Starts a process that runs this test.
    pub(crate) fn running(test: &str, place: &str, task: &str) -> Process {
        Process::with(test, place, task, &[])
    }

    /// Starts a process that runs this test, with further environment variables.
    pub(crate) fn with(test: &str, place: &str, task: &str, more: &[(&str, &str)]) -> Process {
        let mut child = Command::new(std::env::current_exe().expect("tests run from a file"))
            .args(["--exact", test, "--nocapture"])
            .env(PLACE, place)
            .env(TASK, task)
            .envs(more.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a process can be started");
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut process = Process { child, lines };
        process.until("ready");
        process
    }

    /// Reads the output up to this line.
    pub(crate) fn until(&mut self, expected: &str) {
        let mut line = String::new();
        while line.trim() != expected {
            line.clear();
            assert!(self.lines.read_line(&mut line).expect("it can be read") > 0, "it says {expected:?}");
        }
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.expect("there is a kill").success(), "SIG{name} is delivered");
    }

    /// Stops the process, and waits until each of its threads has stopped.
    pub(crate) fn stop(&self) {
        self.signal("STOP");
        let tasks = format!("/proc/{}/task", self.child.id());
        let stands = |task: std::io::Result<std::fs::DirEntry>| {
            let status = std::fs::read_to_string(task.expect("it is listed").path().join("status"));
            status.is_ok_and(|status| status.contains("State:\tT"))
        };
        while !std::fs::read_dir(&tasks).expect("this is Linux").all(stands) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("SIGKILL is delivered");
        self.child.wait().expect("it is gone");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn processes_race(lab: impl Lab, place: String) {
    let processes: Vec<_> = (0..3).map(|_| Process::start(&place, "race")).collect();
    let mut ran = std::collections::HashMap::new();
    for mut process in processes {
        let mut line = String::new();
        while process.lines.read_line(&mut line).expect("it can be read") > 0 {
            if let Some(key) = line.trim().strip_prefix("ran ") {
                *ran.entry(key.to_owned()).or_insert(0) += 1;
            }
            line.clear();
        }
        assert!(process.child.wait().expect("it ends").success());
    }
    assert_eq!(ran.len(), KEYS);
    assert!(ran.values().all(|times| *times == 1), "{ran:?}");
    let keys = KEYS as i64;
    assert_eq!(lab.counts().await, (keys, keys, keys));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_processes_on_postgres_runs_each_command() {
    let lab = Postgres::new().await;
    let url = lab.database.url();
    processes_race(lab, url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_processes_on_sqlite_runs_each_command() {
    let lab = Sqlite::new();
    let path = lab.path.to_str().expect("it is text").to_owned();
    processes_race(lab, path).await;
}

async fn killed_in_the_work(lab: impl Lab, place: &str) {
    let mut process = Process::start(place, "work");
    process.until("here");
    process.kill();
    let retry = lab.see(&command("key"), pays()).await;
    assert!(retry.executed(), "nothing had happened: {retry:?}");
    assert_eq!(lab.counts().await, (1, 1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_in_its_work_has_done_nothing() {
    let lab = Postgres::new().await;
    killed_in_the_work(lab.clone(), &lab.database.url()).await;
    let lab = Sqlite::new();
    killed_in_the_work(lab.clone(), lab.path.to_str().expect("it is text")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_around_its_commit_has_done_all_or_nothing() {
    for is_sent in [false, true] {
        let lab = Postgres::new().await;
        let proxy = FaultProxy::before(&lab.database.url()).await.expect("a port is free");
        let held = if is_sent {
            proxy.hold_answer(Matching::commit())
        } else {
            proxy.hold_statement(Matching::commit())
        };
        let place = proxy.url(&lab.database.url());
        let process = tokio::task::spawn_blocking(move || Process::start(&place, "commit"));
        let process = process.await.expect("it starts");
        held.reached().await;
        process.kill();
        proxy.cut_all().await;
        drop(held);
        let retry = lab.see(&command("key"), pays()).await;
        assert_eq!((retry.executed(), retry.replayed()), (!is_sent, is_sent), "{retry:?}");
        assert_eq!(lab.counts().await, (1, 1, 1), "sent: {is_sent}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_a_killed_process_are_committed_and_no_command_is_half_done() {
    let postgres = Postgres::new().await;
    let sqlite = Sqlite::new();
    let path = sqlite.path.to_str().expect("it is text").to_owned();
    let url = postgres.database.url();
    for round in 1..=4 {
        killed_anywhere(&postgres, &url, round).await;
        killed_anywhere(&sqlite, &path, round).await;
    }
}

/// Kills a process after it has printed this number of lines, wherever it is then.
async fn killed_anywhere(lab: &impl Lab, place: &str, round: usize) {
    lab.run("DELETE FROM payments; DELETE FROM semel_outbox; DELETE FROM semel_records").await;
    let mut process = Process::start(place, "race");
    let mut said = Vec::new();
    while said.len() < round * 5 {
        let mut line = String::new();
        process.lines.read_line(&mut line).expect("it can be read");
        said.extend(line.trim().strip_prefix("ran ").map(str::to_owned));
    }
    process.kill();
    for key in &said {
        let retry = lab.see(&command(&format!("key-{key}")), pays()).await;
        assert!(retry.replayed(), "it was answered: {retry:?}");
    }
    let (payments, messages, records) = lab.counts().await;
    assert!(payments == messages && messages == records, "{payments} {messages} {records}");
    assert!(records >= said.len() as i64);
}
