//! API keys: who may call, without the keys themselves.
//!
//! A key is 256 random bits, shown once. Only its HMAC is kept, under a secret drawn once for the store, so that a
//! copy of the table lets nobody in.

use hmac::{Hmac, KeyInit, Mac};
use semel_core::{Principal, Timestamp, ids};
use sha2::Sha256;

/// What every key begins with, so that scanners recognise one that leaked.
pub const KEY_PREFIX: &str = "semel_";

/// A key as an operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// What an operator calls it.
    pub id: String,
    /// Who calls with it.
    pub principal: Principal,
    /// Since when.
    pub created_at: Timestamp,
    /// Until when, if it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// The HMAC of a key.
pub type KeyMac = [u8; 32];

/// A key that was just drawn.
pub(crate) struct NewApiKey {
    pub(crate) id: String,
    pub(crate) text: String,
}

impl NewApiKey {
    pub(crate) fn draw() -> NewApiKey {
        NewApiKey {
            id: format!("key_{}", &hex(&ids::secret())[..12]),
            text: format!("{KEY_PREFIX}{}", hex(&ids::secret())),
        }
    }
}

/// The HMAC of a key under the store's secret.
pub fn key_mac(secret: &[u8; 32], key: &str) -> KeyMac {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(key.as_bytes());
    mac.finalize().into_bytes().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
