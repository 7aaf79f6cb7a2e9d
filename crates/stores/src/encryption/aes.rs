//! AES-256-GCM-SIV under several keys. A repeated nonce would reveal at most that two plaintexts are equal.

use std::collections::HashMap;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use bytes::Bytes;
use semel_core::vault::is_key_id;
use semel_core::{Plaintext, Sealed, Sealing, Vault, VaultError};

/// Length of the authentication tag, in bytes.
const TAG_LEN: usize = 16;

/// Seals under one key, and opens under any that it has. Sealed bytes are the nonce, the ciphertext and the
/// tag.
pub struct AesVault {
    current: String,
    keys: HashMap<String, RandomizedNonceKey>,
    plaintext: Plaintext,
}

/// Reason why keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKeys {
    /// An id has an invalid form.
    #[error("{0:?} is not a key's id: 1 to 64 letters, digits, dots, dashes and underscores")]
    Id(String),
    /// Two keys have the same id.
    #[error("there are two keys with the id {0:?}")]
    Twice(String),
    /// The current key is not among them.
    #[error("the current key {0:?} is not among the keys")]
    NoCurrent(String),
    /// The library rejects a key.
    #[error("the key {0:?} cannot be used")]
    Unusable(String),
}

impl AesVault {
    /// Returns a vault that seals under the key `current`, which must be among `keys`.
    pub fn new(
        current: &str,
        keys: impl IntoIterator<Item = (String, [u8; 32])>,
    ) -> Result<AesVault, InvalidKeys> {
        let mut known = HashMap::new();
        for (id, key) in keys {
            if !is_key_id(&id) {
                return Err(InvalidKeys::Id(id));
            }
            let key = RandomizedNonceKey::new(&AES_256_GCM_SIV, &key);
            let key = key.map_err(|_| InvalidKeys::Unusable(id.clone()))?;
            if known.insert(id.clone(), key).is_some() {
                return Err(InvalidKeys::Twice(id));
            }
        }
        match known.contains_key(current) {
            true => Ok(AesVault { current: current.to_owned(), keys: known, plaintext: Plaintext::Accept }),
            false => Err(InvalidKeys::NoCurrent(current.to_owned())),
        }
    }

    /// Sets the treatment of stored plaintext. It is accepted unless this says otherwise.
    pub fn plaintext(self, plaintext: Plaintext) -> AesVault {
        AesVault { plaintext, ..self }
    }

    /// Returns the ids of the available keys, in order.
    pub fn key_ids(&self) -> Vec<&str> {
        let mut ids: Vec<&str> = self.keys.keys().map(String::as_str).collect();
        ids.sort_unstable();
        ids
    }

    fn key(&self, id: &str) -> Result<&RandomizedNonceKey, VaultError> {
        self.keys.get(id).ok_or_else(|| VaultError::UnknownKey(id.to_owned()))
    }
}

impl Vault for AesVault {
    fn current(&self) -> &str {
        &self.current
    }

    fn seal(&self, about: &Sealing, clear: &[u8]) -> Result<Sealed, VaultError> {
        let mut sealed = Vec::with_capacity(NONCE_LEN + clear.len() + TAG_LEN);
        sealed.extend_from_slice(&[0; NONCE_LEN]);
        sealed.extend_from_slice(clear);
        let (nonce, tag) = self
            .key(&self.current)?
            .seal_in_place_separate_tag(Aad::from(about.as_bytes()), &mut sealed[NONCE_LEN..])
            .map_err(|_| VaultError::CannotSeal)?;
        sealed[..NONCE_LEN].copy_from_slice(nonce.as_ref());
        sealed.extend_from_slice(tag.as_ref());
        Ok(Sealed { key_id: self.current.clone(), bytes: sealed.into() })
    }

    fn open(&self, about: &Sealing, key_id: &str, sealed: &[u8]) -> Result<Bytes, VaultError> {
        let key = self.key(key_id)?;
        let does_not_open = || VaultError::DoesNotOpen(key_id.to_owned());
        let (nonce, ciphertext) = sealed.split_at_checked(NONCE_LEN).ok_or_else(does_not_open)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| does_not_open())?;
        let mut clear = ciphertext.to_vec();
        let opened = key.open_in_place(nonce, Aad::from(about.as_bytes()), &mut clear);
        let length = opened.map_err(|_| does_not_open())?.len();
        clear.truncate(length);
        Ok(clear.into())
    }

    fn plaintext(&self) -> Plaintext {
        self.plaintext
    }
}

/// Shows the ids of the keys, never the keys.
impl std::fmt::Debug for AesVault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AesVault").field("current", &self.current).field("keys", &self.key_ids()).finish()
    }
}

#[cfg(test)]
mod tests {
    use semel_core::vault::Settler;
    use semel_core::{OperationId, RecordId};

    use super::*;

    fn vault(current: &str, keys: &[(&str, u8)]) -> AesVault {
        let keys = keys.iter().map(|(id, byte)| ((*id).to_owned(), [*byte; 32]));
        AesVault::new(current, keys).expect("the keys are good")
    }

