//! Commits that wait for a standby: a cancelled wait does not count as replication, though sqlx reports no warning.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use semel_testkit::postgres::{Binaries, Cluster};
use tempfile::TempDir;

use crate::lab::{Lab, Postgres, command, pays};

const WAITING: &str = "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

/// Cancels the waits, as an operator might: the server then answers that the commits are made.
const CANCEL: &str =
    "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

const STATES: &str = "SELECT coalesce(string_agg(sync_state, ','), 'none') FROM pg_stat_replication
    WHERE state = 'streaming'";

/// Receives the server's WAL, as a standby does.
struct Standby(Child);

impl Standby {
    fn start(cluster: &Cluster, folder: &TempDir) -> Standby {
        let program = Binaries::find().expect("there is a server").folder().join("pg_receivewal");
        let process = Command::new(&program)
            .args(["--synchronous", "--no-loop", "--directory"])
            .arg(folder.path())
            .arg(format!("--dbname={}?application_name=standby", cluster.url("postgres")))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{} cannot be run: {error}", program.display()));
        Standby(process)
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until the server returns this value.
async fn until(cluster: &Cluster, statement: &str, expected: &str) {
    let mut last = String::new();
    for _ in 0..2_000 {
        last = cluster.server().sql("postgres", statement).expect("it can be read");
        if last == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{statement}: {last}, not {expected}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_whose_wait_for_a_standby_is_cancelled_is_not_answered_as_done() {
    let cluster = Cluster::start().expect("a server can be started");
    let lab = Postgres::on(cluster.server()).await;
    let folder = TempDir::new().expect("there is room for a test");
    let standby = Standby::start(&cluster, &folder);
    until(&cluster, STATES, "async").await;
    let set = |statement: &str| cluster.server().sql("postgres", statement).expect("it can be set");
    set("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
    set("SELECT pg_reload_conf()");
    until(&cluster, STATES, "sync").await;
    assert!(lab.see(&command("replicated"), pays()).await.executed(), "the standby answers");

    drop(standby);
    until(&cluster, STATES, "none").await;
    let running = tokio::spawn({
        let lab = lab.clone();
        async move { lab.see(&command("key"), pays()).await }
    });
    // The COMMIT, the question about it, and everything after it.
    for round in 0..3 {
        until(&cluster, WAITING, "t").await;
        assert!(!running.is_finished(), "{round}: no standby has it");
        set(CANCEL);
    }
    until(&cluster, WAITING, "t").await;
    assert!(!running.is_finished(), "no standby has it");
    let _standby = Standby::start(&cluster, &folder);
    let told = running.await.expect("it does not panic");
    assert!(told.executed(), "it is replicated now: {told:?}");
    assert!(lab.see(&command("key"), pays()).await.replayed());
    assert_eq!(lab.counts().await, (2, 2, 2));
    // The cleanup does not wait for a standby.
    set("ALTER SYSTEM RESET synchronous_standby_names");
    set("SELECT pg_reload_conf()");
}
