//! Several statements that succeed or fail together within a larger transaction.

use rusqlite::Connection;
use semel_core::StoreError;

use super::errors::store_error;

/// Runs `write` in a savepoint: if it fails, its statements are rolled back, and the rest of the transaction stays.
pub(super) fn all_or_nothing<T>(
    connection: &Connection,
    write: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let run = |sql| connection.execute_batch(sql).map_err(|error| store_error(&error));
    run("SAVEPOINT one_change")?;
    let written = write();
    // After an error that ended the whole transaction there is nothing left to roll back.
    if !connection.is_autocommit() {
        if written.is_err() {
            run("ROLLBACK TO one_change")?;
        }
        run("RELEASE one_change")?;
    }
    written
}
