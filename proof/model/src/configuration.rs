//! What is tried: who takes part, under which policy, and how much may go wrong. A configuration bounds everything, so
//! that its space of states closes.

use std::time::Duration;

use semel_core::policy::{OnExpired, OnLeaseExpired, Policy};
use semel_core::reconcile::ReconcileTerms;
use semel_core::transition::CACHE_RECHECK;
use semel_core::{Start, Terms, Timestamp};

/// The unit of time: as long as a node may serve a settled record from memory without asking.
pub const TICK: Duration = CACHE_RECHECK;

/// The store's present. Time does not move it: it moves everything else towards it, so that two worlds that differ in
/// nothing but their age are one state.
pub const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);

/// How long things take, in ticks. What counts is their order: it is that of the shipped defaults.
pub mod ticks {
    /// How long a claim holds.
    pub const LEASE: u8 = 1;
    /// How long a call may be on its way.
    pub const TIMEOUT: u8 = 1;
    /// How long an executor may sleep between looking at its lease and sending.
    pub const MARGIN: u8 = 1;
    /// How long a settled record is kept, where it is not kept for good: no shorter than a quarantine.
    pub const TTL: u8 = LEASE + TIMEOUT + MARGIN;
    /// How long a tombstone follows it, where one is kept.
    pub const TOMBSTONE: u8 = 1;
    /// How long a command may wait for a worker.
    pub const START_WITHIN: u8 = 2;
    /// How long a reconciler may sleep between its look and its word.
    pub const LOOK: u8 = 1;
    /// How long ago a look was, where it was longer ago: no quarantine of this model can be over that long.
    pub const LONG_AGO: u8 = 8 * TTL;
    /// How long a statement that nobody waits for may still reach the store.
    pub const STRAY: u8 = LEASE;
}

/// How often evidence is sought.
pub const LOOKS: ReconcileTerms = ReconcileTerms { first_delay: TICK, max_delay: TICK, max_attempts: 2 };

/// So many ticks.
pub fn after(ticks: u8) -> Duration {
    TICK * u32::from(ticks)
}

/// Who runs a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The node that the request came to.
    Sync,
    /// A worker, later.
    Async,
    /// The node that the request came to, and workers go on where it left off. The command has one phase, a call.
    Phased,
}

/// One request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which key it carries.
    pub key: u8,
    /// What it asks for. Another payload has another fingerprint.
    pub payload: u8,
}

/// How often each thing may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Faults {
    /// A node dies.
    pub crashes: u8,
    /// A statement, or its answer, is lost on its way.
    pub losses: u8,
    /// The store's clock leaps forward by a tick.
    pub leaps: u8,
    /// A look-up gets no answer.
    pub silences: u8,
}

/// What is tried.
#[derive(Clone, Copy, Debug)]
pub struct Configuration {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// The requests that clients send. Those with the same key and payload are sent in this order.
    pub requests: &'static [Request],
    /// How many nodes they come to, one or two.
    pub nodes: u8,
    /// Who runs commands.
    pub mode: Mode,
    /// What an ended lease means.
    pub on_lease_expired: OnLeaseExpired,
    /// Whether the provider deduplicates on the operation id, answers included.
    pub deduplicates: bool,
    /// Whether the provider may decline.
    pub declines: bool,
    /// Whether all requests carry the same business reference.
    pub reference: bool,
    /// Whether settled records expire.
    pub expires: bool,
    /// Whether tombstones follow them.
    pub tombstones: bool,
    /// Whether the store's answers take time. Where they do not, they may still be lost.
    pub slow_answers: bool,
    /// How often each executor may renew its lease.
    pub renewals: u8,
    /// How often a worker may start a command.
    pub starts: u8,
    /// How often an operator may act.
    pub operator: u8,
    /// Whether an operator may say "not executed" of what took place.
    pub operator_errs: bool,
    /// Whether the reconciler may sleep for any time between its look and its word.
    pub sleepy_reconciler: bool,
    /// How often each thing may go wrong.
    pub faults: Faults,
}

impl Configuration {
    /// The policy that goes with every claim.
    pub fn terms(&self) -> Terms {
        let policy = Policy {
            lease: after(ticks::LEASE),
            timeout: after(ticks::TIMEOUT),
            quarantine_margin: after(ticks::MARGIN),
            ttl: if self.expires { after(ticks::TTL) } else { Duration::MAX },
            tombstone_ttl: after(ticks::TOMBSTONE),
            on_expired: if self.tombstones { OnExpired::Refuse } else { OnExpired::Forget },
            on_lease_expired: self.on_lease_expired,
            ..Policy::default()
        };
        policy.terms()
    }

    /// Who runs what is claimed.
    pub fn start(&self) -> Start {
        match self.mode {
            Mode::Sync => Start::Now,
            Mode::Async => Start::Within(after(ticks::START_WITHIN)),
            Mode::Phased => Start::Resumable(after(ticks::START_WITHIN)),
        }
    }

    /// Whether one command may have several effects: the operation is declared safe to repeat, or an operator errs, and nobody
    /// deduplicates.
    pub fn may_repeat(&self) -> bool {
        (self.on_lease_expired == OnLeaseExpired::Rerun || self.operator_errs) && !self.deduplicates
    }
}
