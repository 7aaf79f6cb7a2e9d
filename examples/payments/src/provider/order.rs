//! Orders of clients, parsed strictly: a provider that guesses charges the wrong amount.

use serde::Deserialize;
use sha2::{Digest, Sha256};

/// Test card that always declines.
const DECLINED_CARD: &str = "4000000000000002";

/// Maximum amount, in the currency's smallest unit, and maximum length of texts, in bytes.
const MAX_AMOUNT: i64 = 99_999_999;
const MAX_REFERENCE: usize = 200;
const MAX_CARD: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Order {
    pub(super) reference: String,
    pub(super) amount: i64,
    pub(super) currency: String,
    pub(super) card: String,
}

impl Order {
    pub(super) fn read(body: &[u8]) -> Result<Order, String> {
        let order: Order = serde_json::from_slice(body).map_err(|error| format!("the body: {error}"))?;
        if order.reference.is_empty() || order.reference.len() > MAX_REFERENCE {
            return Err(format!("`reference` has between 1 and {MAX_REFERENCE} bytes"));
        }
        if !(1..=MAX_AMOUNT).contains(&order.amount) {
            return Err(format!("`amount` is in cents or the like, from 1 to {MAX_AMOUNT}"));
        }
        if order.currency.len() != 3 || !order.currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err("`currency` is three capital letters, such as EUR".to_owned());
        }
        if order.card.is_empty() || order.card.len() > MAX_CARD {
            return Err(format!("`card` has between 1 and {MAX_CARD} bytes"));
        }
        Ok(order)
    }

    pub(super) fn is_declined_by_card(&self) -> bool {
        self.card == DECLINED_CARD
    }

    /// Returns the hash that tells two orders under one key apart. It covers the card, and does not reveal it.
    pub(super) fn fingerprint(&self) -> [u8; 32] {
        let text = serde_json::json!([self.reference, self.amount, self.currency, self.card]).to_string();
        Sha256::digest(text.as_bytes()).into()
    }
}
