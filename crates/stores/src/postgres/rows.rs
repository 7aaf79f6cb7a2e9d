//! Conversion of a row to a [`Record`].

use semel_core::Record;

use super::errors::DbError;
use super::executor::{Cell, SqlRow};
use crate::columns::{RecordColumns, ResultColumns};

/// Columns that [`record`] reads, in its order.
macro_rules! record_columns {
    () => {
        "id, operation_id, tenant, caller, operation, key_hash_prefix, fingerprint_version, fingerprint, state, \
         reason, epoch, token, lease_ms, ttl_ms, tombstone_ttl_ms, on_lease_expired, quarantine_ms, keep_request, due_at, \
         start_by, ready_at, expires_at, settled_by, state_since, reconcile_after, attempts, quarantine_until, earlier_may_have_run, \
         partly_done, created_at, updated_at, history, trace, revision, status, resource, response_format, encryption_key_id, response"
    };
}
pub(super) use record_columns;

/// Columns of a record without the response, which may be large, for lists and sweeps.
macro_rules! record_columns_without_response {
    () => {
        "id, operation_id, tenant, caller, operation, key_hash_prefix, fingerprint_version, fingerprint, state, \
         reason, epoch, token, lease_ms, ttl_ms, tombstone_ttl_ms, on_lease_expired, quarantine_ms, keep_request, due_at, \
         start_by, ready_at, expires_at, settled_by, state_since, reconcile_after, attempts, quarantine_until, earlier_may_have_run, \
         partly_done, created_at, updated_at, history, trace, revision, NULL::bigint, NULL::text, NULL::bigint, NULL::text, NULL::bytea"
    };
}
pub(super) use record_columns_without_response;

/// A record as read, with the number of its last write.
#[derive(Clone, Debug)]
pub(super) struct Versioned {
    pub(super) record: Record,
    pub(super) revision: i64,
}

/// Reads a record from a row, after `skip` other columns. The error names the column whose content no version
/// of Semel wrote.
pub(super) fn record(row: SqlRow, skip: usize) -> Result<Versioned, DbError> {
    let mut cells = Cells { cells: row.0.into_iter().skip(skip) };
    let columns = RecordColumns {
        id: cells.array("id")?,
        operation_id: cells.uuid("operation_id")?,
        tenant: cells.text("tenant")?.into(),
        caller: cells.text("caller")?.into(),
        operation: cells.text("operation")?.into(),
        key_hash_prefix: cells.text("key_hash_prefix")?.into(),
        fingerprint_version: cells.number("fingerprint_version")?,
        fingerprint: cells.array("fingerprint")?,
        state: cells.text("state")?.into(),
        reason: cells.text("reason")?.into(),
        epoch: cells.number("epoch")?,
        token: cells.array("token")?,
        lease_ms: cells.number("lease_ms")?,
        ttl_ms: cells.number("ttl_ms")?,
        tombstone_ttl_ms: cells.maybe_number("tombstone_ttl_ms")?,
        on_lease_expired: cells.text("on_lease_expired")?.into(),
        quarantine_ms: cells.number("quarantine_ms")?,
        keep_request: cells.number::<u8>("keep_request")? != 0,
        due_at: cells.maybe_number("due_at")?,
        start_by: cells.maybe_number("start_by")?,
        ready_at: cells.maybe_number("ready_at")?,
        expires_at: cells.maybe_number("expires_at")?,
        settled_by: cells.maybe_text("settled_by")?.map(Into::into),
        state_since: cells.number("state_since")?,
        reconcile_after: cells.maybe_number("reconcile_after")?,
        attempts: cells.maybe_number("attempts")?,
        quarantine_until: cells.maybe_number("quarantine_until")?,
        earlier_may_have_run: cells.number::<u8>("earlier_may_have_run")? != 0,
        partly_done: cells.number::<u8>("partly_done")? != 0,
        created_at: cells.number("created_at")?,
        updated_at: cells.number("updated_at")?,
        history: cells.text("history")?.into(),
        trace: cells.maybe_text("trace")?.map(Into::into),
        result: None,
    };
    let revision = cells.number("revision")?;
    let (status, resource) = (cells.maybe_number("status")?, cells.maybe_text("resource")?);
    let (format, key_id) = (cells.maybe_number("response_format")?, cells.maybe_text("encryption_key_id")?);
    let result = match (format, cells.next()) {
        (None, _) => None,
        (Some(response_format), Cell::Bytes(response)) => Some(ResultColumns {
            status: status.ok_or_else(|| DbError::unreadable("status", "there is nothing"))?,
            resource: resource.map(Into::into),
            response_format,
            encryption_key_id: key_id.map(Into::into),
            response,
        }),
        (Some(_), _) => return Err(DbError::unreadable("response", "there is nothing")),
    };
    let record = RecordColumns { result, ..columns }.record();
    let record = record.map_err(|damage| DbError::unreadable(damage.column, damage.what))?;
    Ok(Versioned { record, revision })
}

/// The cells of a row, taken one by one.
struct Cells<I> {
    cells: I,
}

impl<I: Iterator<Item = Cell>> Cells<I> {
    fn next(&mut self) -> Cell {
        self.cells.next().unwrap_or(Cell::Null)
    }

    fn array<const N: usize>(&mut self, column: &'static str) -> Result<[u8; N], DbError> {
        let Cell::Bytes(bytes) = self.next() else { return Err(DbError::unreadable(column, "no bytes")) };
        bytes[..].try_into().map_err(|_| DbError::unreadable(column, format!("not {N} bytes long")))
    }

    fn uuid(&mut self, column: &'static str) -> Result<[u8; 16], DbError> {
        match self.next() {
            Cell::Uuid(id) => Ok(id),
            _ => Err(DbError::unreadable(column, "no id")),
        }
    }

    fn text(&mut self, column: &'static str) -> Result<String, DbError> {
        self.maybe_text(column)?.ok_or_else(|| DbError::unreadable(column, "there is nothing"))
    }

    fn maybe_text(&mut self, column: &'static str) -> Result<Option<String>, DbError> {
        match self.next() {
            Cell::Null => Ok(None),
            Cell::Text(text) => Ok(Some(text)),
            _ => Err(DbError::unreadable(column, "no text")),
        }
    }

    fn number<N: TryFrom<i64>>(&mut self, column: &'static str) -> Result<N, DbError> {
        self.maybe_number(column)?.ok_or_else(|| DbError::unreadable(column, "there is nothing"))
    }

    fn maybe_number<N: TryFrom<i64>>(&mut self, column: &'static str) -> Result<Option<N>, DbError> {
        match self.next() {
            Cell::Null => Ok(None),
            Cell::Int(number) => N::try_from(number)
                .map(Some)
                .map_err(|_| DbError::unreadable(column, format!("{number} is out of range"))),
            _ => Err(DbError::unreadable(column, "no number")),
        }
    }
}
