//! The one form of a path, used for matching, identification, authorisation, fingerprint and forwarding.
//! Pure.
//!
//! Invariant: two spellings that any careful reader takes for the same path have the same form. A path that
//! two readers may take for different ones has no form, unless its route allows that.

use std::borrow::Cow;
use std::fmt;

use thiserror::Error;

/// Prefix of paths that only Semel answers, in any spelling.
pub const RESERVED_PATH: &str = "/.well-known/semel/";

/// Part of a path that readers interpret differently, and that a route may allow (`allow`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathException {
    /// `%2E`, which some resolve as a dot. It never makes a dot segment.
    EncodedDot,
    /// `%2F`, which some take for the end of a segment.
    EncodedSlash,
    /// `%5C`, which some take for a slash.
    EncodedBackslash,
    /// `%25` before two hexadecimal digits, which some decode twice.
    EncodedPercent,
    /// `;`, behind which some expect parameters and drop them.
    Semicolon,
    /// Two slashes in a row, which some take for one.
    EmptySegment,
}

impl PathException {
    /// Every exception.
    pub const ALL: [PathException; 6] = [
        PathException::EncodedDot,
        PathException::EncodedSlash,
        PathException::EncodedBackslash,
        PathException::EncodedPercent,
        PathException::Semicolon,
        PathException::EmptySegment,
    ];

    /// Returns the exception's word in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            PathException::EncodedDot => "encoded-dot",
            PathException::EncodedSlash => "encoded-slash",
            PathException::EncodedBackslash => "encoded-backslash",
            PathException::EncodedPercent => "encoded-percent",
            PathException::Semicolon => "semicolon",
            PathException::EmptySegment => "empty-segment",
        }
    }

    const fn bit(self) -> u8 {
        match self {
            PathException::EncodedDot => 1,
            PathException::EncodedSlash => 2,
            PathException::EncodedBackslash => 4,
            PathException::EncodedPercent => 8,
            PathException::Semicolon => 16,
            PathException::EmptySegment => 32,
        }
    }
}

impl fmt::Display for PathException {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of exceptions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PathExceptions(u8);

impl PathExceptions {
    /// Returns true if the set contains this exception.
    pub const fn has(self, exception: PathException) -> bool {
        self.0 & exception.bit() != 0
    }

    /// Returns true if the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds an exception.
    pub fn add(&mut self, exception: PathException) {
        self.0 |= exception.bit();
    }

    /// Returns the first exception that `allowed` does not contain.
    pub(crate) fn beyond(self, allowed: PathExceptions) -> Option<PathException> {
        PathException::ALL.into_iter().find(|exception| self.has(*exception) && !allowed.has(*exception))
    }
}

impl FromIterator<PathException> for PathExceptions {
    fn from_iter<I: IntoIterator<Item = PathException>>(exceptions: I) -> PathExceptions {
        let mut set = PathExceptions::default();
        exceptions.into_iter().for_each(|exception| set.add(exception));
        set
    }
}

/// Reason why a path has no form. Its text is a sentence for the client that repeats nothing the client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum PathRefusal {
    /// The path does not begin with a slash.
    #[error("The path does not begin with a slash.")]
    NoSlash,
    /// The path has an unencoded control character, backslash or non-ASCII byte.
    #[error("The path has a byte that must be percent-encoded.")]
    Byte,
    /// The path has a `%` without two hexadecimal digits.
    #[error("The path has a malformed percent-encoding.")]
    Escape,
    /// The path has an escaped control character.
    #[error("The path has an encoded control character.")]
    Control,
    /// The path's escapes are not UTF-8.
    #[error("The path has a percent-encoding that is not UTF-8.")]
    NotUtf8,
    /// The path has a segment `.` or `..`, in any disguise.
    #[error("The path has a dot segment, which others may resolve.")]
    DotSegment,
    /// The path has a part that its route does not allow.
    #[error("The path has {}, which others may read in another way; its route does not allow it.", described(*.0))]
    NotAllowed(PathException),
}

const fn described(exception: PathException) -> &'static str {
    match exception {
        PathException::EncodedDot => "an encoded dot",
        PathException::EncodedSlash => "an encoded slash",
        PathException::EncodedBackslash => "an encoded backslash",
        PathException::EncodedPercent => "an encoding of an encoding",
        PathException::Semicolon => "a semicolon in a segment",
        PathException::EmptySegment => "an empty segment",
    }
}

/// A path in its one form, and the exceptions that it needs.
///
/// ```
/// use semel_core::path::{PathExceptions, RequestPath};
///
/// let path = RequestPath::read("/p%61yments/%c3%a9")?;
/// assert_eq!(path.admit(PathExceptions::default())?, "/payments/%C3%A9");
/// assert!(RequestPath::read("/a%2Fb")?.admit(PathExceptions::default()).is_err());
/// # Ok::<(), semel_core::path::PathRefusal>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestPath<'a> {
    text: Cow<'a, str>,
    needs: PathExceptions,
}

impl<'a> RequestPath<'a> {
    /// Parses a path as sent, without its query. Refuses what no route can allow.
    ///
    /// # Errors
    /// If the path has no form.
    pub fn read(path: &'a str) -> Result<RequestPath<'a>, PathRefusal> {
        if !path.starts_with('/') {
            return Err(PathRefusal::NoSlash);
        }
        let mut needs = PathExceptions::default();
        let text = spell(path, &mut needs)?;
        if text.contains("//") {
            needs.add(PathException::EmptySegment);
        }
        if has_dot_segments(&text) {
            return Err(PathRefusal::DotSegment);
        }
        Ok(RequestPath { text, needs })
    }

    /// Returns the form, if the path needs no exception beyond `allowed`.
    ///
    /// # Errors
    /// The first exception that is not allowed.
    pub fn admit(self, allowed: PathExceptions) -> Result<Cow<'a, str>, PathRefusal> {
        match self.needs.beyond(allowed) {
            None => Ok(self.text),
            Some(exception) => Err(PathRefusal::NotAllowed(exception)),
        }
    }

