//! Steps that are possible in a world, faults among them; `steps.rs` carries them out. The steps follow `crates/http`
//! (`service.rs`, `claim.rs`, `execute.rs`, `settle.rs`, `worker.rs`, `cache.rs`) and `crates/flow`
//! (`reconcile/look.rs`). Slowness needs no step of its own: any task may take no step while time passes.

use semel_core::State;
use stateright::{Model, Property};

use crate::configuration::NOW;
use crate::invariants::SIGHTS;
use crate::promises::Promise;
use crate::protocol::Protocol;
use crate::variants::Variant;
use crate::world::{Books, KEYS, NODES, Past, Phase, REQUESTS, Reconciler, Row, Task, Token, World};

/// One step of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// All clocks advance by a tick.
    Tick,
    /// The store's clock alone leaps forward by a tick.
    Leap,
    /// A request reaches a node, which looks in memory and then claims.
    Send(usize, u8),
    /// A worker finds a claimed command and starts it.
    Start(u8, u8),
    /// A statement reaches the store.
    Take(usize),
    /// The store's answer reaches its task.
    Hear(usize),
    /// A statement is lost or late. Its sender retries or gives up.
    LoseStatement(usize, Despite),
    /// The store's answer is lost. The sender retries the statement or gives up.
    LoseAnswer(usize, Despite),
    /// A statement without a waiting sender reaches the store.
    Stray(usize),
    /// A waiter asks the store.
    Look(usize),
    /// A waiter reaches its timeout.
    Leave(usize),
    /// An executor renews its lease.
    Renew(usize),
    /// The store renews a lease, and the executor does not hear of it.
    RenewUnheard(usize),
    /// An executor looks at its lease, right before it sends.
    Check(usize),
    /// An executor sends its call.
    Call(usize),
    /// An executor cannot connect: nothing was sent.
    Refused(usize),
    /// The provider takes a call and executes it.
    Charge(usize),
    /// The provider takes a call and declines it.
    Decline(usize),
    /// The provider's answer reaches the executor.
    Reply(usize),
    /// The executor times out waiting for an answer, or gets one that says nothing.
    GiveUp(usize),
    /// An executor whose outcome could not be stored offers it again.
    Offer(usize),
    /// An unconfirmed claim or start is taken back.
    TakeBack(usize),
    /// The sweeper visits a key.
    Sweep(u8),
    /// The reaper visits a key.
    Reap(u8),
    /// The reconciler postpones a command and asks the provider.
    LookUp(u8),
    /// The reconciler postpones a command and gets no answer from the provider.
    LookInVain(u8),
    /// The reconciler writes its verdict.
    Conclude,
    /// The provider reports an effect by webhook.
    Webhook(u8),
    /// An operator has looked at the provider and says "executed".
    SayExecuted(u8),
    /// An operator has looked at the provider and says "not executed".
    SayNotExecuted(u8),
    /// An operator purges a settled command.
    Purge(u8),
    /// An operator frees the key of a command that has not run.
    Free(u8),
    /// A node dies, loses its memory, and restarts.
    Crash(u8),
    /// The store is backed up.
    BackUp,
    /// The store is restored from its backup, and fenced.
    Restore,
    /// An operator lifts the fence of the restored store.
    Lift,
}

/// Reaction of a sender to a statement without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Despite {
    /// The sender retries the same statement.
    Again,
    /// The sender gives up.
    GiveUp,
}

