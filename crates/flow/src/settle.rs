//! Changes that are written for finished work, for either database: at once, or later, when a message or evidence
//! settles the command.

use semel_core::outbox::Tried;
use semel_core::transition::Verdict;
use semel_core::{
    Change, Claim, Clock, Command, Decision, Event, Fence, Fingerprint, Head, Ids, Note, Outcome, Policy,
    RandomIds, Reason, Record, Settlement, StoreAnswer, StoredResult, SystemClock, Timestamp, Transacted,
    Write, transition,
};

use crate::reply::Reply;
use crate::unknown;

/// Returns the claim of a first attempt at a command, under a new id.
pub(crate) fn attempt(command: &Command) -> Claim {
    command.claim(RandomIds.operation_id(SystemClock.now()), RandomIds.attempt_token())
}

/// Returns the completion that stores this reply for retries. The reply is final, whatever its status: the work said
/// so.
pub(crate) fn completion(policy: &Policy, fence: Fence, reply: &Reply) -> Change {
    let result = stored(policy, reply);
    match policy.settle(reply.status(), Some(Outcome::Final)) {
        Settlement::Fail(reason) => Change::fail(fence, reason, result),
        Settlement::Complete | Settlement::Release(_) | Settlement::Abandon(_) => {
            Change::complete(fence, result)
        }
    }
}

/// Returns the change to write for finished work: the completion, or the deferral to a message, which must exist.
pub(crate) fn written(
    policy: &Policy,
    fence: Fence,
    reply: &Reply,
    pushed: usize,
) -> Result<Change, &'static str> {
    match reply.deferral() {
        None => Ok(completion(policy, fence, reply)),
        Some(time) if pushed > 0 => Ok(Change::defer(fence, time)),
        Some(_) => Err("the work left its outcome to a message and pushed none"),
    }
}

/// Authority that settles a command after its own transaction.
#[derive(Clone, Debug)]
pub(crate) enum SettlingAuthority {
    /// The sink of the message that the command was deferred to.
    Message,
    /// Outside evidence.
    Evidence(Note),
}

impl SettlingAuthority {
    /// Returns true if this word still counts. Checked before the work runs, and decided again when it is written.
    pub(crate) fn counts(&self, head: &Head, now: Timestamp) -> bool {
        let event = match self {
            SettlingAuthority::Message if !head.is_left_to_a_message() => return false,
            SettlingAuthority::Message => Event::Complete { fence: head.fence() },
            SettlingAuthority::Evidence(_) => Event::resolve(Verdict::Succeeded),
        };
        matches!(transition(Some(head), &event, now).write, Write::Update(head) if head.state.is_terminal())
    }

    /// Returns the change to write for this reply.
    pub(crate) fn change(&self, head: &Head, reply: &Reply) -> Change {
        match self {
            SettlingAuthority::Message => completion(&Policy::default(), head.fence(), reply),
            SettlingAuthority::Evidence(note) => {
                let result = stored(&Policy::default(), reply);
                Change::resolve_executed(result).noted(note.clone())
            }
        }
    }
}

/// Result of settling a command after its own transaction.
#[derive(Clone, Debug)]
pub enum Settled {
    /// The command is settled by this word, and the writes of the work are committed with it.
    Now(Box<Record>),
    /// This word does not count, and the work did not run or was rolled back; the record shows the outcome. The command
    /// was settled before, or its outcome was never deferred or unknown.
    Before(Box<Record>),
    /// There is no such command, or its record has expired.
    Absent,
    /// The work failed and was rolled back: nothing happened.
    RolledBack,
    /// The database was not available: nothing happened.
    Unavailable,
    /// The COMMIT may or may not have happened. A second call resolves it.
    InDoubt,
}

impl Settled {
    /// Returns the result for the sink whose message the command was deferred to; `reference` is the receiver's
    /// reference.
    pub fn tried(&self, reference: Option<String>) -> Tried {
        let again = |why: &str| Tried::Failed { why: why.to_owned(), retry_after: None };
        match self {
            Settled::Now(_) | Settled::Before(_) | Settled::Absent => Tried::Accepted { reference },
            Settled::RolledBack => again("what it came to could not be written down"),
            Settled::Unavailable => again("the database could not be used to write down what it came to"),
            Settled::InDoubt => again("whether its outcome was written is unknown"),
        }
    }
}

/// Returns the outcome of a claim that must not execute. An expired lease that the claim carried out is counted.
pub(crate) fn not_claimed(claim: &Claim, answer: StoreAnswer) -> Transacted {
    unknown::observe(claim.scope.operation(), &answer, None);
    decided(answer)
}

/// Returns the outcome that an answer shows to a request that does not execute the command.
pub(crate) fn decided(answer: StoreAnswer) -> Transacted {
    Transacted::Decided {
        decision: answer.decision,
        record: answer.record.map(Box::new),
        holder: answer.holder.map(Box::new),
        now: Some(answer.now),
    }
}

