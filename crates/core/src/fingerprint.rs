//! The fingerprint: equal for two requests under one key that ask for the same command.
//!
//! Every record stores one, and it is compared in its stored version, so the input of the `v1` hash is
//! frozen. Nothing is refused here: a body without a canonical form is fingerprinted by its bytes.

mod content_type;
mod form;
mod multipart;

use std::borrow::Cow;
use std::fmt;

use sha2::{Digest, Sha256};
use thiserror::Error;

use self::content_type::ContentType;
use crate::formats::Formats;
use crate::json::{self, NotCanonical, Numbers};
use crate::path::one_form;
use crate::pointer::JsonPointer;

/// Version of the fingerprint's computation. A changed computation is a new version beside the old ones. A
/// store keeps any version number; a program cannot compare a version that it does not compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FingerprintVersion(u8);

impl FingerprintVersion {
    /// SHA-256 over length-prefixed fields: the path in its one form; JSON, forms and multipart bodies by
    /// their content.
    pub const V1: Self = Self(1);

    /// Version of new records in a store with the newest formats.
    pub const CURRENT: Self = Self::V1;

    /// Returns the version of new records in a store with these formats. A later version has its first formats here.
    pub const fn of_new_records(_: Formats) -> Self {
        Self::V1
    }

    /// Returns the number stored with a record.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns the version of a stored number; 0 is none.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => None,
            number => Some(Self(number)),
        }
    }
}

/// Identity of a command: equal for two requests that ask for the same thing.
///
/// That of a request also has another version, in which records of older or newer programs are compared.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    version: FingerprintVersion,
    digest: [u8; 32],
    other: Option<(FingerprintVersion, [u8; 32])>,
}

impl Fingerprint {
    /// Returns a fingerprint as a store kept it.
    pub const fn from_parts(version: FingerprintVersion, digest: [u8; 32]) -> Self {
        Self { version, digest, other: None }
    }

    /// Adds the fingerprint in another version, for comparison with records of that version. New records get this one.
    pub const fn with_other(self, other: Fingerprint) -> Self {
        Self { other: Some((other.version, other.digest)), ..self }
    }

    /// Returns the fingerprint as a record stores it: in one version.
    pub const fn recorded(self) -> Self {
        Self { other: None, ..self }
    }

    /// Returns true if a request with this fingerprint asks for the command of the `recorded` one, compared
    /// in the version of that record. `None` if this program does not compute that version.
    pub fn is_that_of(&self, recorded: &Fingerprint) -> Option<bool> {
        let own = [Some((self.version, self.digest)), self.other];
        let same = own.into_iter().flatten().find(|(version, _)| *version == recorded.version);
        same.map(|(_, digest)| digest == recorded.digest)
    }

    /// Returns the version of the computation.
    pub const fn version(&self) -> FingerprintVersion {
        self.version
    }

    /// Returns the SHA-256 digest.
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

/// Parts of a request that are fingerprinted. Headers that vary between retries of one command are not among
/// them.
#[derive(Clone, Copy, Debug)]
pub struct FingerprintInput<'a> {
    /// The method, as sent.
    pub method: &'a str,
    /// The path without the query, in any spelling.
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
    /// Returns the fingerprint in the current version, outside of any store.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint_for(Formats::CURRENT)
    }

    /// Returns the fingerprint for a store with these formats: recorded in their version, compared in every known one.
    pub fn fingerprint_for(&self, formats: Formats) -> Fingerprint {
        Fingerprint::from_parts(FingerprintVersion::of_new_records(formats), self.fields().digest_v1())
    }

    /// Returns everything that the current version hashes of this request, in the hashed form.
    pub fn fields(&self) -> FingerprintFields<'a> {
        let read = self.content_type.and_then(ContentType::parse);
        let (body, content_type) = self.content(read.as_ref());
        FingerprintFields {
            method: self.method,
            path: one_form(self.path),
            query: self.query,
            content_type: content_type.map(Cow::Owned).or(self.content_type.map(Cow::Borrowed)),
            content_encoding: self.content_encoding,
            body,
        }
    }

    /// Returns the exact bytes that stand for the body in the fingerprint.
    pub fn canonical_body(&self) -> CanonicalBody<'a> {
        self.content(self.content_type.and_then(ContentType::parse).as_ref()).0
    }

    /// Returns the body, and the canonical text of its content type unless that is hashed as sent.
    fn content(&self, read: Option<&ContentType>) -> (CanonicalBody<'a>, Option<Vec<u8>>) {
        let raw = |why| CanonicalBody::Raw(self.body, why);
        match read {
            Some(read) if read.is_json() => (self.json(), Some(read.without("charset", Some("utf-8")))),
            Some(read) if read.is_form() => (self.form(read), Some(read.without("charset", Some("utf-8")))),
            Some(read) if read.is_multipart() => match self.multipart(read) {
                Ok(parts) => (CanonicalBody::Multipart(parts), Some(read.without("boundary", None))),
                // A body that is compared byte by byte is compared with its boundary.
                Err(why) => (raw(why), None),
            },
            // The parameters are malformed, and hashed as sent; the media type is still known.
            None if self.content_type.is_some_and(content_type::has_json_media_type) => (self.json(), None),
            Some(_) | None => (raw(WhyRaw::OtherType), None),
        }
    }

    fn json(&self) -> CanonicalBody<'a> {
        if self.is_encoded() {
            return CanonicalBody::Raw(self.body, WhyRaw::Encoded);
        }
        match json::canonicalize(self.body, Numbers::Exact, self.exclude) {
            Ok(canonical) => CanonicalBody::Json(canonical),
            Err(why) => CanonicalBody::Raw(self.body, WhyRaw::NoCanonicalForm(why)),
        }
    }

    fn form(&self, read: &ContentType) -> CanonicalBody<'a> {
        if self.is_encoded() {
            return CanonicalBody::Raw(self.body, WhyRaw::Encoded);
        }
        match form::canonical(self.body).filter(|_| read.is_utf8()) {
            Some(pairs) => CanonicalBody::Form(pairs),
            None => CanonicalBody::Raw(self.body, WhyRaw::NotAForm),
        }
    }

    fn multipart(&self, read: &ContentType) -> Result<Vec<u8>, WhyRaw> {
        if self.is_encoded() {
            return Err(WhyRaw::Encoded);
        }
        let parts = read.boundary().and_then(|boundary| multipart::canonical(self.body, boundary));
        parts.ok_or(WhyRaw::NotOnlyParts)
    }

    /// Returns true if the body is encoded: its bytes are not those of the media type itself.
    fn is_encoded(&self) -> bool {
        self.content_encoding.is_some_and(|value| {
            let coding = value.trim_ascii();
            !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity")
        })
    }
}

