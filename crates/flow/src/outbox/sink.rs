//! Where messages go.

use async_trait::async_trait;
use semel_core::outbox::{Message, Tried};

/// Brings messages to their receiver.
///
/// The same message may come more than once, always with the same [`event_id`](Message::event_id): pass that on, as the
/// key that the receiver deduplicates on. A call that takes longer than the worker allows is dropped and counts as
/// failed; one that panics is tried again when its lease ends.
#[async_trait]
pub trait Sink: Send + Sync + 'static {
    /// Tries once to bring a message to its receiver. Says [`Tried::Accepted`] only if the receiver has it for good.
    async fn deliver(&self, message: &Message) -> Tried;
}
