//! What a seed draws before anything happens: who takes part, and what goes wrong how often. Each seed has some kinds of
//! faults and lacks others, since one kind may hide what another one shows.

use crate::settings::{KINDS, Kind, LONGEST_LAG};
use semel_testkit::Chance;

/// How bad the way between two kinds of participants is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Way {
    /// So many messages in a hundred are lost.
    pub(crate) loses: u64,
    /// So many are late.
    pub(crate) delays: u64,
}

/// What happens to a seed.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) nodes: usize,
    pub(crate) commands: Vec<Asked>,
    /// How long things are broken.
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
    /// So many calls in a hundred meet a provider in a bad mood.
    pub(crate) moods: u64,
    /// How far the provider's ledger is behind.
    pub(crate) lag: u64,
    /// Whether it says what it is still at.
    pub(crate) tells_pending: bool,
    /// So many effects in a hundred are told by an event of their own.
    pub(crate) events: u64,
    /// So many clients in a hundred have little patience.
    pub(crate) hasty: u64,
    /// By how much the wall clocks of nodes are off, at most.
    pub(crate) skew: u64,
    /// How often a statement is sent, and how long each answer may take.
    pub(crate) tries: u32,
    pub(crate) patience: u64,
}

/// A command that somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    pub(crate) tenant: String,
    pub(crate) caller: String,
    pub(crate) key: String,
    pub(crate) reference: Option<String>,
    /// Whether somebody sends another payload under the same key.
    pub(crate) tampered: bool,
}

impl Plan {
    /// What this seed draws.
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

/// Two commands in a row may share a key, and belong to others; some share a reference.
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
