//! Everything that is so at one moment: the store, the nodes, the provider, what is on its way between them, and the
//! books that the promises are checked against.
//!
//! A world is small, and equal to another one if nothing that can still matter tells them apart.

use semel_core::fingerprint::FingerprintVersion;
use semel_core::state::SettledBy;
use semel_core::{AttemptToken, Epoch, Fence, Fingerprint, Head, Reason, State, Terms, Timestamp};

use crate::configuration::{Faults, LOOKS, NOW, TICK, after, ticks};
use crate::promises::Promise;

/// Names an attempt: that of a request, or of a worker. Also the operation id of the command that it created.
pub type Token = u8;

/// How many requests there are at most.
pub const REQUESTS: usize = 3;
/// How many nodes there are. Each has a memory for replays, and a worker.
pub const NODES: usize = 2;
/// How many keys there are at most.
pub const KEYS: usize = 2;

/// Everything that is so at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The store's record of each key.
    pub rows: [Option<Row>; KEYS],
    /// Who holds the business reference.
    pub reference: Option<Holder>,
    /// The requests, and then the worker of each node.
    pub tasks: [Task; REQUESTS + NODES],
    /// What each node has in memory for each key.
    pub memory: [[Option<Remembered>; KEYS]; NODES],
    /// Statements that nobody waits for any more, and that may still reach the store.
    pub strays: Vec<Stray>,
    /// Calls on their way to the provider.
    pub calls: Vec<Call>,
    /// What the provider has done under the present life of each key. An effect is named by the attempt that made it.
    pub effects: Vec<Effect>,
    /// The commands that the provider has declined.
    pub declined: Vec<Token>,
    /// The reconciler, which runs on the second node.
    pub reconciler: Reconciler,
    /// How often each thing may still go wrong.
    pub faults: Faults,
    /// How often an operator may still act.
    pub operator: u8,
    /// How often a worker has started a command.
    pub starts: u8,
    /// What happened, as far as promises are about it.
    pub books: Books,
}

/// A record, as the store keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// Its operation id: the attempt that created it.
    pub op: Token,
    /// The attempt whose claim is carried out, by whomever.
    pub claim: Token,
    /// What it asks for.
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
    /// Whether its one phase is written down as begun.
    pub begun: bool,
    /// Which command under its key it is: see [`Books::life`].
    pub life: u8,
}

/// What a client is told in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// Of which command under its key.
    pub life: u8,
    /// To which payload.
    pub payload: u8,
    /// What it says.
    pub says: Says,
    /// In whose words: a handler and a provider do not say the same in the same bytes.
    pub words: SettledBy,
}

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Says {
    /// Charged, with the name of the effect.
    Charged(u8),
    /// Declined for good.
    Declined,
}

/// Who holds the business reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The command.
    pub op: Token,
    /// It is free for others, and remembered.
    pub given_back: bool,
}

/// Whoever runs a command, or wants to: a request at its node, or a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    /// Where it is.
    pub phase: Phase,
    /// On which node.
    pub node: u8,
    /// Of which key.
    pub key: u8,
    /// Its attempt token.
    pub token: Token,
    /// The epoch in which it acquired the command.
    pub epoch: u8,
    /// The command that it acquired.
    pub op: Token,
    /// See [`Row::claim`].
    pub claim: Token,
    /// See [`Row::life`].
    pub life: u8,
    /// How many ticks ago it asked what it waits for an answer to.
    pub asked: u8,
    /// How often it may still renew its lease.
    pub renewals: u8,
    /// Whether it found the business reference free before it claimed. Only a variant looks.
    pub reference_was_free: bool,
    /// Whether its client was told that nothing ran.
    pub told_nothing_ran: bool,
    /// Whether somebody had been told a final answer of this key when it was sent.
    pub after_final: bool,
    /// Which life its key was in when it was sent.
    pub sent_in: u8,
}

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not sent yet; a worker with nothing to do.
    Idle,
    /// This is on its way to the store.
    Asking(Statement),
    /// The store has answered this, and the answer is on its way back.
    Answered(Statement, Then),
    /// Somebody else has the command in hand.
    Waiting,
    /// The command is acquired, and nothing is sent. So many ticks of its lease are left, by its own clock.
    Ready {
        /// Of its lease.
        lease: u8,
    },
    /// The lease was looked at. It sends within so many ticks.
    Checked {
        /// Of the margin.
        left: u8,
    },
    /// The call is on its way, or was answered so.
    Called {
        /// The provider's answer, if it has one.
        reply: Option<Says>,
    },
    /// The client was told that nothing ran; a claim that could not be confirmed is taken back.
    TakingBack,
    /// The client was told what is known; the executor's word is still offered to the store.
    Offering(Word),
    /// Over.
    Done,
    /// Its node died.
    Gone,
}

