//! Situations that runs have met. A simulation without faults proves nothing: enough seeds must meet every situation
//! named here.

use std::collections::BTreeMap;

use semel_core::transition::{Proof, Refusal, Verdict};
use semel_core::{Change, Claim, Decision, Event, Reason, Record, StateName, StoreAnswer};

use crate::provider::EVENT;

/// Number of times that each situation was met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<&'static str, u64>);

/// Situations that enough seeds must meet.
pub const SITUATIONS: [&str; 55] = [
    AMBIGUOUS_MINE,
    AMBIGUOUS_NOT_ARRIVED,
    AMBIGUOUS_NOT_MINE,
    "a change whose answer was lost had been made",
    "a change whose answer was lost had not arrived",
    "a claim was overtaken by its own release",
    "a claim that nobody could confirm was taken back",
    "a client left",
    "a command was acquired again",
    "a command was put off by one of several reconcilers",
    "a duplicate was told to wait",
    "a key was used again after its time",
    "a lease was renewed",
    "a lookup found an effect",
    "a lookup found a refusal",
    "a lookup found nothing",
    "a lookup found something pending",
    "a lookup got no answer",
    "a node ended in good order",
    "a node was killed after an effect, before it was written down",
    "a node was killed between claim and call",
    "a node was killed with a call under way",
    "a node was paused beyond its lease",
    "a reference was taken",
    "a renewal was fenced",
    "a replay was answered from memory",
    "a replay was answered from the store",
    "a retry was told that nobody knows",
    "a worker put a command back",
    "a worker started a command",
    "a worker started a command again",
    "a worker was overtaken",
    "a zombie was fenced",
    "an event settled a command",
    "an effect came after its executor had given up",
    "an event settled a command that was free to run again",
    "another payload was refused",
    "late word: an unknown was settled by its executor",
    "late word: released, and completed all the same",
    "step: answered",
    "step: broke_off",
    "step: claim_unconfirmed",
    "step: lease_expired",
    "step: never_started",
    "step: not_executed",
    "step: server_error",
    "step: shut_down",
    "step: timed_out",
    "the provider deduplicated a call",
    "the provider sent an event",
    "verdict: deduplicated",
    "verdict: executed",
    "verdict: not executed",
    "verdict: too early",
    "verdict: too late",
];

const AMBIGUOUS_MINE: &str = "a claim whose answer was lost was mine";
const AMBIGUOUS_NOT_ARRIVED: &str = "a claim whose answer was lost had not arrived";
const AMBIGUOUS_NOT_MINE: &str = "a claim whose answer was lost was not mine";

impl Coverage {
    /// Counts a situation.
    pub(crate) fn met(&mut self, situation: &'static str) {
        *self.0.entry(situation).or_default() += 1;
    }

    /// Adds the counts of another coverage.
    pub fn add(&mut self, other: &Coverage) {
        for (situation, times) in &other.0 {
            *self.0.entry(situation).or_default() += times;
        }
    }

