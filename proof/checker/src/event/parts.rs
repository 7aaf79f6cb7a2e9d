//! Events of a service with its own database: rows, messages, and commands in parts. Parts are phases, items of a
//! bulk request, or a row with the message that settles it.

use serde::{Deserialize, Serialize};

/// Row that a service committed in one transaction with its record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Committed {
    /// Time at which the row was seen.
    pub at: i64,
    /// Operation id of the command that wrote the row.
    pub operation_id: String,
    /// Name of the effect, which the answer repeats.
    pub effect: String,
    /// Phase or item that wrote the row; `None` for a command without parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// Canary of the command's payload.
    pub canary: String,
    /// Business reference of the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Message that was committed with the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Message as the outbox has it: recorded when it changed, and for all messages after the last look.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Time at which the message was seen.
    pub at: i64,
    /// Event id of the message.
    pub event_id: String,
    /// Operation id of the command that sent the message.
    pub operation_id: String,
    /// Delivery state of the message.
    pub state: String,
}

/// Delivery of a message to its receiver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delivered {
    /// Time of the delivery.
    pub at: i64,
    /// Event id of the message.
    pub event_id: String,
    /// True if the receiver acted on the message, since it had not seen it before.
    pub effect: bool,
}

/// Call under a derived key (`operationId:part`) that reached the provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Requested {
    /// Time of the call.
    pub at: i64,
    /// Derived key.
    pub key: String,
    /// Operation id of the command that makes the call.
    pub operation_id: String,
    /// Phase, or kind of message, that makes the call.
    pub part: String,
    /// True if the provider deduplicates calls of this part on the key.
    pub deduplicated: bool,
    /// Canary of the command's payload.
    pub canary: String,
}

/// Entry of the provider's ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Charged {
    /// Time of the effect.
    pub at: i64,
    /// Derived key.
    pub key: String,
    /// Operation id of the command that made the call.
    pub operation_id: String,
    /// Phase, or kind of message, that made the call.
    pub part: String,
    /// Name of the effect, which the answer repeats.
    pub effect: String,
    /// Canary of the command's payload.
    pub canary: String,
    /// Business reference of the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// Final refusal of a call by the provider, without an effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Declined {
    /// Time of the refusal.
    pub at: i64,
    /// Derived key.
    pub key: String,
    /// Operation id of the command that made the call.
    pub operation_id: String,
}

/// Phase of a command as a look at the store found it. Recorded when it changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Number of the look.
    pub look: u32,
    /// Operation id of the command.
    pub operation_id: String,
    /// Name of the phase.
    pub phase: String,
    /// Progress of the phase.
    pub progress: PhaseProgress,
}

/// Progress of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseProgress {
    /// The phase's call is open.
    Begun,
    /// The phase is finished, with an output.
    Done,
    /// The store has lost the phase.
    Gone,
}

/// Intervention of an operator in the delivery of a message, recorded before it is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intervention {
    /// Time of the intervention.
    pub at: i64,
    /// Event id of the message.
    pub event_id: String,
    /// Action that the operator requests.
    pub action: Action,
}

/// Action that an operator requests for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Retry the delivery.
    Retry,
    /// Discard the message.
    Discard,
}

/// Result of an intervention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intervened {
    /// Time of the result.
    pub at: i64,
    /// Event id of the message.
    pub event_id: String,
    /// Action that the operator requested.
    pub action: Action,
    /// True if the action was taken; `None` if that is unknown.
    pub accepted: Option<bool>,
}

/// Answer about one item of a bulk request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// Client's name for the item.
    pub name: String,
    /// Outcome of the item, as the answer spells it.
    pub outcome: String,
    /// Effect that the item's answer names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

impl Item {
    /// Returns true if the item took effect.
    pub(crate) fn is_succeeded(&self) -> bool {
        self.outcome == "succeeded"
    }

    /// Returns true if the item is never tried again.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_succeeded() || self.outcome == "failed"
    }
}

/// Effect that an answer reports as rolled back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Undone {
    /// Name that the effect would have had.
    pub effect: String,
    /// End of the code that made it: `refused`, `failed`, or `ended` if the code ended its transaction itself.
    pub end: String,
}
