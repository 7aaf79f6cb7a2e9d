//! Conversion of a row to a [`Record`].

use std::borrow::Cow;

use rusqlite::Row;
use rusqlite::types::{FromSql, Type};
use semel_core::Record;

use crate::columns::{Damage, RecordColumns, ResultColumns, damage};

/// Columns that [`record`] reads, in its order. It reads them by position: a look-up by name takes several
/// times as long as the read.
macro_rules! record_columns {
    ($response:literal) => {
        concat!(
            "id, operation_id, tenant, caller, operation, key_hash_prefix, fingerprint_version, fingerprint, state, reason,
             epoch, token, lease_ms, ttl_ms, tombstone_ttl_ms, on_lease_expired, quarantine_ms, keep_request, due_at, start_by,
             ready_at,
             expires_at, settled_by, state_since, reconcile_after, attempts, quarantine_until,
             earlier_may_have_run, partly_done, created_at, updated_at, history, trace,",
            $response
        )
    };
}

/// All columns of a record.
pub(super) const WHOLE: &str =
    record_columns!("response_format, status, resource, encryption_key_id, response");

/// Columns of a record without the response, which may be large.
pub(super) const WITHOUT_RESPONSE: &str = record_columns!("NULL, NULL, NULL, NULL, NULL");

/// Reads a record from a row that begins with these columns. The error names the column whose content no
/// version of Semel wrote.
pub(super) fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    let mut cells = Cells { row, at: 0 };
    let columns = RecordColumns {
        id: cells.next()?,
        operation_id: cells.next()?,
        tenant: cells.text()?,
        caller: cells.text()?,
        operation: cells.text()?,
        key_hash_prefix: cells.text()?,
        fingerprint_version: cells.next()?,
        fingerprint: cells.next()?,
        state: cells.text()?,
        reason: cells.text()?,
        epoch: cells.next()?,
        token: cells.next()?,
        lease_ms: cells.next()?,
        ttl_ms: cells.next()?,
        tombstone_ttl_ms: cells.next()?,
        on_lease_expired: cells.text()?,
        quarantine_ms: cells.next()?,
        keep_request: cells.next()?,
        due_at: cells.next()?,
        start_by: cells.next()?,
        ready_at: cells.next()?,
        expires_at: cells.next()?,
        settled_by: cells.maybe_text()?,
        state_since: cells.next()?,
        reconcile_after: cells.next()?,
        attempts: cells.next()?,
        quarantine_until: cells.next()?,
        earlier_may_have_run: cells.next()?,
        partly_done: cells.next()?,
        created_at: cells.next()?,
        updated_at: cells.next()?,
        history: cells.text()?,
        trace: cells.maybe_text()?,
        result: cells.result()?,
    };
    columns.record().map_err(damaged)
}

/// Reads the stored response from a row, whose columns begin at this position: format, status, resource, key
/// and response.
pub(super) fn result(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<ResultColumns<'static>>> {
    Cells { row, at }.result()
}

/// The cells of a row, one after the other.
struct Cells<'a, 'row> {
    row: &'a Row<'row>,
    at: usize,
}

impl Cells<'_, '_> {
    fn next<T: FromSql>(&mut self) -> rusqlite::Result<T> {
        let cell = self.row.get(self.at);
        self.at += 1;
        cell
    }

    fn text(&mut self) -> rusqlite::Result<Cow<'static, str>> {
        self.next::<String>().map(Into::into)
    }

    fn maybe_text(&mut self) -> rusqlite::Result<Option<Cow<'static, str>>> {
        Ok(self.next::<Option<String>>()?.map(Into::into))
    }

    fn result(&mut self) -> rusqlite::Result<Option<ResultColumns<'static>>> {
        let Some(response_format) = self.next()? else { return Ok(None) };
        Ok(Some(ResultColumns {
            response_format,
            status: self.next()?,
            resource: self.maybe_text()?,
            encryption_key_id: self.maybe_text()?,
            response: self.next::<Vec<u8>>()?.into(),
        }))
    }
}

/// Returns damage as an error of rusqlite.
pub(super) fn damaged(damage: Damage) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Null, Box::new(damage))
}

/// Returns damage of a single column as an error of rusqlite.
pub(super) fn damaged_column(column: &'static str, what: impl std::fmt::Display) -> rusqlite::Error {
    damaged(damage(column, what))
}
