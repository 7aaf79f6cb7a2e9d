//! Service with records in its own database, as a process: `semel-matrix service EVENTS WORKER MOOD TRIES`, with the
//! store in `SEMEL_STORE`. A payment is one row and one message, in one transaction with its record.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use semel::flow::outbox::{HttpSink, OutboxWorker, OutboxWorkerOptions};
use semel::flow::postgres::PgTx;
use semel::flow::sqlite::SqliteTx;
use semel::flow::{Answered, Failure, Idempotent, PostgresTransactions, Reply, SqliteTransactions, sqlx};
use semel::protocol::Outbox;
use semel::protocol::outbox::RetryTerms;
use semel::{Denied, IdempotencyLayer, Operation, PostgresStore, Principal, SqliteStore, Store};
use serde_json::{Value, json};

type Error = Box<dyn std::error::Error>;

/// Table of payments. No constraint keeps a command from having two rows: preventing that is Semel's task.
pub(crate) const TABLE: &str =
    "CREATE TABLE matrix_payments (operation_id TEXT NOT NULL, effect TEXT NOT NULL)";
const INSERT: &str = "INSERT INTO matrix_payments (operation_id, effect) VALUES ($1, $2)";
/// Kind of the message.
const KIND: &str = "payment.made";
/// Secret for a receiver that checks signatures.
const SECRET: &[u8] = b"a secret that both sides of a test know";

/// Timeout of one delivery attempt, and lease of a message.
const TRY: Duration = Duration::from_millis(1_500);
const MESSAGE_LEASE: Duration = Duration::from_millis(3_000);

/// Fate of the first command of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Succeeds.
    Well,
    /// Panics after writing its row.
    Panics,
    /// Sends a message of an invalid kind, or the same message twice.
    WrongKind,
    Twice,
    /// SQLite becomes read-only before the row, or before the message.
    NoRow,
    NoMessage,
}

impl Mood {
    const ALL: [(&'static str, Mood); 6] = [
        ("well", Mood::Well),
        ("panics", Mood::Panics),
        ("wrong-kind", Mood::WrongKind),
        ("twice", Mood::Twice),
        ("no-row", Mood::NoRow),
        ("no-message", Mood::NoMessage),
    ];

    pub(crate) fn as_str(self) -> &'static str {
        Mood::ALL.iter().find(|(_, mood)| *mood == self).map_or("well", |(name, _)| name)
    }

    fn parse(name: &str) -> Option<Mood> {
        Mood::ALL.iter().find(|(known, _)| *known == name).map(|(_, mood)| *mood)
    }

    fn kinds(self) -> &'static [&'static str] {
        match self {
            Mood::WrongKind => &["no kind: it has blanks in it"],
            Mood::Twice => &[KIND, KIND],
            _ => &[KIND],
        }
    }
}

#[derive(Clone)]
enum Database {
    Sqlite(SqliteTransactions),
    Postgres(PostgresTransactions),
}

#[derive(Clone)]
struct Shop {
    database: Database,
    mood: Mood,
    is_open: Arc<AtomicBool>,
}

/// Writes and response of one command.
struct Payment {
    mood: Mood,
    effect: String,
    message: Vec<u8>,
    reply: Value,
}

impl Payment {
    fn new(mood: Mood, headers: &HeaderMap) -> Payment {
        let effect: String =
            semel::protocol::ids::secret()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default();
        let message = json!({ "effect": effect, "key": key }).to_string().into_bytes();
        let reply = json!({ "effect": effect });
        Payment { mood, effect, message, reply }
    }

    fn in_file(self, tx: &SqliteTx<'_>) -> Result<Reply, Failure> {
        if self.mood == Mood::NoRow {
            tx.pragma_update(None, "query_only", true)?;
        }
        let row = tx.execute(INSERT, (tx.operation_id().to_string(), &self.effect));
        if self.mood == Mood::NoMessage {
            tx.pragma_update(None, "query_only", true)?;
        }
        self.panics();
        let messages = self.mood.kinds().iter().try_for_each(|kind| tx.push(kind, &self.message).map(drop));
        tx.pragma_update(None, "query_only", false)?;
        row?;
        messages?;
        Reply::json(StatusCode::CREATED, &self.reply)
    }

