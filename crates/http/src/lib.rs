//! The tower layer of Semel: the commands of any HTTP service become safe to retry.
//!
//! ```text
//! request ─ read ─ look in memory ─ claim ─┬─ execute ─ settle ─ answer
//!           who, key, what                 ├─ wait ─ replay
//!                                          └─ replay, or refuse
//! ```
//!
//! `service.rs` is that picture in code; start there. [`IdempotencyLayer`] is how a service author uses it.

mod answer;
mod body;
mod cache;
mod command;
mod delivery;
mod execute;
mod execution;
#[cfg(feature = "axum")]
mod extract;
mod fetch;
mod identity;
mod late;
mod layer;
mod local;
mod maintenance;
mod observe;
mod operations;
mod quotas;
mod request;
mod resource;
mod routes;
mod running;
mod screened;
mod service;
mod settle;
mod shares;
mod shortfall;
mod whole;
mod worker;

pub use answer::{AnswerDecision, AnswerFacts, Refetch, as_grpc, is_grpc, problem};
pub use body::{Body, BoxError};
pub use delivery::Delivery;
pub use execution::{CloseDelimited, Execution, NotExecuted};
#[cfg(feature = "axum")]
pub use extract::{CurrentExecution, Idempotent, NoExecution, NotRead};
pub use identity::Authenticated;
pub use layer::{Builder, Denied, IdempotencyLayer, Shutdown};
pub use maintenance::Maintenance;
pub use operations::{ConfigError, Operation, is_command};
pub use screened::ScreenedBody;
pub use semel_core::Outcome;
pub use service::Idempotency;
pub use shares::{Holder, Share, Shares};
pub use whole::{IncompleteBody, WholeBody};
pub use worker::{Stop, Worker, WorkerOptions};
