//! Commands with parts, in a service that keeps every promise.

use semel_checker::event::{
    Action, Answered, Charged, Command, Committed, Declined, Delivered, Event, Evidence, Intervened,
    Intervention, Item, Message, Phase, PhaseProgress, Requested, Ruled, Undone, Verdict,
};

use super::{QUARANTINE, Scribe, blank, canary, reference};

/// Parts of an order.
pub(super) const ORDER: [&str; 4] = ["reserved", "charged", "mailed", "shipped"];

impl Scribe {
    fn name(&mut self) -> String {
        self.effects += 1;
        format!("effect-{}", self.effects)
    }

    /// Commits a row together with its message.
    pub(super) fn commit(
        &mut self,
        command: &Command,
        id: &str,
        part: Option<&str>,
        effect: &str,
        kind: Option<&str>,
    ) {
        let message = kind.map(|kind| format!("{id}:{kind}"));
        if let Some(event_id) = message.clone() {
            let (operation_id, state) = (id.to_owned(), "pending".to_owned());
            self.outbox.insert(event_id.clone(), Message { at: 0, event_id, operation_id, state });
        }
        self.rows.push(Committed {
            at: 0,
            operation_id: id.to_owned(),
            effect: effect.to_owned(),
            part: part.map(str::to_owned),
            canary: canary(command, 0),
            reference: reference(command),
            message,
        });
    }

    fn message_is(&mut self, event_id: &str, state: &str) {
        self.outbox.get_mut(event_id).expect("it is committed").state = state.to_owned();
    }

    /// Delivers a message twice, with one effect.
    pub(super) fn deliver(&mut self, event_id: &str) {
        for effect in [true, false] {
            let event_id = event_id.to_owned();
            self.event(|at| Event::Delivered(Delivered { at, event_id, effect }));
        }
        self.message_is(event_id, "delivered");
    }

    /// Sends two retries.
    fn retries(&mut self, command: &Command, id: &str) {
        self.retry(command, id);
        self.retry(command, id);
    }

    /// Records the phases that a look finds. Settled commands keep theirs.
    pub(super) fn note_phases(&mut self, look: u32) {
        for ((operation_id, phase), progress) in self.phases.clone() {
            self.events.push(Event::Phase(Phase { look, operation_id, phase, progress }));
        }
    }

    fn phase(&mut self, id: &str, phase: &str, progress: PhaseProgress) {
        self.phases.insert((id.to_owned(), phase.to_owned()), progress);
    }

    fn local(&mut self, command: &Command, id: &str, phase: &str) {
        let effect = self.name();
        self.commit(command, id, Some(phase), &effect, Some(phase));
        self.phase(id, phase, PhaseProgress::Done);
        self.deliver(&format!("{id}:{phase}"));
    }

    fn request(&mut self, command: &Command, id: &str, part: &str) {
        let (key, operation_id, part) = (format!("{id}:{part}"), id.to_owned(), part.to_owned());
        let (deduplicated, canary) = (part != "charged", canary(command, 0));
        self.event(|at| Event::Requested(Requested { at, key, operation_id, part, deduplicated, canary }));
    }

    fn charged(&mut self, command: &Command, id: &str, part: &str) -> String {
        let effect = self.name();
        let made = Charged {
            at: 0,
            key: format!("{id}:{part}"),
            operation_id: id.to_owned(),
            part: part.to_owned(),
            effect: effect.clone(),
            canary: canary(command, 0),
            reference: reference(command),
        };
        self.event(|at| Event::Charged(Charged { at, ..made }));
        effect
    }

    fn refuse(&mut self, id: &str, part: &str) {
        let (key, operation_id) = (format!("{id}:{part}"), id.to_owned());
        self.event(|at| Event::Declined(Declined { at, key, operation_id }));
    }

    fn external(&mut self, command: &Command, id: &str, phase: &str) -> String {
        self.request(command, id, phase);
        let effect = self.charged(command, id, phase);
        self.phase(id, phase, PhaseProgress::Done);
        effect
    }

