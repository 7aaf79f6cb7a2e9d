//! Durations and operations of the simulation, in milliseconds of simulated time.

use std::collections::BTreeMap;
use std::time::Duration;

use semel_checker::event::{Mode, Operation};

/// Shortest travel time of a message. Within one step no participant can notice another, so the simulator runs the
/// nodes one after the other in steps of this length.
pub(crate) const STEP: u64 = 20;

/// Wall time at the beginning of a run.
pub(crate) const EPOCH: i64 = 1_790_000_000_000;

pub(crate) const LEASE: u64 = 2_000;
/// Timeout of a call to the provider.
pub(crate) const TIMEOUT: u64 = 2_500;
/// Margin of the quarantine, longer than the latest message, the latest effect and the lag of the ledger: without it,
/// "not executed" proves nothing.
pub(crate) const MARGIN: u64 = 5_000;
pub(crate) const QUARANTINE: u64 = LEASE + TIMEOUT + MARGIN;
pub(crate) const SWEEP: u64 = 500;
pub(crate) const REAP: u64 = 1_000;
/// Longest wait of a command for a worker.
pub(crate) const START_WITHIN: u64 = 4_000;
/// Longest wait of a duplicate for the first request.
pub(crate) const WAIT: u64 = 300;
/// Timeout of a call to the store.
pub(crate) const STORE_TIMEOUT: u64 = 1_500;

/// Longest delay of a message.
pub(crate) const SLOWEST: u64 = 2_500;
/// Longest delay of a message to or from the store: longer than a lease or a quarantine.
pub(crate) const SLOWEST_STATEMENT: u64 = 12_000;
/// Longest time from a call to its effect at the provider.
pub(crate) const LATEST_EFFECT: u64 = 3_400;
/// Longest lag of the provider's ledger behind an effect.
pub(crate) const LONGEST_LAG: u64 = 1_500;

pub(crate) const SHORT_TTL: u64 = 13_000;
const LONG_TTL: u64 = 24 * 3_600_000;

// A claim that lands after its record was forgotten would create it again: no statement travels for so long.
const _: () = assert!(SLOWEST_STATEMENT + 5 * STEP < SHORT_TTL && SLOWEST_STATEMENT > QUARANTINE);
// An effect that is not in the ledger at the end of a quarantine never will be.
const _: () = assert!(SLOWEST + 5 * STEP + LATEST_EFFECT + LONGEST_LAG < QUARANTINE);

/// Simulated operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    pub(crate) mode: Mode,
    pub(crate) ttl: u64,
    /// True if the provider deduplicates on the operation id.
    pub(crate) deduplicates: bool,
    /// True if lease expiry reruns the command.
    pub(crate) reruns: bool,
    /// Percentage of commands of this kind.
    pub(crate) share: u64,
}

/// Every operation.
pub(crate) const KINDS: [Kind; 5] = [
    Kind {
        name: "payments.create",
        path: "/payments",
        mode: Mode::Sync,
        ttl: LONG_TTL,
        deduplicates: false,
        reruns: false,
        share: 35,
    },
    Kind {
        name: "drafts.create",
        path: "/drafts",
        mode: Mode::Sync,
        ttl: SHORT_TTL,
        deduplicates: false,
        reruns: false,
        share: 15,
    },
    Kind {
        name: "orders.create",
        path: "/orders",
        mode: Mode::Sync,
        ttl: LONG_TTL,
        deduplicates: true,
        reruns: false,
        share: 15,
    },
    Kind {
        name: "reports.create",
        path: "/reports",
        mode: Mode::Async,
        ttl: LONG_TTL,
        deduplicates: false,
        reruns: false,
        share: 20,
    },
    Kind {
        name: "exports.create",
        path: "/exports",
        mode: Mode::Async,
        ttl: LONG_TTL,
        deduplicates: true,
        reruns: true,
        share: 15,
    },
];

impl Kind {
    /// Returns the operation of this name.
    pub(crate) fn named(name: &str) -> Option<Kind> {
        KINDS.into_iter().find(|kind| kind.name == name)
    }
}

/// Returns the operations for the history.
pub(crate) fn operations() -> BTreeMap<String, Operation> {
    let operation = |kind: Kind| Operation {
        mode: kind.mode,
        lease_ms: LEASE as i64,
        ttl_ms: kind.ttl as i64,
        quarantine_ms: QUARANTINE as i64,
        deduplicates: kind.deduplicates,
        parts: Vec::new(),
    };
    KINDS.into_iter().map(|kind| (kind.name.to_owned(), operation(kind))).collect()
}

/// Returns a duration in milliseconds.
pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
