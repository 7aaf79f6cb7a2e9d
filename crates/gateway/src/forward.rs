//! Header fields of forwarded messages: RFC 9110, section 7.6.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TE,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{Version, request};
use semel_core::Principal;
use semel_core::fields::{self, Section};
use semel_http::Execution;
use semel_stores::api_keys::KEY_PREFIX;

use crate::forwarding::Forwarding;
use crate::identity::keys::API_KEY;
use crate::upgrade::Handshake;

/// Prepares the head of a request for the upstream.
pub fn request(
    parts: &mut request::Parts,
    execution: Option<&Execution>,
    handshake: Option<&Handshake>,
    forwarding: &Forwarding,
) {
    let trailers = accepts_trailers(&parts.headers);
    // `Expect` is one of them: the gateway's own server has already answered it.
    fields::remove_hop_by_hop(&mut parts.headers, Section::RequestHead);
    if trailers {
        parts.headers.insert(TE, HeaderValue::from_static("trailers"));
        append(&mut parts.headers, CONNECTION, "te");
    }
    if let Some(handshake) = handshake {
        parts.headers.insert(UPGRADE, handshake.protocol());
        append(&mut parts.headers, CONNECTION, "upgrade");
    }
    remove_own_credentials(&mut parts.headers);
    if !parts.headers.contains_key(HOST)
        && let Some(authority) = parts.uri.authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        parts.headers.insert(HOST, host);
    }
    forwarding.write(parts);
    parts.headers.append(VIA, via(parts.version));
    if let Some(execution) = execution {
        name_execution(&mut parts.headers, execution);
    }
}

/// Prepares the head of a response for the client.
pub fn response(headers: &mut HeaderMap, version: Version, handshake: Option<&Handshake>) {
    if headers.contains_key(TRANSFER_ENCODING) {
        // The coding decides where the body ends (RFC 9112, section 6.3); a length beside it is wrong or an
        // attack.
        headers.remove(CONTENT_LENGTH);
    }
    fields::remove_hop_by_hop(headers, Section::ResponseHead);
    normalize_length(headers);
    if let Some(handshake) = handshake {
        headers.insert(UPGRADE, handshake.protocol());
        append(headers, CONNECTION, "upgrade");
    }
    headers.append(VIA, via(version));
}

/// Writes a length in its shortest form. hyper has checked that repeated lengths are equal.
fn normalize_length(headers: &mut HeaderMap) {
    let length = headers.get(CONTENT_LENGTH).and_then(|value| str::from_utf8(value.as_bytes()).ok());
    if let Some(length) = length.and_then(|digits| digits.trim().parse::<u64>().ok()) {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
}

/// Removes API keys of the gateway, which no upstream may see.
pub fn remove_own_credentials(headers: &mut HeaderMap) {
    for name in [AUTHORIZATION, API_KEY] {
        let ours =
            |value: &HeaderValue| memchr::memmem::find(value.as_bytes(), KEY_PREFIX.as_bytes()).is_some();
        if headers.get_all(&name).iter().any(ours) {
            headers.remove(name);
        }
    }
}

fn accepts_trailers(headers: &HeaderMap) -> bool {
    fields::elements(headers, &TE).any(|element| element.eq_ignore_ascii_case(b"trailers"))
}

/// Returns true if a body is chunked, so that its last chunk marks its end.
pub fn is_chunked(headers: &HeaderMap) -> bool {
    let last = fields::elements(headers, &TRANSFER_ENCODING).last();
    last.is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"))
}

fn via(version: Version) -> HeaderValue {
    HeaderValue::from_static(if version == Version::HTTP_2 { "2 semel" } else { "1.1 semel" })
}

/// Appends a line after the existing ones, which keeps their order.
fn append(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.append(name, value);
    }
}

/// Adds the fields that name the operation and its caller to the upstream.
fn name_execution(headers: &mut HeaderMap, execution: &Execution) {
    let fields = [
        ("semel-operation-id", execution.operation_id().to_string()),
        ("semel-attempt", execution.attempt().to_string()),
    ];
    insert(headers, fields);
    name_caller(headers, execution.principal());
}

/// Adds the fields that name the caller to the upstream.
pub fn name_caller(headers: &mut HeaderMap, principal: &Principal) {
    let fields =
        [("semel-tenant", principal.tenant().to_owned()), ("semel-caller", principal.caller().to_owned())];
    insert(headers, fields);
}

