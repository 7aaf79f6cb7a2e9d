//! Effects of the steps of the model on a world.

use semel_core::reconcile::{LookUpAnswer, LookedNext, after_look};
use semel_core::record::StoredResult;
use semel_core::response::{RESPONSE_FORMAT, StoredResponse};
use semel_core::state::SettledBy;
use semel_core::transition::{Proof, Verdict};
use semel_core::{About, Decision, Event, Reason, State, Timestamp, transition};

use crate::configuration::{LOOKS, Mode, NOW, after, ticks};
use crate::invariants;
use crate::model::{Despite, Step};
use crate::promises::Promise;
use crate::protocol::Protocol;
use crate::store::own_answer;
use crate::variants::Variant;
use crate::world::{
    Answer, Call, Effect, FRESH, Finding, Held, KEYS, NODES, Phase, REQUESTS, Reconciler, Remembered, Says,
    Statement, Stray, Task, Then, Token, Told, Word, World, fence, fingerprint,
};

impl Protocol {
    pub(crate) fn take_step(&self, world: &mut World, step: Step) {
        match step {
            Step::Tick => {
                world.age_store();
                let looked = world.reconciler;
                world.age_nodes();
                if self.configuration.sleepy_reconciler {
                    world.reconciler = looked;
                }
                if !self.is(Variant::MemoryOutlivesPurge) {
                    world.memory = [[None; KEYS]; NODES];
                }
            }
            Step::Leap => {
                world.faults.leaps -= 1;
                world.age_store();
            }
            Step::Send(index, node) => self.send(world, index, node),
            Step::Start(node, key) => self.start(world, node, key),
            Step::Take(index) => {
                let task = world.tasks[index];
                if let Phase::Asking(statement) = task.phase {
                    let then = self.take(world, index, statement, task.token, task.epoch);
                    world.tasks[index].phase = Phase::Answered(statement, then);
                    if !self.configuration.slow_answers {
                        self.hear(world, index);
                    }
                }
            }
            Step::Hear(index) => self.hear(world, index),
            Step::LoseStatement(index, despite) => {
                let task = world.tasks[index];
                if let Phase::Asking(statement) = task.phase {
                    let Task { token, epoch, .. } = task;
                    let stray = Stray { task: index as u8, token, epoch, statement, left: ticks::STRAY };
                    world.strays.push(stray);
                    self.lost(world, index, statement, despite);
                }
            }
            Step::LoseAnswer(index, despite) => {
                let task = world.tasks[index];
                let statement = match task.phase {
                    Phase::Answered(statement, _) => statement,
                    Phase::Asking(statement) => {
                        let _ = self.take(world, index, statement, task.token, task.epoch);
                        statement
                    }
                    _ => return,
                };
                self.lost(world, index, statement, despite);
            }
            Step::Stray(place) => {
                let stray = world.strays.remove(place);
                let _ = self.take(world, usize::from(stray.task), stray.statement, stray.token, stray.epoch);
            }
            Step::Look(index) => self.look(world, index),
            Step::Leave(index) => self.leave(world, index),
            Step::Renew(index) => self.renew(world, index, true),
            Step::RenewUnheard(index) => {
                world.faults.losses -= 1;
                self.renew(world, index, false);
            }
            Step::Check(index) => self.check(world, index),
            Step::Call(index) => {
                let Task { key, op, claim, life, token: by, .. } = world.tasks[index];
                let acquired = world.books.acquired & invariants::bit(by) != 0;
                world.calls.push(Call { key, op, life, by, claim, acquired, left: ticks::TIMEOUT });
                world.tasks[index].phase = Phase::Called { reply: None };
            }
            Step::Refused(index) => self.unexecuted(world, index, Reason::NotExecuted),
            Step::Charge(place) => self.charge(world, place),
            Step::Decline(place) => self.decline(world, place),
            Step::Reply(index) => self.reply(world, index),
            Step::GiveUp(index) => {
                if self.is(Variant::ErrorMeansNotExecuted) {
                    self.unexecuted(world, index, Reason::NotExecuted);
                } else {
                    say(world, index, Word::Abandon(Reason::TimedOut));
                }
            }
            Step::Offer(index) => {
                let task = world.tasks[index];
                if let Phase::Offering(word) = task.phase {
                    let _ = self.take(world, index, Statement::Word(word), task.token, task.epoch);
                    end(world, index);
                }
            }
            Step::TakeBack(index) => self.take_back(world, index),
            Step::Sweep(key) | Step::Reap(key) => {
                let _ = self.change(world, key, &Event::Age, None);
            }
            Step::LookUp(key) => {
                if let Some(held) = self.hold(world, key)
                    && let Some(row) = world.row(key)
                {
                    world.reconciler = Reconciler::Looked(held, self.find(world, key, row));
                }
            }
            Step::LookInVain(key) => {
                if let Some(held) = self.hold(world, key) {
                    world.faults.silences -= 1;
                    world.reconciler = Reconciler::Looked(held, Finding::Silence);
                }
            }
            Step::Conclude => {
                if let Reconciler::Looked(held, finding) = world.reconciler {
                    world.reconciler = Reconciler::Idle;
                    self.conclude(world, held, finding);
                }
            }
            Step::Webhook(key) => {
                let found = world.row(key).map(|row| world.find(row.op));
                if let Some(finding @ Finding::Charged(by)) = found {
                    let about = self.about(world, key, by);
                    self.resolve(world, key, finding, Verdict::Succeeded, None, about);
                    invariants::heard(self, world, key, by, about);
                }
            }
            Step::SayExecuted(key) => {
                let found = world.row(key).map(|row| self.find(world, key, row));
                if let Some(finding @ Finding::Charged(_)) = found
                    && self.resolve(world, key, finding, Verdict::Succeeded, None, About::Command)
                        == Decision::Applied
                {
                    world.operator -= 1;
                }
            }
            Step::SayNotExecuted(key) => {
                let found = world.row(key).map(|row| self.find(world, key, row));
                let errs = self.configuration.operator_errs;
                let proof = if errs { Proof::ProviderTombstone } else { Proof::Quarantine };
                let verdict = Verdict::NotExecuted(proof);
                let found = found.map(|found| if errs { Finding::NoRecord } else { found });
                if let Some(finding @ Finding::NoRecord) = found
                    && self.resolve(world, key, finding, verdict, None, About::Command) == Decision::Applied
                {
                    world.operator -= 1;
                }
            }
            Step::Purge(key) => self.operate(world, key, &Event::Purge),
            Step::Free(key) => self.operate(world, key, &Event::Free),
            Step::Crash(node) => self.crash(world, node),
            Step::BackUp => Protocol::back_up(world),
            Step::Restore => self.restore(world),
            Step::Lift => self.lift(world),
        }
    }

