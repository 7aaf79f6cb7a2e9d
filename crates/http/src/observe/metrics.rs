//! The layer's counters and histograms, one function for each name, and their start at zero.
//!
//! Invariant: every label has a bounded number of values.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use metrics::{Counter, Histogram, counter, gauge, histogram};
use semel_core::problem::ProblemKind;
use semel_core::quota::Limit;
use semel_core::{Reason, Timestamp};

use crate::answer::AnswerDecision;

use super::late::Late;
use super::tenants::OTHER;

/// Returns the reasons for which a command becomes unknown.
pub(crate) fn unknown_causes() -> impl Iterator<Item = Reason> {
    Reason::ALL.into_iter().filter(|reason| reason.is_of_unknown())
}

/// Returns the problems of requests that are refused.
fn refusals() -> impl Iterator<Item = ProblemKind> {
    ProblemKind::ALL.into_iter().filter(|kind| is_refusal(*kind))
}

/// Returns true for a problem that a command is refused with by the layer.
const fn is_refusal(kind: ProblemKind) -> bool {
    match kind {
        ProblemKind::MissingKey
        | ProblemKind::InvalidKey
        | ProblemKind::ResultUnavailable
        | ProblemKind::DuplicateBusinessReference
        | ProblemKind::Unauthenticated
        | ProblemKind::Forbidden
        | ProblemKind::QuotaExceeded
        | ProblemKind::LookupQuotaExceeded
        | ProblemKind::RequestTooOld
        | ProblemKind::RequestTooLarge
        | ProblemKind::RequestIncomplete
        | ProblemKind::AuthorizationUnavailable
        | ProblemKind::StoreUnavailable
        | ProblemKind::ShuttingDown
        | ProblemKind::Held
        | ProblemKind::DeadlineExceeded
        | ProblemKind::Overloaded
        | ProblemKind::MalformedRequest => true,
        // Other decisions about a command have a counter of their own.
        ProblemKind::KeyReused
        | ProblemKind::InProgress
        | ProblemKind::OutcomeUnknown
        | ProblemKind::RecordExpired
        | ProblemKind::ResponseNotRetained
        | ProblemKind::ResponseUnreadable
        // Handlers and the service around the layer have these.
        | ProblemKind::UpstreamUnreachable
        | ProblemKind::RolledBack
        | ProblemKind::InvalidBulk
        | ProblemKind::UpstreamFailed
        | ProblemKind::OperationNotFound
        | ProblemKind::MisdirectedRequest
        | ProblemKind::RequestHeadTooLarge
        | ProblemKind::RequestHeadTimeout
        | ProblemKind::NotFound
        | ProblemKind::ActionRefused => false,
    }
}

/// The store calls of requests.
const STORE_CALLS: [&str; 8] =
    ["apply", "claim", "contradict", "find", "get", "progress", "take_in", "waiting"];

/// The owners of quotas, and the limits of a quota.
const SUBJECTS: [&str; 2] = ["tenant", "caller"];
const LIMITS: [Limit; 4] = [Limit::NewKeys, Limit::Lookups, Limit::ActiveKeys, Limit::StoredBytes];

/// The methods with a label of their own, and one of the others, which share theirs.
const METHODS: [Method; 8] = [
    Method::GET,
    Method::HEAD,
    Method::OPTIONS,
    Method::PUT,
    Method::DELETE,
    Method::POST,
    Method::PATCH,
    Method::TRACE,
];

/// The time at which a request last matched each rule.
const LAST_MATCHED: &str = "idempotency_rule_last_matched_seconds";

/// Starts the metrics of a layer with these labels of its rules: counters at zero, matches at the present time.
pub(crate) fn begin(rules: &[Arc<str>], unmatched: &Arc<str>, now: Timestamp) {
    rules.iter().for_each(|label| matched(label.clone(), now));
    for operation in rules.iter().chain([unmatched]) {
        let operation = || operation.clone();
        AnswerDecision::ALL.iter().for_each(|outcome| claims(operation(), *outcome).increment(0));
        refusals().for_each(|kind| refused(operation(), kind.code()).increment(0));
        unknown_causes().for_each(|cause| unknown(operation(), cause).increment(0));
        Late::ALL.iter().for_each(|outcome| late_answers(operation(), *outcome).increment(0));
        for counter in [replays, in_progress, expired, zombies, late_retries, held] {
            counter(operation()).increment(0);
        }
        duplicates(operation(), OTHER.to_owned()).increment(0);
        mismatches(operation(), OTHER.to_owned()).increment(0);
        let _ = (added(operation()), execution(operation()));
    }
    new_keys(OTHER.to_owned()).increment(0);
    METHODS.iter().for_each(|method| passed(method).increment(0));
    for limit in LIMITS {
        SUBJECTS.iter().for_each(|whose| quota_exceeded(whose, limit, OTHER.to_owned()).increment(0));
    }
    for call in STORE_CALLS {
        store_errors(call).increment(0);
        let _ = store_time(call);
    }
    contradictions().increment(0);
}

