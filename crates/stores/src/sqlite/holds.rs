//! Holds, and their notes in the audit log.

use async_trait::async_trait;
use rusqlite::{Connection, params};
use semel_core::hold::MAX_HOLDS;
use semel_core::{Hold, HoldChange, HoldTarget, Holds, Note, StoreError, StoreFence, Timestamp};

use super::errors::store_error;
use super::job::Task;
use super::savepoint::all_or_nothing;
use super::{SqliteStore, queries};
use crate::columns::hold_target;

#[async_trait]
impl Holds for SqliteStore {
    async fn holds(&self) -> Result<Vec<Hold>, StoreError> {
        self.read(|connection, _| holds(connection)).await
    }

    async fn hold(&self, target: &HoldTarget, note: &Note) -> Result<HoldChange, StoreError> {
        self.change_hold(target, note, hold).await
    }

    async fn lift(&self, target: &HoldTarget, note: &Note) -> Result<HoldChange, StoreError> {
        self.change_hold(target, note, lift).await
    }
}

/// A write of a hold.
type HoldWrite = fn(&Connection, &HoldTarget, &Note, Timestamp) -> rusqlite::Result<HoldChange>;

impl SqliteStore {
    async fn change_hold(
        &self,
        target: &HoldTarget,
        note: &Note,
        write: HoldWrite,
    ) -> Result<HoldChange, StoreError> {
        let (target, note) = (target.clone(), note.clone());
        // Made a second time, it finds its own result, and writes no second note.
        let task = Task::new(move |turn| {
            all_or_nothing(turn.connection, || {
                let change = write(turn.connection, &target, &note, turn.now).and_then(|change| {
                    if change == HoldChange::Done {
                        queries::take_note(turn.connection, None, &note, turn.now)?;
                    }
                    Ok(change)
                });
                change.map_err(|error| store_error(&error))
            })
        });
        self.write(task).await
    }
}

/// Returns the holds in force. One of a kind that is not known here has no effect, and hides no other.
fn holds(connection: &Connection) -> rusqlite::Result<Vec<Hold>> {
    let mut holds = Vec::new();
    let mut statement = connection
        .prepare_cached("SELECT kind, name, since, who, why FROM semel_holds ORDER BY kind, name")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (kind, name) = (row.get::<_, String>(0)?, row.get::<_, String>(1)?);
        if let Some(target) = hold_target(&kind, &name) {
            let since = Timestamp::from_millis(row.get(2)?);
            holds.push(Hold { target, since, who: row.get(3)?, why: row.get(4)? });
        }
    }
    Ok(holds)
}

/// Returns true if the store is fenced.
pub(super) fn is_fenced(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM semel_holds WHERE kind = 'store')";
    connection.prepare_cached(sql)?.query_row([], |row| row.get(0))
}

/// Returns the fence of the store; `None` if it is not fenced.
pub(super) fn fence(connection: &Connection) -> rusqlite::Result<Option<StoreFence>> {
    if !is_fenced(connection)? {
        return Ok(None);
    }
    let holds = holds(connection)?;
    Ok(StoreFence::of(holds.iter().map(|hold| (&hold.target, hold.since))))
}

/// Holds a target.
pub(super) fn hold(
    connection: &Connection,
    target: &HoldTarget,
    note: &Note,
    now: Timestamp,
) -> rusqlite::Result<HoldChange> {
    let (kind, name) = (target.kind(), target.name());
    let sql = "SELECT EXISTS (SELECT 1 FROM semel_holds WHERE kind = ?1 AND name = ?2),
                   (SELECT count(*) FROM semel_holds)";
    let (is_held, held) = connection
        .prepare_cached(sql)?
        .query_row(params![kind, name], |row| Ok((row.get::<_, bool>(0)?, row.get::<_, i64>(1)?)))?;
    if is_held {
        return Ok(HoldChange::AlreadySo);
    }
    // A fence is never refused.
    if usize::try_from(held).is_ok_and(|held| held >= MAX_HOLDS) && *target != HoldTarget::Store {
        return Ok(HoldChange::TooMany);
    }
    connection
        .prepare_cached("INSERT INTO semel_holds (kind, name, since, who, why) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![kind, name, now.as_millis(), note.who, note.why])?;
    Ok(HoldChange::Done)
}

/// Lifts the hold of a target.
pub(super) fn lift(
    connection: &Connection,
    target: &HoldTarget,
    _note: &Note,
    now: Timestamp,
) -> rusqlite::Result<HoldChange> {
    let lifted = connection
        .prepare_cached("DELETE FROM semel_holds WHERE kind = ?1 AND name = ?2")?
        .execute(params![target.kind(), target.name()])?;
    if lifted == 0 {
        return Ok(HoldChange::AlreadySo);
    }
    if *target == HoldTarget::Store {
        connection
            .execute("UPDATE semel_store SET generation = max(generation + 1, ?1)", [now.as_millis()])?;
    }
    Ok(HoldChange::Done)
}