    /// Returns the form.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the exceptions that the path needs.
    pub fn needs(&self) -> PathExceptions {
        self.needs
    }
}

/// Returns the form of a path that has one; any other path unchanged. For comparison of paths that were
/// admitted elsewhere.
pub fn one_form(path: &str) -> Cow<'_, str> {
    match RequestPath::read(path) {
        Ok(RequestPath { text, .. }) => text,
        Err(_) => Cow::Borrowed(path),
    }
}

/// Spells every character of a path, or a part of one, in the one way.
pub(crate) fn spell<'a>(path: &'a str, needs: &mut PathExceptions) -> Result<Cow<'a, str>, PathRefusal> {
    if path.contains(';') {
        needs.add(PathException::Semicolon);
    }
    if path.bytes().all(is_plain) {
        return Ok(Cow::Borrowed(path));
    }
    let mut spelled = String::with_capacity(path.len() + 8);
    let mut decoded = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let escaped = escaped(bytes.next(), bytes.next())?;
                note(escaped, needs);
                push_escaped(&mut spelled, escaped);
                escaped
            }
            b'\\' | 0..=b' ' | 0x7f.. => return Err(PathRefusal::Byte),
            plain if is_plain(plain) => {
                spelled.push(char::from(plain));
                plain
            }
            // No reader interprets it unencoded, and some senders do not encode it.
            other => {
                push_escape(&mut spelled, other);
                other
            }
        };
        decoded.push(byte);
    }
    let decoded = str::from_utf8(&decoded).map_err(|_| PathRefusal::NotUtf8)?;
    if decoded.contains(char::is_control) {
        return Err(PathRefusal::Control);
    }
    if encodes_an_encoding(&spelled) {
        needs.add(PathException::EncodedPercent);
    }
    Ok(Cow::Owned(spelled))
}

fn escaped(high: Option<u8>, low: Option<u8>) -> Result<u8, PathRefusal> {
    let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
    let value = digit(high).zip(digit(low)).and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
    value.ok_or(PathRefusal::Escape)
}

fn note(escaped: u8, needs: &mut PathExceptions) {
    match escaped {
        b'.' => needs.add(PathException::EncodedDot),
        b'/' => needs.add(PathException::EncodedSlash),
        b'\\' => needs.add(PathException::EncodedBackslash),
        _ => {}
    }
}

/// Appends an escape in its one spelling. RFC 3986, sections 2.3 and 6.2.2: an unreserved character means the
/// same unencoded; others may not. A dot stays encoded, so that the form needs the same exceptions as the
/// path that was sent.
fn push_escaped(spelled: &mut String, escaped: u8) {
    if is_unreserved(escaped) && escaped != b'.' {
        spelled.push(char::from(escaped));
    } else {
        push_escape(spelled, escaped);
    }
}

fn push_escape(spelled: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    spelled.push('%');
    spelled.push(char::from(DIGITS[usize::from(byte >> 4)]));
    spelled.push(char::from(DIGITS[usize::from(byte & 15)]));
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Returns true for a character that needs no encoding in a path (RFC 3986, section 3.3).
fn is_plain(byte: u8) -> bool {
    is_unreserved(byte) || b"/!$&'()*+,;=:@".contains(&byte)
}

/// Returns true if a second decoding would find another escape.
fn encodes_an_encoding(spelled: &str) -> bool {
    spelled
        .as_bytes()
        .windows(5)
        .any(|part| part.starts_with(b"%25") && part[3].is_ascii_hexdigit() && part[4].is_ascii_hexdigit())
}

/// Returns true if a reader that decodes the path, drops parameters, or takes `\` for `/` would find `.` or
/// `..` in it.
pub fn has_dot_segments(path: &str) -> bool {
    // Nothing else decodes to a dot.
    if !path.contains(['.', '%']) {
        return false;
    }
    decoded(path)
        .split(['/', '\\'])
        .map(|segment| segment.split(';').next().unwrap_or_default())
        .any(|segment| segment == "." || segment == "..")
}

/// Returns the path as its most lenient reader has it, for comparison only: decoded as often as any reader
/// decodes, without parameters, empty segments and a slash at the end, in lower case.
pub fn loose(path: &str) -> String {
    let decoded = decoded(path);
    let mut loose = String::with_capacity(decoded.len());
    for segment in decoded.split(['/', '\\']) {
        let segment = segment.split(';').next().unwrap_or_default();
        if !segment.is_empty() {
            loose.push('/');
            loose.push_str(segment);
        }
    }
    if loose.is_empty() {
        loose.push('/');
    }
    loose.to_lowercase()
}

/// Returns true if any reader may take this for one of Semel's own paths.
pub fn is_reserved(path: &str) -> bool {
    // No other path is loosely reserved.
    let may_be = path.contains(['%', '\\', ';', '.']);
    may_be
        && loose(path)
            .strip_prefix("/.well-known/semel")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Decodes every escape twice: the next reader may decode, and so may the one after it.
fn decoded(path: &str) -> Cow<'_, str> {
    let mut decoded = Cow::Borrowed(path);
    for _ in 0..2 {
        if decoded.contains('%') {
            decoded = Cow::Owned(decode(&decoded));
        }
    }
    decoded
}

fn decode(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        let escape = match (first, after) {
            (b'%', [high, low, ..]) => escaped(Some(*high), Some(*low)).ok(),
            _ => None,
        };
        bytes.push(escape.unwrap_or(*first));
        rest = if escape.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
