//! Draws of a seed before the run: participants, and rates of faults. Each seed lacks some kinds of faults, since one
//! kind may hide the effects of another.

use crate::settings::{KINDS, Kind, LONGEST_LAG};
use semel_testkit::Chance;

/// Reliability of the link between two kinds of participants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Way {
    /// Percentage of lost messages.
    pub(crate) loses: u64,
    /// Percentage of late messages.
    pub(crate) delays: u64,
}

/// Plan of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) nodes: usize,
    pub(crate) commands: Vec<Asked>,
    /// Duration of the faults.
    pub(crate) trouble: u64,
    pub(crate) clients: Way,
    pub(crate) store: Way,
    pub(crate) provider: Way,
    pub(crate) crashes: u64,
    pub(crate) pauses: u64,
    pub(crate) shutdowns: u64,
    pub(crate) partitions: u64,
    pub(crate) store_outages: u64,
    pub(crate) provider_outages: u64,
    /// Percentage of calls that the provider fails.
    pub(crate) moods: u64,
    /// Lag of the provider's ledger.
    pub(crate) lag: u64,
    /// True if the provider reports pending calls.
    pub(crate) tells_pending: bool,
    /// Percentage of effects that the provider also reports by an event.
    pub(crate) events: u64,
    /// Percentage of clients with a short timeout.
    pub(crate) hasty: u64,
    /// Largest skew of the nodes' wall clocks.
    pub(crate) skew: u64,
    /// Number of tries of a statement, and timeout of each answer.
    pub(crate) tries: u32,
    pub(crate) patience: u64,
}

/// Command that clients ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    pub(crate) tenant: String,
    pub(crate) caller: String,
    pub(crate) key: String,
    pub(crate) reference: Option<String>,
    /// True if a client sends another payload under the same key.
    pub(crate) tampered: bool,
}

impl Plan {
    /// Returns the plan of a seed.
    pub(crate) fn of(seed: u64) -> Plan {
        let mut chance = Chance::of(seed, "plan");
        let chance = &mut chance;
        let some = |chance: &mut Chance, share: u64, from: u64, to: u64| {
            if chance.percent(share) { chance.between(from, to) } else { 0 }
        };
        let way =
            |chance: &mut Chance| Way { loses: some(chance, 50, 1, 12), delays: some(chance, 50, 1, 12) };
        let count = chance.between(5, 15);
        let tampering = some(chance, 50, 5, 40);
        Plan {
            nodes: chance.between(2, 4) as usize,
            commands: (0..count).map(|number| asked(number, tampering, chance)).collect(),
            trouble: chance.between(10_000, 28_000),
            clients: way(chance),
            store: way(chance),
            provider: way(chance),
            crashes: some(chance, 50, 1, 6),
            pauses: some(chance, 50, 1, 5),
            shutdowns: some(chance, 30, 1, 3),
            partitions: some(chance, 60, 1, 8),
            store_outages: some(chance, 30, 1, 3),
            provider_outages: some(chance, 30, 1, 3),
            moods: some(chance, 70, 10, 70),
            lag: some(chance, 50, 100, LONGEST_LAG),
            tells_pending: chance.percent(50),
            events: some(chance, 50, 10, 100),
            hasty: some(chance, 50, 5, 40),
            skew: some(chance, 50, 100, 120_000),
            tries: chance.between(1, 4) as u32,
            patience: chance.between(150, 600),
        }
    }
}

/// Draws a command. Two in a row share a key under different tenants; some share a reference.
fn asked(number: u64, tampering: u64, chance: &mut Chance) -> Asked {
    let mut left = chance.below(100);
    let mut kind = KINDS[0];
    for candidate in KINDS {
        kind = candidate;
        if left < candidate.share {
            break;
        }
        left -= candidate.share;
    }
    let referring = kind.name == KINDS[0].name && chance.percent(40);
    Asked {
        number,
        kind,
        tenant: format!("tenant-{}", number % 2),
        caller: format!("caller-{}", chance.below(2)),
        key: format!("key-{:06}-0123456789", number / 2),
        reference: referring.then(|| format!("order-{:03}", number / 4)),
        tampered: chance.percent(tampering),
    }
}
