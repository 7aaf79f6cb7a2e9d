//! The events of a history. Their order in the file is the order in which they were recorded.

mod parts;

use std::collections::BTreeMap;

pub use parts::{
    Action, Charged, Committed, Declined, Delivered, Intervened, Intervention, Item, Message, Phase,
    PhaseProgress, Requested, Undone,
};
use serde::{Deserialize, Serialize};

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// What is run.
    Run(Run),
    /// A client sends a request.
    Invoked(Invoked),
    /// It has an answer.
    Answered(Answered),
    /// It has none, and never will.
    Lost(Lost),
    /// A call reached the service behind the gateways.
    Called(Called),
    /// That service had an effect.
    Effect(Effect),
    /// The store was read.
    Looked(Looked),
    /// A record as it was then.
    Record(Record),
    /// A record that is there no more.
    Gone(Gone),
    /// Somebody says what happened to an unknown.
    Evidence(Evidence),
    /// What came of it.
    Ruled(Ruled),
    /// Something was broken on purpose.
    Fault(Fault),
    /// Nothing is broken from here on.
    Quiet(Quiet),
    /// What a gateway counts.
    Metrics(Metrics),
    /// A row of a service's own.
    Committed(Committed),
    /// A message of a service, as its outbox has it.
    Message(Message),
    /// A message reached its receiver.
    Delivered(Delivered),
    /// A call under a derived key reached the provider.
    Requested(Requested),
    /// The provider had an effect.
    Charged(Charged),
    /// The provider refused a call for good.
    Declined(Declined),
    /// A phase as a look found it.
    Phase(Phase),
    /// An operator is about to intervene in the delivery of a message.
    Intervention(Intervention),
    /// Result of that.
    Intervened(Intervened),
}

/// What a record is unique by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Command {
    /// Whose customer.
    pub tenant: String,
    /// Who.
    pub caller: String,
    /// What is asked for.
    pub operation: String,
    /// The client's name for it.
    pub key: String,
}

impl std::fmt::Display for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} {} {}", self.tenant, self.caller, self.operation, self.key)
    }
}

/// The first event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// When.
    pub at: i64,
    /// Which store.
    pub store: String,
    /// What all chance came from.
    pub seed: u64,
    /// How often each gateway sweeps.
    pub sweep_ms: i64,
    /// By how much the store's clock may be ahead of `at`, since it rounds.
    pub rounding_ms: i64,
    /// The operations, by name.
    pub operations: BTreeMap<String, Operation>,
}

/// What is known of an operation from outside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// Who carries it out.
    pub mode: Mode,
    /// How long a lease holds.
    pub lease_ms: i64,
    /// How long a settled record is kept.
    pub ttl_ms: i64,
    /// How long after an outcome became unknown a call may still be on its way.
    pub quarantine_ms: i64,
    /// Whether the service behind deduplicates on the operation id, whatever the attempt.
    #[serde(default)]
    pub deduplicates: bool,
    /// The parts that a success consists of, in order. Empty for a command that is one whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<String>,
}

/// Who carries out an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A gateway, while the client waits.
    Sync,
    /// A gateway, later.
    Async,
    /// A service, in one transaction with its record.
    Local,
    /// A service, phase by phase.
    Phased,
    /// A service, in one transaction, and a message that settles it later.
    Deferred,
    /// A service, item by item. Items have records of their own.
    Bulk,
}

impl Mode {
    /// Whether a command consists of parts, each with an effect of its own.
    pub(crate) fn has_parts(self) -> bool {
        matches!(self, Mode::Phased | Mode::Deferred | Mode::Bulk)
    }
}