    /// Delivers a request to a node.
    fn send(&self, world: &mut World, index: usize, node: u8) {
        let at = usize::from(world.tasks[index].key);
        world.tasks[index].node = node;
        world.tasks[index].after_final = world.books.answered[at].is_some();
        world.tasks[index].sent_in = world.books.life[at];
        if self.is(Variant::ReferenceOutsideClaim) {
            world.tasks[index].reference_was_free = world.reference.is_none_or(|holder| holder.given_back);
        }
        let payload = self.configuration.requests[index].payload;
        if let Some(remembered) = world.memory[usize::from(node)][at]
            && let Some(told) = self.remember(&remembered, payload)
        {
            self.tell(world, index, told);
            return;
        }
        world.tasks[index].phase = Phase::Asking(Statement::Claim);
    }

    /// Returns the answer from a node's memory, if memory may answer.
    fn remember(&self, remembered: &Remembered, payload: u8) -> Option<Told> {
        let row = remembered.row;
        let look = Event::Look { fingerprint: fingerprint(payload) };
        let now = NOW.plus(after(remembered.age));
        let decision = transition(Some(&row.head(&self.terms)), &look, now).decision;
        match (decision, row.answer) {
            (Decision::Replay, Some(answer)) => Some(Told::Replay(answer)),
            (Decision::Mismatch, _) => Some(Told::Mismatch),
            (Decision::Wait, _) if self.is(Variant::MemoryOfUnsettled) => Some(Told::InProgress),
            (Decision::Reconcile, _) if self.is(Variant::MemoryOfUnsettled) => Some(Told::Unknown),
            _ => None,
        }
    }

