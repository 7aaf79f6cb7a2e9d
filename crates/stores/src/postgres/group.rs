//! Many records in one statement: parameters are arrays, and `unnest` makes rows of them. The rows are
//! ordered by id, so that two groups never deadlock.

use std::collections::{HashMap, HashSet};

use semel_core::{AttemptToken, Ids, Note, OperationId, RandomIds, Record, RecordId, Timestamp};

use super::clock::now;
use super::errors::DbError;
use super::executor::{Executor, SqlRow, SqlValue};
use super::fence::{is_fenced, not_fenced};
use super::known::KnownCompletion;
use super::link::Link;
use super::queries::{
    ERASE_REQUESTS, FORGET_PROGRESS, FORGET_REFERENCES, GIVE_REFERENCES_BACK, TAKE_NOTE, note_values,
    snapshot, take_references_back,
};
use super::rows::{Versioned, record_columns};
use crate::columns::RecordColumns;

const INSERT: &str = concat!(
    "INSERT INTO semel_records (
         id, operation_id, tenant, caller, operation, key_hash_prefix, fingerprint_version, fingerprint, state, reason,
         epoch, token, revision, lease_ms, ttl_ms, tombstone_ttl_ms, on_lease_expired, quarantine_ms, due_at,
         created_at, updated_at, state_since, history, trace)
     SELECT i.id, i.operation_id, i.tenant, i.caller, i.operation, i.key_hash_prefix, i.fingerprint_version,
         i.fingerprint, i.state, i.reason, i.epoch, i.token, 1, i.lease_ms, i.ttl_ms, i.tombstone_ttl_ms,
         i.on_lease_expired, i.quarantine_ms, n.now + i.due_in, n.now, n.now, n.now, n.now::text || i.history, i.trace
     FROM unnest(
             $2::bytea[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::bytea[],
             $10::text[], $11::text[], $12::bigint[], $13::bytea[], $14::bigint[], $15::bigint[], $16::bigint[],
             $17::text[], $18::bigint[], $19::bigint[], $20::text[], $21::text[]
         ) AS i (
             id, operation_id, tenant, caller, operation, key_hash_prefix, fingerprint_version, fingerprint, state,
             reason, epoch, token, lease_ms, ttl_ms, tombstone_ttl_ms, on_lease_expired, quarantine_ms, due_in, history,
             trace
         ), ",
    now!(),
    " WHERE ",
    not_fenced!(),
    " ORDER BY i.id ON CONFLICT DO NOTHING RETURNING id, token, created_at"
);

const GET: &str = concat!(
    "SELECT n.now, ",
    record_columns!(),
    ", ",
    is_fenced!(),
    " FROM ",
    now!(),
    " LEFT JOIN semel_records ON id = ANY($2)"
);

