//! Clients: several of them retry each command until it has a final answer.

use bytes::Bytes;
use http::Request;
use semel_checker::Event;
use semel_checker::event::{Answered, Command, Invoked, Lost};
use serde_json::json;

use crate::happening::Happening;
use crate::plan::Asked;
use crate::port::{Brought, Reply};
use crate::reading::{self, CANARY};
use crate::session::{Open, Session};
use crate::world::World;

/// Number of tries of a client while faults happen.
const TRIES: u32 = 8;
/// Shortest and longest timeout of impatient clients, and of the others.
const HASTY: (u64, u64) = (50, 500);
const PATIENT: (u64, u64) = (2_000, 7_000);

impl Asked {
    fn command(&self) -> Command {
        Command {
            tenant: self.tenant.clone(),
            caller: self.caller.clone(),
            operation: self.kind.name.to_owned(),
            key: self.key.clone(),
        }
    }

    fn canary(&self, payload: u32) -> String {
        format!("{CANARY}{:08x}-{payload}", self.number)
    }

    fn request(&self, payload: u32) -> Option<Request<Bytes>> {
        let mut body = json!({ "canary": self.canary(payload), "amount": self.number });
        if let Some(reference) = &self.reference {
            body["reference"] = reference.as_str().into();
        }
        let request = Request::builder()
            .method("POST")
            .uri(self.kind.path)
            .header("host", "simulated")
            .header("content-type", "application/json")
            .header("idempotency-key", &self.key)
            .header("x-tenant", &self.tenant)
            .header("x-caller", &self.caller)
            .body(Bytes::from(body.to_string()));
        request.ok()
    }
}

impl World {
    /// Opens the sessions of clients that start during the faults.
    pub(crate) fn open_sessions(&mut self) {
        for asked in 0..self.plan.commands.len() {
            let begin = self.chance.below(self.plan.trouble * 3 / 4);
            for _ in 0..self.chance.between(1, 4) {
                let time = begin + self.chance.below(400);
                self.open_session(asked, 0, time, false);
            }
            if self.plan.commands[asked].tampered {
                let time = begin + self.chance.below(1_500);
                self.open_session(asked, 1, time, false);
            }
        }
    }

    /// Opens sessions that retry every command until it has its answer, once faults have stopped.
    pub(crate) fn close_sessions(&mut self) {
        for asked in 0..self.plan.commands.len() {
            let payloads = if self.plan.commands[asked].tampered { 2 } else { 1 };
            for payload in 0..payloads {
                let time = self.now + self.chance.below(2_000);
                self.open_session(asked, payload, time, true);
            }
        }
    }

    fn open_session(&mut self, asked: usize, payload: u32, time: u64, persists: bool) {
        let returns = if persists { 1 } else { self.chance.below(3) as u32 };
        let session = Session { asked, payload, tries: TRIES, returns, persists, ended: false };
        self.sessions.push(session);
        self.at(time, Happening::Sends(self.sessions.len() - 1));
    }

    /// Returns the commands of persistent sessions without an answer.
    pub(crate) fn unended(&self) -> Vec<String> {
        let waiting = self.sessions.iter().filter(|session| session.persists && !session.ended);
        waiting
            .map(|session| format!("{} has no answer", self.plan.commands[session.asked].command()))
            .collect()
    }

    /// Sends a client's request to a random node.
    pub(crate) fn sends(&mut self, number: usize) {
        let Session { asked, payload, persists, .. } = self.sessions[number];
        let node = self.chance.below(self.nodes.len() as u64) as usize;
        self.requests += 1;
        let request = self.requests;
        let asked = &self.plan.commands[asked];
        let Some(message) = asked.request(payload) else { return };
        let invoked = Invoked {
            at: self.wall(),
            request,
            gateway: self.nodes[node].name.clone(),
            command: asked.command(),
            payload,
            canary: asked.canary(payload),
            reference: asked.reference.clone(),
        };
        self.note(Event::Invoked(invoked));
        self.open.insert(request, Open { session: number, node, arrived: None, at_once: false });
        let hasty = !persists && self.chance.percent(self.plan.hasty);
        let (least, most) = if hasty { HASTY } else { PATIENT };
        let patience = self.chance.between(least, most);
        self.at(self.now + patience, Happening::GivesUp(request));
        self.route_to_node(node, Some(request), Brought::Request(request, Box::new(message)));
    }

    /// Handles the answer at the client.
    pub(crate) fn at_client(&mut self, request: u64, reply: &Reply) {
        let Some(open) = self.open.remove(&request) else { return };
        let answered = reading::answered(self.wall(), request, reply);
        if answered.replayed && open.at_once {
            self.coverage.met("a replay was answered from memory");
        }
        let is_end = is_end(&answered);
        self.note(Event::Answered(answered));
        self.goes_on(open.session, is_end);
    }

    /// Handles a lost answer at the client.
    pub(crate) fn lost(&mut self, request: u64, why: &'static str) {
        let Some(open) = self.open.remove(&request) else { return };
        let at = self.wall();
        self.note(Event::Lost(Lost { at, request, why: why.to_owned() }));
        self.goes_on(open.session, false);
    }

    /// Times out a waiting client. Its node may notice.
    pub(crate) fn gives_up(&mut self, request: u64) {
        let Some(node) = self.open.get(&request).map(|open| open.node) else { return };
        self.coverage.met("a client left");
        self.lost(request, "the client lost its patience");
        self.route_to_node(node, None, Brought::Left(request));
    }

    fn goes_on(&mut self, number: usize, is_end: bool) {
        let pause = match is_end {
            true => self.chance.between(300, 6_000),
            false => self.chance.between(50, 1_200),
        };
        let quiet = self.quiet;
        let session = &mut self.sessions[number];
        let again = match (is_end, session.persists) {
            (true, persists) => {
                session.ended = session.returns == 0;
                let again = session.returns > 0 && (persists || !quiet);
                session.returns = session.returns.saturating_sub(1);
                again
            }
            (false, true) => true,
            (false, false) => {
                session.tries = session.tries.saturating_sub(1);
                session.tries > 0 && !quiet
            }
        };
        if again {
            self.at(self.now + pause, Happening::Sends(number));
        }
    }
}

/// Returns true if an answer is final.
fn is_end(answer: &Answered) -> bool {
    let refused = ["IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST", "DUPLICATE_BUSINESS_REFERENCE"];
    answer.replayed
        || answer.expires.is_some()
        || answer.code.as_deref().is_some_and(|code| refused.contains(&code))
}
