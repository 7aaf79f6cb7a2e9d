//! Faults, and their repair.

use semel_checker::Event;
use semel_checker::event::Fault;

use crate::happening::{Happening, Origin, Trouble};
use crate::link::{Cut, Peer};
use crate::port::Brought;
use crate::settings::{LEASE, QUARANTINE, STEP};
use crate::world::World;

/// Longest pause of a node: longer than any lease or quarantine of its commands.
const LONGEST_PAUSE: u64 = 2 * QUARANTINE;

impl World {
    /// Draws the faults and their times.
    pub(crate) fn plan_faults(&mut self) {
        for _ in 0..self.plan.crashes {
            let node = self.any_node();
            let down = self.chance.between(2 * STEP, 3_000);
            self.breaks(Trouble::Crash(node, down));
        }
        for _ in 0..self.plan.pauses {
            let node = self.any_node();
            let longest = if self.chance.percent(20) { LONGEST_PAUSE } else { 3 * LEASE };
            let time = self.chance.between(300, longest);
            self.breaks(Trouble::Pause(node, time));
        }
        for _ in 0..self.plan.shutdowns {
            let node = self.any_node();
            self.breaks(Trouble::Shutdown(node));
        }
        for _ in 0..self.plan.partitions {
            let peer = [Peer::Clients, Peer::Store, Peer::Provider][self.chance.below(3) as usize];
            let node = Some(self.any_node());
            self.breaks_link(node, peer, 5_000);
        }
        for _ in 0..self.plan.store_outages {
            self.breaks_link(None, Peer::Store, 3_000);
        }
        for _ in 0..self.plan.provider_outages {
            self.breaks_link(None, Peer::Provider, 3_000);
        }
    }

    fn any_node(&mut self) -> usize {
        self.chance.below(self.nodes.len() as u64) as usize
    }

    fn breaks(&mut self, trouble: Trouble) {
        let time = self.chance.below(self.plan.trouble);
        self.at(time, Happening::Trouble(trouble));
    }

    fn breaks_link(&mut self, node: Option<usize>, peer: Peer, longest: u64) {
        let (outward, inward) = match self.chance.below(4) {
            0 => (true, false),
            1 => (false, true),
            _ => (true, true),
        };
        let refuses = self.chance.percent(50);
        let time = self.chance.between(200, longest);
        self.breaks(Trouble::Cut(Cut { node, peer, outward, inward, refuses, until: 0 }, time));
    }

    fn fault(&mut self, kind: &str, target: String, detail: String) {
        let at = self.wall();
        self.note(Event::Fault(Fault { at, kind: kind.to_owned(), target, detail }));
    }

    /// Begins or ends a fault.
    pub(crate) fn trouble(&mut self, trouble: Trouble) {
        match trouble {
            Trouble::Crash(node, down) if !self.quiet && self.nodes[node].process.is_some() => {
                self.fault("kill", self.nodes[node].name.clone(), format!("for {down} ms"));
                self.kill(node);
                self.at(self.now + down, Happening::Trouble(Trouble::Start(node)));
            }
            Trouble::Kill(origin, restart) if self.nodes[origin.node].process_number == origin.process => {
                if self.nodes[origin.node].process.is_some() {
                    self.kill(origin.node);
                    self.at(restart.max(self.now), Happening::Trouble(Trouble::Start(origin.node)));
                }
            }
            Trouble::Start(node) if self.nodes[node].process.is_none() => self.start(node),
            Trouble::Pause(node, time) if !self.quiet && self.nodes[node].process.is_some() => {
                self.fault("pause", self.nodes[node].name.clone(), format!("for {time} ms"));
                if time > LEASE && !self.server.held_by(node).is_empty() {
                    self.coverage.met("a node was paused beyond its lease");
                }
                let end = self.now + time;
                let node = &mut self.nodes[node];
                node.paused_until = Some(node.paused_until.map_or(end, |other| other.max(end)));
            }
            Trouble::Shutdown(node) if !self.quiet => {
                self.fault("shutdown", self.nodes[node].name.clone(), String::new());
                let origin = Origin { node, process: self.nodes[node].process_number };
                self.at(self.now + STEP, Happening::AtNode(origin, Peer::Clients, Brought::Ends));
            }
            Trouble::Cut(cut, time) if !self.quiet => {
                let target = cut.node.map_or("all nodes".to_owned(), |node| self.nodes[node].name.clone());
                let ways = match (cut.outward, cut.inward) {
                    (true, true) => "both ways",
                    (true, false) => "there",
                    (false, true) => "back",
                    (false, false) => "no way",
                };
                let kind = format!("cut from {}", cut.peer.as_str());
                let how = if cut.refuses { "refused" } else { "silent" };
                self.fault(&kind, target, format!("{ways}, {how}, for {time} ms"));
                self.cuts.push(Cut { until: self.now + time, ..cut });
            }
            Trouble::Crash(..)
            | Trouble::Kill(..)
            | Trouble::Start(_)
            | Trouble::Pause(..)
            | Trouble::Shutdown(_)
            | Trouble::Cut(..) => {}
        }
    }
}
