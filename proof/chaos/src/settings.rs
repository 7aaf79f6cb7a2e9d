//! What is run, and with which times. They are as short as the promises allow to be tried in seconds.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use semel_checker::event::{Mode, Operation};

/// What a caller of this program wants.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) store: Store,
    pub(crate) seed: u64,
    pub(crate) time: Duration,
    /// The gateway's program.
    pub(crate) program: PathBuf,
    /// With a setting that breaks the first promise, to see that this is noticed.
    pub(crate) broken: bool,
    /// Whether the history stays if nothing is wrong.
    pub(crate) keep: bool,
}

/// Where records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// In one file.
    Sqlite,
    /// On a server of our own.
    Postgres,
}

impl Store {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Store::Sqlite => "sqlite",
            Store::Postgres => "postgres",
        }
    }

    /// How many gateways share it.
    pub(crate) fn gateways(self) -> usize {
        match self {
            Store::Sqlite => 2,
            Store::Postgres => 3,
        }
    }
}

pub(crate) const LEASE: Duration = Duration::from_millis(1_000);
/// How long one call of the service may take.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(1_500);
/// Longer than any process is stopped here, and than the service is late: without that, "not executed" proves nothing.
pub(crate) const MARGIN: Duration = Duration::from_millis(4_000);
/// How long drafts are kept.
const SHORT_TTL: Duration = Duration::from_secs(6);
const LONG_TTL: Duration = Duration::from_secs(24 * 3600);
pub(crate) const SWEEP: Duration = Duration::from_millis(500);

/// A process is stopped for so long at most.
pub(crate) const LONGEST_STOP: Duration = Duration::from_millis(2_200);
/// The service has an effect at most so long after it was called.
pub(crate) const LATEST_EFFECT: Duration = Duration::from_millis(2_200);
/// A stop, or a stall of the machine, that is longer than this makes operators wait before they say "not executed".
pub(crate) const LONG_STALL: Duration = Duration::from_millis(2_700);

/// Paid once, at once.
pub(crate) const PAYMENTS: &str = "payments.create";
/// Kept for a short time only.
pub(crate) const DRAFTS: &str = "drafts.create";
/// Made by a worker.
pub(crate) const REPORTS: &str = "reports.create";
/// Made by a service with records in its own database.
pub(crate) const TRANSFERS: &str = "transfers.create";

/// Made phase by phase.
pub(crate) const ORDERS: &str = "orders.create";
/// Made in one transaction, and settled by the delivery of a message.
pub(crate) const CHARGES: &str = "charges.create";
/// Made item by item, and the operation of the items.
pub(crate) const BATCHES: &str = "batches.create";
pub(crate) const ITEMS: &str = "items.create";

/// The phases of an order: the first and the last are local, the second calls a provider that does not deduplicate, the
/// third one that does.
pub(crate) const RESERVED: &str = "reserved";
pub(crate) const CHARGED: &str = "charged";
pub(crate) const MAILED: &str = "mailed";
pub(crate) const SHIPPED: &str = "shipped";
/// The row of a charge, and the kind of the message that settles it.
pub(crate) const ORDERED: &str = "ordered";
pub(crate) const CHARGE: &str = "charge";
/// How long that message may take before the outcome is called unknown.
pub(crate) const DEFERRAL: Duration = Duration::from_secs(5);

/// After an unknown, a call may still be on its way for so long.
pub(crate) fn quarantine() -> Duration {
    LEASE + TIMEOUT + MARGIN
}

/// The operations, as a history tells them.
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

/// The gateways' configuration.
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

// "Not executed" may be said a quarantine after an unknown, and that comes a lease after the claim at the earliest: by
// then every stopped process must have gone on, and every late effect must have happened.
const _: () = assert!(
    LONGEST_STOP.as_millis() + LATEST_EFFECT.as_millis()
        < LEASE.as_millis() + TIMEOUT.as_millis() + MARGIN.as_millis()
);
