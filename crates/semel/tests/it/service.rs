//! [`Semel`]: serving, draining, maintenance, and transactions on the right database.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use semel::protocol::{Filter, Records, StateName};
use semel::{Backend, ConfigError, Maintained, MemoryStore, Operation, Principal, Semel};
use semel_testkit::clock::ManualClock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};

fn semel(store: Arc<dyn Backend>) -> Semel {
    let builder = Semel::builder(store)
        .identify(|head| {
            let user = head.headers.get("x-user").and_then(|value| value.to_str().ok());
            Ok(Principal::new("acme", user.unwrap_or_default())?)
        })
        .operation(Operation::new("payments.create", "POST /payments").ttl(Duration::from_secs(60)));
    builder.build().expect("it can be built")
}

async fn pay(address: SocketAddr, user: &str, key: &str) -> String {
    send(address, "/payments", user, key).await
}

/// Sends one command over a connection of its own, and returns the whole answer.
async fn send(address: SocketAddr, path: &str, user: &str, key: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\nx-user: {user}\r\nidempotency-key: {key}\r\ncontent-length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it is answered");
    answer
}

#[tokio::test]
async fn a_served_command_runs_once_and_its_retry_is_replayed() {
    let folder = tempfile::TempDir::new().expect("there is room");
    let location = format!("sqlite:{}", folder.path().join("semel.db").display());
    let semel = semel(semel::open(&location).await.expect("it opens"));
    let charges = Arc::new(AtomicUsize::new(0));
    let counted = charges.clone();
    let charge = move || async move { format!("charge {}", counted.fetch_add(1, Ordering::SeqCst) + 1) };
    let app = Router::new().route("/payments", post(charge)).layer(semel.layer());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(async move {
        semel.serve_until(listener, app, async { drop(stopped.await) }, Duration::from_secs(5)).await
    });

    assert!(pay(address, "alice", "the-first-payment-01").await.contains("charge 1"));
    let retry = pay(address, "alice", "the-first-payment-01").await;
    assert!(retry.contains("idempotency-replayed: true") && retry.contains("charge 1"), "{retry}");
    assert!(pay(address, "", "the-first-payment-01").await.starts_with("HTTP/1.1 401 "), "a bad principal");
    assert_eq!(charges.load(Ordering::SeqCst), 1);

    drop(stop);
    serving.await.expect("it does not panic").expect("it ends in good order");
    assert!(TcpStream::connect(address).await.is_err(), "it does not listen any more");
}

#[tokio::test]
async fn a_drain_lets_a_running_command_end_and_claims_no_more() {
    let store = Arc::new(MemoryStore::new());
    let semel = semel(store.clone());
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let signals = (begun.clone(), go_on.clone());
    let slow = move || async move {
        signals.0.notify_one();
        signals.1.notified().await;
        "charged"
    };
    let app = Router::new().route("/payments", post(slow)).route("/refunds", post(|| async { "refunded" }));
    let app = app.layer(semel.layer());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(async move {
        semel.serve_until(listener, app, async { drop(stopped.await) }, Duration::from_secs(60)).await
    });
    let running = tokio::spawn(pay(address, "alice", "the-slow-payment-001"));
    begun.notified().await;
    drop(stop);
    // The signal has arrived once a new command is refused.
    let mut number = 0;
    let refused = loop {
        number += 1;
        let answer = send(address, "/refunds", "alice", &format!("a-late-refund-{number:06}")).await;
        if !answer.starts_with("HTTP/1.1 200 ") {
            break answer;
        }
    };
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("SHUTTING_DOWN"), "{refused}");
    go_on.notify_one();
    assert!(running.await.expect("it does not panic").contains("charged"));
    serving.await.expect("it does not panic").expect("it ends in good order");
    let filter = Filter { limit: number + 1, ..Filter::default() };
    let records = store.list(&filter).await.expect("it lists").records;
    assert_eq!(records.len(), number, "the payment and the refunds before the signal");
    assert!(records.iter().all(|record| record.head.state.name() == StateName::Succeeded));
}

