//! The sweeper and the reaper of a store, and the gauges of its records. Several nodes may run them.

mod batches;
mod census;
mod reap;
mod sweep;

use std::sync::Arc;
use std::time::Duration;

use semel_core::outbox::Outbox;
use semel_core::{StoreError, Upkeep};

use crate::operation_labels::OperationLabels;
use crate::reaped::ReapedRecords;

/// The maintenance of a store, and its intervals.
///
/// The layer does not maintain its store by itself. Without this, settled records are never forgotten, and commands whose process
/// died show as running until they are retried. It may run in every process.
///
/// [`IdempotencyLayer::maintain`](crate::IdempotencyLayer::maintain) runs it beside a layer, which then notices retries of records
/// that were deleted here. [`run`](Maintenance::run) runs it alone.
///
/// ```
/// # use std::sync::Arc;
/// # use semel_http::{IdempotencyLayer, Maintenance};
/// # async fn example(layer: IdempotencyLayer, store: Arc<dyn semel_core::Upkeep>) {
/// tokio::spawn(layer.maintain(Maintenance::default(), store, None));
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
    /// Operations that have labels of their own in metrics; the rest is `unmatched`. Beside a layer, its operations have labels.
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
        self.once_with(store, &OperationLabels::named(&self.named), &ReapedRecords::default()).await
    }

    pub(crate) async fn once_with(
        &self,
        store: &dyn Upkeep,
        labels: &OperationLabels,
        memory: &ReapedRecords,
    ) -> Result<Maintained, StoreError> {
        let swept = sweep::sweep(store, labels).await?;
        let reaped = reap::reap(store, self.reap_batch, memory).await?;
        Ok(Maintained { swept, reaped })
    }

    /// Runs until it is dropped.
    pub async fn run(self, store: Arc<dyn Upkeep>) {
        let labels = OperationLabels::named(&self.named);
        self.run_with(store, labels, Arc::default(), None).await;
    }

    pub(crate) async fn run_with(
        self,
        store: Arc<dyn Upkeep>,
        labels: OperationLabels,
        memory: Arc<ReapedRecords>,
        outbox: Option<Arc<dyn Outbox>>,
    ) {
        sweep::begin(&labels);
        reap::begin();
        census::begin(&labels, outbox.is_some());
        tokio::join!(
            sweeper(&*store, self.sweep_interval, &labels),
            reap::reaper(&*store, self.reap_interval, self.reap_batch, &memory),
            census::census(&*store, &labels, outbox.as_deref()),
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

async fn sweeper(store: &dyn Upkeep, interval: Duration, labels: &OperationLabels) {
    loop {
        tokio::time::sleep(interval).await;
        if let Err(error) = sweep::sweep(store, labels).await {
            tracing::warn!(%error, "sweeping failed; it is tried again");
        }
    }
}
