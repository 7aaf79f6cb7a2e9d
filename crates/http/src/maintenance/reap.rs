//! The reaper: deletes records whose time to live is over.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::{Counter, counter, gauge};
use semel_core::{AgedRecord, Reason, StateName, StoreError, Upkeep};
use tokio::time::Instant;

use crate::reaped::ReapedRecords;

use super::batches::in_batches;

/// The interval at which the time since the last finished pass is recorded, also while a pass hangs.
const TELL_LAG_EVERY: Duration = Duration::from_secs(5);

/// Starts the metrics of the reaper at zero.
pub(super) fn begin() {
    reaped_total().increment(0);
    tell_lag(Duration::ZERO);
}

/// Reaps everything that is due, and remembers what was deleted. Returns the number of changed records.
pub(super) async fn reap(
    store: &dyn Upkeep,
    batch: usize,
    memory: &ReapedRecords,
) -> Result<usize, StoreError> {
    let mut total = 0;
    let tell = |records: &[AgedRecord]| {
        total += records.len();
        reaped_total().increment(records.len() as u64);
        // A retry of a command that had not run, or that an operator purged, is no late one.
        let is_settled = |record: &&AgedRecord| {
            record.was.0 != StateName::FailedRetryable && record.was.1 != Reason::Purged
        };
        let deleted = records.iter().filter(|record| record.became.is_none()).filter(is_settled);
        deleted.for_each(|record| memory.remember(&record.id));
    };
    in_batches(|| store.reap(batch), batch, tell).await?;
    Ok(total)
}

/// Reaps again and again.
pub(super) async fn reaper(store: &dyn Upkeep, interval: Duration, batch: usize, memory: &ReapedRecords) {
    let finished = Mutex::new(Instant::now());
    let reaping = async {
        loop {
            tokio::time::sleep(interval).await;
            match reap(store, batch, memory).await {
                Ok(_) => *finished.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now(),
                Err(error) => tracing::warn!(%error, "reaping failed; it is tried again"),
            }
        }
    };
    let telling = async {
        loop {
            tokio::time::sleep(TELL_LAG_EVERY).await;
            tell_lag(finished.lock().unwrap_or_else(PoisonError::into_inner).elapsed());
        }
    };
    tokio::join!(reaping, telling);
}

fn reaped_total() -> Counter {
    counter!("idempotency_reaped_total")
}

fn tell_lag(lag: Duration) {
    gauge!("idempotency_reap_lag_seconds").set(lag.as_secs_f64());
}
