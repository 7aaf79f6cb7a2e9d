//! The sweeper and the reaper of a store, and the gauges of its records. Several nodes may run them.

use std::sync::Arc;
use std::time::Duration;

use metrics::{counter, gauge};
use semel_core::{StateName, StoreError, Upkeep};
use tokio::time::Instant;

/// The number of records that are swept in one transaction.
const SWEEP_BATCH: usize = 100;
/// The interval at which records are counted.
const CENSUS_INTERVAL: Duration = Duration::from_secs(15);

/// The maintenance of a store, and its intervals.
///
/// The layer does not maintain its store by itself. Without this, settled records are never forgotten, and commands whose process
/// died show as running until they are retried. It may run in every process.
///
/// ```
/// # use std::sync::Arc;
/// # use semel_http::Maintenance;
/// # async fn example(store: Arc<dyn semel_core::Upkeep>) {
/// tokio::spawn(Maintenance::default().run(store));
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maintenance {
    /// The interval at which expired leases are swept.
    pub sweep_interval: Duration,
    /// The interval at which expired records are removed.
    pub reap_interval: Duration,
    /// The number of records that are removed at a time.
    pub reap_batch: usize,
    /// Operations that have labels of their own in metrics; the rest is `unmatched`.
    pub named: Vec<String>,
}

impl Default for Maintenance {
    fn default() -> Maintenance {
        Maintenance {
            sweep_interval: Duration::from_secs(5),
            reap_interval: Duration::from_secs(60),
            reap_batch: 1000,
            named: Vec::new(),
        }
    }
}

impl Maintenance {
    /// Sweeps and reaps everything that is due, once.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn once(&self, store: &dyn Upkeep) -> Result<Maintained, StoreError> {
        let swept = in_batches(|| store.sweep(SWEEP_BATCH), SWEEP_BATCH).await?;
        let reaped = in_batches(|| store.reap(self.reap_batch), self.reap_batch).await?;
        Ok(Maintained { swept, reaped })
    }

    /// Runs until it is dropped.
    pub async fn run(self, store: Arc<dyn Upkeep>) {
        tokio::join!(
            sweeper(&*store, self.sweep_interval),
            reaper(&*store, self.reap_interval, self.reap_batch),
            census(&*store, &self.named),
        );
    }
}

/// The number of records that one pass of the maintenance changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maintained {
    /// Records whose lease had expired.
    pub swept: usize,
    /// Records that had expired.
    pub reaped: usize,
}

async fn sweeper(store: &dyn Upkeep, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        match in_batches(|| store.sweep(SWEEP_BATCH), SWEEP_BATCH).await {
            Ok(0) => {}
            Ok(swept) => tracing::warn!(event = "idempotency_swept", swept, "leases ended without a word"),
            Err(error) => tracing::warn!(%error, "sweeping failed; it is tried again"),
        }
    }
}

async fn reaper(store: &dyn Upkeep, interval: Duration, batch: usize) {
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

async fn census(store: &dyn Upkeep, named: &[String]) {
    let mut shown: Vec<(String, StateName)> = Vec::new();
    loop {
        if let (Ok(census), Ok(now)) = (store.census().await, store.now().await) {
            // The gauge of a group without records goes to zero.
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
