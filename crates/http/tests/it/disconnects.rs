//! Clients that disconnect: the command goes on, and a retry gets its answer.

use semel_core::Records;
use std::time::Duration;

use semel_core::Filter;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::lab::{Lab, pay};

#[tokio::test]
async fn a_timeout_and_then_a_retry_gets_the_final_result() {
    let lab = Lab::policy(|_| {}).await;
    let mut client = TcpStream::connect(lab.address).await.expect("the server listens");
    client.write_all(&pay("{}").doing("hold").into_bytes()).await.expect("it is sent");
    lab.begun().await;
    drop(client);
    let retry = tokio::spawn(pay("{}").doing("hold").to(lab.address));
    lab.open_gate();
    let reply = retry.await.expect("it is answered");
    assert_eq!((reply.status.as_u16(), &reply.body[..]), (201, &b"1:{}"[..]));
    assert!(reply.replayed());
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn a_client_that_leaves_before_its_body_ends_has_claimed_nothing() {
    let lab = Lab::new().await;
    let request = pay(r#"{"amount":1000}"#).into_bytes();
    for end in [request.len() - 1, request.len() - 10, request.len() - 15] {
        let mut client = TcpStream::connect(lab.address).await.expect("the server listens");
        client.write_all(&request[..end]).await.expect("it is sent");
        client.shutdown().await.expect("it is closed");
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest).await;
    }
    assert_eq!((lab.count(), lab.records().await), (0, 0));
    assert_eq!(lab.send(pay(r#"{"amount":1000}"#)).await.status, 201);
}

#[tokio::test]
async fn a_client_that_leaves_during_execution_stops_nothing() {
    let lab = Lab::new().await;
    let mut client = TcpStream::connect(lab.address).await.expect("the server listens");
    client.write_all(&pay("{}").doing("gate").into_bytes()).await.expect("it is sent");
    lab.begun().await;
    drop(client);
    // Give the server the time to notice, before the effect.
    tokio::time::sleep(Duration::from_millis(50)).await;
    lab.open_gate();
    while lab.sqlite.list(&Filter::default()).await.expect("it lists").records[0]
        .head
        .state
        .expires_at()
        .is_none()
    {
        tokio::task::yield_now().await;
    }
    assert_eq!((lab.count(), lab.state().await.as_str()), (1, "succeeded"));
    assert!(lab.send(pay("{}")).await.replayed());
}

#[tokio::test]
async fn a_client_that_leaves_during_the_response_gets_it_again() {
    let lab = Lab::new().await;
    let mut client = TcpStream::connect(lab.address).await.expect("the server listens");
    client.write_all(&pay("{}").doing("binary").into_bytes()).await.expect("it is sent");
    let mut first_byte = [0];
    client.read_exact(&mut first_byte).await.expect("an answer begins");
    drop(client);
    let again = lab.send(pay("{}")).await;
    assert!(again.replayed());
    assert_eq!(again.body.len(), 256);
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn a_client_that_leaves_while_it_waits_leaves_the_winner_alone() {
    let lab = Lab::policy(|_| {}).await;
    let claims = lab.count_claims();
    let first = tokio::spawn(pay("{}").doing("gate").to(lab.address));
    lab.begun().await;
    let mut waiter = TcpStream::connect(lab.address).await.expect("the server listens");
    waiter.write_all(&pay("{}").into_bytes()).await.expect("it is sent");
    let _ = claims.acquire_many(2).await.expect("it is never closed");
    drop(waiter);
    lab.open_gate();
    assert_eq!(first.await.expect("it is answered").status, 201);
    assert_eq!(lab.count(), 1);
}
