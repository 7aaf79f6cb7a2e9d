//! Server of the store: the memory store on the simulator's clock, which outlives every node. It also counts the
//! situations that a run meets, since every statement passes here.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use semel_core::transition::{Refusal, Verdict};
use semel_core::{
    AttemptToken, Change, Claim, Clock, Decision, Event, Filter, OperationId, Record, RecordId, Records,
    State, StateName, Store as _, StoreAnswer, StoreError, Timestamp, transition,
};
use semel_stores::MemoryStore;

use crate::broken::Broken;
use crate::coverage::Coverage;
use crate::port::Statement;
use crate::settings::EPOCH;
use crate::store::at_once;
use semel_testkit::Chance;

/// Time between lookup and insert in a racy store.
const RACE_MS: u64 = 400;
/// Percentage of writes that a lossy store loses.
const LOST: u64 = 10;

#[derive(Clone)]
struct SharedClock(Arc<AtomicI64>);

impl Clock for SharedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// Server of the store.
pub(crate) struct Server {
    store: MemoryStore,
    clock: SharedClock,
    broken: Option<Broken>,
    chance: Chance,
    /// Node that has acquired a command, by attempt token.
    holders: BTreeMap<[u8; 16], usize>,
}

/// Statement with its answer.
pub(crate) struct Done {
    pub(crate) told: String,
    pub(crate) answer: Box<dyn Any + Send>,
    /// Verdict on a command, if the statement was one: operation id, executed, accepted.
    pub(crate) ruled: Option<(String, bool, bool)>,
}

impl Server {
    pub(crate) fn new(seed: u64, broken: Option<Broken>) -> Server {
        let clock = SharedClock(Arc::new(AtomicI64::new(EPOCH)));
        let store = MemoryStore::with_clock(clock.clone());
        Server { store, clock, broken, chance: Chance::of(seed, "server"), holders: BTreeMap::new() }
    }

    /// Returns all records, in the order of their operation ids.
    pub(crate) fn records(&self) -> Vec<Record> {
        let filter = Filter { limit: usize::MAX, ..Filter::default() };
        at_once(self.store.list(&filter)).unwrap_or_default().records
    }

    /// Returns a command that keeps its request after its outcome is known, or lacks it before.
    pub(crate) fn misplaced_request(&self) -> Option<OperationId> {
        self.store.misplaced_request()
    }

    /// Returns the records that this node holds.
    pub(crate) fn held_by(&self, node: usize) -> Vec<Record> {
        let mut records = self.records();
        records.retain(|record| {
            matches!(record.head.state, State::Processing { .. })
                && self.holders.get(record.head.token.as_bytes()) == Some(&node)
        });
        records
    }

    /// Executes a statement of this node, sent for the `number`-th time.
    pub(crate) fn carry_out(
        &mut self,
        now: u64,
        node: usize,
        statement: Statement,
        number: u32,
        coverage: &mut Coverage,
    ) -> Done {
        self.clock.0.store(EPOCH + now as i64, Ordering::Relaxed);
        match statement {
            Statement::Claim(claim) => {
                let before = self.record(&claim.scope.record_id());
                let answer = self.claim(&claim, before.as_ref());
                self.acquired(&answer, node, &claim.attempt.token);
                coverage.claimed(&claim, before.as_ref(), &answer, number);
                let told = format!("claim {} {}", claim.scope.key().hash_prefix(), tell(&answer));
                Done { told, answer: Box::new(Ok::<_, StoreError>(answer)), ruled: None }
            }
            Statement::Apply(id, change) => {
                let before = self.record(&id);
                let answer = self.apply(&id, &change, before.as_ref());
                if let Event::Start { token, .. } = change.event() {
                    self.acquired(&answer, node, token);
                }
                coverage.applied(&change, before.as_ref(), &answer, number);
                let told = format!("{} {}", name(change.event()), tell(&answer));
                let ruled = ruled(&change, before.as_ref(), &answer);
                Done { told, answer: Box::new(Ok::<_, StoreError>(answer)), ruled }
            }
            Statement::Other(name, work) => {
                if name == "reap" && self.broken == Some(Broken::EarlyReap) {
                    self.forget_one();
                }
                Done { told: name.to_owned(), answer: work(&self.store), ruled: None }
            }
        }
    }

    fn record(&self, id: &RecordId) -> Option<Record> {
        at_once(self.store.get(id)).ok().and_then(|snapshot| snapshot.record)
    }

    fn acquired(&mut self, answer: &StoreAnswer, node: usize, token: &AttemptToken) {
        if answer.decision == Decision::Execute {
            self.holders.insert(*token.as_bytes(), node);
        }
    }

