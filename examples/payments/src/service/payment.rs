//! Orders, payments and charges: their stored form, and the answers to clients.

use axum::http::StatusCode;
use axum::http::header::{HeaderValue, LOCATION};
use semel::flow::{Failure, Reply};
use semel::protocol::OperationId;
use serde::{Deserialize, Serialize};

/// Maximum amount, in the currency's smallest unit, and maximum length of texts, in bytes.
const MAX_AMOUNT: i64 = 99_999_999;
const MAX_REFERENCE: usize = 200;
const MAX_CARD: usize = 64;

/// Number of a card's last digits that may be stored and shown.
const SHOWN_DIGITS: usize = 4;

/// Order of a client.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Order {
    pub(super) amount: i64,
    pub(super) currency: String,
    /// Card number for the provider. A real service never sees it: its page sends the number to the provider, and the
    /// service gets a token.
    pub(super) card: String,
    /// The client's own name for the purchase. It is paid at most once.
    pub(super) reference: Option<String>,
}

/// Order as an item of a batch.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Item {
    #[serde(rename = "clientItemId")]
    _client_item_id: String,
    amount: i64,
    currency: String,
    card: String,
    reference: Option<String>,
}

impl Order {
    pub(super) fn read(body: &[u8]) -> Result<Order, String> {
        Order::checked(serde_json::from_slice(body).map_err(|error| format!("the body: {error}"))?)
    }

    /// Parses an item of a batch, which has a name besides.
    pub(super) fn read_item(body: &[u8]) -> Result<Order, String> {
        let item: Item = serde_json::from_slice(body).map_err(|error| format!("the item: {error}"))?;
        let Item { amount, currency, card, reference, .. } = item;
        Order::checked(Order { amount, currency, card, reference })
    }

    pub(super) fn checked(order: Order) -> Result<Order, String> {
        if !(1..=MAX_AMOUNT).contains(&order.amount) {
            return Err(format!("`amount` is in cents or the like, from 1 to {MAX_AMOUNT}"));
        }
        if order.currency.len() != 3 || !order.currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err("`currency` is three capital letters, such as EUR".to_owned());
        }
        let is_card = |card: &str| card.len() <= MAX_CARD && card.bytes().all(|byte| byte.is_ascii_digit());
        if order.card.is_empty() || !is_card(&order.card) {
            return Err(format!("`card` is 1 to {MAX_CARD} digits"));
        }
        let is_reference = |reference: &String| (1..=MAX_REFERENCE).contains(&reference.len());
        if !order.reference.as_ref().is_none_or(is_reference) {
            return Err(format!("`reference` has between 1 and {MAX_REFERENCE} bytes, or is left out"));
        }
        Ok(order)
    }

    /// Returns the last digits of the card's number.
    pub(super) fn shown_card(&self) -> &str {
        &self.card[self.card.len().saturating_sub(SHOWN_DIGITS)..]
    }

    /// Returns the message with all that the worker needs to charge.
    pub(super) fn message(&self) -> Result<Vec<u8>, Failure> {
        let Order { amount, currency, card, .. } = self.clone();
        Ok(serde_json::to_vec(&ChargeMessage { amount, currency, card })?)
    }
}

/// Message that requests a charge.
#[derive(Clone, Deserialize, Serialize)]
pub(super) struct ChargeMessage {
    pub(super) amount: i64,
    pub(super) currency: String,
    pub(super) card: String,
}

/// A payment as it is stored and shown.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Payment {
    pub(super) id: String,
    pub(super) amount: i64,
    pub(super) currency: String,
    /// Last digits of the card's number.
    pub(super) card: String,
    pub(super) reference: Option<String>,
    /// `pending`, `captured` or `declined`.
    pub(super) status: String,
    /// The provider's id of the charge.
    pub(super) charge: Option<String>,
    pub(super) created_at: String,
}

/// Returns the id of the payment that a command makes: the same in every attempt.
pub(super) fn payment_id(command: OperationId) -> String {
    format!("pay_{command}")
}

impl Payment {
    /// Returns the preliminary answer: the payment waits to be charged.
    pub(super) fn accepted(&self) -> Result<Reply, Failure> {
        Reply::json(StatusCode::ACCEPTED, self)
    }

    /// Returns the final answer, which retries get.
    pub(super) fn settled(&self) -> Result<Reply, Failure> {
        if self.status != "captured" {
            return Reply::json(StatusCode::PAYMENT_REQUIRED, self);
        }
        let location = HeaderValue::from_str(&format!("/payments/{}", self.id))?;
        Ok(Reply::json(StatusCode::CREATED, self)?.header(LOCATION, location))
    }
}

/// The provider's answer about a charge.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Charge {
    pub(super) id: String,
    /// The command that it was charged for.
    pub(super) reference: String,
    pub(super) amount: i64,
    pub(super) currency: String,
    pub(super) status: Status,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Captured,
    Declined,
}

impl Status {
    pub(super) fn name(self) -> &'static str {
        match self {
            Status::Captured => "captured",
            Status::Declined => "declined",
        }
    }
}
