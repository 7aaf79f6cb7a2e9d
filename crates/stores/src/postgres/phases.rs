//! The phases of a command, written under its fence within a transaction of a service's own.
//!
//! Whoever writes a phase holds the record's row until the COMMIT. So nobody can take the command up in between, and
//! once somebody has, everything that was written before can be read, and nothing more is added.

use std::time::Duration;

use semel_core::{Event, Fence, Mark, OperationId, RecordId};

use super::errors::DbError;
use super::executor::{Executor, SqlValue};
use super::queries::tell;
use super::session::{BEGIN, commit_as_begun, is_joined};
use super::steps;

/// The row of a record that is being carried out under this fence, until the transaction ends.
const HOLD: &str = concat!(
    "SELECT (",
    is_joined!(),
    ")::int::bigint, ",
    commit_as_begun!(),
    ", partly_done FROM semel_records WHERE id = $1 AND epoch = $2 AND token = $3 AND state = 'processing' FOR UPDATE"
);

/// Whether a command is still carried out under this fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// It is, and stays so until the transaction ends.
    Held {
        /// Whether the record says that a part of the command is done.
        partly_done: bool,
    },
    /// Somebody else has it, or it is settled.
    Fenced,
    /// It is, but the transaction is not the one that [`begin_phase`] began: somebody has ended that.
    Ended,
}

/// Begins a transaction in which a phase is written. A process that stands still in the middle of it loses its
/// session after `idle`, so that it does not hold its locks for longer.
pub fn begin_phase(idle: Duration) -> String {
    let idle = idle.as_millis().clamp(1, 86_400_000);
    format!("{BEGIN}, set_config('idle_in_transaction_session_timeout', '{idle}ms', true)")
}

/// Sees to it that nobody else takes up the command before the transaction ends.
pub async fn hold(db: &mut impl Executor, id: &RecordId, fence: Fence) -> Result<Hold, DbError> {
    let values = [
        SqlValue::Bytes(Some(id.as_bytes())),
        SqlValue::Int(Some(fence.epoch.into())),
        SqlValue::Bytes(Some(fence.token.as_bytes())),
    ];
    let rows = db.query(HOLD, &values).await?;
    db.commit_waits(rows.first().and_then(|row| row.int(1)) == Some(1));
    Ok(match rows.first().map(|row| row.int(0)) {
        None => Hold::Fenced,
        Some(Some(1)) => Hold::Held { partly_done: rows.first().and_then(|row| row.int(2)) == Some(1) },
        Some(_) => Hold::Ended,
    })
}

/// Writes about a phase of the command that is held, and with its first phase that is done, that a part of the command is.
/// `false` if there is no such phase.
pub async fn mark(
    db: &mut impl Executor,
    id: &RecordId,
    command: OperationId,
    mark: &Mark,
    partly_done: bool,
) -> Result<bool, DbError> {
    if mark.is_done() && !partly_done && !tell(db, id, &Event::Advance, 0).await? {
        // Not while its row is held.
        return Ok(false);
    }
    steps::write(db, command, mark).await
}
