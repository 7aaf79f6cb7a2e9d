//! All SQL about records.
//!
//! Called with a connection in an exclusive transaction (changes), or a read-only one (look-ups).

use rusqlite::{Connection, OptionalExtension, Row, params};
use semel_core::{
    AuditEntry, AuditId, Claim, Head, Holder, Item, Note, NoteTaken, OperationId, OperationName, Principal,
    Progress, Record, RecordId, State, StoredRequest, Timestamp,
};

use super::errors::is_unreadable;
use super::rows::{WHOLE, WITHOUT_RESPONSE, damaged, damaged_column, record};
use crate::columns::{RecordColumns, StepColumns};
use crate::contested::contested;
use crate::doctor::telling::WaitingRecords;

/// Returns the database's time in milliseconds: the clock that decides.
pub(super) fn now(connection: &Connection) -> rusqlite::Result<i64> {
    connection
        .prepare_cached("SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)")?
        .query_row([], |row| row.get(0))
}

/// Returns the record with this id, without its response.
pub(super) fn get_without_response(
    connection: &Connection,
    id: &RecordId,
) -> rusqlite::Result<Option<Record>> {
    connection
        .prepare_cached(&format!("SELECT {WITHOUT_RESPONSE} FROM semel_records WHERE id = ?1"))?
        .query_row([id.as_bytes()], record)
        .optional()
}

/// Returns the record with this id.
pub(super) fn get(connection: &Connection, id: &RecordId) -> rusqlite::Result<Option<Record>> {
    connection
        .prepare_cached(&format!("SELECT {WHOLE} FROM semel_records WHERE id = ?1"))?
        .query_row([id.as_bytes()], record)
        .optional()
}

/// Returns the record of this operation id.
pub(super) fn find(connection: &Connection, id: OperationId) -> rusqlite::Result<Option<Record>> {
    connection
        .prepare_cached(&format!("SELECT {WHOLE} FROM semel_records WHERE operation_id = ?1"))?
        .query_row([id.as_bytes()], record)
        .optional()
}

/// Returns the record of this operation id, if it belongs to this principal. Of another's row, no further
/// column is read.
pub(super) fn find_own(
    connection: &Connection,
    id: OperationId,
    principal: &Principal,
) -> rusqlite::Result<Option<Record>> {
    connection
        .prepare_cached(&format!(
            "SELECT {WHOLE} FROM semel_records WHERE operation_id = ?1 AND tenant = ?2 AND caller = ?3"
        ))?
        .query_row(params![id.as_bytes(), principal.tenant(), principal.caller()], record)
        .optional()
}

/// Adds a note about a command, or about the store. Notes are never changed.
pub(super) fn take_note(
    connection: &Connection,
    id: Option<OperationId>,
    note: &Note,
    now: Timestamp,
) -> rusqlite::Result<usize> {
    connection
        .prepare_cached(
            "INSERT INTO semel_audit (at, operation_id, who, action, why) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            now.as_millis(),
            id.as_ref().map(OperationId::as_bytes),
            note.who,
            note.action,
            note.why
        ])
}

/// Returns the notes about a command, the oldest first.
pub(super) fn notes(connection: &Connection, id: OperationId) -> rusqlite::Result<Vec<NoteTaken>> {
    connection
        .prepare_cached("SELECT at, who, action, why FROM semel_audit WHERE operation_id = ?1 ORDER BY id")?
        .query_map([id.as_bytes()], |row| {
            let note = Note { who: row.get(1)?, action: row.get(2)?, why: row.get(3)? };
            Ok(NoteTaken { at: Timestamp::from_millis(row.get(0)?), note })
        })?
        .collect()
}

/// Returns the notes about all commands before this one, the newest first.
pub(super) fn audit(
    connection: &Connection,
    before: Option<AuditId>,
    limit: usize,
) -> rusqlite::Result<Vec<AuditEntry>> {
    let before = before.map_or(i64::MAX, |id| i64::try_from(id.0).unwrap_or(i64::MAX));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let sql = "SELECT id, operation_id, at, who, action, why FROM semel_audit
               WHERE id < ?1 ORDER BY id DESC LIMIT ?2";
    let read = |row: &Row<'_>| {
        let note = Note { who: row.get(3)?, action: row.get(4)?, why: row.get(5)? };
        Ok(AuditEntry {
            id: AuditId(u128::try_from(row.get::<_, i64>(0)?).unwrap_or(0)),
            operation_id: row.get::<_, Option<_>>(1)?.map(OperationId::from_bytes),
            taken: NoteTaken { at: Timestamp::from_millis(row.get(2)?), note },
        })
    };
    connection.prepare_cached(sql)?.query_map(params![before, limit], read)?.collect()
}

