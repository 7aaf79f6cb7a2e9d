//! The sweeper and the reaper, and what they show about the store. Safe when several nodes run them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{counter, gauge};
use semel_core::{StateName, Store, StoreError};

use crate::config::Maintenance;

/// How many records are swept in one transaction.
const SWEEP_BATCH: usize = 100;
/// How often records are counted.
const CENSUS_INTERVAL: Duration = Duration::from_secs(15);

/// Runs until it is dropped.
pub async fn run(store: Arc<dyn Store>, settings: Maintenance, named: Arc<[String]>) {
    tokio::join!(
        sweeper(&*store, settings.sweep_interval),
        reaper(&*store, settings.reap_interval, settings.reap_batch),
        census(&*store, &named),
    );
}

async fn sweeper(store: &dyn Store, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        match in_batches(|| store.sweep(SWEEP_BATCH), SWEEP_BATCH).await {
            Ok(0) => {}
            Ok(swept) => tracing::warn!(event = "idempotency_swept", swept, "leases ended without a word"),
            Err(error) => tracing::warn!(%error, "sweeping failed; it is tried again"),
        }
    }
}

async fn reaper(store: &dyn Store, interval: Duration, batch: usize) {
    let mut finished = Instant::now();
    loop {
        tokio::time::sleep(interval).await;
        match in_batches(|| store.reap(batch), batch).await {
            Ok(reaped) => {
                counter!("idempotency_reaped_total").increment(reaped as u64);
                finished = Instant::now();
            }
            Err(error) => tracing::warn!(%error, "reaping failed; it is tried again"),
        }
        gauge!("idempotency_reap_lag_seconds").set(finished.elapsed().as_secs_f64());
    }
}

/// Works in small batches until there is nothing left, and lets live traffic go between them.
async fn in_batches<F>(work: impl Fn() -> F, batch: usize) -> Result<usize, StoreError>
where
    F: Future<Output = Result<usize, StoreError>>,
{
    let mut total = 0;
    loop {
        let done = work().await?;
        total += done;
        if done < batch {
            return Ok(total);
        }
        tokio::task::yield_now().await;
    }
}

async fn census(store: &dyn Store, named: &[String]) {
    let mut shown: Vec<(String, StateName)> = Vec::new();
    loop {
        if let (Ok(census), Ok(now)) = (store.census().await, store.now().await) {
            // A group that is gone must not stay on the gauge.
            for (operation, state) in shown.drain(..) {
                gauge!("idempotency_records_active", "operation" => operation, "state" => state.as_str())
                    .set(0.0);
            }
            for state in StateName::ALL {
                let oldest =
                    census.iter().filter(|group| group.state == state).map(|group| group.oldest).min();
                let age = oldest.map_or(Duration::ZERO, |oldest| now.since(oldest));
                gauge!("idempotency_oldest_seconds", "state" => state.as_str()).set(age.as_secs_f64());
            }
            let mut totals = std::collections::HashMap::new();
            for group in census {
                let is_named = named.contains(&group.operation);
                let label = if is_named { group.operation } else { "unmatched".to_owned() };
                *totals.entry((label, group.state)).or_insert(0) += group.count;
            }
            for ((operation, state), count) in totals {
                gauge!("idempotency_records_active", "operation" => operation.clone(), "state" => state.as_str())
                    .set(count as f64);
                shown.push((operation, state));
            }
        }
        tokio::time::sleep(CENSUS_INTERVAL).await;
    }
}
