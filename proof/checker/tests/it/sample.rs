//! Good histories, as a service that keeps every promise would leave them. Equal seeds give equal histories.

mod parts;

use std::collections::BTreeMap;

use semel_checker::event::{
    Answered, Called, Command, Committed, Effect, Event, Evidence, Fault, Gone, Invoked, Looked, Lost,
    Message, Metrics, Mode, Operation, PhaseProgress, Quiet, Record, Ruled, Run, Sample, Step, Verdict,
};

/// Start time of the runs.
const BEGIN: i64 = 1_700_000_000_000;
pub(crate) const LEASE: i64 = 1_000;
pub(crate) const QUARANTINE: i64 = 6_000;
/// Time to live of drafts.
pub(crate) const SHORT: i64 = 5_000;
const LONG: i64 = 3_600_000;

/// Deterministic random numbers, by seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Writer of a good history.
struct Scribe {
    events: Vec<Event>,
    now: i64,
    requests: u64,
    effects: u64,
    commands: u64,
    operations: u64,
    looks: u32,
    records: BTreeMap<String, Record>,
    seen: BTreeMap<String, Record>,
    counts: BTreeMap<(String, &'static str), u64>,
    /// Rows of services, messages by event id, and phases by command and name, as the store has them.
    rows: Vec<Committed>,
    outbox: BTreeMap<String, Message>,
    phases: BTreeMap<(String, String), PhaseProgress>,
    chance: Chance,
}

/// Returns a good history of about `commands` commands.
pub(crate) fn good(seed: u64, commands: u64) -> Vec<Event> {
    let mut scribe = Scribe::begin(seed);
    scribe.metrics();
    scribe.commands(commands);
    scribe.lost_answer();
    scribe.event(|at| Event::Quiet(Quiet { at }));
    scribe.metrics();
    scribe.commands(commands / 2);
    scribe.metrics();
    scribe.look(true);
    scribe.messages();
    scribe.events
}

impl Scribe {
    fn begin(seed: u64) -> Scribe {
        let operation = |mode, ttl_ms| Operation {
            mode,
            lease_ms: LEASE,
            ttl_ms,
            quarantine_ms: QUARANTINE,
            deduplicates: false,
            parts: if mode == Mode::Phased { parts::ORDER.map(str::to_owned).to_vec() } else { Vec::new() },
        };
        let operations = BTreeMap::from([
            ("payments".to_owned(), operation(Mode::Sync, LONG)),
            ("drafts".to_owned(), operation(Mode::Sync, SHORT)),
            ("reports".to_owned(), operation(Mode::Async, LONG)),
            ("transfers".to_owned(), operation(Mode::Local, LONG)),
            ("orders".to_owned(), operation(Mode::Phased, LONG)),
            ("charges".to_owned(), operation(Mode::Deferred, LONG)),
            ("batches".to_owned(), operation(Mode::Bulk, LONG)),
        ]);
        let run = Run { at: BEGIN, store: "a test".into(), seed, sweep_ms: 500, rounding_ms: 1, operations };
        Scribe {
            events: vec![Event::Run(run)],
            now: BEGIN,
            requests: 0,
            effects: 0,
            commands: 0,
            operations: 0,
            looks: 0,
            records: BTreeMap::new(),
            seen: BTreeMap::new(),
            counts: BTreeMap::new(),
            rows: Vec::new(),
            outbox: BTreeMap::new(),
            phases: BTreeMap::new(),
            chance: Chance(seed | 1),
        }
    }

    /// Runs commands of every kind whose answer arrives, each at least once, in random order.
    fn commands(&mut self, count: u64) {
        const KINDS: [fn(&mut Scribe); 20] = [
            Scribe::success,
            Scribe::declined,
            Scribe::not_executed_at_first,
            Scribe::store_away_at_first,
            Scribe::unknown_and_executed,
            Scribe::unknown_and_not_executed,
            Scribe::late_word,
            Scribe::draft_twice,
            Scribe::report,
            Scribe::report_that_nobody_confirmed,
            Scribe::transfer,
            Scribe::work_undone,
            Scribe::order_whose_call_was_executed,
            Scribe::order_whose_call_was_not_executed,
            Scribe::order_declined,
            Scribe::charge,
            Scribe::charge_declined,
            Scribe::charge_sent_again,
            Scribe::charge_discarded,
            Scribe::batch,
        ];
        for kind in KINDS {
            kind(self);
        }
        for _ in 0..count {
            let kind = self.chance.below(KINDS.len() as u64);
            KINDS[kind as usize](self);
        }
    }

