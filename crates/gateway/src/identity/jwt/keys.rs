//! Key set (RFC 7517), each key bound to the one algorithm that it checks.
//!
//! Invariant: a key's own type determines its algorithm, never a token. A public key cannot be taken for a
//! shared secret.

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::DecodingKey;
use semel_settings::SigningAlgorithm;
use serde_json::{Map, Value};

/// Largest number of keys in a set.
const MAX_KEYS: usize = 100;
/// Shortest shared secret: as long as the digest (RFC 7518, section 3.2).
const MIN_SECRET_BYTES: usize = 32;
/// Shortest and longest modulus: 2048 to 8192 bits.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;
/// Length of a coordinate on P-256, and of a key on Ed25519.
const COORDINATE_BYTES: usize = 32;

/// Returns the algorithm of this name.
pub(super) fn algorithm_of(name: &str) -> Option<SigningAlgorithm> {
    SigningAlgorithm::NAMES.iter().find(|(known, _)| *known == name).map(|(_, algorithm)| *algorithm)
}

fn library(algorithm: SigningAlgorithm) -> jsonwebtoken::Algorithm {
    match algorithm {
        SigningAlgorithm::Rs256 => jsonwebtoken::Algorithm::RS256,
        SigningAlgorithm::Es256 => jsonwebtoken::Algorithm::ES256,
        SigningAlgorithm::EdDsa => jsonwebtoken::Algorithm::EdDSA,
        SigningAlgorithm::Hs256 => jsonwebtoken::Algorithm::HS256,
    }
}

/// Key with its algorithm and id.
pub(super) struct Key {
    id: Option<String>,
    algorithm: SigningAlgorithm,
    material: DecodingKey,
}

impl Key {
    /// Returns true if this key, or its private half, made the signature.
    pub(super) fn has_signed(&self, message: &str, signature: &str) -> bool {
        let verified = jsonwebtoken::crypto::verify(
            signature,
            message.as_bytes(),
            &self.material,
            library(self.algorithm),
        );
        matches!(verified, Ok(true))
    }
}

/// Reason for having no key for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// No key has its id and algorithm: the key may be new.
    Unknown,
    /// The token does not name one of several keys.
    Unnamed,
}

/// Keys that tokens are checked with.
pub(super) struct KeySet(Vec<Key>);

impl KeySet {
    /// Reads a set. Keys that cannot check tokens are skipped, as the RFC requires.
    ///
    /// # Errors
    /// Fails if it is no set, has too many keys, or none that is usable.
    pub(super) fn parse(text: &[u8], allowed: &[SigningAlgorithm]) -> anyhow::Result<KeySet> {
        let document: Value = serde_json::from_slice(text).context("it is not JSON")?;
        let members = document.get("keys").and_then(Value::as_array);
        let members = members.context("it is not a JWK Set: the member `keys` is missing, or no array")?;
        ensure!(members.len() <= MAX_KEYS, "it holds {} keys, and {MAX_KEYS} are the most", members.len());
        let (mut keys, mut first_reason) = (Vec::<Key>::new(), None);
        for member in members {
            let same = |key: &Key, other: &Key| {
                key.id.is_some() && key.algorithm == other.algorithm && key.id == other.id
            };
            let read = match read_key(member, allowed) {
                Ok(key) if keys.iter().any(|other| same(&key, other)) => Err("its `kid` is there twice"),
                read => read,
            };
            match read {
                Ok(key) => keys.push(key),
                Err(reason) => {
                    tracing::debug!(reason, "a key of the set cannot be used");
                    first_reason.get_or_insert(reason);
                }
            }
        }
        let reason = first_reason.unwrap_or("there is none");
        ensure!(!keys.is_empty(), "it holds no key that `algorithms` allows and that can be used: {reason}");
        Ok(KeySet(keys))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the only key that can have signed a token with this header.
    pub(super) fn find(&self, algorithm: SigningAlgorithm, id: Option<&str>) -> Result<&Key, Missing> {
        let mut fitting = self
            .0
            .iter()
            .filter(|key| key.algorithm == algorithm && (id.is_none() || key.id.as_deref() == id));
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Ok(key),
            (None, _) => Err(Missing::Unknown),
            (Some(_), Some(_)) => Err(Missing::Unnamed),
        }
    }
}

