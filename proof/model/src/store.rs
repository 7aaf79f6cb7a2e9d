//! The store: one atomic compare-and-set for each statement. `semel_core::store_fence::decide` alone decides it.

use semel_core::store_fence::decide;
use semel_core::transition::{ReferenceWrite, Refusal, Transition, age};
use semel_core::{Attempt, Decision, Event, Head, Reference, State, StoreFence, Write, transition};

use crate::configuration::{Mode, NOW, TICK};
use crate::invariants;
use crate::promises::Promise;
use crate::protocol::Protocol;
use crate::variants::{self, Variant};
use crate::world::{
    Answer, Holder, Row, Statement, Task, Then, Told, Word, World, fence, fingerprint, token,
};

impl Protocol {
    /// Reads the record, asks the protocol for a decision, and writes it.
    pub(crate) fn change(
        &self,
        world: &mut World,
        key: u8,
        event: &Event,
        answer: Option<Answer>,
    ) -> Decision {
        let at = usize::from(key);
        let before = world.rows[at];
        let head = before.map(|row| row.head(&self.terms));
        let fence = self.fence_of(world, before.as_ref(), event);
        let real = |head: Option<&Head>, event: &Event| decide_about(fence, before.as_ref(), head, event);
        let step = variants::decide(self.variant, head.as_ref(), event, NOW, real);
        let updated = match step.write {
            Write::Keep => before,
            Write::Delete => None,
            Write::Create(head) => Some(Row::created(&head, 0)),
            Write::Update(head) => before.map(|row| row.updated(&head, answer)),
        };
        self.watch(world, key, before, updated, event);
        let after = match step.write {
            Write::Create(head) => Some(Row::created(&head, world.books.life[at])),
            Write::Keep | Write::Update(_) | Write::Delete => updated,
        };
        let claimed = match event {
            Event::Claim(attempt) => after.filter(|row| token(row.token) == attempt.token),
            _ => None,
        };
        let after = claimed.map(|row| Row { claim: row.token, ..row }).or(after);
        write_reference(world, step.reference, before, after);
        world.rows[at] = after;
        step.decision
    }

    /// Shows a write to the invariants: first the change by time and the fence alone, then the change by the event.
    fn watch(&self, world: &mut World, key: u8, before: Option<Row>, after: Option<Row>, event: &Event) {
        if before == after {
            return;
        }
        let fence = self.fence_of(world, before.as_ref(), event);
        let aged = before.and_then(|row| {
            match decide_about(fence, Some(&row), Some(&row.head(&self.terms)), &Event::Age).write {
                Write::Update(head) => Some(row.updated(&head, None)),
                Write::Keep | Write::Create(_) => Some(row),
                Write::Delete => None,
            }
        });
        invariants::watch(self, world, key, before, aged, &Event::Age);
        invariants::watch(self, world, key, aged, after, event);
    }

    /// Takes a claim together with its business reference.
    fn claim(&self, world: &mut World, task: &Task, payload: u8, name: u8) -> Decision {
        let live = world.row(task.key).filter(|row| age(row.head(&self.terms), NOW).is_some());
        let held = world.reference.filter(|holder| !holder.given_back);
        let other = held.filter(|holder| live.map(|row| row.op) != Some(holder.op));
        let looked_up_earlier = self.variant == Some(Variant::ReferenceOutsideClaim);
        let is_free = if looked_up_earlier { task.reference_was_free } else { other.is_none() };
        let reference = match (self.configuration.reference, is_free) {
            (false, _) => Reference::None,
            (true, true) => Reference::Free,
            (true, false) => Reference::Taken,
        };
        let attempt = Attempt {
            fingerprint: fingerprint(payload),
            token: token(name),
            terms: self.terms,
            start: self.configuration.start(),
            reference,
            fence: self.fence_on(world, live),
        };
        self.change(world, task.key, &Event::Claim(attempt), None)
    }

