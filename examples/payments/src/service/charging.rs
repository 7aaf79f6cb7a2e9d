//! Sink of the worker: charges payments and stores the result, and sends receipts.
//!
//! It may be killed at any point and start again. The provider deduplicates on the message's id, so the card is charged
//! once; the settlement is one transaction with the record, so it is written once.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use semel::flow::outbox::Sink;
use semel::protocol::outbox::{Message, Tried};

use super::book::{Book, CHARGE};
use super::payment::ChargeMessage;
use super::provider::{Address, Trouble};
use super::rides::RECEIPT;
use super::stand::{self, Point};

pub(super) struct Charging {
    book: Arc<dyn Book>,
    provider: Address,
    timeout: Duration,
}

impl Charging {
    pub(super) fn new(book: Arc<dyn Book>, provider: Address, timeout: Duration) -> Charging {
        Charging { book, provider, timeout }
    }

    async fn charge(&self, message: &Message, order: &ChargeMessage) -> Tried {
        stand::at(Point::BeforeCharge);
        let charging = self.provider.charge(&message.event_id, message.operation_id, order);
        let charged = tokio::time::timeout(self.timeout, charging).await;
        stand::at(Point::AfterCharge);
        match charged {
            Ok(Ok(charge)) => {
                let reference = charge.id.clone();
                let settled = self.book.settle(message.operation_id, charge, None).await;
                stand::at(Point::AfterSettlement);
                settled.tried(Some(reference))
            }
            Ok(Err(Trouble::Again { why, retry_after })) => Tried::Failed { why, retry_after },
            // The payment is unknown from here on, and an operator looks at it.
            Ok(Err(Trouble::Never { why })) => Tried::Refused { why },
            Err(_) => Tried::Failed { why: "the provider did not answer in time".into(), retry_after: None },
        }
    }
}

#[async_trait]
impl Sink for Charging {
    async fn deliver(&self, message: &Message) -> Tried {
        match message.kind.as_str() {
            CHARGE => match serde_json::from_slice(&message.payload) {
                Ok(order) => self.charge(message, &order).await,
                Err(error) => Tried::Refused { why: format!("the message cannot be read: {error}") },
            },
            RECEIPT => {
                let ride = String::from_utf8_lossy(&message.payload).into_owned();
                match self.book.send_receipt(message.event_id.clone(), ride).await {
                    Ok(()) => Tried::Accepted { reference: None },
                    Err(unavailable) => Tried::Failed { why: unavailable.0, retry_after: None },
                }
            }
            other => Tried::Refused { why: format!("nobody knows what to do with {other:?}") },
        }
    }
}