/// Reads one key, or returns the reason for which it cannot be used.
fn read_key(member: &Value, allowed: &[SigningAlgorithm]) -> Result<Key, &'static str> {
    let member = member.as_object().ok_or("it is no object")?;
    let text = |name: &str| member.get(name).and_then(Value::as_str);
    let algorithm = match (text("kty"), text("crv")) {
        (Some("RSA"), _) => SigningAlgorithm::Rs256,
        (Some("EC"), Some("P-256")) => SigningAlgorithm::Es256,
        (Some("OKP"), Some("Ed25519")) => SigningAlgorithm::EdDsa,
        (Some("oct"), _) => SigningAlgorithm::Hs256,
        _ => return Err("its `kty` and `crv` are of none of the algorithms"),
    };
    if member.get("alg").is_some_and(|own| own.as_str().and_then(algorithm_of) != Some(algorithm)) {
        return Err("its `alg` is another one");
    }
    if member.get("use").is_some_and(|purpose| purpose != "sig") {
        return Err("its `use` is not \"sig\"");
    }
    let verifies =
        |purposes: &Value| purposes.as_array().is_some_and(|list| list.iter().any(|one| one == "verify"));
    if member.get("key_ops").is_some_and(|purposes| !verifies(purposes)) {
        return Err("its `key_ops` do not have \"verify\"");
    }
    if !allowed.contains(&algorithm) {
        return Err("`algorithms` does not have its own");
    }
    let id = match member.get("kid") {
        None => None,
        Some(id) => Some(id.as_str().ok_or("its `kid` is no text")?.to_owned()),
    };
    Ok(Key { id, algorithm, material: material(member, algorithm)? })
}

fn material(member: &Map<String, Value>, algorithm: SigningAlgorithm) -> Result<DecodingKey, &'static str> {
    let bytes = |name: &str| {
        let text = member.get(name).and_then(Value::as_str);
        text.and_then(|text| URL_SAFE_NO_PAD.decode(text).ok())
            .ok_or("a part of it is missing, or no base64url")
    };
    let coordinate = |name: &str| {
        bytes(name).and_then(|bytes| exactly(bytes, COORDINATE_BYTES).ok_or("it is no point of its curve"))
    };
    match algorithm {
        SigningAlgorithm::Rs256 => {
            let (modulus, exponent) = (bytes("n")?, bytes("e")?);
            let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
            match modulus.get(zeros..) {
                Some(modulus) if MODULUS_BYTES.contains(&modulus.len()) => {
                    Ok(DecodingKey::from_rsa_raw_components(modulus, &exponent))
                }
                _ => Err("its modulus does not have 2048 to 8192 bits"),
            }
        }
        SigningAlgorithm::Es256 => {
            // An uncompressed point in the form of SEC 1.
            let point = [&[4][..], &coordinate("x")?, &coordinate("y")?].concat();
            Ok(DecodingKey::from_ec_der(&point))
        }
        SigningAlgorithm::EdDsa => Ok(DecodingKey::from_ed_der(&coordinate("x")?)),
        SigningAlgorithm::Hs256 => match bytes("k")? {
            secret if secret.len() >= MIN_SECRET_BYTES => Ok(DecodingKey::from_secret(&secret)),
            _ => Err("its secret is shorter than 32 bytes"),
        },
    }
}

