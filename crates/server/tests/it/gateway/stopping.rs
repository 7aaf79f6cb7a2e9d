//! Signals that stop a gateway, and signals that do not.

use std::time::Duration;

use super::lab::{Reply, Site, Upstream, lab, pay, problem};

/// Sends a command that waits in the upstream, in a task that a lost connection does not fail.
async fn running(
    upstream: &Upstream,
    address: std::net::SocketAddr,
) -> tokio::task::JoinHandle<Option<Reply>> {
    let client = tokio::spawn(async move { tokio::spawn(pay("{}").doing("gate").to(address)).await.ok() });
    upstream.begun().await;
    client
}

#[tokio::test]
async fn a_termination_waits_for_running_commands() {
    let (_site, upstream, mut gateway) = lab(&[]).await;
    let running = running(&upstream, gateway.address).await;
    gateway.terminate();
    while gateway.admin("/readyz").await.status != 503 {
        tokio::task::yield_now().await;
    }
    let refused = gateway.send(pay("{}").set("idempotency-key", "during-the-shutdown")).await;
    assert_eq!(refused.problem(), problem(503, "SHUTTING_DOWN"));
    upstream.open_gate();
    assert_eq!(running.await.expect("the task ends").expect("it is answered").status, 201);
    assert_eq!(gateway.ended().await.code(), Some(0));
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn a_termination_abandons_running_commands_as_unknown_and_exits_with_1() {
    let (site, upstream, mut gateway) = lab(&["--drain", "100ms"]).await;
    let running = running(&upstream, gateway.address).await;
    gateway.terminate();
    assert_eq!(gateway.ended().await.code(), Some(1));
    running.await.expect("the client notices");
    let second = site.start(upstream.address, &[]);
    assert_eq!(second.send(pay("{}")).await.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn more_signals_to_stop_within_a_second_drop_no_command() {
    for (first, second) in [("-INT", "-INT"), ("-TERM", "-TERM"), ("-INT", "-TERM")] {
        let (_site, upstream, mut gateway) = lab(&[]).await;
        let running = running(&upstream, gateway.address).await;
        gateway.signal(first);
        gateway.logs("stopping: waiting for running commands").await;
        gateway.signal(second);
        gateway.logs("stopping already").await;
        upstream.open_gate();
        let reply = running.await.expect("the task ends").expect("it is answered");
        assert_eq!(reply.status, 201, "{first} {second}");
        assert_eq!(gateway.ended().await.code(), Some(0), "{first} {second}");
    }
}

#[tokio::test]
async fn a_signal_some_seconds_later_ends_the_wait_and_leaves_the_command_unknown() {
    let (site, upstream, mut gateway) = lab(&["--drain", "10m"]).await;
    let running = running(&upstream, gateway.address).await;
    let code = loop {
        match tokio::time::timeout(Duration::from_millis(200), gateway.ended()).await {
            Ok(status) => break status.code(),
            Err(_) => gateway.signal("-INT"),
        }
    };
    running.await.expect("the client notices");
    assert_eq!(code, Some(1), "{}", gateway.log());
    gateway.logs("the wait is over").await;
    assert_eq!(site.states(), ["unknown"], "it is not left to its lease");
}

#[tokio::test]
async fn a_hangup_ends_no_gateway_and_drops_no_command() {
    let (_site, upstream, mut gateway) = lab(&[]).await;
    let running = running(&upstream, gateway.address).await;
    gateway.signal("-HUP");
    gateway.logs("no files of TLS to read again").await;
    let other = gateway.send(pay("{}").set("idempotency-key", "after-the-hangup")).await;
    assert_eq!(other.status, 201, "it goes on as before");
    gateway.terminate();
    gateway.logs("stopping: waiting").await;
    gateway.signal("-HUP");
    gateway.logs("stopping: no files are read again").await;
    upstream.open_gate();
    assert_eq!(running.await.expect("the task ends").expect("it is answered").status, 201);
    assert_eq!(gateway.ended().await.code(), Some(0));
    assert_eq!(upstream.seen(), 2);
}

#[tokio::test]
async fn a_gateway_that_cannot_start_says_so_by_its_exit_code() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let taken = upstream.address.to_string();
    let output = site.semel().args(["serve", "--listen", &taken, "--admin-listen", "127.0.0.1:0"]).output();
    let output = output.expect("the program runs");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