    /// Takes a statement, also without a waiting sender. Returns the sender's next action.
    pub(crate) fn take(
        &self,
        world: &mut World,
        index: usize,
        statement: Statement,
        name: u8,
        epoch: u8,
    ) -> Then {
        let task = world.tasks[index];
        match statement {
            Statement::Claim => {
                let payload = self.configuration.requests[index].payload;
                let decision = self.claim(world, &task, payload, name);
                self.after_claim(world, &task, payload, name, decision)
            }
            Statement::Start { epoch, token: claimed } => {
                let event = Event::Start { fence: fence(epoch, claimed), token: token(name) };
                match (self.change(world, task.key, &event, None), world.row(task.key)) {
                    (Decision::Execute, Some(row)) => execute(row),
                    _ => Then::End,
                }
            }
            Statement::Word(word) => {
                let decision = self.change(world, task.key, &event(word, epoch, name), stored(word));
                self.after_word(world, index, word, decision)
            }
        }
    }

    fn after_claim(&self, world: &mut World, task: &Task, payload: u8, name: u8, decision: Decision) -> Then {
        let row = world.row(task.key).copied();
        match (decision, row) {
            (Decision::Execute, Some(row)) => execute(&row),
            (Decision::Wait, Some(row)) => {
                invariants::was_told_about(world, payload, &row);
                match self.configuration.mode {
                    Mode::Async if row.token == name => Then::Tell(Told::Accepted, None),
                    Mode::Async => Then::Tell(Told::InProgress, None),
                    Mode::Sync | Mode::Phased => {
                        let in_hand = matches!(row.state, State::Processing { .. });
                        if in_hand && invariants::is_own(row.token, name) {
                            world.broke(Promise::NobodyWaitsForHimself);
                        }
                        Then::Wait
                    }
                }
            }
            (Decision::Reconcile | Decision::Vacant, Some(row))
                if self.configuration.mode == Mode::Sync && row.token == name =>
            {
                Then::GiveBack { epoch: row.epoch }
            }
            (decision, row) => self.looked(world, payload, decision, row.as_ref()),
        }
    }

    /// Returns the answer for a request that did not acquire the command.
    pub(crate) fn looked(
        &self,
        world: &mut World,
        payload: u8,
        decision: Decision,
        row: Option<&Row>,
    ) -> Then {
        if let (Decision::Wait | Decision::Replay | Decision::Reconcile, Some(row)) = (decision, row) {
            invariants::was_told_about(world, payload, row);
        }
        let non_terminal = row.copied().filter(|_| self.variant == Some(Variant::MemoryOfUnsettled));
        match (decision, row.and_then(|row| row.answer)) {
            (Decision::Replay, Some(answer)) => Then::Tell(Told::Replay(answer), row.copied()),
            (Decision::Wait, _) => Then::Tell(Told::InProgress, non_terminal),
            (Decision::Reconcile, _) => Then::Tell(Told::Unknown, non_terminal),
            (Decision::Expired, _) => Then::Tell(Told::Expired, None),
            (Decision::Mismatch, _) => Then::Tell(Told::Mismatch, None),
            (Decision::Duplicate, _) => Then::Tell(Told::Duplicate, None),
            (Decision::Vacant, _) => Then::Tell(Told::Vacant, None),
            (Decision::Refused(Refusal::StoreFenced), _) => Then::Tell(Told::Fenced, None),
            (decision, _) => unreachable!("{decision:?} is no answer to a look"),
        }
    }