    /// Runs an order up to its open call, whose outcome becomes unknown.
    fn open_order(&mut self, effect: bool) -> (Command, String, Option<String>) {
        let command = self.command("orders");
        let first = self.invoke(&command, 0);
        let id = self.claim(&command, "processing");
        self.local(&command, &id, "reserved");
        self.request(&command, &id, "charged");
        self.phase(&id, "charged", PhaseProgress::Begun);
        let effect = effect.then(|| self.charged(&command, &id, "charged"));
        self.step(&id, 1, "unknown", "broke_off");
        self.problem(&command, first, 502, "IDEMPOTENCY_OUTCOME_UNKNOWN", Some(&id));
        self.look(false);
        (command, id, effect)
    }

    /// Gives a verdict about the open call, which resumes the command.
    fn rule_on_call(&mut self, id: &str, verdict: Verdict, effect: Option<String>) {
        let part = Some("charged".to_owned());
        let (operation_id, phase) = (id.to_owned(), part.clone());
        self.event(|at| Event::Evidence(Evidence { at, operation_id, verdict, effect, part: phase }));
        let reason = if verdict == Verdict::Executed { "verdict_executed" } else { "verdict_not_executed" };
        self.step(id, 2, "claimed", reason);
        let operation_id = id.to_owned();
        self.event(|at| Event::Ruled(Ruled { at, operation_id, verdict, accepted: Some(true), part }));
        self.step(id, 2, "processing", "started");
    }

    fn finish_order(&mut self, command: &Command, id: &str, charged: String) {
        self.external(command, id, "mailed");
        self.local(command, id, "shipped");
        self.settle(command, id, 201, Some(charged), "answered");
        self.look(false);
        self.retries(command, id);
    }

    pub(super) fn order_whose_call_was_executed(&mut self) {
        let (command, id, effect) = self.open_order(true);
        let effect = effect.expect("it was executed");
        self.phase(&id, "charged", PhaseProgress::Done);
        self.rule_on_call(&id, Verdict::Executed, Some(effect.clone()));
        self.finish_order(&command, &id, effect);
    }

    pub(super) fn order_whose_call_was_not_executed(&mut self) {
        let (command, id, _) = self.open_order(false);
        self.now += QUARANTINE;
        self.phases.remove(&(id.clone(), "charged".to_owned()));
        self.rule_on_call(&id, Verdict::NotExecuted, None);
        let effect = self.external(&command, &id, "charged");
        self.finish_order(&command, &id, effect);
    }

    pub(super) fn order_declined(&mut self) {
        let command = self.command("orders");
        let first = self.invoke(&command, 0);
        let id = self.claim(&command, "processing");
        self.local(&command, &id, "reserved");
        self.request(&command, &id, "charged");
        self.refuse(&id, "charged");
        self.settle(&command, &id, 402, None, "answered");
        self.stored(&command, first, &id, false);
        self.look(false);
    }

    /// Returns a deferred command, which is committed and waits for its message.
    fn deferred(&mut self) -> (Command, String) {
        let command = self.command("charges");
        let first = self.invoke(&command, 0);
        let id = self.claim(&command, "processing");
        let effect = self.name();
        self.commit(&command, &id, Some("ordered"), &effect, Some("charge"));
        self.step(&id, 1, "processing", "deferred");
        let accepted =
            Answered { status: 202, operation_id: Some(id.clone()), digest: "wait".into(), ..blank(first) };
        self.answer("charges", "accepted", accepted);
        (command, id)
    }

    /// Delivers the message twice, since the first worker died, and settles the command.
    fn charge_and_settle(&mut self, command: &Command, id: &str) {
        self.request(command, id, "charge");
        let effect = self.charged(command, id, "charge");
        self.request(command, id, "charge");
        self.settle(command, id, 201, Some(effect), "answered");
        self.message_is(&format!("{id}:charge"), "delivered");
        self.retries(command, id);
    }

    pub(super) fn charge(&mut self) {
        let (command, id) = self.deferred();
        self.charge_and_settle(&command, &id);
    }

    pub(super) fn charge_declined(&mut self) {
        let (command, id) = self.deferred();
        self.request(&command, &id, "charge");
        self.refuse(&id, "charge");
        self.settle(&command, &id, 402, None, "answered");
        self.message_is(&format!("{id}:charge"), "delivered");
        self.retries(&command, &id);
    }

