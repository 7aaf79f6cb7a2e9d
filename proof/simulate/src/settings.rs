//! The times that everybody here goes by, and the operations. In milliseconds of simulated time.

use std::collections::BTreeMap;
use std::time::Duration;

use semel_checker::event::{Mode, Operation};

/// No message is under way for less than this, so within this time nobody can notice what another one does: nodes are run
/// one after the other in steps of this length.
pub(crate) const STEP: u64 = 20;

/// What a wall clock shows at the beginning.
pub(crate) const EPOCH: i64 = 1_790_000_000_000;

pub(crate) const LEASE: u64 = 2_000;
/// How long one call of the provider may take.
pub(crate) const TIMEOUT: u64 = 2_500;
/// Longer than a message is late, the provider is late and its ledger lags: without that, "not executed" proves nothing.
pub(crate) const MARGIN: u64 = 5_000;
pub(crate) const QUARANTINE: u64 = LEASE + TIMEOUT + MARGIN;
pub(crate) const SWEEP: u64 = 500;
pub(crate) const REAP: u64 = 1_000;
/// How long a command waits for a worker.
pub(crate) const START_WITHIN: u64 = 4_000;
/// How long a duplicate waits for the one before it.
pub(crate) const WAIT: u64 = 300;
/// How long one call of the store may take.
pub(crate) const STORE_TIMEOUT: u64 = 1_500;

/// How late a message may be.
pub(crate) const SLOWEST: u64 = 2_500;
/// And one to or from the store: longer than a lease or a quarantine.
pub(crate) const SLOWEST_STATEMENT: u64 = 12_000;
/// The provider has an effect at most so long after it was called.
pub(crate) const LATEST_EFFECT: u64 = 3_400;
/// Its ledger may show an effect so much later.
pub(crate) const LONGEST_LAG: u64 = 1_500;

pub(crate) const SHORT_TTL: u64 = 13_000;
const LONG_TTL: u64 = 24 * 3_600_000;

// A claim that lands after its record was forgotten would make it anew: no statement is under way for so long.
const _: () = assert!(SLOWEST_STATEMENT + 5 * STEP < SHORT_TTL && SLOWEST_STATEMENT > QUARANTINE);
// What is not in the ledger when a quarantine is over never will be.
const _: () = assert!(SLOWEST + 5 * STEP + LATEST_EFFECT + LONGEST_LAG < QUARANTINE);

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    pub(crate) mode: Mode,
    pub(crate) ttl: u64,
    /// Whether the provider deduplicates on the operation id.
    pub(crate) deduplicates: bool,
    /// Whether an ended lease lets it run again.
    pub(crate) reruns: bool,
    /// How many in a hundred commands are of this kind.
    pub(crate) share: u64,
}

/// All operations.
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
    /// The operation of this name.
    pub(crate) fn named(name: &str) -> Option<Kind> {
        KINDS.into_iter().find(|kind| kind.name == name)
    }
}

/// The operations, as a history tells them.
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

/// So many milliseconds.
pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
