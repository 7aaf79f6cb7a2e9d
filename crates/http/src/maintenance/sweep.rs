//! The sweep: what became of commands whose lease or start deadline had expired.

use std::sync::Arc;

use metrics::{Counter, counter};
use semel_core::{AgedRecord, Reason, RecordId, StateName, StoreError, Upkeep};

use crate::observe;
use crate::operation_labels::OperationLabels;

use super::batches::in_batches;

/// The number of records that are swept in one transaction.
const SWEEP_BATCH: usize = 100;

/// The maximum number of records that one pass names in the log.
const LINES: usize = 20;

/// The states that the end of a lease or of a start deadline leads to.
const SWEPT_STATES: [StateName; 2] = [StateName::Unknown, StateName::FailedRetryable];

/// Starts the counters of swept records at zero.
pub(super) fn begin(labels: &OperationLabels) {
    for operation in labels.all() {
        for state in SWEPT_STATES {
            swept(operation.clone(), state.as_str()).increment(0);
        }
        for cause in observe::unknown_causes() {
            observe::unknown(operation.clone(), cause).increment(0);
        }
    }
}

/// Sweeps everything that is due, counts each record, and logs the first of them. Returns the number of swept records.
pub(super) async fn sweep(store: &dyn Upkeep, labels: &OperationLabels) -> Result<usize, StoreError> {
    let mut total = 0;
    let tell = |records: &[AgedRecord]| {
        for record in records {
            let operation = labels.of(record.operation.as_str());
            count(&operation, record);
            if total < LINES {
                log(&operation, record);
            }
            total += 1;
        }
    };
    let swept = in_batches(|| store.sweep(SWEEP_BATCH), SWEEP_BATCH, tell).await;
    if total > 0 {
        tracing::warn!(
            event = "idempotency_swept",
            swept = total,
            named = total.min(LINES),
            "leases or start deadlines had expired"
        );
    }
    swept.map(|()| total)
}

fn swept(operation: Arc<str>, state: &'static str) -> Counter {
    counter!("idempotency_swept_total", "operation" => operation, "state" => state)
}

fn count(operation: &Arc<str>, record: &AgedRecord) {
    swept(operation.clone(), state_of(record)).increment(1);
    if let Some(cause) = record.made_unknown() {
        observe::unknown(operation.clone(), cause).increment(1);
    }
}

fn log(operation: &Arc<str>, record: &AgedRecord) {
    tracing::warn!(
        event = "idempotency_swept_record",
        operation = &**operation,
        tenant = record.principal.tenant(),
        caller = record.principal.caller(),
        operationId = %record.operation_id,
        recordPrefix = beginning(&record.id),
        keyHashPrefix = record.key_hash_prefix,
        state = state_of(record),
        cause = record.became.map(|(_, cause)| Reason::as_str(cause)),
        "a lease or a start deadline had expired"
    );
}

/// Returns the name of the state that the record got.
fn state_of(record: &AgedRecord) -> &'static str {
    record.became.map_or("deleted", |(state, _)| state.as_str())
}

/// Returns the first 8 hex digits of a record's id.
fn beginning(id: &RecordId) -> String {
    let mut digits = id.to_string();
    digits.truncate(8);
    digits
}