/// What a task sends to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Statement {
    /// A claim.
    Claim,
    /// A worker's start of a command that is claimed in this epoch, by this attempt.
    Start {
        /// The claim's epoch.
        epoch: u8,
        /// The claim's token.
        token: Token,
    },
    /// An executor's word about what came of it.
    Word(Word),
}

/// What an executor says about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// A final success.
    Complete(Answer),
    /// A final failure.
    Fail(Answer),
    /// Nothing ran.
    Release(Reason),
    /// Nothing ran, and a worker is to start it again.
    Requeue(Reason),
    /// Nobody can know.
    Abandon(Reason),
}

/// What a task does when it hears the store's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Then {
    /// The command is its own.
    Execute {
        /// Under this epoch.
        epoch: u8,
        /// The command.
        op: Token,
        /// Whose claim it is.
        claim: Token,
        /// Its life.
        life: u8,
        /// Whether its phase was begun by an earlier attempt.
        begun: bool,
    },
    /// The command was its own, and its lease has ended before it heard of it.
    GiveBack {
        /// Under this epoch.
        epoch: u8,
    },
    /// It waits.
    Wait,
    /// It tells its client, and keeps the record in memory.
    Tell(Told, Option<Row>),
    /// There is nothing left to do.
    End,
}

/// What a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    /// The answer of its own execution.
    Own(Answer),
    /// A stored answer.
    Replay(Answer),
    /// A stored answer, though its own execution ran: the record's truth went before its word.
    Overruled(Answer),
    /// Somebody else has it in hand.
    InProgress,
    /// Nobody knows what happened.
    Unknown,
    /// Nothing ran for this request.
    NothingRan,
    /// The key belongs to another payload.
    Mismatch,
    /// It ran, and its response is gone.
    Expired,
    /// The first request ended without running.
    Vacant,
    /// A worker will run it.
    Accepted,
    /// Another command holds the business reference.
    Duplicate,
}

/// A settled record in a node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remembered {
    /// The record as it was when the store reported it.
    pub row: Row,
    /// How many ticks ago the store was asked.
    pub age: u8,
}

/// A statement that nobody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stray {
    /// Who sent it.
    pub task: u8,
    /// Under which token.
    pub token: Token,
    /// In which epoch.
    pub epoch: u8,
    /// What it says.
    pub statement: Statement,
    /// It reaches the store within so many ticks, or never.
    pub left: u8,
}

/// A call on its way to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// Of which key.
    pub key: u8,
    /// The command, which is also what the provider deduplicates on.
    pub op: Token,
    /// See [`Row::life`].
    pub life: u8,
    /// The attempt.
    pub by: Token,
    /// See [`Row::claim`].
    pub claim: Token,
    /// Whether that attempt had acquired the command when it sent the call.
    pub acquired: bool,
    /// It lands within so many ticks, or never.
    pub left: u8,
}

/// What the provider has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Effect {
    /// Of which key.
    pub key: u8,
    /// The command.
    pub op: Token,
    /// See [`Row::life`].
    pub life: u8,
    /// The attempt.
    pub by: Token,
    /// See [`Row::claim`].
    pub claim: Token,
}

/// Where the reconciler is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reconciler {
    /// It looks for nothing.
    Idle,
    /// It has put a command off, and looked.
    Looked(Held, Finding),
}

/// A command that the reconciler has put off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// Of which key.
    pub key: u8,
    /// The command.
    pub op: Token,
    /// How often it was put off.
    pub attempts: u8,
    /// How many ticks ago, by the store's clock, the look began.
    pub ago: u8,
    /// It says what it found within so many ticks, or never.
    pub left: u8,
}

/// What a look finds at the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Finding {
    /// This effect.
    Charged(u8),
    /// That it was declined.
    Declined,
    /// Nothing.
    NoRecord,
    /// No answer.
    Silence,
}

