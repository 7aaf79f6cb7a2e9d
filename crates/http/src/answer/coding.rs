//! Content codings of replays: a stored body is given only to a client that accepts its coding (RFC 9110, section 12.5.3).
//!
//! `execute.rs` asks a handler for a body without a coding, since a retry may accept other codings than the
//! first request did. This file is for handlers that still apply one.

use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderValue, VARY};

/// The `Accept-Encoding` of a request, if it has one.
#[derive(Clone, Debug)]
pub(crate) struct Accepted(Option<HeaderValue>);

impl Accepted {
    /// Returns the codings that a request with this head accepts.
    pub(crate) fn of(headers: &HeaderMap) -> Accepted {
        let mut lines = headers.get_all(ACCEPT_ENCODING).iter();
        let first = lines.next().cloned();
        Accepted(lines.fold(first, |joined, line| {
            let bytes =
                [joined.as_ref().map_or(&b""[..], HeaderValue::as_bytes), b",", line.as_bytes()].concat();
            HeaderValue::from_bytes(&bytes).ok()
        }))
    }

    /// Returns true if the client accepts all codings of this head.
    pub(crate) fn allows_all(&self, head: &HeaderMap) -> bool {
        codings(head).all(|coding| self.allows(coding))
    }

    /// Returns true if the client accepts this coding. Without the field, it accepts any.
    fn allows(&self, coding: &str) -> bool {
        let Some(line) = &self.0 else { return true };
        let offers = line.to_str().unwrap_or_default().split(',').map(offer);
        let mut any_other = false;
        for (name, is_wanted) in offers {
            if is_same(name, coding) {
                return is_wanted;
            }
            any_other |= name == "*" && is_wanted;
        }
        any_other
    }
}

/// Returns a coding of a list, and false if its weight is zero: the client does not accept it.
fn offer(element: &str) -> (&str, bool) {
    let (name, parameters) = element.split_once(';').unwrap_or((element, ""));
    let weight =
        parameters.trim().strip_prefix(['q', 'Q']).and_then(|rest| rest.trim_start().strip_prefix('='));
    let is_zero = weight.is_some_and(|weight| weight.trim().parse() == Ok(0.0_f32));
    (name.trim(), !is_zero)
}

/// Compares two names, which ignore case; two of them have older spellings (RFC 9110, section 8.4.1).
fn is_same(one: &str, other: &str) -> bool {
    let plain = |name: &str| {
        let name = name.to_ascii_lowercase();
        match name.as_str() {
            "x-gzip" => "gzip".to_owned(),
            "x-compress" => "compress".to_owned(),
            _ => name,
        }
    };
    plain(one) == plain(other)
}

/// Returns true for a body with a content coding.
pub(crate) fn is_coded(head: &HeaderMap) -> bool {
    codings(head).next().is_some()
}

/// Returns the codings of a body, without `identity`, which is none.
fn codings(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(CONTENT_ENCODING).iter();
    // A field that cannot be read is a coding that no client accepts.
    let names = lines.flat_map(|line| line.to_str().unwrap_or("?").split(',')).map(str::trim);
    names.filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("identity"))
}

/// Adds `Accept-Encoding` to the `Vary` of a response.
pub(crate) fn vary(headers: &mut HeaderMap) {
    let is_named = |line: &HeaderValue| {
        let line = line.to_str().unwrap_or_default().to_ascii_lowercase();
        line.split(',').any(|name| ["accept-encoding", "*"].contains(&name.trim()))
    };
    if !headers.get_all(VARY).iter().any(is_named) {
        headers.append(VARY, HeaderValue::from_static("accept-encoding"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(lines: &[&'static str], coding: &str) -> bool {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(ACCEPT_ENCODING, HeaderValue::from_static(line));
        }
        Accepted::of(&headers).allows(coding)
    }

    #[test]
    fn a_coding_is_accepted_if_it_is_named_or_any_is() {
        assert!(allows(&[], "gzip"), "who says nothing takes any");
        for lines in [
            &["gzip"][..],
            &["br, GZIP;q=0.5"],
            &["identity", "gzip"],
            &["*"],
            &["br;q=0, *;q=0.1"],
            &["x-gzip"],
        ] {
            assert!(allows(lines, "gzip"), "{lines:?}");
        }
        for lines in [
            &[""][..],
            &["identity"],
            &["br"],
            &["gzip;q=0"],
            &["gzip; Q=0.000, *"],
            &["*;q=0"],
            &["identity", "gzip;q=0"],
        ] {
            assert!(!allows(lines, "gzip"), "{lines:?}");
        }
        assert!(allows(&["gzip"], "X-Gzip") && !allows(&["gzip"], "gzi"));
    }

    #[test]
    fn the_identity_content_coding_is_ignored() {
        let headers = |line: &'static str| {
            let mut headers = HeaderMap::new();
            headers.append(CONTENT_ENCODING, HeaderValue::from_static(line));
            headers
        };
        assert_eq!(codings(&headers("identity, ")).count(), 0);
        assert_eq!(codings(&headers("identity, gzip ,br")).collect::<Vec<_>>(), ["gzip", "br"]);
    }
}