fn exactly(bytes: Vec<u8>, length: usize) -> Option<Vec<u8>> {
    (bytes.len() == length).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ALL: [SigningAlgorithm; 4] =
        [SigningAlgorithm::Rs256, SigningAlgorithm::Es256, SigningAlgorithm::EdDsa, SigningAlgorithm::Hs256];

    fn encoded(length: usize) -> String {
        URL_SAFE_NO_PAD.encode(vec![7; length])
    }

    fn reason(member: &Value, allowed: &[SigningAlgorithm]) -> Option<&'static str> {
        read_key(member, allowed).err()
    }

    #[test]
    fn a_key_checks_the_algorithm_of_its_type_and_no_other() {
        let edwards = json!({ "kty": "OKP", "crv": "Ed25519", "x": encoded(32) });
        assert_eq!(read_key(&edwards, &ALL).map(|key| key.algorithm).ok(), Some(SigningAlgorithm::EdDsa));
        let with = |name: &str, value: Value| {
            let mut changed = edwards.clone();
            changed[name] = value;
            reason(&changed, &ALL)
        };
        assert_eq!(with("alg", json!("EdDSA")), None);
        assert_eq!(with("use", json!("sig")), None);
        assert_eq!(with("key_ops", json!(["sign", "verify"])), None);
        assert_eq!(with("alg", json!("HS256")), Some("its `alg` is another one"));
        assert_eq!(with("alg", json!(null)), Some("its `alg` is another one"));
        assert_eq!(with("use", json!("enc")), Some("its `use` is not \"sig\""));
        assert_eq!(with("key_ops", json!(["sign"])), Some("its `key_ops` do not have \"verify\""));
        assert_eq!(with("crv", json!("X25519")), Some("its `kty` and `crv` are of none of the algorithms"));
        assert_eq!(with("x", json!(encoded(31))), Some("it is no point of its curve"));
        assert_eq!(with("kid", json!(1)), Some("its `kid` is no text"));
        assert_eq!(reason(&edwards, &[SigningAlgorithm::Hs256]), Some("`algorithms` does not have its own"));
    }

    #[test]
    fn rsa_keys_and_secrets_of_refused_sizes_name_the_reason() {
        let rsa = |bytes| json!({ "kty": "RSA", "n": encoded(bytes), "e": "AQAB" });
        assert_eq!(reason(&rsa(256), &ALL), None);
        assert_eq!(reason(&rsa(128), &ALL), Some("its modulus does not have 2048 to 8192 bits"));
        assert_eq!(reason(&rsa(2048), &ALL), Some("its modulus does not have 2048 to 8192 bits"));
        let secret = |bytes| json!({ "kty": "oct", "k": encoded(bytes) });
        assert_eq!(reason(&secret(32), &ALL), None);
        assert_eq!(reason(&secret(31), &ALL), Some("its secret is shorter than 32 bytes"));
    }

    #[test]
    fn a_set_has_keys_and_not_too_many() {
        let key = |id: &str| json!({ "kty": "OKP", "crv": "Ed25519", "x": encoded(32), "kid": id });
        let parse = |keys: Value| {
            let set = KeySet::parse(json!({ "keys": keys }).to_string().as_bytes(), &ALL);
            set.map(|set| set.len()).map_err(|error| format!("{error:#}"))
        };
        assert_eq!(parse(json!([key("a"), key("b"), { "kty": "EC", "crv": "P-521" }, 7])), Ok(2));
        assert_eq!(parse(json!([key("a"), key("a")])), Ok(1), "the first of two counts");
        let many: Vec<Value> = (0..101).map(|number| key(&number.to_string())).collect();
        assert_eq!(parse(json!(many)), Err("it holds 101 keys, and 100 are the most".to_owned()));
        assert!(parse(json!([])).is_err_and(|error| error.ends_with("there is none")));
        assert!(parse(json!([7])).is_err_and(|error| error.ends_with("it is no object")));
        for text in ["", "[]", "{}", "{\"keys\":{}}"] {
            assert!(KeySet::parse(text.as_bytes(), &ALL).is_err(), "{text}");
        }
    }

    #[test]
    fn a_token_without_a_key_id_needs_a_set_of_one_key() {
        let key = |id: &str| json!({ "kty": "OKP", "crv": "Ed25519", "x": encoded(32), "kid": id });
        let set = |keys: &[Value]| {
            KeySet::parse(json!({ "keys": keys }).to_string().as_bytes(), &ALL).expect("it is a set")
        };
        let (one, two) = (set(&[key("a")]), set(&[key("a"), key("b")]));
        let find = |set: &KeySet, id| set.find(SigningAlgorithm::EdDsa, id).err();
        assert_eq!((find(&one, None), find(&one, Some("a"))), (None, None));
        assert_eq!((find(&two, None), find(&two, Some("b"))), (Some(Missing::Unnamed), None));
        assert_eq!(find(&two, Some("c")), Some(Missing::Unknown));
        let nameless = json!({ "kty": "OKP", "crv": "Ed25519", "x": encoded(32) });
        assert_eq!(find(&set(&[nameless.clone(), nameless]), None), Some(Missing::Unnamed));
        assert_eq!(one.find(SigningAlgorithm::Hs256, Some("a")).err(), Some(Missing::Unknown));
    }
}