    /// Starts a claimed command on a worker.
    fn start(&self, world: &mut World, node: u8, key: u8) {
        let Some(row) = world.row(key).copied() else { return };
        let index = REQUESTS + usize::from(node);
        world.starts += 1;
        let token = REQUESTS as Token + world.starts;
        let phase = Phase::Asking(Statement::Start { epoch: row.epoch, token: row.token });
        world.tasks[index] = Task { phase, epoch: row.epoch, ..Task::idle(node, key, token) };
    }

    /// Delivers the store's answer to its task.
    fn hear(&self, world: &mut World, index: usize) {
        let task = world.tasks[index];
        let Phase::Answered(_, then) = task.phase else { return };
        match then {
            Then::Execute { epoch, op, claim, life, begun } => {
                let renewals = self.configuration.renewals;
                world.tasks[index] = Task { epoch, op, claim, life, renewals, asked: 0, ..task };
                self.acquired(world, index, task.asked, begun);
            }
            Then::GiveBack { epoch } => {
                world.tasks[index].epoch = epoch;
                self.unexecuted(world, index, Reason::ClaimUnconfirmed);
            }
            Then::Wait => world.tasks[index].phase = Phase::Waiting,
            Then::Tell(told, keep) => {
                if let Some(row) = keep.filter(|_| task.asked == 0 || self.is(Variant::MemoryOutlivesPurge)) {
                    let place = &mut world.memory[usize::from(task.node)][usize::from(task.key)];
                    *place = Some(Remembered { row, age: task.asked });
                }
                self.tell(world, index, told);
            }
            Then::End => end(world, index),
        }
    }

    /// Executes the acquired command, unless the claim took longer than its lease.
    fn acquired(&self, world: &mut World, index: usize, asked: u8, begun: bool) {
        let lease = ticks::LEASE.saturating_sub(asked);
        if begun && !self.configuration.deduplicates && !self.is(Variant::RepeatsBegunPhase) {
            return say(world, index, Word::Abandon(Reason::HandlerUnsure));
        }
        if lease == 0 && !self.is(Variant::NoLeaseCheck) {
            return self.unexecuted(world, index, Reason::ClaimUnconfirmed);
        }
        invariants::executes(world, index);
        world.tasks[index].phase = Phase::Ready { lease };
    }

    /// Handles a statement without an answer: the task cannot know if it was taken.
    fn lost(&self, world: &mut World, index: usize, statement: Statement, despite: Despite) {
        world.faults.losses -= 1;
        let task = &mut world.tasks[index];
        match (despite, statement) {
            (Despite::Again, _) => {
                if self.is(Variant::FreshToken) && statement == Statement::Claim && task.token < FRESH {
                    task.token += FRESH;
                }
                task.phase = Phase::Asking(statement);
            }
            (Despite::GiveUp, Statement::Claim) => {
                let (node, key, token) = (task.node, task.key, task.token);
                // A worker may already run the command.
                if self.configuration.mode == Mode::Async && !self.is(Variant::UnconfirmedButRun) {
                    self.tell(world, index, Told::Unknown);
                    end(world, index);
                    return;
                }
                self.tell(world, index, Told::NothingRan);
                let told_nothing_ran = true;
                let phase = Phase::TakingBack;
                world.tasks[index] = Task { phase, told_nothing_ran, ..Task::idle(node, key, token) };
            }
            (Despite::GiveUp, Statement::Start { .. }) => {
                task.asked = 0;
                task.phase = Phase::TakingBack;
            }
            (Despite::GiveUp, Statement::Word(word)) => {
                let told = match word {
                    Word::Complete(_) | Word::Fail(_) => Some(Told::Unknown),
                    Word::Release(_) | Word::Requeue(_) | Word::Abandon(_) => own_answer(word),
                };
                if let Some(told) = told.filter(|_| index < REQUESTS) {
                    invariants::told(self, world, index, told);
                }
                world.tasks[index].asked = 0;
                world.tasks[index].phase = Phase::Offering(word);
            }
        }
    }

