//! Slow upstream: its answer is still read for some time after the timeout, and settles the unknown record.

use std::time::Duration;

use http::StatusCode;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use super::lab::{Gateway, KEY, Reply, Send, Site, Upstream, lab, pay, problem};
use super::late_answers::{CALLERS, Forger, command, read_head, said};
use super::reconciling::json_of;

const PATIENT: [&str; 6] = ["--timeout", "300ms", "--late-answer", "1h", "--wait", "0s"];

/// Sends until the answer is no longer "unknown". Fails after a bounded time.
async fn settled(gateway: &Gateway, request: impl Fn() -> Send) -> Reply {
    for _ in 0..400 {
        let reply = gateway.send(request()).await;
        if reply.status != StatusCode::CONFLICT {
            return reply;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("it stays unknown: {}", gateway.log());
}

#[tokio::test]
async fn an_upstream_that_answers_after_the_timeout_settles_the_command() {
    for file in ["", "upstream_protocol = \"h2c\"\n"] {
        let (site, upstream) = (Site::new(), Upstream::start().await);
        let gateway = site.start_with(upstream.address, file, &PATIENT);
        let slow = || pay("{}").doing("gate");
        assert_eq!(gateway.send(slow()).await.problem(), problem(504, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
        assert_eq!(gateway.send(slow()).await.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
        assert_eq!(site.states(), ["unknown"], "nothing is renewed");
        upstream.open_gate();
        let replay = settled(&gateway, slow).await;
        assert_eq!((replay.status, &replay.body[..]), (StatusCode::CREATED, &b"1:{}"[..]));
        assert!(replay.replayed());
        assert_eq!((upstream.seen(), upstream.effects()), (1, 1));
        let unmatched = "operation=\"unmatched\"";
        let late = format!("idempotency_late_answers_total{{{unmatched},outcome=\"settled\"}}");
        // Counted after the write that the replay has seen.
        for _ in 0..400 {
            if gateway.counted(&late).await.is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        assert_eq!(gateway.counted(&late).await, Some(1));
        let failures = format!("upstream_failures_total{{{unmatched},kind=\"timed_out\"}}");
        assert_eq!(gateway.counted(&failures).await, Some(1));
    }
}

#[tokio::test]
async fn the_connection_of_a_late_answer_is_not_used_again() {
    let (site, upstream) = (Site::new(), Forger::start().await);
    let gateway = site.start_with(upstream.address, CALLERS, &PATIENT);
    let slow = || command("acme", "alice", "slow-00000000").doing("slow");
    assert_eq!(gateway.send(slow()).await.status, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(said(&gateway.send(command("acme", "alice", "second-00000000")).await), "on 2");
    upstream.forge().await;
    assert_eq!(said(&settled(&gateway, slow).await), "on 1");
    assert_eq!(said(&gateway.send(command("acme", "alice", "third-00000000")).await), "on 2");
}

#[tokio::test]
async fn a_late_answer_that_the_record_denies_is_a_contradiction() {
    let (site, upstream, gateway) = lab(&PATIENT).await;
    gateway.send(pay("{}").doing("gate")).await;
    let (records, _) = json_of(&site, &["records", "list", "--state", "unknown"]);
    let id = records[0]["operationId"].as_str().expect("it is a text").to_owned();
    let failed =
        ["records", "resolve", &id, "--verdict", "executed", "--status", "422", "--reason", "declined"];
    assert!(site.semel().args(failed).output().expect("the program runs").status.success());
    upstream.open_gate();
    gateway.logs("idempotency_reconcile_contradiction").await;
    assert_eq!(gateway.counted("idempotency_reconcile_contradictions_total").await, Some(1));
    assert_eq!(gateway.send(pay("{}").doing("gate")).await.status, StatusCode::UNPROCESSABLE_ENTITY);
    let mut told = String::new();
    for _ in 0..200 {
        let explain = site.semel().args(["records", "explain", &id]).output().expect("the program runs");
        told = String::from_utf8_lossy(&explain.stdout).into_owned();
        if told.contains("CONTRADICTION") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    assert!(told.contains("CONTRADICTION") && told.contains("after its timeout"), "{told}");
}

#[tokio::test]
async fn a_drain_does_not_wait_for_a_late_answer() {
    let (site, upstream, mut gateway) = lab(&[&PATIENT[..], &["--drain", "1h"]].concat()).await;
    assert_eq!(gateway.send(pay("{}").doing("gate")).await.status, StatusCode::GATEWAY_TIMEOUT);
    gateway.terminate();
    let ended = tokio::time::timeout(Duration::from_secs(60), gateway.ended()).await;
    assert!(ended.expect("it ends long before the answer would").success());
    assert_eq!(site.states(), ["unknown"]);
    assert_eq!(upstream.effects(), 0, "it never came to its end");
}

#[tokio::test]
async fn a_request_that_was_not_sent_whole_ends_with_its_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let (site, address) = (Site::new(), listener.local_addr().expect("it is bound"));
    let limit = ["--max-request", "64MiB"];
    let gateway = site.start(address, &[&PATIENT[..], &limit].concat());
    let upstream = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("it connects");
        read_head(&mut stream).await.expect("there is a head");
        // Reads nothing of the body until the client was answered.
        stream
    });
    let body = vec![b'x'; 48 << 20];
    let reply = gateway.send(pay("").body(body).set("idempotency-key", KEY)).await;
    assert_eq!(reply.problem(), problem(504, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    let mut stream = upstream.await.expect("it does not panic");
    let mut read = Vec::new();
    // The gateway has closed the connection: buffered bytes come, and then the end.
    let ended = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut read)).await;
    let _ = ended.expect("the connection is closed at once");
    assert!(read.len() < 48 << 20, "{}", read.len());
    assert_eq!(site.states(), ["unknown"]);
}

#[tokio::test]
async fn with_late_answers_off_a_timed_out_command_stays_unknown() {
    let (_site, upstream, gateway) = lab(&["--timeout", "300ms", "--late-answer", "off"]).await;
    gateway.send(pay("{}").doing("gate")).await;
    upstream.open_gate();
    let next = gateway.send(pay("{}").set("idempotency-key", format!("{KEY}-2"))).await;
    assert_eq!(next.status, StatusCode::CREATED);
    assert_eq!(
        gateway.send(pay("{}").doing("gate")).await.problem(),
        problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN")
    );
}
