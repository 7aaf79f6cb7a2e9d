//! Possible steps, and their effects on the world. The order of writes is that of `crates/flow`.

use std::time::Duration;

use semel_core::transition::{PhaseVerdict, Proof, Recorded, Verdict};
use semel_core::{AttemptToken, Decision, Event, Reason, State, Timestamp};

use super::{
    Call, KEYS, Kind, Message, NOW, Parts, PartsVariant, RESUMABLE, Row, Run, Seen, World, is_unknown,
};

/// One step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartsStep {
    /// A request with this key arrives and runs the command that it acquires.
    Send(u8),
    /// A completer starts a waiting command.
    Resume(u8),
    /// The executor of this key takes its next action.
    Go(u8),
    /// The executor's call is declined for good.
    Decline(u8),
    /// The executor stops for now: an item failed, or a phase is to run later.
    Later(u8),
    /// The executor dies.
    Die(u8),
    /// The executor does not know the outcome of its call.
    Unsure(u8),
    /// A lease or the time to resume expires.
    Age(u8),
    /// An expired record is forgotten.
    Reap(u8),
    /// A message is delivered, and settles a deferred command.
    Deliver(u8),
    /// A message dies.
    GiveUp(u8),
    /// An operator retries a dead message.
    Retry(u8),
    /// An operator looks up the effect.
    Look(u8),
    /// An operator gives the verdict at this index of `World::seen`.
    Say(usize),
    /// An operator frees the key of a record.
    Free(u8),
}

impl Parts {
    pub(super) fn possible(&self, world: &World, steps: &mut Vec<PartsStep>) {
        for key in 0..KEYS as u8 {
            let (row, run) = (world.rows[usize::from(key)], world.runs[usize::from(key)]);
            if world.attempts < 4 {
                steps.push(PartsStep::Send(key));
            }
            if run.is_some() {
                steps.extend([PartsStep::Go(key), PartsStep::Decline(key), PartsStep::Later(key)]);
                steps.push(PartsStep::Unsure(key));
                if world.deaths > 0 {
                    steps.push(PartsStep::Die(key));
                }
            }
            let Some(row) = row else { continue };
            if matches!(row.head.state, State::Claimed { .. }) && world.attempts < 4 {
                steps.push(PartsStep::Resume(key));
            }
            if run.is_none() {
                steps.extend([PartsStep::Age(key), PartsStep::Reap(key), PartsStep::Free(key)]);
            }
            match row.message {
                Message::Pending => {
                    steps.push(PartsStep::Deliver(key));
                    if world.deaths > 0 {
                        steps.push(PartsStep::GiveUp(key));
                    }
                }
                Message::Dead => steps.push(PartsStep::Retry(key)),
                Message::None | Message::Delivered => {}
            }
            if is_unknown(&row) && run.is_none() && world.looks > 0 && world.seen.contains(&None) {
                steps.push(PartsStep::Look(key));
            }
        }
        let kept = world.seen.iter().enumerate().filter(|(_, seen)| seen.is_some());
        steps.extend(kept.map(|(place, _)| PartsStep::Say(place)));
    }

    pub(super) fn take(&self, world: &mut World, step: PartsStep) {
        match step {
            PartsStep::Send(key) => self.send(world, key),
            PartsStep::Resume(key) => self.resume(world, key),
            PartsStep::Go(key) => self.go(world, key),
            PartsStep::Decline(key) => self.decline(world, key),
            PartsStep::Later(key) => self.later(world, key),
            PartsStep::Die(key) => {
                world.deaths -= 1;
                world.runs[usize::from(key)] = None;
            }
            PartsStep::Unsure(key) => self.unsure(world, key),
            PartsStep::Age(key) => {
                let due = world.rows[usize::from(key)].and_then(|row| row.head.state.due_to_sweep());
                if let Some(due) = due {
                    self.change(world, key, &Event::Age, due);
                }
            }
            PartsStep::Reap(key) => self.reap(world, key),
            PartsStep::Deliver(key) => self.deliver(world, key),
            PartsStep::GiveUp(key) => self.give_up(world, key),
            PartsStep::Retry(key) => self.retry(world, key),
            PartsStep::Look(key) => look(world, key),
            PartsStep::Say(place) => self.say(world, place),
            PartsStep::Free(key) => {
                self.change(world, key, &Event::Free, NOW);
            }
        }
    }

    fn send(&self, world: &mut World, key: u8) {
        if self.claim(world, key) != Decision::Execute {
            return;
        }
        let Some(row) = &mut world.rows[usize::from(key)] else { return };
        if self.kind == Kind::Deferred {
            // The claim, the work, the message and the deferral are one transaction.
            world.parts[0] += 1;
            row.done[0] = true;
            let sent_before = row.message == Message::Delivered;
            row.message = if sent_before { Message::Delivered } else { Message::Pending };
            let defer = Event::Defer { fence: row.head.fence(), time: Duration::from_secs(3600) };
            self.change(world, key, &defer, NOW);
            return;
        }
        if self.kind == Kind::Bulk && !self.is(PartsVariant::AnnouncesNothing) {
            self.change(world, key, &Event::Advance, NOW);
        }
        begin(world, key);
    }

