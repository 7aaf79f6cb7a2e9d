//! Messages that commit with a command, with their payloads opened for workers and operators. The
//! transactions that push them seal them. A payload that does not open stays in its envelope: a worker does
//! not send it, and retries as if the receiver were away.

use std::time::Duration;

use async_trait::async_trait;
use semel_core::outbox::{
    Depth, Intervention, Message, MessageFence, MessageFilter, MessageWrite, Next, Outbox, Take,
};
use semel_core::{Note, StoreError, Timestamp};

use super::store::SealedStore;

impl<S: ?Sized> SealedStore<S> {
    fn open_message(&self, message: &mut Message) {
        if let Err(why) = self.vault.open_message(message) {
            tracing::error!(event_id = message.event_id, %why, "the payload of a message stays sealed");
        }
    }
}

#[async_trait]
impl<S: Outbox + ?Sized> Outbox for SealedStore<S> {
    async fn take(&self, take: &Take) -> Result<Vec<Message>, StoreError> {
        let mut taken = self.inner.take(take).await?;
        taken.iter_mut().for_each(|message| self.open_message(message));
        Ok(taken)
    }

    async fn accept(&self, fence: &MessageFence, reference: &str) -> Result<bool, StoreError> {
        self.inner.accept(fence, reference).await
    }

    async fn settle(
        &self,
        fence: &MessageFence,
        next: Next,
        why: Option<&str>,
    ) -> Result<MessageWrite, StoreError> {
        self.inner.settle(fence, next, why).await
    }

    async fn message(&self, event_id: &str) -> Result<(Option<Message>, Timestamp), StoreError> {
        let (mut found, now) = self.inner.message(event_id).await?;
        found.iter_mut().for_each(|message| self.open_message(message));
        Ok((found, now))
    }

    /// Lists messages. Lists leave payloads out.
    async fn messages(&self, filter: &MessageFilter) -> Result<Vec<Message>, StoreError> {
        self.inner.messages(filter).await
    }

    async fn intervene(
        &self,
        event_id: &str,
        intervention: Intervention,
        note: &Note,
    ) -> Result<bool, StoreError> {
        self.inner.intervene(event_id, intervention, note).await
    }

    async fn reap_messages(&self, retention: Duration, limit: usize) -> Result<usize, StoreError> {
        self.inner.reap_messages(retention, limit).await
    }

    async fn depth(&self) -> Result<Depth, StoreError> {
        self.inner.depth().await
    }
}
