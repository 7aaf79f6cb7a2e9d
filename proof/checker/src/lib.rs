//! Judges a history: what clients asked and were told, what a ledger saw, what a store kept, which faults there were.
//!
//! This crate knows nothing of Semel's code. It reads what was recorded outside, and says which promises that breaks:
//! `semel-checker FILE` prints each violation as a story and exits with 1 if there are any, with 2 if the file is no
//! whole history.
//!
//! # The format
//!
//! JSON, one event a line, **in the order in which they were recorded**: a request is `invoked` before it is sent, and
//! `answered` after its answer was read to its end. So if an answer stands before an invocation, whoever sent the second
//! could have known the first. `at` is milliseconds since 1970, by the clock of the one machine that everything ran on.
//! Each line is an object whose `event` says what it is; the members are those of the struct of that name in [`event`].
//!
//! | `event` | what it says |
//! |---|---|
//! | `run` | first line: which store, which seed, the operations and their times |
//! | `invoked` | a client sends a request: for which command, with which payload, to which gateway |
//! | `answered`, `lost` | what it was told, or that it never heard anything |
//! | `called` | a call reached the service behind the gateways |
//! | `effect` | that service did what it was asked for: one line in its ledger |
//! | `looked` | the store was read from outside; the `record`s and the `gone` of that look follow |
//! | `record` | one record, as the store had it at that look, with the steps of its life |
//! | `gone` | a record that an earlier look had seen is not there any more |
//! | `evidence`, `ruled` | an operator says what the ledger shows, and what came of it |
//! | `fault`, `quiet` | something was broken; from here on nothing is |
//! | `metrics` | what a gateway counted up to here |
//! | `committed` | a row of a service that has its records in its own database |
//! | `message`, `delivered` | a message of such a service, and each time it reached its receiver |
//! | `intervention`, `intervened` | an operator retries or discards a message, and the result |
//! | `phase` | one phase of a command, as a look found it |
//! | `requested`, `charged`, `declined` | a call under a derived key reached the provider; it had an effect; it was refused for good |
//!
//! # Names
//!
//! A *command* is tenant, caller, operation and key. Each command has payloads (`invoked.payload`): `0` is the honest
//! one, others are sent under the same key by mistake. Each payload carries a *canary*, a text that nobody else has, and
//! the service's answers repeat it; `answered.canaries` are all that were found in an answer. An *operation id* names what
//! the store keeps about a command until that expires; then the key may be used again, under another one.
//!
//! # The invariants
//!
//! They are numbered; [`INVARIANTS`] says each in a sentence, and so does every violation.

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

/// What must hold, by number.
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

/// Why a history cannot be judged.
#[derive(Debug)]
pub struct Malformed(pub String);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

/// Reads a history. A line that is no event is an error: nothing is passed over.
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

/// Judges a history.
pub fn check(events: &[Event]) -> Result<Report<'_>, Malformed> {
    let book = book::Book::of(events)?;
    let mut violations = Vec::new();
    for rule in rules::ALL {
        rule(&book, &mut violations);
    }
    violations.sort_by_key(|violation| (violation.invariant, violation.events.first().copied()));
    Ok(Report::new(events, violations))
}
