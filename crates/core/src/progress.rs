//! How far a command with several steps has come: its phases, or the items of a bulk request. Data only: `flow` writes
//! it, stores keep it with the record, and whoever asks for the operation sees it.

use bytes::Bytes;

use crate::ids::OperationId;
use crate::record::Record;
use crate::scope::RecordId;
use crate::state::StateName;
use crate::time::Timestamp;

/// One step of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Its place among the steps of its command.
    pub position: u32,
    /// Its name: a phase's, or an item's `clientItemId`.
    pub name: String,
    /// What it is, and how far it is.
    pub what: StepKind,
    /// When it began, by the store's clock.
    pub began_at: Timestamp,
    /// When it was done.
    pub done_at: Option<Timestamp>,
}

/// An item of a bulk request, before anything is known about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its `clientItemId`.
    pub name: String,
    /// The id of its own record.
    pub record: RecordId,
}

/// What a run writes down about one of its phases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A local phase, in the transaction that is its work.
    Local {
        /// Its place.
        position: u32,
        /// Its name.
        name: String,
        /// What it came to.
        output: Bytes,
    },
    /// A phase that is about to call somebody else: written before anything is sent.
    Begun {
        /// Its place.
        position: u32,
        /// Its name.
        name: String,
        /// Whether the one it calls deduplicates on the phase's key.
        deduplicated: bool,
    },
    /// What a call came to.
    Answered {
        /// The phase's name.
        name: String,
        /// What it came to.
        output: Bytes,
    },
    /// A call that was begun provably had no effect: as if it had not been begun.
    TakenBack {
        /// The phase's name.
        name: String,
    },
}

/// The largest output of a phase, in bytes of JSON: it is a recovery point, not a place for documents.
pub const MAX_OUTPUT: usize = 64 << 10;

/// The call that a verdict on a command in phases is about, and its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenCall {
    /// The call of this phase took place.
    Executed {
        /// The phase's name.
        phase: String,
        /// What the call came to, in JSON, as the run would have kept it.
        output: Bytes,
    },
    /// The call of this phase did not take place.
    NotExecuted {
        /// The phase's name.
        phase: String,
    },
    /// No call is open.
    None,
}

/// Why an output cannot be that of a phase.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOutput {
    /// It is not JSON.
    #[error("the output of a phase is JSON, as its code would have kept it: {0}")]
    NotJson(String),
    /// It is too large.
    #[error("the output has {found} bytes; at most {MAX_OUTPUT} are kept")]
    TooLarge {
        /// So many bytes.
        found: usize,
    },
}

impl OpenCall {
    /// The call of this phase took place and came to this.
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

    /// Whether it is the call that is open among these steps, or, if it is none, whether none is.
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

    /// What is written about the phase, in the transaction of the verdict.
    pub fn mark(&self) -> Option<Mark> {
        match self.clone() {
            OpenCall::Executed { phase, output } => Some(Mark::Answered { name: phase, output }),
            OpenCall::NotExecuted { phase } => Some(Mark::TakenBack { name: phase }),
            OpenCall::None => None,
        }
    }
}

impl Progress {
    /// Whether it is a call that was begun, and nobody knows what came of it.
    pub fn is_open(&self) -> bool {
        matches!(self.what, StepKind::External { output: None, .. })
    }
}

impl Mark {
    /// Whether it says that a part of the command is committed.
    pub const fn is_done(&self) -> bool {
        matches!(self, Mark::Local { .. } | Mark::Answered { .. })
    }
}

/// What a step is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A phase that is one transaction of the service's own database.
    Local {
        /// What it came to.
        output: Bytes,
    },
    /// A phase that calls somebody else.
    External {
        /// Whether the one it calls deduplicates on the phase's key: only then may it be called again.
        deduplicated: bool,
        /// What it came to; `None` while nobody knows.
        output: Option<Bytes>,
    },
    /// One item of a bulk request, which has a record of its own.
    Item {
        /// The item's own command, once it has been claimed.
        operation_id: Option<OperationId>,
        /// Where that stands.
        state: Option<StateName>,
        /// The status of its stored response.
        status: Option<u16>,
    },
}

impl StepKind {
    /// What a phase came to, as far as that is known.
    pub fn output(&self) -> Option<&Bytes> {
        match self {
            StepKind::Local { output } | StepKind::External { output: Some(output), .. } => Some(output),
            StepKind::External { output: None, .. } | StepKind::Item { .. } => None,
        }
    }
}

impl StepKind {
    /// An item whose own record is this, if there is one yet.
    pub fn item(record: Option<&Record>) -> StepKind {
        StepKind::Item {
            operation_id: record.map(|record| record.operation_id),
            state: record.map(|record| record.head.state.name()),
            status: record.and_then(|record| record.result.as_ref()).map(|result| result.status),
        }
    }

    /// What it is, in columns, JSON and on the command line.
    pub const fn as_str(&self) -> &'static str {
        match self {
            StepKind::Local { .. } => "local",
            StepKind::External { .. } => "external",
            StepKind::Item { .. } => "item",
        }
    }
}
