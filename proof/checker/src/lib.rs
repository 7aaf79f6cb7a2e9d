//! Judges a history: requests and answers of clients, effects in ledgers, records in a store, and injected faults.
//!
//! This crate uses no code of Semel. It reads what was recorded outside and reports broken promises: `semel-checker
//! FILE` prints each violation as a story, and exits with 1 if there are any, or with 2 if the file is not a complete
//! history.
//!
//! # The format
//!
//! JSON, one event per line, **in the order in which they were recorded**: a request is `invoked` before it is sent,
//! and `answered` after its answer was read to the end. So if an answer precedes an invocation, the sender of the
//! second request could have known the first. `at` is in milliseconds since 1970, by the clock of the one machine
//! that ran everything. Each line is an object whose `event` names its kind; its members are those of the struct of
//! that name in [`event`].
//!
//! | `event` | meaning |
//! |---|---|
//! | `run` | first line: store, seed, operations and their times |
//! | `invoked` | a client sends a request: its command, payload and gateway |
//! | `answered`, `lost` | the answer to a request, or its loss |
//! | `called` | a call reached the service behind the gateways |
//! | `effect` | that service executed a command: one line in its ledger |
//! | `looked` | the store was read from outside; the `record`s and the `gone` of that look follow |
//! | `record` | one record as the store had it at that look, with the steps of its history |
//! | `gone` | a record of an earlier look is no longer there |
//! | `evidence`, `ruled` | an operator gives evidence from the ledger; the decision on it |
//! | `fault`, `quiet` | a fault was injected; faults stop here |
//! | `metrics` | counters of a gateway up to here |
//! | `committed` | a row of a service that has its records in its own database |
//! | `message`, `delivered` | a message of such a service, and each delivery to its receiver |
//! | `intervention`, `intervened` | an operator retries or discards a message, and the result |
//! | `phase` | one phase of a command as a look found it |
//! | `requested`, `charged`, `declined` | a call under a derived key reached the provider; had an effect; was refused for good |
//!
//! # Names
//!
//! A *command* is tenant, caller, operation and key. Each command has payloads (`invoked.payload`): `0` is the honest
//! one, others are sent under the same key by mistake. Each payload carries a *canary*, a text unique to it, which
//! the service's answers repeat; `answered.canaries` lists all that were found in an answer. An *operation id* names
//! the store's record of a command until that expires; then the key may be used again, under another operation id.
//!
//! # The invariants
//!
//! Invariants are numbered; [`INVARIANTS`] states each in a sentence, and so does every violation.

mod book;
pub mod event;
mod kind;
mod rules;
mod situations;
mod story;
mod tally;

use std::io::BufRead;

pub use event::Event;
pub use story::{Report, Violation};
pub use tally::Tally;

/// Invariants, by number.
pub const INVARIANTS: [(u8, &str); 22] = [
    (1, "at most one effect"),
    (2, "a success has exactly one effect, and its response names it"),
    (3, "all final responses are equal in status, stored headers and body"),
    (4, "no response carries what belongs to another scope"),
    (5, "another payload under the same key has no effect and gets no stored response"),
    (6, "unknown is left only by evidence, by its executor's late word, or by an operator"),
    (7, "settled records never change"),
    (8, "epochs rise, and there is at most one completion"),
    (9, "every effect is preceded by a committed claim"),
    (10, "what was told not to have been executed never has an effect"),
    (11, "after one final answer every retry gets it, until it expires"),
    (12, "once faults stop, nothing stays claimed or processing"),
    (
        13,
        "a committed message is delivered at least once, with one effect, or is dead, or was discarded by an operator",
    ),
    (14, "nothing is forgotten before its time"),
    (15, "what a gateway counts is what happened"),
    (16, "each phase, each item and each derived key has at most one effect"),
    (17, "a finished phase is never run again, and never forgotten"),
    (18, "a command in phases goes on after a verdict about its open call, and succeeds with all its parts"),
    (19, "a business reference is held by at most one command with an effect in any part"),
    (20, "every finished item of a bulk request has one outcome, and exactly one effect if it succeeded"),
    (21, "a command whose message was delivered is settled with the receiver's word"),
    (22, "what was answered as rolled back has left no effect"),
];

/// Reason for which a history cannot be judged.
#[derive(Debug)]
pub struct Malformed(pub String);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

/// Reads a history. A line that is not an event is an error; no line is skipped.
pub fn read(lines: impl BufRead) -> Result<Vec<Event>, Malformed> {
    let mut events = Vec::new();
    for (number, line) in (1..).zip(lines.lines()) {
        let line = line.map_err(|error| Malformed(format!("line {number} cannot be read: {error}")))?;
        let event = serde_json::from_str(&line)
            .map_err(|error| Malformed(format!("line {number} is no event: {error}")))?;
        events.push(event);
    }
    Ok(events)
}

/// Checks every invariant of a history.
pub fn check(events: &[Event]) -> Result<Report<'_>, Malformed> {
    let book = book::Book::of(events)?;
    let mut violations = Vec::new();
    for rule in rules::ALL {
        rule(&book, &mut violations);
    }
    violations.sort_by_key(|violation| (violation.invariant, violation.events.first().copied()));
    Ok(Report::new(events, violations))
}
