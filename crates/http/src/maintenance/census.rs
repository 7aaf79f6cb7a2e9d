//! The census: gauges of a store's records, of its size, and of its outbox.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Gauge, gauge};
use semel_core::outbox::{Depth, Outbox};
use semel_core::{Census, StateName, StoreError, Timestamp, Upkeep};

use crate::operation_labels::OperationLabels;

/// The interval at which records are counted.
const CENSUS_INTERVAL: Duration = Duration::from_secs(15);

/// The states that a command leaves by itself, or that somebody must lead it out of: a growing age is a fault.
const OPEN_STATES: [StateName; 3] = [StateName::Claimed, StateName::Processing, StateName::Unknown];

/// Counts again and again.
pub(super) async fn census(store: &dyn Upkeep, labels: &OperationLabels, outbox: Option<&dyn Outbox>) {
    loop {
        if let Err(error) = count(store, labels).await {
            tracing::warn!(%error, "records cannot be counted; the gauges keep their values");
        }
        if let Some(outbox) = outbox
            && let Err(error) = count_messages(store, outbox).await
        {
            tracing::warn!(%error, "messages cannot be counted; the gauges keep their values");
        }
        tokio::time::sleep(CENSUS_INTERVAL).await;
    }
}

/// Starts the gauges at zero.
pub(super) fn begin(labels: &OperationLabels, has_outbox: bool) {
    OPEN_STATES.iter().for_each(|state| oldest(*state).set(0.0));
    for (label, state) in pairs(labels) {
        active(label, state).set(0.0);
    }
    if has_outbox {
        messages(Depth::default(), Timestamp::from_millis(0));
    }
}

/// Counts the records, and sets their gauges.
pub(super) async fn count(store: &dyn Upkeep, labels: &OperationLabels) -> Result<(), StoreError> {
    let (census, now) = (store.census().await?, store.now().await?);
    for state in OPEN_STATES {
        let of_state = census.groups.iter().filter(|group| group.state == state && group.count > 0);
        let age = of_state.filter_map(|group| group.oldest).min().map(|since| now.since(since));
        oldest(state).set(age.unwrap_or_default().as_secs_f64());
    }
    // A group without records is not in the census, and its gauge goes to zero.
    for ((label, state), count) in totals(&census, labels) {
        active(label, state).set(count as f64);
    }
    if let Some(bytes) = census.bytes {
        gauge!("idempotency_stored_bytes").set(bytes as f64);
    }
    let seconds = Duration::from_millis(u64::try_from(now.as_millis()).unwrap_or_default());
    gauge!("idempotency_census_timestamp_seconds").set(seconds.as_secs_f64());
    Ok(())
}

/// Counts the messages of the outbox, and sets their gauges.
pub(super) async fn count_messages(store: &dyn Upkeep, outbox: &dyn Outbox) -> Result<(), StoreError> {
    messages(outbox.depth().await?, store.now().await?);
    Ok(())
}

fn pairs(labels: &OperationLabels) -> impl Iterator<Item = (Arc<str>, StateName)> {
    labels.all().flat_map(|label| StateName::ALL.map(|state| (label.clone(), state)))
}

/// Returns the number of records with each label in each state.
fn totals(census: &Census, labels: &OperationLabels) -> HashMap<(Arc<str>, StateName), u64> {
    let mut totals: HashMap<_, u64> = pairs(labels).map(|pair| (pair, 0)).collect();
    for group in &census.groups {
        *totals.entry((labels.of(&group.operation), group.state)).or_default() += group.count;
    }
    totals
}

fn active(operation: Arc<str>, state: StateName) -> Gauge {
    gauge!("idempotency_records_active", "operation" => operation, "state" => state.as_str())
}

fn oldest(state: StateName) -> Gauge {
    gauge!("idempotency_oldest_seconds", "state" => state.as_str())
}

/// Sets the gauges of an outbox with these numbers of messages.
fn messages(depth: Depth, now: Timestamp) {
    let age = depth.oldest_pending.map(|made| now.since(made)).unwrap_or_default();
    gauge!("outbox_pending").set(depth.pending as f64);
    gauge!("outbox_dead").set(depth.dead as f64);
    gauge!("outbox_oldest_seconds").set(age.as_secs_f64());
}