/// The hashed fields: two requests have one fingerprint if, and only if, their fields are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FingerprintFields<'a> {
    /// The method, as sent.
    pub method: &'a str,
    /// The path in its one form.
    pub path: Cow<'a, str>,
    /// The query, as sent.
    pub query: Option<&'a str>,
    /// The content type: for JSON and forms in lower case and without `charset=utf-8`, for multipart without
    /// its boundary, any other as sent.
    pub content_type: Option<Cow<'a, [u8]>>,
    /// The content encoding, as sent.
    pub content_encoding: Option<&'a [u8]>,
    /// The body in canonical form, or as sent.
    pub body: CanonicalBody<'a>,
}

impl FingerprintFields<'_> {
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

/// A body as hashed in the fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CanonicalBody<'a> {
    /// JSON in its exact canonical form, without the excluded members.
    Json(Vec<u8>),
    /// The decoded pairs of a form, in the order sent.
    Form(Vec<u8>),
    /// The parts of a multipart body, in the order sent: their fields, and digests of their contents.
    Multipart(Vec<u8>),
    /// The bytes as sent, and the reason.
    Raw(&'a [u8], WhyRaw),
}

/// Reason why a body is fingerprinted as sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WhyRaw {
    /// The content type is missing, or not one of JSON, a form or parts.
    #[error("the content type is not one of JSON, a form or parts")]
    OtherType,
    /// The body has a content encoding, such as compression: its bytes are not those of the content type.
    #[error("a content encoding stands between the bytes and the content")]
    Encoded,
    /// The content type is JSON, and the body has no canonical form.
    #[error("it has no canonical form: {0}")]
    NoCanonicalForm(NotCanonical),
    /// The content type is a form, and the body has a malformed escape or a charset other than UTF-8.
    #[error("it is a form with a malformed escape, or not in UTF-8")]
    NotAForm,
    /// The content type is multipart, and the body can be divided in more than one way.
    #[error("it is not plainly divided into parts")]
    NotOnlyParts,
}

impl CanonicalBody<'_> {
    /// Returns the bytes to hash.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Json(canonical) | Self::Form(canonical) | Self::Multipart(canonical) => canonical,
            Self::Raw(body, _) => body,
        }
    }

    /// Returns the tag of this variant. It keeps a raw body from matching the canonical form of another.
    fn tag(&self) -> &'static [u8] {
        match self {
            Self::Json(_) => b"json",
            Self::Form(_) => b"form",
            Self::Multipart(_) => b"multipart",
            Self::Raw(..) => b"raw",
        }
    }
}

/// Appends a field with its length.
fn append(text: &mut Vec<u8>, field: &[u8]) {
    text.extend((field.len() as u64).to_be_bytes());
    text.extend(field);
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

/// Displays bytes in lower-case hexadecimal.
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
    fn a_fingerprint_is_compared_in_the_version_of_the_record() {
        let version = FingerprintVersion::CURRENT;
        assert_eq!(FingerprintVersion::of_new_records(Formats::CURRENT), version);
        assert_eq!(FingerprintVersion::of_new_records(Formats::OLDEST), FingerprintVersion::V1);
        assert_eq!(FingerprintVersion::from_number(version.number()), Some(version));
        assert_eq!(FingerprintVersion::from_number(0), None);

        let one = |version, byte| Fingerprint::from_parts(FingerprintVersion(version), [byte; 32]);
        let request = one(2, 20).with_other(one(1, 10));
        for (recorded, expected) in [
            (one(2, 20), Some(true)),
            (one(2, 10), Some(false)),
            (one(1, 10), Some(true)),
            (one(1, 20), Some(false)),
            (one(3, 20), None),
        ] {
            assert_eq!(request.is_that_of(&recorded), expected, "{recorded}");
        }
        assert_eq!(request.recorded(), one(2, 20));
    }
}
