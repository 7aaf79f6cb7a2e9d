//! Names of operations. They are part of a record's scope, so the rule that generates one is frozen.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::fingerprint::Hex;
use crate::path::one_form;
use crate::route::RoutePath;

/// The name of an operation, such as `payments.create` or, without a rule, `POST /payments/{id}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OperationName(Arc<str>);

/// Reason why a text cannot name an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OperationNameError {
    /// The name is empty.
    #[error("an operation's name is empty")]
    Empty,
    /// The name is longer than [`OperationName::MAX_BYTES`].
    #[error("an operation's name is longer than {} bytes", OperationName::MAX_BYTES)]
    TooLong,
    /// The name holds a control character.
    #[error("an operation's name holds a control character")]
    ControlCharacter,
}

impl OperationName {
    /// Longest name, so that it fits an indexed column of every store.
    pub const MAX_BYTES: usize = 255;

    /// The label of metrics that names of commands without a matching rule share.
    pub const UNMATCHED: &str = "unmatched";

    /// Returns a configured name.
    ///
    /// # Errors
    /// If it is empty, too long, or holds a control character.
    pub fn new(name: &str) -> Result<Self, OperationNameError> {
        if name.is_empty() {
            Err(OperationNameError::Empty)
        } else if name.len() > Self::MAX_BYTES {
            Err(OperationNameError::TooLong)
        } else if name.contains(char::is_control) {
            Err(OperationNameError::ControlCharacter)
        } else {
            Ok(Self(name.into()))
        }
    }

    /// Returns the name of a command without a matching rule: its method and path, with `{id}` for each
    /// segment that looks like an identifier (all digits, a UUID, a ULID, or 16 or more hex digits).
    pub fn unmatched(method: &str, path: &str) -> Self {
        let (path, _query) = path.split_once(['?', '#']).unwrap_or((path, ""));
        let path = one_form(path);
        let mut name = String::with_capacity(method.len() + 1 + path.len());
        name.push_str(method);
        let mut between = ' ';
        for segment in path.split('/') {
            name.push(between);
            name.push_str(if is_identifier(segment) { "{id}" } else { segment });
            between = '/';
        }
        Self(bounded(encode_controls(name)).into())
    }

    /// Returns the name as a label of metrics. Names in the form of [`unmatched`](Self::unmatched) have no bound on their number,
    /// and share one label.
    pub fn label(&self) -> &str {
        let has_path = self.0.split_once(' ').is_some_and(|(_, path)| path.starts_with('/'));
        if has_path || is_truncated(&self.0) { Self::UNMATCHED } else { &self.0 }
    }

    /// Returns the name in the form of [`unmatched`](Self::unmatched) if it is a method and a path such as
    /// `POST /payments/{id}`; any other name unchanged. Two former names with one form are equal.
    pub fn as_former(&self) -> Self {
        let of_route = || {
            let (method, path) = self.0.split_once(' ')?;
            let is_method = !method.is_empty() && method.bytes().all(|b| b.is_ascii_uppercase() || b == b'-');
            // A truncated name ends in a hash.
            let path = RoutePath::parse(path).ok().filter(|_| is_method && !path.contains(['#', '?']))?;
            Self::new(&format!("{method} {path}")).ok()
        };
        of_route().unwrap_or_else(|| self.clone())
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OperationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_identifier(segment: &str) -> bool {
    let bytes = segment.as_bytes();
    let all_digits = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    let long_hex = bytes.len() >= 16 && bytes.iter().all(u8::is_ascii_hexdigit);
    all_digits || long_hex || is_uuid(segment) || is_ulid(bytes)
}

fn is_uuid(segment: &str) -> bool {
    let lengths = segment.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && segment.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit())
}

/// Returns true for a ULID. Crockford's base 32 leaves out I, L, O and U; 26 characters hold 130 bits, of
/// which a ULID uses 128.
fn is_ulid(segment: &[u8]) -> bool {
    segment.len() == 26
        && matches!(segment[0], b'0'..=b'7')
        && segment.iter().all(|b| b.is_ascii_alphanumeric() && !b"ILOU".contains(&b.to_ascii_uppercase()))
}

/// Percent-encodes control characters. An HTTP path has none; if a caller passes some, they must not reach a
/// log or a label.
fn encode_controls(name: String) -> String {
    if !name.contains(char::is_control) {
        return name;
    }
    let mut encoded = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_control() {
            let mut utf8 = [0; 4];
            let bytes = c.encode_utf8(&mut utf8).bytes();
            encoded.extend(bytes.map(|byte| format!("%{byte:02X}")));
        } else {
            encoded.push(c);
        }
    }
    encoded
}

