//! Watches the database's clock for jumps (see `semel_core::jump`): a failover to a server with a wrong
//! clock, or a clock that is set. Every statement that returns a time subtracts the skipped time. Before any
//! decision, that time is compared with this machine's time since boot. If it does not continue steadily, the
//! difference is written first, and the records are read again.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use semel_core::Timestamp;
use semel_core::jump::{ClockReading, ClockWatch};
use semel_core::time::BootTime;

use super::errors::DbError;
use super::executor::{Executor, SqlValue};

/// Expression for the store's time in milliseconds: the database's clock minus the skipped time.
macro_rules! steady {
    () => {
        "((extract(epoch FROM now()) * 1000)::bigint - (SELECT coalesce(max(skipped_ms), 0) FROM semel_store))"
    };
}
pub(super) use steady;

/// Expression for the store's time plus the offset `$1`, which is 0 outside of tests.
macro_rules! now {
    () => {
        concat!("(SELECT ", crate::postgres::clock::steady!(), " + $1 AS now) AS n")
    };
}
pub(super) use now;

/// Maximum number of retries if other processes write a jump first.
const MAX_LOOKS: usize = 8;

const READ: &str = "SELECT (extract(epoch FROM now()) * 1000)::bigint, skipped_ms FROM semel_store";

/// Guarded by the value that was read: of several processes that see one jump, one writes it.
const SKIP: &str = "UPDATE semel_store SET skipped_ms = $1 WHERE skipped_ms = $2 RETURNING skipped_ms";

/// The database's clock, shared by all connections of one store.
#[derive(Clone, Default)]
pub struct StoreClock {
    watch: Arc<Mutex<ClockWatch>>,
    /// Milliseconds added to the store's time by tests, as if they had passed.
    pub(super) passed: Arc<AtomicI64>,
    /// Milliseconds added to the store's clock by tests, as if it had been set.
    pub(super) jumped: Arc<AtomicI64>,
}

/// Time at which a statement is sent.
#[derive(Clone, Copy)]
pub struct SentAt {
    /// Milliseconds that the statement adds to the database's time: 0 outside of tests.
    pub(super) offset: i64,
    passed: i64,
    at: BootTime,
}

impl StoreClock {
    /// Records the time before a statement is sent.
    pub fn ask(&self) -> SentAt {
        let passed = self.passed.load(Ordering::SeqCst);
        let offset = passed.saturating_add(self.jumped.load(Ordering::SeqCst));
        SentAt { offset, passed, at: BootTime::now() }
    }

    /// Returns true if decisions may use the time that a statement returned.
    pub fn is_steady(&self, asked: SentAt, told: Timestamp) -> bool {
        let time = Timestamp::from_millis(told.as_millis().saturating_sub(asked.passed));
        self.watch().is_steady(time, asked.at, BootTime::now())
    }

    /// Reads the clock, outside of any transaction, and writes a jump.
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
            // The result is read again in any case.
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
