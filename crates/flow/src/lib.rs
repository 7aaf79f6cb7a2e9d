//! Commands in one transaction of the service's own database: the claim, the service's own writes, the rows of its
//! outbox and the stored response commit together, or nothing happened.
//!
//! ```text
//! queue in this process ─ BEGIN ─ claim ─┬─ the service's own writes ─ response ─ COMMIT
//!                                        └─ replay, or refuse: nothing is run
//! ```
//!
//! There is no lease to end and nothing that could be unknown: a crash, a panic or a lost connection before the
//! COMMIT means that nothing happened, and what a COMMIT whose answer was lost came to is found out, not guessed.
//!
//! - `PostgresTransactions::transact`: the work is a future that gets an sqlx transaction.
//! - `SqliteTransactions::transact`: the work is a closure that gets a rusqlite transaction.
//! - [`Reply`] and [`Failure`]: what the work comes to.
//! - `tx.push`: a message to others that commits with the command; [`outbox`] delivers it.
//! - [`Reply::deferred`]: the answer for now; whoever delivers the message says what the command came to (`settle`).
//! - [`bulk`]: many commands in one request.
//! - [`reconcile`]: what becomes of commands whose outcome is unknown; and what others say was done, against what we believe.
//! - `PostgresPhases`, `SqlitePhases`: commands of several steps, some of which call others; see [`phases`].
//!
//! A handler of axum gets its [`Command`] by the extractor `Idempotent` of `semel-http`; the route is declared with
//! `Operation::local`. With the feature `axum`, [`Answered`] is a response of axum.

#![cfg_attr(
    not(any(feature = "postgres", feature = "sqlite")),
    allow(dead_code, reason = "without a database there is nothing to carry out")
)]

pub mod bulk;
mod gate;
pub mod outbox;
pub mod phases;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod reconcile;
mod reply;
mod seals;
mod settle;
#[cfg(any(feature = "http-sink", feature = "http-evidence"))]
mod signature;
#[cfg(feature = "sqlite")]
pub mod sqlite;

#[cfg(feature = "postgres")]
pub use postgres::{PgRun, PostgresPhases, PostgresTransactions};
pub use reply::{Answered, Failure, IntoReply, Reply};
pub use semel_core::{Command, Transacted};
#[cfg(any(feature = "http-sink", feature = "http-evidence"))]
pub use semel_outgoing::{Address, CertificateFiles, TlsError, TlsSettings, Trust};
pub use settle::Settled;
#[cfg(feature = "sqlite")]
pub use sqlite::{SqlitePhases, SqliteRun, SqliteTransactions};

/// The examples of docs/transact.md, compiled.
#[cfg(all(doctest, feature = "axum", feature = "postgres", feature = "sqlite"))]
#[doc = include_str!("../../../docs/transact.md")]
struct TransactPage;

/// The examples of docs/outbox.md, compiled.
#[cfg(all(doctest, feature = "http-sink", feature = "postgres"))]
#[doc = include_str!("../../../docs/outbox.md")]
struct OutboxPage;

/// The example of docs/deferred.md, compiled.
#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../../../docs/deferred.md")]
struct DeferredPage;

/// The example of docs/bulk.md, compiled.
#[cfg(all(doctest, feature = "postgres"))]
#[doc = include_str!("../../../docs/bulk.md")]
struct BulkPage;

/// The example of docs/reconcile.md, compiled.
#[cfg(all(doctest, feature = "http-evidence", feature = "postgres"))]
#[doc = include_str!("../../../docs/reconcile.md")]
struct ReconcilePage;

/// The examples of docs/phases.md, compiled.
#[cfg(all(doctest, feature = "axum", feature = "postgres", feature = "sqlite"))]
#[doc = include_str!("../../../docs/phases.md")]
struct PhasesPage;

/// The version whose connections and transactions the work gets.
#[cfg(feature = "sqlite")]
pub use rusqlite;
/// The version whose pools, connections and transactions are used here.
#[cfg(feature = "postgres")]
pub use sqlx;