    async fn on_server(self, mut tx: PgTx) -> Result<Reply, Failure> {
        let insert = sqlx::query(INSERT).bind(tx.operation_id().to_string()).bind(&self.effect);
        insert.execute(&mut *tx).await?;
        self.panics();
        for kind in self.mood.kinds() {
            tx.push(kind, &self.message).await?;
        }
        Reply::json(StatusCode::CREATED, &self.reply)
    }

    #[allow(clippy::panic, reason = "that is what is tried")]
    fn panics(&self) {
        if self.mood == Mood::Panics {
            panic!("the work of a command panics on purpose");
        }
    }
}

async fn pay(State(shop): State<Shop>, Idempotent(command): Idempotent, headers: HeaderMap) -> Answered {
    let mood = if shop.is_open.swap(true, Ordering::SeqCst) { Mood::Well } else { shop.mood };
    let payment = Payment::new(mood, &headers);
    match shop.database {
        Database::Sqlite(semel) => semel.transact(&command, move |tx| payment.in_file(tx)).await,
        Database::Postgres(semel) => semel.transact(&command, move |tx| payment.on_server(tx)).await,
    }
}

async fn open(store: &str) -> Result<(Database, Arc<dyn Store>, Arc<dyn Outbox>), Error> {
    if let Some(path) = store.strip_prefix("sqlite:") {
        let store = Arc::new(SqliteStore::open(path)?);
        // A test holds the work for longer than the default limit of a service's own work.
        let own = SqliteTransactions::open(path)?.hold(Duration::from_secs(60));
        return Ok((Database::Sqlite(own), store.clone(), store));
    }
    let records = Arc::new(PostgresStore::open(&store.parse()?).await?);
    let options = sqlx::postgres::PgPoolOptions::new().max_connections(4);
    let pool = options.acquire_timeout(Duration::from_secs(1)).connect(store).await?;
    Ok((Database::Postgres(PostgresTransactions::new(pool)), records.clone(), records))
}

fn identify(request: &Parts) -> Result<Principal, Denied> {
    let name =
        |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    Principal::new(name("x-tenant"), name("x-caller")).map_err(|_| Denied::unauthenticated())
}

/// Serves until it is killed.
pub(crate) async fn run(arguments: &[&str]) -> Result<(), Error> {
    let [events, worker, mood, tries] = arguments else {
        return Err("usage: semel-matrix service EVENTS worker|idle MOOD TRIES".into());
    };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let mood = Mood::parse(mood).ok_or("there is no such mood")?;
    let (database, store, outbox) = open(&std::env::var("SEMEL_STORE")?).await?;
    if *worker == "worker" {
        let options = OutboxWorkerOptions {
            poll: Duration::from_millis(50),
            timeout: TRY,
            lease: MESSAGE_LEASE,
            retry: RetryTerms {
                max_attempts: tries.parse()?,
                first_delay: Duration::from_millis(50),
                max_delay: Duration::from_millis(200),
            },
            // The worker writes nothing but messages during a test.
            upkeep: Duration::from_secs(3600),
            ..OutboxWorkerOptions::default()
        };
        tokio::spawn(OutboxWorker::new(outbox, Arc::new(HttpSink::new(events, SECRET)?), options).run());
    }
    let layer = IdempotencyLayer::builder(store)
        .identify(identify)
        .operation(Operation::new("payments.create", "POST /payments").local())
        .build()?;
    let shop = Shop { database, mood, is_open: Arc::default() };
    let app = Router::new().route("/payments", post(pay)).with_state(shop).layer(layer);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
