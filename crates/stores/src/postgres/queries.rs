//! All SQL about one record. `group.rs` has that about many.
//!
//! Every write is guarded: an INSERT by the unique id, any other by the token and revision that were read. A
//! write that changes no row lost to another process, and the record is read again.

use semel_core::store_fence::decide;
use semel_core::{
    Attempt, AttemptToken, AuditEntry, AuditId, Change, Claim, ClaimFence, Decision, Event, Holder, Ids,
    Note, NoteTaken, OpenCall, OperationId, Principal, RandomIds, Record, RecordId, Reference, Start,
    StoreAnswer, StoreFence, StoredRequest, StoredResult, Terms, Timestamp, Transition, Write,
    transition::{ReferenceWrite, RequestWrite, age, transition},
};

use super::clock::{now, steady};
use super::errors::DbError;
use super::executor::{Executor, SqlRow, SqlValue};
use super::fence::{self, is_fenced, not_fenced};
use super::first::{FirstTry, first, first_values, fresh, try_first};
use super::rows::{Versioned, record, record_columns};
use super::session::{commit_as_begun, is_joined, reset_lock_timeout};
use super::steps;
use crate::columns::RecordColumns;
use crate::contested::contested;

/// Selects the record with its id, if there is one, and the time in any case.
const GET: &str = concat!(
    "SELECT n.now, ",
    record_columns!(),
    ", ",
    is_fenced!(),
    " FROM ",
    now!(),
    " LEFT JOIN semel_records ON id = $2"
);

macro_rules! insert {
    ($($returning:expr),*) => {
        concat!(
            "INSERT INTO semel_records (
                 id, operation_id, tenant, caller, operation, key_hash_prefix, fingerprint_version, fingerprint, state,
                 reason, epoch, token, revision, lease_ms, ttl_ms, tombstone_ttl_ms, on_lease_expired, quarantine_ms,
                 due_at, created_at, updated_at, state_since, history, trace, start_by, ready_at, keep_request)
             SELECT $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 1, $14, $15, $16, $17, $18, n.now + $19,
                 n.now, n.now, n.now, n.now::text || $20, $21, n.now + $22, n.now + $23, $24
             FROM ",
            now!(),
            " WHERE $25 = 1 OR ",
            not_fenced!(),
            " ON CONFLICT DO NOTHING RETURNING ",
            $($returning),*
        )
    };
}

const INSERT: &str = insert!("created_at");

/// Inserts in a service's own transaction, which from then on waits for locks as its session does.
const INSERT_JOINED: &str = insert!("created_at", ", ", reset_lock_timeout!());

