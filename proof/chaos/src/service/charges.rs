//! Charges: a command commits its order and a message and answers 202; delivery of the message settles it. All other
//! messages go to their receiver.

use std::sync::Arc;

use async_trait::async_trait;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use semel::flow::outbox::{HttpSink, Message, Sink, Tried};
use semel::flow::{Answered, Idempotent};
use serde_json::{Value, json};

use super::Shared;
use super::bank::Entry;
use super::provider::{Charge, Word, charge};
use crate::settings::{CHARGE, DEFERRAL, ORDERED};

pub(super) async fn create(
    State(shared): State<Arc<Shared>>,
    Idempotent(command): Idempotent,
    Json(asked): Json<Value>,
) -> Answered {
    let entry = Entry::new(Some(ORDERED), &asked, Some(CHARGE));
    let end = shared.moods.of_item(asked["canary"].as_str().unwrap_or_default());
    shared.bank.transact(&command, entry, end, Some(DEFERRAL)).await
}

/// Sink that delivers messages.
pub(super) struct Delivery {
    pub(super) shared: Arc<Shared>,
    pub(super) receiver: HttpSink,
}

impl Delivery {
    async fn charge(&self, message: &Message, asked: &Value) -> Tried {
        let operation_id = message.operation_id.to_string();
        let key = message.event_id.as_str();
        let wanted = Charge { key, operation_id: &operation_id, part: CHARGE, deduplicated: true, asked };
        let (status, effect) = match charge(self.shared.provider, &wanted).await {
            Word::Charged(effect) => (StatusCode::CREATED, Some(effect)),
            Word::Declined => (StatusCode::PAYMENT_REQUIRED, None),
            Word::Refused => return Tried::Refused { why: "the provider will never take it".to_owned() },
            Word::NotExecuted(why) | Word::Unsure(why) => return Tried::Failed { why, retry_after: None },
        };
        let reply = json!({ "effect": effect, "canary": asked["canary"] });
        let end = self.shared.moods.of_phase(key);
        self.shared.bank.settle(message.operation_id, reply, status, end).await.tried(effect)
    }
}

#[async_trait]
impl Sink for Delivery {
    async fn deliver(&self, message: &Message) -> Tried {
        if message.kind != CHARGE {
            return self.receiver.deliver(message).await;
        }
        match serde_json::from_slice(&message.payload) {
            Ok(asked) => self.charge(message, &asked).await,
            Err(error) => Tried::Refused { why: error.to_string() },
        }
    }
}
