//! Events of a history, in the order in which they were recorded.

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
    /// The run begins with these settings.
    Run(Run),
    /// A client sends a request.
    Invoked(Invoked),
    /// The request has an answer.
    Answered(Answered),
    /// The request has no answer and never will.
    Lost(Lost),
    /// A call reached the service behind the gateways.
    Called(Called),
    /// The service had an effect.
    Effect(Effect),
    /// The observer read the store.
    Looked(Looked),
    /// A record as a look found it.
    Record(Record),
    /// A record is no longer in the store.
    Gone(Gone),
    /// An operator is about to give evidence on an unknown outcome.
    Evidence(Evidence),
    /// The evidence was accepted or refused.
    Ruled(Ruled),
    /// A fault was injected.
    Fault(Fault),
    /// Faults stop for the rest of the run.
    Quiet(Quiet),
    /// The counters of a gateway.
    Metrics(Metrics),
    /// A service committed a row.
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
    /// The result of an intervention.
    Intervened(Intervened),
}

/// Scope of a record: the members that it is unique by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Command {
    /// Tenant of the caller.
    pub tenant: String,
    /// Caller that sends the request.
    pub caller: String,
    /// Operation that the command requests.
    pub operation: String,
    /// Idempotency key of the client.
    pub key: String,
}

impl std::fmt::Display for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} {} {}", self.tenant, self.caller, self.operation, self.key)
    }
}

/// Settings of the run: the first event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Time of the start.
    pub at: i64,
    /// Name of the store.
    pub store: String,
    /// Seed of all random choices.
    pub seed: u64,
    /// Interval of each gateway's sweeps.
    pub sweep_ms: i64,
    /// Largest lead of the store's clock over `at`, since it rounds.
    pub rounding_ms: i64,
    /// Operations by name.
    pub operations: BTreeMap<String, Operation>,
}

/// Settings of an operation, as known from outside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// Mode of execution.
    pub mode: Mode,
    /// Length of a lease.
    pub lease_ms: i64,
    /// Time to live of a settled record.
    pub ttl_ms: i64,
    /// Time for which a call may still be on its way after its outcome became unknown.
    pub quarantine_ms: i64,
    /// True if the service deduplicates on the operation id, for all attempts.
    #[serde(default)]
    pub deduplicates: bool,
    /// Parts of a success, in order. Empty for a command without parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<String>,
}

/// Mode of execution of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A gateway executes while the client waits.
    Sync,
    /// A gateway executes later, by a worker.
    Async,
    /// A service executes in one transaction with its record.
    Local,
    /// A service executes phase by phase.
    Phased,
    /// A service executes in one transaction, and a message settles the command later.
    Deferred,
    /// A service executes item by item. Items have their own records.
    Bulk,
}

impl Mode {
    /// Returns true if commands consist of parts, each with its own effect.
    pub(crate) fn has_parts(self) -> bool {
        matches!(self, Mode::Phased | Mode::Deferred | Mode::Bulk)
    }
}

/// Request of a client, recorded before it is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Invoked {
    /// Time of the request.
    pub at: i64,
    /// Number of the request.
    pub request: u64,
    /// Gateway that receives the request.
    pub gateway: String,
    /// Command that it asks for.
    pub command: Command,
    /// Number of the payload under this key; 0 is the honest one.
    pub payload: u32,
    /// Canary in the payload.
    pub canary: String,
    /// Business reference in the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// Time of the answer.
    pub at: i64,
    /// Number of the request.
    pub request: u64,
    /// HTTP status.
    pub status: u16,
    /// Code of the problem document, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Operation id that the answer names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    /// True if the answer is marked as a replay.
    #[serde(default)]
    pub replayed: bool,
    /// Expiry of the stored response, to the second: only a stored response has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<i64>,
    /// Digest of status, stored headers and body.
    pub digest: String,
    /// Effect that the body names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// Canaries in the answer.
    #[serde(default)]
    pub canaries: Vec<String>,
    /// Attempt that did nothing, if the service says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_executed: Option<u32>,
    /// Effect that the answer reports as rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undone: Option<Undone>,
    /// Items of a bulk request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<Item>,
}

