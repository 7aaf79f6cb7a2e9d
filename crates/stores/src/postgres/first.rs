//! The first claim of a command, with all its parts in one statement.

use semel_core::transition::transition;
use semel_core::{Claim, Event, Record, StoreAnswer, Timestamp};

use super::clock::now;
use super::errors::DbError;
use super::executor::{Executor, SqlValue};
use super::fence::not_fenced;
use super::session::reset_lock_timeout;
use crate::columns::RecordColumns;

/// Inserts the record unless there is one under any name of its operation, and takes its business reference
/// unless another command holds it. Inserts nothing while the store is fenced.
const FIRST: &str = concat!(
    "WITH record AS (
         INSERT INTO semel_records (
             id, operation_id, tenant, caller, operation, key_hash_prefix, fingerprint_version, fingerprint, state,
             reason, epoch, token, revision, lease_ms, ttl_ms, tombstone_ttl_ms, on_lease_expired, quarantine_ms,
             due_at, created_at, updated_at, state_since, history, trace)
         SELECT $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 1, $14, $15, $16, $17, $18, n.now + $19, n.now,
             n.now, n.now, n.now::text || $20, $21
         FROM ",
    now!(),
    "    WHERE ",
    not_fenced!(),
    "        AND NOT EXISTS (SELECT 1 FROM semel_records WHERE id = ANY($22))
             AND NOT EXISTS (
                 SELECT 1 FROM semel_references
                 WHERE tenant = $4 AND operation = ANY($23) AND reference = $24 AND NOT given_back)
         ON CONFLICT DO NOTHING
         RETURNING created_at
     ), reference AS (
         INSERT INTO semel_references (tenant, operation, reference, operation_id, caller, taken_at)
         SELECT $4, $6, $24, $3, $5, created_at FROM record WHERE $24 IS NOT NULL
         ON CONFLICT DO NOTHING
         RETURNING taken_at
     )
     SELECT record.created_at, taken.count, ",
    reset_lock_timeout!(),
    " FROM record CROSS JOIN (SELECT count(*) FROM reference) AS taken"
);

/// Result of an attempted first claim.
pub(super) enum FirstTry {
    /// The claim is the first.
    First(Box<StoreAnswer>),
    /// The claim was the first, but another command took its reference: the write must be rolled back.
    Beaten,
    /// A record exists already, and nothing was written.
    NotFirst,
}

/// Makes the first claim of a command that has a business reference, or former names.
pub(super) async fn try_first(
    db: &mut impl Executor,
    claim: &Claim,
    offset: i64,
) -> Result<FirstTry, DbError> {
    let Some(fresh) = fresh(claim, Timestamp::from_millis(0)) else {
        return Ok(FirstTry::NotFirst);
    };
    let row = RecordColumns::of(&fresh);
    let ids: Vec<_> = claim.record_ids().collect();
    let mut values = first_values(&row, offset);
    values.extend([
        SqlValue::BytesList(ids.iter().map(|id| Some(&id.as_bytes()[..])).collect()),
        SqlValue::TextList(claim.reference_operations().map(|name| Some(name.as_str())).collect()),
        SqlValue::Text(claim.business_reference.as_deref()),
    ]);
    let rows = db.query(FIRST, &values).await?;
    let Some(written) = rows.first() else { return Ok(FirstTry::NotFirst) };
    let taken = written.int(1) == Some(i64::from(claim.business_reference.is_some()));
    let at = written.int(0).map(Timestamp::from_millis);
    Ok(match at.filter(|_| taken) {
        Some(at) => FirstTry::First(Box::new(first(claim, at))),
        None => FirstTry::Beaten,
    })
}

/// Returns the parameters of a first claim, with times relative to zero, in the order of the statements that
/// insert one.
pub(super) fn first_values<'a>(row: &'a RecordColumns<'a>, offset: i64) -> Vec<SqlValue<'a>> {
    vec![
        SqlValue::Int(Some(offset)),
        SqlValue::Bytes(Some(&row.id)),
        SqlValue::Uuid(row.operation_id),
        SqlValue::Text(Some(&row.tenant)),
        SqlValue::Text(Some(&row.caller)),
        SqlValue::Text(Some(&row.operation)),
        SqlValue::Text(Some(&row.key_hash_prefix)),
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
        SqlValue::Text(Some(&row.history[1..])),
        SqlValue::Text(row.trace.as_deref()),
    ]
}

/// Returns the record of a first claim at `now`. At time zero its times are durations, to which the database
/// adds its own time.
pub(super) fn fresh(claim: &Claim, now: Timestamp) -> Option<Record> {
    let step = transition(None, &Event::Claim(claim.attempt), now);
    Record::after(None, step.write, Some(claim), None, now)
}

/// Returns the answer to a first claim that was written at `now`.
pub(super) fn first(claim: &Claim, now: Timestamp) -> StoreAnswer {
    let decision = transition(None, &Event::Claim(claim.attempt), now).decision;
    StoreAnswer { decision, record: fresh(claim, now), now, holder: None, lapse: None }
}
