//! Changes that are written for finished work, for either database: at once, or later, when a message or evidence
//! settles the command.

use semel_core::outbox::Tried;
use semel_core::transition::Verdict;
use semel_core::{
    Change, Claim, Clock, Command, Decision, Event, Fence, Head, Ids, Note, Outcome, Policy, RandomIds,
    Reason, Record, Settlement, StoreAnswer, StoredResult, SystemClock, Timestamp, Transacted, Write,
    transition,
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

/// Returns the outcome of a claim that must not execute.
pub(crate) fn decided(answer: StoreAnswer) -> Transacted {
    unknown::observe(&answer, None);
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
