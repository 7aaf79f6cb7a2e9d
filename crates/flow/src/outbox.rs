//! Messages to others that commit with the command: written as rows in its transaction, delivered later by a [`Worker`]
//! through a [`Sink`].
//!
//! ```text
//! take (lease, epoch) ─ send ─ write down the receiver's reference ─ mark as delivered
//!                        ├─ failed: wait, longer each time ─ in the end dead
//!                        └─ refused: dead
//! ```
//!
//! **At least once, under a stable id.** A worker that dies after the receiver has the message and before that is written
//! down leaves it to the next one, which sends it again under the same event id. Receivers deduplicate on it. What
//! becomes of a message after a try is decided in [`semel_core::outbox::after_try`] and nowhere else.
//!
//! **In order, for each command.** A message goes out only after those that its command sent before it are delivered, or
//! were discarded by an operator. A dead one holds back those behind it: what comes out of order is worse than what
//! comes late. Messages of different commands do not wait for one another.

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
pub use semel_core::outbox::{Message, MessageState, Outbox, RetryTerms, Tried};
pub use sink::Sink;
pub use worker::{Drained, Stop, Wake, Worker, WorkerOptions};
