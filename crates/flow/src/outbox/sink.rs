//! The trait for destinations of messages.

use async_trait::async_trait;
use semel_core::outbox::{Message, Tried};

/// Delivers messages to their receiver.
///
/// A message may come more than once, always with the same [`event_id`](Message::event_id): pass it on as the
/// receiver's deduplication key. A call that exceeds the worker's timeout is dropped and counts as failed; a call that
/// panics is retried when its lease expires.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// Tries once to deliver a message. Returns [`Tried::Accepted`] only if the receiver has stored it durably.
    async fn deliver(&self, message: &Message) -> Tried;
}
