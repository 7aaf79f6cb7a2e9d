//! The judge: a book of every request that was sent, what each was answered, and what the upstream saw of it.
//!
//! Two properties hold after every entry. The upstream sees exactly the requests that were accepted, once each, under the
//! identity that was proven. No answer reaches any client but the one who asked.

use std::collections::{BTreeMap, HashMap};

use semel_fuzz::http1::Message;

use crate::answer::Answer;
use crate::case::{Ask, Expectation, Group};
use crate::draft::Credentials;
use crate::script::Script;
use crate::sight;

/// Tenant, caller, method, path and key of a command: seen once.
type Command = (String, String, String, String, String);

/// What was asked, answered and seen for one mark.
struct Entry {
    ask: Ask,
    case: u64,
    group: Option<Group>,
    seen: usize,
    /// Whether an answer came from the upstream.
    is_accepted: bool,
    /// The answer by which the gateway says that it passed nothing on.
    refusal: Option<String>,
}

/// Something that must not happen.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The case that it happened in, or that the request belongs to.
    pub case: u64,
    /// What happened.
    pub what: String,
}

/// How often something became of the cases of a group.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    /// Cases that were sent.
    pub cases: u64,
    /// Requests in them that the upstream answered.
    pub accepted: u64,
    /// Requests that it never saw whole.
    pub refused: u64,
    /// Requests that it saw whole.
    pub seen: u64,
}

/// All that is known of one gateway's life.
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

    /// Enters a request before it is sent. A retry is entered already.
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

    /// The upstream saw a whole request.
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

    /// A connection of the upstream ended in the middle of a request.
    pub(crate) fn saw_half(&mut self, bytes: &[u8]) {
        let names_command = bytes.windows(19).any(|window| window == b"semel-operation-id:");
        let case = sight::mark_in(bytes).and_then(|mark| self.entries.get(&mark)).map(|entry| entry.case);
        if names_command {
            let what = format!("half a command was passed on: {}", bytes.escape_ascii());
            self.violate(case.unwrap_or(u64::MAX), what);
        }
    }

    /// Bytes came to the upstream that are no request.
    pub(crate) fn saw_garbage(&mut self, bytes: &[u8]) {
        let case = sight::mark_in(bytes).and_then(|mark| self.entries.get(&mark)).map(|entry| entry.case);
        let what = format!("the upstream saw bytes that are no request: {}", bytes.escape_ascii());
        self.violate(case.unwrap_or(u64::MAX), what);
    }

    /// A client got this in answer to the request of this mark.
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

    /// What became of all requests.
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

/// The one command that a request asks for.
fn command(ask: &Ask) -> Option<Command> {
    let (tenant, caller) = ask.client.names().filter(|_| ask.is_command)?;
    let path = ask.target.split('?').next().unwrap_or_default();
    Some((tenant.into(), caller.into(), ask.method.clone(), path.into(), ask.key.clone()?))
}
