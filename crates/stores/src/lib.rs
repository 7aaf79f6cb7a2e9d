//! Stores for Semel. Each is the [`Store`](semel_core::Store) trait beside everything it needs, and each runs
//! the same conformance suite.
//!
//! Read [`memory`] first: it is the contract with nothing around it.

pub mod memory;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use memory::MemoryStore;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
