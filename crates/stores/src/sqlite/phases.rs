//! The phases of a command, written under its fence within an exclusive transaction of a service's own.

use rusqlite::{Connection, params};
use semel_core::{Fence, Mark, OperationId, RecordId, Timestamp};

/// Returns true if the command still runs under this fence. Within the open exclusive transaction, it stays
/// so.
pub fn is_held(connection: &Connection, id: &RecordId, fence: Fence) -> rusqlite::Result<bool> {
    let sql =
        "SELECT 1 FROM semel_records WHERE id = ?1 AND epoch = ?2 AND token = ?3 AND state = 'processing'";
    let values = params![id.as_bytes(), fence.epoch, fence.token.as_bytes()];
    connection.prepare_cached(sql)?.exists(values)
}

/// Writes the mark of a phase.
pub(super) fn write(
    connection: &Connection,
    command: OperationId,
    mark: &Mark,
    now: Timestamp,
) -> rusqlite::Result<bool> {
    let (id, now) = (command.as_bytes(), now.as_millis());
    let changed = match mark {
        Mark::Local { position, name, output } => connection
            .prepare_cached(
                "INSERT INTO semel_phases (operation_id, position, name, kind, output, began_at, done_at)
                 VALUES (?1, ?2, ?3, 'local', ?4, ?5, ?5)",
            )?
            .execute(params![id, position, name, &output[..], now])?,
        Mark::Begun { position, name, deduplicated } => connection
            .prepare_cached(
                "INSERT INTO semel_phases (operation_id, position, name, kind, deduplicated, began_at)
                 VALUES (?1, ?2, ?3, 'external', ?4, ?5)
                 ON CONFLICT (operation_id, name) DO UPDATE SET position = excluded.position",
            )?
            .execute(params![id, position, name, deduplicated, now])?,
        Mark::Answered { name, output } => connection
            .prepare_cached(
                "UPDATE semel_phases SET output = ?3, done_at = coalesce(done_at, ?4)
                 WHERE operation_id = ?1 AND name = ?2 AND kind = 'external'",
            )?
            .execute(params![id, name, &output[..], now])?,
        Mark::TakenBack { name } => {
            connection
                .prepare_cached(
                    "DELETE FROM semel_phases
                     WHERE operation_id = ?1 AND name = ?2 AND kind = 'external' AND output IS NULL",
                )?
                .execute(params![id, name])?;
            1
        }
    };
    Ok(changed == 1)
}

/// Returns true if a local phase is written.
pub fn has_phase(connection: &Connection, command: OperationId, name: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT 1 FROM semel_phases WHERE operation_id = ?1 AND name = ?2 AND kind = 'local'";
    connection.prepare_cached(sql)?.exists(params![command.as_bytes(), name])
}