/// What happened, as far as promises are about it. Nobody in the world reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Books {
    /// How often the record of each key has expired: only then may the key have another effect.
    pub life: [u8; KEYS],
    /// The first final answer that anybody was told, in this life.
    pub answered: [Option<Answer>; KEYS],
    /// How many ticks ago the record was settled for good.
    pub settled: [u8; KEYS],
    /// The attempts that hold, or have held, a command, and are not over: one bit each.
    pub acquired: u32,
    /// Whether evidence of the effect was heard while nobody had the command in hand.
    pub heard: [bool; KEYS],
    /// The promises that were broken, one bit each.
    pub broken: u32,
}

impl World {
    /// What the provider did under this life of a key.
    pub fn effects_of(&self, key: u8, life: u8) -> impl Iterator<Item = &Effect> {
        self.effects.iter().filter(move |effect| effect.key == key && effect.life == life)
    }

    /// What a look for this command finds.
    pub fn find(&self, op: Token) -> Finding {
        match self.effects.iter().find(|effect| effect.op == op) {
            Some(effect) => Finding::Charged(effect.by),
            None if self.declined.contains(&op) => Finding::Declined,
            None => Finding::NoRecord,
        }
    }

    /// Writes down that a promise was broken.
    pub fn broke(&mut self, promise: Promise) {
        self.books.broken |= promise.bit();
    }

    /// The record of a key.
    pub fn row(&self, key: u8) -> Option<&Row> {
        self.rows[usize::from(key)].as_ref()
    }

    /// A tick by the store's clock.
    pub fn age_store(&mut self) {
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

    /// A tick by everybody else's clock.
    pub fn age_nodes(&mut self) {
        for task in &mut self.tasks {
            if matches!(task.phase, Phase::Asking(_) | Phase::Answered(..)) {
                // After a lease it is too late, however late.
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

/// What is left of a moment that comes one tick nearer. One that is over is over, however long.
fn nearer(moment: Timestamp, floor: Timestamp) -> Timestamp {
    let tick = i64::try_from(TICK.as_millis()).unwrap_or(i64::MAX);
    if moment == Timestamp::MAX {
        moment
    } else {
        floor.max(Timestamp::from_millis(moment.as_millis() - tick))
    }
}

fn aged(state: State) -> State {
    let near = |moment| nearer(moment, NOW);
    let tombstone = i64::try_from(after(ticks::TOMBSTONE).as_millis()).unwrap_or(0);
    // How long a settled record has been over decides whether its tombstone is, too.
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
            since: near(since),
            reconcile_after: near(reconcile_after),
            // Once nobody looks any more, it does not matter how often anybody did.
            attempts: attempts.min(LOOKS.max_attempts + 1),
            quarantine_until: near(quarantine_until),
        },
        State::Expired { forget_at } => State::Expired { forget_at: near(forget_at) },
    }
}

/// The fingerprint of a payload.
pub fn fingerprint(payload: u8) -> Fingerprint {
    Fingerprint::from_parts(FingerprintVersion::CURRENT, [payload; 32])
}

/// The token of an attempt.
pub fn token(name: Token) -> AttemptToken {
    AttemptToken::from_bytes([name; 16])
}

/// What an executor proves itself with.
pub fn fence(epoch: u8, name: Token) -> Fence {
    Fence { epoch: Epoch::from(epoch), token: token(name) }
}

impl Row {
    /// What the protocol decides on.
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

    /// The record of a new command.
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
        };
        row.updated(head, None)
    }

    /// The record with another head. It keeps an answer only as long as it is settled.
    pub fn updated(self, head: &Head, answer: Option<Answer>) -> Row {
        Row {
            epoch: u8::try_from(head.epoch).unwrap_or(u8::MAX),
            token: head.token.as_bytes()[0],
            state: head.state,
            reason: head.reason,
            earlier_may_have_run: head.earlier_may_have_run,
            partly_done: head.partly_done,
            answer: if head.state.is_terminal() { answer.or(self.answer) } else { None },
            ..self
        }
    }

    /// What the executor of the current attempt proves itself with.
    pub fn fence(&self) -> Fence {
        fence(self.epoch, self.token)
    }
}

impl Task {
    /// A task that has not begun.
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
    fn what_is_over_stays_over_and_what_never_ends_stays() {
        let near = State::FailedRetryable { expires_at: NOW.plus(TICK) };
        let over = State::FailedRetryable { expires_at: NOW };
        let never = State::FailedRetryable { expires_at: Timestamp::MAX };
        assert_eq!((aged(near), aged(over), aged(never)), (over, over, never));
    }
}
