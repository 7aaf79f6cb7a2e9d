//! Claims a command in the store, before anything runs.
//!
//! Invariant: only a claim that the store has answered acquires the command. A claim without an answer is taken back.

use std::sync::Arc;

use semel_core::event::Refusal;
use semel_core::{
    Claim, Decision, Event, Lapse, Policy, Reason, Record, StoreAnswer, StoreError, transition,
};
use tokio::time::Instant;

use crate::acquired::{Acquired, Unexecuted};
use crate::answer::{Answer, problems};
use crate::command::CommandRequest;
use crate::execution::AskedAt;
use crate::observe;
use crate::operations::CommandRule;
use crate::persist;
use crate::quotas::ReservedKey;
use crate::recall;
use crate::shared::Shared;

/// The end of a claim.
pub(crate) enum Claimed {
    /// This request may execute the command.
    Acquired(Box<Acquired>),
    /// Another request holds the command, in this record.
    Taken(Box<Record>),
    /// The request is answered without an execution.
    Answered(Box<Answer>),
}

impl From<Answer> for Claimed {
    fn from(answer: Answer) -> Claimed {
        Claimed::Answered(Box::new(answer))
    }
}

/// Claims a command for this request, which then executes it.
pub(crate) async fn claim(shared: &Arc<Shared>, command: &CommandRequest, new_key: ReservedKey) -> Claimed {
    let policy = &*command.rule.policy;
    let (id, token) = (shared.ids.operation_id(shared.clock.now()), shared.ids.attempt_token());
    // The lease counts from before the claim was sent, so that it ends here before it ends in the store.
    let asked = AskedAt::now();
    let (sent, kept) = {
        let claim = command.command.claim_keeping(id, token, || command.to_keep(&shared.before_keeping));
        let sent = send(shared, &claim, &command.rule, new_key).await;
        (sent, claim.request.map(|request| request.bytes.len()))
    };
    let answer = match sent {
        Ok(answer) => answer,
        Err(answer) => return Claimed::Answered(answer),
    };
    if let (Decision::Execute, Some(record), Some(bytes)) = (answer.decision, &answer.record, kept) {
        shared.stored(record, bytes);
    }
    match (answer.decision, answer.record) {
        (Decision::Execute, Some(record)) if shared.running.is_closing() => {
            give_back(shared, &record, Reason::ShutDown, problems::shutting_down, policy).await
        }
        (Decision::Execute, Some(record)) => {
            let (record, rule, span) = (Box::new(record), command.rule.clone(), command.span.clone());
            let unexecuted = Unexecuted::Release;
            Claimed::Acquired(Box::new(Acquired { record, rule, asked, unexecuted, span }))
        }
        (Decision::Reconcile | Decision::Vacant, Some(record))
            if record.head.token == token && !record.head.is_in_doubt() =>
        {
            // This claim itself: its answer was lost, and it was found again after the end of its lease. Nothing ran.
            give_back(shared, &record, Reason::ClaimUnconfirmed, problems::store_unavailable, policy).await
        }
        (Decision::Wait, Some(record)) => Claimed::Taken(Box::new(record)),
        (decision, record) => {
            recall::decided(shared, decision, record.as_ref(), answer.now, Some(asked.at), policy).into()
        }
    }
}

/// Claims a command for a worker, and answers with the address at which the client can poll it.
pub(crate) async fn claim_for_worker(
    shared: &Arc<Shared>,
    command: &CommandRequest,
    new_key: ReservedKey,
) -> Answer {
    let policy = &*command.rule.policy;
    let request = command.to_keep(&shared.before_keeping);
    let (id, token) = (shared.ids.operation_id(shared.clock.now()), shared.ids.attempt_token());
    let claim = command.command.claim_for_later(id, token, request);
    let asked = Instant::now();
    let answer = match send(shared, &claim, &command.rule, new_key).await {
        Ok(answer) => answer,
        Err(answer) => return *answer,
    };
    match (answer.decision, answer.record) {
        (Decision::Wait, Some(record)) if record.head.token == token => {
            shared.stored(&record, claim.request.as_ref().map_or(0, |request| request.bytes.len()));
            shared.wake.notify_one();
            problems::accepted(&record, policy)
        }
        (decision, record) => {
            recall::decided(shared, decision, record.as_ref(), answer.now, Some(asked), policy)
        }
    }
}

/// Sends a claim. Nothing runs if the store fails, or if another command holds the business reference.
async fn send(
    shared: &Arc<Shared>,
    claim: &Claim,
    rule: &CommandRule,
    new_key: ReservedKey,
) -> Result<StoreAnswer, Box<Answer>> {
    let policy = &rule.policy;
    match shared.claim(claim).await {
        Ok(answer) if answer.decision == Decision::Duplicate => {
            let own = answer.holder.filter(|holder| holder.principal == *claim.scope.principal());
            Err(Box::new(problems::duplicate_reference(own.map(|holder| holder.operation_id), policy)))
        }
        Ok(answer) => {
            if answer.decision == Decision::Refused(Refusal::StoreFenced) {
                shared.observer.held(&rule.label);
            }
            observe::became_unknown(|| rule.label.clone(), &answer, None);
            observe::doubted(|| rule.label.clone(), &answer, claim);
            if let Some(record) = answer.record.as_ref().filter(|record| record.is_first_of(claim)) {
                new_key.created();
                let replaced = answer.lapse == Some(Lapse::Retention);
                shared.observer.created(&rule.label, record, claim.record_ids(), replaced);
            }
            Ok(answer)
        }
        Err(error) => {
            tracing::warn!(%error, operation = &*rule.label, "a claim failed: nothing is run");
            if matches!(error, StoreError::Ambiguous(_)) {
                new_key.created();
                if rule.is_async() {
                    // A worker may have started it by now: it cannot be said that nothing ran.
                    return Err(Box::new(problems::cut_off(policy)));
                }
                persist::release_unconfirmed(shared, claim.clone());
            }
            Err(Box::new(problems::store_unavailable(policy)))
        }
    }
}

/// Gives back a command that was claimed and not begun, and answers with `unbegun`. If another request has
/// acquired the command by now, this request is its duplicate.
async fn give_back(
    shared: &Arc<Shared>,
    record: &Record,
    reason: Reason,
    unbegun: fn(&Policy) -> Answer,
    policy: &Policy,
) -> Claimed {
    let Some(others) = persist::give_back(shared, record, Unexecuted::Release, reason).await else {
        return unbegun(policy).into();
    };
    let look = Event::Look { fingerprint: record.head.fingerprint };
    let decision = transition(others.record.as_ref().map(|record| &record.head), &look, others.now).decision;
    match (decision, others.record) {
        (Decision::Wait, Some(record)) => Claimed::Taken(Box::new(record)),
        (decision, record) => {
            recall::decided(shared, decision, record.as_ref(), others.now, None, policy).into()
        }
    }
}