fn insert(headers: &mut HeaderMap, fields: [(&'static str, String); 2]) {
    for (name, value) in fields {
        if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::hosts::ServiceHosts;
    use crate::peer::{OverTls, Peer};
    use semel_settings::{ForwardedMode, ServiceHost};

    fn parts(lines: &[(&'static str, &'static str)]) -> request::Parts {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        for (name, value) in lines {
            parts.headers.append(*name, HeaderValue::from_static(value));
        }
        parts
    }

    fn text<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
        headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect()
    }

    fn listed() -> Forwarding {
        let hosts = ServiceHosts::new(vec![ServiceHost::parse("api.example").expect("it is a host")]);
        Forwarding::new(ForwardedMode::Set, Vec::new(), Arc::new(hosts))
    }

    #[test]
    fn hop_by_hop_request_fields_are_not_forwarded() {
        let mut parts = parts(&[
            ("host", "api.example"),
            ("connection", "close, Private, Idempotency-Key, Host"),
            ("private", "1"),
            ("idempotency-key", "k"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("expect", "100-continue"),
            ("x-kept", "1"),
        ]);
        parts.extensions.insert(Peer::new([192, 0, 2, 1].into()));
        request(&mut parts, None, None, &listed());
        for gone in ["connection", "private", "keep-alive", "transfer-encoding", "expect"] {
            assert!(!parts.headers.contains_key(gone), "{gone}");
        }
        assert_eq!(text(&parts.headers, "x-kept"), ["1"]);
        assert_eq!(text(&parts.headers, "idempotency-key"), ["k"], "no connection may claim it");
        assert_eq!(text(&parts.headers, "host"), ["api.example"]);
        assert_eq!(text(&parts.headers, "via"), ["1.1 semel"]);
        assert_eq!(text(&parts.headers, "forwarded"), ["for=192.0.2.1;host=\"api.example\";proto=http"]);
    }

    #[test]
    fn the_upstream_learns_whether_the_client_came_over_tls() {
        let mut parts = parts(&[("host", "api.example")]);
        parts.extensions.insert(OverTls);
        request(&mut parts, None, None, &listed());
        assert_eq!(text(&parts.headers, "forwarded"), ["for=unknown;host=\"api.example\";proto=https"]);
    }

    #[test]
    fn a_length_beside_a_transfer_coding_is_not_passed_on() {
        let mut parts = parts(&[("transfer-encoding", "chunked"), ("content-length", "3")]);
        response(&mut parts.headers, Version::HTTP_11, None);
        assert!(!parts.headers.contains_key("content-length"));
    }

    #[test]
    fn appended_lines_keep_their_order() {
        let mut parts = parts(&[("via", "1.0 older")]);
        request(&mut parts, None, None, &listed());
        assert_eq!(text(&parts.headers, "via"), ["1.0 older", "1.1 semel"]);
    }

    #[test]
    fn an_admitted_upgrade_and_te_trailers_are_forwarded_upstream() {
        let mut parts =
            parts(&[("connection", "Upgrade, TE"), ("upgrade", "websocket"), ("te", "gzip, Trailers")]);
        let handshake = Handshake::for_tests();
        request(&mut parts, None, Some(&handshake), &listed());
        assert_eq!(text(&parts.headers, "upgrade"), ["websocket"]);
        assert_eq!(text(&parts.headers, "te"), ["trailers"]);
        assert_eq!(text(&parts.headers, "connection"), ["te", "upgrade"]);
        let mut not_admitted = self::parts(&[("connection", "upgrade"), ("upgrade", "websocket")]);
        request(&mut not_admitted, None, None, &listed());
        assert!(!not_admitted.headers.contains_key("upgrade"), "only what came in as a handshake");
    }

    #[test]
    fn a_length_is_passed_on_in_its_shortest_form() {
        let mut parts = parts(&[("content-length", "007")]);
        response(&mut parts.headers, Version::HTTP_11, None);
        assert_eq!(text(&parts.headers, "content-length"), ["7"]);
    }

    #[test]
    fn our_own_keys_are_found_in_values_that_are_no_text() {
        let mut parts = parts(&[]);
        let value = HeaderValue::from_bytes(b"Bearer semel_abc\xff").expect("it is a value");
        parts.headers.insert("authorization", value);
        request(&mut parts, None, None, &listed());
        assert!(!parts.headers.contains_key("authorization"));
    }

    #[test]
    fn our_own_keys_are_not_passed_on() {
        let mut parts = parts(&[("authorization", "Bearer semel_abc"), ("x-api-key", "semel_abc")]);
        request(&mut parts, None, None, &listed());
        assert!(!parts.headers.contains_key("authorization") && !parts.headers.contains_key("x-api-key"));
        let mut others = self::parts(&[("authorization", "Bearer somebody's"), ("x-api-key", "theirs")]);
        request(&mut others, None, None, &listed());
        assert!(others.headers.contains_key("authorization") && others.headers.contains_key("x-api-key"));
    }
}
