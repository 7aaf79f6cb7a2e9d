//! Events of a service with its own database: its rows, its messages, and commands that consist of parts, which are phases,
//! items of a bulk request, or a row and the message that settles it.

use serde::{Deserialize, Serialize};

/// A row that a service committed in one transaction with its record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Committed {
    /// When it was seen.
    pub at: i64,
    /// By which command.
    pub operation_id: String,
    /// Its name, which the answer repeats.
    pub effect: String,
    /// The phase or the item that wrote it; nothing for a command that is one whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// The canary of the command's payload.
    pub canary: String,
    /// The business reference of the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The message that was committed with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A message, as the outbox has it: written when it changed, and of all messages after the last look.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// When it was seen.
    pub at: i64,
    /// Its name.
    pub event_id: String,
    /// By which command.
    pub operation_id: String,
    /// Where it stands.
    pub state: String,
}

/// A message reached its receiver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delivered {
    /// When.
    pub at: i64,
    /// Which.
    pub event_id: String,
    /// Whether the receiver did something about it, since it had not seen it before.
    pub effect: bool,
}

/// A call under a derived key (`operationId:part`) reached the provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Requested {
    /// When.
    pub at: i64,
    /// The derived key.
    pub key: String,
    /// The command that makes the call.
    pub operation_id: String,
    /// The phase, or the kind of the message, that makes it.
    pub part: String,
    /// Whether the provider deduplicates calls of this part on the key.
    pub deduplicated: bool,
    /// The canary of the command's payload.
    pub canary: String,
}

/// A line in the provider's ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Charged {
    /// When.
    pub at: i64,
    /// The derived key.
    pub key: String,
    /// The command that made the call.
    pub operation_id: String,
    /// The phase, or the kind of the message, that made it.
    pub part: String,
    /// Its name, which the answer repeats.
    pub effect: String,
    /// The canary of the command's payload.
    pub canary: String,
    /// The business reference of the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// The provider refused a call for good, without an effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Declined {
    /// When.
    pub at: i64,
    /// The derived key.
    pub key: String,
    /// The command that made the call.
    pub operation_id: String,
}

/// A phase of a command, as a look at the store found it. Written when it changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Which look.
    pub look: u32,
    /// The command.
    pub operation_id: String,
    /// Its name.
    pub phase: String,
    /// Its progress.
    pub progress: PhaseProgress,
}

/// Progress of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseProgress {
    /// Its call is open.
    Begun,
    /// It is finished, with an output.
    Done,
    /// The store has nothing of it any more.
    Gone,
}

/// An operator is about to intervene in the delivery of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intervention {
    /// When.
    pub at: i64,
    /// The message.
    pub event_id: String,
    /// The operator's wish.
    pub action: Action,
}

/// An operator's wish for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Send it again.
    Retry,
    /// Never send it.
    Discard,
}

/// Result of an intervention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intervened {
    /// When.
    pub at: i64,
    /// The message.
    pub event_id: String,
    /// The operator's wish.
    pub action: Action,
    /// Whether it was done; nothing if nobody knows.
    pub accepted: Option<bool>,
}

/// Answer about one item of a bulk request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// The client's name for it.
    pub name: String,
    /// Its outcome, as the answer spells it.
    pub outcome: String,
    /// The effect that its answer names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

impl Item {
    /// Whether it took effect.
    pub(crate) fn is_succeeded(&self) -> bool {
        self.outcome == "succeeded"
    }

    /// Whether it is never tried again.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_succeeded() || self.outcome == "failed"
    }
}

/// An effect that an answer says was rolled back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Undone {
    /// The name it would have had.
    pub effect: String,
    /// The end of the code that made it: `refused`, `failed` or `ended`, if that ended its transaction itself.
    pub end: String,
}