    fn event(&mut self, event: impl FnOnce(i64) -> Event) {
        self.now += 1 + self.chance.below(20) as i64;
        self.events.push(event(self.now));
    }

    fn command(&mut self, operation: &str) -> Command {
        self.commands += 1;
        Command {
            tenant: format!("tenant-{}", self.commands % 3),
            caller: format!("caller-{}", self.commands % 2),
            operation: operation.into(),
            key: format!("key-{}", self.commands),
        }
    }

    fn invoke(&mut self, command: &Command, payload: u32) -> u64 {
        self.requests += 1;
        let (request, command) = (self.requests, command.clone());
        let (canary, reference) = (canary(&command, payload), reference(&command));
        self.event(|at| {
            Event::Invoked(Invoked { at, request, gateway: "a".into(), command, payload, canary, reference })
        });
        request
    }

    fn answer(&mut self, operation: &str, outcome: &'static str, answered: Answered) {
        // Services with their own database have no counters here.
        if ["payments", "drafts", "reports"].contains(&operation) {
            *self.counts.entry((operation.to_owned(), outcome)).or_default() += 1;
        }
        self.event(|at| Event::Answered(Answered { at, ..answered }));
    }

    /// Records an answer of the gateway itself.
    fn problem(&mut self, command: &Command, request: u64, status: u16, code: &str, id: Option<&str>) {
        let outcome = match (code, status) {
            ("IDEMPOTENCY_REQUEST_IN_PROGRESS", _) => "in_progress",
            ("IDEMPOTENCY_OUTCOME_UNKNOWN", 409) => "unknown",
            // A request for a worker's command runs nothing itself.
            ("IDEMPOTENCY_OUTCOME_UNKNOWN", _) if command.operation == "reports" => "unknown",
            ("IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST", _) => "mismatch",
            ("IDEMPOTENCY_STORE_UNAVAILABLE", _) => "store_error",
            _ => "executed",
        };
        let answered = Answered {
            status,
            code: Some(code.into()),
            operation_id: id.map(str::to_owned),
            digest: format!("{status}-{code}"),
            ..blank(request)
        };
        self.answer(&command.operation, outcome, answered);
    }

    /// Records the stored response as the answer.
    fn stored(&mut self, command: &Command, request: u64, id: &str, replayed: bool) {
        let record = self.records[id].clone();
        let answered = Answered {
            status: record.status.expect("it is settled"),
            operation_id: Some(id.into()),
            replayed,
            expires: record.expires_at.map(|at| at / 1000 * 1000),
            digest: record.response.expect("it is settled"),
            effect: record.effects.first().cloned(),
            canaries: record.canaries,
            ..blank(request)
        };
        let outcome = match (replayed, record.epoch) {
            (true, _) => "replayed",
            (false, 1) => "executed",
            (false, _) => "reacquired",
        };
        self.answer(&command.operation, outcome, answered);
    }

    /// Creates a record, and returns its operation id.
    fn claim(&mut self, command: &Command, state: &str) -> String {
        self.operations += 1;
        let id = format!("operation-{}", self.operations);
        let record = Record {
            look: 0,
            operation_id: id.clone(),
            tenant: command.tenant.clone(),
            caller: command.caller.clone(),
            operation: command.operation.clone(),
            state: String::new(),
            reason: String::new(),
            epoch: 1,
            expires_at: None,
            status: None,
            response: None,
            effects: Vec::new(),
            canaries: Vec::new(),
            steps: Vec::new(),
        };
        self.records.insert(id.clone(), record);
        self.step(&id, 1, state, "claimed");
        id
    }

    fn step(&mut self, id: &str, epoch: u32, state: &str, reason: &str) {
        self.now += 1;
        let (now, record) = (self.now, self.records.get_mut(id).expect("it is there"));
        let ttl = if record.operation == "drafts" { SHORT } else { LONG };
        (record.state, record.reason, record.epoch) = (state.into(), reason.into(), epoch);
        record.expires_at =
            matches!(state, "succeeded" | "failed_final" | "failed_retryable").then_some(now + ttl);
        record.steps.push(Step { at: now, epoch, state: state.into(), reason: reason.into() });
    }

