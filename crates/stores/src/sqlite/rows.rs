//! How a row becomes a [`Record`].

use rusqlite::Row;
use rusqlite::types::Type;
use semel_core::Record;

use crate::columns::{Columns, Damage, ResultColumns, damage};

/// Reads a row. What no version of Semel wrote is damage, and says in which column.
pub(super) fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    let text = |column: &str| row.get::<_, String>(column).map(Into::into);
    let columns = Columns {
        id: row.get("id")?,
        operation_id: row.get("operation_id")?,
        tenant: text("tenant")?,
        caller: text("caller")?,
        operation: text("operation")?,
        key_hash_prefix: text("key_hash_prefix")?,
        fingerprint_version: row.get("fingerprint_version")?,
        fingerprint: row.get("fingerprint")?,
        state: text("state")?,
        reason: text("reason")?,
        epoch: row.get("epoch")?,
        token: row.get("token")?,
        lease_ms: row.get("lease_ms")?,
        ttl_ms: row.get("ttl_ms")?,
        tombstone_ttl_ms: row.get("tombstone_ttl_ms")?,
        on_lease_expired: text("on_lease_expired")?,
        quarantine_ms: row.get("quarantine_ms")?,
        due_at: row.get("due_at")?,
        start_by: row.get("start_by")?,
        ready_at: row.get("ready_at")?,
        expires_at: row.get("expires_at")?,
        settled_by: row.get::<_, Option<String>>("settled_by")?.map(Into::into),
        unknown_since: row.get("unknown_since")?,
        reconcile_after: row.get("reconcile_after")?,
        attempts: row.get("attempts")?,
        quarantine_until: row.get("quarantine_until")?,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
        history: text("history")?,
        result: result(row)?,
    };
    columns.record().map_err(damaged)
}

/// The stored response in a row.
pub(super) fn result(row: &Row<'_>) -> rusqlite::Result<Option<ResultColumns<'static>>> {
    let Some(response_format) = row.get("response_format")? else { return Ok(None) };
    Ok(Some(ResultColumns {
        status: row.get("status")?,
        resource: row.get::<_, Option<String>>("resource")?.map(Into::into),
        response_format,
        encryption_key_id: row.get::<_, Option<String>>("encryption_key_id")?.map(Into::into),
        response: row.get::<_, Vec<u8>>("response")?.into(),
    }))
}

/// Damage, as rusqlite hands errors on.
pub(super) fn damaged(damage: Damage) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Null, Box::new(damage))
}

/// The same, for a column that was read by itself.
pub(super) fn damaged_column(column: &'static str, what: impl std::fmt::Display) -> rusqlite::Error {
    damaged(damage(column, what))
}
