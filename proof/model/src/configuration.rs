//! Configuration of a model run: participants, policy, and number of faults. Everything is bounded, so the state
//! space is finite.

use std::time::Duration;

use semel_core::policy::{OnExpired, OnLeaseExpired, Policy};
use semel_core::reconcile::ReconcileTerms;
use semel_core::transition::CACHE_RECHECK;
use semel_core::{Start, Terms, Timestamp};

/// Unit of time: the time for which a node may serve a settled record from memory without asking the store.
pub const TICK: Duration = CACHE_RECHECK;

/// The store's present time, a constant. A passing tick moves all other times towards it, so two worlds that differ
/// only in age are one state.
pub const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);

/// Durations in ticks. Only their order matters: it is the order of the shipped defaults.
pub mod ticks {
    /// Length of a lease.
    pub const LEASE: u8 = 1;
    /// Longest time that a call is on its way.
    pub const TIMEOUT: u8 = 1;
    /// Longest pause of an executor between the lease check and the call.
    pub const MARGIN: u8 = 1;
    /// Time to live of a settled record, if records expire: no shorter than a quarantine.
    pub const TTL: u8 = LEASE + TIMEOUT + MARGIN;
    /// Time to live of the tombstone after it, if tombstones are kept.
    pub const TOMBSTONE: u8 = 1;
    /// Longest wait of a command for a worker.
    pub const START_WITHIN: u8 = 2;
    /// Longest pause of a reconciler between its lookup and its verdict.
    pub const LOOK: u8 = 1;
    /// Upper bound of the counted age of a lookup: every quarantine in this model ends sooner.
    pub const LONG_AGO: u8 = 8 * TTL;
    /// Time within which an abandoned statement may still reach the store.
    pub const STRAY: u8 = LEASE;
}

/// Schedule of the reconciler's lookups.
pub const LOOKS: ReconcileTerms = ReconcileTerms { first_delay: TICK, max_delay: TICK, max_attempts: 2 };

/// Returns the duration of `ticks` ticks.
pub fn after(ticks: u8) -> Duration {
    TICK * u32::from(ticks)
}

/// Executor of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The node that received the request.
    Sync,
    /// A worker, later.
    Async,
    /// The node that received the request; workers resume after it. The command has one phase, a call.
    Phased,
}

/// One request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Key that the request carries.
    pub key: u8,
    /// Payload of the request. Another payload has another fingerprint.
    pub payload: u8,
}

/// Number of faults of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Faults {
    /// Crashes of a node.
    pub crashes: u8,
    /// Statements or store answers lost on their way.
    pub losses: u8,
    /// Leaps of the store's clock, forward by a tick.
    pub leaps: u8,
    /// Lookups without an answer.
    pub silences: u8,
}

/// One configuration of the model.
#[derive(Clone, Copy, Debug)]
pub struct Configuration {
    /// Name of the configuration.
    pub name: &'static str,
    /// Purpose of the configuration.
    pub about: &'static str,
    /// Requests that clients send. Requests with equal key and payload are sent in this order.
    pub requests: &'static [Request],
    /// Number of nodes that receive requests: one or two.
    pub nodes: u8,
    /// Executor of commands.
    pub mode: Mode,
    /// Meaning of an expired lease.
    pub on_lease_expired: OnLeaseExpired,
    /// True if the provider deduplicates on the operation id and repeats its answer.
    pub deduplicates: bool,
    /// True if the provider may decline.
    pub declines: bool,
    /// True if all requests carry the same business reference.
    pub reference: bool,
    /// True if settled records expire.
    pub expires: bool,
    /// True if expired records leave a tombstone.
    pub tombstones: bool,
    /// True if the store's answers take time. Answers may be lost in either case.
    pub slow_answers: bool,
    /// Number of lease renewals of each executor.
    pub renewals: u8,
    /// Number of times that workers may start a command.
    pub starts: u8,
    /// Number of operator actions.
    pub operator: u8,
    /// True if an operator may say "not executed" of a command that took place.
    pub operator_errs: bool,
    /// True if the reconciler may pause for any time between its lookup and its verdict.
    pub sleepy_reconciler: bool,
    /// Number of times that the store is restored from a backup: none or one.
    pub restores: u8,
    /// True if the operator of a restored store has lost commands looked up before they run.
    pub looks_up_first: bool,
    /// True if the operator may lift the fence of a restored store.
    pub lifts: bool,
    /// Number of faults of each kind.
    pub faults: Faults,
}

impl Configuration {
    /// Returns the policy terms that go with every claim.
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

    /// Returns the start mode of every claim.
    pub fn start(&self) -> Start {
        match self.mode {
            Mode::Sync => Start::Now,
            Mode::Async => Start::Within(after(ticks::START_WITHIN)),
            Mode::Phased => Start::Resumable(after(ticks::START_WITHIN)),
        }
    }

    /// Returns true if one command may have several effects: the operation is declared safe to repeat or an operator
    /// errs, and the provider does not deduplicate.
    pub fn may_repeat(&self) -> bool {
        (self.on_lease_expired == OnLeaseExpired::Rerun || self.operator_errs) && !self.deduplicates
    }
}
