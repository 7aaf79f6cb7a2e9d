//! Encryption keys, fetched from their configured sources once, when a store is opened.
//!
//! Invariant: messages reveal only the id, the setting and the length of a key.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, ensure};
use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use semel_core::Plaintext;
use semel_core::reseal::KeyUse;
use semel_gateway::secret::{self, MAX_BYTES};
use semel_settings::{Encryption, EncryptionKey};
use semel_stores::encryption::AesVault;

/// Length of a key in bytes.
const KEY_BYTES: usize = 32;

/// Fetches the keys, and returns the vault that uses them.
pub async fn vault(encryption: &Encryption) -> anyhow::Result<Arc<AesVault>> {
    let mut keys = Vec::with_capacity(encryption.keys.len());
    for key in &encryption.keys {
        keys.push((key.id.clone(), fetch(key).await.with_context(|| format!("`{}`", key.setting()))?));
    }
    Ok(Arc::new(AesVault::new(&encryption.current, keys)?.plaintext(encryption.plaintext)))
}

/// Number of stored values of all kinds under each key; `None` is plain text.
pub type CountsByKey = BTreeMap<Option<String>, u64>;

/// Counts the stored values under each key.
pub fn counted(uses: &[KeyUse]) -> CountsByKey {
    let mut counted = CountsByKey::new();
    for KeyUse { key_id, count, .. } in uses {
        *counted.entry(key_id.clone()).or_default() += count;
    }
    counted
}

/// Returns the faults in the keys of stored values, as sentences: keys that are not configured, and plain
/// text that `encryption.plaintext` refuses.
pub fn doubts(encryption: Option<&Encryption>, counted: &CountsByKey) -> Vec<String> {
    let is_missing = |key: &str| !encryption.is_some_and(|encryption| encryption.has(key));
    let refuses = encryption.is_some_and(|encryption| encryption.plaintext == Plaintext::Refuse);
    let doubt = |(key, count): (&Option<String>, &u64)| match key {
        Some(key) if is_missing(key) => Some(format!(
            "{count} of the stored items are under the encryption key {key:?}, which is not configured: they \
             cannot be read"
        )),
        None if refuses && *count > 0 => Some(format!(
            "{count} of the stored items are not encrypted, and `encryption.plaintext` refuses them"
        )),
        Some(_) | None => None,
    };
    counted.iter().filter_map(doubt).collect()
}

/// Checks the keys that can be read without running a program.
pub fn look(encryption: &Encryption) -> anyhow::Result<()> {
    for key in &encryption.keys {
        let Some(text) = secret::look(&key.source) else { continue };
        text.and_then(|text| parse(&text)).with_context(|| format!("`{}`", key.setting()))?;
    }
    Ok(())
}

async fn fetch(key: &EncryptionKey) -> anyhow::Result<[u8; KEY_BYTES]> {
    parse(&secret::fetch(&key.source).await?)
}

/// Reads a key: 64 hexadecimal digits, or base64 with or without its padding, and at most a line end after
/// it.
fn parse(text: &[u8]) -> anyhow::Result<[u8; KEY_BYTES]> {
    const EXPECTED: &str = "expected 32 bytes, as 64 hexadecimal digits or 44 characters of base64";
    let text = text.trim_ascii();
    ensure!(!text.is_empty(), "it is empty: {EXPECTED}");
    ensure!(text.len() <= MAX_BYTES, "it is too long for a key: {EXPECTED}");
    let bytes = decode_hex(text).or_else(|| decode_base64(text));
    let bytes = bytes.with_context(|| format!("it is neither hexadecimal nor base64: {EXPECTED}"))?;
    let length = bytes.len();
    bytes.try_into().ok().with_context(|| format!("it has {length} bytes: {EXPECTED}"))
}

fn decode_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let pairs = text.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    // The padding is complete or absent.
    let digits = match text.len() % 4 {
        0 => text.strip_suffix(b"==").or(text.strip_suffix(b"=")).unwrap_or(text),
        _ => text,
    };
    [&alphabet::STANDARD, &alphabet::URL_SAFE]
        .iter()
        .find_map(|alphabet| GeneralPurpose::new(alphabet, NO_PAD).decode(digits).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const BASE64: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    #[test]
    fn a_key_is_read_in_either_spelling() {
        let key: [u8; 32] = std::array::from_fn(|index| index as u8);
        for text in [HEX, &HEX.to_uppercase(), &format!("{HEX}\n"), BASE64, &format!(" {BASE64}\r\n")] {
            assert_eq!(parse(text.as_bytes()).expect("it is a key"), key, "{text}");
        }
        assert_eq!(parse(BASE64.trim_end_matches('=').as_bytes()).expect("it is a key"), key);
        let url_safe = "-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_-_8=";
        assert!(parse(url_safe.as_bytes()).is_ok());
        assert!(parse(url_safe.replace('-', "+").replace('_', "/").as_bytes()).is_ok());
    }

    #[test]
    fn invalid_key_error_gives_the_reason_and_not_the_key() {
        for (text, why) in [
            ("", "it is empty"),
            ("\n", "it is empty"),
            (&HEX[..62], "it has 31 bytes"),
            (&format!("{HEX}00"), "it has 33 bytes"),
            ("c2VjcmV0", "it has 6 bytes"),
            ("not a key at all", "neither"),
            (&BASE64.replace('=', "=="), "neither"),
            (&BASE64.replace("AAEC", "+_EC"), "neither"),
            (&HEX.replace('0', "é"), "neither"),
            (&"0".repeat(5000), "too long"),
        ] {
            let said = parse(text.as_bytes()).expect_err("it is no key").to_string();
            assert!(said.contains(why), "{text}: {said}");
            assert!(text.trim().is_empty() || !said.contains(text.trim()), "{said}");
            assert!(said.contains("expected 32 bytes"), "{said}");
        }
    }
}