    fn call(&mut self, command: &Command, id: &str, attempt: u32) {
        let (command, id, canary) = (command.clone(), id.to_owned(), canary(command, 0));
        self.event(|at| Event::Called(Called { at, operation_id: id, attempt, command, canary }));
    }

    fn effect(&mut self, command: &Command, id: &str, attempt: u32) -> String {
        self.effects += 1;
        let effect = format!("effect-{}", self.effects);
        let made = Effect {
            at: 0,
            effect: effect.clone(),
            operation_id: id.into(),
            attempt,
            command: command.clone(),
            canary: canary(command, 0),
            reference: reference(command),
        };
        self.event(|at| Event::Effect(Effect { at, ..made }));
        effect
    }

    /// Settles a record with its response.
    fn settle(&mut self, command: &Command, id: &str, status: u16, effect: Option<String>, reason: &str) {
        let epoch = self.records[id].epoch;
        self.step(id, epoch, if status < 400 { "succeeded" } else { "failed_final" }, reason);
        let record = self.records.get_mut(id).expect("it is there");
        record.status = Some(status);
        record.response = Some(format!("{status}-{effect:?}"));
        record.effects = effect.into_iter().collect();
        record.canaries = vec![canary(command, 0)];
    }

    /// Looks at the store: changed and gone records; at the end, all of them.
    fn look(&mut self, last: bool) {
        self.looks += 1;
        let (look, begun) = (self.looks, self.now);
        self.event(|at| Event::Looked(Looked { at, look, begun, last }));
        let now = self.now;
        self.records.retain(|id, record| {
            let expired = record.expires_at.is_some_and(|at| at <= begun);
            if expired && self.seen.remove(id).is_some() {
                self.events.push(Event::Gone(Gone { look, operation_id: id.clone() }));
            }
            !expired
        });
        for (id, record) in &self.records {
            if last || self.seen.get(id) != Some(record) {
                self.events.push(Event::Record(Record { look, ..record.clone() }));
                self.seen.insert(id.clone(), record.clone());
            }
        }
        self.note_phases(look);
        assert!(now >= begun);
    }

    fn metrics(&mut self) {
        let sample = |name: &str, labels: &[(&str, &str)], value| Sample {
            name: name.into(),
            labels: labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            value,
        };
        let mut samples = Vec::new();
        for ((operation, outcome), count) in &self.counts {
            let labels = [("operation", operation.as_str()), ("outcome", *outcome)];
            samples.push(sample("idempotency_claims_total", &labels, *count));
            let other = match *outcome {
                "replayed" => "idempotency_replays_total",
                "in_progress" => "idempotency_in_progress_total",
                "mismatch" => "idempotency_fingerprint_mismatch_total",
                _ => continue,
            };
            samples.push(sample(other, &labels[..1], *count));
        }
        self.event(|at| Event::Metrics(Metrics { at, gateway: "a".into(), process: 7, samples }));
    }

