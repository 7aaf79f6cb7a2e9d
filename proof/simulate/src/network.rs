//! Network between clients, nodes, the store and the provider: messages are lost, late or refused, and links are cut
//! in one direction or both.

use semel_core::Statement as Said;
use semel_testkit::Chance;

use crate::happening::{Happening, Origin};
use crate::link::{Cut, Peer};
use crate::node::{Node, Process, Start};
use crate::port::{Answer, Brought, Question, Reply};
use crate::settings::{SLOWEST, SLOWEST_STATEMENT, STEP};
use crate::world::World;

/// Fate of a message.
enum Fate {
    /// The message arrives at this time.
    Arrives(u64),
    /// The message is lost without notice.
    Lost,
    /// The message is lost and the connection breaks: both ends notice at this time.
    Breaks(u64),
    /// The message was not sent: its sender notices at this time.
    Refused(u64),
}

impl World {
    fn cut(&self, node: usize, peer: Peer, outward: bool) -> Option<&Cut> {
        self.cuts.iter().find(|cut| {
            cut.until > self.now
                && cut.node.is_none_or(|cut| cut == node)
                && cut.peer == peer
                && if outward { cut.outward } else { cut.inward }
        })
    }

    /// Returns true if the link is cut now.
    pub(crate) fn is_cut(&self, node: usize, peer: Peer, outward: bool) -> bool {
        self.cut(node, peer, outward).is_some()
    }

    fn fate(&mut self, node: usize, peer: Peer, outward: bool) -> Fate {
        let way = match peer {
            Peer::Clients => self.plan.clients,
            Peer::Store => self.plan.store,
            Peer::Provider => self.plan.provider,
        };
        let soon = self.now + self.chance.between(STEP, 4 * STEP);
        if let Some(cut) = self.cut(node, peer, outward) {
            return if cut.refuses && outward { Fate::Refused(soon) } else { Fate::Lost };
        }
        if self.chance.percent(way.loses) {
            return if self.chance.percent(40) { Fate::Breaks(soon) } else { Fate::Lost };
        }
        if !self.chance.percent(way.delays) {
            return Fate::Arrives(soon);
        }
        let very = peer == Peer::Store && self.chance.percent(25);
        let slowest = if very { SLOWEST_STATEMENT } else { SLOWEST };
        Fate::Arrives(soon + self.chance.between(100, slowest))
    }

    /// Sends a question of a process to the store or the provider.
    pub(crate) fn route_question(&mut self, origin: Origin, number: u64, question: Question) {
        let peer = match &question {
            Question::Store(..) => Peer::Store,
            Question::Provider(_) | Question::LookUp(_) => Peer::Provider,
        };
        match self.fate(origin.node, peer, true) {
            Fate::Arrives(time) => {
                let happening = match question {
                    Question::Store(statement, tries) => Happening::AtStore(origin, number, statement, tries),
                    Question::Provider(call) => Happening::AtProvider(origin, number, call),
                    Question::LookUp(record) => Happening::AtLedger(origin, number, record),
                };
                self.at(time, happening);
            }
            Fate::Lost => self.say(&format!("node-{} to {}: lost", origin.node, peer.as_str())),
            Fate::Breaks(time) => self.bring(time, origin, peer, Brought::Answer(number, Answer::Broken)),
            Fate::Refused(time) => self.bring(time, origin, peer, Brought::Answer(number, Answer::Refused)),
        }
    }

    /// Sends an answer to a process, after some time.
    pub(crate) fn answer(&mut self, origin: Origin, peer: Peer, number: u64, answer: Answer, after: u64) {
        match self.fate(origin.node, peer, false) {
            Fate::Arrives(time) => {
                self.at(time + after, Happening::AtNode(origin, peer, Brought::Answer(number, answer)));
            }
            Fate::Lost => self.say(&format!("{} to node-{}: lost", peer.as_str(), origin.node)),
            Fate::Breaks(time) | Fate::Refused(time) => {
                self.bring(time, origin, peer, Brought::Answer(number, Answer::Broken));
            }
        }
    }

    /// Sends an event of the provider to a process.
    pub(crate) fn bring_event(&mut self, origin: Origin, said: Box<Said>) {
        match self.fate(origin.node, Peer::Provider, false) {
            Fate::Arrives(time) => {
                self.at(time, Happening::AtNode(origin, Peer::Provider, Brought::Event(said)));
            }
            Fate::Lost | Fate::Breaks(_) | Fate::Refused(_) => {
                self.say(&format!("event to node-{}: lost", origin.node));
            }
        }
    }