macro_rules! update {
    (($($guard:expr),*) ($($returning:expr),*)) => {
        concat!("
    UPDATE semel_records SET
        operation_id = $4, fingerprint_version = $5, fingerprint = $6, state = $7, reason = $8, epoch = $9, token = $10,
        lease_ms = $11, ttl_ms = $12, tombstone_ttl_ms = $13, on_lease_expired = $14, quarantine_ms = $15, due_at = $16,
        expires_at = $17, settled_by = $18, state_since = $19, reconcile_after = $20, attempts = $21,
        quarantine_until = $22, created_at = $23, updated_at = $24, history = $25, status = $26, resource = $27,
        response_format = $28, encryption_key_id = $29, response = $30, start_by = $31, ready_at = $32,
        earlier_may_have_run = $33, partly_done = $34, keep_request = $35, trace = $36, revision = revision + 1
    WHERE id = $1 AND token = $2 AND revision = $3", $($guard,)* " RETURNING revision" $(, $returning)*)
    };
}

const UPDATE: &str = update!(()());

/// Updates in a service's own transaction, if the service has not ended it.
const UPDATE_JOINED: &str = update!((" AND ", is_joined!())(", ", commit_as_begun!()));

macro_rules! confirm {
    ($($returning:expr),*) => {
        concat!(
            "UPDATE semel_records SET revision = revision + 1 WHERE id = $1 AND token = $2 RETURNING revision"
            $(, $returning)*
        )
    };
}

const CONFIRM: &str = confirm!();

/// Confirms in a service's own transaction.
const CONFIRM_JOINED: &str = confirm!(", ", commit_as_begun!());

const DELETE: &str =
    "DELETE FROM semel_records WHERE id = $1 AND token = $2 AND revision = $3 RETURNING revision";

const PUSH: &str = concat!(
    "INSERT INTO semel_outbox (event_id, operation_id, position, kind, payload, state, created_at, due_at)
    SELECT $1, $2, coalesce(max(position) + 1, 0), $3, $4, 'pending', ",
    steady!(),
    ", ",
    steady!(),
    " FROM semel_outbox WHERE operation_id = $2
    ON CONFLICT (event_id) DO NOTHING
    RETURNING position"
);

const HAS_MESSAGE: &str =
    "SELECT position FROM semel_outbox WHERE operation_id = $1 AND state = 'pending' LIMIT 1";

const IS_CLAIMED_BY: &str = "SELECT epoch FROM semel_records WHERE id = ANY($1) AND token = $2";

/// Locks the record of a command until the transaction ends. Returns the time in any case.
const LOCK_COMMAND: &str = concat!(
    "SELECT n.now, ",
    record_columns!(),
    " FROM ",
    now!(),
    ", semel_records WHERE operation_id = $2 FOR UPDATE OF semel_records"
);

const KEEP_REQUEST: &str = "
    INSERT INTO semel_requests (operation_id, format, encryption_key_id, request, kept_at) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (operation_id) DO UPDATE SET format = $2, encryption_key_id = $3, request = $4, kept_at = $5";

pub(super) const ERASE_REQUESTS: &str = "DELETE FROM semel_requests WHERE operation_id = ANY($1)";

/// Selects the stored request of a command, if there is one, and writes a note of the access.
const READ_REQUEST: &str = "
    WITH kept AS (SELECT format, encryption_key_id, request FROM semel_requests WHERE operation_id = $3),
    noted AS (INSERT INTO semel_audit (id, at, operation_id, who, action, why) SELECT $1, $2, $3, $4, $5, $6 FROM kept)
    SELECT format, encryption_key_id, request FROM kept";

const HAS_REQUEST: &str = "SELECT 1::bigint FROM semel_requests WHERE operation_id = $1";

pub(super) const FORGET_PROGRESS: &str = "DELETE FROM semel_phases WHERE operation_id = ANY($1)";

const HOLDERS: &str = "
    SELECT operation_id, caller FROM semel_references
    WHERE tenant = $1 AND operation = ANY($2) AND reference = $3 AND NOT given_back";

const TAKE_REFERENCE: &str = "
    INSERT INTO semel_references (tenant, operation, reference, operation_id, caller, taken_at)
    VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING RETURNING taken_at";

/// Takes a reference that this command had before, and that no other command holds since.
const RETAKE_REFERENCE: &str = "
    UPDATE semel_references SET caller = $5, taken_at = $6, given_back = false
    WHERE tenant = $1 AND operation = $2 AND reference = $3 AND operation_id = $4 AND NOT EXISTS (
        SELECT 1 FROM semel_references AS other
        WHERE other.tenant = $1 AND other.operation = $2 AND other.reference = $3 AND NOT other.given_back
            AND other.operation_id <> $4)
    RETURNING taken_at";

pub(super) const GIVE_REFERENCES_BACK: &str =
    "UPDATE semel_references SET given_back = true WHERE operation_id = ANY($1)";

/// Takes references back, and lists the commands whose reference another one holds since, each with that one.
const TAKE_REFERENCES_BACK: &str = "
    WITH wanted AS MATERIALIZED (
        SELECT own.tenant, own.operation, own.reference, own.operation_id, other.operation_id AS holder
        FROM semel_references AS own LEFT JOIN semel_references AS other
            ON other.tenant = own.tenant AND other.operation = own.operation AND other.reference = own.reference
                AND NOT other.given_back
        WHERE own.operation_id = ANY($1) AND own.given_back
    ), taken AS (
        UPDATE semel_references AS own SET given_back = false FROM wanted
        WHERE own.tenant = wanted.tenant AND own.operation = wanted.operation AND own.reference = wanted.reference
            AND own.operation_id = wanted.operation_id AND wanted.holder IS NULL
    )
    SELECT operation_id, holder FROM wanted WHERE holder IS NOT NULL";

pub(super) const FORGET_REFERENCES: &str =
    "DELETE FROM semel_references WHERE operation_id = ANY($1) AND given_back";

pub(super) const TAKE_NOTE: &str = "
    INSERT INTO semel_audit (id, at, operation_id, who, action, why) VALUES ($1, $2, $3, $4, $5, $6)";

const NOTES: &str = "SELECT at, who, action, why FROM semel_audit WHERE operation_id = $1 ORDER BY id";

const AUDIT: &str = "
    SELECT id, operation_id, at, who, action, why FROM semel_audit
    WHERE id < $1 ORDER BY id DESC LIMIT $2";

/// Result of a change: the answer, or `None` if another process changed the record in between.
pub type Attempted = Result<Option<StoreAnswer>, DbError>;

/// Claims, within the open transaction. After `None`, roll back and retry.
///
/// `offset` moves the database's time, for tests.
pub async fn claim<E: Executor>(db: &mut E, claim: &Claim, offset: i64) -> Attempted {
    if claim.business_reference.is_none() && claim.former.is_empty() {
        if let Some(answer) = insert(db, claim, InsertUnder::NoFence, offset).await? {
            return Ok(Some(answer));
        }
        let found = get_under_fence(db, &claim.scope.record_id(), offset).await?;
        let before = found.before.as_ref().map(|before| &before.record);
        let fenced = found.fence.as_ref().map(|fence| fence::under(fence, claim, before, found.now));
        let claim = fenced.as_ref().unwrap_or(claim);
        return change(db, found, &Event::Claim(claim.attempt), Some(claim), (None, None), offset).await;
    }
    if E::JOINED {
        match try_first(db, claim, offset).await? {
            FirstTry::First(answer) => return Ok(Some(*answer)),
            FirstTry::Beaten => return Ok(None),
            FirstTry::NotFirst => {}
        }
    }
    let mut last = None;
    for id in claim.record_ids() {
        let found = last.insert(get_under_fence(db, &id, offset).await?);
        if found.live().is_some() {
            break;
        }
    }
    let Some(found) = last else { return Ok(None) };
    let fenced = found.fence.as_ref().map(|fence| fence::under(fence, claim, found.live(), found.now));
    let claim = fenced.as_ref().unwrap_or(claim);
    let own = found.live().map(|own| own.operation_id);
    let other = holders(db, claim).await?.into_iter().find(|holder| Some(holder.operation_id) != own);
    let mut attempt = claim.attempt;
    if other.is_some() {
        attempt.reference = Reference::Taken;
    }
    let claim = &Claim { attempt, ..claim.clone() };
    let answer = change(db, found, &Event::Claim(attempt), Some(claim), (None, None), offset).await?;
    Ok(answer.map(|answer| StoreAnswer {
        holder: other.filter(|_| answer.decision == Decision::Duplicate),
        ..answer
    }))
}

/// Applies a change, within the open transaction. After `None`, roll back and retry.
pub async fn apply(db: &mut impl Executor, id: &RecordId, change: &Change, offset: i64) -> Attempted {
    let found = get_under_fence(db, id, offset).await?;
    let now = found.now;
    let command = found.before.as_ref().map(|before| before.record.operation_id);
    let event = event_of(db, command, change).await?;
    let brought = (change.result(), change.observation());
    let answer = self::change(db, found, &event, None, brought, offset).await?;
    if let (Some(StoreAnswer { decision: Decision::Applied, .. }), Some(command)) = (&answer, command) {
        if let Some(note) = change.note() {
            take_note(db, command, note, now).await?;
        }
        if let Some(mark) = change.call().and_then(OpenCall::mark)
            && !steps::write(db, command, &mark).await?
        {
            return Ok(None);
        }
    }
    Ok(answer)
}

/// Returns the event of a change. A verdict on an open call is decided on the command's recorded steps.
async fn event_of(
    db: &mut impl Executor,
    command: Option<OperationId>,
    change: &Change,
) -> Result<Event, DbError> {
    let (Some(command), Some(_)) = (command, change.call()) else { return Ok(*change.event()) };
    let steps = steps::progress(db, command).await?;
    let has_input = !db.query(HAS_REQUEST, &[SqlValue::Uuid(*command.as_bytes())]).await?.is_empty();
    Ok(change.event_for(&steps, has_input))
}

/// Settles a command that was first claimed within this very transaction, at `now`, without reading it again.
pub async fn settle_first(
    db: &mut impl Executor,
    record: Record,
    change: &Change,
    now: Timestamp,
) -> Attempted {
    let found = FoundRecord { before: Some(Versioned { record, revision: 1 }), now, fence: None };
    let brought = (change.result(), change.observation());
    self::change(db, found, change.event(), None, brought, 0).await
}

/// Locks the record of this command until the transaction ends. Returns it with the database's time.
pub async fn lock_command(
    db: &mut impl Executor,
    id: OperationId,
    offset: i64,
) -> Result<Option<(Record, Timestamp)>, DbError> {
    let rows = db.query(LOCK_COMMAND, &[SqlValue::Int(Some(offset)), SqlValue::Uuid(*id.as_bytes())]).await?;
    let Some(row) = rows.into_iter().next() else { return Ok(None) };
    let (found, now) = snapshot(row)?;
    Ok(found.map(|found| (found.record, now)))
}

/// Applies an event to a record, within the open transaction. Returns `false` if another process changed it
/// in between.
pub(super) async fn tell(
    db: &mut impl Executor,
    id: &RecordId,
    event: &Event,
    offset: i64,
) -> Result<bool, DbError> {
    let found = get_under_fence(db, id, offset).await?;
    Ok(change(db, found, event, None, (None, None), offset).await?.is_some())
}

/// Adds a message to the outbox, behind those of the same command. Returns `false` if its id exists.
pub async fn push_message(
    db: &mut impl Executor,
    command: OperationId,
    event_id: &str,
    kind: &str,
    payload: &[u8],
) -> Result<bool, DbError> {
    let values = [
        SqlValue::Text(Some(event_id)),
        SqlValue::Uuid(*command.as_bytes()),
        SqlValue::Text(Some(kind)),
        SqlValue::Bytes(Some(payload)),
    ];
    db.query(PUSH, &values).await.map(|rows| !rows.is_empty())
}

/// Returns true if the command has an undelivered message: one that was pushed and not taken back.
pub async fn has_message(db: &mut impl Executor, command: OperationId) -> Result<bool, DbError> {
    Ok(!db.query(HAS_MESSAGE, &[SqlValue::Uuid(*command.as_bytes())]).await?.is_empty())
}

/// Returns true if one of these attempts at a command was committed: its record carries the token.
pub async fn is_claimed_by(
    db: &mut impl Executor,
    ids: impl Iterator<Item = RecordId>,
    token: AttemptToken,
) -> Result<bool, DbError> {
    let ids: Vec<RecordId> = ids.collect();
    let ids = ids.iter().map(|id| Some(&id.as_bytes()[..])).collect();
    let values = [SqlValue::BytesList(ids), SqlValue::Bytes(Some(token.as_bytes()))];
    Ok(!db.query(IS_CLAIMED_BY, &values).await?.is_empty())
}

/// Writes a record once more unchanged. This commit waits for everything that an earlier one should have
/// waited for. Returns `false` if the record belongs to another attempt by now.
pub async fn confirm<E: Executor>(db: &mut E, record: &Record) -> Result<bool, DbError> {
    let values =
        [SqlValue::Bytes(Some(record.id.as_bytes())), SqlValue::Bytes(Some(record.head.token.as_bytes()))];
    let rows = db.query(if E::JOINED { CONFIRM_JOINED } else { CONFIRM }, &values).await?;
    db.commit_waits(rows.first().and_then(|row| row.int(1)) == Some(1));
    Ok(!rows.is_empty())
}

/// Returns the record with this id, if there is one, and the database's time.
pub(super) async fn get(
    db: &mut impl Executor,
    id: &RecordId,
    offset: i64,
) -> Result<(Option<Versioned>, Timestamp), DbError> {
    let rows = db.query(GET, &[SqlValue::Int(Some(offset)), SqlValue::Bytes(Some(id.as_bytes()))]).await?;
    let row = rows.into_iter().next().ok_or_else(|| DbError::unreadable("now", "there is no time"))?;
    snapshot(row)
}

/// A record as it was found, if there is one, the database's time, and the fence of the store.
struct FoundRecord {
    before: Option<Versioned>,
    now: Timestamp,
    fence: Option<StoreFence>,
}

impl FoundRecord {
    /// Returns the record if its time to live is not over.
    fn live(&self) -> Option<&Record> {
        let record = self.before.as_ref().map(|before| &before.record);
        record.filter(|record| age(record.head, self.now).is_some())
    }
}

/// Returns the record with this id, with the store's fence, which is read only if there is one.
async fn get_under_fence(db: &mut impl Executor, id: &RecordId, offset: i64) -> Result<FoundRecord, DbError> {
    let rows = db.query(GET, &[SqlValue::Int(Some(offset)), SqlValue::Bytes(Some(id.as_bytes()))]).await?;
    let row = rows.into_iter().next().ok_or_else(|| DbError::unreadable("now", "there is no time"))?;
    let is_fenced = row.last_int() == Some(1);
    let (before, now) = snapshot(row)?;
    let fence = if is_fenced { fence::found(db).await? } else { None };
    Ok(FoundRecord { before, now, fence })
}

/// Reads a row that has the time first and then a record, or nothing.
pub(super) fn snapshot(row: SqlRow) -> Result<(Option<Versioned>, Timestamp), DbError> {
    let now = row.int(0).ok_or_else(|| DbError::unreadable("now", "there is no time"))?;
    let found = row.bytes(1).is_some().then(|| record(row, 1)).transpose()?;
    Ok((found, Timestamp::from_millis(now)))
}

/// Condition of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InsertUnder {
    /// The store is not fenced.
    NoFence,
    /// None: the fence of the store was asked.
    AnyFence,
}

