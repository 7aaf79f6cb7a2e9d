//! The ledger: a SQLite file with every charge, the answer to every key, and (in `events.rs`) what must be told.
//!
//! All that a request changes is one transaction, on disk before it is answered. The ledger also has the clock and
//! draws the ids.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior};
use serde::Serialize;
use tokio::sync::Notify;

use super::events::{self, Fate};
use super::order::Order;

/// How long to wait for another process that looks into the file.
const BUSY_TIME: Duration = Duration::from_secs(5);
/// The most charges that are found under one reference; one is what there should be.
const MAX_FOUND: u32 = 1000;
/// How much of the ledger is read at a time.
pub(super) const PAGE: u32 = 500;

/// How much of it people are shown.
pub(super) const LATEST: u32 = 100;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS charges (
        position INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        reference TEXT NOT NULL,
        amount INTEGER NOT NULL CHECK (amount > 0),
        currency TEXT NOT NULL,
        status TEXT NOT NULL CHECK (status IN ('captured', 'declined')),
        created_at TEXT NOT NULL
    ) STRICT;
    CREATE INDEX IF NOT EXISTS charges_by_reference ON charges (reference);
    CREATE TABLE IF NOT EXISTS keys (
        key TEXT PRIMARY KEY,
        fingerprint BLOB NOT NULL,
        charge TEXT NOT NULL REFERENCES charges (id)
    ) STRICT, WITHOUT ROWID;";

const INSERT_CHARGE: &str = "
    INSERT INTO charges (id, reference, amount, currency, status, created_at)
    VALUES ('ch_' || lower(hex(randomblob(12))), ?1, ?2, ?3, ?4, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
    RETURNING id, reference, amount, currency, status, created_at, position";
const FIND_KEY: &str = "
    SELECT c.id, c.reference, c.amount, c.currency, c.status, c.created_at, c.position, k.fingerprint
    FROM keys k JOIN charges c ON c.id = k.charge WHERE k.key = ?1";
const INSERT_KEY: &str = "INSERT INTO keys (key, fingerprint, charge) VALUES (?1, ?2, ?3)";
const FIND_CHARGE: &str = "
    SELECT id, reference, amount, currency, status, created_at, position FROM charges WHERE id = ?1";
const FIND_REFERENCE: &str = "
    SELECT id, reference, amount, currency, status, created_at, position FROM charges WHERE reference = ?1
    ORDER BY position LIMIT ?2";
const READ_PAGE: &str = "
    SELECT id, reference, amount, currency, status, created_at, position FROM charges WHERE position > ?1
    ORDER BY position LIMIT ?2";

const READ_LATEST: &str = "
    SELECT id, reference, amount, currency, status, created_at, position,
        (SELECT state FROM events WHERE charge = charges.id)
    FROM charges ORDER BY position DESC LIMIT ?1";
const COUNT: &str = "
    SELECT count(*) FILTER (WHERE status = 'captured'), count(*) FILTER (WHERE status = 'declined') FROM charges";

/// One line of the ledger. It never changes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Charge {
    pub(super) id: String,
    pub(super) reference: String,
    pub(super) amount: i64,
    pub(super) currency: String,
    pub(super) status: Status,
    pub(super) created_at: String,
    #[serde(skip)]
    pub(super) position: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Captured,
    Declined,
}

impl Status {
    pub(super) fn name(self) -> &'static str {
        match self {
            Status::Captured => "captured",
            Status::Declined => "declined",
        }
    }
}

/// The ledger at a glance.
pub(super) struct Overview {
    pub(super) captured: i64,
    pub(super) declined: i64,
    /// The latest first, each with the state of its event, if it has one.
    pub(super) latest: Vec<(Charge, Option<String>)>,
}

/// What the switches say about a new charge.
pub(super) struct Plan {
    pub(super) declines: bool,
    pub(super) fate: Fate,
}

/// What became of an order.
pub(super) enum Outcome {
    New(Charge),
    /// The key had it already.
    Known(Charge),
    /// The key is another order's.
    KeyTaken,
}

/// The ledger cannot be read or written.
#[derive(Debug)]
pub(super) struct Broken(String);

impl std::fmt::Display for Broken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "the ledger cannot be used: {}", self.0)
    }
}

impl From<serde_json::Error> for Broken {
    fn from(error: serde_json::Error) -> Broken {
        Broken(error.to_string())
    }
}