    /// Asks the store for a waiter, which never executes.
    fn look(&self, world: &mut World, index: usize) {
        let key = world.tasks[index].key;
        let payload = self.configuration.requests[index].payload;
        let row = world.row(key).copied();
        let head = row.map(|row| row.head(&self.terms));
        let decision =
            transition(head.as_ref(), &Event::Look { fingerprint: fingerprint(payload) }, NOW).decision;
        if decision == Decision::Wait {
            return;
        }
        if let Then::Tell(told, keep) = self.looked(world, payload, decision, row.as_ref()) {
            if let Some(row) = keep {
                let place = &mut world.memory[usize::from(world.tasks[index].node)][usize::from(key)];
                *place = Some(Remembered { row, age: 0 });
            }
            self.tell(world, index, told);
        }
    }

    fn leave(&self, world: &mut World, index: usize) {
        let task = world.tasks[index];
        if self.is(Variant::WaiterExecutes) {
            if let Some(row) = world.row(task.key).copied() {
                let (epoch, op, life, claim) = (row.epoch, row.op, row.life, task.token);
                world.tasks[index] = Task { epoch, op, claim, life, asked: 0, ..task };
                world.tasks[index].phase = Phase::Ready { lease: ticks::LEASE };
            }
            return;
        }
        if self.is(Variant::MemoryOfUnsettled) {
            let row = world.row(task.key).copied();
            let place = &mut world.memory[usize::from(task.node)][usize::from(task.key)];
            *place = row.map(|row| Remembered { row, age: 0 });
        }
        self.tell(world, index, Told::InProgress);
    }

    fn renew(&self, world: &mut World, index: usize, is_heard: bool) {
        let task = world.tasks[index];
        world.tasks[index].renewals -= 1;
        let renewal = Event::Renew { fence: fence(task.epoch, task.token) };
        let decision = self.change(world, task.key, &renewal, None);
        if let (Phase::Ready { lease }, true) = (&mut world.tasks[index].phase, is_heard) {
            *lease = if decision == Decision::Applied { ticks::LEASE } else { 0 };
        }
    }

    /// Checks the lease right before the call.
    fn check(&self, world: &mut World, index: usize) {
        let task = world.tasks[index];
        let Phase::Ready { lease } = task.phase else { return };
        if self.configuration.mode == Mode::Phased && !self.begin(world, &task) {
            return say(world, index, Word::Requeue(Reason::NotExecuted));
        }
        if lease == 0 && !self.is(Variant::NoLeaseCheck) {
            return self.unexecuted(world, index, Reason::NotExecuted);
        }
        world.tasks[index].phase = Phase::Checked { left: ticks::MARGIN };
    }

    /// Reports that the command provably did not run.
    fn unexecuted(&self, world: &mut World, index: usize, reason: Reason) {
        let requeues = index >= REQUESTS || self.configuration.mode == Mode::Phased;
        say(world, index, if requeues { Word::Requeue(reason) } else { Word::Release(reason) });
    }

    fn charge(&self, world: &mut World, place: usize) {
        let Call { key, op, life, by, claim, acquired, .. } = world.calls.remove(place);
        let before = if self.configuration.deduplicates { world.find(op) } else { Finding::NoRecord };
        let says = match before {
            Finding::Charged(name) => Says::Charged(name),
            Finding::Declined => Says::Declined,
            Finding::NoRecord | Finding::Silence => {
                if !acquired {
                    world.broke(Promise::ClaimBeforeEffect);
                }
                world.effects.push(Effect { key, op, life, by, claim });
                Says::Charged(by)
            }
        };
        answer_call(world, by, says);
    }

    fn decline(&self, world: &mut World, place: usize) {
        // A provider that deduplicates repeats its earlier answer.
        if self.configuration.deduplicates && world.find(world.calls[place].op) != Finding::NoRecord {
            return;
        }
        let Call { op, by, .. } = world.calls.remove(place);
        if !world.declined.contains(&op) {
            world.declined.push(op);
            world.declined.sort_unstable();
        }
        answer_call(world, by, Says::Declined);
    }

