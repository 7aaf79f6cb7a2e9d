//! Judge: a book of every sent request, its response, and the upstream's view of it.
//!
//! Two properties hold after every entry. The upstream sees exactly the accepted requests, once each, under the proven
//! identity. No response reaches any client but the one that sent its request.

use std::collections::{BTreeMap, HashMap};

use semel_fuzz::http1::Message;

use crate::answer::Answer;
use crate::case::{Ask, Expectation, Group};
use crate::draft::Credentials;
use crate::script::Script;
use crate::sight;

/// Tenant, caller, method, path and key of a command, which the upstream sees once.
type Command = (String, String, String, String, String);

/// Request, response and sightings of one mark.
struct Entry {
    ask: Ask,
    case: u64,
    group: Option<Group>,
    seen: usize,
    /// True if a response came from the upstream.
    is_accepted: bool,
    /// Code of the response that says that the gateway forwarded nothing.
    refusal: Option<String>,
}

/// Violation of a property.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Case in which it happened, or to which the request belongs.
    pub case: u64,
    /// Description of the violation.
    pub what: String,
}

/// Counts of one group.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    /// Cases sent.
    pub cases: u64,
    /// Requests that the upstream answered.
    pub accepted: u64,
    /// Requests that the upstream never saw complete.
    pub refused: u64,
    /// Requests that the upstream saw complete.
    pub seen: u64,
}

/// Book of one gateway's life.
pub(crate) struct Book {
    entries: HashMap<String, Entry>,
    commands: HashMap<Command, String>,
    credentials: Credentials,
    pub(crate) violations: Vec<Violation>,
    pub(crate) cases: BTreeMap<Group, u64>,
}

impl Book {
    pub(crate) fn new(credentials: Credentials) -> Book {
        Book {
            entries: HashMap::new(),
            commands: HashMap::new(),
            credentials,
            violations: Vec::new(),
            cases: BTreeMap::new(),
        }
    }

    /// Enters a request before it is sent. The entry of a retry exists already.
    pub(crate) fn enter(&mut self, ask: &Ask, case: u64, group: Option<Group>) {
        let entry = Entry { ask: ask.clone(), case, group, seen: 0, is_accepted: false, refusal: None };
        self.entries.entry(ask.mark.clone()).or_insert(entry);
    }

    pub(crate) fn ask(&self, mark: &str) -> Option<&Ask> {
        self.entries.get(mark).map(|entry| &entry.ask)
    }

    pub(crate) fn violate(&mut self, case: u64, what: String) {
        self.violations.push(Violation { case, what });
    }

    /// Enters a complete request at the upstream.
    pub(crate) fn saw(&mut self, request: &Message) {
        let Some(mark) = sight::mark(request) else {
            return self
                .violate(u64::MAX, format!("the upstream saw a request that no client sent: {request:?}"));
        };
        let Some(entry) = self.entries.get_mut(&mark) else {
            return self.violate(u64::MAX, format!("the upstream saw an unknown mark {mark}: {request:?}"));
        };
        entry.seen += 1;
        let (case, seen) = (entry.case, entry.seen);
        let mut faults = sight::faults(&entry.ask, request, &self.credentials);
        if seen > 1 {
            faults.push(format!("it saw it {seen} times"));
        }
        if let Some(refusal) = &entry.refusal {
            faults.push(format!("the client was told that it was refused: {refusal}"));
        }
        if let Some(command) = command(&entry.ask)
            && let Some(other) = self.commands.insert(command, mark.clone())
        {
            faults.push(format!("the command of this key was seen before, as {other}"));
        }
        for fault in faults {
            self.violate(case, format!("the upstream saw {mark}: {fault}: {request:?}"));
        }
    }

    /// Enters a connection of the upstream that ended within a request.
    pub(crate) fn saw_half(&mut self, bytes: &[u8]) {
        let names_command = bytes.windows(19).any(|window| window == b"semel-operation-id:");
        let case = sight::mark_in(bytes).and_then(|mark| self.entries.get(&mark)).map(|entry| entry.case);
        if names_command {
            let what = format!("half a command was passed on: {}", bytes.escape_ascii());
            self.violate(case.unwrap_or(u64::MAX), what);
        }
    }

    /// Enters bytes at the upstream that are no request.
    pub(crate) fn saw_garbage(&mut self, bytes: &[u8]) {
        let case = sight::mark_in(bytes).and_then(|mark| self.entries.get(&mark)).map(|entry| entry.case);
        let what = format!("the upstream saw bytes that are no request: {}", bytes.escape_ascii());
        self.violate(case.unwrap_or(u64::MAX), what);
    }

    /// Enters the response of the request with this mark.
    pub(crate) fn answered(&mut self, mark: &str, answer: &Answer) {
        let Some(entry) = self.entries.get_mut(mark) else { return };
        let (case, ask) = (entry.case, &entry.ask);
        let fault = match answer {
            Answer::Upstream { mark: seen, tenant, caller } => {
                entry.is_accepted = true;
                let proven = ask.client.names().filter(|_| ask.is_command).unwrap_or(("-", "-"));
                if seen != mark {
                    Some(format!("{mark} got the answer to {seen}"))
                } else if (&**tenant, &**caller) != proven {
                    Some(format!("{mark} was carried out for {tenant}/{caller}, and was sent by {proven:?}"))
                } else if entry.seen == 0 && ask.script != Script::Early {
                    Some(format!("{mark} got an answer, and the upstream has not seen it"))
                } else if ask.expectation == Expectation::Refused {
                    Some(format!("{mark} must be refused, and was carried out"))
                } else {
                    None
                }
            }
            Answer::Refused { code } => {
                if entry.refusal.is_none() {
                    entry.refusal = Some(code.clone());
                }
                match (entry.seen, entry.ask.expectation) {
                    (1.., _) if !entry.is_accepted => {
                        Some(format!("{mark} was refused with {code}, and the upstream saw it"))
                    }
                    (0, Expectation::Accepted) => Some(format!("{mark} is valid, and was refused: {code}")),
                    _ => None,
                }
            }
            Answer::Other { what } => (ask.expectation == Expectation::Accepted)
                .then(|| format!("{mark} is valid, and was answered: {what}")),
            Answer::None => (ask.expectation == Expectation::Accepted)
                .then(|| format!("{mark} is valid, and got no answer")),
        };
        if let Some(fault) = fault {
            self.violate(case, fault);
        }
    }

    /// Returns the counts of all groups.
    pub(crate) fn counts(&self) -> BTreeMap<Group, Count> {
        let mut counts: BTreeMap<Group, Count> = BTreeMap::new();
        for (group, cases) in &self.cases {
            counts.entry(*group).or_default().cases += cases;
        }
        for entry in self.entries.values() {
            let Some(group) = entry.group else { continue };
            let count = counts.entry(group).or_default();
            count.accepted += u64::from(entry.is_accepted);
            count.refused += u64::from(entry.seen == 0);
            count.seen += u64::from(entry.seen > 0);
        }
        counts
    }
}

/// Returns the identity of the command in a request.
fn command(ask: &Ask) -> Option<Command> {
    let (tenant, caller) = ask.client.names().filter(|_| ask.is_command)?;
    let path = ask.target.split('?').next().unwrap_or_default();
    Some((tenant.into(), caller.into(), ask.method.clone(), path.into(), ask.key.clone()?))
}
