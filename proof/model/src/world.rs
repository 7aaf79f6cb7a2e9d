//! State of the model: the store, the nodes, the provider, the messages between them, and the books that the promises
//! are checked against. A world holds only facts that can still matter, so equal worlds behave alike.

mod past;

use semel_core::fingerprint::FingerprintVersion;
use semel_core::state::SettledBy;
use semel_core::{AttemptToken, Epoch, Fence, Fingerprint, Head, Reason, State, Terms, Timestamp};

use crate::configuration::{Faults, LOOKS, NOW, TICK, after, ticks};
use crate::promises::Promise;
pub use past::{Backup, Era, Fencing, Past};

/// Name of an attempt by a request or a worker; also the operation id of the command that the attempt created.
pub type Token = u8;

/// Distance between the first and the second token of an attempt.
pub(crate) const FRESH: Token = 16;

/// Largest number of requests.
pub const REQUESTS: usize = 3;
/// Number of nodes. Each has a replay cache and a worker.
pub const NODES: usize = 2;
/// Largest number of keys.
pub const KEYS: usize = 2;

/// State of the whole model at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The store's record of each key.
    pub rows: [Option<Row>; KEYS],
    /// Holder of the business reference.
    pub reference: Option<Holder>,
    /// Tasks of the requests, followed by the worker of each node.
    pub tasks: [Task; REQUESTS + NODES],
    /// Replay cache of each node, by key.
    pub memory: [[Option<Remembered>; KEYS]; NODES],
    /// Statements without a waiting sender that may still reach the store.
    pub strays: Vec<Stray>,
    /// Calls on their way to the provider.
    pub calls: Vec<Call>,
    /// Effects at the provider under the present life of each key. The attempt that made an effect names it.
    pub effects: Vec<Effect>,
    /// The commands that the provider has declined.
    pub declined: Vec<Token>,
    /// The reconciler, which runs on the second node.
    pub reconciler: Reconciler,
    /// Remaining number of faults of each kind.
    pub faults: Faults,
    /// Remaining number of operator actions.
    pub operator: u8,
    /// Number of commands that workers have started.
    pub starts: u8,
    /// Backup and fence of the store.
    pub past: Past,
    /// Events that the promises are about.
    pub books: Books,
}

/// Record in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// Operation id of the record: the attempt that created it.
    pub op: Token,
    /// Attempt whose claim is being executed, by any executor.
    pub claim: Token,
    /// Payload of the command.
    pub payload: u8,
    /// See [`Head::epoch`].
    pub epoch: u8,
    /// See [`Head::token`].
    pub token: Token,
    /// See [`Head::state`].
    pub state: State,
    /// See [`Head::reason`].
    pub reason: Reason,
    /// See [`Head::earlier_may_have_run`].
    pub earlier_may_have_run: bool,
    /// See [`Head::partly_done`].
    pub partly_done: bool,
    /// The stored response.
    pub answer: Option<Answer>,
    /// True if its one phase is recorded as begun.
    pub begun: bool,
    /// Life of the key that the record belongs to: see [`Books::life`].
    pub life: u8,
    /// Time of the record's creation.
    pub created: Era,
    /// Time at which the record entered its state.
    pub entered: Era,
}

/// Final answer to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// Life of the key that the answer belongs to.
    pub life: u8,
    /// Payload that the answer belongs to.
    pub payload: u8,
    /// Content of the answer.
    pub says: Says,
    /// Author of the answer: a handler and a provider say the same in different bytes.
    pub words: SettledBy,
}

/// Content of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Says {
    /// Charged, with the name of the effect.
    Charged(u8),
    /// Declined for good.
    Declined,
}

/// Holder of the business reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// Command that holds the reference.
    pub op: Token,
    /// True if the reference is free for others and its last holder is remembered.
    pub given_back: bool,
}

