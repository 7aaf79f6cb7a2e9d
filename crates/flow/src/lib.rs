//! Commands in one transaction of the service's own database: the claim, the service's own writes, the rows of its
//! outbox and the stored response commit together, or nothing happened.
//!
//! ```text
//! queue in this process ─ BEGIN ─ claim ─┬─ the service's own writes ─ response ─ COMMIT
//!                                        └─ replay, or refuse: nothing is run
//! ```
//!
//! There is no lease that could expire and no unknown outcome: a crash, a panic or a lost connection before the COMMIT
//! means that nothing happened. If the answer to a COMMIT is lost, the database is asked for the result.
//!
//! - `PostgresTransactions::transact`: the work is a future that gets an sqlx transaction.
//! - `SqliteTransactions::transact`: the work is a closure that gets a rusqlite transaction.
//! - [`Reply`] and [`Failure`]: the result of the work.
//! - `tx.push`: a message that commits with the command; [`outbox`] delivers it.
//! - [`Reply::deferred`]: a preliminary answer; the sink that delivers the message settles the command (`settle`).
//! - [`bulk`]: many commands in one request.
//! - [`reconcile`]: resolves commands in state `unknown`, and compares the provider's ledger with the service's own.
//! - `PostgresPhases`, `SqlitePhases`: commands of several steps, some of which call other services; see [`phases`].
//!
//! An axum handler gets its [`Command`] from the extractor `Idempotent` of `semel-http`; the route is declared with
//! `Operation::local`. With the feature `axum`, [`Answered`] is an axum response.

#![cfg_attr(
    not(any(feature = "postgres", feature = "sqlite")),
    allow(dead_code, reason = "without a database there is nothing to carry out")
)]

pub mod bulk;
mod deadline;
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
mod unknown;

#[cfg(feature = "postgres")]
pub use postgres::{PgRun, PostgresPhases, PostgresTransactions};
pub use reply::{Answered, Failure, IntoReply, Reply};
pub use semel_core::{Command, Transacted};
#[cfg(any(feature = "http-sink", feature = "http-evidence"))]
pub use semel_outgoing::{Address, CertificateFiles, TlsError, TlsSettings, Trust};
pub use settle::Settled;
#[cfg(feature = "sqlite")]
pub use sqlite::{SqlitePhases, SqliteRun, SqliteTransactions};

/// The rusqlite version whose connections and transactions the work gets.
#[cfg(feature = "sqlite")]
pub use rusqlite;
/// The sqlx version whose pools, connections and transactions this crate uses.
#[cfg(feature = "postgres")]
pub use sqlx;
