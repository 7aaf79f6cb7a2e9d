//! Settings and times of a run. The times are as short as the promises allow, so that seconds are enough to try them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use semel_checker::event::{Mode, Operation};

/// Options on the command line.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) store: Store,
    pub(crate) seed: u64,
    pub(crate) time: Duration,
    /// Path of the gateway's program.
    pub(crate) program: PathBuf,
    /// True for a setting that breaks the first promise, to see that the checker notices.
    pub(crate) broken: bool,
    /// True if members of two versions work on the store.
    pub(crate) mixed: bool,
    /// Path of the gateway's program in the old version of a mixed run, if it is not the present one.
    pub(crate) old: Option<PathBuf>,
    /// True if the history is kept when nothing is wrong.
    pub(crate) keep: bool,
}

/// Kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// One SQLite file.
    Sqlite,
    /// PostgreSQL server of this run.
    Postgres,
}

impl Store {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Store::Sqlite => "sqlite",
            Store::Postgres => "postgres",
        }
    }

    /// Returns the number of gateways that share the store.
    pub(crate) fn gateways(self) -> usize {
        match self {
            Store::Sqlite => 2,
            Store::Postgres => 3,
        }
    }
}

pub(crate) const LEASE: Duration = Duration::from_millis(1_000);
/// Timeout of a call to the service.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(1_500);
/// Margin of the quarantine, longer than any stop of a process and any delay of the service: without it, "not
/// executed" proves nothing.
pub(crate) const MARGIN: Duration = Duration::from_millis(4_000);
/// Time to live of drafts.
const SHORT_TTL: Duration = Duration::from_secs(6);
const LONG_TTL: Duration = Duration::from_secs(24 * 3600);
pub(crate) const SWEEP: Duration = Duration::from_millis(500);

/// Longest stop of a process.
pub(crate) const LONGEST_STOP: Duration = Duration::from_millis(2_200);
/// Longest time from a call to its effect at the service.
pub(crate) const LATEST_EFFECT: Duration = Duration::from_millis(2_200);
/// Length of a stop, or of a stall of the machine, after which operators wait before they say "not executed".
pub(crate) const LONG_STALL: Duration = Duration::from_millis(2_700);

/// Payments: executed at once by a gateway.
pub(crate) const PAYMENTS: &str = "payments.create";
/// Drafts: records with a short time to live.
pub(crate) const DRAFTS: &str = "drafts.create";
/// Reports: executed by a worker.
pub(crate) const REPORTS: &str = "reports.create";
/// Transfers: executed by a service with records in its own database.
pub(crate) const TRANSFERS: &str = "transfers.create";

/// Orders: executed phase by phase.
pub(crate) const ORDERS: &str = "orders.create";
/// Charges: executed in one transaction, and settled by the delivery of a message.
pub(crate) const CHARGES: &str = "charges.create";
/// Batches: executed item by item; and the operation of the items.
pub(crate) const BATCHES: &str = "batches.create";
pub(crate) const ITEMS: &str = "items.create";

/// Phases of an order: the first and the last are local, the second calls a provider without deduplication, the third
/// one with deduplication.
pub(crate) const RESERVED: &str = "reserved";
pub(crate) const CHARGED: &str = "charged";
pub(crate) const MAILED: &str = "mailed";
pub(crate) const SHIPPED: &str = "shipped";
/// Row of a charge, and kind of the message that settles it.
pub(crate) const ORDERED: &str = "ordered";
pub(crate) const CHARGE: &str = "charge";
/// Deadline of that message, after which the outcome is unknown.
pub(crate) const DEFERRAL: Duration = Duration::from_secs(5);

/// Returns the time for which a call may still be on its way after an outcome became unknown.
pub(crate) fn quarantine() -> Duration {
    LEASE + TIMEOUT + MARGIN
}

/// Returns the operations for the history.
pub(crate) fn operations() -> BTreeMap<String, Operation> {
    let parts = [RESERVED, CHARGED, MAILED, SHIPPED].map(str::to_owned).to_vec();
    let operation = |name: &str, mode, ttl| {
        let operation = Operation {
            mode,
            lease_ms: millis(LEASE),
            ttl_ms: millis(ttl),
            quarantine_ms: millis(quarantine()),
            deduplicates: false,
            parts: if mode == Mode::Phased { parts.clone() } else { Vec::new() },
        };
        (name.to_owned(), operation)
    };
    BTreeMap::from([
        operation(PAYMENTS, Mode::Sync, LONG_TTL),
        operation(DRAFTS, Mode::Sync, SHORT_TTL),
        operation(REPORTS, Mode::Async, LONG_TTL),
        operation(TRANSFERS, Mode::Local, LONG_TTL),
        operation(ORDERS, Mode::Phased, LONG_TTL),
        operation(CHARGES, Mode::Deferred, LONG_TTL),
        operation(BATCHES, Mode::Bulk, LONG_TTL),
        operation(ITEMS, Mode::Bulk, LONG_TTL),
    ])
}

/// Returns the configuration of the gateways.
pub(crate) fn configuration(broken: bool) -> String {
    let on_lease_expired = if broken { "on_lease_expired = \"rerun\"\n" } else { "" };
    format!(
        "[identity]\nsource = \"trusted-headers\"\ntrusted_proxies = [\"127.0.0.1\"]\n\
         tenant_header = \"X-Tenant\"\ncaller_header = \"X-Caller\"\n\n\
         [defaults]\nlease = \"{}ms\"\ntimeout = \"{}ms\"\nquarantine_margin = \"{}ms\"\nttl = \"{}s\"\n{on_lease_expired}\n\
         [maintenance]\nsweep_interval = \"{}ms\"\nreap_interval = \"1s\"\n\n\
         [[operation]]\nname = \"{PAYMENTS}\"\nmatch = \"POST /payments\"\nbusiness_reference = \"/reference\"\n\n\
         [[operation]]\nname = \"{DRAFTS}\"\nmatch = \"POST /drafts\"\nttl = \"{}s\"\n\n\
         [[operation]]\nname = \"{REPORTS}\"\nmatch = \"POST /reports\"\nmode = \"async\"\n",
        LEASE.as_millis(),
        TIMEOUT.as_millis(),
        MARGIN.as_millis(),
        LONG_TTL.as_secs(),
        SWEEP.as_millis(),
        SHORT_TTL.as_secs(),
    )
}

pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

// "Not executed" may be said a quarantine after the outcome became unknown, which is at least a lease after the
// claim: by then every stopped process must run again, and every late effect must have happened.
const _: () = assert!(
    LONGEST_STOP.as_millis() + LATEST_EFFECT.as_millis()
        < LEASE.as_millis() + TIMEOUT.as_millis() + MARGIN.as_millis()
);
