//! A real process that is killed during a command, and a second one on the same file.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use semel_core::Policy;
use semel_http::IdempotencyLayer;
use semel_stores::SqliteStore;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::lab::{identify, pay, problem, serve};

/// Variable that makes this test binary the service.
const CHILD: &str = "SEMEL_TEST_CHILD";

/// Charges by a line in a file that outlives the process, and never answers.
async fn charge(State(ledger): State<PathBuf>) -> &'static str {
    let mut file =
        std::fs::OpenOptions::new().create(true).append(true).open(ledger).expect("it can be written");
    file.write_all(b"charged\n").and_then(|()| file.sync_all()).expect("it is on disk");
    std::future::pending().await
}

/// Runs the service in its own process: prints its address and serves until it is killed.
#[tokio::test]
async fn the_service_in_a_process_of_its_own() {
    let Ok(folder) = std::env::var(CHILD) else { return };
    let folder = Path::new(&folder);
    let store = Arc::new(SqliteStore::open(folder.join("semel.db")).expect("the file opens"));
    let policy = Policy { lease: Duration::from_millis(500), wait: Duration::ZERO, ..Policy::default() };
    let layer = IdempotencyLayer::builder(store).identify(identify).defaults(policy).build().expect("valid");
    let app = Router::new().route("/payments", post(charge)).with_state(folder.join("ledger")).layer(layer);
    println!("listening on {}", serve(app).await);
    std::future::pending::<()>().await;
}

async fn start(folder: &Path) -> (Child, SocketAddr) {
    let mut child = Command::new(std::env::current_exe().expect("tests run from a file"))
        .args(["--exact", "killed::the_service_in_a_process_of_its_own", "--nocapture"])
        .env(CHILD, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("a process can be started");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    loop {
        let line = lines.next_line().await.expect("it can be read").expect("it says where it listens");
        if let Some((_, address)) = line.split_once("listening on ") {
            return (child, address.trim().parse().expect("it is an address"));
        }
    }
}

fn charges(folder: &Path) -> usize {
    std::fs::read_to_string(folder.join("ledger")).unwrap_or_default().lines().count()
}

#[tokio::test]
async fn a_process_killed_in_the_middle_of_a_command_leaves_an_unknown_and_one_effect() {
    let folder = TempDir::new().expect("there is room for a test");
    let (mut first, address) = start(folder.path()).await;
    let request = tokio::spawn(async move {
        // The connection breaks with the process: there is no answer.
        let _ = tokio::spawn(pay("{}").to(address)).await;
    });
    while charges(folder.path()) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    first.kill().await.expect("SIGKILL is delivered");
    request.await.expect("the client notices");

    let (_second, address) = start(folder.path()).await;
    let answer = loop {
        let reply = pay("{}").to(address).await.problem();
        // The dead executor's lease has to expire first: other processes cannot know that it is dead.
        if reply != problem(409, "IDEMPOTENCY_REQUEST_IN_PROGRESS") {
            break reply;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(answer, problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    for _ in 0..5 {
        assert_eq!(pay("{}").to(address).await.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    }
    assert_eq!(charges(folder.path()), 1);
}