/// Inserts a first claim: the unique id decides. Returns `None` if the record exists, or the condition is not met.
async fn insert<E: Executor>(db: &mut E, claim: &Claim, under: InsertUnder, offset: i64) -> Attempted {
    let Some(fresh) = fresh(claim, Timestamp::from_millis(0)) else { return Ok(None) };
    let row = RecordColumns::of(&fresh);
    let sql = if E::JOINED && claim.business_reference.is_none() { INSERT_JOINED } else { INSERT };
    let mut values = first_values(&row, offset);
    let keeps = SqlValue::Int(Some(row.keep_request.into()));
    let asked = SqlValue::Int(Some(i64::from(under == InsertUnder::AnyFence)));
    values.extend([SqlValue::Int(row.start_by), SqlValue::Int(row.ready_at), keeps, asked]);
    let rows = db.query(sql, &values).await?;
    let Some(now) = rows.first().and_then(|row| row.int(0)).map(Timestamp::from_millis) else {
        return Ok(None);
    };
    let step = transition(None, &Event::Claim(claim.attempt), now);
    if let (RequestWrite::Store, Some(request)) = (step.request, &claim.request) {
        keep_request(db, claim.operation_id, request, now).await?;
    }
    Ok(Some(first(claim, now)))
}

/// Calls the protocol and writes its decision.
async fn change(
    db: &mut impl Executor,
    FoundRecord { before, now, fence }: FoundRecord,
    event: &Event,
    claim: Option<&Claim>,
    (result, seen): (Option<&StoredResult>, Option<&str>),
    offset: i64,
) -> Attempted {
    let step = decide(fence.as_ref(), before.as_ref().map(|before| &before.record), event, now);
    let after = Record::after(before.as_ref().map(|before| &before.record), step.write, claim, result, now)
        .map(|record| record.observing(step.write, seen));
    let written = match (step.write, &before, &after) {
        (Write::Keep, _, _) => true,
        (Write::Create(_), None, Some(after)) => match claim {
            Some(claim) => create(db, claim, after, offset).await?,
            None => false,
        },
        (Write::Update(_) | Write::Create(_), Some(before), Some(after)) => update(db, before, after).await?,
        (Write::Delete, Some(before), None) => delete(db, before).await?,
        (Write::Create(_) | Write::Update(_) | Write::Delete, _, _) => false,
    };
    if !written || !write_reference(db, &step, before.as_ref(), after.as_ref(), claim).await? {
        return Ok(None);
    }
    let record = after.as_ref().or(before.as_ref().map(|before| &before.record));
    write_request(db, step.request, record, claim).await?;
    Ok(Some(StoreAnswer { decision: step.decision, record: after, now, holder: None, lapse: step.lapse }))
}

