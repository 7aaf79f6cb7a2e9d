//! The tower layer of Semel: the commands of any HTTP service become safe to retry.
//!
//! ```text
//! request ─ read ─ recall ─ claim ─┬─ execute ─ settle ─ answer
//!                                  ├─ wait ─ answer
//!                                  └─ answer: replay, refusal
//! ```
//!
//! `service.rs` is that picture in code; start there. Each stage has a file of its name, and imports go one way: a stage uses
//! shared state and the stages that it ends in, never the ones before it. A service author starts at [`IdempotencyLayer`].

mod acquired;
mod admission;
mod answer;
mod ask;
mod body;
mod builder;
mod busy;
mod cache;
mod claim;
mod client_deadline;
mod command;
mod deadline;
mod delivery;
mod execute;
mod executed;
mod execution;
#[cfg(feature = "axum")]
mod extract;
mod fetch;
mod handler;
mod holds;
mod identity;
mod late;
mod layer;
mod local;
mod maintenance;
mod observe;
mod operation;
mod operation_labels;
mod operations;
mod persist;
mod quotas;
mod read;
mod reaped;
mod recall;
mod resource;
mod routes;
mod running;
mod screened;
mod service;
mod settle;
mod settlement;
mod shared;
mod shares;
mod spans;
mod store_return;
mod wait;
mod whole;
mod witness;
mod worker;

pub use answer::{AnswerDecision, AnswerFacts, Refetch, as_grpc, is_grpc, problem};
pub use body::{Body, BoxError};
pub use builder::Builder;
pub use busy::{BusyCallers, BusyMinutes, CallerCount, CallerRanking, CallerRankings, HotKey};
pub use delivery::Delivery;
pub use execution::{CloseDelimited, Execution, NotExecuted};
#[cfg(feature = "axum")]
pub use extract::{CurrentExecution, Idempotent, NoExecution, NotRead};
pub use holds::HoldBoard;
pub use identity::{Authenticated, Denied};
pub use layer::{IdempotencyLayer, Shutdown};
pub use maintenance::{Maintained, Maintenance};
pub use operation::{ConfigError, Operation};
pub use operations::LayerOperation;
pub use screened::ScreenedBody;
pub use semel_core::Outcome;
pub use service::Idempotency;
pub use shares::{Share, ShareHolder, Shares};
pub use whole::{IncompleteBody, WholeBody};
pub use witness::{StoreWitness, WitnessError};
pub use worker::{Stop, Worker, WorkerOptions};