    /// Lets the message die at the provider; an operator then intervenes.
    fn dead_charge(&mut self, action: Action) -> (Command, String) {
        let (command, id) = self.deferred();
        self.request(&command, &id, "charge");
        self.step(&id, 1, "unknown", "message_dead");
        let event_id = format!("{id}:charge");
        self.message_is(&event_id, "dead");
        let dead = self.outbox[&event_id].clone();
        self.event(|at| Event::Message(Message { at, ..dead }));
        let id_of = event_id.clone();
        self.event(|at| Event::Intervention(Intervention { at, event_id: id_of, action }));
        let accepted = Some(true);
        self.event(|at| Event::Intervened(Intervened { at, event_id, action, accepted }));
        (command, id)
    }

    pub(super) fn charge_sent_again(&mut self) {
        let (command, id) = self.dead_charge(Action::Retry);
        self.step(&id, 1, "unknown", "deferral_expired");
        self.charge_and_settle(&command, &id);
    }

    pub(super) fn charge_discarded(&mut self) {
        let (command, id) = self.dead_charge(Action::Discard);
        self.outbox.remove(&format!("{id}:charge"));
        let (operation_id, verdict) = (id.clone(), Verdict::Executed);
        self.event(|at| Event::Evidence(Evidence { at, operation_id, verdict, effect: None, part: None }));
        self.settle(&command, &id, 410, None, "verdict_executed");
        let (operation_id, accepted) = (id.clone(), Some(true));
        self.event(|at| Event::Ruled(Ruled { at, operation_id, verdict, accepted, part: None }));
        self.retries(&command, &id);
    }

    /// Runs a bulk request of three items: one is refused for good, one succeeds in the second attempt.
    pub(super) fn batch(&mut self) {
        let command = self.command("batches");
        let item = |name: &str, outcome: &str, effect: Option<&str>| Item {
            name: name.into(),
            outcome: outcome.into(),
            effect: effect.map(str::to_owned),
        };
        let first = self.invoke(&command, 0);
        let id = self.claim(&command, "processing");
        let one = self.name();
        self.commit(&command, &format!("{id}-one"), Some("one"), &one, None);
        let (done, refused) = (item("one", "succeeded", Some(&one)), item("three", "failed", None));
        let items = vec![done.clone(), item("two", "not_executed", None), refused.clone()];
        let partly = Answered { status: 207, digest: "partly".into(), items, ..blank(first) };
        self.step(&id, 1, "failed_retryable", "partly_done");
        self.answer("batches", "executed", partly);
        let second = self.invoke(&command, 0);
        self.step(&id, 2, "processing", "claimed");
        let two = self.name();
        self.commit(&command, &format!("{id}-two"), Some("two"), &two, None);
        self.settle(&command, &id, 200, None, "answered");
        let items = vec![done, item("two", "succeeded", Some(&two)), refused];
        let record = &self.records[&id];
        let whole = Answered {
            status: 200,
            operation_id: Some(id.clone()),
            expires: record.expires_at.map(|at| at / 1000 * 1000),
            digest: record.response.clone().expect("it is settled"),
            items,
            canaries: record.canaries.clone(),
            ..blank(second)
        };
        self.answer("batches", "reacquired", whole);
    }

    /// Runs work that fails, ends its own transaction, panics, and is refused for good in the end.
    pub(super) fn work_undone(&mut self) {
        let command = self.command("transfers");
        for end in ["failed", "ended"] {
            let request = self.invoke(&command, 0);
            let undone = Some(Undone { effect: self.name(), end: end.into() });
            let told = Answered { status: 503, digest: end.into(), undone, ..blank(request) };
            self.answer("transfers", "executed", told);
        }
        let request = self.invoke(&command, 0);
        self.problem(&command, request, 500, "COMMAND_ROLLED_BACK", None);
        let request = self.invoke(&command, 0);
        let id = self.claim(&command, "processing");
        self.settle(&command, &id, 402, None, "answered");
        let record = &self.records[&id];
        let told = Answered {
            status: 402,
            operation_id: Some(id.clone()),
            expires: record.expires_at.map(|at| at / 1000 * 1000),
            digest: record.response.clone().expect("it is settled"),
            canaries: record.canaries.clone(),
            undone: Some(Undone { effect: self.name(), end: "refused".into() }),
            ..blank(request)
        };
        self.answer("transfers", "executed", told);
    }
}
