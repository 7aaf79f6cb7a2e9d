//! Answers a request from a record, in memory or in the store, without executing the command.
//!
//! Every request that does not acquire its command ends here: a replay, a mismatch, a duplicate, a look at an operation.
//! Invariant: the transition function decides; this file turns its decision into an answer.

use semel_core::event::Refusal;
use semel_core::{Decision, Event, Fingerprint, Policy, Record, RecordId, TierTooLow, Timestamp, transition};
use tokio::time::Instant;

use crate::answer::{Answer, problems, replay};
use crate::command::CommandRequest;
use crate::observe::{HoldOutcome, steps};
use crate::shared::Shared;

/// Answers from memory, if the settled record is there.
pub(crate) fn from_memory(
    shared: &Shared,
    id: &RecordId,
    fingerprint: Fingerprint,
    policy: &Policy,
) -> Option<Answer> {
    let (decision, settled) = shared.cache.look(id, fingerprint)?;
    Some(match decision {
        Decision::Mismatch => problems::mismatch(policy),
        _ => replay::replay_from_memory(&settled, policy),
    })
}

/// Answers from the first of these records about which `passes_over` is false, or that the store is unavailable. Returns `None`
/// if there is no such record.
pub(crate) async fn from_store(
    shared: &Shared,
    ids: &[RecordId],
    fingerprint: Fingerprint,
    policy: &Policy,
    passes_over: impl Fn(Decision) -> bool,
) -> Option<Answer> {
    let look = Event::Look { fingerprint };
    for id in ids {
        let asked = Instant::now();
        let Ok(snapshot) = shared.within("get", shared.store.get(id)).await else {
            return Some(problems::store_unavailable(policy));
        };
        let (record, now) = (snapshot.record.as_ref(), snapshot.now);
        let decision = transition(record.map(|record| &record.head), &look, now).decision;
        if !passes_over(decision) {
            return Some(decided(shared, decision, record, now, Some(asked), policy));
        }
    }
    None
}

/// Answers a command whose store has dropped below the tier that its operation needs: from its record, or that nothing runs.
pub(crate) async fn below_tier(shared: &Shared, command: &CommandRequest, shortfall: TierTooLow) -> Answer {
    let policy = &*command.rule.policy;
    known(shared, command).await.unwrap_or_else(|| {
        let (needed, promised) = (shortfall.needed.number(), shortfall.promised.number());
        tracing::warn!(
            operation = &*command.rule.label,
            needed,
            promised,
            "the tier is too low: nothing is run"
        );
        problems::tier_too_low(shortfall, policy)
    })
}

/// Answers a command that an operator holds: from its record, or that nothing runs.
pub(crate) async fn held(shared: &Shared, command: &CommandRequest) -> Answer {
    let known = known(shared, command).await;
    let outcome = if known.is_some() { HoldOutcome::Allowed } else { HoldOutcome::Refused };
    steps::held(&command.rule, Some(command.command.scope.principal()), Some(command.key), outcome);
    known.unwrap_or_else(|| {
        shared.observer.held(&command.rule.label);
        problems::held(&command.rule.policy)
    })
}

/// Answers a command whose client has stopped waiting: from its record, or that nothing runs.
pub(crate) async fn overdue(shared: &Shared, command: &CommandRequest) -> Answer {
    known(shared, command).await.unwrap_or_else(|| problems::deadline_exceeded(&command.rule.policy))
}

/// Answers a command while the holds could not be read yet: from its record, or that nothing runs.
pub(crate) async fn holds_not_known(shared: &Shared, command: &CommandRequest) -> Answer {
    known(shared, command).await.unwrap_or_else(|| problems::store_unavailable(&command.rule.policy))
}

/// Answers a command from its record, without claiming it. `None`: a claim would run it.
async fn known(shared: &Shared, command: &CommandRequest) -> Option<Answer> {
    let ids = command.command.record_ids();
    let is_vacant = |decision| decision == Decision::Vacant;
    from_store(shared, &ids, command.command.fingerprint, &command.rule.policy, is_vacant).await
}

/// Answers a look at a record. `asked` is the moment at which the store was asked, if memory may keep the record.
pub(crate) fn looked(
    shared: &Shared,
    record: Option<&Record>,
    look: Event,
    now: Timestamp,
    asked: Option<Instant>,
    policy: &Policy,
) -> Answer {
    let decision = transition(record.map(|record| &record.head), &look, now).decision;
    decided(shared, decision, record, now, asked, policy)
}

/// Answers a decision other than to execute. `asked` is the moment at which the store was asked, if memory may keep the record.
pub(crate) fn decided(
    shared: &Shared,
    decision: Decision,
    record: Option<&Record>,
    now: Timestamp,
    asked: Option<Instant>,
    policy: &Policy,
) -> Answer {
    match (decision, record) {
        (Decision::Replay, Some(record)) => replayed(shared, record, now, asked, policy),
        (Decision::Wait, Some(record)) => problems::in_progress(record, policy),
        (Decision::Reconcile, Some(record)) => problems::reconcile(record, policy),
        (Decision::Expired, Some(record)) => problems::expired(record, policy),
        (Decision::Mismatch, _) => problems::mismatch(policy),
        (Decision::Vacant, _) => problems::vacant(policy),
        (Decision::Refused(Refusal::StoreFenced), _) => problems::fenced(policy),
        (Decision::Refused(Refusal::FingerprintVersion), Some(record)) => {
            let (operation_id, version) = (record.operation_id, record.head.fingerprint.version().number());
            tracing::error!(%operation_id, version, "a record has a fingerprint of a version that is not known here");
            problems::newer_record(record, policy)
        }
        (Decision::Replay | Decision::Wait | Decision::Reconcile | Decision::Expired, None)
        | (
            Decision::Execute
            | Decision::Duplicate
            | Decision::Applied
            | Decision::Fenced
            | Decision::Refused(_)
            | Decision::Idle,
            _,
        ) => {
            tracing::error!(?decision, "the store broke its contract: nothing is run");
            problems::store_unavailable(policy)
        }
    }
}

/// Replays a settled record, and keeps it in memory if `asked` says when the store was asked.
fn replayed(
    shared: &Shared,
    record: &Record,
    now: Timestamp,
    asked: Option<Instant>,
    policy: &Policy,
) -> Answer {
    let Some(response) = record.result.as_ref().and_then(|result| result.response.decode().ok()) else {
        tracing::error!(operation_id = %record.operation_id, "a stored response cannot be read");
        return problems::unreadable(record, policy);
    };
    if let Some(asked) = asked {
        shared.cache.keep(record, now, asked);
    }
    replay::replay(record, &response, policy)
}
