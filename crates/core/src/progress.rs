//! Progress of a command with several steps: its phases, or the items of a bulk request. Data only: `flow`
//! writes it, stores keep it with the record, and the operation's status page shows it.

use bytes::Bytes;

use crate::ids::OperationId;
use crate::record::Record;
use crate::scope::RecordId;
use crate::state::StateName;
use crate::time::Timestamp;

/// One step of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Position among the steps of the command.
    pub position: u32,
    /// Name of the phase, or `clientItemId` of the item.
    pub name: String,
    /// Kind of the step, and its progress.
    pub what: StepKind,
    /// Start of the step, by the store's clock.
    pub began_at: Timestamp,
    /// End of the step.
    pub done_at: Option<Timestamp>,
}

/// An item of a bulk request, before its command is claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// `clientItemId` of the item.
    pub name: String,
    /// Id of the item's own record.
    pub record: RecordId,
}

/// A run's write about one of its phases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A local phase, written in the same transaction as its work.
    Local {
        /// Position of the phase.
        position: u32,
        /// Name of the phase.
        name: String,
        /// Output of the phase.
        output: Bytes,
    },
    /// A phase that is about to call a provider: written before anything is sent.
    Begun {
        /// Position of the phase.
        position: u32,
        /// Name of the phase.
        name: String,
        /// True if the provider deduplicates on the phase's key.
        deduplicated: bool,
    },
    /// The answer to a call.
    Answered {
        /// Name of the phase.
        name: String,
        /// Output of the call.
        output: Bytes,
    },
    /// A begun call that provably had no effect: it counts as not begun.
    TakenBack {
        /// Name of the phase.
        name: String,
    },
}

/// Largest output of a phase, in bytes of JSON: it is a recovery point, not a document store.
pub const MAX_OUTPUT: usize = 64 << 10;

/// The call that a verdict on a command in phases is about, and its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenCall {
    /// The call of this phase was executed.
    Executed {
        /// Name of the phase.
        phase: String,
        /// Output of the call, in JSON, as the run would have stored it.
        output: Bytes,
    },
    /// The call of this phase was not executed.
    NotExecuted {
        /// Name of the phase.
        phase: String,
    },
    /// No call is open.
    None,
}

/// Reason why an output cannot be that of a phase.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOutput {
    /// The output is not JSON.
    #[error("the output of a phase is JSON, as its code would have kept it: {0}")]
    NotJson(String),
    /// The output is too large.
    #[error("the output has {found} bytes; at most {MAX_OUTPUT} are kept")]
    TooLarge {
        /// Size of the output in bytes.
        found: usize,
    },
}

impl OpenCall {
    /// Returns an executed call of this phase with this output.
    ///
    /// # Errors
    /// If no run could read the output.
    pub fn executed(phase: &str, output: Bytes) -> Result<OpenCall, InvalidOutput> {
        if output.len() > MAX_OUTPUT {
            return Err(InvalidOutput::TooLarge { found: output.len() });
        }
        serde_json::from_slice::<serde_json::Value>(&output)
            .map_err(|error| InvalidOutput::NotJson(error.to_string()))?;
        Ok(OpenCall::Executed { phase: phase.to_owned(), output })
    }

    /// Returns true if this is the open call among these steps; for `None`, true if no call is open.
    pub fn fits(&self, steps: &[Progress]) -> bool {
        let mut open = steps.iter().filter(|step| step.is_open());
        match (self, open.next()) {
            (OpenCall::Executed { phase, .. } | OpenCall::NotExecuted { phase }, Some(step)) => {
                step.name == *phase
            }
            (OpenCall::None, None) => true,
            (OpenCall::Executed { .. } | OpenCall::NotExecuted { .. } | OpenCall::None, _) => false,
        }
    }

    /// Returns the mark of the phase, written in the transaction of the verdict.
    pub fn mark(&self) -> Option<Mark> {
        match self.clone() {
            OpenCall::Executed { phase, output } => Some(Mark::Answered { name: phase, output }),
            OpenCall::NotExecuted { phase } => Some(Mark::TakenBack { name: phase }),
            OpenCall::None => None,
        }
    }
}

impl Progress {
    /// Returns true for a call that was begun and has no known result.
    pub fn is_open(&self) -> bool {
        matches!(self.what, StepKind::External { output: None, .. })
    }
}

impl Mark {
    /// Returns true if the step shows that a part of the command is committed.
    pub const fn is_done(&self) -> bool {
        matches!(self, Mark::Local { .. } | Mark::Answered { .. })
    }
}

/// Kind of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A phase that is one transaction of the service's own database.
    Local {
        /// Output of the phase.
        output: Bytes,
    },
    /// A phase that calls a provider.
    External {
        /// True if the provider deduplicates on the phase's key: only then may the call be repeated.
        deduplicated: bool,
        /// Output of the call; `None` while it is unknown.
        output: Option<Bytes>,
    },
    /// An item of a bulk request, which has a record of its own.
    Item {
        /// The item's own command, once it has been claimed.
        operation_id: Option<OperationId>,
        /// State of that command.
        state: Option<StateName>,
        /// Status of the item's stored response.
        status: Option<u16>,
    },
}

impl StepKind {
    /// Returns the output of a phase, if it is known.
    pub fn output(&self) -> Option<&Bytes> {
        match self {
            StepKind::Local { output } | StepKind::External { output: Some(output), .. } => Some(output),
            StepKind::External { output: None, .. } | StepKind::Item { .. } => None,
        }
    }
}

impl StepKind {
    /// Returns an item with this record of its own, if it has one yet.
    pub fn item(record: Option<&Record>) -> StepKind {
        StepKind::Item {
            operation_id: record.map(|record| record.operation_id),
            state: record.map(|record| record.head.state.name()),
            status: record.and_then(|record| record.result.as_ref()).map(|result| result.status),
        }
    }

    /// Returns the kind's name in columns, JSON and on the command line.
    pub const fn as_str(&self) -> &'static str {
        match self {
            StepKind::Local { .. } => "local",
            StepKind::External { .. } => "external",
            StepKind::Item { .. } => "item",
        }
    }
}
