//! What is counted and logged. Never a body.

use semel_core::reconcile::Statement;
use semel_core::transition::Verdict;
use semel_core::{Record, StateName};

/// A look was put down to be made.
pub(super) fn scheduled() {
    metrics::counter!("idempotency_reconcile_scheduled_total").increment(1);
}

/// A look taught nothing, or what it taught could not be written.
pub(super) fn failed(record: &Record, attempts: u32, why: &str) {
    metrics::counter!("idempotency_reconcile_failed_total").increment(1);
    tracing::warn!(
        event = "idempotency_reconcile_failed",
        operation = record.operation.as_str(),
        operationId = %record.operation_id,
        keyHashPrefix = record.key_hash_prefix,
        attempts,
        why,
        "a look for evidence taught nothing"
    );
}

/// A verdict settled a command.
pub(super) fn resolved(record: &Record, verdict: Verdict, state: StateName, seen: &str) {
    metrics::counter!("idempotency_reconcile_resolved_total", "verdict" => verdict.as_str()).increment(1);
    tracing::info!(
        event = "idempotency_reconciled",
        operation = record.operation.as_str(),
        tenant = record.principal.tenant(),
        caller = record.principal.caller(),
        operationId = %record.operation_id,
        keyHashPrefix = record.key_hash_prefix,
        verdict = verdict.as_str(),
        state = state.as_str(),
        evidence = seen,
    );
}

/// A command is left to an operator.
pub(super) fn given_up(record: &Record, attempts: u32, why: &str) {
    tracing::error!(
        event = "idempotency_reconcile_dead_letter",
        operation = record.operation.as_str(),
        tenant = record.principal.tenant(),
        caller = record.principal.caller(),
        operationId = %record.operation_id,
        keyHashPrefix = record.key_hash_prefix,
        attempts,
        why,
        "no evidence was found: it stays unknown until somebody resolves it; see `semel reconcile --list`"
    );
}

/// Evidence says otherwise than a settled record.
pub(super) fn contradiction(record: &Record, verdict: Verdict, seen: &str) {
    metrics::counter!("idempotency_reconcile_contradictions_total").increment(1);
    tracing::error!(
        event = "idempotency_reconcile_contradiction",
        operation = record.operation.as_str(),
        tenant = record.principal.tenant(),
        caller = record.principal.caller(),
        operationId = %record.operation_id,
        keyHashPrefix = record.key_hash_prefix,
        verdict = verdict.as_str(),
        state = record.head.state.name().as_str(),
        evidence = seen,
        "evidence contradicts a settled record: somebody has to look at both sides"
    );
}

/// A statement is about a command that its source has nothing to do with.
pub(super) fn out_of_bounds(record: &Record, statement: &Statement) {
    tracing::warn!(
        source = statement.source,
        operation = record.operation.as_str(),
        operationId = %record.operation_id,
        "a source speaks about an operation that it is not bound to: it is not heard"
    );
}

/// Evidence that would free a key is not used, for what cannot be read beside it.
pub(super) fn held_back(record: &Record, statement: &Statement, unreadable: usize) {
    tracing::warn!(
        source = statement.source,
        operation = record.operation.as_str(),
        operationId = %record.operation_id,
        unreadable,
        "a source says \"not executed\", and other evidence cannot be read that may say otherwise: it frees nothing"
    );
}

/// How many commands are left to an operator.
pub(super) fn dead_letters(count: usize) {
    #[allow(clippy::cast_precision_loss, reason = "a gauge is a float")]
    let count = count as f64;
    metrics::gauge!("idempotency_reconcile_dead_letters").set(count);
}

/// What became of an event that came by itself.
#[cfg(feature = "http-evidence")]
pub(super) fn webhook(source: &str, outcome: &'static str) {
    metrics::counter!("idempotency_webhook_events_total", "source" => source.to_owned(), "outcome" => outcome)
        .increment(1);
}
