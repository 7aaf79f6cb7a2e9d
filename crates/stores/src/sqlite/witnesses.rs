//! Beats of witnesses: numbers by which a process or a file outside notices that the file was set back.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, params};
use semel_core::{Beat, StoreError, StorePoint, Timestamp, Witness, Witnessed};

use super::SqliteStore;
use super::errors::store_error;
use super::job::Task;

#[async_trait]
impl Witnessed for SqliteStore {
    async fn beat(&self, witness: Witness) -> Result<Beat, StoreError> {
        let last = self.last_beat.clone();
        // Made a second time, it goes one further.
        self.write(Task::new(move |turn| {
            beat(turn.connection, witness, &last, turn.now).map_err(|error| store_error(&error))
        }))
        .await
    }
}

/// State of the file after the last beat: nothing was written since while it is the same.
#[derive(Clone, Default)]
pub(super) struct LastBeat(Arc<Mutex<Option<(Witness, FileState)>>>);

/// Number of changes by this connection, and a number that changes with every commit of another one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileState {
    own: u64,
    of_others: i64,
}

impl FileState {
    fn of(connection: &Connection) -> rusqlite::Result<FileState> {
        let of_others = connection.query_row("PRAGMA data_version", [], |row| row.get(0))?;
        Ok(FileState { own: connection.total_changes(), of_others })
    }
}

fn beat(
    connection: &Connection,
    witness: Witness,
    last: &LastBeat,
    now: Timestamp,
) -> rusqlite::Result<Beat> {
    let mut last = last.0.lock().unwrap_or_else(PoisonError::into_inner);
    // A disk that only witnesses write to would never rest.
    if *last == Some((witness, FileState::of(connection)?)) {
        return Ok(Beat::Kept(witness.seen));
    }
    let generation =
        connection.prepare_cached("SELECT generation FROM semel_store")?.query_row([], |row| row.get(0))?;
    let beat: Option<i64> = connection
        .prepare_cached("SELECT beat FROM semel_witnesses WHERE id = ?1")?
        .query_row([witness.id.as_bytes()], |row| row.get(0))
        .optional()?;
    let beat = beat.and_then(|beat| u64::try_from(beat).ok()).unwrap_or(0);
    let point = StorePoint { generation, beat };
    if point < witness.seen {
        return Ok(Beat::Behind(point));
    }
    let next = StorePoint { beat: beat + 1, ..point };
    let sql = "INSERT INTO semel_witnesses (id, beat, seen_at) VALUES (?1, ?2, ?3)
               ON CONFLICT (id) DO UPDATE SET beat = excluded.beat, seen_at = excluded.seen_at";
    let number = i64::try_from(next.beat).unwrap_or(i64::MAX);
    connection.prepare_cached(sql)?.execute(params![witness.id.as_bytes(), number, now.as_millis()])?;
    *last = Some((Witness { seen: next, ..witness }, FileState::of(connection)?));
    Ok(Beat::Kept(next))
}
