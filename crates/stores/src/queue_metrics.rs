//! Metrics of the queue in front of a store's writer: its length, and the time that changes wait in it. A queue that
//! grows shows a store that is too slow for its load.

use std::time::Duration;

/// Records the number of changes that wait for the writer: called when the writer takes changes, and when a change
/// comes while it is busy. A writer that takes the last ones records 0, and so leaves 0 behind when it idles.
pub(crate) fn length(waiting: usize) {
    metrics::gauge!("idempotency_store_queue_length").set(u32::try_from(waiting).unwrap_or(u32::MAX));
}

/// Records the time that one change has waited, when the writer takes it.
pub(crate) fn waited(time: Duration) {
    metrics::histogram!("idempotency_store_queue_seconds").record(time);
}