    fn reply(&self, world: &mut World, index: usize) {
        let task = world.tasks[index];
        let Phase::Called { reply: Some(says) } = task.phase else { return };
        let payload = world.row(task.key).map_or(0, |row| row.payload);
        let payload = self.configuration.requests.get(index).map_or(payload, |request| request.payload);
        let answer = Answer { life: task.life, payload, says, words: SettledBy::Executor };
        let word = match says {
            Says::Charged(_) => Word::Complete(answer),
            Says::Declined => Word::Fail(answer),
        };
        say(world, index, word);
        if self.is(Variant::TellsBeforeStoring) && index < REQUESTS {
            invariants::told(self, world, index, Told::Own(answer));
        }
    }

    /// Takes back an unconfirmed claim or start.
    fn take_back(&self, world: &mut World, index: usize) {
        let task = world.tasks[index];
        let row = world.row(task.key).copied();
        let release = |fence| Event::Release { fence, reason: Reason::ClaimUnconfirmed };
        if index >= REQUESTS {
            let own = fence(task.epoch, task.token);
            let requeue = Event::Requeue {
                fence: own,
                reason: Reason::ClaimUnconfirmed,
                after: std::time::Duration::ZERO,
            };
            let decision = self.change(world, task.key, &requeue, None);
            let still_waits = world
                .row(task.key)
                .is_some_and(|row| row.epoch == task.epoch && matches!(row.state, State::Claimed { .. }));
            if decision == Decision::Applied || !still_waits {
                end(world, index);
            }
            return;
        }
        match row {
            Some(row) if row.token == task.token || self.is(Variant::ReleaseWithoutToken) => {
                let _ = self.change(world, task.key, &release(row.fence()), None);
                end(world, index);
            }
            // The claim arrived, and another attempt has the command by now.
            Some(row) if row.op == task.token => end(world, index),
            Some(_) | None => {}
        }
    }

    /// Postpones a command, so that no other reconciler looks it up meanwhile.
    fn hold(&self, world: &mut World, key: u8) -> Option<Held> {
        let row = *world.row(key)?;
        let State::Unknown { attempts, .. } = row.state else { return None };
        let until = NOW.plus(LOOKS.wait(attempts + 1, u32::MAX));
        let hold = Event::Postpone { until, attempts, counts: true };
        let is_held = self.change(world, key, &hold, None) == Decision::Applied;
        let attempts = u8::try_from(attempts + 1).unwrap_or(u8::MAX);
        is_held.then_some(Held { key, op: row.op, attempts, ago: 0, left: ticks::LOOK })
    }

    fn conclude(&self, world: &mut World, held: Held, finding: Finding) {
        let proof = match (self.configuration.deduplicates, self.variant) {
            (true, _) => Proof::ProviderDeduplicates,
            (false, Some(Variant::NoRecordFrees)) => Proof::ProviderTombstone,
            (false, _) => Proof::Quarantine,
        };
        let found = found(finding, proof);
        let attempts = u32::from(held.attempts);
        let put_off = |world: &mut World, until: Timestamp| {
            let _ = self.change(world, held.key, &Event::Postpone { until, attempts, counts: false }, None);
        };
        // The key may belong to another command by now.
        let current = world.row(held.key).filter(|row| row.op == held.op);
        let Some(State::Unknown { quarantine_until, .. }) = current.map(|row| row.state) else { return };
        match after_look(attempts, &found, &LOOKS, u32::MAX) {
            LookedNext::Settle(verdict) => {
                let began = Timestamp::from_millis(
                    NOW.as_millis() - i64::try_from(after(held.ago).as_millis()).unwrap_or(i64::MAX),
                );
                let seen = (!self.is(Variant::OldLookCounts)).then_some(began);
                if let Decision::Refused(_) =
                    self.resolve(world, held.key, finding, verdict, seen, About::Command)
                {
                    put_off(world, quarantine_until);
                }
            }
            LookedNext::Again { .. } => {}
            LookedNext::GiveUp => put_off(world, Timestamp::MAX),
        }
    }