/// Returns the count and age of commands in state `Unknown`.
pub(super) fn unknown(connection: &Connection) -> rusqlite::Result<WaitingRecords> {
    let sql = "SELECT count(*), min(state_since) FROM semel_records
               WHERE reconcile_after IS NOT NULL AND state = 'unknown'";
    connection.query_row(sql, [], waiting)
}

/// Returns the count and age of records whose lease or start deadline passed before this moment.
pub(super) fn not_swept(connection: &Connection, before: Timestamp) -> rusqlite::Result<WaitingRecords> {
    let sql = "SELECT count(*), min(due_at) FROM semel_records WHERE due_at IS NOT NULL AND due_at < ?1";
    connection.query_row(sql, [before.as_millis()], waiting)
}

/// Returns the count and age of records whose time to live ended before this moment.
pub(super) fn not_reaped(connection: &Connection, before: Timestamp) -> rusqlite::Result<WaitingRecords> {
    let sql = "SELECT count(*), min(expires_at) FROM semel_records WHERE expires_at IS NOT NULL AND expires_at < ?1";
    connection.query_row(sql, [before.as_millis()], waiting)
}

fn waiting(row: &Row<'_>) -> rusqlite::Result<WaitingRecords> {
    let count = u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0);
    Ok(WaitingRecords { count, since: row.get::<_, Option<i64>>(1)?.map(Timestamp::from_millis) })
}

/// Due time of a record, and its id.
pub(super) type DueAt = (i64, RecordId);

/// A query for due records, by the present time, the last record of the previous page, and the limit.
pub(super) type DueQuery = fn(&Connection, Timestamp, Option<DueAt>, usize) -> rusqlite::Result<Vec<DueAt>>;

/// Returns records whose lease or start deadline has passed, the oldest first.
pub(super) fn due_to_sweep(
    connection: &Connection,
    now: Timestamp,
    after: Option<DueAt>,
    limit: usize,
) -> rusqlite::Result<Vec<DueAt>> {
    let sql = "SELECT due_at, id FROM semel_records
               WHERE due_at IS NOT NULL AND due_at <= ?1 AND (due_at, id) > (?2, ?3) ORDER BY due_at, id LIMIT ?4";
    due(connection, sql, now, after, limit)
}

/// Returns records whose time to live is over, the oldest first.
pub(super) fn due_to_reap(
    connection: &Connection,
    now: Timestamp,
    after: Option<DueAt>,
    limit: usize,
) -> rusqlite::Result<Vec<DueAt>> {
    let sql = "SELECT expires_at, id FROM semel_records
               WHERE expires_at IS NOT NULL AND expires_at <= ?1 AND (expires_at, id) > (?2, ?3)
               ORDER BY expires_at, id LIMIT ?4";
    due(connection, sql, now, after, limit)
}

fn due(
    connection: &Connection,
    sql: &str,
    now: Timestamp,
    after: Option<DueAt>,
    limit: usize,
) -> rusqlite::Result<Vec<DueAt>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let (moment, id) = after.unwrap_or((i64::MIN, RecordId::from_bytes([0; 32])));
    connection
        .prepare_cached(sql)?
        .query_map(params![now.as_millis(), moment, id.as_bytes(), limit], |row| {
            Ok((row.get(0)?, RecordId::from_bytes(row.get(1)?)))
        })?
        .collect()
}