const UPDATE: &str = "
    UPDATE semel_records AS r SET
        operation_id = i.operation_id, fingerprint_version = i.fingerprint_version, fingerprint = i.fingerprint,
        state = i.state, reason = i.reason, epoch = i.epoch, token = i.token, lease_ms = i.lease_ms, ttl_ms = i.ttl_ms,
        tombstone_ttl_ms = i.tombstone_ttl_ms, on_lease_expired = i.on_lease_expired, quarantine_ms = i.quarantine_ms,
        due_at = i.due_at, expires_at = i.expires_at, settled_by = i.settled_by, state_since = i.state_since,
        reconcile_after = i.reconcile_after, attempts = i.attempts, quarantine_until = i.quarantine_until,
        created_at = i.created_at, updated_at = i.updated_at, history = i.history, status = i.status,
        resource = i.resource, response_format = i.response_format, encryption_key_id = i.encryption_key_id,
        response = i.response, start_by = i.start_by, ready_at = i.ready_at,
        earlier_may_have_run = i.earlier_may_have_run, partly_done = i.partly_done, keep_request = i.keep_request,
        trace = i.trace,
        revision = r.revision + 1
    FROM unnest(
            $1::bytea[], $2::bytea[], $3::bigint[], $4::uuid[], $5::bigint[], $6::bytea[], $7::text[], $8::text[],
            $9::bigint[], $10::bytea[], $11::bigint[], $12::bigint[], $13::bigint[], $14::text[], $15::bigint[],
            $16::bigint[], $17::bigint[], $18::text[], $19::bigint[], $20::bigint[], $21::bigint[], $22::bigint[],
            $23::bigint[], $24::bigint[], $25::text[], $26::bigint[], $27::text[], $28::bigint[], $29::text[],
            $30::bytea[], $31::bigint[], $32::bigint[], $33::bigint[], $34::bigint[], $35::bigint[], $36::text[]
        ) AS i (
            id, token_before, revision_before, operation_id, fingerprint_version, fingerprint, state, reason, epoch,
            token, lease_ms, ttl_ms, tombstone_ttl_ms, on_lease_expired, quarantine_ms, due_at, expires_at, settled_by,
            state_since, reconcile_after, attempts, quarantine_until, created_at, updated_at, history, status,
            resource, response_format, encryption_key_id, response, start_by, ready_at, earlier_may_have_run,
            partly_done, keep_request, trace
        )
    WHERE r.id = i.id AND r.token = i.token_before AND r.revision = i.revision_before
    RETURNING r.id";

const DELETE: &str = "
    DELETE FROM semel_records AS r USING unnest($1::bytea[], $2::bytea[], $3::bigint[]) AS i (id, token, revision)
    WHERE r.id = i.id AND r.token = i.token AND r.revision = i.revision
    RETURNING r.id";

const COMPLETE: &str = concat!(
    "UPDATE semel_records AS r SET
         state = i.state, reason = i.reason, due_at = NULL, expires_at = n.now + i.expires_in,
         settled_by = i.settled_by, updated_at = n.now, state_since = n.now, history = r.history || E'\n' || n.now::text || i.step,
         status = i.status, resource = i.resource, response_format = i.response_format,
         encryption_key_id = i.encryption_key_id, response = i.response, revision = r.revision + 1
     FROM unnest(
             $2::bytea[], $3::bytea[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::text[], $9::text[],
             $10::bigint[], $11::text[], $12::bigint[], $13::text[], $14::bytea[]
         ) AS i (
             id, token, revision, state, reason, expires_in, settled_by, step, status, resource, response_format,
             encryption_key_id, response
         ), ",
    now!(),
    " WHERE r.id = i.id AND r.token = i.token AND r.revision = i.revision AND r.due_at > n.now
      RETURNING r.id, r.updated_at"
);

/// Returns the statement and parameters of many first claims.
pub(super) fn first_claims<'a>(
    rows: &'a [RecordColumns<'a>],
    offset: i64,
) -> (&'static str, Vec<SqlValue<'a>>) {
    let values = vec![
        SqlValue::Int(Some(offset)),
        bytes(rows, |row| Some(&row.id)),
        SqlValue::UuidList(rows.iter().map(|row| row.operation_id).collect()),
        text(rows, |row| Some(&row.tenant)),
        text(rows, |row| Some(&row.caller)),
        text(rows, |row| Some(&row.operation)),
        text(rows, |row| Some(&row.key_hash_prefix)),
        ints(rows, |row| Some(row.fingerprint_version.into())),
        bytes(rows, |row| Some(&row.fingerprint)),
        text(rows, |row| Some(&row.state)),
        text(rows, |row| Some(&row.reason)),
        ints(rows, |row| Some(row.epoch.into())),
        bytes(rows, |row| Some(&row.token)),
        ints(rows, |row| Some(row.lease_ms)),
        ints(rows, |row| Some(row.ttl_ms)),
        ints(rows, |row| row.tombstone_ttl_ms),
        text(rows, |row| Some(&row.on_lease_expired)),
        ints(rows, |row| Some(row.quarantine_ms)),
        ints(rows, |row| row.due_at),
        text(rows, |row| Some(&row.history[1..])),
        text(rows, |row| row.trace.as_deref()),
    ];
    (INSERT, values)
}