/// Records that a request matched the rule with this label.
pub(crate) fn matched(label: Arc<str>, now: Timestamp) {
    let seconds = Duration::from_millis(u64::try_from(now.as_millis()).unwrap_or_default());
    gauge!(LAST_MATCHED, "operation" => label).set(seconds.as_secs_f64());
}

pub(super) fn claims(operation: Arc<str>, outcome: AnswerDecision) -> Counter {
    counter!("idempotency_claims_total", "operation" => operation, "outcome" => outcome.as_str())
}

pub(super) fn replays(operation: Arc<str>) -> Counter {
    counter!("idempotency_replays_total", "operation" => operation)
}

pub(super) fn in_progress(operation: Arc<str>) -> Counter {
    counter!("idempotency_in_progress_total", "operation" => operation)
}

pub(super) fn expired(operation: Arc<str>) -> Counter {
    counter!("idempotency_expired_total", "operation" => operation)
}

pub(super) fn new_keys(tenant: String) -> Counter {
    counter!("idempotency_new_keys_total", "tenant" => tenant)
}

pub(super) fn mismatches(operation: Arc<str>, tenant: String) -> Counter {
    counter!("idempotency_fingerprint_mismatch_total", "operation" => operation, "tenant" => tenant)
}

pub(super) fn duplicates(operation: Arc<str>, tenant: String) -> Counter {
    counter!("idempotency_duplicates_total", "operation" => operation, "tenant" => tenant)
}

pub(super) fn refused(operation: Arc<str>, code: &'static str) -> Counter {
    counter!("idempotency_refused_total", "operation" => operation, "code" => code)
}

pub(super) fn held(operation: Arc<str>) -> Counter {
    counter!("idempotency_held_total", "operation" => operation)
}

pub(super) fn late_retries(operation: Arc<str>) -> Counter {
    counter!("idempotency_late_retries_total", "operation" => operation)
}

pub(super) fn quota_exceeded(whose: &'static str, limit: Limit, tenant: String) -> Counter {
    let limit = limit.as_str();
    counter!("idempotency_quota_exceeded_total", "whose" => whose, "limit" => limit, "tenant" => tenant)
}

/// Returns the counter of commands that became unknown for this reason.
pub(crate) fn unknown(operation: Arc<str>, cause: Reason) -> Counter {
    counter!("idempotency_unknown_total", "operation" => operation, "cause" => cause.as_str())
}

pub(super) fn zombies(operation: Arc<str>) -> Counter {
    counter!("idempotency_zombies_total", "operation" => operation)
}

pub(super) fn late_answers(operation: Arc<str>, outcome: Late) -> Counter {
    let outcome = outcome.as_str();
    counter!("idempotency_late_answers_total", "operation" => operation, "outcome" => outcome)
}

pub(super) fn contradictions() -> Counter {
    counter!("idempotency_reconcile_contradictions_total")
}

/// Returns the counter of requests of this method that pass without protection.
pub(crate) fn passed(method: &Method) -> Counter {
    let method = match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::POST => "POST",
        Method::PATCH => "PATCH",
        _ => "other",
    };
    counter!("idempotency_passed_total", "method" => method)
}

pub(super) fn added(operation: Arc<str>) -> Histogram {
    histogram!("idempotency_added_seconds", "operation" => operation)
}

pub(super) fn execution(operation: Arc<str>) -> Histogram {
    histogram!("idempotency_execution_seconds", "operation" => operation)
}

pub(super) fn store_time(call: &'static str) -> Histogram {
    histogram!("idempotency_store_seconds", "call" => call)
}

pub(super) fn store_errors(call: &'static str) -> Counter {
    counter!("idempotency_store_errors_total", "call" => call)
}
