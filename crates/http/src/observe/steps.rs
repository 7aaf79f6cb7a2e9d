//! Lines in the log about the single steps of a command, at the level `debug`.
//!
//! Invariant: a command writes a bounded number of them, none has a key, a body or a credential, and below that level each costs
//! the check of the level alone.

use std::time::Duration;

use http::StatusCode;
use semel_core::{OperationId, Principal, Record, StoreAnswer, StoreError};
use tokio::time::Instant;

use crate::busy::KeyHashPrefix;
use crate::operation_labels::OperationLabels;
use crate::operations::CommandRule;

/// The outcome of a check of the holds that found one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HoldOutcome {
    /// The request is refused.
    Refused,
    /// The request is answered from its record, which a hold does not stop.
    Allowed,
}

/// Returns the present moment if these lines are written.
pub(crate) fn begin() -> Option<Instant> {
    tracing::enabled!(tracing::Level::DEBUG).then(Instant::now)
}

/// Logs that the body of a command was read.
pub(crate) fn body_read(
    rule: &CommandRule,
    principal: &Principal,
    key: KeyHashPrefix,
    bytes: usize,
    begun: Option<Instant>,
) {
    tracing::debug!(
        event = "idempotency_body_read",
        operation = &*rule.label,
        tenant = principal.tenant(),
        caller = principal.caller(),
        keyHashPrefix = %key,
        bytes,
        durationMs = begun.map(|begun| millis(begun.elapsed())),
    );
}

/// Logs that an operator holds the operation or the tenant of a request.
pub(crate) fn held(
    rule: &CommandRule,
    principal: Option<&Principal>,
    key: Option<KeyHashPrefix>,
    outcome: HoldOutcome,
) {
    tracing::debug!(
        event = "idempotency_held",
        outcome = match outcome {
            HoldOutcome::Refused => "refused",
            HoldOutcome::Allowed => "allowed",
        },
        operation = &*rule.label,
        tenant = principal.map(Principal::tenant),
        caller = principal.map(Principal::caller),
        keyHashPrefix = key.map(tracing::field::display),
    );
}

/// Logs the store's answer to a claim or to a change.
pub(crate) fn store_answered(
    labels: &OperationLabels,
    call: &'static str,
    answer: &StoreAnswer,
    time: Duration,
) {
    let record = answer.record.as_ref();
    tracing::debug!(
        event = "idempotency_store_answered",
        call,
        operation = record.map(|record| tracing::field::display(labels.of(record.operation.as_str()))),
        operationId = record.map(|record| tracing::field::display(record.operation_id)),
        decision = answer.decision.as_str(),
        state = record.map(|record| record.head.state.name().as_str()),
        epoch = record.map(|record| record.head.epoch),
        keyHashPrefix = record.map(|record| &*record.key_hash_prefix),
        durationMs = millis(time),
    );
}

/// Logs a store call that failed. Changes are tried again, and each try has its line.
pub(crate) fn store_failed(
    call: &'static str,
    operation_id: Option<OperationId>,
    error: &StoreError,
    time: Duration,
) {
    tracing::debug!(
        event = "idempotency_store_call_failed",
        call,
        operationId = operation_id.map(tracing::field::display),
        error = error.as_str(),
        durationMs = millis(time),
    );
}

/// Logs that the handler is called. A local command has no record yet.
pub(crate) fn call_begun(rule: &CommandRule, record: Option<&Record>) {
    tracing::debug!(
        event = "idempotency_call_begun",
        operation = &*rule.label,
        operationId = record.map(|record| tracing::field::display(record.operation_id)),
        epoch = record.map(|record| record.head.epoch),
        keyHashPrefix = record.map(|record| &*record.key_hash_prefix),
    );
}

/// Logs that the handler has answered with this status, or failed for this reason.
pub(crate) fn call_ended(
    operation: &str,
    record: Option<&Record>,
    end: Result<StatusCode, &'static str>,
    time: Duration,
) {
    tracing::debug!(
        event = "idempotency_call_ended",
        operation,
        operationId = record.map(|record| tracing::field::display(record.operation_id)),
        epoch = record.map(|record| record.head.epoch),
        keyHashPrefix = record.map(|record| &*record.key_hash_prefix),
        status = end.ok().map(|status| status.as_u16()),
        failure = end.err(),
        durationMs = millis(time),
    );
}

/// Logs the extension of a lease: the first, the second, the fourth, the eighth and so on, so that a long execution writes few
/// lines.
pub(crate) fn lease_extended(rule: &CommandRule, record: &Record, extensions: u64) {
    if !extensions.is_power_of_two() {
        return;
    }
    tracing::debug!(
        event = "idempotency_lease_extended",
        operation = &*rule.label,
        operationId = %record.operation_id,
        epoch = record.head.epoch,
        keyHashPrefix = record.key_hash_prefix,
        extensions,
    );
}

/// Returns a time in milliseconds, with microseconds behind the point.
fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1000.0
}
