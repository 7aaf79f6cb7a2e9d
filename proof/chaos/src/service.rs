//! Service with its records in its own database, in its own process: `semel-chaos service UPSTREAM SEED`, with the
//! store in `SEMEL_STORE`. `POST /transfers` commits one row and one message with the record; `/orders` has four
//! phases, two of them local; `/charges` commits one row and one message whose delivery settles the command;
//! `/batches` is a bulk request with one row per item.

mod bank;
mod batches;
mod charges;
mod moods;
mod orders;
mod provider;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::request::Parts;
use axum::routing::post;
use axum::{Json, Router};
use semel::flow::bulk::Bulk;
use semel::flow::outbox::{HttpSink, OutboxWorker, OutboxWorkerOptions};
use semel::flow::phases::{CompleterOptions, PhaseTerms, Phases};
use semel::flow::{
    Answered, Command, Idempotent, PgRun, PostgresPhases, PostgresTransactions, SqlitePhases, SqliteRun,
    SqliteTransactions, rusqlite, sqlx,
};
use semel::policy::OnLeaseExpired;
use semel::protocol::outbox::RetryTerms;
use semel::protocol::{OperationName, Outbox};
use semel::{
    Backend, Denied, IdempotencyLayer, Operation, Policy, PostgresStore, Principal, SqliteStore, Store,
};
use serde_json::Value;

use self::bank::{Bank, Entry, TABLE};
use self::charges::Delivery;
use self::moods::Moods;
use crate::settings::{BATCHES, CHARGES, ITEMS, LEASE, MARGIN, ORDERS, TIMEOUT, TRANSFERS};

type Error = Box<dyn std::error::Error>;

/// Key with which the receiver could check signatures.
const SECRET: &[u8] = b"a secret that both sides of a test know";

/// Retry terms of messages and phases: frequent, and never exhausted by the number of tries.
const RETRY: RetryTerms = RetryTerms {
    max_attempts: 10_000,
    first_delay: Duration::from_millis(50),
    max_delay: Duration::from_millis(500),
};

/// Interval of the workers' polls.
const POLL: Duration = Duration::from_millis(100);

/// State that handlers, phases and the worker share.
struct Shared {
    bank: Bank,
    bulk: Bulk,
    moods: Moods,
    provider: SocketAddr,
    phases: Arc<dyn Orders>,
}

/// Commands in phases, on either database.
#[async_trait]
trait Orders: Send + Sync {
    async fn start(&self, command: &Command, input: Bytes) -> Answered;

    /// Resumes commands that another executor left.
    fn complete(&self) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

#[async_trait]
impl<D: Clone + Send + Sync + 'static> Orders for Phases<D> {
    async fn start(&self, command: &Command, input: Bytes) -> Answered {
        Phases::start(self, command, input).await
    }

    fn complete(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let completer = self.completer(CompleterOptions { poll: POLL, ..CompleterOptions::default() });
        Box::pin(async move {
            completer.run().await;
        })
    }
}

async fn transfer(
    State(shared): State<Arc<Shared>>,
    Idempotent(command): Idempotent,
    Json(asked): Json<Value>,
) -> Answered {
    let end = shared.moods.of_work(asked["canary"].as_str().unwrap_or_default());
    let entry = Entry::new(None, &asked, Some("transfer.made"));
    shared.bank.transact(&command, entry, end, None).await
}

/// Database, with everything in it.
struct Opened {
    bank: Bank,
    store: Arc<dyn Backend>,
    outbox: Arc<dyn Outbox>,
}

async fn open(store: &str) -> Result<Opened, Error> {
    if let Some(path) = store.strip_prefix("sqlite:") {
        let store = Arc::new(SqliteStore::open(path)?);
        let file = rusqlite::Connection::open(path)?;
        file.busy_timeout(Duration::from_secs(10))?;
        file.execute_batch(TABLE)?;
        let bank = Bank::Sqlite(SqliteTransactions::open(path)?);
        return Ok(Opened { bank, store: store.clone(), outbox: store });
    }
    let store_at = store;
    let store = Arc::new(PostgresStore::open(&store_at.parse()?).await?);
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(8).connect(store_at).await?;
    sqlx::raw_sql(TABLE).execute(&pool).await?;
    let bank = Bank::Postgres(PostgresTransactions::new(pool));
    Ok(Opened { bank, store: store.clone(), outbox: store })
}

