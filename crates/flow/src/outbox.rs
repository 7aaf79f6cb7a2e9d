//! Outbox: messages that commit with their command as rows in its transaction. An [`OutboxWorker`] delivers them later through
//! a [`Sink`].
//!
//! ```text
//! take (lease, epoch) ─ send ─ store the receiver's reference ─ mark as delivered
//!                        ├─ failed: retry with backoff ─ dead after the last try
//!                        └─ refused: dead
//! ```
//!
//! **At least once, under a stable id.** If a worker dies after the receiver has the message and before the delivery is
//! stored, the next worker sends the message again under the same event id. Receivers deduplicate on it. Only
//! [`semel_core::outbox::after_try`] decides a message's next state.
//!
//! **In order, for each command.** A message is sent only after the earlier messages of its command are delivered, or
//! were discarded by an operator. A dead message blocks those behind it: delivery out of order is worse than late
//! delivery. Messages of different commands do not wait for one another.

mod delivery;
mod event_id;
#[cfg(feature = "http-sink")]
pub mod http;
mod metrics;
mod sink;
mod worker;

pub(crate) use delivery::chance;
pub use event_id::{EventId, InvalidKind};
#[cfg(feature = "http-sink")]
pub use http::{HttpSink, HttpSinkError};
pub use metrics::begin_metrics;
pub use semel_core::outbox::{Message, MessageState, Outbox, RetryTerms, Tried};
pub use sink::Sink;
pub use worker::{Drained, OutboxWorker, OutboxWorkerOptions, StopHandle, Wake};
