//! Definitions of the promises, written independently of `semel_core::transition`.
//!
//! Most promises are properties of one state. `watch` sees every write of the store and `told` every answer to a
//! client; they record promises that a step breaks in the world's books.

use semel_core::reconcile::{Bearing, bearing_on};
use semel_core::transition::{Proof, Verdict};
use semel_core::{About, Event, Reason, State};
use stateright::Property;

use crate::configuration::{NOW, ticks};
use crate::promises::Promise;
use crate::protocol::Protocol;
use crate::restore;
use crate::world::{
    Answer, FRESH, Finding, Phase, Reconciler, Row, Says, Statement, Task, Then, Token, Told, Word, World,
};

impl Promise {
    /// Returns the promise as a property of every state.
    pub(crate) fn property(self) -> Property<Protocol> {
        let holds: Holds = match self {
            Promise::OneEffect => |model, world| {
                model.configuration.may_repeat()
                    || every_life(world, |world, key, life| world.effects_of(key, life).count() <= 1)
            },
            Promise::SuccessNamesEffect => |model, world| {
                model.configuration.may_repeat()
                    || (0_u8..)
                        .zip(&world.rows)
                        .all(|(key, row)| row.is_none_or(|row| names_its_effect(world, key, &row)))
            },
            Promise::EqualAnswers => |_, world| kept(world, Promise::EqualAnswers),
            Promise::OtherPayload => |_, world| kept(world, Promise::OtherPayload),
            Promise::EvidenceEndsUnknown => {
                |model, world| model.configuration.operator_errs || kept(world, Promise::EvidenceEndsUnknown)
            }
            Promise::SettledStays => |_, world| kept(world, Promise::SettledStays),
            Promise::HoldersWord => |_, world| kept(world, Promise::HoldersWord),
            Promise::ClaimBeforeEffect => |_, world| kept(world, Promise::ClaimBeforeEffect),
            Promise::NothingRan => |_, world| {
                let has_effect = |token| world.effects.iter().any(|effect| is_own(effect.claim, token));
                !world.tasks.iter().any(|task| task.told_nothing_ran && has_effect(task.token))
            },
            Promise::FinalStays => |_, world| kept(world, Promise::FinalStays),
            Promise::NothingStaysInHand => {
                |model, world| world.rows.iter().flatten().all(|row| model.sweeper_ends(row))
            }
            Promise::NothingForgottenEarly => |_, world| kept(world, Promise::NothingForgottenEarly),
            Promise::OneEffectPerReference => {
                |model, world| !model.configuration.reference || world.effects.len() <= 1
            }
            Promise::NobodyWaitsForHimself => |_, world| kept(world, Promise::NobodyWaitsForHimself),
            Promise::HeardIsNotRun => |_, world| kept(world, Promise::HeardIsNotRun),
            Promise::SecondEffectIsLoud => |_, world| kept(world, Promise::SecondEffectIsLoud),
            Promise::LostIsNotRun => |_, world| kept(world, Promise::LostIsNotRun),
        };
        Property::always(self.name(), holds)
    }
}

fn kept(world: &World, promise: Promise) -> bool {
    world.books.broken & promise.bit() == 0
}

fn every_life(world: &World, holds: fn(&World, u8, u8) -> bool) -> bool {
    world.effects.iter().all(|effect| holds(world, effect.key, effect.life))
}

fn names_its_effect(world: &World, key: u8, row: &Row) -> bool {
    let mut effects = world.effects_of(key, row.life);
    match row.state {
        State::Succeeded { .. } => {
            match (effects.next(), effects.next(), row.answer.map(|answer| answer.says)) {
                (Some(effect), None, Some(Says::Charged(named))) => effect.by == named,
                _ => false,
            }
        }
        State::FailedFinal { .. } => effects.next().is_none(),
        State::Claimed { .. }
        | State::Processing { .. }
        | State::FailedRetryable { .. }
        | State::Unknown { .. }
        | State::Expired { .. } => true,
    }
}

/// Returns the bit of an attempt.
pub(crate) fn bit(token: Token) -> u32 {
    1 << token
}

/// Returns true if two tokens belong to one attempt. They differ only if a variant drew a second token.
pub(crate) fn is_own(one: Token, other: Token) -> bool {
    one % FRESH == other % FRESH
}

/// Predicate on a world.
pub(crate) type Holds = fn(&Protocol, &World) -> bool;

