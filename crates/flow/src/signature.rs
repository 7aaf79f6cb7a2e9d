//! Signatures of sent and received messages: HMAC-SHA256, in hex.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Minimum length of a signing key.
pub(crate) const MIN_KEY: usize = 16;

fn mac(key: &[u8], pieces: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of every length");
    pieces.iter().for_each(|piece| mac.update(piece));
    mac
}

/// Returns the signature of the concatenated pieces.
#[cfg(feature = "http-sink")]
pub(crate) fn sign(key: &[u8], pieces: &[&[u8]]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(64);
    for byte in mac(key, pieces).finalize().into_bytes() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Returns true if `signature` is that of these pieces under one of the keys. The comparison takes constant time.
#[cfg(feature = "http-evidence")]
pub(crate) fn is_signed(keys: &[Vec<u8>], pieces: &[&[u8]], signature: &str) -> bool {
    let Some(signature) = from_hex(signature) else { return false };
    // Every key is tried, so that the time does not depend on the match.
    keys.iter().fold(false, |signed, key| mac(key, pieces).verify_slice(&signature).is_ok() | signed)
}

#[cfg(feature = "http-evidence")]
fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() || pairs.len() != 32 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}
