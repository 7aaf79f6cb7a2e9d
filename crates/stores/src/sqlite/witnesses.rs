//! Beats of witnesses: numbers by which a process or a file outside notices that the file was set back.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, params};
use semel_core::{Beat, StoreError, StorePoint, Timestamp, Witness, Witnessed};

use super::SqliteStore;
use super::errors::store_error;
use super::job::Task;

#[async_trait]
impl Witnessed for SqliteStore {
    async fn beat(&self, witness: Witness) -> Result<Beat, StoreError> {
        // Made a second time, it goes one further.
        self.write(Task::new(move |turn| {
            beat(turn.connection, witness, turn.now).map_err(|error| store_error(&error))
        }))
        .await
    }
}

fn beat(connection: &Connection, witness: Witness, now: Timestamp) -> rusqlite::Result<Beat> {
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
    Ok(Beat::Kept(next))
}
