//! The phases of a command, written under its fence within a transaction of a service's own.
//!
//! The writer of a phase holds the record's row until the COMMIT, so no other executor can acquire the
//! command in between. Once one has, it can read everything that was written before, and nothing more is
//! added.

use std::time::Duration;

use semel_core::{Event, Fence, Mark, OperationId, RecordId};

use super::errors::DbError;
use super::executor::{Executor, SqlValue};
use super::queries::tell;
use super::session::{BEGIN, commit_as_begun, is_joined};
use super::steps;

/// Locks the row of a record that runs under this fence, until the transaction ends.
const LOCK: &str = concat!(
    "SELECT (",
    is_joined!(),
    ")::int::bigint, ",
    commit_as_begun!(),
    ", partly_done FROM semel_records WHERE id = $1 AND epoch = $2 AND token = $3 AND state = 'processing' FOR UPDATE"
);

/// State of a command under a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandLock {
    /// The command runs under this fence, until the transaction ends.
    Held {
        /// True if the record says that a part of the command is done.
        partly_done: bool,
    },
    /// Another executor has the command, or it is settled.
    Fenced,
    /// The command runs under this fence, but the transaction that [`begin_phase`] began was ended.
    Ended,
}

/// Begins a transaction in which a phase is written. A process that hangs in it loses its session after
/// `idle`, so that its locks are released.
pub fn begin_phase(idle: Duration) -> String {
    let idle = idle.as_millis().clamp(1, 86_400_000);
    format!("{BEGIN}, set_config('idle_in_transaction_session_timeout', '{idle}ms', true)")
}

/// Locks the command, so that no other executor acquires it before the transaction ends.
pub async fn lock_fenced(
    db: &mut impl Executor,
    id: &RecordId,
    fence: Fence,
) -> Result<CommandLock, DbError> {
    let values = [
        SqlValue::Bytes(Some(id.as_bytes())),
        SqlValue::Int(Some(fence.epoch.into())),
        SqlValue::Bytes(Some(fence.token.as_bytes())),
    ];
    let rows = db.query(LOCK, &values).await?;
    db.commit_waits(rows.first().and_then(|row| row.int(1)) == Some(1));
    Ok(match rows.first().map(|row| row.int(0)) {
        None => CommandLock::Fenced,
        Some(Some(1)) => {
            CommandLock::Held { partly_done: rows.first().and_then(|row| row.int(2)) == Some(1) }
        }
        Some(_) => CommandLock::Ended,
    })
}

/// Writes the mark of a phase of the held command; with the first finished phase, marks the command as partly
/// done. Returns `false` if there is no such phase.
pub async fn mark(
    db: &mut impl Executor,
    id: &RecordId,
    command: OperationId,
    mark: &Mark,
    partly_done: bool,
) -> Result<bool, DbError> {
    if mark.is_done() && !partly_done && !tell(db, id, &Event::Advance, 0).await? {
        // Cannot happen while its row is held.
        return Ok(false);
    }
    steps::write(db, command, mark).await
}