#[derive(Clone)]
pub(super) struct Ledger {
    connection: Arc<Mutex<Connection>>,
    /// Wakes whoever sends events.
    news: Arc<Notify>,
}

impl Ledger {
    pub(super) fn open(path: &Path) -> rusqlite::Result<Ledger> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_TIME)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.execute_batch(SCHEMA)?;
        connection.execute_batch(events::SCHEMA)?;
        Ok(Ledger { connection: Arc::new(Mutex::new(connection)), news: Arc::default() })
    }

    /// Works on the file, in a thread that may wait. It comes to its end even if nobody waits for it any more.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Broken> {
        let connection = self.connection.clone();
        let work = move || work(&mut connection.lock().unwrap_or_else(PoisonError::into_inner));
        let done = tokio::task::spawn_blocking(work).await.map_err(|error| Broken(error.to_string()))?;
        done.map_err(|error| Broken(error.to_string()))
    }

    /// Charges, or finds what was charged under this key. `plan` is only asked about a new charge.
    pub(super) async fn charge(
        &self,
        order: Order,
        key: Option<String>,
        plan: impl FnOnce(&Order) -> Plan + Send + 'static,
    ) -> Result<Outcome, Broken> {
        let news = self.news.clone();
        self.with(move |connection| {
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let fingerprint = order.fingerprint();
            if let Some(known) =
                key.as_deref().map(|key| known(&tx, key, &fingerprint)).transpose()?.flatten()
            {
                return Ok(known);
            }
            let plan = plan(&order);
            let status = if plan.declines { Status::Declined } else { Status::Captured };
            let values = (&order.reference, order.amount, &order.currency, status.name());
            let charge = tx.query_row(INSERT_CHARGE, values, read)?;
            if let Some(key) = key {
                tx.execute(INSERT_KEY, (key, fingerprint, &charge.id))?;
            }
            events::insert(&tx, &charge, plan.fate)?;
            tx.commit()?;
            // Here, where it happens even if the client is gone.
            news.notify_one();
            Ok(Outcome::New(charge))
        })
        .await
    }

    /// Comes back when there may be something new to send.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    pub(super) fn has_news(&self) {
        self.news.notify_one();
    }

    pub(super) async fn find(&self, id: String) -> Result<Option<Charge>, Broken> {
        self.with(move |connection| connection.query_row(FIND_CHARGE, [id], read).optional()).await
    }

    pub(super) async fn find_reference(&self, reference: String) -> Result<Vec<Charge>, Broken> {
        let find = move |connection: &mut Connection| {
            connection.prepare_cached(FIND_REFERENCE)?.query_map((reference, MAX_FOUND), read)?.collect()
        };
        self.with(find).await
    }

    pub(super) async fn overview(&self) -> Result<Overview, Broken> {
        self.with(|connection| {
            let tx = connection.transaction()?;
            let (captured, declined) = tx.query_row(COUNT, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let with_event = |row: &Row<'_>| Ok((read(row)?, row.get(7)?));
            let latest =
                tx.prepare_cached(READ_LATEST)?.query_map([LATEST], with_event)?.collect::<Result<_, _>>()?;
            Ok(Overview { captured, declined, latest })
        })
        .await
    }

    /// The charges that follow this position, in the order in which they were made.
    pub(super) async fn page(&self, after: i64) -> Result<Vec<Charge>, Broken> {
        let find = move |connection: &mut Connection| {
            connection.prepare_cached(READ_PAGE)?.query_map((after, PAGE), read)?.collect()
        };
        self.with(find).await
    }
}

fn known(tx: &Transaction<'_>, key: &str, fingerprint: &[u8; 32]) -> rusqlite::Result<Option<Outcome>> {
    let found =
        tx.query_row(FIND_KEY, [key], |row| Ok((read(row)?, row.get::<_, [u8; 32]>(7)?))).optional()?;
    Ok(found.map(
        |(charge, first)| if first == *fingerprint { Outcome::Known(charge) } else { Outcome::KeyTaken },
    ))
}

fn read(row: &Row<'_>) -> rusqlite::Result<Charge> {
    let status: String = row.get(4)?;
    Ok(Charge {
        id: row.get(0)?,
        reference: row.get(1)?,
        amount: row.get(2)?,
        currency: row.get(3)?,
        status: if status == "captured" { Status::Captured } else { Status::Declined },
        created_at: row.get(5)?,
        position: row.get(6)?,
    })
}
