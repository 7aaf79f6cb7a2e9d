//! Observations of decisions about commands: counters, the busiest callers, and one line in the log for each.

use std::sync::Arc;

use semel_core::quota::Limit;
use semel_core::{Principal, Record, RecordId, StateName};

use crate::answer::{AnswerDecision, AnswerFacts};
use crate::busy::{BusyCallers, CallerSignal};
use crate::reaped::ReapedRecords;

use super::ObservationLabels;
use super::metrics;
use super::tenants::TenantLabels;

/// The memory of a layer's observations.
pub(crate) struct Observer {
    tenants: TenantLabels,
    pub(crate) busy: Arc<BusyCallers>,
    pub(crate) reaped: Arc<ReapedRecords>,
}

impl Observer {
    pub(crate) fn new() -> Observer {
        let busy = Arc::new(BusyCallers::new());
        Observer { tenants: TenantLabels::default(), busy, reaped: Arc::default() }
    }

    /// Counts and logs the decision about one command. `facts` are those of the answer, as far as there is one yet.
    pub(crate) fn decision(&self, about: &ObservationLabels, decision: AnswerDecision, facts: &AnswerFacts) {
        let operation = || about.operation.clone();
        metrics::claims(operation(), decision).increment(1);
        match decision {
            AnswerDecision::Replayed => metrics::replays(operation()).increment(1),
            AnswerDecision::InProgress => metrics::in_progress(operation()).increment(1),
            AnswerDecision::Expired => metrics::expired(operation()).increment(1),
            AnswerDecision::Refused => {
                if let Some(code) = facts.code {
                    metrics::refused(operation(), code).increment(1);
                }
            }
            AnswerDecision::Accepted
            | AnswerDecision::Executed
            | AnswerDecision::Reacquired
            | AnswerDecision::Mismatch
            | AnswerDecision::Unknown
            | AnswerDecision::StoreError => {}
        }
        if let Some(principal) = &about.principal {
            self.decision_for(principal, about, decision);
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
            keyHashPrefix = about.key.map(tracing::field::display),
            traceId = about.trace.map(|trace| trace.trace_id_text()),
        );
    }

    /// Counts the decision under its tenant and its caller.
    fn decision_for(&self, principal: &Principal, about: &ObservationLabels, decision: AnswerDecision) {
        let operation = || about.operation.clone();
        let tenant = || self.tenants.of(principal);
        match decision {
            AnswerDecision::Executed => {
                metrics::new_keys(tenant()).increment(1);
                // One that a worker executes was counted when it was accepted.
                if !about.is_async {
                    self.busy.count(CallerSignal::NewKey, principal);
                }
            }
            AnswerDecision::Accepted => self.busy.count(CallerSignal::NewKey, principal),
            AnswerDecision::Mismatch => {
                metrics::mismatches(operation(), tenant()).increment(1);
                self.busy.count(CallerSignal::Mismatch, principal);
            }
            AnswerDecision::Replayed
            | AnswerDecision::InProgress
            | AnswerDecision::Unknown
            | AnswerDecision::Expired => {
                metrics::duplicates(operation(), tenant()).increment(1);
                if let Some(key) = about.key {
                    self.busy.duplicate(&about.operation, principal, key);
                }
            }
            AnswerDecision::Refused => self.busy.count(CallerSignal::Refusal, principal),
            AnswerDecision::Reacquired | AnswerDecision::StoreError => {}
        }
    }

    /// Records a refusal by a quota.
    pub(crate) fn quota_exceeded(&self, principal: &Principal, whose: &'static str, limit: Limit) {
        metrics::quota_exceeded(whose, limit, self.tenants.of(principal)).increment(1);
        tracing::info!(
            event = "idempotency_quota_exceeded",
            tenant = principal.tenant(),
            caller = principal.caller(),
            whose,
            limit = limit.as_str(),
        );
    }

    /// Records a refusal by a hold, which the decision about the command counts too.
    pub(crate) fn held(&self, operation: &Arc<str>) {
        metrics::held(operation.clone()).increment(1);
    }

    /// Records a new command, as a late retry if its claim replaced an expired record, or if one was deleted here.
    pub(crate) fn created(
        &self,
        operation: &Arc<str>,
        record: &Record,
        ids: impl Iterator<Item = RecordId>,
        replaced_expired: bool,
    ) {
        let was_reaped = ids.filter(|id| self.reaped.take(id)).count() > 0;
        if !replaced_expired && !was_reaped {
            return;
        }
        metrics::late_retries(operation.clone()).increment(1);
        tracing::warn!(
            event = "idempotency_late_retry",
            operation = &**operation,
            tenant = record.principal.tenant(),
            caller = record.principal.caller(),
            operationId = %record.operation_id,
            keyHashPrefix = record.key_hash_prefix,
            traceId = record.trace.map(|trace| trace.trace_id_text()),
            "a retry came after its record had expired: it runs as a new command"
        );
    }
}