/// Truncates a name that is too long and appends the hash of the whole, so that two long names stay distinct.
/// A name that was not truncated has no `#` after its method, and so never equals one that was.
fn bounded(name: String) -> String {
    if name.len() <= OperationName::MAX_BYTES {
        return name;
    }
    let suffix = format!("#{}", Hex(&Sha256::digest(&name)));
    let prefix = &name[..name.floor_char_boundary(OperationName::MAX_BYTES - suffix.len())];
    format!("{prefix}{suffix}")
}

/// Returns true for a name that [`bounded`] has truncated: it ends in a hash.
fn is_truncated(name: &str) -> bool {
    let hash = name.rsplit_once('#').map_or("", |(_, hash)| hash);
    hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unmatched(path: &str) -> String {
        OperationName::unmatched("POST", path).to_string()
    }

    #[test]
    fn identifiers_become_placeholders() {
        for id in [
            "7",
            "00123",
            "0d5c8b1e-2f4a-4c6b-9d3e-7a1f2b3c4d5e",
            "0D5C8B1E-2F4A-4C6B-9D3E-7A1F2B3C4D5E",
            "01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "01arz3ndektsv4rrffq69g5fav",
            "0123456789abcdef",
            "DEADBEEFDEADBEEFDEADBEEF",
        ] {
            assert_eq!(unmatched(&format!("/payments/{id}/refunds")), "POST /payments/{id}/refunds", "{id}");
        }
    }

    #[test]
    fn path_segments_that_are_no_ids_stay_in_the_operation_name() {
        for path in [
            "/",
            "/v1/payments",
            "/a//b/",
            "/0123456789abcde",
            "/0d5c8b1e-2f4a-4c6b-9d3e-7a1f2b3c4d5",
            "/0d5c8b1e-2f4a-4c6b-9d3e-7a1f2b3c4d5g",
            "/81ARZ3NDEKTSV4RRFFQ69G5FAV",
            "/01ARZ3NDEKTSV4RRFFQ69G5FAU",
            "/01ARZ3NDEKTSV4RRFFQ69G5FA",
            "/01ARZ3NDEKTSV4RRFFQ69G5FAVV",
            "/٣٤",
        ] {
            assert_eq!(unmatched(path), format!("POST {path}"));
        }
    }

    #[test]
    fn the_query_is_no_part_of_the_name() {
        assert_eq!(unmatched("/a?b=/c"), "POST /a");
        assert_eq!(unmatched("/a#b"), "POST /a");
    }

    #[test]
    fn control_characters_are_percent_encoded() {
        assert_eq!(unmatched("/a\nb\u{7f}\u{85}"), "POST /a%0Ab%7F%C2%85");
    }

    #[test]
    fn long_names_are_cut_and_stay_distinct() {
        let fits = format!("/{}", "z".repeat(OperationName::MAX_BYTES - "POST /".len()));
        assert_eq!(unmatched(&fits), format!("POST {fits}"));

        let one = unmatched(&format!("{fits}b"));
        let other = unmatched(&format!("{fits}c"));
        assert_ne!(one, other);
        for name in [&one, &other] {
            assert_eq!(name.len(), OperationName::MAX_BYTES);
            assert_eq!(OperationName::new(name).map(|valid| valid.to_string()).as_ref(), Ok(name));
        }

        for shift in 0..4 {
            let path = format!("/{}{}", "a".repeat(shift), "😀".repeat(100));
            assert!(unmatched(&path).len() <= OperationName::MAX_BYTES);
        }
    }

    #[test]
    fn names_of_a_method_and_a_path_share_a_label() {
        let long = "M".repeat(300);
        for (method, path) in
            [("POST", "/"), ("POST", "/payments/7"), (&*long, "/"), ("POST", &*format!("/{long}"))]
        {
            assert_eq!(OperationName::unmatched(method, path).label(), OperationName::UNMATCHED, "{path}");
        }
        for name in ["payments.create", "create a payment", "/payments", "payments#7"] {
            assert_eq!(OperationName::new(name).as_ref().map(OperationName::label), Ok(name));
        }
    }

    #[test]
    fn a_configured_name_is_checked() {
        assert_eq!(
            OperationName::new("payments.create").map(|name| name.to_string()),
            Ok("payments.create".into())
        );
        assert_eq!(OperationName::new(""), Err(OperationNameError::Empty));
        assert_eq!(OperationName::new("a\tb"), Err(OperationNameError::ControlCharacter));
        assert!(OperationName::new(&"a".repeat(255)).is_ok());
        assert_eq!(OperationName::new(&"a".repeat(256)), Err(OperationNameError::TooLong));
    }
}
