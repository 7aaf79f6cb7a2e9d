//! Main loop, which moves time. No message arrives in less than a [`STEP`]. In each step, first the store, the
//! provider and the clients handle their due events in order of time; then each node runs through the step alone, in
//! a runtime whose clock the step moves. Their messages arrive in a later step.

use semel_checker::Event;
use semel_checker::event::{Called, Effect, Evidence, Quiet, Ruled, Run, Verdict};
use semel_core::{LookUpAnswer, Record, State, StateName, Statement as Said};

use crate::happening::{Happening, Origin, Trouble};
use crate::link::Peer;
use crate::plan::{Plan, Way};
use crate::port::{Answer, Call, Question, Sent};
use crate::provider::{Deed, Entry, Provider, Then};
use crate::settings::{EPOCH, LEASE, STEP, SWEEP, operations};
use crate::world::World;

/// Interval at which the observer reads the store.
const LOOK: u64 = 500;
/// Time after the end of faults by which everything must be settled.
const SETTLED_WITHIN: u64 = 90_000;
/// Shortest time to continue after the end of faults.
const CALM: u64 = LEASE + 2 * SWEEP + 1_000;

impl World {
    /// Runs the simulation to its end.
    pub(crate) fn run(&mut self) {
        let run = Run {
            at: EPOCH,
            store: "simulated".to_owned(),
            seed: self.seed,
            sweep_ms: SWEEP as i64,
            rounding_ms: 0,
            operations: operations(),
        };
        self.note(Event::Run(run));
        for node in 0..self.nodes.len() {
            self.start(node);
        }
        self.open_sessions();
        self.plan_faults();
        let trouble = self.plan.trouble;
        self.at(LOOK, Happening::Looks);
        self.at(trouble, Happening::Quiet);
        let mut step = 0;
        while !self.is_over(step) {
            let end = step + STEP;
            while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 < end) {
                let ((time, _), happening) = entry.remove_entry();
                self.now = time;
                self.happens(happening);
            }
            for node in 0..self.nodes.len() {
                self.run_node(node, step, end);
            }
            step = end;
            self.now = step;
        }
        self.scribe.look(self.now, &self.server.records(), true, &mut self.coverage);
    }

    /// Returns true if every command is settled and answered, or the time for that is over.
    fn is_over(&mut self, step: u64) -> bool {
        if !self.quiet || step < self.plan.trouble + CALM {
            return false;
        }
        let late = step >= self.plan.trouble + SETTLED_WITHIN;
        if !step.is_multiple_of(LOOK) && !late {
            return false;
        }
        let is_open = |record: &Record| {
            let name = record.head.state.name();
            matches!(name, StateName::Claimed | StateName::Processing | StateName::Unknown)
        };
        let open = self.server.records().into_iter().filter(is_open);
        let open: Vec<String> = open
            .map(|record| format!("{} is {}", record.operation_id, record.head.state.name().as_str()))
            .collect();
        let asking: Vec<String> = self.unended();
        if late && !(open.is_empty() && asking.is_empty()) {
            let all = [open.clone(), asking.clone()].concat().join("; ");
            self.wrong.push(format!(
                "{} s after faults have stopped, not everything has come to its end: {all}",
                SETTLED_WITHIN / 1000
            ));
        }
        late || (open.is_empty() && asking.is_empty())
    }

    fn run_node(&mut self, number: usize, from: u64, until: u64) {
        let node = &mut self.nodes[number];
        if node.paused_until.is_some_and(|end| end > from) {
            return;
        }
        let Some(process) = &node.process else { return };
        let was_paused = node.paused_until.take().is_some();
        let inbox = std::mem::take(&mut node.inbox);
        let timers_first = was_paused && self.chance.percent(50);
        process.run(from, until, inbox, timers_first);
        let sent = process.port.take();
        let origin = Origin { node: number, process: node.process_number };
        for (time, sent) in sent {
            self.now = time;
            self.sent(origin, sent);
        }
    }

    fn sent(&mut self, origin: Origin, sent: Sent) {
        match sent {
            Sent::Asks(number, question) => {
                if let Question::Provider(call) = &*question {
                    self.calls.insert((call.operation_id.clone(), call.attempt));
                }
                self.route_question(origin, number, *question);
            }
            Sent::Answers(request, reply) => self.route_answer(origin, request, reply),
            Sent::Ended => {
                self.coverage.met("a node ended in good order");
                let restart = self.now + self.chance.between(STEP, 1_000);
                self.at(self.now + STEP, Happening::Trouble(Trouble::Kill(origin, restart)));
            }
        }
    }

    fn happens(&mut self, happening: Happening) {
        match happening {
            Happening::AtNode(origin, peer, brought) => self.at_node(origin, peer, brought),
            Happening::AtStore(origin, number, statement, tries) => {
                if self.is_cut(origin.node, Peer::Store, true) {
                    return;
                }
                let done = self.server.carry_out(self.now, origin.node, statement, tries, &mut self.coverage);
                self.say(&format!("store, for node-{}: {}", origin.node, done.told));
                if let Some(id) = self.server.misplaced_request() {
                    let wrong = format!("the request of {id} is not kept exactly until its outcome is known");
                    if !self.wrong.contains(&wrong) {
                        self.wrong.push(wrong);
                    }
                }
                if let Some((operation_id, executed, accepted)) = done.ruled {
                    let verdict = if executed { Verdict::Executed } else { Verdict::NotExecuted };
                    let at = self.wall();
                    self.note(Event::Ruled(Ruled {
                        at,
                        operation_id,
                        verdict,
                        accepted: Some(accepted),
                        part: None,
                    }));
                }
                self.answer(origin, Peer::Store, number, Answer::Store(done.answer), 0);
            }
            Happening::AtProvider(origin, number, call) => self.at_provider(origin, number, call),
            Happening::AtLedger(origin, number, record) => self.at_ledger(origin, number, &record),
            Happening::Acts(origin, number, call, then) => self.acts(origin, number, &call, then),
            Happening::Tells(node, said) => self.tells(node, said),
            Happening::AtClient(request, reply) => self.at_client(request, &reply),
            Happening::Lost(request, why) => self.lost(request, why),
            Happening::GivesUp(request) => self.gives_up(request),
            Happening::Sends(session) => self.sends(session),
            Happening::Trouble(trouble) => self.trouble(trouble),
            Happening::Looks => {
                self.scribe.look(self.now, &self.server.records(), false, &mut self.coverage);
                self.at(self.now + LOOK, Happening::Looks);
            }
            Happening::Quiet => self.calm_down(),
        }
    }

    fn at_provider(&mut self, origin: Origin, number: u64, call: Call) {
        if self.is_cut(origin.node, Peer::Provider, true) {
            return;
        }
        let Call { operation_id, attempt, command, canary, .. } = call.clone();
        let at = self.wall();
        self.note(Event::Called(Called { at, operation_id, attempt, command, canary }));
        let (deed, known) = self.provider.called(self.now, &call, self.plan.moods);
        if known {
            self.coverage.met("the provider deduplicated a call");
        }
        match deed {
            Deed::Answers(reply) => self.answer(origin, Peer::Provider, number, Answer::Provider(reply), 0),
            Deed::Breaks => self.answer(origin, Peer::Provider, number, Answer::Broken, 0),
            Deed::Acts(after, then) => {
                self.at(self.now + after, Happening::Acts(origin, number, call, then));
            }
        }
    }

    fn acts(&mut self, origin: Origin, number: u64, call: &Call, then: Then) {
        let (entry, _) = self.provider.act(self.now, call);
        let effect = Effect {
            at: self.wall(),
            effect: entry.effect.clone(),
            operation_id: call.operation_id.clone(),
            attempt: call.attempt,
            command: call.command.clone(),
            canary: call.canary.clone(),
            reference: call.reference.clone(),
        };
        self.note(Event::Effect(effect));
        let given_up = |record: &Record| {
            record.operation_id.to_string() == call.operation_id
                && matches!(record.head.state, State::Unknown { .. } | State::FailedRetryable { .. })
        };
        if self.server.records().iter().any(given_up) {
            self.coverage.met("an effect came after its executor had given up");
        }
        self.tell_by_event(&entry, call);
        let after = if let Then::Tells(after) = then { after } else { 0 };
        let answer = Provider::tells(&entry, call, then).map_or(Answer::Broken, Answer::Provider);
        self.answer(origin, Peer::Provider, number, answer, after);
    }

    /// Lets the provider send one or two events about an effect, to any node.
    fn tell_by_event(&mut self, entry: &Entry, call: &Call) {
        let Ok(operation_id) = call.operation_id.parse() else { return };
        if !self.chance.percent(self.plan.events) {
            return;
        }
        for _ in 0..self.chance.between(1, 3) {
            let node = self.chance.below(self.nodes.len() as u64) as usize;
            let time = self.now + self.chance.between(STEP, 4_000);
            if let Some(said) = entry.event(operation_id) {
                self.at(time, Happening::Tells(node, Box::new(said)));
            }
        }
    }

    fn tells(&mut self, node: usize, said: Box<Said>) {
        let (at, operation_id) = (self.wall(), said.operation_id.to_string());
        let (verdict, effect) = (Verdict::Executed, Some(said.event_id.clone()));
        self.note(Event::Evidence(Evidence { at, operation_id, verdict, effect, part: None }));
        let origin = Origin { node, process: self.nodes[node].process_number };
        self.coverage.met("the provider sent an event");
        self.bring_event(origin, said);
    }

    fn at_ledger(&mut self, origin: Origin, number: u64, record: &Record) {
        if self.is_cut(origin.node, Peer::Provider, true) {
            return;
        }
        let Plan { lag, tells_pending, moods, .. } = self.plan;
        let (found, effect) = self.provider.look_up(self.now, record, lag, tells_pending, moods);
        self.coverage.met(match &found {
            LookUpAnswer::Executed(_) => "a lookup found an effect",
            LookUpAnswer::Failed(_) => "a lookup found a refusal",
            LookUpAnswer::NotExecuted(_) => "a lookup found nothing",
            LookUpAnswer::Pending => "a lookup found something pending",
            LookUpAnswer::NoAnswer { .. } => "a lookup got no answer",
        });
        let verdict = match &found {
            LookUpAnswer::Executed(_) | LookUpAnswer::Failed(_) => Some(Verdict::Executed),
            LookUpAnswer::NotExecuted(_) => Some(Verdict::NotExecuted),
            LookUpAnswer::Pending | LookUpAnswer::NoAnswer { .. } => None,
        };
        let (at, operation_id) = (self.wall(), record.operation_id.to_string());
        match verdict {
            Some(verdict) => {
                self.note(Event::Evidence(Evidence { at, operation_id, verdict, effect, part: None }));
            }
            None => self.say(&format!("the provider says nothing about {operation_id}")),
        }
        self.answer(origin, Peer::Provider, number, Answer::Found(found), 0);
    }

    /// Ends all faults, repairs them, and has clients retry every key until it has its answer.
    fn calm_down(&mut self) {
        let at = self.wall();
        self.note(Event::Quiet(Quiet { at }));
        self.quiet = true;
        self.cuts.clear();
        self.plan.clients = Way::default();
        self.plan.store = Way::default();
        self.plan.provider = Way::default();
        self.plan.moods = 0;
        for node in 0..self.nodes.len() {
            if let Some(end) = self.nodes[node].paused_until {
                self.nodes[node].paused_until = Some(end.min(self.now));
            }
            if self.nodes[node].process.is_none() {
                self.start(node);
            }
        }
        self.close_sessions();
    }
}