/// Current or would-be executor of a command: a request at its node, or a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    /// Phase of the task.
    pub phase: Phase,
    /// Node that the task runs on.
    pub node: u8,
    /// Key of the task.
    pub key: u8,
    /// Attempt token of the task.
    pub token: Token,
    /// Epoch in which the task acquired the command.
    pub epoch: u8,
    /// Command that the task acquired.
    pub op: Token,
    /// See [`Row::claim`].
    pub claim: Token,
    /// See [`Row::life`].
    pub life: u8,
    /// Number of ticks since the task sent its statement.
    pub asked: u8,
    /// Remaining number of lease renewals.
    pub renewals: u8,
    /// True if the business reference was free before the claim. Only a variant looks.
    pub reference_was_free: bool,
    /// True if the client was told that nothing ran.
    pub told_nothing_ran: bool,
    /// True if a client had a final answer for this key before this request was sent.
    pub after_final: bool,
    /// Life of the key when the request was sent.
    pub sent_in: u8,
}

/// Phase of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The request is not sent yet, or the worker has nothing to do.
    Idle,
    /// The statement is on its way to the store.
    Asking(Statement),
    /// The store has taken the statement, and its answer is on its way back.
    Answered(Statement, Then),
    /// Another executor has the command in progress.
    Waiting,
    /// The command is acquired, and nothing is sent.
    Ready {
        /// Remaining ticks of the lease, by the task's own clock.
        lease: u8,
    },
    /// The lease was checked, and the call follows within the margin.
    Checked {
        /// Remaining ticks of the margin.
        left: u8,
    },
    /// The call is on its way, or was answered.
    Called {
        /// The provider's answer, if there is one.
        reply: Option<Says>,
    },
    /// The client was told that nothing ran; the unconfirmed claim is being released.
    TakingBack,
    /// The client has its answer; the executor still offers its outcome to the store.
    Offering(Word),
    /// The task is over.
    Done,
    /// The task's node died.
    Gone,
}

/// Statement that a task sends to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Statement {
    /// A claim.
    Claim,
    /// A worker's start of the command that this epoch and token have claimed.
    Start {
        /// Epoch of the claim.
        epoch: u8,
        /// Token of the claim.
        token: Token,
    },
    /// The outcome that an executor reports.
    Word(Word),
}

/// Outcome that an executor reports for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// A final success.
    Complete(Answer),
    /// A final failure.
    Fail(Answer),
    /// The command did not run.
    Release(Reason),
    /// The command did not run and is requeued for a worker.
    Requeue(Reason),
    /// The outcome is unknown.
    Abandon(Reason),
}

/// Next action of a task after the store's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Then {
    /// The task owns the command and executes it.
    Execute {
        /// Epoch of the acquisition.
        epoch: u8,
        /// Operation id of the command.
        op: Token,
        /// Attempt whose claim is executed.
        claim: Token,
        /// Life of the key.
        life: u8,
        /// True if an earlier attempt began the phase.
        begun: bool,
    },
    /// The task owned the command, but its lease expired before the answer came.
    GiveBack {
        /// Epoch of the acquisition.
        epoch: u8,
    },
    /// The task waits.
    Wait,
    /// The task answers its client and keeps the record in memory.
    Tell(Told, Option<Row>),
    /// The task has nothing left to do.
    End,
}

/// Answer to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    /// Answer of the request's own execution.
    Own(Answer),
    /// Stored answer.
    Replay(Answer),
    /// Stored answer for a request whose own execution ran: the record takes precedence over it.
    Overruled(Answer),
    /// Another executor has the command in progress.
    InProgress,
    /// The outcome is unknown.
    Unknown,
    /// Nothing ran for this request.
    NothingRan,
    /// The key belongs to another payload.
    Mismatch,
    /// The command ran, and its response is gone.
    Expired,
    /// The first request ended without running.
    Vacant,
    /// A worker will run the command.
    Accepted,
    /// Another command holds the business reference.
    Duplicate,
    /// The store is fenced, and may have forgotten the command.
    Fenced,
}

