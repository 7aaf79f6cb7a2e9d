//! Opens a store by its location, with its keys. The gateway, its tools and services all use it.

use std::sync::Arc;

use semel_core::location::InvalidLocation;
use semel_core::{Backend, StoreLocation, Vault};

use crate::access::Access;
use crate::encryption::SealedStore;
use crate::memory::MemoryStore;
#[cfg(feature = "postgres")]
use crate::postgres::{self, PostgresOptions, PostgresStore};
#[cfg(feature = "sqlite")]
use crate::sqlite::{self, SqliteOptions, SqliteStore};
#[cfg(feature = "sql")]
use crate::store_schema::StoreSchema;

/// Reason why a store cannot be opened, with advice.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The text names no store.
    #[error("the location of a store: {0}")]
    Location(#[from] InvalidLocation),
    /// The SQLite file cannot be used.
    #[cfg(feature = "sqlite")]
    #[error(transparent)]
    Sqlite(#[from] sqlite::SqliteOpenError),
    /// The address of the PostgreSQL database is wrong.
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    Address(#[from] postgres::DatabaseAddressError),
    /// The PostgreSQL database cannot be used.
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    Postgres(#[from] postgres::PostgresOpenError),
    /// The program was built without this store.
    #[error("this program was built without the feature `{0}`")]
    NotBuilt(&'static str),
}

impl OpenError {
    /// Returns the schema version of a store that is older than this version reads; 0 if it has no tables.
    pub fn older_schema(&self) -> Option<u32> {
        match self {
            #[cfg(feature = "sqlite")]
            OpenError::Sqlite(sqlite::SqliteOpenError::OlderSchema { found, .. }) => Some(*found),
            #[cfg(feature = "postgres")]
            OpenError::Postgres(postgres::PostgresOpenError::OlderSchema { found, .. }) => Some(*found),
            _ => None,
        }
    }
}

/// Opens the store at `memory:`, `sqlite:PATH` or `postgres://…`. Creates it, or migrates it to this
/// version's schema, if needed.
pub async fn open(location: &str) -> Result<Arc<dyn Backend>, OpenError> {
    open_with(&location.parse()?, Access::Write, None).await
}

/// Migrates a store to this version's schema, as opening it does. Returns the schema that it has now; `None` for a store in memory.
#[cfg(feature = "sql")]
pub async fn migrate(location: &StoreLocation) -> Result<Option<StoreSchema>, OpenError> {
    match location {
        StoreLocation::Memory => Ok(None),
        #[cfg(feature = "sqlite")]
        StoreLocation::Sqlite(path) => Ok(Some(sqlite::migrate_file(path)?)),
        #[cfg(feature = "postgres")]
        StoreLocation::Postgres(url) => Ok(Some(postgres::migrate_database(&url.address()?).await?)),
        #[cfg(not(feature = "sqlite"))]
        StoreLocation::Sqlite(_) => Err(OpenError::NotBuilt("sqlite")),
        #[cfg(not(feature = "postgres"))]
        StoreLocation::Postgres(_) => Err(OpenError::NotBuilt("postgres")),
    }
}

/// Finishes the upgrade of a store, which must be migrated: from now on it is readable from this version on only, and gets the
/// formats of this version. Returns the schema that it has now; `None` for a store in memory.
#[cfg(feature = "sql")]
pub async fn finish(location: &StoreLocation) -> Result<Option<StoreSchema>, OpenError> {
    match location {
        StoreLocation::Memory => Ok(None),
        #[cfg(feature = "sqlite")]
        StoreLocation::Sqlite(path) => Ok(Some(sqlite::finish_file(path)?)),
        #[cfg(feature = "postgres")]
        StoreLocation::Postgres(url) => Ok(Some(postgres::finish_database(&url.address()?).await?)),
        #[cfg(not(feature = "sqlite"))]
        StoreLocation::Sqlite(_) => Err(OpenError::NotBuilt("sqlite")),
        #[cfg(not(feature = "postgres"))]
        StoreLocation::Postgres(_) => Err(OpenError::NotBuilt("postgres")),
    }
}

/// Opens a store with this access; with a vault, all data of clients and services is sealed.
pub async fn open_with(
    location: &StoreLocation,
    #[cfg_attr(
        not(feature = "sql"),
        allow(unused_variables, reason = "a store in memory is its process's own")
    )]
    access: Access,
    vault: Option<Arc<dyn Vault>>,
) -> Result<Arc<dyn Backend>, OpenError> {
    let plain: Arc<dyn Backend> = match location {
        StoreLocation::Memory => Arc::new(MemoryStore::new()),
        #[cfg(feature = "sqlite")]
        StoreLocation::Sqlite(path) => {
            let options = SqliteOptions { access, ..SqliteOptions::default() };
            Arc::new(SqliteStore::open_with(path, &options)?)
        }
        #[cfg(feature = "postgres")]
        StoreLocation::Postgres(url) => {
            let options = PostgresOptions { access, ..PostgresOptions::default() };
            Arc::new(PostgresStore::open_with(&url.address()?, &options).await?)
        }
        #[cfg(not(feature = "sqlite"))]
        StoreLocation::Sqlite(_) => return Err(OpenError::NotBuilt("sqlite")),
        #[cfg(not(feature = "postgres"))]
        StoreLocation::Postgres(_) => return Err(OpenError::NotBuilt("postgres")),
    };
    Ok(match vault {
        Some(vault) => Arc::new(SealedStore::new(plain, vault)),
        None => plain,
    })
}
