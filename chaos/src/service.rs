//! The service with its records in its own database, as a process of its own: `semel-chaos service EVENTS`, with the store in
//! `SEMEL_STORE`. A transfer is one row and one message, in one transaction with its record.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::routing::post;
use axum::{Json, Router};
use semel::core::Outbox;
use semel::core::outbox::RetryTerms;
use semel::flow::outbox::{HttpSink, Worker, WorkerOptions};
use semel::flow::postgres::PgTx;
use semel::flow::sqlite::SqliteTx;
use semel::flow::{Answered, Idempotent, PostgresTransactions, Reply, SqliteTransactions, rusqlite, sqlx};
use semel::{Denied, IdempotencyLayer, Operation, PostgresStore, Principal, SqliteStore, Store};
use serde_json::{Value, json};

use crate::asked::EFFECT;
use crate::settings::TRANSFERS;

type Error = Box<dyn std::error::Error>;

/// No constraint keeps a command from having two rows: that is for others to see to.
const TABLE: &str =
    "CREATE TABLE IF NOT EXISTS chaos_transfers (operation_id TEXT NOT NULL, effect TEXT NOT NULL)";
const INSERT: &str = "INSERT INTO chaos_transfers (operation_id, effect) VALUES ($1, $2)";
/// The kind of the message.
const KIND: &str = "transfer.made";
/// What the receiver could check signatures with.
const SECRET: &[u8] = b"a secret that both sides of a test know";

/// Messages are tried often, and never given up.
const RETRY: RetryTerms = RetryTerms {
    max_attempts: 10_000,
    first_delay: Duration::from_millis(50),
    max_delay: Duration::from_millis(500),
};

#[derive(Clone)]
enum Bank {
    Sqlite(SqliteTransactions),
    Postgres(PostgresTransactions),
}

async fn transfer(
    State(bank): State<Bank>,
    Idempotent(command): Idempotent,
    Json(asked): Json<Value>,
) -> Answered {
    let effect: String = semel::core::ids::secret()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let effect = format!("{EFFECT}{effect}");
    let reply = json!({ "effect": effect, "canary": asked["canary"] });
    match bank {
        Bank::Sqlite(semel) => {
            let work = move |tx: &SqliteTx<'_>| {
                tx.execute(INSERT, (tx.operation_id().to_string(), &effect))?;
                tx.push(KIND, effect.as_bytes())?;
                Reply::json(StatusCode::CREATED, &reply)
            };
            semel.transact(&command, work).await
        }
        Bank::Postgres(semel) => {
            let work = move |mut tx: PgTx| async move {
                let insert = sqlx::query(INSERT).bind(tx.operation_id().to_string()).bind(&effect);
                insert.execute(&mut *tx).await?;
                tx.push(KIND, effect.as_bytes()).await?;
                Reply::json(StatusCode::CREATED, &reply)
            };
            semel.transact(&command, work).await
        }
    }
}

async fn open(store: &str) -> Result<(Bank, Arc<dyn Store>, Arc<dyn Outbox>), Error> {
    if let Some(path) = store.strip_prefix("sqlite:") {
        let store = Arc::new(SqliteStore::open(path)?);
        let file = rusqlite::Connection::open(path)?;
        file.busy_timeout(Duration::from_secs(10))?;
        file.execute_batch(TABLE)?;
        return Ok((Bank::Sqlite(SqliteTransactions::open(path)?), store.clone(), store));
    }
    let records = Arc::new(PostgresStore::open(&store.parse()?).await?);
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(8).connect(store).await?;
    sqlx::raw_sql(TABLE).execute(&pool).await?;
    Ok((Bank::Postgres(PostgresTransactions::new(pool)), records.clone(), records))
}

fn identify(request: &Parts) -> Result<Principal, Denied> {
    let name =
        |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    Principal::new(name("x-tenant"), name("x-caller")).map_err(|_| Denied::unauthenticated())
}

/// Serves until it is killed.
pub(crate) async fn run(events: &str) -> Result<(), Error> {
    let (bank, store, outbox) = open(&std::env::var("SEMEL_STORE")?).await?;
    let options = WorkerOptions {
        poll: Duration::from_millis(100),
        timeout: Duration::from_secs(1),
        lease: Duration::from_secs(2),
        retry: RETRY,
        ..WorkerOptions::default()
    };
    tokio::spawn(Worker::new(outbox, Arc::new(HttpSink::new(events, SECRET)?), options).run());
    let layer = IdempotencyLayer::builder(store)
        .identify(identify)
        .operation(Operation::new(TRANSFERS, "POST /transfers").local())
        .build()?;
    let app = Router::new().route("/transfers", post(transfer)).with_state(bank).layer(layer);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    announce(listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

#[allow(clippy::print_stdout, reason = "whoever started it wants to know")]
fn announce(address: std::net::SocketAddr) {
    println!("listening on http://{address}");
}