    fn bring(&mut self, time: u64, origin: Origin, peer: Peer, brought: Brought) {
        self.say(&format!("node-{} and {}: no connection", origin.node, peer.as_str()));
        self.at(time, Happening::AtNode(origin, peer, brought));
    }

    /// Sends an answer of a process to a client.
    pub(crate) fn route_answer(&mut self, origin: Origin, request: u64, reply: Box<Reply>) {
        if let Some(open) = self.open.get_mut(&request) {
            open.at_once = open.arrived == Some(self.now);
        }
        match self.fate(origin.node, Peer::Clients, true) {
            Fate::Arrives(time) => self.at(time, Happening::AtClient(request, reply)),
            Fate::Lost => self.say(&format!("node-{} to client {request}: lost", origin.node)),
            Fate::Breaks(time) | Fate::Refused(time) => {
                self.at(time, Happening::Lost(request, "the connection broke"));
            }
        }
    }

    /// Sends a message of a client to the node's current process.
    pub(crate) fn route_to_node(&mut self, node: usize, request: Option<u64>, brought: Brought) {
        let origin = Origin { node, process: self.nodes[node].process_number };
        match self.fate(node, Peer::Clients, false) {
            Fate::Arrives(time) => self.at(time, Happening::AtNode(origin, Peer::Clients, brought)),
            Fate::Lost => self.say(&format!("client to node-{node}: lost")),
            Fate::Breaks(time) | Fate::Refused(time) => {
                if let Some(request) = request {
                    self.at(time, Happening::Lost(request, "the connection broke"));
                }
            }
        }
    }

    /// Delivers a message to a node, if the addressed process still runs.
    pub(crate) fn at_node(&mut self, origin: Origin, peer: Peer, brought: Brought) {
        let knows = matches!(brought, Brought::Answer(_, Answer::Refused | Answer::Broken) | Brought::Ends);
        let there = {
            let node = &self.nodes[origin.node];
            node.process.is_some() && node.process_number == origin.process
        };
        if let Brought::Request(request, _) = &brought {
            let request = *request;
            if !there {
                self.at(self.now + STEP, Happening::Lost(request, "nobody is there"));
                return;
            }
            if let Some(open) = self.open.get_mut(&request) {
                open.arrived = Some(self.now);
            }
        }
        if there && (knows || !self.is_cut(origin.node, peer, false)) {
            let now = self.now;
            self.nodes[origin.node].inbox.push((now, brought));
        }
    }

    /// Starts a process.
    pub(crate) fn start(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        node.process_number += 1;
        node.paused_until = None;
        node.inbox.clear();
        let name = format!("{} process {}", node.name, node.process_number);
        let start = Start {
            // A process starts at the beginning of a step.
            now: self.now / STEP * STEP,
            chance: Chance::of(self.seed, &name),
            plan: &self.plan,
            broken: self.broken,
        };
        match Process::start(start) {
            Ok(process) => node.process = Some(process),
            Err(why) => self.wrong.push(format!("{name} does not start: {why}")),
        }
        self.say(&format!("{name} begins"));
    }

    /// Kills a process. Its waiting clients learn that the connection broke.
    pub(crate) fn kill(&mut self, number: usize) {
        self.left_behind(number);
        let node: &mut Node = &mut self.nodes[number];
        node.process = None;
        node.inbox.clear();
        node.paused_until = None;
        let waiting: Vec<u64> =
            self.open.iter().filter(|(_, open)| open.node == number).map(|(request, _)| *request).collect();
        for request in waiting {
            self.at(self.now + 2 * STEP, Happening::Lost(request, "the connection broke"));
        }
    }

    /// Records the situations of commands that a killed node holds.
    fn left_behind(&mut self, node: usize) {
        for record in self.server.held_by(node) {
            let (id, attempt) = (record.operation_id.to_string(), record.head.epoch);
            let called = self.calls.contains(&(id.clone(), attempt));
            self.coverage.met(match (called, self.provider.has_acted(&id, attempt)) {
                (_, true) => "a node was killed after an effect, before it was written down",
                (true, false) => "a node was killed with a call under way",
                (false, false) => "a node was killed between claim and call",
            });
        }
    }
}