/// A client sends a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Invoked {
    /// When.
    pub at: i64,
    /// Its number.
    pub request: u64,
    /// To whom it is sent.
    pub gateway: String,
    /// For what.
    pub command: Command,
    /// Which of the payloads under this key; 0 is the honest one.
    pub payload: u32,
    /// What this payload carries.
    pub canary: String,
    /// The business reference that it carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// A request has its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// When.
    pub at: i64,
    /// Which request.
    pub request: u64,
    /// The status.
    pub status: u16,
    /// The code, if it is a problem document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The operation id that it names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    /// Whether it is marked as a replay.
    #[serde(default)]
    pub replayed: bool,
    /// Until when it is kept, to the second: only a stored response says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<i64>,
    /// A digest of status, stored headers and body.
    pub digest: String,
    /// The effect that its body names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// Every canary in it.
    #[serde(default)]
    pub canaries: Vec<String>,
    /// Which attempt the service says this is, where it says that it did nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_executed: Option<u32>,
    /// The effect that it says was rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undone: Option<Undone>,
    /// The items of a bulk request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<Item>,
}

/// A request has no answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lost {
    /// When that was clear.
    pub at: i64,
    /// Which request.
    pub request: u64,
    /// How.
    pub why: String,
}

/// A call reached the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Called {
    /// When.
    pub at: i64,
    /// What the gateway calls it.
    pub operation_id: String,
    /// Which attempt.
    pub attempt: u32,
    /// For whom, and under which of the client's own keys.
    pub command: Command,
    /// What its payload carries.
    pub canary: String,
}

/// A line in the service's ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// When.
    pub at: i64,
    /// Its name, which the answer repeats.
    pub effect: String,
    /// What the gateway calls the command.
    pub operation_id: String,
    /// Which attempt.
    pub attempt: u32,
    /// For whom, and under which of the client's own keys.
    pub command: Command,
    /// What the payload carries.
    pub canary: String,
    /// The business reference of the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// The store was read from outside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Looked {
    /// When it was read to the end.
    pub at: i64,
    /// Which look.
    pub look: u32,
    /// When it was asked.
    pub begun: i64,
    /// Whether this is the end: every record follows, and not only those that changed.
    #[serde(default)]
    pub last: bool,
}

/// A record as a look found it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Which look.
    pub look: u32,
    /// What clients call it.
    pub operation_id: String,
    /// Its tenant.
    pub tenant: String,
    /// Its caller.
    pub caller: String,
    /// Its operation.
    pub operation: String,
    /// Where it stands.
    pub state: String,
    /// Why.
    pub reason: String,
    /// How often it was acquired.
    pub epoch: u32,
    /// When it may be forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
    /// The status of its response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// A digest of its response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// The effects that its response names.
    #[serde(default)]
    pub effects: Vec<String>,
    /// The canaries in its response.
    #[serde(default)]
    pub canaries: Vec<String>,
    /// Its life.
    pub steps: Vec<Step>,
}

/// One step in a record's life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// When, by the store's clock.
    pub at: i64,
    /// In which epoch.
    pub epoch: u32,
    /// To which state.
    pub state: String,
    /// Why.
    pub reason: String,
}

/// A record is there no more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gone {
    /// Which look lacks it.
    pub look: u32,
    /// Which record.
    pub operation_id: String,
}

/// An operator is about to say what happened to an unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// When.
    pub at: i64,
    /// To which.
    pub operation_id: String,
    /// What the ledger shows.
    pub verdict: Verdict,
    /// The effect in the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// The phase whose open call it is about; nothing if it is about the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
}

/// What evidence says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It was executed.
    Executed,
    /// It was not.
    NotExecuted,
    /// A command in phases has no open call.
    NothingOpen,
}

/// What came of evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ruled {
    /// When.
    pub at: i64,
    /// About which.
    pub operation_id: String,
    /// What was said.
    pub verdict: Verdict,
    /// Whether it counts; nothing if nobody knows.
    pub accepted: Option<bool>,
    /// The phase whose open call it is about; nothing if it is about the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
}

/// Something was broken on purpose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// When.
    pub at: i64,
    /// What kind.
    pub kind: String,
    /// Whose.
    pub target: String,
    /// What exactly.
    #[serde(default)]
    pub detail: String,
}

/// Nothing is broken from here on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quiet {
    /// When.
    pub at: i64,
}

/// What a gateway counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// When.
    pub at: i64,
    /// Which gateway.
    pub gateway: String,
    /// Which process of it: counts begin anew with each.
    pub process: u32,
    /// Its counters.
    pub samples: Vec<Sample>,
}

/// One counter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: u64,
}
