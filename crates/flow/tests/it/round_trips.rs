//! Round trips of a command to PostgreSQL, counted on the wire.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use semel_flow::PostgresTransactions;
use sqlx::postgres::PgPoolOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::lab::{Lab, PAY, Postgres, Saw, Step, Work, command, pays, referring};

/// Forwards everything, and counts the client's waits: each `Query` and each `Sync` is answered once.
async fn count_round_trips(upstream: std::net::SocketAddr) -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(upstream).await.expect("the server listens");
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
            let counter = counter.clone();
            tokio::spawn(async move {
                // The first message has no type; after a refused request for TLS comes another one.
                let mut is_typed = false;
                loop {
                    let kind = if is_typed { from_client.read_u8().await.ok()? } else { 0 };
                    let length = from_client.read_u32().await.ok()?;
                    let mut body = vec![0; length as usize - 4];
                    from_client.read_exact(&mut body).await.ok()?;
                    if matches!(kind, b'Q' | b'S') {
                        counter.fetch_add(1, Ordering::SeqCst);
                    }
                    if is_typed {
                        to_server.write_u8(kind).await.ok()?;
                    }
                    to_server.write_u32(length).await.ok()?;
                    to_server.write_all(&body).await.ok()?;
                    is_typed |= !body.starts_with(&80_877_103_u32.to_be_bytes());
                }
                #[allow(unreachable_code, reason = "it tells the type of what `?` returns")]
                Some(())
            });
        }
    });
    (address, count)
}

/// Returns a lab with one connection, whose statements a first command has prepared.
async fn counted(options: PgPoolOptions) -> (Postgres, Arc<AtomicUsize>) {
    let lab = Postgres::new().await;
    let server = lab.database.server().address();
    let (proxy, count) = count_round_trips(server).await;
    let url = lab.database.url().replace(&server.to_string(), &proxy.to_string());
    let pool = options.max_connections(1).connect(&url).await.expect("it connects");
    let lab = Postgres { transactions: PostgresTransactions::new(pool), ..lab };
    assert!(lab.see(&command("first"), pays()).await.executed());
    assert!(lab.see(&referring(command("first-order"), "order-1"), pays()).await.executed());
    assert!(lab.see(&command("first"), pays()).await.replayed());
    (lab, count)
}

/// Returns work of one statement.
fn one() -> Work {
    Work { steps: vec![Step::Sql(PAY)], ..pays() }
}

/// Returns the round trips of one command besides those of its work, the pool's own included. The pool tests a returned
/// connection after the command has been answered; the next command waits for that.
async fn besides(
    lab: &Postgres,
    count: &AtomicUsize,
    command: &semel_core::Command,
    expected: &str,
) -> usize {
    let before = settled(count).await;
    let saw = lab.see(command, one()).await;
    let told = match &saw {
        Saw::Executed(..) => "executed",
        Saw::Replayed(..) => "replayed",
        _ => "something else",
    };
    assert_eq!(told, expected, "{saw:?}");
    let own = usize::from(expected == "executed");
    settled(count).await - before - own
}

/// Returns the count, once it no longer grows.
async fn settled(count: &AtomicUsize) -> usize {
    let mut last = count.load(Ordering::SeqCst);
    loop {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        let now = count.load(Ordering::SeqCst);
        if now == last {
            return now;
        }
        last = now;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_takes_at_most_five_round_trips() {
    // With the defaults of a pool, and without the test of each connection before it is used.
    for (asks, options) in [(1, PgPoolOptions::new()), (0, PgPoolOptions::new().test_before_acquire(false))] {
        let (lab, count) = counted(options).await;
        let waited = 4 + asks;
        assert!(waited <= 5);
        // The pool's test, and the check of the session that work had.
        let (after, look) = (1, 1);
        assert_eq!(besides(&lab, &count, &command("second"), "executed").await, waited + look + after);
        let order = referring(command("order"), "order-2");
        assert_eq!(besides(&lab, &count, &order, "executed").await, waited + look + after);
        assert_eq!(besides(&lab, &count, &command("second"), "replayed").await, waited + after);
    }
}