/// Inserts the record of a claim. One that does not begin is inserted as one that does, and then becomes what it is.
async fn create(db: &mut impl Executor, claim: &Claim, after: &Record, offset: i64) -> Result<bool, DbError> {
    if claim.attempt.fence != ClaimFence::LookUpFirst {
        return Ok(insert(db, claim, InsertUnder::AnyFence, offset).await?.is_some());
    }
    let terms = Terms { keep_request: false, ..claim.attempt.terms };
    let attempt = Attempt { fence: ClaimFence::Open, start: Start::Now, terms, ..claim.attempt };
    let begun = Claim { attempt, request: None, ..claim.clone() };
    let Some(begun) = insert(db, &begun, InsertUnder::AnyFence, offset).await? else { return Ok(false) };
    let Some(record) = begun.record else { return Ok(false) };
    update(db, &Versioned { record, revision: 1 }, after).await
}

async fn update<E: Executor>(db: &mut E, before: &Versioned, after: &Record) -> Result<bool, DbError> {
    let row = RecordColumns::of(after);
    let result = row.result.as_ref();
    let values = [
        SqlValue::Bytes(Some(before.record.id.as_bytes())),
        SqlValue::Bytes(Some(before.record.head.token.as_bytes())),
        SqlValue::Int(Some(before.revision)),
        SqlValue::Uuid(row.operation_id),
        SqlValue::Int(Some(row.fingerprint_version.into())),
        SqlValue::Bytes(Some(&row.fingerprint)),
        SqlValue::Text(Some(&row.state)),
        SqlValue::Text(Some(&row.reason)),
        SqlValue::Int(Some(row.epoch.into())),
        SqlValue::Bytes(Some(&row.token)),
        SqlValue::Int(Some(row.lease_ms)),
        SqlValue::Int(Some(row.ttl_ms)),
        SqlValue::Int(row.tombstone_ttl_ms),
        SqlValue::Text(Some(&row.on_lease_expired)),
        SqlValue::Int(Some(row.quarantine_ms)),
        SqlValue::Int(row.due_at),
        SqlValue::Int(row.expires_at),
        SqlValue::Text(row.settled_by.as_deref()),
        SqlValue::Int(Some(row.state_since)),
        SqlValue::Int(row.reconcile_after),
        SqlValue::Int(row.attempts.map(Into::into)),
        SqlValue::Int(row.quarantine_until),
        SqlValue::Int(Some(row.created_at)),
        SqlValue::Int(Some(row.updated_at)),
        SqlValue::Text(Some(&row.history)),
        SqlValue::Int(result.map(|result| result.status.into())),
        SqlValue::Text(result.and_then(|result| result.resource.as_deref())),
        SqlValue::Int(result.map(|result| result.response_format.into())),
        SqlValue::Text(result.and_then(|result| result.encryption_key_id.as_deref())),
        SqlValue::Bytes(result.map(|result| &result.response[..])),
        SqlValue::Int(row.start_by),
        SqlValue::Int(row.ready_at),
        SqlValue::Int(Some(row.earlier_may_have_run.into())),
        SqlValue::Int(Some(row.partly_done.into())),
        SqlValue::Int(Some(row.keep_request.into())),
        SqlValue::Text(row.trace.as_deref()),
    ];
    let sql = if E::JOINED { UPDATE_JOINED } else { UPDATE };
    let rows = db.query(sql, &values).await?;
    db.commit_waits(rows.first().and_then(|row| row.int(1)) == Some(1));
    Ok(!rows.is_empty())
}

