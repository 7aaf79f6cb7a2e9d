//! What a proxy does to header fields: RFC 9110, section 7.6, and RFC 7239.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue,
    TE, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{Version, request};
use semel_core::Principal;
use semel_http::Execution;
use semel_stores::api_keys::KEY_PREFIX;

use crate::hosts::ServiceHosts;
use crate::identity::API_KEY;
use crate::proxy::{Encrypted, Peer};

/// Fields that belong to one connection, whether or not `Connection` names them.
const HOP_BY_HOP: [HeaderName; 6] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Makes a request's head ready for the upstream.
pub fn request(parts: &mut request::Parts, execution: Option<&Execution>, hosts: &ServiceHosts) {
    if parts.headers.keys().any(is_of_one_hop) {
        let trailers = accepts_trailers(&parts.headers);
        let upgrade = upgrade_of(&parts.headers);
        remove_hop_by_hop(&mut parts.headers);
        if trailers {
            parts.headers.insert(TE, HeaderValue::from_static("trailers"));
            append(&mut parts.headers, CONNECTION, "te");
        }
        if let (Some(upgrade), None) = (upgrade, execution) {
            parts.headers.insert(UPGRADE, upgrade);
            append(&mut parts.headers, CONNECTION, "upgrade");
        }
    }
    // Our own server has asked the client to go on already.
    parts.headers.remove(EXPECT);
    remove_own_credentials(&mut parts.headers);
    if !parts.headers.contains_key(HOST)
        && let Some(authority) = parts.uri.authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        parts.headers.insert(HOST, host);
    }
    let scheme = if parts.extensions.get::<Encrypted>().is_some() { "https" } else { "http" };
    let node = parts.extensions.get().map_or("unknown", Peer::node);
    if let Ok(forwarded) = forwarded(node, parts.headers.get(HOST), scheme).try_into() {
        parts.headers.append(FORWARDED, forwarded);
    }
    hosts.name(&mut parts.headers);
    parts.headers.append(VIA, via(parts.version));
    if let Some(execution) = execution {
        name_execution(&mut parts.headers, execution);
    }
}

/// Makes a response's head ready for the client.
pub fn response(headers: &mut HeaderMap, version: Version, upgrades: bool) {
    if headers.keys().any(is_of_one_hop) {
        let upgrade = headers.get(UPGRADE).cloned();
        if headers.contains_key(TRANSFER_ENCODING) {
            // The coding decides where the body ends (RFC 9112, section 6.3); a length beside it is wrong or a trap.
            headers.remove(CONTENT_LENGTH);
        }
        remove_hop_by_hop(headers);
        if let (true, Some(upgrade)) = (upgrades, upgrade) {
            headers.insert(UPGRADE, upgrade);
            append(headers, CONNECTION, "upgrade");
        }
    }
    headers.append(VIA, via(version));
}

/// The protocol that the request wants to switch to. Never to HTTP/2: commands in such a tunnel would pass us by.
fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let asked = tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"));
    let http = |token: &str| {
        let name = token.split('/').next().unwrap_or_default();
        ["h2c", "h2", "http", "tls"].iter().any(|known| name.eq_ignore_ascii_case(known))
    };
    let tunnels_commands = tokens(headers, &UPGRADE).any(http);
    headers.get(UPGRADE).filter(|_| asked && !tunnels_commands).cloned()
}

/// Keys that we issued let somebody in here, and are nobody else's business.
pub fn remove_own_credentials(headers: &mut HeaderMap) {
    for name in [AUTHORIZATION, API_KEY] {
        let ours = |value: &HeaderValue| value.to_str().is_ok_and(|text| text.contains(KEY_PREFIX));
        if headers.get_all(&name).iter().any(ours) {
            headers.remove(name);
        }
    }
}

fn accepts_trailers(headers: &HeaderMap) -> bool {
    tokens(headers, &TE).any(|token| token.eq_ignore_ascii_case("trailers"))
}

fn is_of_one_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(name)
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = tokens(headers, &CONNECTION)
        .filter_map(|token| HeaderName::try_from(token).ok())
        .filter(|name| !is_end_to_end(name))
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Fields that no connection may claim for itself: what was decided on them would not be what is passed on.
pub fn is_end_to_end(name: &HeaderName) -> bool {
    const NAMES: [&str; 10] = [
        "authorization",
        "cookie",
        "date",
        "forwarded",
        "host",
        "idempotency-key",
        "location",
        "set-cookie",
        "trailer",
        "via",
    ];
    let name = name.as_str();
    NAMES.contains(&name)
        || name.starts_with("content-")
        || name.starts_with("semel-")
        || name.starts_with("x-")
}