#[tokio::test]
async fn upkeep_once_removes_records_expired_by_a_manual_clock() {
    let clock = ManualClock::new();
    let store = Arc::new(MemoryStore::with_clock(clock.clone()));
    let semel = semel(store);
    let app = Router::new().route("/payments", post(|| async { "charged" })).layer(semel.layer());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(axum::serve(listener, app).into_future());
    pay(address, "alice", "the-first-payment-01").await;
    let nothing = Maintained { swept: 0, reaped: 0 };
    assert_eq!(semel.upkeep_once().await.expect("it is there"), nothing);
    clock.advance(Duration::from_secs(61));
    assert_eq!(semel.upkeep_once().await.expect("it is there"), Maintained { swept: 0, reaped: 1 });
}

#[tokio::test]
async fn the_work_in_the_background_stops_when_it_is_dropped() {
    let store: Arc<dyn Backend> = Arc::new(MemoryStore::new());
    let semel = semel(store.clone());
    let before = Arc::strong_count(&store);
    let background = semel.start().await.expect("it has no witness");
    assert!(Arc::strong_count(&store) > before, "it holds the store");
    drop(background);
    while Arc::strong_count(&store) > before {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_builder_without_identity_is_refused() {
    let refused = Semel::builder(Arc::new(MemoryStore::new())).build();
    assert!(matches!(refused, Err(ConfigError::NoIdentity)));
}

#[tokio::test]
async fn transactions_on_another_file_are_refused() {
    let folder = tempfile::TempDir::new().expect("there is room");
    let path = |name: &str| folder.path().join(name);
    let open = async |name: &str| {
        semel(semel::open(&format!("sqlite:{}", path(name).display())).await.expect("it opens"))
    };
    let (one, _other) = (open("one.db").await, open("other.db").await);
    assert!(one.file_transactions(path("one.db")).await.is_ok());
    let refused =
        one.file_transactions(path("other.db")).await.err().expect("it is another store").to_string();
    assert!(refused.starts_with("the transactions are on another database than the records"), "{refused}");
    let in_memory = semel(Arc::new(MemoryStore::new()));
    let refused = in_memory.file_transactions(path("one.db")).await.err().expect("memory is no file");
    assert!(refused.to_string().contains("one in memory"), "{refused}");
}

#[tokio::test]
async fn transactions_seal_as_the_store_does() {
    use semel::encryption::{AesVault, SealedStore};
    use semel::flow::{Command, Reply, Transacted};
    use semel_testkit::sample;

    let folder = tempfile::TempDir::new().expect("there is room");
    let path = folder.path().join("semel.db");
    let plain = Arc::new(semel::SqliteStore::open(&path).expect("it opens"));
    let vault = Arc::new(AesVault::new("k1", [("k1".to_owned(), [7; 32])]).expect("the key is valid"));
    let semel = semel(Arc::new(SealedStore::new(plain, vault)));
    let transactions = semel.file_transactions(&path).await.expect("it is the same file");
    let command = Command {
        scope: sample::scope("the-sealed-payment-1"),
        fingerprint: sample::fingerprint("{}"),
        business_reference: None,
        former: Arc::default(),
        policy: Arc::default(),
        trace: None,
    };
    let answer = || Reply::new(http::StatusCode::CREATED).body("a secret answer");
    let answered = transactions.transact(&command, move |_| Ok(answer())).await;
    assert!(matches!(answered.outcome(), Transacted::Executed { .. }), "{answered:?}");
    drop((semel, transactions));
    for entry in std::fs::read_dir(folder.path()).expect("it is a folder") {
        let bytes = std::fs::read(entry.expect("it is there").path()).expect("it can be read");
        assert!(!bytes.windows(15).any(|window| window == b"a secret answer"), "it is stored in the clear");
    }
}