async fn delete(db: &mut impl Executor, before: &Versioned) -> Result<bool, DbError> {
    let values = [
        SqlValue::Bytes(Some(before.record.id.as_bytes())),
        SqlValue::Bytes(Some(before.record.head.token.as_bytes())),
        SqlValue::Int(Some(before.revision)),
    ];
    Ok(!db.query(DELETE, &values).await?.is_empty())
}

/// Returns the holders of the claim's business reference, under any name of its operation.
async fn holders(db: &mut impl Executor, claim: &Claim) -> Result<Vec<Holder>, DbError> {
    let Some(reference) = &claim.business_reference else { return Ok(Vec::new()) };
    let tenant = claim.scope.principal().tenant();
    let operations = claim.reference_operations().map(|name| Some(name.as_str())).collect();
    let values =
        [SqlValue::Text(Some(tenant)), SqlValue::TextList(operations), SqlValue::Text(Some(reference))];
    let holder = |row: SqlRow| {
        let (Some(id), Some(caller)) = (row.uuid(0), row.text(1)) else {
            return Err(DbError::unreadable("operation_id", "the record that holds a reference is missing"));
        };
        let principal =
            Principal::new(tenant, caller).map_err(|error| DbError::unreadable("caller", error))?;
        Ok(Holder { operation_id: OperationId::from_bytes(id), principal })
    };
    db.query(HOLDERS, &values).await?.into_iter().map(holder).collect()
}

