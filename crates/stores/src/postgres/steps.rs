//! The rows of a command's steps: its phases, and the items of a bulk request.

use semel_core::{Mark, OperationId, Progress, Timestamp};

use super::errors::DbError;
use super::executor::{Executor, SqlRow, SqlValue};
use crate::columns::StepColumns;

const LOCAL: &str = "
    INSERT INTO semel_phases (operation_id, position, name, kind, output, began_at, done_at)
    SELECT $1, $2, $3, 'local', $4, (extract(epoch FROM now()) * 1000)::bigint,
        (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    RETURNING position";

/// Writes a begun call. Repeating it changes nothing.
const BEGUN: &str = "
    INSERT INTO semel_phases (operation_id, position, name, kind, deduplicated, began_at)
    SELECT $1, $2, $3, 'external', $4, (extract(epoch FROM now()) * 1000)::bigint
    ON CONFLICT (operation_id, name) DO UPDATE SET position = excluded.position
    RETURNING position";

/// Writes the output of a call. Repeating it changes nothing.
const ANSWERED: &str = "
    UPDATE semel_phases SET
        output = $3, done_at = coalesce(done_at, (extract(epoch FROM now()) * 1000)::bigint)
    WHERE operation_id = $1 AND name = $2 AND kind = 'external'
    RETURNING position";

const TAKEN_BACK: &str = "
    DELETE FROM semel_phases
    WHERE operation_id = $1 AND name = $2 AND kind = 'external' AND output IS NULL";

/// Writes a local phase once more unchanged, if it exists.
const CONFIRM: &str = "
    UPDATE semel_phases SET done_at = done_at WHERE operation_id = $1 AND name = $2 AND kind = 'local'
    RETURNING position";

const PROGRESS: &str = "
    SELECT position, name, kind, deduplicated, output, began_at, done_at, items.operation_id, items.state, items.status
    FROM semel_phases AS p LEFT JOIN semel_records AS items ON items.id = p.item_id
    WHERE p.operation_id = $1 ORDER BY position";

/// Returns the steps of a command, in order.
pub(super) async fn progress(db: &mut impl Executor, command: OperationId) -> Result<Vec<Progress>, DbError> {
    db.query(PROGRESS, &[SqlValue::Uuid(*command.as_bytes())]).await?.iter().map(step).collect()
}

fn step(row: &SqlRow) -> Result<Progress, DbError> {
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

/// Writes the mark of a phase. Returns `false` if there is no such phase.
pub(super) async fn write(
    db: &mut impl Executor,
    command: OperationId,
    mark: &Mark,
) -> Result<bool, DbError> {
    let id = SqlValue::Uuid(*command.as_bytes());
    let rows = match mark {
        Mark::Local { position, name, output } => {
            let position = SqlValue::Int(Some((*position).into()));
            db.query(LOCAL, &[id, position, SqlValue::Text(Some(name)), SqlValue::Bytes(Some(output))])
                .await?
        }
        Mark::Begun { position, name, deduplicated } => {
            let position = SqlValue::Int(Some((*position).into()));
            let deduplicated = SqlValue::Int(Some((*deduplicated).into()));
            db.query(BEGUN, &[id, position, SqlValue::Text(Some(name)), deduplicated]).await?
        }
        Mark::Answered { name, output } => {
            db.query(ANSWERED, &[id, SqlValue::Text(Some(name)), SqlValue::Bytes(Some(output))]).await?
        }
        Mark::TakenBack { name } => {
            db.query(TAKEN_BACK, &[id, SqlValue::Text(Some(name))]).await?;
            return Ok(true);
        }
    };
    Ok(!rows.is_empty())
}

/// Returns true if a local phase is written. If so, writes it once more, so that this commit waits for
/// everything that an earlier one should have waited for.
pub async fn confirm_phase(
    db: &mut impl Executor,
    command: OperationId,
    name: &str,
) -> Result<bool, DbError> {
    let values = [SqlValue::Uuid(*command.as_bytes()), SqlValue::Text(Some(name))];
    Ok(!db.query(CONFIRM, &values).await?.is_empty())
}
