//! The store that is expected behind an address. A name may lead to another store, such as after a mistaken
//! failover or a restore beside the original, so every connection is checked before it is used.

use std::sync::{Arc, OnceLock};

use super::errors::DbError;
use super::executor::{Executor, SqlRow};
use semel_core::identity::{StoreId, StoreIdentity};

const STORE: &str = "SELECT id FROM semel_store";

/// Reads both ids in one round trip. Not every role may read the system's identifier, and not every relative
/// of PostgreSQL has one.
const STORE_AND_SYSTEM: &str =
    "SELECT id, (SELECT system_identifier FROM pg_control_system()) FROM semel_store";

/// Identity that connections are compared with: none until the first connection has read it.
#[derive(Clone, Default)]
pub(super) struct Expected(Arc<OnceLock<StoreIdentity>>);

impl Expected {
    /// Remembers the store behind this connection, once its tables exist.
    pub(super) async fn learn(&self, db: &mut impl Executor) -> Result<(), DbError> {
        let found = match identity(db, STORE_AND_SYSTEM).await {
            Err(DbError::Refused { .. }) => identity(db, STORE).await,
            found => found,
        }?;
        self.0.get_or_init(|| found);
        self.compare(found)
    }

    /// Refuses a connection that leads to another store.
    pub(super) async fn check(&self, db: &mut impl Executor) -> Result<(), DbError> {
        let Some(expected) = self.0.get() else { return Ok(()) };
        let sql = if expected.system.is_some() { STORE_AND_SYSTEM } else { STORE };
        match identity(db, sql).await {
            Ok(found) => self.compare(found),
            // Such as a database without our tables.
            Err(error @ (DbError::Refused { .. } | DbError::Unreadable { .. })) => {
                Err(refusal(&error.to_string()))
            }
            Err(error) => Err(DbError::Unconnected(error.to_string())),
        }
    }

    fn compare(&self, found: StoreIdentity) -> Result<(), DbError> {
        match self.0.get().and_then(|expected| found.difference(expected)) {
            Some(difference) => Err(refusal(&difference)),
            None => Ok(()),
        }
    }
}

/// Returns the id of the store behind the connection.
///
/// # Errors
/// If the database has no store, or cannot be asked.
pub async fn store_id(db: &mut impl Executor) -> Result<StoreId, DbError> {
    Ok(identity(db, STORE).await?.store)
}

/// Reads the identity of the store behind the connection.
async fn identity(db: &mut impl Executor, sql: &'static str) -> Result<StoreIdentity, DbError> {
    let rows = db.query(sql, &[]).await?;
    let read = |row: &SqlRow| {
        let system = if sql == STORE { None } else { row.int(1) };
        Some(StoreIdentity { store: StoreId::from_bytes(row.uuid(0)?), system })
    };
    rows.first().and_then(read).ok_or_else(|| DbError::unreadable("semel_store", "it has no id"))
}

fn refusal(difference: &str) -> DbError {
    tracing::error!(
        difference,
        "another store answers at the store's address: nothing is sent there. See where the address leads; if the records were \
         moved on purpose, restart"
    );
    DbError::Unconnected(format!(
        "another store is behind this address: {difference}; see where it leads, and restart if the records were moved on purpose"
    ))
}