/// Writes to the business reference. Returns `false` if another command has it by now.
async fn write_reference(
    db: &mut impl Executor,
    step: &Transition,
    before: Option<&Versioned>,
    after: Option<&Record>,
    claim: Option<&Claim>,
) -> Result<bool, DbError> {
    let before = before.map(|before| &before.record);
    match (step.reference, after.or(before), claim) {
        (ReferenceWrite::Take, Some(record), Some(claim)) => {
            let values = [
                SqlValue::Text(Some(record.principal.tenant())),
                SqlValue::Text(Some(claim.scope.operation().as_str())),
                SqlValue::Text(claim.business_reference.as_deref()),
                SqlValue::Uuid(*record.operation_id.as_bytes()),
                SqlValue::Text(Some(record.principal.caller())),
                SqlValue::Int(Some(record.updated_at.as_millis())),
            ];
            if db.query(TAKE_REFERENCE, &values).await?.is_empty()
                && db.query(RETAKE_REFERENCE, &values).await?.is_empty()
            {
                return Ok(false);
            }
        }
        (ReferenceWrite::GiveBack, Some(record), _) => {
            db.query(GIVE_REFERENCES_BACK, &[SqlValue::UuidList(vec![*record.operation_id.as_bytes()])])
                .await?;
        }
        (ReferenceWrite::TakeBack, Some(record), _) => {
            take_references_back(db, vec![*record.operation_id.as_bytes()], record.updated_at).await?;
        }
        (
            ReferenceWrite::Keep | ReferenceWrite::Take | ReferenceWrite::GiveBack | ReferenceWrite::TakeBack,
            _,
            _,
        ) => {}
    }
    if let (Write::Delete | Write::Create(_), Some(gone)) = (step.write, before) {
        for sql in [FORGET_REFERENCES, FORGET_PROGRESS] {
            db.query(sql, &[SqlValue::UuidList(vec![*gone.operation_id.as_bytes()])]).await?;
        }
    }
    Ok(true)
}

