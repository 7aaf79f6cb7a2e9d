//! Book of a run: what the proxy and the upstream saw of each command. The judge reads it.
//!
//! It only grows. A command is known by the number in its body, which every driver sends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use crate::fault::Fault;

/// Number of a command.
pub(crate) type Number = u64;

/// One request that sent the command, as the proxy read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sending {
    /// Value of `Idempotency-Key`, if there was one.
    pub(crate) key: Option<String>,
    /// Value of `Semel-Deadline` in milliseconds, if there was one.
    pub(crate) deadline: Option<u64>,
    pub(crate) body: Vec<u8>,
    pub(crate) fault: Fault,
    /// Status of the gateway's answer, if the request was forwarded and answered.
    pub(crate) status: Option<u16>,
    /// Value of `Idempotency-Retry` in that answer.
    pub(crate) advice: Option<String>,
}

/// Final answer of the upstream, by status and body.
pub(crate) type FinalAnswer = (u16, Value);

/// Observations of one command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Command {
    /// Requests that sent it, in order.
    pub(crate) sendings: Vec<Sending>,
    /// Requests of its operation.
    pub(crate) polls: u64,
    /// Effects that the upstream made, by their names.
    pub(crate) effects: Vec<String>,
    /// Final answers that the upstream gave, or that its ledger shows.
    pub(crate) answers: Vec<FinalAnswer>,
    /// Operations under which the upstream was called, in order of their first call.
    pub(crate) operations: Vec<String>,
    /// Calls to the upstream.
    pub(crate) calls: u64,
    /// Events in order, for the story of a violation.
    pub(crate) events: Vec<String>,
}

/// Observations of all commands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    pub(crate) commands: BTreeMap<Number, Command>,
    /// Numbers by operation id.
    pub(crate) operations: BTreeMap<String, Number>,
    /// Requests by the fault that they met.
    pub(crate) faults: BTreeMap<Fault, u64>,
    /// Requests that this program could not read, or could not forward: mistakes of the test, not of a client.
    pub(crate) mistakes: BTreeSet<String>,
}

/// Book that the proxy and the upstream share.
#[derive(Debug, Default)]
pub(crate) struct Book(Mutex<Pages>);

impl Book {
    /// Returns the pages, locked.
    pub(crate) fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a mistake of the test itself.
    pub(crate) fn mistake(&self, what: impl Into<String>) {
        self.pages().mistakes.insert(what.into());
    }
}

impl Pages {
    /// Returns the page of a command.
    pub(crate) fn command(&mut self, number: Number) -> &mut Command {
        self.commands.entry(number).or_default()
    }
}

/// Returns the number in a body `{"n": N}`.
pub(crate) fn number(body: &[u8]) -> Option<Number> {
    serde_json::from_slice::<Value>(body).ok()?.get("n")?.as_u64()
}
