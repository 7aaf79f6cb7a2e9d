//! Semel makes HTTP commands safe to retry: same intent, same operation, same payload, same key, and there is
//! one durable outcome, replayable, with no second side effect.
//!
//! ```
//! use std::sync::Arc;
//! use axum::{Router, routing::post};
//! use semel::{Denied, IdempotencyLayer, Principal, SqliteStore};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = std::env::temp_dir().join(format!("semel-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder)?;
//! # let path = folder.join("semel.db");
//! # let path = path.to_str().ok_or("the path is text")?;
//! let store = Arc::new(SqliteStore::open(path)?);
//! let idempotency = IdempotencyLayer::builder(store)
//!     // Who is asking: from your authentication. A key belongs to one caller.
//!     .identify(|request| {
//!         let user = request.headers.get("x-user").and_then(|value| value.to_str().ok());
//!         Principal::new("acme", user.unwrap_or_default()).map_err(|_| Denied::unauthenticated())
//!     })
//!     .build()?;
//!
//! let app: Router = Router::new()
//!     .route("/payments", post(|| async { "charged once" }))
//!     .layer(idempotency);
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok(())
//! # }
//! ```
//!
//! A service whose authentication puts a type of its own into the request's extensions implements [`Authenticated`] for it, and
//! calls `identify_extension::<User>()` instead:
//!
//! ```
//! use semel::{Authenticated, Denied, Principal};
//!
//! #[derive(Clone)]
//! struct User {
//!     company: String,
//!     id: u64,
//! }
//!
//! impl Authenticated for User {
//!     fn principal(&self) -> Result<Principal, Denied> {
//!         Principal::new(&self.company, &self.id.to_string()).map_err(|_| Denied::unauthenticated())
//!     }
//! }
//!
//! # fn example(store: std::sync::Arc<dyn semel::Store>) -> Result<(), semel::ConfigError> {
//! let idempotency = semel::IdempotencyLayer::builder(store).identify_extension::<User>().build()?;
//! # Ok(())
//! # }
//! ```
//!
//! A handler can say more than its status does, and ask whether the command is still its own to run:
//!
//! ```
//! use axum::Extension;
//! use axum::http::StatusCode;
//! use axum::response::{IntoResponse, Response};
//! use semel::{Execution, Outcome};
//!
//! async fn charge(Extension(execution): Extension<Execution>) -> Response {
//!     // Right before an effect: whose command is it now?
//!     if execution.check_lease().is_err() {
//!         return (StatusCode::SERVICE_UNAVAILABLE, Extension(Outcome::NotExecuted)).into_response();
//!     }
//!     let key = execution.downstream_key("charge"); // the same in every attempt
//!     format!("charged under {key}").into_response()
//! }
//! ```
//!
//! - [`Maintenance`]: forgets what has expired, in the background. Run it once for each store.
//! - [`IdempotencyLayer`]: the layer, its operations and policies. A handler finds an [`Execution`] in its
//!   request's extensions, and may say what its answer means with an [`Outcome`]. With the feature `flow`,
//!   `flow::CurrentExecution` extracts it.
//! - [`open`] opens a store by its location; [`SqliteStore`], [`MemoryStore`] and, with the feature `postgres`, `PostgresStore`
//!   have options of their own. [`Store`] is the contract of a store.
//! - `flow`, with the feature of that name: `transact`, which commits the claim, your own writes, messages to others and the
//!   response in one transaction of your own database; `flow::phases`, for commands of several steps; and `flow::reconcile`, which
//!   finds out what became of commands whose outcome is unknown.
//! - `encryption`, with the feature of that name: stored responses and requests, sealed under keys of yours.
//! - [`core`]: the protocol itself, pure; [`core::transition()`] is where every decision is taken.

pub use semel_core as core;
pub use semel_core::policy;
pub use semel_core::quota;
pub use semel_core::{Backend, Policy, Principal, Store, Tier};
pub use semel_http::{
    Authenticated, Body, Builder, ConfigError, Denied, Execution, Idempotency, IdempotencyLayer, Maintenance,
    NotExecuted, Operation, Outcome, Refetch, Shutdown, Stop, Worker, WorkerOptions,
};
#[cfg(feature = "encryption")]
pub use semel_stores::encryption;
#[cfg(feature = "postgres")]
pub use semel_stores::postgres::{self, PostgresStore};
#[cfg(feature = "sqlite")]
pub use semel_stores::sqlite::{self, SqliteStore};
pub use semel_stores::{MemoryStore, OpenError, open};

/// Commands in one transaction of the service's own database: the claim, the service's own writes, the rows of its outbox
/// and the stored response commit together, or nothing happened.
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
    pub use semel_flow::*;
    pub use semel_http::{CurrentExecution, Idempotent, NoExecution, NotRead};
}

/// The examples of docs/src/start/rust-layer.md, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/start/rust-layer.md")]
struct LayerPage;

/// The README's examples, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