    fn resume(&self, world: &mut World, key: u8) {
        let Some(row) = world.rows[usize::from(key)].filter(|row| row.input) else { return };
        world.attempts += 1;
        let token = AttemptToken::from_bytes([world.attempts; 16]);
        let start = Event::Start { fence: row.head.fence(), token };
        if self.change(world, key, &start, NOW) == Decision::Execute {
            begin(world, key);
        }
    }

    /// Returns the line of a tick: the tasks that slept past a deadline, and the quarantine if it is over.
    fn go(&self, world: &mut World, key: u8) {
        let at = usize::from(key);
        let (Some(run), Some(row)) = (world.runs[at], world.rows[at]) else { return };
        if !holds(&row, &run) {
            world.runs[at] = None;
            return;
        }
        let next = usize::from(run.next);
        if next == self.kind.parts() {
            self.change(world, key, &Event::Complete { fence: run.fence }, NOW);
            world.runs[at] = None;
        } else if row.done[next] {
            world.runs[at] = Some(Run { next: run.next + 1, ..run });
        } else if self.kind == Kind::Phased && next == 1 {
            self.call(world, key, &row, run);
        } else {
            self.commit(world, key, next);
            if self.kind == Kind::Phased && next == 0 {
                update(world, key, |row| row.message = Message::Pending);
            }
            world.runs[at] = Some(Run { next: run.next + 1, ..run });
        }
    }

    /// Commits a part together with its record.
    fn commit(&self, world: &mut World, key: u8, part: usize) {
        world.parts[part] += 1;
        update(world, key, |row| row.done[part] = true);
        if self.kind == Kind::Phased {
            self.change(world, key, &Event::Advance, NOW);
        }
    }

    /// Makes the call of the second phase: recorded as begun, then sent, then recorded as done.
    fn call(&self, world: &mut World, key: u8, row: &Row, run: Run) {
        let at = usize::from(key);
        if run.calling && row.call == Call::Landed {
            update(world, key, |row| row.done[1] = true);
            self.change(world, key, &Event::Advance, NOW);
            world.runs[at] = Some(Run { next: 2, calling: false, ..run });
        } else if run.calling {
            world.parts[1] += 1;
            update(world, key, |row| row.call = Call::Landed);
        } else if row.begun {
            // The outcome is unknown, and the provider does not deduplicate.
            self.unsure(world, key);
        } else {
            update(world, key, |row| (row.begun, row.call) = (true, Call::None));
            world.runs[at] = Some(Run { calling: true, ..run });
        }
    }

    fn decline(&self, world: &mut World, key: u8) {
        let (Some(run), Some(row)) = (world.runs[usize::from(key)], world.rows[usize::from(key)]) else {
            return;
        };
        let declinable = self.kind == Kind::Phased && run.calling && row.call == Call::None;
        if declinable && holds(&row, &run) {
            let fail = Event::Fail { fence: run.fence, reason: Reason::Answered };
            self.change(world, key, &fail, NOW);
            world.runs[usize::from(key)] = None;
        }
    }

    fn later(&self, world: &mut World, key: u8) {
        let at = usize::from(key);
        let (Some(run), Some(row)) = (world.runs[at], world.rows[at]) else { return };
        if run.calling || !holds(&row, &run) {
            return;
        }
        let any = row.done.contains(&true);
        let event = match self.kind {
            Kind::Phased if any => {
                Event::Requeue { fence: run.fence, reason: Reason::NotExecuted, after: Duration::ZERO }
            }
            Kind::Bulk if any && !self.is(PartsVariant::PartsAreNothing) => {
                Event::Release { fence: run.fence, reason: Reason::PartlyDone }
            }
            Kind::Phased | Kind::Bulk | Kind::Deferred => {
                Event::Release { fence: run.fence, reason: Reason::NotExecuted }
            }
        };
        self.change(world, key, &event, NOW);
        world.runs[at] = None;
    }

    fn unsure(&self, world: &mut World, key: u8) {
        let at = usize::from(key);
        let Some(run) = world.runs[at].take() else { return };
        self.change(world, key, &Event::Abandon { fence: run.fence, reason: Reason::HandlerUnsure }, NOW);
    }

    fn reap(&self, world: &mut World, key: u8) {
        let Some(row) = world.rows[usize::from(key)] else { return };
        let State::FailedRetryable { expires_at } = row.head.state else { return };
        if expires_at != Timestamp::MAX {
            self.change(world, key, &Event::Age, expires_at);
        }
    }

    fn deliver(&self, world: &mut World, key: u8) {
        let Some(row) = world.rows[usize::from(key)] else { return };
        update(world, key, |row| row.message = Message::Delivered);
        if self.kind == Kind::Deferred {
            world.parts[1] += 1;
            if row.head.is_left_to_a_message() {
                self.change(world, key, &Event::Complete { fence: row.head.fence() }, NOW);
            }
        }
    }