/// Settled record in a node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remembered {
    /// Record as the store reported it.
    pub row: Row,
    /// Number of ticks since the store was asked.
    pub age: u8,
}

/// Statement without a waiting sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stray {
    /// Index of the task that sent the statement.
    pub task: u8,
    /// Attempt token of the statement.
    pub token: Token,
    /// Epoch of the statement.
    pub epoch: u8,
    /// The statement itself.
    pub statement: Statement,
    /// Remaining ticks within which the statement may reach the store.
    pub left: u8,
}

/// Call on its way to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// Key of the command.
    pub key: u8,
    /// Operation id of the command; the provider deduplicates on it.
    pub op: Token,
    /// See [`Row::life`].
    pub life: u8,
    /// Attempt that sent the call.
    pub by: Token,
    /// See [`Row::claim`].
    pub claim: Token,
    /// True if the attempt had acquired the command when it sent the call.
    pub acquired: bool,
    /// Remaining ticks within which the call may land.
    pub left: u8,
}

/// Effect at the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Effect {
    /// Key of the command.
    pub key: u8,
    /// Operation id of the command.
    pub op: Token,
    /// See [`Row::life`].
    pub life: u8,
    /// Attempt that made the effect.
    pub by: Token,
    /// See [`Row::claim`].
    pub claim: Token,
}

/// Activity of the reconciler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reconciler {
    /// The reconciler has no command.
    Idle,
    /// The reconciler has postponed the command and has looked it up.
    Looked(Held, Finding),
}

/// Command that the reconciler has postponed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// Key of the command.
    pub key: u8,
    /// Operation id of the command.
    pub op: Token,
    /// Number of postponements.
    pub attempts: u8,
    /// Number of ticks since the lookup began, by the store's clock.
    pub ago: u8,
    /// Remaining ticks within which the reconciler may give its verdict.
    pub left: u8,
}

/// Result of a lookup at the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finding {
    /// The effect of this attempt.
    Charged(u8),
    /// The provider declined.
    Declined,
    /// No record of the command.
    NoRecord,
    /// No answer.
    Silence,
}

/// Events that the promises are about. No participant of the model reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Books {
    /// Number of times that the record of each key has expired: only then may the key have another effect.
    pub life: [u8; KEYS],
    /// First final answer to any client, in this life of each key.
    pub answered: [Option<Answer>; KEYS],
    /// Number of ticks since the record was settled.
    pub settled: [u8; KEYS],
    /// Attempts that hold or have held a command and are not over, one bit each.
    pub acquired: u32,
    /// True if evidence of the effect arrived while no executor had the command.
    pub heard: [bool; KEYS],
    /// True if a restore lost what became of the key, and no evidence of "not executed" came since.
    pub lost: [bool; KEYS],
    /// True if a restore lost the stored answer of the key: its content may come back in other words.
    pub reworded: [bool; KEYS],
    /// Broken promises, one bit each.
    pub broken: u32,
}

impl World {
    /// Returns the effects under this life of a key.
    pub fn effects_of(&self, key: u8, life: u8) -> impl Iterator<Item = &Effect> {
        self.effects.iter().filter(move |effect| effect.key == key && effect.life == life)
    }

    /// Returns the result of a lookup of this command.
    pub fn find(&self, op: Token) -> Finding {
        match self.effects.iter().find(|effect| effect.op == op) {
            Some(effect) => Finding::Charged(effect.by),
            None if self.declined.contains(&op) => Finding::Declined,
            None => Finding::NoRecord,
        }
    }

    /// Records a broken promise.
    pub fn broke(&mut self, promise: Promise) {
        self.books.broken |= promise.bit();
    }

    /// Returns the record of a key.
    pub fn row(&self, key: u8) -> Option<&Row> {
        self.rows[usize::from(key)].as_ref()
    }

