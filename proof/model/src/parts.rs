//! Exhaustive model of commands with several parts: phases, a deferred outcome, a bulk request. Two keys ask for one
//! order, executors and messages die, and an operator gives an early or late verdict on the open call.
//! `semel_core::transition` decides every change of a record. The promises are about the order: each part takes place
//! at most once, no message is lost, and a success has all of its parts.

mod promises;
mod steps;
mod wrong;

use std::time::Duration;

use semel_core::fingerprint::FingerprintVersion;
use semel_core::policy::{OnLeaseExpired, Policy};
use semel_core::transition::{PhaseVerdict, ReferenceWrite, RequestWrite};
use semel_core::{
    Attempt, AttemptToken, ClaimFence, Decision, Event, Fingerprint, Head, Reference, Start, State, Terms,
    Timestamp, Write,
};
use stateright::{Checker, Model, Property};

pub use promises::{PartsPromise, SIGHTS};
pub use steps::PartsStep;
pub use wrong::{ALL as WRONG, PartsCase, PartsVariant};

/// Number of keys that ask for the order.
pub const KEYS: usize = 2;

const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);
const RESUMABLE: Duration = Duration::from_secs(24 * 3600);

/// Kind of command with several parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A local phase with a message, a call without deduplication, and another local phase.
    Phased,
    /// A transaction with a message, whose delivery is the call that settles the command.
    Deferred,
    /// Two items, each its own command under a key derived from the request's key.
    Bulk,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 3] = [Kind::Phased, Kind::Deferred, Kind::Bulk];

    /// Returns the name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Phased => "phases",
            Kind::Deferred => "deferred",
            Kind::Bulk => "bulk",
        }
    }

    /// Returns the number of parts.
    pub const fn parts(self) -> usize {
        match self {
            Kind::Phased => 3,
            Kind::Deferred | Kind::Bulk => 2,
        }
    }

    fn terms(self) -> Terms {
        let on_lease_expired = match self {
            Kind::Phased => OnLeaseExpired::Resume,
            Kind::Deferred | Kind::Bulk => OnLeaseExpired::Unknown,
        };
        Terms { on_lease_expired, ..Policy::default().terms() }
    }
}

/// State of the whole model at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The record of each key.
    pub rows: [Option<Row>; KEYS],
    /// Key that holds the order's reference, and true if it was given back.
    pub reference: Option<(u8, bool)>,
    /// The executor of each key, if there is one.
    pub runs: [Option<Run>; KEYS],
    /// Number of times that each part of the order took place.
    pub parts: [u8; 3],
    /// True if a committed message is gone without delivery.
    pub lost_message: bool,
    /// Verdicts that operators have seen and not given yet.
    pub seen: [Option<Seen>; 2],
    /// Remaining number of deaths of executors and messages.
    pub deaths: u8,
    /// Remaining number of operators' lookups.
    pub looks: u8,
    /// Number of attempts so far: tokens are drawn from it.
    pub attempts: u8,
}

/// Record of a key, with the data stored beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// Head that the protocol decides on.
    pub head: Head,
    /// True if the input is stored.
    pub input: bool,
    /// Parts that are recorded as done.
    pub done: [bool; 3],
    /// True if the call of the second part is recorded as begun.
    pub begun: bool,
    /// True outcome of that call, which the record does not know.
    pub call: Call,
    /// Message of the command.
    pub message: Message,
}

/// Outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// None was made, or the last one provably had no effect.
    None,
    /// The call took place.
    Landed,
}

/// Delivery state of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// No message was committed.
    None,
    /// The message waits for delivery.
    Pending,
    /// The message is not delivered before an operator retries it.
    Dead,
    /// The receiver has the message.
    Delivered,
}

/// An executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// Fence of the executor.
    pub fence: semel_core::Fence,
    /// Next part of this run.
    pub next: u8,
    /// True if this run has begun the call of the second part and has no answer.
    pub calling: bool,
}

/// Observation of an operator about an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Key of the command.
    pub key: u8,
    /// Epoch of the observation.
    pub epoch: u32,
    /// Verdict that follows from it.
    pub verdict: PhaseVerdict,
}

/// Kind of command under the real protocol, or under a wrong one.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Kind of command.
    pub kind: Kind,
    /// Wrong variant; `None` for the real protocol.
    pub variant: Option<PartsVariant>,
}

impl Parts {
    fn is(&self, variant: PartsVariant) -> bool {
        self.variant == Some(variant)
    }

