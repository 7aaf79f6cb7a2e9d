//! Metrics and logs of the reconciler. They never contain a body.

use metrics::Counter;
use semel_core::reconcile::Statement;
use semel_core::transition::{Proof, Verdict};
use semel_core::{OperationId, Record, StateName};

/// Verdicts that evidence can have, one of each label.
const VERDICTS: [Verdict; 3] =
    [Verdict::Succeeded, Verdict::FailedFinal, Verdict::NotExecuted(Proof::Quarantine)];

/// Outcomes of a received event.
#[cfg(feature = "http-evidence")]
const EVENT_OUTCOMES: [&str; 5] = ["taken", "seen", "ignored", "refused", "unavailable"];

/// Starts the metrics of a reconciler at zero, before it has looked for anything.
pub fn begin_metrics() {
    scheduled_total().increment(0);
    failed_total().increment(0);
    contradictions_total().increment(0);
    VERDICTS.iter().for_each(|verdict| resolved_total(*verdict).increment(0));
    dead_letters(0);
}

/// Starts the metrics of a source of events at zero.
#[cfg(feature = "http-evidence")]
pub(super) fn begin_source(source: &str) {
    without_record_total(source).increment(0);
    EVENT_OUTCOMES.iter().for_each(|outcome| events_total(source, outcome).increment(0));
}

fn scheduled_total() -> Counter {
    metrics::counter!("idempotency_reconcile_scheduled_total")
}

fn failed_total() -> Counter {
    metrics::counter!("idempotency_reconcile_failed_total")
}

fn resolved_total(verdict: Verdict) -> Counter {
    metrics::counter!("idempotency_reconcile_resolved_total", "verdict" => verdict.as_str())
}

fn contradictions_total() -> Counter {
    metrics::counter!("idempotency_reconcile_contradictions_total")
}

#[cfg(feature = "http-evidence")]
fn without_record_total(source: &str) -> Counter {
    metrics::counter!("idempotency_webhook_without_record_total", "source" => source.to_owned())
}

#[cfg(feature = "http-evidence")]
fn events_total(source: &str, outcome: &'static str) -> Counter {
    metrics::counter!("idempotency_webhook_events_total", "source" => source.to_owned(), "outcome" => outcome)
}

/// Counts a look-up that was scheduled.
pub(super) fn scheduled() {
    scheduled_total().increment(1);
}

/// Reports a look-up without a verdict, or whose verdict could not be stored.
pub(super) fn failed(record: &Record, attempts: u32, why: &str) {
    failed_total().increment(1);
    tracing::warn!(
        event = "idempotency_reconcile_failed",
        operation = record.operation.as_str(),
        operationId = %record.operation_id,
        keyHashPrefix = record.key_hash_prefix,
        traceId = record.trace.map(|trace| trace.trace_id_text()),
        attempts,
        why,
        "a look for evidence taught nothing"
    );
}

/// Reports a verdict that settled a command.
pub(super) fn resolved(record: &Record, verdict: Verdict, state: StateName, seen: &str) {
    resolved_total(verdict).increment(1);
    tracing::info!(
        event = "idempotency_reconciled",
        operation = record.operation.as_str(),
        tenant = record.principal.tenant(),
        caller = record.principal.caller(),
        operationId = %record.operation_id,
        keyHashPrefix = record.key_hash_prefix,
        traceId = record.trace.map(|trace| trace.trace_id_text()),
        verdict = verdict.as_str(),
        state = state.as_str(),
        evidence = seen,
    );
}

/// Reports a command that is left to an operator.
pub(super) fn given_up(record: &Record, attempts: u32, why: &str) {
    tracing::error!(
        event = "idempotency_reconcile_dead_letter",
        operation = record.operation.as_str(),
        tenant = record.principal.tenant(),
        caller = record.principal.caller(),
        operationId = %record.operation_id,
        keyHashPrefix = record.key_hash_prefix,
        traceId = record.trace.map(|trace| trace.trace_id_text()),
        attempts,
        why,
        "no evidence was found: it stays unknown until an operator settles it; see `semel reconcile --list`"
    );
}

/// Reports evidence that contradicts the record of a command.
pub(super) fn contradiction(id: OperationId, record: Option<&Record>, verdict: Verdict, why: &str) {
    contradictions_total().increment(1);
    let of = |read: fn(&Record) -> &str| record.map(read);
    tracing::error!(
        event = "idempotency_reconcile_contradiction",
        operation = of(|record| record.operation.as_str()),
        tenant = of(|record| record.principal.tenant()),
        caller = of(|record| record.principal.caller()),
        operationId = %id,
        keyHashPrefix = of(|record| &record.key_hash_prefix),
        traceId = record.and_then(|record| record.trace).map(|trace| trace.trace_id_text()),
        epoch = record.map(|record| record.head.epoch),
        verdict = verdict.as_str(),
        state = of(|record| record.head.state.name().as_str()),
        evidence = why,
        "evidence contradicts what is known of a command, which may have taken place twice: an operator must compare both sides"
    );
}

/// Reports a statement about a command outside of its source's bounds.
pub(super) fn out_of_bounds(record: &Record, statement: &Statement) {
    tracing::warn!(
        source = statement.source,
        operation = record.operation.as_str(),
        operationId = %record.operation_id,
        "a source speaks about an operation that it is not bound to: it is not heard"
    );
}

/// Reports a statement about a command that does not exist, or no longer.
#[cfg(feature = "http-evidence")]
pub(super) fn without_record(statement: &Statement) {
    without_record_total(&statement.source).increment(1);
    tracing::warn!(
        event = "idempotency_webhook_without_record",
        source = statement.source,
        operationId = %statement.operation_id,
        verdict = statement.verdict().as_str(),
        evidence = statement.seen,
        "an event is about a command that has no record, or none any more: it is not taken"
    );
}

/// Reports a different event under an event id that was used before.
#[cfg(feature = "http-evidence")]
pub(super) fn other_event(statement: &Statement) {
    tracing::error!(
        event = "idempotency_webhook_other_event",
        source = statement.source,
        operationId = %statement.operation_id,
        verdict = statement.verdict().as_str(),
        evidence = statement.seen,
        "an event comes under an id that another event had before: it is not taken"
    );
}

/// Reports a statement of a removed source about an open command.
pub(super) fn unbound(record: &Record, statement: &Statement) {
    tracing::warn!(
        source = statement.source,
        operation = record.operation.as_str(),
        operationId = %record.operation_id,
        "evidence of a source that is not configured (any more) is kept, and not heard"
    );
}

/// Reports evidence that would release a key, and is not used because other evidence cannot be read.
pub(super) fn held_back(record: &Record, statement: &Statement, unreadable: usize) {
    tracing::warn!(
        source = statement.source,
        operation = record.operation.as_str(),
        operationId = %record.operation_id,
        unreadable,
        "a source says \"not executed\", and other evidence cannot be read that may say otherwise: it frees nothing"
    );
}

/// Sets the number of commands that are left to an operator.
pub(super) fn dead_letters(count: usize) {
    #[allow(clippy::cast_precision_loss, reason = "a gauge is a float")]
    let count = count as f64;
    metrics::gauge!("idempotency_reconcile_dead_letters").set(count);
}

/// Counts the outcome of a received event.
#[cfg(feature = "http-evidence")]
pub(super) fn webhook(source: &str, outcome: &'static str) {
    events_total(source, outcome).increment(1);
}
