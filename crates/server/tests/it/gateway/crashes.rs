//! Processes that are killed with SIGKILL at each step. Effects are counted at the upstream.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::lab::{Gateway, Site, Upstream, lab, pay, problem};

const SHORT_LEASE: [&str; 4] = ["--lease", "500ms", "--wait", "0s"];

/// Sends a request whose answer may never come.
fn send_and_forget(address: SocketAddr, what: &'static str) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let _ = tokio::spawn(pay("{}").doing(what).to(address)).await;
    })
}

/// Returns the answer to retries once the lease of a dead executor has expired.
async fn settled(gateway: &Gateway) -> (u16, String) {
    loop {
        let reply = gateway.send(pay("{}")).await;
        if reply.status.is_success() {
            return (reply.status.as_u16(), String::new());
        }
        let answer = reply.problem();
        if answer != problem(409, "IDEMPOTENCY_REQUEST_IN_PROGRESS") {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn killed_before_the_claim_nothing_happened() {
    let (site, upstream, mut gateway) = lab(&SHORT_LEASE).await;
    let request = pay("{}").into_bytes();
    let mut client = TcpStream::connect(gateway.address).await.expect("it listens");
    client.write_all(&request[..request.len() - 1]).await.expect("it is sent");
    gateway.kill();
    let second = site.start(upstream.address, &SHORT_LEASE);
    assert_eq!(settled(&second).await.0, 201);
    assert_eq!(upstream.effects(), 1);
}

#[tokio::test]
async fn killed_while_the_upstream_works_the_outcome_is_unknown() {
    for effect_first in [false, true] {
        let (site, upstream, mut gateway) = lab(&SHORT_LEASE).await;
        let cut_off = send_and_forget(gateway.address, "gate");
        upstream.begun().await;
        if !effect_first {
            gateway.kill();
        }
        upstream.open_gate();
        while upstream.effects() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if effect_first {
            gateway.kill();
        }
        cut_off.await.expect("the client notices");
        let second = site.start(upstream.address, &SHORT_LEASE);
        // Killed right after the effect, the gateway may just have stored the answer.
        let answer = settled(&second).await;
        let unknown = problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN");
        assert!(answer == unknown || (effect_first && answer.0 == 201), "{answer:?}");
        assert_eq!(upstream.effects(), 1, "never a second effect");
    }
}

#[tokio::test]
async fn killed_after_the_answer_was_stored_it_is_replayed() {
    let (site, upstream, mut gateway) = lab(&SHORT_LEASE).await;
    let first = gateway.send(pay("{}")).await;
    gateway.kill();
    let second = site.start(upstream.address, &SHORT_LEASE);
    let again = second.send(pay("{}")).await;
    assert!(again.replayed());
    assert_eq!((again.body, upstream.effects()), (first.body, 1));
}

#[tokio::test]
async fn killed_at_any_moment_there_is_at_most_one_effect() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let mut told = 0;
    for round in 0..12_u64 {
        let mut gateway = site.start(upstream.address, &SHORT_LEASE);
        let key = format!("any-moment-{round:08}");
        let before = upstream.effects();
        let address = gateway.address;
        let request = pay("{}").set("idempotency-key", &key);
        let cut_off = tokio::spawn(async move { tokio::spawn(request.to(address)).await.is_ok() });
        tokio::time::sleep(Duration::from_micros(300 * round)).await;
        gateway.kill();
        told += usize::from(cut_off.await.expect("the client notices"));
        let second = site.start(upstream.address, &SHORT_LEASE);
        for _ in 0..3 {
            second.send(pay("{}").set("idempotency-key", &key)).await;
        }
        assert!(upstream.effects() - before <= 1, "round {round}");
    }
    println!("12 kills, {told} of them after the client had its answer, at most one effect each");
}

/// Variable that makes this test binary the upstream.
const CHILD: &str = "SEMEL_TEST_UPSTREAM";

#[tokio::test]
async fn an_upstream_in_a_process_of_its_own() {
    let Ok(folder) = std::env::var(CHILD) else { return };
    async fn charge(State(folder): State<PathBuf>, headers: HeaderMap) -> &'static str {
        let note = |name: &str| {
            let file = std::fs::OpenOptions::new().create(true).append(true).open(folder.join(name));
            let mut file = file.expect("it can be written");
            file.write_all(b"x\n").and_then(|()| file.sync_all()).expect("it is on disk");
        };
        let wait = headers.get("x-do").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        note("begun");
        if wait == "before" {
            std::future::pending::<()>().await;
        }
        note("effects");
        if wait == "after" {
            std::future::pending::<()>().await;
        }
        "charged"
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    println!("\nlistening on {}", listener.local_addr().expect("it is bound"));
    let app = Router::new().route("/payments", post(charge)).with_state(PathBuf::from(folder));
    axum::serve(listener, app).await.expect("it serves");
}

#[allow(clippy::zombie_processes, reason = "whoever asked for it ends it")]
fn start_upstream(folder: &Path) -> (Child, SocketAddr, BufReader<std::process::ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().expect("tests run from a file"))
        .args(["--exact", "gateway::crashes::an_upstream_in_a_process_of_its_own", "--nocapture"])
        .env(CHILD, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a process can be started");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
    loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).expect("it can be read") > 0, "it says where it listens");
        if let Some(address) = line.trim().strip_prefix("listening on ") {
            return (child, address.parse().expect("it is an address"), lines);
        }
    }
}

fn count(folder: &Path, name: &str) -> usize {
    std::fs::read_to_string(folder.join(name)).unwrap_or_default().lines().count()
}

#[tokio::test]
async fn an_upstream_killed_in_the_middle_leaves_an_unknown() {
    for (moment, effects) in [("before", 0), ("after", 1)] {
        let site = Site::new();
        let folder = site.folder.path();
        let (mut upstream, address, _lines) = start_upstream(folder);
        let gateway = site.start(address, &[]);
        let request = tokio::spawn(pay("{}").doing(moment).to(gateway.address));
        while count(folder, "begun") == 0 || count(folder, "effects") < effects {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        upstream.kill().expect("SIGKILL is delivered");
        upstream.wait().expect("it is gone");
        let reply = request.await.expect("it is answered");
        assert_eq!(reply.problem(), problem(502, "IDEMPOTENCY_OUTCOME_UNKNOWN"), "{moment}");
        for _ in 0..3 {
            let again = gateway.send(pay("{}")).await;
            assert_eq!(again.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
        }
        assert_eq!((count(folder, "begun"), count(folder, "effects")), (1, effects), "{moment}");
        // While the upstream is away, a new command has provably not run.
        let other = pay("{}").set("idempotency-key", "while-it-is-away-0001");
        assert_eq!(gateway.send(other).await.problem(), problem(502, "UPSTREAM_UNREACHABLE"));
    }
}
