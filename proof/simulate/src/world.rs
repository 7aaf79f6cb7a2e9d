//! State of the simulation, and the queue of its next events. `course.rs` runs it.

use std::collections::{BTreeMap, BTreeSet};

use semel_checker::Event;
use semel_testkit::Chance;

use crate::broken::Broken;
use crate::coverage::Coverage;
use crate::happening::Happening;
use crate::link::Cut;
use crate::node::Node;
use crate::plan::Plan;
use crate::provider::Provider;
use crate::scribe::Scribe;
use crate::server::Server;
use crate::session::{Open, Session};
use crate::settings::EPOCH;

/// State of the simulation.
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) broken: Option<Broken>,
    pub(crate) plan: Plan,
    pub(crate) now: u64,
    pub(crate) queue: BTreeMap<(u64, u64), Happening>,
    pub(crate) queued: u64,
    pub(crate) chance: Chance,
    pub(crate) nodes: Vec<Node>,
    pub(crate) server: Server,
    pub(crate) provider: Provider,
    pub(crate) cuts: Vec<Cut>,
    pub(crate) sessions: Vec<Session>,
    pub(crate) open: BTreeMap<u64, Open>,
    pub(crate) requests: u64,
    pub(crate) quiet: bool,
    /// Calls that nodes have sent.
    pub(crate) calls: BTreeSet<(String, u32)>,
    pub(crate) scribe: Scribe,
    pub(crate) coverage: Coverage,
    /// Faults that the history does not show.
    pub(crate) wrong: Vec<String>,
}

impl World {
    /// Returns a world before its first event.
    pub(crate) fn new(seed: u64, broken: Option<Broken>, keeps_trace: bool) -> World {
        let plan = Plan::of(seed);
        let nodes = (0..plan.nodes).map(|number| Node {
            name: format!("node-{number}"),
            process_number: 0,
            process: None,
            paused_until: None,
            inbox: Vec::new(),
        });
        World {
            seed,
            broken,
            now: 0,
            queue: BTreeMap::new(),
            queued: 0,
            chance: Chance::of(seed, "network"),
            nodes: nodes.collect(),
            server: Server::new(seed, broken),
            provider: Provider::new(seed, broken),
            cuts: Vec::new(),
            sessions: Vec::new(),
            open: BTreeMap::new(),
            requests: 0,
            quiet: false,
            calls: BTreeSet::new(),
            scribe: Scribe::new(keeps_trace),
            coverage: Coverage::default(),
            wrong: Vec::new(),
            plan,
        }
    }

    /// Queues an event for this time.
    pub(crate) fn at(&mut self, time: u64, happening: Happening) {
        self.queued += 1;
        self.queue.insert((time, self.queued), happening);
    }

    /// Returns the wall time for the history.
    pub(crate) fn wall(&self) -> i64 {
        EPOCH + self.now as i64
    }

    pub(crate) fn note(&mut self, event: Event) {
        self.scribe.note(self.now, event);
    }

    pub(crate) fn say(&mut self, line: &str) {
        self.scribe.say(self.now, line);
    }
}
