//! Faults that a run knows, by the names of the command line, and their order from the seed.

use semel_testkit::Chance;

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// Every process of the leader's PostgreSQL and Patroni is killed.
    Leader,
    /// Those of the synchronous standby.
    Standby,
    /// A member of etcd is killed.
    Etcd,
    /// A gateway is killed.
    Gateway,
    /// The leader and its synchronous standby are killed at once.
    Both,
    /// The leader's link is cut.
    CutLeader,
    /// The synchronous standby's link is cut.
    CutStandby,
    /// The leader is cut from the other nodes; the gateways still reach it.
    CutPeers,
    /// A gateway is cut from all nodes; its clients still reach it.
    CutGateway,
    /// The leader is suspended past the end of its lock, and resumed.
    Pause,
    /// The leader is suspended, and reset before its lock ends, as a watchdog would do.
    PauseReset,
    /// The leader's disk is full.
    Disk,
    /// An operator moves the leader to another node.
    Switchover,
    /// An operator restarts one node after the other.
    Restart,
    /// The leader's clock is set back, then forward.
    Clock,
}

/// Every fault, by its name, with its meaning for people.
pub(crate) const ALL: [(Fault, &str, &str); 15] = [
    (Fault::Leader, "leader", "leader killed"),
    (Fault::Standby, "standby", "synchronous standby killed"),
    (Fault::Etcd, "etcd", "etcd member killed"),
    (Fault::Gateway, "gateway", "gateway killed"),
    (Fault::Both, "both", "leader and synchronous standby killed"),
    (Fault::CutLeader, "cut-leader", "leader cut off"),
    (Fault::CutStandby, "cut-standby", "synchronous standby cut off"),
    (Fault::CutPeers, "cut-peers", "leader cut from its peers only"),
    (Fault::CutGateway, "cut-gateway", "gateway cut from the database"),
    (Fault::Pause, "pause", "leader paused past its lock, no watchdog"),
    (Fault::PauseReset, "pause-reset", "leader paused, reset as by a watchdog"),
    (Fault::Disk, "disk", "leader's disk full"),
    (Fault::Switchover, "switchover", "switchover"),
    (Fault::Restart, "restart", "rolling restart"),
    (Fault::Clock, "clock", "leader's clock back and forward"),
];

/// Sample for every night.
pub(crate) const SAMPLE: [Fault; 5] =
    [Fault::Leader, Fault::CutLeader, Fault::Switchover, Fault::Etcd, Fault::Gateway];

impl Fault {
    /// Returns the name on the command line.
    pub(crate) fn name(self) -> &'static str {
        self.entry().1
    }

    /// Returns the meaning for people.
    pub(crate) fn meaning(self) -> &'static str {
        self.entry().2
    }

    fn entry(self) -> &'static (Fault, &'static str, &'static str) {
        ALL.iter().find(|(fault, ..)| *fault == self).unwrap_or(&ALL[0])
    }

    /// Parses a list of names, separated by commas; `all` and `sample` stand for several.
    pub(crate) fn list(text: &str) -> Result<Vec<Fault>, String> {
        let mut faults = Vec::new();
        for name in text.split(',') {
            match (name, ALL.iter().find(|(_, known, _)| *known == name)) {
                ("all", _) => faults.extend(ALL.map(|(fault, ..)| fault)),
                ("sample", _) => faults.extend(SAMPLE),
                (_, Some((fault, ..))) => faults.push(*fault),
                (_, None) => return Err(format!("`{name}` is no fault; they are {}", names())),
            }
        }
        faults.dedup();
        Ok(faults)
    }
}

/// Returns the names of all faults.
pub(crate) fn names() -> String {
    ALL.map(|(_, name, _)| name).join(", ")
}

/// Endless order of faults: each round has every fault once, in an order of its own.
pub(crate) struct Order {
    chance: Chance,
    faults: Vec<Fault>,
    round: Vec<Fault>,
}

impl Order {
    pub(crate) fn new(seed: u64, faults: &[Fault]) -> Order {
        Order { chance: Chance::of(seed, "faults"), faults: faults.to_vec(), round: Vec::new() }
    }
}

impl Iterator for Order {
    type Item = Fault;

    fn next(&mut self) -> Option<Fault> {
        if self.round.is_empty() {
            self.round = self.faults.clone();
        }
        let chosen = self.chance.index(self.round.len());
        (!self.round.is_empty()).then(|| self.round.swap_remove(chosen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_one_name_that_is_read_again() {
        for (fault, name, _) in ALL {
            assert_eq!((fault.name(), Fault::list(name)), (name, Ok(vec![fault])));
        }
        assert!(Fault::list("leader,flood").is_err_and(|why| why.contains("`flood` is no fault")));
    }

    #[test]
    fn a_round_has_each_fault_once_and_a_seed_repeats_it() {
        let rounds = |seed| Order::new(seed, &SAMPLE).take(2 * SAMPLE.len()).collect::<Vec<_>>();
        let mut first = rounds(3)[..SAMPLE.len()].to_vec();
        first.sort_unstable();
        let mut sample = SAMPLE;
        sample.sort_unstable();
        assert_eq!(first, sample);
        assert_eq!(rounds(3), rounds(3));
        assert_eq!(Order::new(1, &[]).next(), None);
    }
}
