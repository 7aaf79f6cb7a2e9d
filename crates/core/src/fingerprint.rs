//! The fingerprint: what makes two requests under one key the same command.
//!
//! Stored with every record and compared in the version it was stored in, so what `v1` hashes is frozen.
//! Nothing is refused here: a body without a canonical form is fingerprinted by its bytes.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::json::{self, Numbers};
use crate::pointer::JsonPointer;

/// How a fingerprint was computed. A change to the computation is a new version beside the old ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FingerprintVersion {
    /// SHA-256 over length-prefixed fields, JSON bodies in exact canonical form.
    V1,
}

impl FingerprintVersion {
    /// The version new records get.
    pub const CURRENT: Self = Self::V1;

    /// The number stored with a record.
    pub const fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
        }
    }

    /// The version of a stored number, if this build knows it.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::V1),
            _ => None,
        }
    }
}

/// The identity of a command: equal for two requests that ask for the same thing.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    version: FingerprintVersion,
    digest: [u8; 32],
}

impl Fingerprint {
    /// A fingerprint as a store kept it.
    pub const fn from_parts(version: FingerprintVersion, digest: [u8; 32]) -> Self {
        Self { version, digest }
    }

    /// How it was computed.
    pub const fn version(&self) -> FingerprintVersion {
        self.version
    }

    /// The SHA-256 digest.
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}:{}", self.version.number(), Hex(&self.digest))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// What is fingerprinted of a request. Headers that vary between retries of one command are not here.
#[derive(Clone, Copy, Debug)]
pub struct FingerprintInput<'a> {
    /// The method, as sent.
    pub method: &'a str,
    /// The path, as sent, without the query.
    pub path: &'a str,
    /// The query, as sent, without the question mark.
    pub query: Option<&'a str>,
    /// The value of `Content-Type`.
    pub content_type: Option<&'a [u8]>,
    /// The value of `Content-Encoding`.
    pub content_encoding: Option<&'a [u8]>,
    /// The body, as sent.
    pub body: &'a [u8],
    /// Members of a JSON body that may differ between retries of one command.
    pub exclude: &'a [JsonPointer],
}

impl<'a> FingerprintInput<'a> {
    /// The fingerprint in the current version.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint_in(FingerprintVersion::CURRENT)
    }

    /// The fingerprint in a given version, to compare with a stored one.
    pub fn fingerprint_in(&self, version: FingerprintVersion) -> Fingerprint {
        let digest = match version {
            FingerprintVersion::V1 => self.digest_v1(),
        };
        Fingerprint { version, digest }
    }

    /// The exact bytes that stand for the body in the fingerprint.
    pub fn canonical_body(&self) -> CanonicalBody<'a> {
        if self.json_media_type().is_none() || self.is_encoded() {
            return CanonicalBody::Raw(self.body);
        }
        match json::canonicalize(self.body, Numbers::Exact, self.exclude) {
            Ok(canonical) => CanonicalBody::Json(canonical),
            Err(_) => CanonicalBody::Raw(self.body),
        }
    }

    fn digest_v1(&self) -> [u8; 32] {
        let json_media_type = self.json_media_type();
        let content_type = json_media_type.as_deref().map(str::as_bytes).or(self.content_type);
        let body = self.canonical_body();

        let mut fields = FieldHasher::new(b"semel/fingerprint/1");
        fields.required(self.method.as_bytes());
        fields.required(self.path.as_bytes());
        fields.optional(self.query.map(str::as_bytes));
        fields.optional(content_type);
        fields.optional(self.content_encoding);
        fields.required(body.tag());
        fields.required(body.as_bytes());
        fields.finish()
    }

    /// The media type in lower case without parameters, if it is one of JSON.
    fn json_media_type(&self) -> Option<String> {
        let value = str::from_utf8(self.content_type?).ok()?;
        let (media_type, _parameters) = value.split_once(';').unwrap_or((value, ""));
        let media_type = media_type.trim_matches([' ', '\t']).to_ascii_lowercase();
        let is_json = media_type == "application/json" || has_json_suffix(&media_type);
        is_json.then_some(media_type)
    }

    /// Whether the body's bytes are not those of the media type itself.
    fn is_encoded(&self) -> bool {
        self.content_encoding.is_some_and(|value| {
            let coding = value.trim_ascii();
            !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity")
        })
    }
}

/// RFC 6839, section 3.1: `type/name+json`, both parts of characters that RFC 6838 allows.
fn has_json_suffix(media_type: &str) -> bool {
    let restricted = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
    };
    media_type
        .strip_suffix("+json")
        .and_then(|prefix| prefix.split_once('/'))
        .is_some_and(|(kind, name)| restricted(kind) && restricted(name))
}

/// A body as it goes into the fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CanonicalBody<'a> {
    /// JSON in its exact canonical form, without the excluded members.
    Json(Vec<u8>),
    /// The bytes as sent: not JSON, encoded, or JSON without a canonical form.
    Raw(&'a [u8]),
}

impl CanonicalBody<'_> {
    /// The bytes to hash.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Json(canonical) => canonical,
            Self::Raw(body) => body,
        }
    }

    /// Keeps a raw body from posing as the canonical form of another.
    fn tag(&self) -> &'static [u8] {
        match self {
            Self::Json(_) => b"json",
            Self::Raw(_) => b"raw",
        }
    }
}

/// Hashes fields so that no two lists of fields feed the hash the same bytes.
struct FieldHasher(Sha256);

impl FieldHasher {
    fn new(domain: &[u8]) -> Self {
        let mut fields = Self(Sha256::new());
        fields.required(domain);
        fields
    }

    fn required(&mut self, field: &[u8]) {
        self.0.update((field.len() as u64).to_be_bytes());
        self.0.update(field);
    }

    fn optional(&mut self, field: Option<&[u8]>) {
        self.0.update([u8::from(field.is_some())]);
        if let Some(field) = field {
            self.required(field);
        }
    }

    fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

/// Bytes in lower-case hexadecimal.
pub(crate) struct Hex<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_known_by_its_media_type() {
        for (content_type, expected) in [
            ("application/json", Some("application/json")),
            (" Application/JSON ; charset=UTF-8", Some("application/json")),
            ("application/problem+json;v=1", Some("application/problem+json")),
            ("application/vnd.acme.v2+JSON", Some("application/vnd.acme.v2+json")),
            ("application/jsonl", None),
            ("text/json", None),
            ("+json", None),
            ("application/+json", None),
            ("text/plain, application/a+json", None),
            ("", None),
        ] {
            let input = FingerprintInput {
                method: "POST",
                path: "/",
                query: None,
                content_type: Some(content_type.as_bytes()),
                content_encoding: None,
                body: b"",
                exclude: &[],
            };
            assert_eq!(input.json_media_type().as_deref(), expected, "{content_type}");
        }
    }

    #[test]
    fn a_version_is_found_by_its_number() {
        let version = FingerprintVersion::CURRENT;
        assert_eq!(FingerprintVersion::from_number(version.number()), Some(version));
        assert_eq!(FingerprintVersion::from_number(0), None);
        assert_eq!(FingerprintVersion::from_number(2), None);
    }
}
