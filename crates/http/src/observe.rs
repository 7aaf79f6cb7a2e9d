//! Metrics and log events about commands. They never hold a key, a body, a credential or a query; only logs hold a path, without
//! identifiers.
//!
//! Metrics go through the `metrics` facade, logs through `tracing`: without a recorder or a subscriber, both cost next to
//! nothing.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::Method;
use metrics::{counter, gauge, histogram};
use semel_core::quota::Limit;
use semel_core::transition::Verdict;
use semel_core::{OperationName, Principal, Record, StateName, StoreError, Timestamp};

use crate::answer::{AnswerDecision, AnswerFacts};
use crate::operations::{CommandRule, path_of};

/// The labels of an observation: the operation and the caller.
#[derive(Clone)]
pub(crate) struct ObservationLabels {
    /// The operation's name if a rule names it, else `unmatched`: a path is never a label.
    pub(crate) operation: Arc<str>,
    pub(crate) method: Method,
    /// Path for logs: that of the rule's route, or a bounded one without identifiers.
    pub(crate) path: Arc<str>,
    pub(crate) principal: Option<Principal>,
    /// Prefix of the key's hash for logs: only made if logs are on.
    pub(crate) key_hash_prefix: Option<String>,
}

impl ObservationLabels {
    /// Returns the labels of a command with this rule.
    pub(crate) fn of(rule: &CommandRule) -> ObservationLabels {
        ObservationLabels {
            operation: rule.label.clone(),
            method: rule.method.clone(),
            path: rule.path.clone(),
            principal: None,
            key_hash_prefix: None,
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
            key_hash_prefix: None,
        }
    }
}

/// Returns true if decisions about commands are logged.
pub(crate) fn is_logged() -> bool {
    tracing::enabled!(tracing::Level::INFO)
}

/// The maximum number of tenants, and of callers, that have labels of their own.
const MAX_LABELS: usize = 100;

/// Tenants and callers that have labels of their own; the rest share one.
#[derive(Default)]
pub(crate) struct Labels {
    tenants: RwLock<HashSet<String>>,
    callers: RwLock<HashSet<String>>,
}

impl Labels {
    fn tenant(&self, principal: &Principal) -> String {
        capped(&self.tenants, principal.tenant())
    }

    fn caller(&self, principal: &Principal) -> String {
        capped(&self.callers, principal.caller())
    }
}

fn capped(known: &RwLock<HashSet<String>>, name: &str) -> String {
    if known.read().unwrap_or_else(PoisonError::into_inner).contains(name) {
        return name.to_owned();
    }
    let mut known = known.write().unwrap_or_else(PoisonError::into_inner);
    if known.len() < MAX_LABELS {
        known.insert(name.to_owned());
    }
    if known.contains(name) { name.to_owned() } else { "other".to_owned() }
}

/// Counts and logs the decision about one command. `facts` are those of the answer, as far as there is one yet.
pub(crate) fn decision(
    labels: &Labels,
    about: &ObservationLabels,
    decision: AnswerDecision,
    facts: &AnswerFacts,
) {
    let operation = || about.operation.clone();
    counter!("idempotency_claims_total", "operation" => operation(), "outcome" => decision.as_str())
        .increment(1);
    match decision {
        AnswerDecision::Replayed => {
            counter!("idempotency_replays_total", "operation" => operation()).increment(1);
        }
        AnswerDecision::InProgress => {
            counter!("idempotency_in_progress_total", "operation" => operation()).increment(1);
        }
        AnswerDecision::Expired => {
            counter!("idempotency_expired_total", "operation" => operation()).increment(1);
        }
        AnswerDecision::Accepted
        | AnswerDecision::Executed
        | AnswerDecision::Reacquired
        | AnswerDecision::Mismatch
        | AnswerDecision::Unknown
        | AnswerDecision::Refused
        | AnswerDecision::StoreError => {}
    }
    if let Some(principal) = &about.principal {
        match decision {
            AnswerDecision::Executed => {
                counter!("idempotency_new_keys_total", "tenant" => labels.tenant(principal)).increment(1);
            }
            AnswerDecision::Mismatch => {
                let caller = labels.caller(principal);
                let name = "idempotency_fingerprint_mismatch_total";
                counter!(name, "operation" => operation(), "caller" => caller).increment(1);
            }
            AnswerDecision::Replayed
            | AnswerDecision::InProgress
            | AnswerDecision::Unknown
            | AnswerDecision::Expired => {
                let tenant = labels.tenant(principal);
                counter!("idempotency_duplicates_total", "operation" => operation(), "tenant" => tenant)
                    .increment(1);
            }
            AnswerDecision::Accepted
            | AnswerDecision::Reacquired
            | AnswerDecision::Refused
            | AnswerDecision::StoreError => {}
        }
    }
    tracing::info!(
        event = decision.event(),
        outcome = decision.as_str(),
        operation = &*about.operation,
        method = about.method.as_str(),
        path = &*about.path,
        operationId = facts.operation_id.map(tracing::field::display),
        tenant = about.principal.as_ref().map(|principal| principal.tenant()),
        caller = about.principal.as_ref().map(|principal| principal.caller()),
        state = facts.known_state().map(StateName::as_str),
        code = facts.code,
        keyHashPrefix = about.key_hash_prefix.as_deref(),
    );
}