    /// Returns the required situations that were not met.
    pub fn lacks(&self) -> Vec<&'static str> {
        SITUATIONS.into_iter().filter(|situation| !self.0.contains_key(situation)).collect()
    }

    /// Returns the count of each situation.
    pub fn times(&self) -> &BTreeMap<&'static str, u64> {
        &self.0
    }

    /// Counts the situations of a claim.
    pub(crate) fn claimed(
        &mut self,
        claim: &Claim,
        before: Option<&Record>,
        answer: &StoreAnswer,
        number: u32,
    ) {
        let was_mine = before.is_some_and(|before| before.head.token == claim.attempt.token);
        let is_mine = answer.record.as_ref().is_some_and(|after| after.head.token == claim.attempt.token);
        if number > 1 {
            self.met(match (was_mine, is_mine) {
                (true, _) => AMBIGUOUS_MINE,
                (false, true) => AMBIGUOUS_NOT_ARRIVED,
                (false, false) => AMBIGUOUS_NOT_MINE,
            });
        }
        let (before_id, after) = (before.map(|before| before.operation_id), answer.record.as_ref());
        match answer.decision {
            Decision::Execute | Decision::Wait if is_mine && !was_mine => {
                if after.is_some_and(|after| after.head.epoch > 1) {
                    self.met("a command was acquired again");
                } else if before_id.is_some() && before_id != after.map(|after| after.operation_id) {
                    self.met("a key was used again after its time");
                }
            }
            Decision::Wait if !is_mine => self.met("a duplicate was told to wait"),
            Decision::Replay => self.met("a replay was answered from the store"),
            Decision::Mismatch => self.met("another payload was refused"),
            Decision::Reconcile => self.met("a retry was told that nobody knows"),
            Decision::Duplicate => self.met("a reference was taken"),
            Decision::Vacant => self.met("a claim was overtaken by its own release"),
            _ => {}
        }
    }

    /// Counts the situations of a change.
    pub(crate) fn applied(
        &mut self,
        change: &Change,
        before: Option<&Record>,
        answer: &StoreAnswer,
        number: u32,
    ) {
        let Some(before) = before else { return };
        let from = before.head.state.name();
        let applied = matches!(answer.decision, Decision::Applied | Decision::Execute);
        if number > 1 && applied {
            let same = answer.record.as_ref().is_some_and(|after| after.head == before.head);
            self.met(if same {
                "a change whose answer was lost had been made"
            } else {
                "a change whose answer was lost had not arrived"
            });
        }
        match (change.event(), answer.decision) {
            (Event::Complete { .. } | Event::Fail { .. }, Decision::Applied)
                if from == StateName::Unknown =>
            {
                self.met("late word: an unknown was settled by its executor");
            }
            (Event::Complete { .. }, Decision::Applied) if from == StateName::FailedRetryable => {
                self.met("late word: released, and completed all the same");
            }
            (Event::Renew { .. }, Decision::Applied) => self.met("a lease was renewed"),
            (Event::Renew { .. }, Decision::Fenced) => self.met("a renewal was fenced"),
            (Event::Start { .. }, Decision::Execute) if before.head.epoch > 1 => {
                self.met("a worker started a command again");
            }
            (Event::Start { .. }, Decision::Execute) => self.met("a worker started a command"),
            (Event::Start { .. }, Decision::Fenced) => self.met("a worker was overtaken"),
            (Event::Requeue { .. }, Decision::Applied) => self.met("a worker put a command back"),
            (Event::Release { reason: Reason::ClaimUnconfirmed, .. }, Decision::Applied) => {
                self.met("a claim that nobody could confirm was taken back");
            }
            (
                Event::Complete { .. }
                | Event::Fail { .. }
                | Event::Release { .. }
                | Event::Requeue { .. }
                | Event::Abandon { .. },
                Decision::Fenced,
            ) => self.met("a zombie was fenced"),
            (Event::Resolve { verdict, .. }, decision) => {
                if decision == Decision::Applied && change.note().is_some_and(|note| note.why == EVENT) {
                    self.met("an event settled a command");
                    if from == StateName::FailedRetryable {
                        self.met("an event settled a command that was free to run again");
                    }
                }
                self.ruled(*verdict, decision);
            }
            (Event::Postpone { .. }, Decision::Refused(Refusal::Overtaken)) => {
                self.met("a command was put off by one of several reconcilers");
            }
            _ => {}
        }
    }

    fn ruled(&mut self, verdict: Verdict, decision: Decision) {
        match (verdict, decision) {
            (Verdict::NotExecuted(Proof::ProviderDeduplicates), Decision::Applied) => {
                self.met("verdict: deduplicated");
            }
            (Verdict::NotExecuted(_), Decision::Applied) => self.met("verdict: not executed"),
            (Verdict::Succeeded | Verdict::FailedFinal, Decision::Applied) => self.met("verdict: executed"),
            (_, Decision::Refused(Refusal::StillInFlight { .. })) => self.met("verdict: too early"),
            (_, Decision::Refused(_)) => self.met("verdict: too late"),
            _ => {}
        }
    }

    /// Counts a record's step for this reason.
    pub(crate) fn stepped(&mut self, reason: Reason) {
        let name = match reason {
            Reason::Answered => "step: answered",
            Reason::BrokeOff => "step: broke_off",
            Reason::ClaimUnconfirmed => "step: claim_unconfirmed",
            Reason::LeaseExpired => "step: lease_expired",
            Reason::NeverStarted => "step: never_started",
            Reason::NotExecuted => "step: not_executed",
            Reason::ServerError => "step: server_error",
            Reason::ShutDown => "step: shut_down",
            Reason::TimedOut => "step: timed_out",
            _ => return,
        };
        self.met(name);
    }
}
