//! One try to deliver one message: send it, store the receiver's reference, mark the message.

use std::sync::Arc;
use std::time::{Duration, Instant};

use semel_core::envelope::is_envelope;
use semel_core::outbox::{
    Message, MessageFence, MessageState, MessageWrite, Next, Outbox, RetryTerms, Tried, after_try,
};
use semel_core::text::steers;
use semel_core::{Ids, RandomIds, Reason, StoreError};
use semel_faults::{Point, reached};

use super::metrics::Topics;
use super::sink::Sink;
use crate::unknown;

/// Maximum length of stored text from outside, in characters.
const MAX_TEXT: usize = 500;

/// Maximum number of tries of a write that the store does not answer.
const MAX_WRITES: u32 = 5;

/// Parts that every try uses.
pub(super) struct MessageDelivery {
    pub(super) outbox: Arc<dyn Outbox>,
    pub(super) sink: Arc<dyn Sink>,
    pub(super) terms: RetryTerms,
    pub(super) timeout: Duration,
    pub(super) topics: Topics,
}

impl MessageDelivery {
    /// Tries to deliver a message that this worker has taken. Sends nothing after `until`: another worker may have the
    /// message by then.
    pub(super) async fn attempt(&self, message: &Message, until: Instant) {
        reached(Point::MessageTaken).await;
        self.try_it(message, until).await;
        reached(Point::MessageLeft).await;
    }

    async fn try_it(&self, message: &Message, until: Instant) {
        let Some(fence) = message.fence() else { return };
        let tried = self.send(message, until).await;
        if let Tried::Accepted { reference: Some(reference) } = &tried
            && message.provider_reference.is_none()
        {
            reached(Point::MessageAccepted).await;
            let reference = bounded(reference);
            match self.write(|| self.outbox.accept(&fence, &reference)).await {
                Some(true) => {}
                // The worker that took it since sends it again, under the same id.
                Some(false) => return late(&fence),
                None => return,
            }
            reached(Point::ReferenceWritten).await;
        }
        let next = after_try(message.attempts, &tried, &self.terms, chance());
        let why = match &tried {
            Tried::Accepted { .. } => None,
            Tried::Failed { why, .. } | Tried::Refused { why } => Some(bounded(why)),
            Tried::Exhausted => Some("no worker lived to tell what came of its last try".to_owned()),
        };
        match self.write(|| self.outbox.settle(&fence, next, why.as_deref())).await {
            Some(MessageWrite::Written { made_unknown }) => {
                if let Some(operation) = made_unknown {
                    unknown::count(&operation, Reason::MessageDead);
                }
                self.tell(message, next);
            }
            // The lost answer would have told what became of the command: it is not counted then.
            Some(MessageWrite::Fenced) if self.is_settled(&fence, next).await => self.tell(message, next),
            Some(MessageWrite::Fenced) => late(&fence),
            None => {}
        }
    }

    /// Returns true if an earlier try of this write succeeded and its answer was lost. No other worker writes under
    /// this epoch.
    async fn is_settled(&self, fence: &MessageFence, next: Next) -> bool {
        let found = match self.outbox.message(&fence.event_id).await {
            Ok((found, _)) => found.filter(|message| message.epoch == fence.epoch),
            Err(error) => {
                tracing::warn!(%error, event_id = fence.event_id, "what became of a message cannot be read");
                None
            }
        };
        found.is_some_and(|message| match next {
            Next::Delivered => message.state == MessageState::Delivered,
            Next::Retry { .. } => message.state == MessageState::Pending && message.token.is_none(),
            Next::Dead => message.state == MessageState::Dead,
        })
    }

    async fn send(&self, message: &Message, until: Instant) -> Tried {
        if let Some(reference) = &message.provider_reference {
            // An earlier worker stored the receiver's reference, and died.
            return Tried::Accepted { reference: Some(reference.clone()) };
        }
        if message.attempts > self.terms.max_attempts {
            return Tried::Exhausted;
        }
        let failed = |why: &str| Tried::Failed { why: why.to_owned(), retry_after: None };
        if is_envelope(&message.payload) {
            return failed("its payload is encrypted, and does not open here: it was not sent");
        }
        let allowed = until.saturating_duration_since(Instant::now()).min(self.timeout);
        if allowed.is_zero() {
            return failed("its lease was too short: it was not sent");
        }
        let sent = tokio::time::timeout(allowed, self.sink.deliver(message)).await;
        sent.unwrap_or_else(|_| failed("no answer in time"))
    }

    /// Writes, and retries if the store does not answer: the fence makes a repeated write harmless.
    async fn write<T, R>(&self, write: impl Fn() -> R) -> Option<T>
    where
        R: Future<Output = Result<T, StoreError>>,
    {
        for tries in 0..MAX_WRITES {
            match write().await {
                Ok(written) => return Some(written),
                Err(error) => tracing::warn!(%error, "what came of a message cannot be written down"),
            }
            tokio::time::sleep(Duration::from_millis(50 << tries)).await;
        }
        tracing::error!("what came of a message was not written down: it is sent again when its lease ends");
        None
    }

    fn tell(&self, message: &Message, next: Next) {
        let (event_id, attempts) = (&message.event_id, message.attempts);
        match next {
            Next::Delivered => {
                self.topics.delivered(&message.kind);
                tracing::debug!(event_id, attempts, "a message was delivered");
            }
            Next::Retry { after } => {
                tracing::info!(
                    event_id,
                    attempts,
                    ?after,
                    "a message is tried again: `semel outbox show` says why"
                );
            }
            Next::Dead => {
                self.topics.dead(&message.kind);
                tracing::error!(event_id, attempts, "a message is dead: see `semel outbox show`");
            }
        }
    }
}

fn late(fence: &MessageFence) {
    tracing::warn!(event_id = fence.event_id, "a message was taken by another worker: this one was too late");
}

/// Returns a random `u32`.
pub(crate) fn chance() -> u32 {
    let [a, b, c, d, ..] = *RandomIds.attempt_token().as_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Returns the beginning of a text, without characters that would corrupt a log or a database.
fn bounded(text: &str) -> String {
    text.chars().map(|c| if steers(c) { ' ' } else { c }).take(MAX_TEXT).collect()
}