    /// Advances the store's clock by a tick.
    pub fn age_store(&mut self) {
        self.past.age();
        if let Reconciler::Looked(held, _) = &mut self.reconciler {
            held.ago = held.ago.saturating_add(1).min(ticks::LONG_AGO);
        }
        for (row, settled) in self.rows.iter_mut().zip(&mut self.books.settled) {
            let Some(row) = row else { continue };
            row.state = aged(row.state);
            if row.state.is_terminal() && row.state.expires_at() != Some(Timestamp::MAX) {
                *settled = settled.saturating_add(1).min(ticks::TTL);
            }
        }
    }

    /// Advances all other clocks by a tick.
    pub fn age_nodes(&mut self) {
        for task in &mut self.tasks {
            if matches!(task.phase, Phase::Asking(_) | Phase::Answered(..)) {
                // An answer after the lease is too late, by any number of ticks.
                task.asked = task.asked.saturating_add(1).min(ticks::LEASE);
            }
            match &mut task.phase {
                Phase::Ready { lease: left } | Phase::Checked { left } => *left = left.saturating_sub(1),
                _ => {}
            }
        }
        self.calls.retain(|call| call.left > 0);
        self.calls.iter_mut().for_each(|call| call.left -= 1);
        self.strays.retain(|stray| stray.left > 0);
        self.strays.iter_mut().for_each(|stray| stray.left -= 1);
        self.reconciler = match self.reconciler {
            Reconciler::Looked(held, finding) if held.left > 0 => {
                Reconciler::Looked(Held { left: held.left - 1, ..held }, finding)
            }
            Reconciler::Looked(..) | Reconciler::Idle => Reconciler::Idle,
        };
        for remembered in self.memory.iter_mut().flatten().flatten() {
            remembered.age = remembered.age.saturating_add(1).min(ticks::TTL);
        }
    }
}

/// Returns `moment` one tick nearer, but not before `floor`.
fn nearer(moment: Timestamp, floor: Timestamp) -> Timestamp {
    let tick = i64::try_from(TICK.as_millis()).unwrap_or(i64::MAX);
    if moment == Timestamp::MAX {
        moment
    } else {
        floor.max(Timestamp::from_millis(moment.as_millis() - tick))
    }
}

/// Returns the state a tick later.
pub(crate) fn aged(state: State) -> State {
    let near = |moment| nearer(moment, NOW);
    let tombstone = i64::try_from(after(ticks::TOMBSTONE).as_millis()).unwrap_or(0);
    // The time since a settled record's expiry decides when its tombstone expires.
    let settled = |moment| nearer(moment, Timestamp::from_millis(NOW.as_millis() - tombstone));
    match state {
        State::Claimed { start_by, ready_at } => {
            State::Claimed { start_by: near(start_by), ready_at: near(ready_at) }
        }
        State::Processing { lease_until, start_by } => {
            State::Processing { lease_until: near(lease_until), start_by: start_by.map(near) }
        }
        State::Succeeded { expires_at, settled_by } => {
            State::Succeeded { expires_at: settled(expires_at), settled_by }
        }
        State::FailedFinal { expires_at, settled_by } => {
            State::FailedFinal { expires_at: settled(expires_at), settled_by }
        }
        State::FailedRetryable { expires_at } => State::FailedRetryable { expires_at: near(expires_at) },
        State::Unknown { since, reconcile_after, attempts, quarantine_until } => State::Unknown {
            // It matters only whether that was before the fence.
            since,
            reconcile_after: near(reconcile_after),
            // The number of lookups beyond the limit makes no difference.
            attempts: attempts.min(LOOKS.max_attempts + 1),
            quarantine_until: near(quarantine_until),
        },
        State::Expired { forget_at } => State::Expired { forget_at: near(forget_at) },
    }
}

/// Returns the fingerprint of a payload.
pub fn fingerprint(payload: u8) -> Fingerprint {
    Fingerprint::from_parts(FingerprintVersion::CURRENT, [payload; 32])
}