impl Model for Protocol {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let requests = self.configuration.requests;
        let task = |index: usize| match requests.get(index) {
            Some(request) => Task::idle(0, request.key, index as Token + 1),
            None => Task::idle(index.saturating_sub(REQUESTS) as u8, 0, 0),
        };
        vec![World {
            rows: [None; KEYS],
            reference: None,
            tasks: std::array::from_fn(task),
            memory: [[None; KEYS]; NODES],
            strays: Vec::new(),
            calls: Vec::new(),
            effects: Vec::new(),
            declined: Vec::new(),
            reconciler: Reconciler::Idle,
            faults: self.configuration.faults,
            operator: self.configuration.operator,
            starts: 0,
            past: Past::none(self.configuration.restores),
            books: Books {
                life: [0; KEYS],
                answered: [None; KEYS],
                settled: [0; KEYS],
                acquired: 0,
                heard: [false; KEYS],
                lost: [false; KEYS],
                reworded: [false; KEYS],
                broken: 0,
            },
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        self.of_time(world, steps);
        for index in 0..world.tasks.len() {
            self.of_task(world, index, steps);
        }
        self.of_provider(world, steps);
        for key in 0..KEYS as u8 {
            self.of_upkeep(world, key, steps);
        }
        steps.extend((0..world.strays.len()).map(Step::Stray));
        if world.faults.crashes > 0 {
            steps.extend((0..NODES as u8).map(Step::Crash));
        }
        self.of_restores(world, steps);
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        self.take_step(&mut next, step);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Protocol>> {
        if let Some(only) = self.only {
            return vec![only.property()];
        }
        let promises = Promise::ALL.into_iter().map(Promise::property);
        let sights = SIGHTS.into_iter().map(|(name, is_seen)| Property::sometimes(name, is_seen));
        promises.chain(sights).collect()
    }
}

/// Possible steps, by participant.
impl Protocol {
    fn of_time(&self, world: &World, steps: &mut Vec<Step>) {
        // Assumed: no executor sleeps for longer than the margin between the lease check and the call.
        let overslept = |task: &Task| matches!(task.phase, Phase::Checked { left: 0 });
        if self.is(Variant::SleepyExecutor) || !world.tasks.iter().any(overslept) {
            steps.push(Step::Tick);
        }
        // Assumed: the store's clock does not leap while a quarantine or a time to live runs.
        let in_hand = |row: &Row| matches!(row.state, State::Claimed { .. } | State::Processing { .. });
        let may_leap = self.is(Variant::LeapInQuarantine) || world.rows.iter().flatten().all(in_hand);
        if world.faults.leaps > 0 && may_leap {
            steps.push(Step::Leap);
        }
    }

    fn of_task(&self, world: &World, index: usize, steps: &mut Vec<Step>) {
        let task = &world.tasks[index];
        match task.phase {
            Phase::Idle if index < REQUESTS => self.of_client(world, index, steps),
            Phase::Idle => {
                let node = (index - REQUESTS) as u8;
                let waiting = (0..KEYS as u8).filter(|key| self.waits_for_worker(world, *key));
                steps.extend(waiting.map(|key| Step::Start(node, key)));
            }
            Phase::Asking(_) => {
                steps.push(Step::Take(index));
                if world.faults.losses > 0 {
                    steps.extend(
                        [Despite::Again, Despite::GiveUp].map(|then| Step::LoseStatement(index, then)),
                    );
                }
                if world.faults.losses > 0 && !self.configuration.slow_answers {
                    steps.extend([Despite::Again, Despite::GiveUp].map(|then| Step::LoseAnswer(index, then)));
                }
            }
            Phase::Answered(..) => {
                steps.push(Step::Hear(index));
                if world.faults.losses > 0 {
                    steps.extend([Despite::Again, Despite::GiveUp].map(|then| Step::LoseAnswer(index, then)));
                }
            }
            Phase::Waiting => steps.extend([Step::Look(index), Step::Leave(index)]),
            Phase::Ready { .. } => {
                steps.push(Step::Check(index));
                self.of_lease(world, index, steps);
            }
            Phase::Checked { .. } => steps.extend([Step::Call(index), Step::Refused(index)]),
            Phase::Called { reply } => {
                steps.extend(reply.map(|_| Step::Reply(index)));
                steps.push(Step::GiveUp(index));
                self.of_lease(world, index, steps);
            }
            Phase::TakingBack => steps.push(Step::TakeBack(index)),
            Phase::Offering(_) => steps.push(Step::Offer(index)),
            Phase::Done | Phase::Gone => {}
        }
    }

    fn of_client(&self, world: &World, index: usize, steps: &mut Vec<Step>) {
        let requests = self.configuration.requests;
        let Some(request) = requests.get(index) else { return };
        let is_unsent = |index: usize| world.tasks[index].phase == Phase::Idle;
        // The order of equal requests does not matter.
        if (0..index).any(|earlier| requests[earlier] == *request && is_unsent(earlier)) {
            return;
        }
        // Before the first event, the choice of the node does not matter either.
        let all_unsent = (0..requests.len()).all(is_unsent) && world.starts == 0;
        let nodes = if all_unsent { 1 } else { self.configuration.nodes };
        steps.extend((0..nodes).map(|node| Step::Send(index, node)));
    }

    fn waits_for_worker(&self, world: &World, key: u8) -> bool {
        let is_ready = world.row(key).is_some_and(|row| match row.state {
            State::Claimed { start_by, ready_at } => ready_at <= NOW && start_by > NOW,
            _ => false,
        });
        is_ready && world.starts < self.configuration.starts && !world.past.is_fenced()
    }

    fn of_lease(&self, world: &World, index: usize, steps: &mut Vec<Step>) {
        if world.tasks[index].renewals > 0 {
            steps.push(Step::Renew(index));
            if world.faults.losses > 0 {
                steps.push(Step::RenewUnheard(index));
            }
        }
    }

    fn of_provider(&self, world: &World, steps: &mut Vec<Step>) {
        for index in 0..world.calls.len() {
            steps.push(Step::Charge(index));
            if self.configuration.declines {
                steps.push(Step::Decline(index));
            }
        }
    }

    fn of_upkeep(&self, world: &World, key: u8, steps: &mut Vec<Step>) {
        let Some(row) = world.row(key) else { return };
        if row.state.due_to_sweep().is_some_and(|due| due <= NOW) {
            steps.push(Step::Sweep(key));
        }
        let reaps_wrongly = match row.state {
            State::Processing { .. } => self.is(Variant::ReapsProcessing),
            State::Unknown { .. } => self.is(Variant::ReapsUnknown),
            _ => false,
        };
        if reaps_wrongly || row.state.expires_at().is_some_and(|due| due <= NOW) {
            steps.push(Step::Reap(key));
        }
        if let State::Unknown { reconcile_after, .. } = row.state {
            if reconcile_after <= NOW && world.reconciler == Reconciler::Idle && self.has_look_ups(world) {
                steps.push(Step::LookUp(key));
                if world.faults.silences > 0 {
                    steps.push(Step::LookInVain(key));
                }
            }
            steps.push(Step::Webhook(key));
        } else if self.configuration.operator_errs {
            steps.push(Step::Webhook(key));
        }
        match world.reconciler {
            Reconciler::Looked(held, _) if held.key == key => steps.push(Step::Conclude),
            Reconciler::Looked(..) | Reconciler::Idle => {}
        }
        if world.operator > 0 {
            steps.extend([Step::SayExecuted(key), Step::SayNotExecuted(key), Step::Free(key)]);
            // A restore undoes a purge, and the purged answer comes back.
            if self.configuration.restores == 0 {
                steps.push(Step::Purge(key));
            }
        }
    }

    fn of_restores(&self, world: &World, steps: &mut Vec<Step>) {
        let past = &world.past;
        match (&past.backup, past.restores) {
            (Some(_), 1..) => steps.push(Step::Restore),
            (None, 1..) => steps.push(Step::BackUp),
            (Some(_) | None, 0) => {}
        }
        if self.configuration.lifts && past.is_fenced() {
            steps.push(Step::Lift);
        }
    }
}
