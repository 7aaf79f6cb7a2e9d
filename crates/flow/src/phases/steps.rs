//! The database operations that a run uses.

use async_trait::async_trait;
use semel_core::{Fence, Mark, OperationId, Record, RecordId};

use crate::reply::Failure;

/// Identity of the executor: every write applies only while this executor holds the command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldCommand {
    pub(crate) record: RecordId,
    pub(crate) command: OperationId,
    pub(crate) fence: Fence,
}

impl HeldCommand {
    pub(super) fn of(record: &Record) -> HeldCommand {
        HeldCommand { record: record.id, command: record.operation_id, fence: record.head.fence() }
    }
}

/// Writes about phases, each in a transaction of its own. Local phases are written with their work.
#[async_trait]
pub(crate) trait Steps: Send + Sync + 'static {
    /// Writes this mark, unless another executor has the command. A lost answer is resolved by asking again.
    async fn write(&self, held: &HeldCommand, mark: &Mark) -> Result<(), NotWritten>;
}

/// Reason why a mark was not written.
#[derive(Debug)]
pub(crate) enum NotWritten {
    /// Another executor has the command, or it is settled.
    Fenced,
    /// The database was not available, and certainly nothing was written.
    NotCommitted(String),
    /// The database was not available, and the mark may or may not be written.
    InDoubt(String),
}

/// Reason why a local phase has no output. Nothing of it is committed, unless the variant says so.
#[derive(Debug)]
pub(crate) enum LocalEnded {
    /// The work failed.
    Failed(Failure),
    /// The work panicked.
    Panicked,
    /// The work took too long.
    TimedOut,
    /// The work ended the transaction itself: it may have committed anything.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "on SQLite, work cannot commit"))]
    Broken(String),
    /// Another executor has the command, or it is settled.
    Fenced,
    /// The database was not available.
    NotCommitted(String),
    /// The COMMIT may or may not have happened.
    InDoubt(String),
}
