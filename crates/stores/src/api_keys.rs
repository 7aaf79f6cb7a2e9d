//! API keys of callers, without the keys themselves.
//!
//! A key is 256 random bits, shown once. The store keeps only its HMAC, under a secret drawn once for the
//! store, so that a copy of the table grants no access.

use hmac::{Hmac, KeyInit, Mac};
use semel_core::{Principal, Timestamp, ids};
use sha2::Sha256;

/// Prefix of every key, so that scanners recognise a leaked one.
pub const KEY_PREFIX: &str = "semel_";

/// A key as shown to an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// Id of the key for operators.
    pub id: String,
    /// Principal that calls with the key.
    pub principal: Principal,
    /// Time of creation.
    pub created_at: Timestamp,
    /// Time of revocation, if it was revoked.
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

/// Returns the HMAC of a key under the store's secret.
pub fn key_mac(secret: &[u8; 32], key: &str) -> KeyMac {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(key.as_bytes());
    mac.finalize().into_bytes().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