/// Inserts a new record. Returns `false` if its id exists: the unique constraint decides between claimers.
pub(super) fn insert(connection: &Connection, record: &Record) -> rusqlite::Result<bool> {
    let row = RecordColumns::of(record);
    let changed = connection
        .prepare_cached(
            "INSERT INTO semel_records (
                 id, operation_id, tenant, caller, operation, key_hash_prefix, fingerprint_version, fingerprint,
                 state, reason, epoch, token, lease_ms, ttl_ms, tombstone_ttl_ms, on_lease_expired,
                 quarantine_ms, due_at, expires_at, created_at, updated_at, state_since, history, start_by, ready_at, keep_request,
                 trace, reconcile_after, attempts, quarantine_until, earlier_may_have_run
             ) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?20, ?20,
                 ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29)
             ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            row.id,
            row.operation_id,
            row.tenant,
            row.caller,
            row.operation,
            row.key_hash_prefix,
            row.fingerprint_version,
            row.fingerprint,
            row.state,
            row.reason,
            row.epoch,
            row.token,
            row.lease_ms,
            row.ttl_ms,
            row.tombstone_ttl_ms,
            row.on_lease_expired,
            row.quarantine_ms,
            row.due_at,
            row.expires_at,
            row.created_at,
            row.history,
            row.start_by,
            row.ready_at,
            row.keep_request,
            row.trace,
            row.reconcile_after,
            row.attempts,
            row.quarantine_until,
            row.earlier_may_have_run,
        ])?;
    Ok(changed == 1)
}

/// Updates a record, only if it still has the head `before`. Returns `false` if it has not.
pub(super) fn update(connection: &Connection, before: &Head, record: &Record) -> rusqlite::Result<bool> {
    let row = RecordColumns::of(record);
    let result = row.result.as_ref();
    let may_start_until = match before.state {
        State::Processing { start_by, .. } => start_by,
        _ => None,
    };
    let changed = connection
        .prepare_cached(
            "UPDATE semel_records SET
                 state = ?1, reason = ?2, epoch = ?3, token = ?4, lease_ms = ?5,
                 ttl_ms = ?6, tombstone_ttl_ms = ?7, on_lease_expired = ?8,
                 quarantine_ms = ?9, due_at = ?10, expires_at = ?11,
                 settled_by = ?12, state_since = ?13, reconcile_after = ?14,
                 attempts = ?15, quarantine_until = ?16, updated_at = ?17,
                 status = ?18, resource = ?19, response_format = ?20,
                 encryption_key_id = ?21, response = ?22, history = ?23,
                 start_by = ?24, ready_at = ?25, earlier_may_have_run = ?26, partly_done = ?27,
                 keep_request = ?28
             WHERE id = ?29 AND epoch = ?30 AND token = ?31 AND state = ?32 AND due_at IS ?33
               AND start_by IS ?34 AND reason = ?35 AND partly_done = ?36",
        )?
        .execute(params![
            row.state,
            row.reason,
            row.epoch,
            row.token,
            row.lease_ms,
            row.ttl_ms,
            row.tombstone_ttl_ms,
            row.on_lease_expired,
            row.quarantine_ms,
            row.due_at,
            row.expires_at,
            row.settled_by,
            row.state_since,
            row.reconcile_after,
            row.attempts,
            row.quarantine_until,
            row.updated_at,
            result.map(|result| result.status),
            result.and_then(|result| result.resource.as_deref()),
            result.map(|result| result.response_format),
            result.and_then(|result| result.encryption_key_id.as_deref()),
            result.map(|result| &result.response[..]),
            row.history,
            row.start_by,
            row.ready_at,
            row.earlier_may_have_run,
            row.partly_done,
            row.keep_request,
            row.id,
            before.epoch,
            before.token.as_bytes(),
            before.state.name().as_str(),
            before.state.due_to_sweep().map(Timestamp::as_millis),
            may_start_until.map(Timestamp::as_millis),
            before.reason.as_str(),
            before.partly_done,
        ])?;
    Ok(changed == 1)
}

/// Deletes a record, only if it still has the head `before`. Returns `false` if it has not.
pub(super) fn delete(connection: &Connection, id: &RecordId, before: &Head) -> rusqlite::Result<bool> {
    let changed = connection
        .prepare_cached(
            "DELETE FROM semel_records WHERE id = ?1 AND epoch = ?2 AND token = ?3 AND state = ?4",
        )?
        .execute(params![
            id.as_bytes(),
            before.epoch,
            before.token.as_bytes(),
            before.state.name().as_str()
        ])?;
    Ok(changed == 1)
}