    /// Offers evidence to the protocol.
    fn resolve(
        &self,
        world: &mut World,
        key: u8,
        finding: Finding,
        verdict: Verdict,
        seen: Option<Timestamp>,
        about: About,
    ) -> Decision {
        let says = match finding {
            Finding::Charged(name) => Some(Says::Charged(name)),
            Finding::Declined => Some(Says::Declined),
            Finding::NoRecord | Finding::Silence => None,
        };
        let answer = world.row(key).zip(says).map(|(row, says)| Answer {
            life: row.life,
            payload: row.payload,
            says,
            words: SettledBy::Verdict,
        });
        self.change(world, key, &Event::Resolve { verdict, seen, about }, answer)
    }

    /// Returns the attempt that an event about this effect names.
    fn about(&self, world: &World, key: u8, by: Token) -> About {
        match world.row(key) {
            Some(_) if self.is(Variant::NamelessEvidence) => About::Command,
            Some(row) if row.token == by => About::UpTo(u32::from(row.epoch)),
            Some(row) => About::UpTo(u32::from(row.epoch).saturating_sub(1)),
            None => About::Command,
        }
    }

    fn operate(&self, world: &mut World, key: u8, event: &Event) {
        if self.change(world, key, event, None) == Decision::Applied {
            world.operator -= 1;
        }
    }

    /// Ends a node's tasks and clears its memory.
    fn crash(&self, world: &mut World, node: u8) {
        let mut lost_anything = world.memory[usize::from(node)].iter().any(Option::is_some);
        world.memory[usize::from(node)] = [None; KEYS];
        for (index, task) in world.tasks.iter_mut().enumerate().filter(|(_, task)| task.node == node) {
            if matches!(task.phase, Phase::Idle | Phase::Done | Phase::Gone) {
                continue;
            }
            lost_anything = true;
            world.books.acquired &= !invariants::bit(task.token);
            *task = if index < REQUESTS { over(task, Phase::Gone) } else { Task::idle(node, 0, 0) };
        }
        if node == 1 && world.reconciler != Reconciler::Idle {
            world.reconciler = Reconciler::Idle;
            lost_anything = true;
        }
        world.faults.crashes -= u8::from(lost_anything);
    }

    fn tell(&self, world: &mut World, index: usize, told: Told) {
        if index < REQUESTS {
            invariants::told(self, world, index, told);
        }
        end(world, index);
    }
}

/// Sends an executor's outcome to the store.
fn say(world: &mut World, index: usize, word: Word) {
    let task = &mut world.tasks[index];
    (task.phase, task.asked) = (Phase::Asking(Statement::Word(word)), 0);
}

/// Ends a task. A worker's task leaves no trace.
fn end(world: &mut World, index: usize) {
    let task = &mut world.tasks[index];
    world.books.acquired &= !invariants::bit(task.token);
    *task = if index < REQUESTS { over(task, Phase::Done) } else { Task::idle(task.node, 0, 0) };
}

/// Returns the remains of a request's task: its name, and if its client was told that nothing ran.
fn over(task: &Task, phase: Phase) -> Task {
    let told_nothing_ran = task.told_nothing_ran;
    Task { phase, told_nothing_ran, ..Task::idle(0, task.key, task.token) }
}

/// Delivers the provider's answer to the task that made the call, if it still waits.
fn answer_call(world: &mut World, by: Token, says: Says) {
    let waiting =
        world.tasks.iter_mut().find(|task| task.token == by && matches!(task.phase, Phase::Called { .. }));
    if let Some(task) = waiting {
        task.phase = Phase::Called { reply: Some(says) };
    }
}

/// Converts a finding to the protocol's lookup result.
fn found(finding: Finding, proof: Proof) -> LookUpAnswer {
    let result = |status| StoredResult {
        response: StoredResponse {
            format: RESPONSE_FORMAT,
            encryption_key_id: None,
            bytes: bytes::Bytes::new(),
        },
        status,
        resource: None,
    };
    match finding {
        Finding::Charged(_) => LookUpAnswer::Executed(result(201)),
        Finding::Declined => LookUpAnswer::Failed(result(402)),
        Finding::NoRecord => LookUpAnswer::NotExecuted(proof),
        Finding::Silence => LookUpAnswer::no_answer(""),
    }
}
