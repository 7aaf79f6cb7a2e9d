//! Semel makes HTTP commands safe to retry: the same command under the same key has one durable outcome, which every retry gets,
//! and no second side effect.
//!
//! ```no_run
//! # #[cfg(all(feature = "axum", feature = "sqlite"))] mod example {
//! use axum::{Router, routing::post};
//! use semel::{Operation, Principal, Semel};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let store = semel::open("sqlite:semel.db").await?; // or postgres://…
//! let semel = Semel::builder(store)
//!     // From your authentication: a key belongs to one caller.
//!     .identify(|head| {
//!         let user = head.headers.get("x-user").and_then(|value| value.to_str().ok());
//!         Ok(Principal::new("acme", user.unwrap_or_default())?)
//!     })
//!     .operation(Operation::new("payments.create", "POST /payments"))
//!     .build()?;
//! let app = Router::new().route("/payments", post(|| async { "charged once" })).layer(semel.layer());
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//! semel.serve(listener, app).await?; // upkeep, and a drain on Ctrl-C and SIGTERM
//! # Ok(())
//! # }
//! # }
//! ```
//!
//! A service whose authentication puts a type of its own into the request's extensions implements [`Authenticated`] for it, and
//! calls `identify_extension::<User>()` instead:
//!
//! ```
//! use semel::{Authenticated, Denied, Principal, Semel};
//!
//! #[derive(Clone)]
//! struct User {
//!     company: String,
//!     id: u64,
//! }
//!
//! impl Authenticated for User {
//!     fn principal(&self) -> Result<Principal, Denied> {
//!         Ok(Principal::new(&self.company, &self.id.to_string())?)
//!     }
//! }
//!
//! # fn example(store: std::sync::Arc<dyn semel::Backend>) -> Result<(), semel::ConfigError> {
//! let semel = Semel::builder(store).identify_extension::<User>().build()?;
//! # Ok(())
//! # }
//! ```
//!
//! A handler can say more than its status does, and check that the command is still its own to run:
//!
//! ```
//! use axum::Extension;
//! use axum::http::StatusCode;
//! use axum::response::{IntoResponse, Response};
//! use semel::{Execution, Outcome};
//!
//! async fn charge(Extension(execution): Extension<Execution>) -> Response {
//!     // Right before an effect: is the lease still held?
//!     if execution.check_lease().is_err() {
//!         return (StatusCode::SERVICE_UNAVAILABLE, Extension(Outcome::NotExecuted)).into_response();
//!     }
//!     let key = execution.downstream_key("charge"); // the same in every attempt
//!     format!("charged under {key}").into_response()
//! }
//! ```
//!
//! - [`open`]: opens a store at `memory:`, `sqlite:PATH` or, with the feature `postgres`, `postgres://…`. [`Backend`] is a store with
//!   all its parts, [`Store`] the part that requests need.
//! - [`Semel`]: layer, store and work in the background. [`Semel::layer`] goes around the routes; a handler finds an [`Execution`] in
//!   its request's extensions, and may put an [`Outcome`] into its response's.
//! - [`Operation`]: the name of a route's commands, and a setter for each policy.
//! - `flow`, with the feature of that name: `transact`, which commits the claim, the service's own writes, messages to others and the
//!   response in one transaction; `flow::phases`, for commands of several steps; `flow::reconcile`, which settles unknown outcomes.
//! - `admin`, with the feature of that name: the admin API and the console of the gateway, as a router under a path of yours.
//! - `encryption`, with the feature of that name: stored responses and requests, sealed under keys of yours.
//! - [`protocol`]: the protocol itself, pure; [`protocol::transition()`] takes every decision.
//!
//! Tests use `MemoryStore::with_clock`, and [`Semel::upkeep_once`] in place of time that passes.

#[cfg(feature = "admin")]
pub mod admin;
mod service;

pub use semel_core as protocol;
pub use semel_core::policy;
pub use semel_core::quota;
pub use semel_core::{Backend, Policy, Principal, Store, Tier};
pub use semel_http::{
    Authenticated, Body, Builder, BusyCallers, BusyMinutes, CallerCount, CallerRanking, CallerRankings,
    ConfigError, Denied, Execution, HoldBoard, HotKey, Idempotency, IdempotencyLayer, Maintained,
    Maintenance, NotExecuted, Operation, Outcome, Refetch, Shutdown, Stop, WitnessError, Worker,
    WorkerOptions,
};
#[cfg(feature = "encryption")]
pub use semel_stores::encryption;
#[cfg(feature = "postgres")]
pub use semel_stores::postgres::{self, PostgresStore};
#[cfg(feature = "sqlite")]
pub use semel_stores::sqlite::{self, SqliteStore};
pub use semel_stores::{MemoryStore, OpenError, open};
#[cfg(all(feature = "flow", any(feature = "postgres", feature = "sqlite")))]
pub use service::TransactionsError;
pub use service::{Background, Semel};