    /// Runs a successful command, with a duplicate that waits, and a request with another payload.
    fn success(&mut self) {
        let command = self.command("payments");
        let first = self.invoke(&command, 0);
        let id = self.claim(&command, "processing");
        self.call(&command, &id, 1);
        let duplicate = self.invoke(&command, 0);
        self.problem(&command, duplicate, 409, "IDEMPOTENCY_REQUEST_IN_PROGRESS", Some(&id));
        let effect = self.effect(&command, &id, 1);
        self.settle(&command, &id, 201, Some(effect), "answered");
        self.stored(&command, first, &id, false);
        self.look(false);
        self.retry(&command, &id);
        let tampered = self.invoke(&command, 1);
        self.problem(&command, tampered, 422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST", None);
    }

    fn retry(&mut self, command: &Command, id: &str) {
        let retry = self.invoke(command, 0);
        self.stored(command, retry, id, true);
    }

    fn declined(&mut self) {
        let command = self.command("payments");
        let first = self.invoke(&command, 0);
        let id = self.claim(&command, "processing");
        self.call(&command, &id, 1);
        self.settle(&command, &id, 402, None, "answered");
        self.stored(&command, first, &id, false);
        self.retry(&command, &id);
    }

    fn lost_answer(&mut self) {
        let command = self.command("payments");
        let request = self.invoke(&command, 0);
        let id = self.claim(&command, "processing");
        self.event(|at| {
            Event::Fault(Fault { at, kind: "cut".into(), target: "a".into(), detail: String::new() })
        });
        self.call(&command, &id, 1);
        *self.counts.entry(("payments".to_owned(), "executed")).or_default() += 1;
        let effect = self.effect(&command, &id, 1);
        self.settle(&command, &id, 201, Some(effect), "answered");
        self.event(|at| Event::Lost(Lost { at, request, why: "the connection was cut".into() }));
        self.retry(&command, &id);
    }

    fn not_executed_at_first(&mut self) {
        let command = self.command("payments");
        let first = self.invoke(&command, 0);
        let id = self.claim(&command, "processing");
        self.call(&command, &id, 1);
        self.step(&id, 1, "failed_retryable", "not_executed");
        let passed = Answered {
            status: 503,
            operation_id: Some(id.clone()),
            digest: "busy".into(),
            canaries: vec![canary(&command, 0)],
            not_executed: Some(1),
            ..blank(first)
        };
        self.answer("payments", "executed", passed);
        self.look(false);
        let second = self.invoke(&command, 0);
        self.again(&command, &id);
        self.stored(&command, second, &id, false);
        self.retry(&command, &id);
    }

    /// Runs the second attempt, which succeeds.
    fn again(&mut self, command: &Command, id: &str) {
        self.step(id, 2, "processing", "claimed");
        self.call(command, id, 2);
        let effect = self.effect(command, id, 2);
        self.settle(command, id, 201, Some(effect), "answered");
    }

    fn store_away_at_first(&mut self) {
        let command = self.command("payments");
        let first = self.invoke(&command, 0);
        self.problem(&command, first, 503, "IDEMPOTENCY_STORE_UNAVAILABLE", None);
        let second = self.invoke(&command, 0);
        let id = self.claim(&command, "processing");
        self.call(&command, &id, 1);
        let effect = self.effect(&command, &id, 1);
        self.settle(&command, &id, 201, Some(effect), "answered");
        self.stored(&command, second, &id, false);
    }

    fn unknown(&mut self, effect: bool) -> (Command, String, Option<String>) {
        let command = self.command("payments");
        let first = self.invoke(&command, 0);
        let id = self.claim(&command, "processing");
        self.call(&command, &id, 1);
        let effect = effect.then(|| self.effect(&command, &id, 1));
        self.step(&id, 1, "unknown", "broke_off");
        self.problem(&command, first, 502, "IDEMPOTENCY_OUTCOME_UNKNOWN", Some(&id));
        self.look(false);
        let retry = self.invoke(&command, 0);
        self.problem(&command, retry, 409, "IDEMPOTENCY_OUTCOME_UNKNOWN", Some(&id));
        (command, id, effect)
    }

    fn rule(&mut self, id: &str, verdict: Verdict, effect: Option<String>, accepted: bool) {
        let operation_id = id.to_owned();
        self.event(|at| Event::Evidence(Evidence { at, operation_id, verdict, effect, part: None }));
        if accepted && verdict == Verdict::NotExecuted {
            self.step(id, 1, "failed_retryable", "verdict_not_executed");
        }
        let operation_id = id.to_owned();
        self.event(|at| {
            Event::Ruled(Ruled { at, operation_id, verdict, accepted: Some(accepted), part: None })
        });
    }

    fn unknown_and_executed(&mut self) {
        let (command, id, effect) = self.unknown(true);
        let operation_id = id.clone();
        let (verdict, found) = (Verdict::Executed, effect.clone());
        self.event(|at| Event::Evidence(Evidence { at, operation_id, verdict, effect: found, part: None }));
        self.settle(&command, &id, 201, effect, "verdict_executed");
        let operation_id = id.clone();
        self.event(|at| Event::Ruled(Ruled { at, operation_id, verdict, accepted: Some(true), part: None }));
        self.retry(&command, &id);
        self.look(false);
        self.retry(&command, &id);
    }

    fn unknown_and_not_executed(&mut self) {
        let (command, id, _) = self.unknown(false);
        self.rule(&id, Verdict::NotExecuted, None, false);
        self.now += QUARANTINE;
        self.rule(&id, Verdict::NotExecuted, None, true);
        let retry = self.invoke(&command, 0);
        self.again(&command, &id);
        self.stored(&command, retry, &id, false);
        self.retry(&command, &id);
    }

    fn late_word(&mut self) {
        let command = self.command("payments");
        let first = self.invoke(&command, 0);
        let id = self.claim(&command, "processing");
        self.event(|at| {
            Event::Fault(Fault { at, kind: "stop".into(), target: "a".into(), detail: String::new() })
        });
        self.call(&command, &id, 1);
        let effect = self.effect(&command, &id, 1);
        self.now += LEASE;
        self.step(&id, 1, "unknown", "lease_expired");
        self.look(false);
        self.settle(&command, &id, 201, Some(effect), "answered");
        self.stored(&command, first, &id, false);
        self.retry(&command, &id);
    }

    /// Uses a key again after its record has expired.
    fn draft_twice(&mut self) {
        let command = self.command("drafts");
        for _ in 0..2 {
            let first = self.invoke(&command, 0);
            let id = self.claim(&command, "processing");
            self.call(&command, &id, 1);
            let effect = self.effect(&command, &id, 1);
            self.settle(&command, &id, 201, Some(effect), "answered");
            self.stored(&command, first, &id, false);
            self.look(false);
            self.retry(&command, &id);
            self.now += SHORT;
            self.look(false);
        }
    }

    /// Runs a command by a worker.
    fn report(&mut self) {
        let command = self.command("reports");
        let first = self.invoke(&command, 0);
        let id = self.claim(&command, "claimed");
        let accepted =
            Answered { status: 202, operation_id: Some(id.clone()), digest: "wait".into(), ..blank(first) };
        self.answer("reports", "accepted", accepted);
        self.carry_out(&command, &id);
    }

    /// Runs a command by a worker after a claim that was stored and not confirmed.
    fn report_that_nobody_confirmed(&mut self) {
        let command = self.command("reports");
        let first = self.invoke(&command, 0);
        let id = self.claim(&command, "claimed");
        self.problem(&command, first, 500, "IDEMPOTENCY_OUTCOME_UNKNOWN", None);
        self.carry_out(&command, &id);
    }

    /// Executes a command as the worker.
    fn carry_out(&mut self, command: &Command, id: &str) {
        self.step(id, 1, "processing", "started");
        *self.counts.entry(("reports".to_owned(), "executed")).or_default() += 1;
        self.call(command, id, 1);
        let effect = self.effect(command, id, 1);
        self.settle(command, id, 201, Some(effect), "answered");
        self.retry(command, id);
    }

    /// Runs a command of a service with its own database; its message is delivered twice.
    fn transfer(&mut self) {
        let command = self.command("transfers");
        let first = self.invoke(&command, 0);
        let id = self.claim(&command, "processing");
        self.effects += 1;
        let effect = format!("effect-{}", self.effects);
        self.commit(&command, &id, None, &effect, Some("made"));
        self.settle(&command, &id, 201, Some(effect), "answered");
        self.stored(&command, first, &id, false);
        self.deliver(&format!("{id}:made"));
    }

    /// Records the rows and messages of services at the end.
    fn messages(&mut self) {
        for row in std::mem::take(&mut self.rows) {
            self.event(|at| Event::Committed(Committed { at, ..row }));
        }
        for message in std::mem::take(&mut self.outbox).into_values() {
            self.event(|at| Event::Message(Message { at, ..message }));
        }
    }
}

fn blank(request: u64) -> Answered {
    Answered {
        at: 0,
        request,
        status: 0,
        code: None,
        operation_id: None,
        replayed: false,
        expires: None,
        digest: String::new(),
        effect: None,
        canaries: Vec::new(),
        not_executed: None,
        undone: None,
        items: Vec::new(),
    }
}

pub(crate) fn canary(command: &Command, payload: u32) -> String {
    format!("canary-{}-{payload}", command.key)
}

/// Returns the business reference, which some of the commands carry.
fn reference(command: &Command) -> Option<String> {
    let carries = ["payments", "orders", "charges", "batches"].contains(&command.operation.as_str());
    (carries && command.key.ends_with('3')).then(|| format!("order-{}", command.key))
}
