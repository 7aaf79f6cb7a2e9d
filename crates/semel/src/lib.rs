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
//!   request's extensions, and may say what its answer means with an [`Outcome`].
//! - [`SqliteStore`] and [`MemoryStore`], and `PostgresStore` with the feature `postgres`: where records are kept. [`Store`] is the contract of a store.
//! - [`core`]: the protocol itself, pure; [`core::transition()`] is where every decision is taken.

pub use semel_core as core;
pub use semel_core::policy;
pub use semel_core::{Policy, Principal, Store};
pub use semel_http::{
    Body, Builder, ConfigError, Denied, Execution, Idempotency, IdempotencyLayer, Maintenance, NotExecuted,
    Operation, Outcome, Shutdown,
};
pub use semel_stores::MemoryStore;
#[cfg(feature = "postgres")]
pub use semel_stores::postgres::{self, PostgresStore};
#[cfg(feature = "sqlite")]
pub use semel_stores::sqlite::{self, SqliteStore};

/// The README's examples, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
