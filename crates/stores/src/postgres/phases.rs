//! The phases of a command, written under its fence within a transaction of a service's own.
//!
//! Whoever writes a phase holds the record's row until the COMMIT. So nobody can take the command up in between, and
//! once somebody has, everything that was written before can be read, and nothing more is added.

use std::time::Duration;

use semel_core::{Event, Fence, Mark, OperationId, Progress, RecordId, Timestamp};

use super::errors::DbError;
use super::executor::{Executor, Row, Value};
use super::join::{BEGIN, commit_as_begun, is_joined};
use super::queries::tell;
use crate::columns::StepColumns;

/// The row of a record that is being carried out under this fence, until the transaction ends.
const HOLD: &str = concat!(
    "SELECT (",
    is_joined!(),
    ")::int::bigint, ",
    commit_as_begun!(),
    ", partly_done FROM semel_records WHERE id = $1 AND epoch = $2 AND token = $3 AND state = 'processing' FOR UPDATE"
);

const LOCAL: &str = "
    INSERT INTO semel_phases (operation_id, position, name, kind, output, began_at, done_at)
    SELECT $1, $2, $3, 'local', $4, (extract(epoch FROM now()) * 1000)::bigint,
        (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    RETURNING position";

/// Made once more, it changes nothing.
const BEGUN: &str = "
    INSERT INTO semel_phases (operation_id, position, name, kind, deduplicated, began_at)
    SELECT $1, $2, $3, 'external', $4, (extract(epoch FROM now()) * 1000)::bigint
    ON CONFLICT (operation_id, name) DO UPDATE SET position = excluded.position
    RETURNING position";

/// Made once more, it changes nothing.
const ANSWERED: &str = "
    UPDATE semel_phases SET
        output = $3, done_at = coalesce(done_at, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
    WHERE operation_id = $1 AND name = $2 AND kind = 'external'
    RETURNING position";

const TAKEN_BACK: &str = "
    DELETE FROM semel_phases
    WHERE operation_id = $1 AND name = $2 AND kind = 'external' AND output IS NULL";

/// Writes a local phase once more as it is, if it is there.
const CONFIRM: &str = "
    UPDATE semel_phases SET done_at = done_at WHERE operation_id = $1 AND name = $2 AND kind = 'local'
    RETURNING position";

const PROGRESS: &str = "
    SELECT position, name, kind, deduplicated, output, began_at, done_at, items.operation_id, items.state, items.status
    FROM semel_phases AS p LEFT JOIN semel_records AS items ON items.id = p.item_id
    WHERE p.operation_id = $1 ORDER BY position";

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
        Value::Bytes(Some(id.as_bytes())),
        Value::Int(Some(fence.epoch.into())),
        Value::Bytes(Some(fence.token.as_bytes())),
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
    write(db, command, mark).await
}

/// The steps of a command, in their order.
pub(super) async fn progress(db: &mut impl Executor, command: OperationId) -> Result<Vec<Progress>, DbError> {
    db.query(PROGRESS, &[Value::Uuid(*command.as_bytes())]).await?.iter().map(step).collect()
}

fn step(row: &Row) -> Result<Progress, DbError> {
    let number = |column| row.int(column).and_then(|number| u32::try_from(number).ok());
    let columns = StepColumns {
        kind: row.text(2).unwrap_or_default().to_owned(),
        deduplicated: row.int(3) == Some(1),
        output: row.bytes(4).cloned(),
        item: row.uuid(7),
        state: row.text(8).map(str::to_owned),
        status: number(9).and_then(|status| u16::try_from(status).ok()),
    };
    Ok(Progress {
        position: number(0).unwrap_or(0),
        name: row.text(1).unwrap_or_default().to_owned(),
        what: columns.kind().map_err(|damage| DbError::unreadable(damage.column, damage.what))?,
        began_at: Timestamp::from_millis(row.int(5).unwrap_or(0)),
        done_at: row.int(6).map(Timestamp::from_millis),
    })
}

/// Writes about a phase. `false` if there is no such phase.
pub(super) async fn write(
    db: &mut impl Executor,
    command: OperationId,
    mark: &Mark,
) -> Result<bool, DbError> {
    let id = Value::Uuid(*command.as_bytes());
    let rows = match mark {
        Mark::Local { position, name, output } => {
            let position = Value::Int(Some((*position).into()));
            db.query(LOCAL, &[id, position, Value::Text(Some(name)), Value::Bytes(Some(output))]).await?
        }
        Mark::Begun { position, name, deduplicated } => {
            let position = Value::Int(Some((*position).into()));
            let deduplicated = Value::Int(Some((*deduplicated).into()));
            db.query(BEGUN, &[id, position, Value::Text(Some(name)), deduplicated]).await?
        }
        Mark::Answered { name, output } => {
            db.query(ANSWERED, &[id, Value::Text(Some(name)), Value::Bytes(Some(output))]).await?
        }
        Mark::TakenBack { name } => {
            db.query(TAKEN_BACK, &[id, Value::Text(Some(name))]).await?;
            return Ok(true);
        }
    };
    Ok(!rows.is_empty())
}

/// Whether a local phase is written. If so, it is written once more, so that the commit of this waits for everything
/// that an earlier one should have waited for.
pub async fn confirm_phase(
    db: &mut impl Executor,
    command: OperationId,
    name: &str,
) -> Result<bool, DbError> {
    let values = [Value::Uuid(*command.as_bytes()), Value::Text(Some(name))];
    Ok(!db.query(CONFIRM, &values).await?.is_empty())
}