/// What a head says in a list.
pub fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter();
    values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).map(str::trim)
}

/// Whether a body comes in chunks, of which the last says that it is the last.
pub fn is_chunked(headers: &HeaderMap) -> bool {
    tokens(headers, &TRANSFER_ENCODING).last().is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
}

fn via(version: Version) -> HeaderValue {
    HeaderValue::from_static(if version == Version::HTTP_2 { "2 semel" } else { "1.1 semel" })
}

/// `for=192.0.2.1;host="example.com";proto=http`
fn forwarded(node: &str, host: Option<&HeaderValue>, scheme: &str) -> String {
    let plain = |host: &&str| !host.contains(['"', '\\']);
    match host.and_then(|host| host.to_str().ok()).filter(plain) {
        Some(host) => ["for=", node, ";host=\"", host, "\";proto=", scheme].concat(),
        None => ["for=", node, ";proto=", scheme].concat(),
    }
}

/// Adds a line after those that are there: who came first stays first.
fn append(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.append(name, value);
    }
}

/// Tells the upstream which operation it carries out, and for whom.
fn name_execution(headers: &mut HeaderMap, execution: &Execution) {
    let fields = [
        ("semel-operation-id", execution.operation_id().to_string()),
        ("semel-attempt", execution.attempt().to_string()),
    ];
    insert(headers, fields);
    name_caller(headers, execution.principal());
}

/// Tells the upstream for whom it is asked.
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
    use super::*;
    use crate::hosts::ServiceHost;

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

    fn listed() -> ServiceHosts {
        ServiceHosts::new(vec![ServiceHost::parse("api.example").expect("it is a host")])
    }

    #[test]
    fn fields_of_one_connection_stay_on_it() {
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
        request(&mut parts, None, &listed());
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
        parts.extensions.insert(Encrypted);
        request(&mut parts, None, &listed());
        assert_eq!(text(&parts.headers, "forwarded"), ["for=unknown;host=\"api.example\";proto=https"]);
    }

    #[test]
    fn a_length_beside_a_transfer_coding_is_not_passed_on() {
        let mut parts = parts(&[("transfer-encoding", "chunked"), ("content-length", "3")]);
        response(&mut parts.headers, Version::HTTP_11, false);
        assert!(!parts.headers.contains_key("content-length"));
    }

    #[test]
    fn who_came_first_stays_first() {
        let mut parts = parts(&[("via", "1.0 older"), ("forwarded", "for=198.51.100.7")]);
        parts.extensions.insert(Peer::new("2001:db8::1".parse().expect("it is an address")));
        request(&mut parts, None, &listed());
        assert_eq!(text(&parts.headers, "via"), ["1.0 older", "1.1 semel"]);
        assert_eq!(
            text(&parts.headers, "forwarded"),
            ["for=198.51.100.7", "for=\"[2001:db8::1]\";proto=http"]
        );
    }

    #[test]
    fn an_upgrade_and_trailers_are_asked_for_on_the_next_connection_too() {
        let mut parts =
            parts(&[("connection", "Upgrade, TE"), ("upgrade", "websocket"), ("te", "gzip, Trailers")]);
        request(&mut parts, None, &listed());
        assert_eq!(text(&parts.headers, "upgrade"), ["websocket"]);
        assert_eq!(text(&parts.headers, "te"), ["trailers"]);
        assert_eq!(text(&parts.headers, "connection"), ["te", "upgrade"]);
        let not_asked = self::parts(&[("upgrade", "websocket")]);
        assert_eq!(upgrade_of(&not_asked.headers), None);
        for tunnel in ["h2c", "H2C", "websocket, h2c", "HTTP/2.0", "TLS/1.0"] {
            let asked = self::parts(&[("connection", "upgrade"), ("upgrade", tunnel)]);
            assert_eq!(upgrade_of(&asked.headers), None, "{tunnel}");
        }
    }

    #[test]
    fn our_own_keys_are_not_passed_on() {
        let mut parts = parts(&[("authorization", "Bearer semel_abc"), ("x-api-key", "semel_abc")]);
        request(&mut parts, None, &listed());
        assert!(!parts.headers.contains_key("authorization") && !parts.headers.contains_key("x-api-key"));
        let mut others = self::parts(&[("authorization", "Bearer somebody's"), ("x-api-key", "theirs")]);
        request(&mut others, None, &listed());
        assert!(others.headers.contains_key("authorization") && others.headers.contains_key("x-api-key"));
    }
}