    fn claim(&mut self, claim: &Claim, before: Option<&Record>) -> StoreAnswer {
        let event = Event::Claim(claim.attempt);
        match self.broken {
            Some(Broken::LostWrite) if self.chance.percent(LOST) => {
                self.pretended(before, &event, Some(claim), None)
            }
            Some(Broken::RacyClaim) if before.is_some_and(|before| self.is_new(before, claim)) => {
                self.pretended(None, &event, Some(claim), None)
            }
            Some(Broken::MissingRequest) => {
                let claim = Claim { request: None, ..claim.clone() };
                at_once(self.store.claim(&claim)).unwrap_or_else(|_| never())
            }
            _ => at_once(self.store.claim(claim)).unwrap_or_else(|_| never()),
        }
    }

    fn is_new(&self, before: &Record, claim: &Claim) -> bool {
        before.head.token != claim.attempt.token
            && before.created_at.plus(crate::settings::millis(RACE_MS)) > self.clock.now()
    }

    fn apply(&mut self, id: &RecordId, change: &Change, before: Option<&Record>) -> StoreAnswer {
        match (self.broken, before) {
            (Some(Broken::LostWrite), _) if self.chance.percent(LOST) => {
                self.pretended(before, change.event(), None, Some(change))
            }
            (Some(Broken::NoFence), Some(record)) => {
                let change = with_any_fence(change, record);
                at_once(self.store.apply(id, &change)).unwrap_or_else(|_| never())
            }
            _ => at_once(self.store.apply(id, change)).unwrap_or_else(|_| never()),
        }
    }

    /// Returns the answer that the store would give, without a write.
    fn pretended(
        &self,
        before: Option<&Record>,
        event: &Event,
        claim: Option<&Claim>,
        change: Option<&Change>,
    ) -> StoreAnswer {
        let now = self.clock.now();
        let step = transition(before.map(|record| &record.head), event, now);
        let record = Record::after(before, step.write, claim, change.and_then(Change::result), now);
        StoreAnswer { decision: step.decision, record, now, holder: None, lapse: step.lapse }
    }

    fn forget_one(&mut self) {
        let settled = self.records().into_iter().find(|record| record.head.state.is_terminal());
        if let Some(record) = settled.filter(|record| record.head.state.name() != StateName::Expired) {
            let _ = at_once(self.store.apply(&record.id, &Change::purge()));
        }
    }
}

fn never() -> StoreAnswer {
    unreachable!("the memory store does not fail")
}

/// Returns the change under the fence of the record's current executor.
fn with_any_fence(change: &Change, record: &Record) -> Change {
    let fence = record.head.fence();
    match (*change.event(), change.result()) {
        (Event::Complete { .. }, Some(result)) => Change::complete(fence, result.clone()),
        (Event::Fail { reason, .. }, Some(result)) => Change::fail(fence, reason, result.clone()),
        (Event::Release { reason, .. }, _) => Change::release(fence, reason),
        (Event::Requeue { reason, after, .. }, _) => Change::requeue(fence, reason, after),
        (Event::Abandon { reason, .. }, _) => Change::abandon(fence, reason),
        (Event::Renew { .. }, _) => Change::renew(fence),
        _ => change.clone(),
    }
}

/// Returns operation id, "executed" flag and "accepted" flag of a verdict.
fn ruled(change: &Change, before: Option<&Record>, answer: &StoreAnswer) -> Option<(String, bool, bool)> {
    let Event::Resolve { verdict, .. } = change.event() else { return None };
    let executed = !matches!(verdict, Verdict::NotExecuted(_));
    Some((before?.operation_id.to_string(), executed, answer.decision == Decision::Applied))
}

fn tell(answer: &StoreAnswer) -> String {
    let decision = match answer.decision {
        Decision::Refused(Refusal::StillInFlight { .. }) => "Refused(StillInFlight)".to_owned(),
        decision => format!("{decision:?}"),
    };
    match &answer.record {
        Some(record) => format!(
            "{} {} {decision} epoch {} {}",
            record.operation_id,
            record.head.state.name().as_str(),
            record.head.epoch,
            record.head.reason.as_str()
        ),
        None => format!("{decision}, no record"),
    }
}

/// Returns the name of an event in a trace.
pub(crate) fn name(event: &Event) -> &'static str {
    match event {
        Event::Claim(_) => "claim",
        Event::Look { .. } => "look",
        Event::Start { .. } => "start",
        Event::Renew { .. } => "renew",
        Event::Complete { .. } => "complete",
        Event::Fail { .. } => "fail",
        Event::Release { .. } => "release",
        Event::Requeue { .. } => "requeue",
        Event::Defer { .. } => "defer",
        Event::Abandon { .. } => "abandon",
        Event::Advance => "advance",
        Event::Age => "age",
        Event::Resolve { .. } => "resolve",
        Event::ResolvePhase { .. } => "resolve phase",
        Event::Postpone { .. } => "postpone",
        Event::Doubt => "doubt",
        Event::Free => "free",
        Event::Purge => "purge",
    }
}