    fn give_up(&self, world: &mut World, key: u8) {
        let Some(row) = world.rows[usize::from(key)] else { return };
        world.deaths -= 1;
        update(world, key, |row| row.message = Message::Dead);
        if let Some(event) = semel_core::outbox::given_up(&row.head) {
            self.change(world, key, &event, NOW);
        }
    }

    fn retry(&self, world: &mut World, key: u8) {
        let Some(row) = world.rows[usize::from(key)] else { return };
        update(world, key, |row| row.message = Message::Pending);
        if let Some(event) = semel_core::outbox::sent_after_all(&row.head) {
            self.change(world, key, &event, NOW);
        }
    }

    /// Gives the verdict of an operator, which may be outdated.
    fn say(&self, world: &mut World, place: usize) {
        let Some(seen) = world.seen[place].take() else { return };
        let Some(row) = world.rows[usize::from(seen.key)] else { return };
        let on_whole = self.kind != Kind::Phased || self.is(PartsVariant::VerdictOnWhole);
        let decision =
            if on_whole { self.say_of_whole(world, &seen) } else { self.say_of_call(world, &seen, &row) };
        if decision != Decision::Applied {
            return;
        }
        let not_executed = matches!(seen.verdict, PhaseVerdict::NotExecuted(_));
        update(world, seen.key, |row| match seen.verdict {
            PhaseVerdict::Executed if !on_whole => row.done[1] = true,
            PhaseVerdict::NotExecuted(_) => (row.begun, row.call) = (false, Call::None),
            PhaseVerdict::Executed | PhaseVerdict::NothingOpen => {}
        });
        if self.is(PartsVariant::EndsMessages) || (self.is(PartsVariant::VerdictOnWhole) && not_executed) {
            end_message(world, seen.key);
        }
    }

    fn say_of_call(&self, world: &mut World, seen: &Seen, row: &Row) -> Decision {
        let open = row.begun && !row.done[1];
        let fits = open == (seen.verdict != PhaseVerdict::NothingOpen);
        let epoch = if self.is(PartsVariant::AnyAttempt) { row.head.epoch } else { seen.epoch };
        let recorded = Recorded { fits, has_input: row.input };
        let (verdict, within) = (seen.verdict, RESUMABLE);
        let event = Event::ResolvePhase { epoch, verdict, seen: None, within, recorded };
        self.change(world, seen.key, &event, NOW)
    }

    fn say_of_whole(&self, world: &mut World, seen: &Seen) -> Decision {
        let verdict = match seen.verdict {
            PhaseVerdict::Executed => Verdict::Succeeded,
            PhaseVerdict::NotExecuted(proof) => Verdict::NotExecuted(proof),
            PhaseVerdict::NothingOpen => Verdict::NotExecuted(Proof::ProviderTombstone),
        };
        self.change(world, seen.key, &Event::resolve(verdict), NOW)
    }
}

/// Looks up the effect for an operator. No call is on its way: the executor is gone.
fn look(world: &mut World, key: u8) {
    let Some(row) = world.rows[usize::from(key)] else { return };
    world.looks -= 1;
    let open = row.begun && !row.done[1];
    let whole = world.parts[..2].iter().all(|times| *times > 0);
    let verdict = match (open, row.call) {
        (true, Call::Landed) => PhaseVerdict::Executed,
        (true, Call::None) => PhaseVerdict::NotExecuted(Proof::ProviderTombstone),
        // An operator sees only the whole of a deferred command or a bulk request.
        (false, _) if whole && !row.head.is_phased() => PhaseVerdict::Executed,
        (false, _) if !row.head.is_phased() => PhaseVerdict::NotExecuted(Proof::ProviderTombstone),
        (false, _) => PhaseVerdict::NothingOpen,
    };
    if let Some(place) = world.seen.iter_mut().find(|seen| seen.is_none()) {
        *place = Some(Seen { key, epoch: row.head.epoch, verdict });
    }
}

/// Starts an executor on the key's record.
fn begin(world: &mut World, key: u8) {
    let at = usize::from(key);
    let fence = world.rows[at].map(|row| row.head.fence());
    world.runs[at] = fence.map(|fence| Run { fence, next: 0, calling: false });
}

/// Returns true if the record accepts a write of this executor.
fn holds(row: &Row, run: &Run) -> bool {
    row.head.fence() == run.fence && matches!(row.head.state, State::Processing { .. })
}

fn update(world: &mut World, key: u8, change: impl FnOnce(&mut Row)) {
    if let Some(row) = &mut world.rows[usize::from(key)] {
        change(row);
    }
}

fn end_message(world: &mut World, key: u8) {
    if let Some(row) = &mut world.rows[usize::from(key)]
        && matches!(row.message, Message::Pending | Message::Dead)
    {
        row.message = Message::None;
        world.lost_message = true;
    }
}