/// Writes to the request.
async fn write_request(
    db: &mut impl Executor,
    write: RequestWrite,
    record: Option<&Record>,
    claim: Option<&Claim>,
) -> Result<(), DbError> {
    match (write, record, claim.and_then(|claim| claim.request.as_ref())) {
        (RequestWrite::Store, Some(record), Some(request)) => {
            keep_request(db, record.operation_id, request, record.updated_at).await
        }
        (RequestWrite::Erase, Some(record), _) => {
            let ids = SqlValue::UuidList(vec![*record.operation_id.as_bytes()]);
            db.query(ERASE_REQUESTS, &[ids]).await.map(|_| ())
        }
        (RequestWrite::Keep | RequestWrite::Store | RequestWrite::Erase, _, _) => Ok(()),
    }
}

async fn keep_request(
    db: &mut impl Executor,
    id: OperationId,
    request: &StoredRequest,
    now: Timestamp,
) -> Result<(), DbError> {
    let values = [
        SqlValue::Uuid(*id.as_bytes()),
        SqlValue::Int(Some(request.format.into())),
        SqlValue::Text(request.encryption_key_id.as_deref()),
        SqlValue::Bytes(Some(&request.bytes)),
        SqlValue::Int(Some(now.as_millis())),
    ];
    db.query(KEEP_REQUEST, &values).await.map(|_| ())
}

