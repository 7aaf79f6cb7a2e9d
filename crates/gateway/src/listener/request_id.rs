//! Id of a request: in each of its log lines, in the request to the upstream and in the answer's
//! `X-Request-Id`.
//!
//! Invariant: an id is short, has no character that could forge a log line, and reveals nothing of the
//! request's key or credentials.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use semel_core::credential::is_credential;
use semel_core::{Ids, RandomIds};

/// Field that carries the id.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Largest length of a client's id.
const MAX_LENGTH: usize = 128;

/// Shortest part of a key or a credential that reveals something.
const TELLING: usize = 8;

/// Shortest run that an id may not share with a secret. Two UUIDs that were made at the same time begin
/// alike.
const TELLING_RUN: usize = 20;

/// Id of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// Returns the client's id if it is well-formed, else a new one.
    pub fn of(headers: &HeaderMap) -> RequestId {
        let mut lines = headers.get_all(X_REQUEST_ID).iter();
        match (lines.next(), lines.next()) {
            (Some(id), None) if is_well_formed(id.as_bytes()) && !tells_secret(id.as_bytes(), headers) => {
                RequestId(id.clone())
            }
            _ => RequestId::draw(),
        }
    }

    /// Makes a random id: a number would tell clients how many requests there are.
    fn draw() -> RequestId {
        let id = format!("{:032x}", u128::from_be_bytes(*RandomIds.attempt_token().as_bytes()));
        RequestId(HeaderValue::from_str(&id).expect("hexadecimal digits are a value"))
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    /// Puts the id into the head of a request, in place of the client's.
    pub fn name(&self, headers: &mut HeaderMap) {
        // Other spellings of the name would be taken for it.
        let others: Vec<HeaderName> = headers
            .keys()
            .filter(|name| {
                name.as_str().contains('_') && name.as_str().replace('_', "-") == X_REQUEST_ID.as_str()
            })
            .cloned()
            .collect();
        for name in others {
            headers.remove(name);
        }
        headers.insert(X_REQUEST_ID, self.0.clone());
    }

    /// Puts the id into the head of an answer that has none.
    pub fn answer(self, headers: &mut HeaderMap) {
        headers.entry(X_REQUEST_ID).or_insert(self.0);
    }
}

fn is_well_formed(id: &[u8]) -> bool {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~:/+=@".contains(byte);
    (1..=MAX_LENGTH).contains(&id.len()) && id.iter().all(is_allowed)
}

/// Returns true if the id reveals part of the request's key or of a credential: some clients use one text for
/// several of them, and neither is ever logged.
fn tells_secret(id: &[u8], headers: &HeaderMap) -> bool {
    let holds =
        |one: &[u8], other: &[u8]| other.len() >= TELLING && memchr::memmem::find(one, other).is_some();
    let id = id.to_ascii_lowercase();
    headers.iter().filter(|(name, _)| **name == KEY || is_credential(name)).any(|(_, line)| {
        let line = line.as_bytes().to_ascii_lowercase();
        // The scheme, the names and the parameters around a secret are not part of it.
        let mut parts = line.split(|byte| b" \t;,=\"".contains(byte));
        holds(&line, &id)
            || parts.any(|part| holds(&id, part))
            || id.windows(TELLING_RUN).any(|run| holds(&line, run))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(lines: &[(&'static str, &[u8])]) -> String {
        let lines = lines.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value).expect("it is a value"))
        });
        RequestId::of(&lines.collect()).as_str().to_owned()
    }

    #[test]
    fn a_well_formed_client_request_id_is_used() {
        let longest = "x".repeat(MAX_LENGTH);
        for text in ["1", "0190d1f0-7c5e-7000-8000-000000000001", "Root=1-67891233-abcdef", &longest] {
            assert_eq!(id(&[("x-request-id", text.as_bytes())]), text);
        }
    }

    #[test]
    fn a_missing_or_malformed_client_request_id_is_replaced_by_a_new_one() {
        let long = "x".repeat(MAX_LENGTH + 1);
        for bad in
            [&b""[..], b"a b", b"a\"b", b"a\tb", b"\xc3\xa4", b"a,b", b"<b>", b"a=%0a", long.as_bytes()]
        {
            let drawn = id(&[("x-request-id", bad)]);
            assert!(
                drawn.len() == 32 && drawn.bytes().all(|byte| byte.is_ascii_hexdigit()),
                "{bad:?}: {drawn}"
            );
        }
        let two: [(&str, &[u8]); 2] = [("x-request-id", b"a"), ("x-request-id", b"b")];
        assert_eq!(id(&two).len(), 32);
        assert_ne!(id(&[]), id(&[]));
    }

    #[test]
    fn a_client_request_id_that_contains_a_key_or_credential_is_replaced() {
        let key = b"0190d1f0-7c5e-7000-8000-000000000001";
        let quoted = [&b"\""[..], key, b"\"; v=1"].concat();
        for line in [&key[..], &quoted] {
            for sent in [&key[..], b"7000-8000", b"req-0190d1f0-7c5e-7000-8000-000000000001"] {
                let taken = id(&[("x-request-id", sent), ("idempotency-key", line)]);
                assert_ne!(taken.as_bytes(), sent, "{line:?}");
            }
        }
        let session: [(&str, &[u8]); 2] =
            [("x-request-id", b"of-a-session"), ("cookie", b"s=of-a-session; t=1")];
        assert_ne!(id(&session), "of-a-session");
        let token: [(&str, &[u8]); 2] =
            [("x-request-id", b"req-SECRETtoken4711"), ("authorization", b"Bearer secretTOKEN4711")];
        assert_ne!(id(&token), "req-SECRETtoken4711", "in any case");
        let most: [(&str, &[u8]); 2] =
            [("x-request-id", b"a0190d1f0-7c5e-7000-8000-00"), ("idempotency-key", key)];
        assert_ne!(id(&most), "a0190d1f0-7c5e-7000-8000-00", "a long part of it");
        let sibling: [(&str, &[u8]); 2] =
            [("x-request-id", b"0190d1f0-7c5e-7abc-9000-00000000000f"), ("idempotency-key", key)];
        assert_eq!(id(&sibling), "0190d1f0-7c5e-7abc-9000-00000000000f", "drawn at the same time");
        for other in ["another-request", "1"] {
            assert_eq!(id(&[("x-request-id", other.as_bytes()), ("idempotency-key", key)]), other);
        }
    }
}
