//! Observations of answers after their timeout.

use semel_core::Record;
use semel_core::transition::Verdict;

use super::ObservationLabels;
use super::late::Late;
use super::metrics;

/// Records an answer after its timeout, or its absence.
pub(crate) fn late(about: &ObservationLabels, record: &Record, outcome: Late) {
    metrics::late_answers(about.operation.clone(), outcome).increment(1);
    tracing::info!(
        event = "idempotency_late_answer",
        outcome = outcome.as_str(),
        operation = &*about.operation,
        tenant = record.principal.tenant(),
        caller = record.principal.caller(),
        operationId = %record.operation_id,
        state = record.head.state.name().as_str(),
        keyHashPrefix = record.key_hash_prefix,
        traceId = record.trace.map(|trace| trace.trace_id_text()),
    );
}

/// Records a late answer that contradicts its record, like every contradiction that a reconciler finds.
pub(crate) fn contradiction(record: &Record, verdict: Verdict, why: &str) {
    metrics::contradictions().increment(1);
    tracing::error!(
        event = "idempotency_reconcile_contradiction",
        operation = record.operation.as_str(),
        tenant = record.principal.tenant(),
        caller = record.principal.caller(),
        operationId = %record.operation_id,
        keyHashPrefix = record.key_hash_prefix,
        traceId = record.trace.map(|trace| trace.trace_id_text()),
        epoch = record.head.epoch,
        verdict = verdict.as_str(),
        evidence = why,
        "an answer after its timeout contradicts what is known of a command, which may have taken place twice"
    );
}