/// Situations that the model must reach, as proof that it tries what it is about.
pub const SIGHTS: [(&str, Holds); 20] = [
    ("a success", |_, world| tells(world, |told| matches!(told, Told::Own(_)))),
    ("a replay", |_, world| tells(world, |told| matches!(told, Told::Replay(_)))),
    ("a replay from memory", |_, world| world.memory.iter().flatten().any(Option::is_some)),
    ("a stable failure", |_, world| rows(world, |row| matches!(row.state, State::FailedFinal { .. }))),
    ("a duplicate that waits", |_, world| world.tasks.iter().any(|task| task.phase == Phase::Waiting)),
    ("another payload", |_, world| tells(world, |told| told == Told::Mismatch)),
    ("another key with the same business reference", |_, world| tells(world, |told| told == Told::Duplicate)),
    ("an unknown outcome that took place", |_, world| {
        rows(world, |row| row.reason == Reason::VerdictExecuted)
    }),
    ("an unknown outcome that did not take place", |_, world| {
        rows(world, |row| row.reason == Reason::VerdictNotExecuted)
    }),
    ("a success in a second attempt", |_, world| {
        rows(world, |row| row.epoch > 1 && matches!(row.state, State::Succeeded { .. }))
    }),
    ("an executor that is overruled", |_, world| tells(world, |told| matches!(told, Told::Overruled(_)))),
    ("an executor whose word is late", |_, world| {
        world.tasks.iter().any(|task| {
            matches!(task.phase, Phase::Asking(Statement::Word(Word::Complete(_))))
                && world
                    .row(task.key)
                    .is_some_and(|row| row.token == task.token && matches!(row.state, State::Unknown { .. }))
        })
    }),
    ("a dead letter", |_, world| rows(world, |row| semel_core::reconcile::is_dead_letter(&row.state))),
    ("a client that is told that nothing ran", |_, world| {
        world.tasks.iter().any(|task| task.told_nothing_ran)
    }),
    ("a key that is used a second time", |_, world| rows(world, |row| row.life > 0)),
    ("a look that finds nothing while a call is on its way", |_, world| {
        matches!(world.reconciler, Reconciler::Looked(held, Finding::NoRecord)
            if world.calls.iter().any(|call| call.op == held.op))
    }),
    ("a retry of a command that a restored store has forgotten", |_, world| {
        world.rows.iter().zip(world.books.lost).any(|(row, lost)| lost && row.is_none())
            && world.tasks.iter().any(|task| matches!(task.phase, Phase::Asking(Statement::Claim)))
    }),
    ("an executor whose attempt a restored store has forgotten", |_, world| {
        let is_forgotten = |task: &Task| world.row(task.key).is_none_or(|row| row.token != task.token);
        let calls = |task: &Task| matches!(task.phase, Phase::Called { .. }) && is_forgotten(task);
        world.past.is_fenced() && world.tasks.iter().any(calls)
    }),
    ("evidence of an attempt that a restored store has forgotten", |_, world| {
        let names_another = |row: &Row| match row.answer.map(|answer| answer.says) {
            Some(Says::Charged(by)) => by != row.token && row.reason == Reason::VerdictExecuted,
            Some(Says::Declined) | None => false,
        };
        world.past.is_fenced() && rows(world, names_another)
    }),
    ("a command that runs under a fence, after evidence", |_, world| {
        world.past.is_fenced() && rows(world, |row| matches!(row.state, State::Processing { .. }))
    }),
];

fn rows(world: &World, is: impl Fn(&Row) -> bool) -> bool {
    world.rows.iter().flatten().any(is)
}

/// Returns true if a client is about to get such an answer.
fn tells(world: &World, is: fn(Told) -> bool) -> bool {
    world.tasks.iter().any(|task| match task.phase {
        Phase::Answered(_, Then::Tell(told, _)) => is(told),
        _ => false,
    })
}

/// Checks a write of the store before it is made.
pub(crate) fn watch(
    model: &Protocol,
    world: &mut World,
    key: u8,
    before: Option<Row>,
    after: Option<Row>,
    event: &Event,
) {
    if before == after {
        return;
    }
    if let Some(row) = before {
        if row.state.is_terminal() && !may_leave_settled(&row, after, event) {
            world.broke(Promise::SettledStays);
        }
        match after.filter(|after| after.op == row.op) {
            None => forget(world, key, &row, event),
            Some(after) if after.epoch < row.epoch || after.epoch > row.epoch + 1 => {
                world.broke(Promise::HoldersWord);
            }
            Some(_) => {}
        }
        if matches!(row.state, State::Unknown { .. }) && !ends_rightly(model, world, key, &row, after, event)
        {
            world.broke(Promise::EvidenceEndsUnknown);
        }
        if fence_of(event).is_some_and(|fence| fence != row.fence()) {
            world.broke(Promise::HoldersWord);
        }
    }
    if let Some(after) = after {
        restore::watch(world, key, before, after, event);
        note_acquired(world, before, &after);
        let settles = after.state.expires_at().is_some();
        if settles && before.is_none_or(|before| before.state.name() != after.state.name()) {
            world.books.settled[usize::from(key)] = 0;
        }
    }
}

