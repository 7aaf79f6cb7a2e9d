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
        /// The phase's name; `None` for every call of the command without an answer.
        name: Option<String>,
    },
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