fn share(opened: &Opened, provider: SocketAddr, seed: u64) -> Result<Arc<Shared>, Error> {
    let Opened { bank, store, .. } = opened;
    let policy = timed(Policy::default());
    let bulk = Bulk::new(store.clone(), OperationName::new(ITEMS)?, policy);
    let terms = PhaseTerms { retry: RETRY, ..PhaseTerms::default() };
    // The code of a phase needs the shared state, which holds the phases.
    Ok(Arc::new_cyclic(|shared: &std::sync::Weak<Shared>| {
        let shared = shared.clone();
        let gone = "whoever runs a command holds what is shared";
        let phases: Arc<dyn Orders> = match bank {
            Bank::Sqlite(transactions) => {
                let code = move |run: SqliteRun, input: Bytes| {
                    orders::order(run, input, shared.upgrade().expect(gone))
                };
                let phases = SqlitePhases::new(transactions.clone(), store.clone());
                Arc::new(phases.operation_with(ORDERS, terms, code))
            }
            Bank::Postgres(transactions) => {
                let code =
                    move |run: PgRun, input: Bytes| orders::order(run, input, shared.upgrade().expect(gone));
                let phases = PostgresPhases::new(transactions.clone(), store.clone());
                Arc::new(phases.operation_with(ORDERS, terms, code))
            }
        };
        Shared { bank: bank.clone(), bulk, moods: Moods::new(seed), provider, phases }
    }))
}

fn timed(policy: Policy) -> Policy {
    Policy { lease: LEASE, timeout: TIMEOUT, quarantine_margin: MARGIN, ..policy }
}

fn layer(store: Arc<dyn Store>) -> Result<IdempotencyLayer, Error> {
    let local =
        |name: &str, route: &str| Operation::new(name, route).local().business_reference("/reference");
    let layer = IdempotencyLayer::builder(store)
        .identify(identify)
        .defaults(timed(Policy::default()))
        .operation(local(TRANSFERS, "POST /transfers"))
        .operation(local(ORDERS, "POST /orders"))
        .operation(local(CHARGES, "POST /charges"))
        .operation(
            Operation::new(BATCHES, "POST /batches")
                .business_reference("/reference")
                // Each item is its own command, so the whole is safe to repeat.
                .with(|policy| policy.on_lease_expired = OnLeaseExpired::Rerun),
        );
    Ok(layer.build()?)
}

fn identify(request: &Parts) -> Result<Principal, Denied> {
    let name =
        |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    Principal::new(name("x-tenant"), name("x-caller")).map_err(|_| Denied::unauthenticated())
}

/// Serves until the process is killed.
pub(crate) async fn run(upstream: &str, seed: &str) -> Result<(), Error> {
    let (upstream, seed): (SocketAddr, u64) = (upstream.parse()?, seed.parse()?);
    let opened = open(&std::env::var("SEMEL_STORE")?).await?;
    let shared = share(&opened, upstream, seed)?;
    let options = OutboxWorkerOptions {
        poll: POLL,
        timeout: Duration::from_secs(1),
        lease: Duration::from_secs(2),
        retry: RETRY,
        ..OutboxWorkerOptions::default()
    };
    let receiver = HttpSink::new(&format!("http://{upstream}/events"), SECRET)?;
    let delivery = Arc::new(Delivery { shared: shared.clone(), receiver });
    tokio::spawn(OutboxWorker::new(opened.outbox, delivery, options).run());
    tokio::spawn(shared.phases.complete());
    let app = Router::new()
        .route("/transfers", post(transfer))
        .route("/orders", post(orders::create))
        .route("/charges", post(charges::create))
        .route("/batches", post(batches::create))
        .with_state(shared)
        .layer(layer(opened.store)?);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    announce(listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

#[allow(clippy::print_stdout, reason = "whoever started it wants to know")]
fn announce(address: std::net::SocketAddr) {
    println!("listening on http://{address}");
}
