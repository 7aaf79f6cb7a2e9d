//! The first claim of a command, with everything about it in one statement.

use semel_core::transition::transition;
use semel_core::{Claim, Event, Record, StoreAnswer, Timestamp};

use super::clock::now;
use super::errors::DbError;
use super::executor::{Executor, Value};
use super::session::reset_lock_timeout;
use crate::columns::Columns;

/// Inserts the record unless there is one under any name of its operation, and takes its business reference unless
/// another command holds it.
const FIRST: &str = concat!(
    "WITH record AS (
         INSERT INTO semel_records (
             id, operation_id, tenant, caller, operation, key_hash_prefix, fingerprint_version, fingerprint, state,
             reason, epoch, token, revision, lease_ms, ttl_ms, tombstone_ttl_ms, on_lease_expired, quarantine_ms,
             due_at, created_at, updated_at, history)
         SELECT $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 1, $14, $15, $16, $17, $18, n.now + $19, n.now,
             n.now, n.now::text || $20
         FROM ",
    now!(),
    "    WHERE NOT EXISTS (SELECT 1 FROM semel_records WHERE id = ANY($21))
             AND NOT EXISTS (
                 SELECT 1 FROM semel_references
                 WHERE tenant = $4 AND operation = ANY($22) AND reference = $23 AND NOT given_back)
         ON CONFLICT DO NOTHING
         RETURNING created_at
     ), reference AS (
         INSERT INTO semel_references (tenant, operation, reference, operation_id, caller, taken_at)
         SELECT $4, $6, $23, $3, $5, created_at FROM record WHERE $23 IS NOT NULL
         ON CONFLICT DO NOTHING
         RETURNING taken_at
     )
     SELECT record.created_at, taken.count, ",
    reset_lock_timeout!(),
    " FROM record CROSS JOIN (SELECT count(*) FROM reference) AS taken"
);

/// What came of trying to be the first.
pub(super) enum Tried {
    /// It is the first.
    First(Box<StoreAnswer>),
    /// It was, until its reference went to somebody else: what was written must be taken back.
    Beaten,
    /// There is something already, and nothing was written.
    NotFirst,
}

/// Claims a command that has a business reference, or former names, if nobody did before.
pub(super) async fn try_first(db: &mut impl Executor, claim: &Claim, offset: i64) -> Result<Tried, DbError> {
    let Some(fresh) = fresh(claim, Timestamp::from_millis(0)) else {
        return Ok(Tried::NotFirst);
    };
    let row = Columns::of(&fresh);
    let ids: Vec<_> = claim.record_ids().collect();
    let mut values = first_values(&row, offset);
    values.extend([
        Value::BytesList(ids.iter().map(|id| Some(&id.as_bytes()[..])).collect()),
        Value::TextList(claim.reference_operations().map(|name| Some(name.as_str())).collect()),
        Value::Text(claim.business_reference.as_deref()),
    ]);
    let rows = db.query(FIRST, &values).await?;
    let Some(written) = rows.first() else { return Ok(Tried::NotFirst) };
    let taken = written.int(1) == Some(i64::from(claim.business_reference.is_some()));
    let at = written.int(0).map(Timestamp::from_millis);
    Ok(match at.filter(|_| taken) {
        Some(at) => Tried::First(Box::new(first(claim, at))),
        None => Tried::Beaten,
    })
}

/// The values of a first claim, whose moments are as of time zero, in the order of the statements that insert one.
pub(super) fn first_values<'a>(row: &'a Columns<'a>, offset: i64) -> Vec<Value<'a>> {
    vec![
        Value::Int(Some(offset)),
        Value::Bytes(Some(&row.id)),
        Value::Uuid(row.operation_id),
        Value::Text(Some(&row.tenant)),
        Value::Text(Some(&row.caller)),
        Value::Text(Some(&row.operation)),
        Value::Text(Some(&row.key_hash_prefix)),
        Value::Int(Some(row.fingerprint_version.into())),
        Value::Bytes(Some(&row.fingerprint)),
        Value::Text(Some(&row.state)),
        Value::Text(Some(&row.reason)),
        Value::Int(Some(row.epoch.into())),
        Value::Bytes(Some(&row.token)),
        Value::Int(Some(row.lease_ms)),
        Value::Int(Some(row.ttl_ms)),
        Value::Int(row.tombstone_ttl_ms),
        Value::Text(Some(&row.on_lease_expired)),
        Value::Int(Some(row.quarantine_ms)),
        Value::Int(row.due_at),
        Value::Text(Some(&row.history[1..])),
    ]
}

/// The record of a first claim at `now`. At time zero its moments are durations, to which the database adds its
/// own present.
pub(super) fn fresh(claim: &Claim, now: Timestamp) -> Option<Record> {
    let step = transition(None, &Event::Claim(claim.attempt), now);
    Record::after(None, step.write, Some(claim), None, now)
}

/// The answer to a first claim that was written at `now`.
pub(super) fn first(claim: &Claim, now: Timestamp) -> StoreAnswer {
    let decision = transition(None, &Event::Claim(claim.attempt), now).decision;
    StoreAnswer { decision, record: fresh(claim, now), now, holder: None }
}
