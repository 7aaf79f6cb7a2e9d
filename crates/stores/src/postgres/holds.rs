//! Holds, and their notes in the audit log: one transaction for both.

use async_trait::async_trait;
use semel_core::hold::MAX_HOLDS;
use semel_core::{Hold, HoldChange, HoldTarget, Holds, Ids, Note, RandomIds, StoreError, Timestamp};

use super::errors::DbError;
use super::executor::{Executor, SqlRow, SqlValue};
use super::link::Link;
use super::outbox::in_transaction;
use super::{PostgresStore, schema};
use crate::columns::hold_target;

/// Lists the holds in force, in the order of bytes, whatever the database's collation is.
const HOLDS: &str = "
    SELECT kind, name, since, who, why FROM semel_holds ORDER BY kind COLLATE \"C\", name COLLATE \"C\"";

/// Lets one process at a time change the holds, so that their number is not exceeded. Reads go on.
const LOCK_HOLDS: &str = "LOCK TABLE semel_holds IN SHARE ROW EXCLUSIVE MODE";

/// Writes a hold with its note, unless the target is held, or `$8` are in force. Returns the number of holds of the target
/// before, and the number of written ones.
const HOLD: &str = "
    WITH before AS MATERIALIZED (
        SELECT count(*) AS held, count(*) FILTER (WHERE kind = $6 AND name = $7) AS same FROM semel_holds
    ), written AS (
        INSERT INTO semel_holds (kind, name, since, who, why) SELECT $6, $7, $2, $3, $5 FROM before
        WHERE same = 0 AND held < $8 RETURNING kind
    ), noted AS (
        INSERT INTO semel_audit (id, at, operation_id, who, action, why) SELECT $1, $2, NULL, $3, $4, $5 FROM written
    )
    SELECT same, (SELECT count(*) FROM written) FROM before";

/// Removes a hold and writes the note, if the target is held. Returns the number of removed holds.
const LIFT: &str = "
    WITH lifted AS (DELETE FROM semel_holds WHERE kind = $6 AND name = $7 RETURNING kind),
    noted AS (
        INSERT INTO semel_audit (id, at, operation_id, who, action, why) SELECT $1, $2, NULL, $3, $4, $5 FROM lifted
    )
    SELECT count(*) FROM lifted";

/// Begins another generation of the store: from now on no witness takes it for one that was set back before.
const NEXT_GENERATION: &str = "UPDATE semel_store SET generation = greatest(generation + 1, $1)";

#[async_trait]
impl Holds for PostgresStore {
    async fn holds(&self) -> Result<Vec<Hold>, StoreError> {
        self.polls
            .with(|mut lent| async move {
                Ok(lent.link()?.query(HOLDS, &[]).await?.iter().filter_map(hold).collect())
            })
            .await
    }

    async fn hold(&self, target: &HoldTarget, note: &Note) -> Result<HoldChange, StoreError> {
        let (target, note) = (target.clone(), note.clone());
        self.polls
            .with(move |mut lent| async move {
                let offset = lent.offset;
                let written = in_transaction(lent.link()?, async |link: &mut Link| {
                    link.run(LOCK_HOLDS).await?;
                    let mut values = values(&target, &note, now(link, offset).await?);
                    values.push(SqlValue::Int(Some(most(&target))));
                    let rows = link.query(HOLD, &values).await?;
                    let number = |column| rows.first().and_then(|row| row.int(column)).unwrap_or(0);
                    Ok(Some(match (number(0), number(1)) {
                        (_, 1) => HoldChange::Done,
                        (0, _) => HoldChange::TooMany,
                        (_, _) => HoldChange::AlreadySo,
                    }))
                });
                outcome(written.await)
            })
            .await?
    }

    async fn lift(&self, target: &HoldTarget, note: &Note) -> Result<HoldChange, StoreError> {
        let (target, note) = (target.clone(), note.clone());
        self.polls
            .with(move |mut lent| async move {
                let offset = lent.offset;
                let lifted = in_transaction(lent.link()?, async |link: &mut Link| {
                    let values = values(&target, &note, now(link, offset).await?);
                    let rows = link.query(LIFT, &values).await?;
                    let lifted = rows.first().and_then(|row| row.int(0)).unwrap_or(0);
                    if lifted > 0 && target == HoldTarget::Store {
                        link.query(NEXT_GENERATION, &[values[1].clone()]).await?;
                    }
                    Ok((lifted > 0).then_some(HoldChange::Done))
                });
                outcome(lifted.await)
            })
            .await?
    }
}

/// Returns the number of holds from which on this target is refused. A fence is never refused.
fn most(target: &HoldTarget) -> i64 {
    match target {
        HoldTarget::Store => i64::MAX,
        _ => i64::try_from(MAX_HOLDS).unwrap_or(i64::MAX),
    }
}

/// Returns the result of a write. One whose answer was lost may have taken effect, unlike a read, which is only made again.
fn outcome(written: Result<Option<HoldChange>, DbError>) -> Result<Result<HoldChange, StoreError>, DbError> {
    match written {
        Err(lost @ DbError::Lost(_)) => Ok(Err(lost.store_error())),
        written => Ok(Ok(written?.unwrap_or(HoldChange::AlreadySo))),
    }
}

/// Returns the store's time.
async fn now(link: &mut Link, offset: i64) -> Result<Timestamp, DbError> {
    let now = schema::now(link).await?.as_millis();
    Ok(Timestamp::from_millis(now.saturating_add(offset)))
}

/// Returns the parameters of a note, and of its target.
fn values<'a>(target: &'a HoldTarget, note: &'a Note, now: Timestamp) -> Vec<SqlValue<'a>> {
    vec![
        SqlValue::Uuid(*RandomIds.operation_id(now).as_bytes()),
        SqlValue::Int(Some(now.as_millis())),
        SqlValue::Text(Some(&note.who)),
        SqlValue::Text(Some(&note.action)),
        SqlValue::Text(Some(&note.why)),
        SqlValue::Text(Some(target.kind())),
        SqlValue::Text(Some(target.name())),
    ]
}

fn hold(row: &SqlRow) -> Option<Hold> {
    let text = |column| row.text(column).unwrap_or_default();
    let target = hold_target(text(0), text(1))?;
    let since = Timestamp::from_millis(row.int(2).unwrap_or(0));
    Some(Hold { target, since, who: text(3).to_owned(), why: text(4).to_owned() })
}
