//! What is written about work that is done, for either database: at once, or later, by whoever was left to say what it
//! came to.

use semel_core::outbox::Tried;
use semel_core::transition::Verdict;
use semel_core::{
    Answer, Change, Claim, Clock, Command, Decision, Event, Fence, Head, Ids, Note, Outcome, Policy,
    RandomIds, Reason, Record, Settlement, StoredResult, SystemClock, Timestamp, Transacted, Write,
    transition,
};

use crate::reply::Reply;

/// A first attempt at a command, under an id of its own.
pub(crate) fn attempt(command: &Command) -> Claim {
    command.claim(RandomIds.operation_id(SystemClock.now()), RandomIds.attempt_token())
}

/// The completion that keeps this reply for retries. Whatever its status, it is final: the work said so.
pub(crate) fn completion(policy: &Policy, fence: Fence, reply: &Reply) -> Change {
    let result = stored(policy, reply);
    match policy.settle(reply.status(), Some(Outcome::Final)) {
        Settlement::Fail(reason) => Change::fail(fence, reason, result),
        Settlement::Complete | Settlement::Release(_) | Settlement::Abandon(_) => {
            Change::complete(fence, result)
        }
    }
}

/// What is written about work that is done: the completion, or that it is left to a message, which must be there.
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

/// Whose word settles a command after its own transaction.
#[derive(Clone, Debug)]
pub(crate) enum Word {
    /// Whoever delivers the message that it was left to.
    Message,
    /// Evidence from elsewhere.
    Evidence(Note),
}

impl Word {
    /// Whether this word still counts: asked before the work is run, and decided anew when it is written.
    pub(crate) fn counts(&self, head: &Head, now: Timestamp) -> bool {
        let event = match self {
            Word::Message if !head.is_left_to_a_message() => return false,
            Word::Message => Event::Complete { fence: head.fence() },
            Word::Evidence(_) => Event::resolve(Verdict::Succeeded),
        };
        matches!(transition(Some(head), &event, now).write, Write::Update(head) if head.state.is_terminal())
    }

    /// What is written, for this reply.
    pub(crate) fn change(&self, head: &Head, reply: &Reply) -> Change {
        match self {
            Word::Message => completion(&Policy::default(), head.fence(), reply),
            Word::Evidence(note) => {
                let result = stored(&Policy::default(), reply);
                Change::resolve_executed(result).noted(note.clone())
            }
        }
    }
}

/// What came of settling a command after its own transaction.
#[derive(Clone, Debug)]
pub enum Settled {
    /// It is settled by this word, and what the work wrote is committed with it.
    Now(Box<Record>),
    /// This word does not count, and the work was not run or was taken back: the record says what does. It was settled
    /// before, or its outcome was never left to anybody's word.
    Before(Box<Record>),
    /// There is no such command, or it was forgotten.
    Absent,
    /// The work failed and was taken back: nothing happened.
    RolledBack,
    /// The database could not be used: nothing happened.
    Unavailable,
    /// It was to be committed, and nobody knows whether it was. Doing it again tells.
    InDoubt,
}

impl Settled {
    /// What a sink says about the message that the command was left to, once the receiver has called it `reference`.
    pub fn tried(&self, reference: Option<String>) -> Tried {
        let again = |why: &str| Tried::Failed { why: why.to_owned(), retry_after: None };
        match self {
            Settled::Now(_) | Settled::Before(_) | Settled::Absent => Tried::Accepted { reference },
            Settled::RolledBack => again("what it came to could not be written down"),
            Settled::Unavailable => again("the database could not be used to write down what it came to"),
            Settled::InDoubt => again("nobody knows whether what it came to was written down"),
        }
    }
}

/// The answer to a claim that is not to execute.
pub(crate) fn decided(answer: Answer) -> Transacted {
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

/// It is committed.
pub(crate) fn executed(record: Record, now: Timestamp, reply: &Reply) -> Transacted {
    let (record, response) = (Box::new(record), reply.whole());
    match record.head.reason {
        Reason::Deferred => Transacted::Deferred { record, response },
        _ => Transacted::Executed { record, response, now },
    }
}

/// Nothing happened, and the client is told this.
pub(crate) fn rolled_back(reply: &Reply) -> Transacted {
    Transacted::RolledBack { response: reply.whole(), problem: reply.problem() }
}

/// Nothing happened, and it is not the client's fault.
pub(crate) fn failed() -> Transacted {
    rolled_back(&Reply::rolled_back())
}

/// Somebody else has the command in hand, in a transaction that nobody can look into.
pub(crate) fn in_progress() -> Transacted {
    Transacted::Decided { decision: Decision::Wait, record: None, holder: None, now: None }
}
