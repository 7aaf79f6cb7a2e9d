//! The fingerprint: what makes two requests under one key the same command.
//!
//! Stored with every record and compared in the version it was stored in, so what `v1` hashes is frozen.
//! Nothing is refused here: a body without a canonical form is fingerprinted by its bytes.

use std::borrow::Cow;
use std::fmt;

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::json::{self, NotCanonical, Numbers};
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
            FingerprintVersion::V1 => self.fields().digest_v1(),
        };
        Fingerprint { version, digest }
    }

    /// Everything that the current version hashes of this request, in the form in which it is hashed.
    pub fn fields(&self) -> Fields<'a> {
        let json_media_type = self.json_media_type();
        let body = self.body_as(json_media_type.is_some());
        let json_media_type = json_media_type.map(|media_type| Cow::Owned(media_type.into_bytes()));
        Fields {
            method: self.method,
            path: self.path,
            query: self.query,
            content_type: json_media_type.or(self.content_type.map(Cow::Borrowed)),
            content_encoding: self.content_encoding,
            body,
        }
    }

    /// The exact bytes that stand for the body in the fingerprint.
    pub fn canonical_body(&self) -> CanonicalBody<'a> {
        self.body_as(self.json_media_type().is_some())
    }

    fn body_as(&self, is_json: bool) -> CanonicalBody<'a> {
        if !is_json {
            return CanonicalBody::Raw(self.body, WhyRaw::NotJson);
        }
        if self.is_encoded() {
            return CanonicalBody::Raw(self.body, WhyRaw::Encoded);
        }
        match json::canonicalize(self.body, Numbers::Exact, self.exclude) {
            Ok(canonical) => CanonicalBody::Json(canonical),
            Err(why) => CanonicalBody::Raw(self.body, WhyRaw::NoCanonicalForm(why)),
        }
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

/// What is hashed, field by field: two requests with equal fields have one fingerprint, and no others do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields<'a> {
    /// The method, as sent.
    pub method: &'a str,
    /// The path, as sent.
    pub path: &'a str,
    /// The query, as sent.
    pub query: Option<&'a str>,
    /// The media type of JSON in lower case without parameters; any other content type as sent.
    pub content_type: Option<Cow<'a, [u8]>>,
    /// The content encoding, as sent.
    pub content_encoding: Option<&'a [u8]>,
    /// The body in canonical form, or as sent.
    pub body: CanonicalBody<'a>,
}

impl Fields<'_> {
    fn digest_v1(&self) -> [u8; 32] {
        let mut fields = FieldHasher::new(b"semel/fingerprint/1");
        fields.required(self.method.as_bytes());
        fields.required(self.path.as_bytes());
        fields.optional(self.query.map(str::as_bytes));
        fields.optional(self.content_type.as_deref());
        fields.optional(self.content_encoding);
        fields.required(self.body.tag());
        fields.required(self.body.as_bytes());
        fields.finish()
    }
}

/// A body as it goes into the fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CanonicalBody<'a> {
    /// JSON in its exact canonical form, without the excluded members.
    Json(Vec<u8>),
    /// The bytes as sent, and why.
    Raw(&'a [u8], WhyRaw),
}

/// Why a body goes into the fingerprint as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WhyRaw {
    /// The content type is missing, or not one of JSON.
    #[error("the content type is not one of JSON")]
    NotJson,
    /// The body is compressed, say: its bytes are not those of the JSON text.
    #[error("a content encoding stands between the bytes and the JSON")]
    Encoded,
    /// It is said to be JSON, and has no canonical form.
    #[error("it has no canonical form: {0}")]
    NoCanonicalForm(NotCanonical),
}

impl CanonicalBody<'_> {
    /// The bytes to hash.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Json(canonical) => canonical,
            Self::Raw(body, _) => body,
        }
    }

    /// Keeps a raw body from posing as the canonical form of another.
    fn tag(&self) -> &'static [u8] {
        match self {
            Self::Json(_) => b"json",
            Self::Raw(..) => b"raw",
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
