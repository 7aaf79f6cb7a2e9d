//! What a run needs of the database that has its record.

use async_trait::async_trait;
use semel_core::{Fence, Mark, OperationId, Record, RecordId};

use crate::reply::Failure;

/// Who writes: every write is made only while this is the one who carries the command out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) record: RecordId,
    pub(crate) command: OperationId,
    pub(crate) fence: Fence,
}

impl Held {
    pub(super) fn of(record: &Record) -> Held {
        Held { record: record.id, command: record.operation_id, fence: record.head.fence() }
    }
}

/// Writes about phases, each in a transaction of its own. Local phases are written with their work.
#[async_trait]
pub(crate) trait Steps: Send + Sync + 'static {
    /// Writes this, unless somebody else has the command. A lost answer is asked for again.
    async fn write(&self, held: &Held, mark: &Mark) -> Result<(), NotWritten>;
}

/// Why nothing was written.
#[derive(Debug)]
pub(crate) enum NotWritten {
    /// Somebody else has the command, or it is settled.
    Fenced,
    /// The database could not be used, and certainly nothing was written.
    NotCommitted(String),
    /// The database could not be used, and nobody can say whether it was written.
    InDoubt(String),
}

/// Why a local phase has no output. Nothing of it is committed, unless it says so.
#[derive(Debug)]
pub(crate) enum LocalEnded {
    /// Its work failed.
    Failed(Failure),
    /// Its work panicked.
    Panicked,
    /// Its work took too long.
    TimedOut,
    /// Its work ended the transaction itself: it may have committed anything.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "on SQLite, work cannot commit"))]
    Broken(String),
    /// Somebody else has the command, or it is settled.
    Fenced,
    /// The database could not be used.
    NotCommitted(String),
    /// It was to be committed, and nobody can say whether it was.
    InDoubt(String),
}
