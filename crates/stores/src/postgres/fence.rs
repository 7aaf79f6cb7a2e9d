//! The fence of a store that was restored: all SQL that reads it, and the write that every connection to a database that is behind
//! its witness makes first.

use semel_core::{Attempt, Claim, HoldTarget, Ids, Note, RandomIds, Record, StoreFence, Timestamp};

use super::errors::DbError;
use super::executor::{Executor, SqlRow, SqlValue};
use super::schema;
use crate::columns::hold_target;

/// Lists the holds that make the fence.
const FENCE: &str =
    "SELECT kind, name, since FROM semel_holds WHERE kind IN ('store', 'look-up-first', 'younger-keys')";

/// Condition of a statement that is skipped while the store is fenced.
macro_rules! not_fenced {
    () => {
        "NOT EXISTS (SELECT 1 FROM semel_holds WHERE kind = 'store')"
    };
}
pub(super) use not_fenced;

/// Column that is 1 while the store is fenced.
macro_rules! is_fenced {
    () => {
        concat!("CASE WHEN ", super::fence::not_fenced!(), " THEN 0 ELSE 1 END::bigint")
    };
}
pub(super) use is_fenced;

/// Fences the store with a note, unless it is fenced.
const FENCE_STORE: &str = "
    WITH written AS (
        INSERT INTO semel_holds (kind, name, since, who, why) VALUES ('store', '', $2, $3, $5)
        ON CONFLICT DO NOTHING RETURNING kind
    )
    INSERT INTO semel_audit (id, at, operation_id, who, action, why) SELECT $1, $2, NULL, $3, $4, $5 FROM written";

/// Returns the fence of the store; `None` if it is not fenced.
pub(super) async fn found(db: &mut impl Executor) -> Result<Option<StoreFence>, DbError> {
    let rows = db.query(FENCE, &[]).await?;
    let target = |row: &SqlRow| {
        let target = hold_target(row.text(0).unwrap_or_default(), row.text(1).unwrap_or_default())?;
        Some((target, Timestamp::from_millis(row.int(2).unwrap_or(0))))
    };
    let holds: Vec<(HoldTarget, Timestamp)> = rows.iter().filter_map(target).collect();
    Ok(StoreFence::of(holds.iter().map(|(target, since)| (target, *since))))
}

/// Returns the claim with the effect of the fence on it.
pub(super) fn under(fence: &StoreFence, claim: &Claim, before: Option<&Record>, now: Timestamp) -> Claim {
    Claim { attempt: Attempt { fence: fence.on(claim, before, now), ..claim.attempt }, ..claim.clone() }
}

/// Fences the store, with a note, if it is not fenced yet.
pub(super) async fn fence_store(db: &mut impl Executor, note: &Note) -> Result<(), DbError> {
    let now = schema::now(db).await?;
    let values = [
        SqlValue::Uuid(*RandomIds.operation_id(now).as_bytes()),
        SqlValue::Int(Some(now.as_millis())),
        SqlValue::Text(Some(&note.who)),
        SqlValue::Text(Some(&note.action)),
        SqlValue::Text(Some(&note.why)),
    ];
    db.query(FENCE_STORE, &values).await.map(|_| ())
}