fn stored(policy: &Policy, reply: &Reply) -> StoredResult {
    StoredResult::of(&reply.kept(policy))
}

/// Returns the outcome of a committed command.
pub(crate) fn executed(record: Record, now: Timestamp, reply: &Reply) -> Transacted {
    let (record, response) = (Box::new(record), reply.whole());
    match record.head.reason {
        Reason::Deferred => Transacted::Deferred { record, response },
        _ => Transacted::Executed { record, response, now },
    }
}

/// Returns the outcome of a commit that was asked about, with its record as it is now. A deferred command may have been settled
/// since, or have become unknown: its client then gets what the record has, and not the reply for the time until then.
pub(crate) fn found_committed(record: Record, now: Timestamp, reply: &Reply) -> Transacted {
    if reply.deferral().is_some() && record.head.reason != Reason::Deferred {
        return seen(record.head.fingerprint, Some(record), now);
    }
    executed(record, now, reply)
}

/// Returns the outcome that the record shows to a request with this fingerprint.
pub(crate) fn seen(fingerprint: Fingerprint, found: Option<Record>, now: Timestamp) -> Transacted {
    let look = Event::Look { fingerprint };
    let decision = transition(found.as_ref().map(|found| &found.head), &look, now).decision;
    decided(StoreAnswer { decision, record: found, now, holder: None, lapse: None })
}

/// Returns the outcome of a command that was rolled back, with this reply for the client.
pub(crate) fn rolled_back(reply: &Reply) -> Transacted {
    Transacted::RolledBack { response: reply.whole(), problem: reply.problem() }
}

/// Returns the outcome of a command that was rolled back by an internal failure.
pub(crate) fn failed() -> Transacted {
    rolled_back(&Reply::rolled_back())
}

/// Returns the outcome of a command that another transaction, which cannot be read, is executing.
pub(crate) fn in_progress() -> Transacted {
    Transacted::Decided { decision: Decision::Wait, record: None, holder: None, now: None }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use http::StatusCode;
    use semel_core::State;
    use semel_testkit::sample;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn claimed() -> Record {
        let command = Command {
            scope: sample::scope("key"),
            fingerprint: sample::fingerprint("{}"),
            business_reference: None,
            former: Arc::default(),
            policy: Arc::new(Policy::default()),
            trace: None,
        };
        let claim = attempt(&command);
        let made = transition(None, &Event::Claim(claim.attempt), NOW);
        Record::after(None, made.write, Some(&claim), None, NOW).expect("a first claim makes a record")
    }

    fn after(record: &Record, change: &Change, now: Timestamp) -> Record {
        let made = transition(Some(&record.head), change.event(), now);
        Record::after(Some(record), made.write, None, change.result(), now).expect("the change counts")
    }

    fn later() -> Reply {
        Reply::new(StatusCode::ACCEPTED).deferred(Duration::from_secs(60))
    }

    #[test]
    fn a_lost_commit_of_a_deferred_command_is_answered_by_the_record_as_it_is_now() {
        let claimed = claimed();
        let deferred = after(&claimed, &Change::defer(claimed.head.fence(), Duration::from_secs(60)), NOW);
        let open = found_committed(deferred.clone(), NOW, &later());
        assert!(matches!(&open, Transacted::Deferred { response, .. } if response.status == 202), "{open:?}");

        let reply = Reply::new(StatusCode::CREATED).body("charged");
        let settled = after(&deferred, &completion(&Policy::default(), deferred.head.fence(), &reply), NOW);
        let told = found_committed(settled.clone(), NOW, &later());
        assert!(
            matches!(&told, Transacted::Decided { decision: Decision::Replay, record: Some(record), .. }
                if **record == settled),
            "{told:?}"
        );

        let late = Timestamp::from_millis(NOW.as_millis() + 61_000);
        let unknown = after(&deferred, &Change::abandon(deferred.head.fence(), Reason::HandlerUnsure), late);
        assert!(matches!(unknown.head.state, State::Unknown { .. }));
        let told = found_committed(unknown, late, &later());
        assert!(matches!(&told, Transacted::Decided { decision: Decision::Reconcile, .. }), "{told:?}");
    }

    #[test]
    fn a_lost_commit_of_finished_work_is_answered_by_its_own_reply() {
        let reply = Reply::new(StatusCode::CREATED).body("charged");
        let claimed = claimed();
        let settled = after(&claimed, &completion(&Policy::default(), claimed.head.fence(), &reply), NOW);
        let told = found_committed(settled, NOW, &reply);
        assert!(matches!(&told, Transacted::Executed { response, .. } if response.status == 201), "{told:?}");
    }
}