/// Returns true if a settled record may change to `after`.
fn may_leave_settled(row: &Row, after: Option<Row>, event: &Event) -> bool {
    let is_over = row.state.expires_at().is_some_and(|end| end <= NOW);
    match after {
        Some(after) if after.op == row.op => {
            matches!(after.state, State::Expired { .. }) && (is_over || matches!(event, Event::Purge))
        }
        Some(_) | None => is_over,
    }
}

/// Checks that a record is forgotten in time. An expired record's key begins another life.
fn forget(world: &mut World, key: u8, row: &Row, event: &Event) {
    let at = usize::from(key);
    let is_over = row.state.expires_at().is_some_and(|end| end <= NOW);
    // An operator frees a key of which nothing has run: that permits no second effect.
    let had_its_time = row.state.expires_at().is_some() && is_over;
    let in_time = match row.state {
        State::Succeeded { .. } | State::FailedFinal { .. } => {
            is_over && world.books.settled[at] >= ticks::TTL
        }
        State::Expired { .. } => is_over,
        State::FailedRetryable { .. } => is_over || matches!(event, Event::Free),
        State::Claimed { .. } => matches!(event, Event::Free),
        State::Processing { .. } | State::Unknown { .. } => false,
    };
    if !in_time {
        world.broke(Promise::NothingForgottenEarly);
    }
    world.books.settled[at] = 0;
    if had_its_time {
        world.books.life[at] += 1;
        // Effects and answers of a past life no longer count.
        world.effects.retain(|effect| effect.key != key);
        world.declined.retain(|op| *op != row.op);
        world.books.answered[at] = None;
        for task in world.tasks.iter_mut().filter(|task| task.key == key) {
            task.after_final = false;
        }
    }
}

/// Returns true if an unknown outcome may end like this: by its executor's outcome, or by true evidence that no call
/// can overtake.
fn ends_rightly(
    model: &Protocol,
    world: &World,
    key: u8,
    row: &Row,
    after: Option<Row>,
    event: &Event,
) -> bool {
    let Some(after) = after.filter(|after| !matches!(after.state, State::Unknown { .. })) else {
        return after.is_some_and(|after| after.fence() == row.fence());
    };
    let says = after.answer.map(|answer| answer.says);
    match *event {
        Event::Complete { .. } | Event::Fail { .. } | Event::Release { .. } | Event::Requeue { .. } => {
            fence_of(event) == Some(row.fence())
        }
        Event::Resolve { verdict: Verdict::Succeeded, .. } => {
            world.effects_of(key, row.life).any(|effect| says == Some(Says::Charged(effect.by)))
        }
        Event::Resolve { verdict: Verdict::FailedFinal, .. } => world.declined.contains(&row.op),
        Event::Resolve { verdict: Verdict::NotExecuted(proof), .. } => {
            // A call that lands, before or after, is the one effect that the provider answers every later attempt
            // with; but not one of a command that a restored store has lost, which has another operation id.
            let is_harmless = |op: Token| {
                model.configuration.deduplicates && proof == Proof::ProviderDeduplicates && op == row.op
            };
            let had_effect = world.effects_of(key, row.life).any(|effect| !is_harmless(effect.op));
            !had_effect && !can_still_land(world, key, row.op, is_harmless)
        }
        _ => false,
    }
}

/// Returns true if a call of this command, or of a lost one of the same key, may still have an effect that does harm.
fn can_still_land(world: &World, key: u8, op: Token, is_harmless: impl Fn(Token) -> bool) -> bool {
    let may_send = |phase: &Phase| matches!(phase, Phase::Ready { lease: 1.. } | Phase::Checked { .. });
    let counts =
        |of: u8, its: Token| !is_harmless(its) && (its == op || world.past.is_restored() && of == key);
    world.calls.iter().any(|call| counts(call.key, call.op))
        || world.tasks.iter().any(|task| counts(task.key, task.op) && may_send(&task.phase))
}