/// Returns the token of an attempt.
pub fn token(name: Token) -> AttemptToken {
    AttemptToken::from_bytes([name; 16])
}

/// Returns the fence of an executor.
pub fn fence(epoch: u8, name: Token) -> Fence {
    Fence { epoch: Epoch::from(epoch), token: token(name) }
}

impl Row {
    /// Returns the head that the protocol decides on.
    pub fn head(&self, terms: &Terms) -> Head {
        Head {
            fingerprint: fingerprint(self.payload),
            epoch: Epoch::from(self.epoch),
            token: token(self.token),
            terms: *terms,
            state: self.state,
            reason: self.reason,
            earlier_may_have_run: self.earlier_may_have_run,
            partly_done: self.partly_done,
        }
    }

    /// Returns the record of a new command.
    pub fn created(head: &Head, life: u8) -> Row {
        let op = head.token.as_bytes()[0];
        let row = Row {
            op,
            claim: op,
            payload: head.fingerprint.digest()[0],
            epoch: 0,
            token: op,
            state: head.state,
            reason: head.reason,
            earlier_may_have_run: head.earlier_may_have_run,
            partly_done: head.partly_done,
            answer: None,
            begun: false,
            life,
            created: Era::Since,
            entered: Era::Since,
        };
        row.updated(head, None)
    }

    /// Returns the record with another head. It keeps an answer only while it is settled.
    pub fn updated(self, head: &Head, answer: Option<Answer>) -> Row {
        let epoch = u8::try_from(head.epoch).unwrap_or(u8::MAX);
        let stays = (head.state.name(), epoch) == (self.state.name(), self.epoch);
        Row {
            epoch,
            entered: Era::after(&head.state, stays.then_some(self.entered)),
            token: head.token.as_bytes()[0],
            state: head.state,
            reason: head.reason,
            earlier_may_have_run: head.earlier_may_have_run,
            partly_done: head.partly_done,
            answer: if head.state.is_terminal() { answer.or(self.answer) } else { None },
            ..self
        }
    }

    /// Returns the fence of the current attempt.
    pub fn fence(&self) -> Fence {
        fence(self.epoch, self.token)
    }
}

impl Task {
    /// Returns a task that has not begun.
    pub fn idle(node: u8, key: u8, token: Token) -> Task {
        Task {
            phase: Phase::Idle,
            node,
            key,
            token,
            epoch: 0,
            op: 0,
            claim: 0,
            life: 0,
            asked: 0,
            renewals: 0,
            reference_was_free: false,
            told_nothing_ran: false,
            after_final: false,
            sent_in: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shipped;

    #[test]
    fn a_record_reads_back_from_its_head() {
        let terms = shipped::DEFAULTS.terms();
        let state = State::Processing { lease_until: NOW.plus(terms.lease), start_by: None };
        let head = Head {
            fingerprint: fingerprint(2),
            epoch: 1,
            token: token(3),
            terms,
            state,
            reason: Reason::Claimed,
            earlier_may_have_run: false,
            partly_done: false,
        };
        let row = Row::created(&head, 0);
        assert_eq!((row.op, row.claim, row.payload), (3, 3, 2));
        assert_eq!(row.head(&terms), head);
        let settled = State::Succeeded { expires_at: Timestamp::MAX, settled_by: SettledBy::Verdict };
        let head =
            Head { epoch: 4, earlier_may_have_run: true, ..head.moved(settled, Reason::VerdictExecuted) };
        assert_eq!(row.updated(&head, None).head(&terms), head);
    }

    #[test]
    fn aging_expires_near_deadlines_and_keeps_past_and_endless_ones() {
        let near = State::FailedRetryable { expires_at: NOW.plus(TICK) };
        let over = State::FailedRetryable { expires_at: NOW };
        let never = State::FailedRetryable { expires_at: Timestamp::MAX };
        assert_eq!((aged(near), aged(over), aged(never)), (over, over, never));
    }
}