/// Commands in one transaction of the service's own database: claim, writes, outbox rows and stored response commit together, or
/// nothing happened.
///
/// The operation is declared with [`Operation::local`], and the handler takes an `Idempotent`. On SQLite, the work is a
/// closure that may block:
///
/// ```
/// # #[cfg(feature = "sqlite")] mod example {
/// use axum::{extract::State, http::StatusCode};
/// use semel::flow::{Answered, Failure, Idempotent, Reply, SqliteTransactions};
///
/// async fn pay(State(semel): State<SqliteTransactions>, Idempotent(command): Idempotent) -> Answered {
///     semel
///         .transact(&command, |tx| {
///             if tx.execute("UPDATE accounts SET balance = balance - 5 WHERE balance >= 5", [])? == 0 {
///                 // Kept, and replayed to retries; what was written is taken back.
///                 return Err(Failure::refuse(StatusCode::PAYMENT_REQUIRED, &"no funds"));
///             }
///             tx.push("payment.made", br#"{"amount": 5}"#)?;
///             Reply::json(StatusCode::CREATED, &"paid")
///         })
///         .await
/// }
/// # }
/// ```
///
/// On PostgreSQL, it is a future that gets a transaction of sqlx:
///
/// ```
/// # #[cfg(feature = "postgres")] mod example {
/// use axum::{extract::State, http::StatusCode};
/// use semel::flow::{Answered, Failure, Idempotent, PostgresTransactions, Reply, sqlx};
///
/// async fn pay(State(semel): State<PostgresTransactions>, Idempotent(command): Idempotent) -> Answered {
///     semel
///         .transact(&command, |mut tx| async move {
///             let take = sqlx::query("UPDATE accounts SET balance = balance - 5 WHERE balance >= 5");
///             if take.execute(&mut *tx).await?.rows_affected() == 0 {
///                 return Err(Failure::refuse(StatusCode::PAYMENT_REQUIRED, &"no funds"));
///             }
///             tx.push("payment.made", br#"{"amount": 5}"#).await?;
///             Reply::json(StatusCode::CREATED, &"paid")
///         })
///         .await
/// }
/// # }
/// ```
///
/// `examples/transact` is a complete service, and `docs/src/reference/transact.md` says what is promised and what clients get.
///
/// Commands of several steps are `PostgresPhases` and `SqlitePhases`, and what belongs to them is in `phases`: `docs/src/how-to/phases.md` has
/// an example, and says what is promised.
#[cfg(feature = "flow")]
pub mod flow {
    #[cfg(any(feature = "http-sink", feature = "http-evidence"))]
    pub use semel_flow::{Address, CertificateFiles, TlsError, TlsSettings, Trust};
    pub use semel_flow::{
        Answered, Command, Failure, IntoReply, Reply, Settled, Transacted, bulk, outbox, phases, reconcile,
    };
    #[cfg(feature = "postgres")]
    pub use semel_flow::{PgRun, PostgresPhases, PostgresTransactions, postgres, sqlx};
    #[cfg(feature = "sqlite")]
    pub use semel_flow::{SqlitePhases, SqliteRun, SqliteTransactions, rusqlite, sqlite};
    pub use semel_http::{CurrentExecution, Idempotent, NoExecution, NotRead};
}

/// Compiles the examples of docs/src/start/rust-layer.md.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/start/rust-layer.md")]
struct LayerPage;

/// Compiles the examples of docs/src/start/transact.md.
#[cfg(all(doctest, feature = "flow", feature = "sqlite", feature = "postgres"))]
#[doc = include_str!("../../../docs/src/start/transact.md")]
struct TransactPage;

/// Compiles the examples of docs/src/how-to/outbox.md.
#[cfg(all(doctest, feature = "http-sink", feature = "postgres"))]
#[doc = include_str!("../../../docs/src/how-to/outbox.md")]
struct OutboxPage;

/// Compiles the examples of docs/src/how-to/deferred.md.
#[cfg(all(doctest, feature = "flow", feature = "postgres"))]
#[doc = include_str!("../../../docs/src/how-to/deferred.md")]
struct DeferredPage;

/// Compiles the examples of docs/src/how-to/bulk.md.
#[cfg(all(doctest, feature = "flow", feature = "postgres"))]
#[doc = include_str!("../../../docs/src/how-to/bulk.md")]
struct BulkPage;

/// Compiles the examples of docs/src/how-to/reconcile.md.
#[cfg(all(doctest, feature = "http-evidence", feature = "postgres"))]
#[doc = include_str!("../../../docs/src/how-to/reconcile.md")]
struct ReconcilePage;

/// Compiles the examples of docs/src/how-to/phases.md.
#[cfg(all(doctest, feature = "flow", feature = "sqlite", feature = "postgres"))]
#[doc = include_str!("../../../docs/src/how-to/phases.md")]
struct PhasesPage;

/// Compiles the example of docs/src/how-to/mount-admin.md.
#[cfg(all(doctest, feature = "admin", feature = "sqlite"))]
#[doc = include_str!("../../../docs/src/how-to/mount-admin.md")]
struct MountPage;

/// Compiles the examples of docs/src/how-to/encryption.md.
#[cfg(all(doctest, feature = "encryption", feature = "sqlite"))]
#[doc = include_str!("../../../docs/src/how-to/encryption.md")]
struct EncryptionPage;

/// Compiles the example of docs/src/how-to/write-a-store.md.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/how-to/write-a-store.md")]
struct StorePage;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