/// Stores the request of a command, and replaces an earlier one.
pub(super) fn keep_request(
    connection: &Connection,
    id: OperationId,
    request: &StoredRequest,
    now: Timestamp,
) -> rusqlite::Result<usize> {
    let sql = "INSERT INTO semel_requests (operation_id, format, encryption_key_id, request, kept_at)
               VALUES (?1, ?2, ?3, ?4, ?5)
               ON CONFLICT DO UPDATE SET format = ?2, encryption_key_id = ?3, request = ?4, kept_at = ?5";
    let StoredRequest { format, encryption_key_id, bytes } = request;
    connection.prepare_cached(sql)?.execute(params![
        id.as_bytes(),
        format,
        encryption_key_id,
        &bytes[..],
        now.as_millis()
    ])
}

/// Returns the stored request of a command.
pub(super) fn request(connection: &Connection, id: OperationId) -> rusqlite::Result<Option<StoredRequest>> {
    connection
        .prepare_cached(
            "SELECT format, encryption_key_id, request FROM semel_requests WHERE operation_id = ?1",
        )?
        .query_row([id.as_bytes()], |row| {
            let bytes = row.get::<_, Vec<u8>>(2)?.into();
            Ok(StoredRequest { format: row.get(0)?, encryption_key_id: row.get(1)?, bytes })
        })
        .optional()
}

/// Erases the request of a command.
pub(super) fn erase_request(connection: &Connection, id: OperationId) -> rusqlite::Result<usize> {
    connection.prepare_cached("DELETE FROM semel_requests WHERE operation_id = ?1")?.execute([id.as_bytes()])
}

/// Returns commands in state `Unknown` that are due for a look-up of evidence, without unreadable ones.
pub(super) fn due_to_reconcile(
    connection: &Connection,
    limit: usize,
    now: Timestamp,
) -> rusqlite::Result<Vec<Record>> {
    connection
        .prepare_cached(&format!(
            "SELECT {WITHOUT_RESPONSE} FROM semel_records
             WHERE reconcile_after IS NOT NULL AND reconcile_after <= ?1 AND state = 'unknown'
                 AND (NOT EXISTS (SELECT 1 FROM semel_holds WHERE kind = 'store')
                     OR EXISTS (SELECT 1 FROM semel_holds WHERE kind = 'look-up-first'))
             ORDER BY reconcile_after LIMIT ?2"
        ))?
        .query_map(params![now.as_millis(), i64::try_from(limit).unwrap_or(i64::MAX)], record)?
        .filter(|row| !row.as_ref().is_err_and(is_unreadable))
        .collect()
}

/// Records the items of a command. Returns the number of new ones.
pub(super) fn announce(
    connection: &Connection,
    id: OperationId,
    items: &[Item],
    now: Timestamp,
) -> rusqlite::Result<usize> {
    let sql = "INSERT INTO semel_phases (operation_id, position, name, kind, item_id, began_at)
               VALUES (?1, ?2, ?3, 'item', ?4, ?5) ON CONFLICT DO NOTHING";
    let mut insert = connection.prepare_cached(sql)?;
    let mut added = 0;
    for (position, item) in items.iter().enumerate() {
        let position = i64::try_from(position).unwrap_or(i64::MAX);
        let values = params![id.as_bytes(), position, item.name, item.record.as_bytes(), now.as_millis()];
        added += insert.execute(values)?;
    }
    Ok(added)
}

/// Returns the steps of a command, in order.
pub(super) fn progress(connection: &Connection, id: OperationId) -> rusqlite::Result<Vec<Progress>> {
    let sql = "SELECT position, name, kind, deduplicated, output, began_at, done_at, items.operation_id, items.state,
                   items.status
               FROM semel_phases LEFT JOIN semel_records AS items ON items.id = item_id
               WHERE semel_phases.operation_id = ?1 ORDER BY position";
    let read = |row: &Row<'_>| {
        let step = StepColumns {
            kind: row.get::<_, String>(2)?,
            deduplicated: row.get(3)?,
            output: row.get::<_, Option<Vec<u8>>>(4)?.map(Into::into),
            item: row.get(7)?,
            state: row.get(8)?,
            status: row.get(9)?,
        };
        Ok(Progress {
            position: row.get(0)?,
            name: row.get(1)?,
            what: step.kind().map_err(damaged)?,
            began_at: Timestamp::from_millis(row.get(5)?),
            done_at: row.get::<_, Option<i64>>(6)?.map(Timestamp::from_millis),
        })
    };
    connection.prepare_cached(sql)?.query_map([id.as_bytes()], read)?.collect()
}