    /// Asks the protocol about the record of a key, and writes the decision.
    fn change(&self, world: &mut World, key: u8, event: &Event, now: Timestamp) -> Decision {
        let at = usize::from(key);
        let before = world.rows[at];
        let step = wrong::decide(self.variant, before.map(|row| row.head).as_ref(), event, now);
        let row = before.unwrap_or(Row {
            head: match step.write {
                Write::Create(head) | Write::Update(head) => head,
                Write::Keep | Write::Delete => return step.decision,
            },
            input: false,
            done: [false; 3],
            begun: false,
            call: Call::None,
            message: Message::None,
        });
        let input = match step.request {
            RequestWrite::Keep => row.input,
            RequestWrite::Store => true,
            RequestWrite::Erase => false,
        };
        world.rows[at] = match step.write {
            Write::Keep => before,
            Write::Delete => None,
            Write::Create(head) | Write::Update(head) => Some(Row { head, input, ..row }),
        };
        match step.reference {
            ReferenceWrite::Keep => {}
            ReferenceWrite::Take => world.reference = Some((key, false)),
            ReferenceWrite::GiveBack | ReferenceWrite::TakeBack => {
                if let Some((_, given_back)) = world.reference.as_mut().filter(|held| held.0 == key) {
                    *given_back = step.reference == ReferenceWrite::GiveBack;
                }
            }
        }
        if step.write == Write::Delete && world.reference == Some((key, true)) {
            world.reference = None;
        }
        step.decision
    }

    fn claim(&self, world: &mut World, key: u8) -> Decision {
        world.attempts += 1;
        let taken = world.reference.is_some_and(|(holder, given_back)| holder != key && !given_back);
        let start = match self.kind {
            Kind::Phased => Start::Resumable(RESUMABLE),
            Kind::Deferred | Kind::Bulk => Start::Now,
        };
        let attempt = Attempt {
            fingerprint: Fingerprint::from_parts(FingerprintVersion::CURRENT, [key; 32]),
            token: AttemptToken::from_bytes([world.attempts; 16]),
            terms: self.kind.terms(),
            start,
            reference: if taken { Reference::Taken } else { Reference::Free },
            fence: ClaimFence::Open,
        };
        self.change(world, key, &Event::Claim(attempt), NOW)
    }
}

impl Model for Parts {
    type State = World;
    type Action = PartsStep;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            rows: [None; KEYS],
            reference: None,
            runs: [None; KEYS],
            parts: [0; 3],
            lost_message: false,
            seen: [None; 2],
            deaths: 2,
            looks: 2,
            attempts: 0,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<PartsStep>) {
        self.possible(world, steps);
    }

    fn next_state(&self, world: &World, step: PartsStep) -> Option<World> {
        let mut next = world.clone();
        self.take(&mut next, step);
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Parts>> {
        let promises = PartsPromise::ALL.into_iter().map(PartsPromise::property);
        let sights = SIGHTS.into_iter().map(|(name, _, is_seen)| Property::sometimes(name, is_seen));
        promises.chain(sights).collect()
    }
}

/// Result of a run of the checker.
#[derive(Debug)]
pub struct PartsWalk {
    /// Number of distinct states.
    pub states: usize,
    /// Broken promises, each with the steps to the violation.
    pub broken: Vec<(PartsPromise, Vec<PartsStep>)>,
    /// Names of the sights that were reached.
    pub seen: Vec<&'static str>,
}

/// Checks every state of a kind with one thread, so the paths are shortest ones.
pub fn walk(parts: &Parts) -> PartsWalk {
    let checker = parts.clone().checker().spawn_bfs().join();
    let mut found = checker.discoveries();
    let broken = PartsPromise::ALL.into_iter().filter_map(|promise| {
        let path = found.remove(promise.name())?.into_vec();
        Some((promise, path.into_iter().filter_map(|(_, step)| step).collect()))
    });
    let broken = broken.collect();
    let seen = SIGHTS.iter().map(|(name, ..)| *name).filter(|name| found.contains_key(name)).collect();
    PartsWalk { states: checker.unique_state_count(), broken, seen }
}

/// Returns true if a record is in state `unknown`.
fn is_unknown(row: &Row) -> bool {
    matches!(row.head.state, State::Unknown { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_command_breaks_no_promise_and_reaches_every_situation() {
        for kind in Kind::ALL {
            let walk = walk(&Parts { kind, variant: None });
            assert!(walk.broken.is_empty(), "{kind:?}: {:#?}", walk.broken);
            assert!(walk.states > 100, "{kind:?}: {} states are not worth a walk", walk.states);
            for (sight, of, _) in SIGHTS.iter().filter(|(_, of, _)| *of == kind) {
                assert!(walk.seen.contains(sight), "{of:?}: never seen: {sight}");
            }
        }
    }

    #[test]
    fn wrong_protocols_of_several_parts_are_refuted() {
        for case in WRONG {
            let walk = walk(&Parts { kind: case.kind, variant: Some(case.variant) });
            let broken: Vec<PartsPromise> = walk.broken.iter().map(|(promise, _)| *promise).collect();
            assert!(broken.contains(&case.breaks), "{}: {broken:?} in {} states", case.name, walk.states);
        }
    }
}