/// Returns the tokens of the claims that were first, each with its time.
pub(super) fn were_first(rows: &[SqlRow]) -> HashMap<AttemptToken, Timestamp> {
    let first = |row: &SqlRow| {
        let token = row.bytes(1)?[..].try_into().ok()?;
        Some((AttemptToken::from_bytes(token), Timestamp::from_millis(row.int(2)?)))
    };
    rows.iter().filter_map(first).collect()
}

/// Returns the statement and parameters of many completions that were decided as of the time zero of their
/// leases: see [`KnownCompletion`](super::known::KnownCompletion).
pub(super) fn completions<'a>(
    known: &'a [&'a KnownCompletion],
    rows: &'a [RecordColumns<'a>],
    offset: i64,
) -> (&'static str, Vec<SqlValue<'a>>) {
    let result = |row: &'a RecordColumns<'a>| row.result.as_ref();
    let values = vec![
        SqlValue::Int(Some(offset)),
        bytes(rows, |row| Some(&row.id)),
        bytes(rows, |row| Some(&row.token)),
        SqlValue::IntList(known.iter().map(|known| Some(known.before.revision)).collect()),
        text(rows, |row| Some(&row.state)),
        text(rows, |row| Some(&row.reason)),
        SqlValue::IntList(known.iter().map(|known| Some(known.expires_in)).collect()),
        text(rows, |row| row.settled_by.as_deref()),
        SqlValue::TextList(known.iter().map(|known| Some(known.step.as_str())).collect()),
        ints(rows, |row| result(row).map(|result| result.status.into())),
        text(rows, |row| result(row).and_then(|result| result.resource.as_deref())),
        ints(rows, |row| result(row).map(|result| result.response_format.into())),
        text(rows, |row| result(row).and_then(|result| result.encryption_key_id.as_deref())),
        bytes(rows, |row| result(row).map(|result| &result.response[..])),
    ];
    (COMPLETE, values)
}

/// Returns the records that took their completions, each with its time.
pub(super) fn were_completed(rows: &[SqlRow]) -> HashMap<RecordId, Timestamp> {
    rows.iter().filter_map(|row| Some((id(row, 0)?, Timestamp::from_millis(row.int(1)?)))).collect()
}

/// The existing ones of the requested records, or the reason why one is unreadable, and the database's time.
pub(super) struct Read {
    pub(super) now: Timestamp,
    pub(super) found: HashMap<RecordId, Result<Versioned, DbError>>,
    /// True if the store is fenced: changes are decided one by one.
    pub(super) is_fenced: bool,
}

/// Reads many records.
pub(super) async fn get(link: &mut Link, ids: &[RecordId], offset: i64) -> Result<Read, DbError> {
    let wanted = ids.iter().map(|id| Some(&id.as_bytes()[..])).collect();
    let rows = link.query(GET, &[SqlValue::Int(Some(offset)), SqlValue::BytesList(wanted)]).await?;
    let now = rows.first().and_then(|row| row.int(0));
    let now = now.ok_or_else(|| DbError::unreadable("now", "there is no time"))?;
    let is_fenced = rows.first().is_some_and(|row| row.last_int() == Some(1));
    let mut found = HashMap::new();
    for row in rows {
        let Some(id) = id(&row, 1) else { continue };
        if let Some(record) = snapshot(row).map(|(record, _)| record).transpose() {
            found.insert(id, record);
        }
    }
    Ok(Read { now: Timestamp::from_millis(now), found, is_fenced })
}

/// Returns the id in this column of a row.
pub(super) fn id(row: &SqlRow, column: usize) -> Option<RecordId> {
    row.bytes(column)?[..].try_into().ok().map(RecordId::from_bytes)
}

/// Writes of a group, besides first claims.
#[derive(Default)]
pub(super) struct Writes<'a> {
    pub(super) updates: Vec<Update<'a>>,
    pub(super) deletes: Vec<&'a Versioned>,
    pub(super) sides: Vec<Side<'a>>,
}

