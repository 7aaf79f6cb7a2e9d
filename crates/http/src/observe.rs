//! Metrics and log events about commands. They never hold a key, a body, a credential or a query; only logs hold a path, without
//! identifiers.
//!
//! Metrics go through the `metrics` facade, logs through `tracing`: without a recorder or a subscriber, both cost next to
//! nothing.

mod decisions;
mod late;
mod late_answers;
mod metrics;
pub(crate) mod steps;
mod tenants;

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use semel_core::{Change, Claim, OperationName, Principal, Record, StoreAnswer, StoreError, TraceContext};

use crate::busy::KeyHashPrefix;
use crate::operations::{CommandRule, path_of};

pub(crate) use self::decisions::Observer;
pub(crate) use self::late::Late;
pub(crate) use self::late_answers::{contradiction, late};
pub(crate) use self::metrics::{begin, matched, passed, unknown, unknown_causes};
pub(crate) use self::steps::HoldOutcome;

/// The labels of an observation: the operation and the caller.
#[derive(Clone)]
pub(crate) struct ObservationLabels {
    /// The operation's name if a rule names it, else `unmatched`: a path is never a label.
    pub(crate) operation: Arc<str>,
    pub(crate) method: Method,
    /// Path for logs: that of the rule's route, or a bounded one without identifiers.
    pub(crate) path: Arc<str>,
    pub(crate) principal: Option<Principal>,
    /// Beginning of the digest of the key.
    pub(crate) key: Option<KeyHashPrefix>,
    /// The trace of the request, or of the request that made the record.
    pub(crate) trace: Option<TraceContext>,
    /// True if a worker executes commands of the rule.
    pub(crate) is_async: bool,
}

impl ObservationLabels {
    /// Returns the labels of a command with this rule.
    pub(crate) fn of(rule: &CommandRule) -> ObservationLabels {
        ObservationLabels {
            operation: rule.label.clone(),
            method: rule.method.clone(),
            path: rule.path.clone(),
            principal: None,
            key: None,
            trace: None,
            is_async: rule.is_async(),
        }
    }

    /// Returns the labels of a request that has no rule.
    pub(crate) fn unplaced(operation: Arc<str>, method: &Method, path: &str) -> ObservationLabels {
        let name = OperationName::unmatched(method.as_str(), path);
        ObservationLabels {
            operation,
            method: method.clone(),
            path: Arc::from(path_of(&name)),
            principal: None,
            key: None,
            trace: None,
            is_async: false,
        }
    }
}

/// Records the time that the layer itself took for a command.
pub(crate) fn added(about: &ObservationLabels, time: Duration) {
    metrics::added(about.operation.clone()).record(time);
}

/// Records the end of an execution.
pub(crate) fn executed(about: &ObservationLabels, record: &Record, time: Duration) {
    metrics::execution(about.operation.clone()).record(time);
    tracing::info!(
        event = "idempotency_settled",
        operation = &*about.operation,
        method = about.method.as_str(),
        path = &*about.path,
        tenant = record.principal.tenant(),
        caller = record.principal.caller(),
        operationId = %record.operation_id,
        state = record.head.state.name().as_str(),
        reason = record.head.reason.as_str(),
        keyHashPrefix = record.key_hash_prefix,
        traceId = about.trace.map(|trace| trace.trace_id_text()),
    );
}

/// Counts the command of an answer if its call made it unknown. `change` is the call's, if it was no claim.
pub(crate) fn became_unknown(
    operation: impl FnOnce() -> Arc<str>,
    answer: &StoreAnswer,
    change: Option<&Change>,
) {
    if let Some(cause) = answer.made_unknown(change) {
        unknown(operation(), cause).increment(1);
    }
}

/// Counts a command that became unknown with its claim, since the store may have forgotten attempts at it.
pub(crate) fn doubted(operation: impl FnOnce() -> Arc<str>, answer: &StoreAnswer, claim: &Claim) {
    let own = answer.record.as_ref().filter(|record| record.head.token == claim.attempt.token);
    if let Some(record) = own.filter(|record| record.head.is_in_doubt()) {
        unknown(operation(), record.head.reason).increment(1);
    }
}

/// Counts an executor that was fenced.
pub(crate) fn zombie(about: &ObservationLabels) {
    metrics::zombies(about.operation.clone()).increment(1);
}

/// Records a store call.
pub(crate) fn store_call(call: &'static str, time: Duration, error: Option<&StoreError>) {
    metrics::store_time(call).record(time);
    if error.is_some() {
        metrics::store_errors(call).increment(1);
    }
}
