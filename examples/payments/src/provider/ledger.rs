//! The ledger: a SQLite file. `entries.rs` has its charges and the answers to their keys, `events.rs` the events about
//! them.
//!
//! Each request is one transaction, on disk before it is answered. The ledger also has the clock and draws the ids.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use serde::Serialize;
use tokio::sync::Notify;

/// Busy timeout while another process uses the file.
const BUSY_TIME: Duration = Duration::from_secs(5);
/// Number of rows read per page.
pub(super) const PAGE: u32 = 500;

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
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS endpoint (
        only INTEGER PRIMARY KEY CHECK (only = 1),
        url TEXT NOT NULL,
        secret TEXT NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS events (
        position INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        type TEXT NOT NULL,
        charge TEXT NOT NULL REFERENCES charges (id),
        body TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('unsent', 'sent', 'lost', 'given up')),
        copies INTEGER NOT NULL,
        held_back INTEGER NOT NULL,
        tries INTEGER NOT NULL DEFAULT 0,
        due_ms INTEGER NOT NULL,
        last_error TEXT
    ) STRICT;
    CREATE INDEX IF NOT EXISTS events_unsent ON events (position) WHERE state = 'unsent';
    CREATE INDEX IF NOT EXISTS events_by_charge ON events (charge);";

/// One charge in the ledger. It never changes.
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

/// Error: the ledger cannot be read or written.
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
    /// Wakes the sender of events.
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
        Ok(Ledger { connection: Arc::new(Mutex::new(connection)), news: Arc::default() })
    }

    /// Runs a closure on the file, in a thread that may block. It runs to its end even if the caller stops waiting.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Broken> {
        let connection = self.connection.clone();
        let work = move || work(&mut connection.lock().unwrap_or_else(PoisonError::into_inner));
        let done = tokio::task::spawn_blocking(work).await.map_err(|error| Broken(error.to_string()))?;
        done.map_err(|error| Broken(error.to_string()))
    }

    /// Returns when there may be a new event to send.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    pub(super) fn has_news(&self) {
        self.news.notify_one();
    }
}