/// A changed record.
pub(super) struct Update<'a> {
    pub(super) before: &'a Versioned,
    pub(super) after: &'a Record,
}

/// Write beside a record, made only if the record's own write counted.
pub(super) struct Side<'a> {
    pub(super) with: RecordId,
    pub(super) command: OperationId,
    pub(super) what: SideWrite<'a>,
}

/// See [`Side`].
pub(super) enum SideWrite<'a> {
    /// Frees the business reference for other commands.
    GiveBack,
    /// Gives the business reference back to the command.
    TakeBack,
    /// Deletes the business reference, if it was given back, and the steps, together with the record.
    Forget,
    /// Erases the request.
    EraseRequest,
    /// Writes the note of a manual action.
    Note(&'a Note),
}

impl Writes<'_> {
    /// Writes everything in one transaction. Returns the records whose writes counted; the others were
    /// changed by another process in between.
    pub(super) async fn write(
        &mut self,
        link: &mut Link,
        now: Timestamp,
    ) -> Result<HashSet<RecordId>, DbError> {
        self.updates.sort_by_key(|update| *update.before.record.id.as_bytes());
        self.deletes.sort_by_key(|before| *before.record.id.as_bytes());
        let rows: Vec<RecordColumns<'_>> =
            self.updates.iter().map(|update| RecordColumns::of(update.after)).collect();
        let mut statements = Vec::new();
        if !rows.is_empty() {
            statements.push((UPDATE, update_values(&self.updates, &rows)));
        }
        if !self.deletes.is_empty() {
            statements.push((DELETE, delete_values(&self.deletes)));
        }
        let ids = |results: &[Vec<SqlRow>]| results.iter().flatten().filter_map(|row| id(row, 0)).collect();
        if self.sides.is_empty() {
            return Ok(ids(&link.write(&statements).await?));
        }
        let written: Result<HashSet<RecordId>, DbError> = async {
            let written: HashSet<RecordId> = ids(&link.transaction(&statements, false).await?);
            self.write_sides(link, &written, now).await?;
            link.run("COMMIT").await?;
            Ok(written)
        }
        .await;
        if written.as_ref().is_err_and(|error| !error.is_ambiguous()) {
            let _ = link.run("ROLLBACK").await;
        }
        written
    }

    async fn write_sides(
        &self,
        link: &mut Link,
        written: &HashSet<RecordId>,
        now: Timestamp,
    ) -> Result<(), DbError> {
        let sides: Vec<&Side<'_>> = self.sides.iter().filter(|side| written.contains(&side.with)).collect();
        let commands = |wanted: fn(&SideWrite<'_>) -> bool| -> Vec<[u8; 16]> {
            let wanted = sides.iter().filter(|side| wanted(&side.what));
            let mut ids: Vec<[u8; 16]> = wanted.map(|side| *side.command.as_bytes()).collect();
            ids.sort_unstable();
            ids
        };
        for (sql, ids) in [
            (GIVE_REFERENCES_BACK, commands(|what| matches!(what, SideWrite::GiveBack))),
            (FORGET_REFERENCES, commands(|what| matches!(what, SideWrite::Forget))),
            (FORGET_PROGRESS, commands(|what| matches!(what, SideWrite::Forget))),
            (ERASE_REQUESTS, commands(|what| matches!(what, SideWrite::EraseRequest))),
        ] {
            if !ids.is_empty() {
                link.query(sql, &[SqlValue::UuidList(ids)]).await?;
            }
        }
        let taken_back = commands(|what| matches!(what, SideWrite::TakeBack));
        if !taken_back.is_empty() {
            take_references_back(link, taken_back, now).await?;
        }
        for side in sides {
            if let SideWrite::Note(note) = side.what {
                let own = RandomIds.operation_id(now);
                link.query(TAKE_NOTE, &note_values(own.as_bytes(), side.command.as_bytes(), note, now))
                    .await?;
            }
        }
        Ok(())
    }
}