/// Takes the business references of commands back, except those that other commands hold since, which are noted.
pub(super) async fn take_references_back(
    db: &mut impl Executor,
    commands: Vec<[u8; 16]>,
    now: Timestamp,
) -> Result<(), DbError> {
    for row in db.query(TAKE_REFERENCES_BACK, &[SqlValue::UuidList(commands)]).await? {
        if let (Some(command), Some(holder)) = (row.uuid(0), row.uuid(1)) {
            let command = OperationId::from_bytes(command);
            take_note(db, command, &contested(command, OperationId::from_bytes(holder)), now).await?;
        }
    }
    Ok(())
}

/// Writes a note about a command.
pub(super) async fn take_note(
    db: &mut impl Executor,
    id: OperationId,
    note: &Note,
    now: Timestamp,
) -> Result<(), DbError> {
    db.query(TAKE_NOTE, &note_values(RandomIds.operation_id(now).as_bytes(), id.as_bytes(), note, now))
        .await?;
    Ok(())
}

/// Returns the stored request of a command, and writes the note in the same statement. Without a stored
/// request, no note is written.
pub(super) async fn read_request(
    db: &mut impl Executor,
    id: OperationId,
    note: &Note,
    now: Timestamp,
) -> Result<Option<StoredRequest>, DbError> {
    let own = RandomIds.operation_id(now);
    let rows = db.query(READ_REQUEST, &note_values(own.as_bytes(), id.as_bytes(), note, now)).await?;
    let Some(row) = rows.into_iter().next() else { return Ok(None) };
    let format = row.int(0).and_then(|format| u8::try_from(format).ok());
    Ok(Some(StoredRequest {
        format: format.ok_or_else(|| DbError::unreadable("format", "it is not known here"))?,
        encryption_key_id: row.text(1).map(str::to_owned),
        bytes: row.bytes(2).cloned().ok_or_else(|| DbError::unreadable("request", "no bytes"))?,
    }))
}

/// Returns the parameters of a note. Note ids are in the order of time.
pub(super) fn note_values<'a>(
    own: &[u8; 16],
    id: &[u8; 16],
    note: &'a Note,
    now: Timestamp,
) -> [SqlValue<'a>; 6] {
    [
        SqlValue::Uuid(*own),
        SqlValue::Int(Some(now.as_millis())),
        SqlValue::Uuid(*id),
        SqlValue::Text(Some(&note.who)),
        SqlValue::Text(Some(&note.action)),
        SqlValue::Text(Some(&note.why)),
    ]
}

/// Returns the notes about a command, the oldest first.
pub(super) async fn notes(db: &mut impl Executor, id: OperationId) -> Result<Vec<NoteTaken>, DbError> {
    let rows = db.query(NOTES, &[SqlValue::Uuid(*id.as_bytes())]).await?;
    let text = |row: &SqlRow, column| row.text(column).unwrap_or_default().to_owned();
    Ok(rows
        .iter()
        .map(|row| NoteTaken {
            at: Timestamp::from_millis(row.int(0).unwrap_or(0)),
            note: Note { who: text(row, 1), action: text(row, 2), why: text(row, 3) },
        })
        .collect())
}

/// Returns the notes about all commands before this one, the newest first.
pub(super) async fn audit(
    db: &mut impl Executor,
    before: Option<AuditId>,
    limit: usize,
) -> Result<Vec<AuditEntry>, DbError> {
    // No drawn id is as high as the highest.
    let before = before.map_or([u8::MAX; 16], |id| id.0.to_be_bytes());
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = db.query(AUDIT, &[SqlValue::Uuid(before), SqlValue::Int(Some(limit))]).await?;
    let text = |row: &SqlRow, column| row.text(column).unwrap_or_default().to_owned();
    let entry = |row: &SqlRow| AuditEntry {
        id: AuditId(u128::from_be_bytes(row.uuid(0).unwrap_or_default())),
        operation_id: row.uuid(1).map(OperationId::from_bytes),
        taken: NoteTaken {
            at: Timestamp::from_millis(row.int(2).unwrap_or(0)),
            note: Note { who: text(row, 3), action: text(row, 4), why: text(row, 5) },
        },
    };
    Ok(rows.iter().map(entry).collect())
}