    fn sealing(record: u8, format: u8) -> Sealing {
        let (id, command) = (RecordId::from_bytes([record; 32]), OperationId::from_bytes([7; 16]));
        Sealing::response(&id, command, Settler::Executor(1), 201, format)
    }

    fn response(record: u8) -> Sealing {
        sealing(record, 1)
    }

    fn refused(result: &Result<Bytes, VaultError>) -> bool {
        *result == Err(VaultError::DoesNotOpen("a".to_owned()))
    }

    #[test]
    fn sealed_bytes_of_any_length_open_unchanged() {
        let vault = vault("a", &[("a", 1)]);
        for length in [0, 1, 15, 16, 17, 4096, 1 << 20] {
            let clear: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
            let sealed = vault.seal(&response(1), &clear).expect("it seals");
            assert_eq!(sealed.key_id, "a");
            assert_eq!(sealed.bytes.len(), NONCE_LEN + length + TAG_LEN);
            assert_eq!(vault.open(&response(1), "a", &sealed.bytes).as_deref(), Ok(&clear[..]), "{length}");
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let vault = vault("a", &[("a", 1)]);
        let sealed = vault.seal(&response(1), b"a short response").expect("it seals").bytes;
        for (index, bit) in (0..sealed.len()).flat_map(|index| (0..8).map(move |bit| (index, bit))) {
            let mut flipped = sealed.to_vec();
            flipped[index] ^= 1 << bit;
            assert!(refused(&vault.open(&response(1), "a", &flipped)), "byte {index}, bit {bit}");
        }
        for end in 0..sealed.len() {
            assert!(refused(&vault.open(&response(1), "a", &sealed[..end])), "cut at {end}");
        }
        assert!(refused(&vault.open(&response(1), "a", &[&sealed[..], b"x"].concat())));
    }

    #[test]
    fn sealed_bytes_of_another_place_do_not_open() {
        let vault = vault("a", &[("a", 1)]);
        let one = vault.seal(&response(1), b"one").expect("it seals").bytes;
        let two = vault.seal(&response(2), b"two").expect("it seals").bytes;
        assert!(refused(&vault.open(&response(2), "a", &one)), "rows swapped");
        assert!(refused(&vault.open(&response(1), "a", &two)), "rows swapped");
        let evidence = Sealing::evidence("bank", "1", OperationId::from_bytes([1; 16]), 201, 1);
        assert!(refused(&vault.open(&evidence, "a", &one)), "another kind");
        let newer = sealing(1, 2);
        assert!(refused(&vault.open(&newer, "a", &one)), "another format");
    }

    #[test]
    fn a_sealed_value_opens_only_with_its_own_key() {
        let (old, new) = (vault("a", &[("a", 1)]), vault("b", &[("a", 1), ("b", 2)]));
        let sealed = old.seal(&response(1), b"old").expect("it seals").bytes;
        assert_eq!(new.open(&response(1), "a", &sealed).as_deref(), Ok(&b"old"[..]));
        assert_eq!(
            new.open(&response(1), "b", &sealed),
            Err(VaultError::DoesNotOpen("b".to_owned())),
            "another key"
        );
        let without = vault("b", &[("b", 2)]);
        assert_eq!(without.open(&response(1), "a", &sealed), Err(VaultError::UnknownKey("a".to_owned())));
        assert!(refused(&vault("a", &[("a", 9)]).open(&response(1), "a", &sealed)), "another key of that id");
        assert_eq!(new.seal(&response(1), b"new").expect("it seals").key_id, "b");
    }

    #[test]
    fn sealing_equal_bytes_gives_a_different_value_each_time() {
        let vault = vault("a", &[("a", 1)]);
        let mut seen: Vec<Bytes> =
            (0..100).map(|_| vault.seal(&response(1), b"same").expect("it seals").bytes).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 100);
    }

    #[test]
    fn keys_that_cannot_be_used_are_named() {
        let new = |current: &str, ids: &[&str]| {
            AesVault::new(current, ids.iter().map(|id| ((*id).to_owned(), [1; 32]))).map(|_| ())
        };
        assert_eq!(new("a", &["a", "b", "a"]), Err(InvalidKeys::Twice("a".to_owned())));
        assert_eq!(new("c", &["a", "b"]), Err(InvalidKeys::NoCurrent("c".to_owned())));
        for id in ["", "a b", "ä", "a/b", &"x".repeat(65)] {
            assert_eq!(new("a", &["a", id]), Err(InvalidKeys::Id(id.to_owned())));
        }
        assert_eq!(new("2026-11.a_B", &["2026-11.a_B", &"x".repeat(64)]), Ok(()));
    }

    #[test]
    fn a_vault_does_not_show_its_keys() {
        let shown = format!("{:?}", vault("a", &[("a", 171)]));
        assert_eq!(shown, r#"AesVault { current: "a", keys: ["a"] }"#);
    }
}
