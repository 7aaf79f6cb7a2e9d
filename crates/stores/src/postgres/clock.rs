//! Watches the database's clock for jumps (see `semel_core::jump`): a failover to a server with a wrong clock, or a clock that is set.
//!
//! Every statement that tells a time subtracts what the store has skipped. Before anything is decided on that time, it is compared
//! with the time since this machine was booted. If it does not go on from there, the difference is written down first, and the
//! records are read again.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use semel_core::Timestamp;
use semel_core::jump::{ClockReading, ClockWatch};
use semel_core::time::BootTime;

use super::errors::DbError;
use super::executor::{Executor, SqlValue};

/// The store's time in milliseconds: the database's clock less what it skipped.
macro_rules! steady {
    () => {
        "((extract(epoch FROM now()) * 1000)::bigint - (SELECT coalesce(max(skipped_ms), 0) FROM semel_store))"
    };
}
pub(super) use steady;

/// The store's time, moved by the offset `$1`, which is 0 but in tests.
macro_rules! now {
    () => {
        concat!("(SELECT ", crate::postgres::clock::steady!(), " + $1 AS now) AS n")
    };
}
pub(super) use now;

/// How often others may be faster to write a jump down.
const MAX_LOOKS: usize = 8;

const READ: &str = "SELECT (extract(epoch FROM now()) * 1000)::bigint, skipped_ms FROM semel_store";

/// Counts only on what was read: several see one jump, and one writes it down.
const SKIP: &str = "UPDATE semel_store SET skipped_ms = $1 WHERE skipped_ms = $2 RETURNING skipped_ms";

/// The database's clock, as every connection of one store sees it.
#[derive(Clone, Default)]
pub struct StoreClock {
    watch: Arc<Mutex<ClockWatch>>,
    /// For tests: milliseconds added to the store's time, as if they had passed.
    pub(super) passed: Arc<AtomicI64>,
    /// For tests: milliseconds added to the store's clock, as if it had been set.
    pub(super) jumped: Arc<AtomicI64>,
}

/// The moment at which a statement is sent.
#[derive(Clone, Copy)]
pub struct SentAt {
    /// Milliseconds that the statement adds to the database's time: 0 but in tests.
    pub(super) offset: i64,
    passed: i64,
    at: BootTime,
}

impl StoreClock {
    /// Notes the moment before a statement is sent.
    pub fn ask(&self) -> SentAt {
        let passed = self.passed.load(Ordering::SeqCst);
        let offset = passed.saturating_add(self.jumped.load(Ordering::SeqCst));
        SentAt { offset, passed, at: BootTime::now() }
    }

    /// Whether the time that a statement told can be decided on.
    pub fn is_steady(&self, asked: SentAt, told: Timestamp) -> bool {
        let time = Timestamp::from_millis(told.as_millis().saturating_sub(asked.passed));
        self.watch().is_steady(time, asked.at, BootTime::now())
    }

    /// Looks at the clock, outside of any transaction, and writes a jump down.
    pub async fn look(&self, db: &mut impl Executor) -> Result<(), DbError> {
        for _ in 0..MAX_LOOKS {
            let (asked, before) = (self.ask(), BootTime::now());
            let rows = db.query(READ, &[]).await.map_err(DbError::not_committed)?;
            let read = rows.first().and_then(|row| Some((row.int(0)?, row.int(1)?)));
            let (clock, skipped) = read.ok_or_else(|| DbError::unreadable("now", "there is no time"))?;
            let clock = Timestamp::from_millis(clock.saturating_add(asked.offset - asked.passed));
            let reading = ClockReading { clock, skipped, before, after: BootTime::now() };
            let Some(wanted) = self.watch().see(&reading) else { return Ok(()) };
            let values = [SqlValue::Int(Some(wanted)), SqlValue::Int(Some(skipped))];
            // Whatever became of it is read again.
            let written = db.query(SKIP, &values).await.map_err(DbError::not_committed)?;
            if !written.is_empty() {
                tracing::error!(
                    skipped_ms = wanted,
                    "the database's clock was set, or is another server's: the difference does not count for leases and expiry"
                );
            }
        }
        Err(DbError::Conflict("the database's clock keeps jumping".to_owned()))
    }

    fn watch(&self) -> std::sync::MutexGuard<'_, ClockWatch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