    /// Returns the executor's next action after its outcome was stored or refused.
    fn after_word(&self, world: &mut World, index: usize, word: Word, decision: Decision) -> Then {
        let task = world.tasks[index];
        let row = world.row(task.key).copied();
        if decision == Decision::Applied || self.variant == Some(Variant::OwnResultWhenFenced) {
            return match own_answer(word) {
                Some(told) => Then::Tell(told, row.filter(|row| row.state.is_terminal())),
                None => Then::End,
            };
        }
        let Some(payload) = self.configuration.requests.get(index).map(|request| request.payload) else {
            return Then::End;
        };
        let look = Event::Look { fingerprint: fingerprint(payload) };
        let head = row.map(|row| row.head(&self.terms));
        let told = match (transition(head.as_ref(), &look, NOW).decision, row) {
            (Decision::Replay, Some(Row { answer: Some(answer), .. })) => Told::Overruled(answer),
            (Decision::Wait, _) => Told::InProgress,
            (Decision::Expired, _) => Told::Expired,
            _ => Told::Unknown,
        };
        Then::Tell(told, None)
    }

    /// Records the phase as begun. Returns false if the command is no longer this executor's.
    pub(crate) fn begin(&self, world: &mut World, task: &Task) -> bool {
        let Some(row) = &mut world.rows[usize::from(task.key)] else { return false };
        let in_hand = matches!(row.state, State::Processing { lease_until, .. } if lease_until > NOW);
        let is_holder = in_hand && row.fence() == fence(task.epoch, task.token);
        row.begun |= is_holder;
        is_holder
    }
}

/// Returns the real protocol's decision about this record, with this head, in a store with this fence.
fn decide_about(
    fence: Option<&StoreFence>,
    row: Option<&Row>,
    head: Option<&Head>,
    event: &Event,
) -> Transition {
    match row.zip(head) {
        Some((row, head)) => row.as_record(*head, |record| decide(fence, record, event, NOW)),
        None => decide(fence, None, event, NOW),
    }
}

fn execute(row: &Row) -> Then {
    Then::Execute { epoch: row.epoch, op: row.op, claim: row.claim, life: row.life, begun: row.begun }
}

/// Converts an executor's outcome to an event of the protocol.
pub(crate) fn event(word: Word, epoch: u8, name: u8) -> Event {
    let fence = fence(epoch, name);
    match word {
        Word::Complete(_) => Event::Complete { fence },
        Word::Fail(_) => Event::Fail { fence, reason: semel_core::Reason::Answered },
        Word::Release(reason) => Event::Release { fence, reason },
        Word::Requeue(reason) => Event::Requeue { fence, reason, after: TICK },
        Word::Abandon(reason) => Event::Abandon { fence, reason },
    }
}

fn stored(word: Word) -> Option<Answer> {
    match word {
        Word::Complete(answer) | Word::Fail(answer) => Some(answer),
        Word::Release(_) | Word::Requeue(_) | Word::Abandon(_) => None,
    }
}

/// Returns the answer for the executor's client if the store took the outcome.
pub(crate) fn own_answer(word: Word) -> Option<Told> {
    match word {
        Word::Complete(answer) | Word::Fail(answer) => Some(Told::Own(answer)),
        Word::Release(_) => Some(Told::NothingRan),
        Word::Abandon(_) => Some(Told::Unknown),
        Word::Requeue(_) => None,
    }
}

fn write_reference(world: &mut World, write: ReferenceWrite, before: Option<Row>, after: Option<Row>) {
    let op = after.or(before).map(|row| row.op);
    let own = world.reference.as_mut().filter(|holder| Some(holder.op) == op);
    match (write, op, own) {
        (ReferenceWrite::Take, Some(op), _) => world.reference = Some(Holder { op, given_back: false }),
        (ReferenceWrite::GiveBack, _, Some(holder)) => holder.given_back = true,
        (ReferenceWrite::TakeBack, _, Some(holder)) => holder.given_back = false,
        (
            ReferenceWrite::Keep | ReferenceWrite::Take | ReferenceWrite::GiveBack | ReferenceWrite::TakeBack,
            _,
            _,
        ) => {}
    }
    let gone = before.map(|row| row.op).filter(|op| after.map(|row| row.op) != Some(*op));
    if world.reference.is_some_and(|holder| holder.given_back && Some(holder.op) == gone) {
        world.reference = None;
    }
}