/// Request without an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lost {
    /// Time at which the loss was certain.
    pub at: i64,
    /// Number of the request.
    pub request: u64,
    /// Cause of the loss.
    pub why: String,
}

/// Call that reached the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Called {
    /// Time of the call.
    pub at: i64,
    /// Operation id that the gateway sent.
    pub operation_id: String,
    /// Number of the attempt.
    pub attempt: u32,
    /// Command, with the client's own key.
    pub command: Command,
    /// Canary of the payload.
    pub canary: String,
}

/// Entry of the service's ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Time of the effect.
    pub at: i64,
    /// Name of the effect, which the answer repeats.
    pub effect: String,
    /// Operation id that the gateway sent.
    pub operation_id: String,
    /// Number of the attempt.
    pub attempt: u32,
    /// Command, with the client's own key.
    pub command: Command,
    /// Canary of the payload.
    pub canary: String,
    /// Business reference of the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// Look at the store from outside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Looked {
    /// Time at which the look ended.
    pub at: i64,
    /// Number of the look.
    pub look: u32,
    /// Time at which the look began.
    pub begun: i64,
    /// True for the last look: every record follows, not only the changed ones.
    #[serde(default)]
    pub last: bool,
}

/// Record as a look found it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Number of the look.
    pub look: u32,
    /// Operation id of the record.
    pub operation_id: String,
    /// Tenant of the record.
    pub tenant: String,
    /// Caller of the record.
    pub caller: String,
    /// Operation of the record.
    pub operation: String,
    /// State of the record.
    pub state: String,
    /// Reason for the state.
    pub reason: String,
    /// Epoch of the record: the number of acquisitions.
    pub epoch: u32,
    /// Time at which the record may be forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
    /// Status of the stored response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Digest of the stored response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// Effects that the stored response names.
    #[serde(default)]
    pub effects: Vec<String>,
    /// Canaries in the stored response.
    #[serde(default)]
    pub canaries: Vec<String>,
    /// Steps of the record's history.
    pub steps: Vec<Step>,
}

/// One step of a record's history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Time by the store's clock.
    pub at: i64,
    /// Epoch of the step.
    pub epoch: u32,
    /// State after the step.
    pub state: String,
    /// Reason for the step.
    pub reason: String,
}

/// Record that is no longer in the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gone {
    /// Number of the look that lacks the record.
    pub look: u32,
    /// Operation id of the record.
    pub operation_id: String,
}

/// Evidence of an operator on an unknown outcome, recorded before it is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Time of the evidence.
    pub at: i64,
    /// Operation id of the command.
    pub operation_id: String,
    /// Verdict that the ledger supports.
    pub verdict: Verdict,
    /// Effect in the ledger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// Phase whose open call the evidence is about; `None` if it is about the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
}

/// Verdict of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The command or call was executed.
    Executed,
    /// The command or call was not executed.
    NotExecuted,
    /// A command in phases has no open call.
    NothingOpen,
}

/// Decision on evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ruled {
    /// Time of the decision.
    pub at: i64,
    /// Operation id of the command.
    pub operation_id: String,
    /// Verdict that was offered.
    pub verdict: Verdict,
    /// True if the verdict counts; `None` if that is unknown.
    pub accepted: Option<bool>,
    /// Phase whose open call the verdict is about; `None` if it is about the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
}

/// Injected fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// Time of the fault.
    pub at: i64,
    /// Kind of the fault.
    pub kind: String,
    /// Participant that is hit.
    pub target: String,
    /// Details of the fault.
    #[serde(default)]
    pub detail: String,
}

/// End of all faults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quiet {
    /// Time of the end.
    pub at: i64,
}

/// Counters of a gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Time of the reading.
    pub at: i64,
    /// Name of the gateway.
    pub gateway: String,
    /// Number of the gateway's process: counters restart with each process.
    pub process: u32,
    /// Counters of the process.
    pub samples: Vec<Sample>,
}

/// One counter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Name of the counter.
    pub name: String,
    /// Labels of the counter.
    pub labels: BTreeMap<String, String>,
    /// Value of the counter.
    pub value: u64,
}
