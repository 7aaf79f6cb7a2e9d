//! Stores for Semel. Each implements the [`Store`](semel_core::Store) trait, and each passes the same
//! conformance suite.
//!
//! Read [`memory`] first: it is the contract with nothing around it.

pub mod access;
#[cfg(feature = "sql")]
pub mod api_keys;
pub mod breaker;
#[cfg(feature = "sql")]
mod columns;
mod contested;
pub mod doctor;
pub mod encryption;
#[cfg(feature = "sql")]
mod known;
pub mod memory;
mod open;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sql")]
mod queue_metrics;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "sql")]
mod store_schema;

pub use access::Access;
pub use breaker::Breaker;
pub use memory::MemoryStore;
pub use open::{OpenError, open, open_with};
#[cfg(feature = "sql")]
pub use open::{finish, migrate};
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
pub use semel_core::StoreLocation;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
#[cfg(feature = "sql")]
pub use store_schema::StoreSchema;