fn fence_of(event: &Event) -> Option<semel_core::Fence> {
    match *event {
        Event::Start { fence, .. }
        | Event::Renew { fence }
        | Event::Complete { fence }
        | Event::Fail { fence, .. }
        | Event::Release { fence, .. }
        | Event::Requeue { fence, .. }
        | Event::Defer { fence, .. }
        | Event::Abandon { fence, .. } => Some(fence),
        Event::Claim(_)
        | Event::Look { .. }
        | Event::Advance
        | Event::Age
        | Event::Resolve { .. }
        | Event::ResolvePhase { .. }
        | Event::Postpone { .. }
        | Event::Doubt
        | Event::Free
        | Event::Purge => None,
    }
}

/// Returns true if evidence of an effect of this command has arrived.
fn heard_about(world: &World, op: Token) -> bool {
    let has_row = |row: &Option<Row>| row.is_some_and(|row| row.op == op);
    world.rows.iter().zip(world.books.heard).any(|(row, heard)| heard && has_row(row))
}

/// Records that evidence of an effect by this attempt was offered to the store.
pub(crate) fn heard(model: &Protocol, world: &mut World, key: u8, by: Token, about: About) {
    let Some(row) = world.row(key).copied() else { return };
    if !matches!(row.state, State::Claimed { .. } | State::Processing { .. }) {
        world.books.heard[usize::from(key)] = true;
    }
    let head = row.head(&model.terms);
    let bearing = bearing_on(&head, None, Verdict::Succeeded, about, model.configuration.deduplicates);
    let is_earlier = row.token != by && row.epoch > 1 && row.state.is_terminal();
    if is_earlier
        && !row.earlier_may_have_run
        && !model.configuration.deduplicates
        && bearing != Bearing::Contradicts
    {
        world.broke(Promise::SecondEffectIsLoud);
    }
}

fn note_acquired(world: &mut World, before: Option<Row>, after: &Row) {
    let is_new = before.is_none_or(|before| before.op != after.op || before.fence() != after.fence());
    if is_new && matches!(after.state, State::Processing { .. }) {
        world.books.acquired |= bit(after.token);
        let is_same = before.is_some_and(|before| before.op == after.op);
        if is_same && heard_about(world, after.op) {
            world.broke(Promise::HeardIsNotRun);
        }
        let is_risen = match before.filter(|before| before.op == after.op) {
            // A worker starts a command under the epoch of the claim.
            Some(before) if matches!(before.state, State::Claimed { .. }) => after.epoch == before.epoch,
            Some(before) => after.epoch == before.epoch + 1,
            None => after.epoch == 1,
        };
        if !is_risen {
            world.broke(Promise::HoldersWord);
        }
    }
}

/// Checks that a request learns of a record only if it has the record's payload.
pub(crate) fn was_told_about(world: &mut World, payload: u8, row: &Row) {
    if row.payload != payload {
        world.broke(Promise::OtherPayload);
    }
}

/// Checks an answer to a client and records it in the books.
pub(crate) fn told(model: &Protocol, world: &mut World, index: usize, told: Told) {
    let task = world.tasks[index];
    match told {
        Told::Own(answer) | Told::Replay(answer) | Told::Overruled(answer) => {
            let payload = model.configuration.requests[index].payload;
            told_final(world, index, payload, answer);
        }
        Told::InProgress | Told::Unknown | Told::Vacant if task.after_final => {
            // The outcome of a command that the store has lost is unknown.
            if !world.books.reworded[usize::from(task.key)] {
                world.broke(Promise::FinalStays);
            }
        }
        Told::NothingRan => world.tasks[index].told_nothing_ran = true,
        Told::InProgress
        | Told::Unknown
        | Told::Vacant
        | Told::Mismatch
        | Told::Expired
        | Told::Accepted
        | Told::Duplicate
        | Told::Fenced => {}
    }
}

fn told_final(world: &mut World, index: usize, payload: u8, answer: Answer) {
    let task = world.tasks[index];
    let at = usize::from(task.key);
    if answer.payload != payload {
        world.broke(Promise::OtherPayload);
    }
    if answer.life < task.sent_in {
        world.broke(Promise::EqualAnswers);
    }
    if answer.life == world.books.life[at] {
        match world.books.answered[at] {
            // Evidence says the same as a lost answer, in words of its own.
            Some(first) if world.books.reworded[at] && first.says == answer.says => {}
            Some(first) if first != answer => world.broke(Promise::EqualAnswers),
            Some(_) => {}
            None => world.books.answered[at] = Some(answer),
        }
    }
}

/// Checks that a task may begin to execute.
pub(crate) fn executes(world: &mut World, index: usize) {
    if world.tasks[index].after_final {
        world.broke(Promise::FinalStays);
    }
}
