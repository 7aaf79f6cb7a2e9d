//! Options, times and configuration of a run.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use semel_checker::event::{Mode, Operation};

use crate::faults::{ALL, Fault};

/// API of etcd that Patroni uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Etcd {
    /// Version 2: the leader's lock is renewed by comparing it.
    Second,
    /// Version 3: Patroni 3.0.2 renews the lock without comparing it, and so takes a newer leader's lock.
    Third,
}

/// Options on the command line.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) seed: u64,
    /// Faults that the run chooses from.
    pub(crate) faults: Vec<Fault>,
    /// Least number of failovers; with 0, each fault strikes once.
    pub(crate) failovers: u64,
    /// Least number of acknowledged commands.
    pub(crate) commands: u64,
    /// New commands in a second.
    pub(crate) rate: u64,
    /// Time after which no further fault begins.
    pub(crate) time: Duration,
    /// True for asynchronous replication, whose loss the checker must find.
    pub(crate) asynchronous: bool,
    /// True for plain replication on the loopback address, without root.
    pub(crate) loopback: bool,
    /// API of etcd that Patroni uses.
    pub(crate) etcd: Etcd,
    /// True if the history is kept when nothing is wrong.
    pub(crate) keep: bool,
    /// Path of the gateway's program.
    pub(crate) program: PathBuf,
}

impl Options {
    /// Sets the faults of this kind of run, if none were named, and refuses those that it cannot inject.
    pub(crate) fn choose_faults(&mut self) -> Result<(), String> {
        let usual: Vec<Fault> = match (self.loopback, self.asynchronous) {
            (true, _) => vec![Fault::Leader],
            (false, true) => vec![Fault::CutPeers],
            (false, false) => ALL.map(|(fault, ..)| fault).to_vec(),
        };
        if self.faults.is_empty() {
            self.faults = usual;
        }
        if self.loopback && self.faults != [Fault::Leader] {
            return Err("--loopback knows only the fault `leader`".into());
        }
        Ok(())
    }
}

/// Number of gateways.
pub(crate) const GATEWAYS: usize = 3;

/// Patroni's times. A leader that cannot renew its key gives up within `TTL`; another one takes over after it.
pub(crate) const TTL: Duration = Duration::from_secs(10);
pub(crate) const LOOP_WAIT: Duration = Duration::from_secs(2);
pub(crate) const RETRY_TIMEOUT: Duration = Duration::from_secs(3);

/// Shift of a node's clock.
pub(crate) const SKEW: Duration = Duration::from_secs(30);
/// Rounding of times: PostgreSQL's store rounds to the nearest millisecond; times of the history are truncated.
const ROUNDING_MS: i64 = 1;

const LEASE: Duration = Duration::from_secs(10);
/// Timeout of a call to the service.
const TIMEOUT: Duration = Duration::from_secs(3);
const MARGIN: Duration = Duration::from_secs(5);
const TTL_OF_RECORDS: Duration = Duration::from_secs(24 * 3600);
pub(crate) const SWEEP: Duration = Duration::from_secs(1);

/// Payments: executed at once by a gateway.
pub(crate) const PAYMENTS: &str = "payments.create";

/// Returns the operations for the history.
pub(crate) fn operations() -> BTreeMap<String, Operation> {
    let operation = Operation {
        mode: Mode::Sync,
        lease_ms: millis(LEASE),
        ttl_ms: millis(TTL_OF_RECORDS),
        quarantine_ms: millis(LEASE + TIMEOUT + MARGIN),
        deduplicates: false,
        parts: Vec::new(),
    };
    BTreeMap::from([(PAYMENTS.to_owned(), operation)])
}

/// Returns the largest lead of the store's clock over the history's.
pub(crate) fn rounding_ms(options: &Options) -> i64 {
    if options.faults.contains(&Fault::Clock) { millis(SKEW) + 2_000 } else { ROUNDING_MS }
}

/// Returns the configuration of the gateways, which trust the tenant that a client at this address names.
pub(crate) fn configuration(clients: Ipv4Addr) -> String {
    format!(
        "[identity]\nsource = \"trusted-headers\"\ntrusted_proxies = [\"{clients}\"]\n\
         tenant_header = \"X-Tenant\"\ncaller_header = \"X-Caller\"\n\n\
         [defaults]\nlease = \"{}s\"\ntimeout = \"{}s\"\nquarantine_margin = \"{}s\"\nttl = \"{}s\"\n\n\
         [maintenance]\nsweep_interval = \"{}s\"\n\n\
         [[operation]]\nname = \"{PAYMENTS}\"\nmatch = \"POST /payments\"\n",
        LEASE.as_secs(),
        TIMEOUT.as_secs(),
        MARGIN.as_secs(),
        TTL_OF_RECORDS.as_secs(),
        SWEEP.as_secs(),
    )
}

pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