/// Returns true if the request of a command is stored.
pub(super) fn has_request(connection: &Connection, id: OperationId) -> rusqlite::Result<bool> {
    connection.prepare_cached("SELECT 1 FROM semel_requests WHERE operation_id = ?1")?.exists([id.as_bytes()])
}

/// Deletes the steps of a command, together with its record.
pub(super) fn forget_progress(connection: &Connection, id: OperationId) -> rusqlite::Result<usize> {
    connection.prepare_cached("DELETE FROM semel_phases WHERE operation_id = ?1")?.execute([id.as_bytes()])
}

/// Returns the holder of a business reference.
pub(super) fn reference_holder(
    connection: &Connection,
    claim: &Claim,
    operation: &OperationName,
) -> rusqlite::Result<Option<Holder>> {
    let tenant = claim.scope.principal().tenant();
    let holder = connection
        .prepare_cached(
            "SELECT operation_id, caller FROM semel_references
             WHERE tenant = ?1 AND operation = ?2 AND reference = ?3 AND given_back = 0",
        )?
        .query_row(params![tenant, operation.as_str(), claim.business_reference], |row| {
            Ok((OperationId::from_bytes(row.get(0)?), row.get::<_, String>(1)?))
        })
        .optional()?;
    let Some((operation_id, caller)) = holder else { return Ok(None) };
    let principal = Principal::new(tenant, &caller).map_err(|error| damaged_column("caller", error))?;
    Ok(Some(Holder { operation_id, principal }))
}

/// Gives the claim's business reference to the record. It may have it already.
pub(super) fn take_reference(
    connection: &Connection,
    claim: &Claim,
    record: &Record,
) -> rusqlite::Result<usize> {
    connection
        .prepare_cached(
            "INSERT INTO semel_references (tenant, operation, reference, operation_id, caller, taken_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (tenant, operation, reference, operation_id)
             DO UPDATE SET caller = ?5, taken_at = ?6, given_back = 0",
        )?
        .execute(params![
            record.principal.tenant(),
            claim.scope.operation().as_str(),
            claim.business_reference,
            record.operation_id.as_bytes(),
            record.principal.caller(),
            record.updated_at.as_millis(),
        ])
}

/// Frees the business reference of a command for others.
pub(super) fn give_reference_back(connection: &Connection, id: OperationId) -> rusqlite::Result<usize> {
    connection
        .prepare_cached("UPDATE semel_references SET given_back = 1 WHERE operation_id = ?1")?
        .execute([id.as_bytes()])
}

/// Takes the business references of a command back, except those that other commands hold since, which are noted.
pub(super) fn take_references_back(
    connection: &Connection,
    id: OperationId,
    now: Timestamp,
) -> rusqlite::Result<()> {
    const OTHERS: &str = "
        SELECT other.operation_id FROM semel_references AS own JOIN semel_references AS other
            ON other.tenant = own.tenant AND other.operation = own.operation AND other.reference = own.reference
        WHERE own.operation_id = ?1 AND own.given_back = 1 AND other.given_back = 0";
    const TAKE_BACK: &str = "
        UPDATE semel_references AS own SET given_back = 0
        WHERE operation_id = ?1 AND given_back = 1 AND NOT EXISTS (
            SELECT 1 FROM semel_references AS other
            WHERE other.tenant = own.tenant AND other.operation = own.operation AND other.reference = own.reference
                AND other.given_back = 0)";
    let others: Vec<OperationId> = connection
        .prepare_cached(OTHERS)?
        .query_map([id.as_bytes()], |row| row.get(0).map(OperationId::from_bytes))?
        .collect::<rusqlite::Result<_>>()?;
    for holder in others {
        take_note(connection, Some(id), &contested(id, holder), now)?;
    }
    connection.prepare_cached(TAKE_BACK)?.execute([id.as_bytes()]).map(drop)
}

/// Deletes a business reference that was given back, together with its record.
pub(super) fn forget_reference(connection: &Connection, id: OperationId) -> rusqlite::Result<usize> {
    connection
        .prepare_cached("DELETE FROM semel_references WHERE operation_id = ?1 AND given_back = 1")?
        .execute([id.as_bytes()])
}
