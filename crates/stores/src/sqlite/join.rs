//! The store's part in a transaction of a service's own: the same decisions and the same SQL, on a connection
//! that the caller has put into an exclusive transaction.

use std::path::Path;

use rusqlite::{Connection, params};
use semel_core::identity::StoreId;
use semel_core::{
    Change, Claim, Event, Mark, OperationId, Record, RecordId, StoreAnswer, StoreError, Timestamp,
};

use super::errors::store_error;
use super::{SqliteOpenError, SqliteOptions, StoreFiles, change, clock, connect, phases, place, queries};

/// Returns a connection to the file with the settings that durability needs, and with this version's schema.
pub fn open_connection(
    path: impl AsRef<Path>,
    options: &SqliteOptions,
) -> Result<Connection, SqliteOpenError> {
    let path = path.as_ref();
    let mut connection = connect(path, options).map_err(|trouble| trouble.at(path))?;
    place::adopt(&mut connection, path, options).map_err(|trouble| trouble.at(path))?;
    Ok(connection)
}

/// Returns the place of the connection's file, to be checked after every commit.
pub fn place_of(connection: &Connection, path: impl AsRef<Path>) -> Result<StoreFiles, SqliteOpenError> {
    let path = path.as_ref();
    StoreFiles::of(connection, path).map_err(|trouble| trouble.at(path))
}

/// Returns the store's time, within the open exclusive transaction.
pub fn now(connection: &Connection) -> rusqlite::Result<Timestamp> {
    clock::now(connection, 0)
}

/// Claims, within the open exclusive transaction.
pub fn claim_within(
    connection: &Connection,
    claim: &Claim,
    now: Timestamp,
) -> Result<StoreAnswer, StoreError> {
    change::claim(connection, claim, now)
}

/// Applies a change, within the open exclusive transaction.
pub fn apply_within(
    connection: &Connection,
    id: &RecordId,
    change: &Change,
    now: Timestamp,
) -> Result<StoreAnswer, StoreError> {
    change::apply(connection, id, change, now)
}

/// Writes the mark of a phase of the held command; with a finished phase, marks the command as partly done.
/// Returns `false` if there is no such phase. Repeating any mark except that of a local phase changes
/// nothing.
pub fn mark(
    connection: &Connection,
    command: OperationId,
    mark: &Mark,
    now: Timestamp,
) -> Result<bool, StoreError> {
    if mark.is_done() {
        change::tell_command(connection, command, |head| (!head.partly_done).then_some(Event::Advance), now)?;
    }
    phases::write(connection, command, mark, now).map_err(|error| store_error(&error))
}

/// Returns the record with this id.
pub fn find_within(connection: &Connection, id: &RecordId) -> Result<Option<Record>, StoreError> {
    queries::get(connection, id).map_err(|error| store_error(&error))
}

/// Writes without changing anything. Once that is committed, no part of an earlier failed commit can
/// reappear: its place in the log is taken.
pub fn write_anew(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("UPDATE semel_schema SET version = version", []).map(|_| ())
}

/// Returns true if the command has an undelivered message: one that was pushed and not taken back.
pub fn has_message(connection: &Connection, command: OperationId) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM semel_outbox WHERE operation_id = ?1 AND state = 'pending')";
    connection.prepare_cached(sql)?.query_row([command.as_bytes()], |row| row.get(0))
}

/// Adds a message to the outbox, behind those of the same command. Returns `false` if its id exists.
pub fn push_message(
    connection: &Connection,
    command: OperationId,
    event_id: &str,
    kind: &str,
    payload: &[u8],
    now: Timestamp,
) -> rusqlite::Result<bool> {
    let sql = "INSERT INTO semel_outbox (
                   event_id, operation_id, position, kind, payload, state, created_at, due_at, blocked)
               SELECT ?1, ?2, coalesce(max(position) + 1, 0), ?3, ?4, 'pending', ?5, ?5,
                   coalesce(max(state <> 'delivered'), 0)
               FROM semel_outbox WHERE operation_id = ?2
               ON CONFLICT (event_id) DO NOTHING";
    let added = connection.prepare_cached(sql)?.execute(params![
        event_id,
        command.as_bytes(),
        kind,
        payload,
        now.as_millis()
    ])?;
    Ok(added == 1)
}

/// Returns the record of this command.
pub fn find_command(connection: &Connection, id: OperationId) -> Result<Option<Record>, StoreError> {
    queries::find(connection, id).map_err(|error| store_error(&error))
}

/// Returns the id of the store in this file.
///
/// # Errors
/// If the file has none, or cannot be read.
pub fn store_id(connection: &Connection) -> rusqlite::Result<StoreId> {
    connection.query_row("SELECT id FROM semel_store", [], |row| row.get(0)).map(StoreId::from_bytes)
}
