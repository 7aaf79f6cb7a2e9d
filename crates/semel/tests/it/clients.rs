//! The Rust client before the real layer: it reads each kind of answer as what it is. The cases of `sdk/cases` are scripted; these
//! answers are the layer's own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Extension, Router};
use semel::{MemoryStore, Operation, Outcome, Principal, Semel};
use semel_client::{
    CallError, ClientCommand, ClientOptions, CommandClient, CommandOutcome, MemoryJournal, StopReason,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

const KEY: &str = "a-key-of-a-client-0001";

/// Signals of the slow handler: it has begun, and it may end.
#[derive(Clone)]
struct SlowHandler {
    begun: Arc<Semaphore>,
    may_end: Arc<Semaphore>,
}

/// Service with an operation for each kind of answer. Its caller is signed out from the given request on.
async fn serve(signed_out_from: u32) -> (SocketAddr, SlowHandler) {
    let slow = SlowHandler { begun: Arc::new(Semaphore::new(0)), may_end: Arc::new(Semaphore::new(0)) };
    let seen = AtomicU32::new(1);
    let semel = Semel::builder(Arc::new(MemoryStore::new()))
        .identify(move |_| {
            let is_signed_in = seen.fetch_add(1, Ordering::SeqCst) < signed_out_from;
            Ok(Principal::new("acme", if is_signed_in { "alice" } else { "" })?)
        })
        .operation(Operation::new("orders.create", "POST /orders").business_reference("/order"))
        .operation(
            Operation::new("reports.create", "POST /reports").with(|policy| policy.max_stored_response = 8),
        )
        .operation(Operation::new("slow", "POST /slow").with(|policy| policy.wait = Duration::ZERO))
        .build()
        .expect("it can be built");
    let lost = || async { (StatusCode::BAD_GATEWAY, Extension(Outcome::Unknown), "lost").into_response() };
    let signals = slow.clone();
    let handler = move || async move {
        signals.begun.add_permits(1);
        signals.may_end.acquire().await.expect("it is never closed").forget();
        "done"
    };
    let app = Router::new()
        .route("/orders", post(|| async { (StatusCode::CREATED, "ordered") }))
        .route("/reports", post(|| async { (StatusCode::CREATED, "a report of many pages") }))
        .route("/declined", post(|| async { (StatusCode::PAYMENT_REQUIRED, "declined") }))
        .route("/lost", post(lost))
        .route("/slow", post(handler))
        .layer(semel.layer());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, slow)
}

fn client(address: SocketAddr) -> CommandClient {
    let mut options = ClientOptions::default();
    (options.base, options.deadline, options.attempts) =
        (Duration::from_millis(1), Duration::from_secs(20), 2);
    let builder = CommandClient::builder([format!("http://{address}")]);
    builder.options(options).journal(MemoryJournal::new()).build().expect("its origin is an address")
}

fn command(address: SocketAddr, path: &str, body: &Value, key: &str) -> ClientCommand {
    ClientCommand::post(format!("http://{address}{path}")).json(body).key(key)
}

async fn send(address: SocketAddr, path: &str, body: Value, key: &str) -> Result<CommandOutcome, CallError> {
    client(address).send(command(address, path, &body, key)).await
}

#[tokio::test]
async fn outcomes_of_the_layer_and_their_replays_are_final() {
    let (address, _) = serve(u32::MAX).await;
    for (path, expected) in [("/orders", StatusCode::CREATED), ("/declined", StatusCode::PAYMENT_REQUIRED)] {
        for is_replay in [false, true] {
            let told = send(address, path, json!({"order": "17"}), KEY).await.expect("it is an outcome");
            let CommandOutcome::Final { response, replayed, operation_id, expires, .. } = told else {
                panic!("{path}: {told:?}")
            };
            assert_eq!((response.status(), replayed), (expected, is_replay), "{path}");
            assert!(operation_id.is_some() && expires.is_some(), "{path}");
        }
    }
}

#[tokio::test]
async fn refusals_of_the_layer_are_typed_errors() {
    let (address, _) = serve(u32::MAX).await;
    let ordered = send(address, "/orders", json!({"order": "17"}), KEY).await.expect("it has an outcome");
    assert!(matches!(ordered, CommandOutcome::Final { .. }), "{ordered:?}");
    let other = send(address, "/orders", json!({"order": "18"}), KEY).await;
    assert!(matches!(other, Err(CallError::KeyReused(_))), "{other:?}");
    let twice = send(address, "/orders", json!({"order": "17"}), "another-key-of-the-client").await;
    let Err(CallError::DuplicateBusinessReference(refused)) = twice else { panic!("{twice:?}") };
    assert!(refused.operation.is_some(), "its own caller is told who holds the reference");

    let made = send(address, "/reports", json!({}), KEY).await.expect("it has an outcome");
    assert!(matches!(made, CommandOutcome::Final { .. }), "{made:?}");
    let again = send(address, "/reports", json!({}), KEY).await;
    let Err(CallError::ResponseNotRetained(kept)) = again else { panic!("{again:?}") };
    assert_eq!(kept.response.status(), StatusCode::CREATED);
}

#[tokio::test]
async fn an_unknown_outcome_is_polled_and_stays_in_the_journal() {
    let (address, _) = serve(u32::MAX).await;
    let mut options = ClientOptions::default();
    (options.base, options.cap, options.deadline) =
        (Duration::from_millis(1), Duration::from_millis(1), Duration::from_millis(1500));
    let client = CommandClient::builder([format!("http://{address}")]);
    let client = client.options(options).journal(MemoryJournal::new()).build().expect("it is an address");
    let told = client.send(command(address, "/lost", &json!({}), KEY).intent("order 17")).await;
    let Ok(CommandOutcome::Unknown { operation, .. }) = told else { panic!("{told:?}") };
    assert!(operation.url().contains("/.well-known/semel/operations/"));
    let pending = client.pending().await.expect("it can be read");
    assert_eq!(pending.iter().map(|entry| &*entry.intent).collect::<Vec<_>>(), ["order 17"]);
}

#[tokio::test]
async fn a_command_in_progress_and_then_a_denial_is_unresolved() {
    // The second request finds the first in progress; at the third, the caller is signed out.
    let (address, slow) = serve(3).await;
    let first = tokio::spawn(send(address, "/slow", json!({}), KEY));
    slow.begun.acquire().await.expect("it is never closed").forget();
    let client = client(address);
    let told = client.send(command(address, "/slow", &json!({}), KEY).intent("slow")).await;
    let Ok(CommandOutcome::Unresolved { stopped, attempts, .. }) = told else { panic!("{told:?}") };
    assert_eq!((stopped, attempts), (StopReason::Answer, 2));
    assert_eq!(client.pending().await.expect("it can be read").len(), 1, "its entry is not cleared");
    slow.may_end.add_permits(1);
    let told = first.await.expect("it does not panic").expect("it has an outcome");
    assert!(matches!(told, CommandOutcome::Final { .. }), "{told:?}");
}