/// The time at which a request last matched each rule.
const LAST_MATCHED: &str = "idempotency_rule_last_matched_seconds";

/// Starts the gauge of the last match for each of these rules, at the present time.
pub(crate) fn begin_matching(labels: &[Arc<str>], now: Timestamp) {
    labels.iter().for_each(|label| matched(label.clone(), now));
}

/// Records that a request matched the rule with this label.
pub(crate) fn matched(label: Arc<str>, now: Timestamp) {
    let seconds = Duration::from_millis(u64::try_from(now.as_millis()).unwrap_or_default());
    gauge!(LAST_MATCHED, "operation" => label).set(seconds.as_secs_f64());
}

/// Records the time that the layer itself took for a command.
pub(crate) fn added(about: &ObservationLabels, time: Duration) {
    histogram!("idempotency_added_seconds", "operation" => about.operation.clone()).record(time);
}

/// Records the end of an execution.
pub(crate) fn executed(about: &ObservationLabels, record: &Record, time: Duration) {
    histogram!("idempotency_execution_seconds", "operation" => about.operation.clone()).record(time);
    if record.head.state.name() == StateName::Unknown {
        counter!("idempotency_unknown_total", "operation" => about.operation.clone()).increment(1);
    }
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
    );
}

/// Counts an executor that was fenced.
pub(crate) fn zombie(about: &ObservationLabels) {
    counter!("idempotency_zombies_total", "operation" => about.operation.clone()).increment(1);
}

/// The result of reading an answer after its timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    /// The answer settled the record.
    Settled,
    /// The answer was fenced: the record is settled by now.
    Fenced,
    /// The answer leaves the outcome unknown.
    StillUnknown,
    /// The answer could not be stored yet.
    NotStored,
    /// There was no answer.
    Silent,
}

impl Late {
    const fn as_str(self) -> &'static str {
        match self {
            Late::Settled => "settled",
            Late::Fenced => "fenced",
            Late::StillUnknown => "unknown",
            Late::NotStored => "store_error",
            Late::Silent => "none",
        }
    }
}

/// Records an answer after its timeout, or its absence.
pub(crate) fn late(about: &ObservationLabels, record: &Record, outcome: Late) {
    let (operation, outcome) = (about.operation.clone(), outcome.as_str());
    counter!("idempotency_late_answers_total", "operation" => operation, "outcome" => outcome).increment(1);
    tracing::info!(
        event = "idempotency_late_answer",
        outcome,
        operation = &*about.operation,
        tenant = record.principal.tenant(),
        caller = record.principal.caller(),
        operationId = %record.operation_id,
        state = record.head.state.name().as_str(),
        keyHashPrefix = record.key_hash_prefix,
    );
}

/// Records a late answer that contradicts its record, like every contradiction that a reconciler finds.
pub(crate) fn contradiction(record: &Record, verdict: Verdict, why: &str) {
    counter!("idempotency_reconcile_contradictions_total").increment(1);
    tracing::error!(
        event = "idempotency_reconcile_contradiction",
        operation = record.operation.as_str(),
        tenant = record.principal.tenant(),
        caller = record.principal.caller(),
        operationId = %record.operation_id,
        keyHashPrefix = record.key_hash_prefix,
        epoch = record.head.epoch,
        verdict = verdict.as_str(),
        evidence = why,
        "an answer after its timeout contradicts what is known of a command, which may have taken place twice"
    );
}

/// Records a refusal by a quota.
pub(crate) fn quota_exceeded(principal: &Principal, whose: &'static str, limit: Limit) {
    counter!("idempotency_quota_exceeded_total", "whose" => whose, "limit" => limit.as_str()).increment(1);
    tracing::info!(
        event = "idempotency_quota_exceeded",
        tenant = principal.tenant(),
        caller = principal.caller(),
        whose,
        limit = limit.as_str(),
    );
}

/// Records a store call.
pub(crate) fn store_call(call: &'static str, time: Duration, error: Option<&StoreError>) {
    histogram!("idempotency_store_seconds", "call" => call).record(time);
    if error.is_some() {
        counter!("idempotency_store_errors_total", "call" => call).increment(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_capped() {
        let labels = Labels::default();
        let label = |name: &str| labels.tenant(&Principal::new(name, "c").expect("it is a name"));
        for number in 0..MAX_LABELS {
            let name = format!("tenant-{number}");
            assert_eq!(label(&name), name);
        }
        assert_eq!(label("one too many"), "other");
        assert_eq!(label("tenant-7"), "tenant-7");
    }
}