fn update_values<'a>(updates: &[Update<'a>], rows: &'a [RecordColumns<'a>]) -> Vec<SqlValue<'a>> {
    let before = |update: &Update<'a>| update.before;
    let result = |row: &'a RecordColumns<'a>| row.result.as_ref();
    vec![
        SqlValue::BytesList(
            updates.iter().map(before).map(|before| Some(&before.record.id.as_bytes()[..])).collect(),
        ),
        SqlValue::BytesList(
            updates.iter().map(before).map(|before| Some(&before.record.head.token.as_bytes()[..])).collect(),
        ),
        SqlValue::IntList(updates.iter().map(before).map(|before| Some(before.revision)).collect()),
        SqlValue::UuidList(rows.iter().map(|row| row.operation_id).collect()),
        ints(rows, |row| Some(row.fingerprint_version.into())),
        bytes(rows, |row| Some(&row.fingerprint)),
        text(rows, |row| Some(&row.state)),
        text(rows, |row| Some(&row.reason)),
        ints(rows, |row| Some(row.epoch.into())),
        bytes(rows, |row| Some(&row.token)),
        ints(rows, |row| Some(row.lease_ms)),
        ints(rows, |row| Some(row.ttl_ms)),
        ints(rows, |row| row.tombstone_ttl_ms),
        text(rows, |row| Some(&row.on_lease_expired)),
        ints(rows, |row| Some(row.quarantine_ms)),
        ints(rows, |row| row.due_at),
        ints(rows, |row| row.expires_at),
        text(rows, |row| row.settled_by.as_deref()),
        ints(rows, |row| Some(row.state_since)),
        ints(rows, |row| row.reconcile_after),
        ints(rows, |row| row.attempts.map(Into::into)),
        ints(rows, |row| row.quarantine_until),
        ints(rows, |row| Some(row.created_at)),
        ints(rows, |row| Some(row.updated_at)),
        text(rows, |row| Some(&row.history)),
        ints(rows, |row| result(row).map(|result| result.status.into())),
        text(rows, |row| result(row).and_then(|result| result.resource.as_deref())),
        ints(rows, |row| result(row).map(|result| result.response_format.into())),
        text(rows, |row| result(row).and_then(|result| result.encryption_key_id.as_deref())),
        bytes(rows, |row| result(row).map(|result| &result.response[..])),
        ints(rows, |row| row.start_by),
        ints(rows, |row| row.ready_at),
        ints(rows, |row| Some(row.earlier_may_have_run.into())),
        ints(rows, |row| Some(row.partly_done.into())),
        ints(rows, |row| Some(row.keep_request.into())),
        text(rows, |row| row.trace.as_deref()),
    ]
}

fn delete_values<'a>(deletes: &[&'a Versioned]) -> Vec<SqlValue<'a>> {
    vec![
        SqlValue::BytesList(deletes.iter().map(|before| Some(&before.record.id.as_bytes()[..])).collect()),
        SqlValue::BytesList(
            deletes.iter().map(|before| Some(&before.record.head.token.as_bytes()[..])).collect(),
        ),
        SqlValue::IntList(deletes.iter().map(|before| Some(before.revision)).collect()),
    ]
}

fn bytes<'a>(
    rows: &'a [RecordColumns<'a>],
    column: impl Fn(&'a RecordColumns<'a>) -> Option<&'a [u8]>,
) -> SqlValue<'a> {
    SqlValue::BytesList(rows.iter().map(column).collect())
}

fn text<'a>(
    rows: &'a [RecordColumns<'a>],
    column: impl Fn(&'a RecordColumns<'a>) -> Option<&'a str>,
) -> SqlValue<'a> {
    SqlValue::TextList(rows.iter().map(column).collect())
}

fn ints<'a>(
    rows: &'a [RecordColumns<'a>],
    column: impl Fn(&'a RecordColumns<'a>) -> Option<i64>,
) -> SqlValue<'a> {
    SqlValue::IntList(rows.iter().map(column).collect())
}
