//! Fields that tell the upstream the origin of a request: `X-Forwarded-For`, `-Proto` and `-Host`, and
//! `Forwarded` (RFC 7239). `forward.rs` calls it for every forwarded request.
//!
//! Invariant: forwarding fields of a peer reach the upstream only if the peer is a trusted proxy; the address
//! of any other peer always does.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue};
use http::request;
use semel_core::fields;
use semel_settings::{ForwardedMode, ProxyRange};

use crate::hosts::ServiceHosts;
use crate::peer::{self, OverTls, Peer};

static FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// Field that tells the upstream the host that the client asked for.
pub const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Other fields by which proxies describe a client. The gateway writes none of them.
const OTHERS: [HeaderName; 5] = [
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("x-forwarded-server"),
    HeaderName::from_static("x-forwarded-ssl"),
    HeaderName::from_static("x-real-ip"),
];

/// Largest number of addresses from the end of `X-Forwarded-For` that `Forwarded` repeats.
const MAX_CHAIN: usize = 32;

/// Writes these fields for the upstream.
#[derive(Clone, Debug, Default)]
pub struct Forwarding {
    mode: ForwardedMode,
    trusted: Vec<ProxyRange>,
    hosts: Arc<ServiceHosts>,
}

impl Forwarding {
    /// Makes the writer for a service of these names behind these trusted proxies.
    pub fn new(mode: ForwardedMode, trusted: Vec<ProxyRange>, hosts: Arc<ServiceHosts>) -> Forwarding {
        Forwarding { mode, trusted, hosts }
    }

    /// Returns true if the peer at this address is a trusted proxy.
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|range| range.contains(address))
    }

    /// Returns the client's address: the peer's, or the last address named by trusted proxies that is not a
    /// proxy's.
    pub fn client(&self, peer: &Peer, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.address();
        let chain: Vec<&[u8]> = elements(headers).collect();
        for element in chain.into_iter().rev() {
            let named = str::from_utf8(element).ok().and_then(|text| text.parse::<IpAddr>().ok());
            match named {
                Some(named) if self.trusts(client) => client = named.to_canonical(),
                Some(_) | None => break,
            }
        }
        client
    }

    /// Writes the fields, and keeps `Host` only if the upstream is to see it.
    pub fn write(&self, parts: &mut request::Parts) {
        let peer = parts.extensions.get::<Peer>().cloned();
        let is_encrypted = parts.extensions.get::<OverTls>().is_some();
        let mode = match &peer {
            Some(peer) if self.trusts(peer.address()) => self.mode,
            Some(_) | None => ForwardedMode::Set,
        };
        let headers = &mut parts.headers;
        if mode != ForwardedMode::Keep {
            // A worker executes a command without its client's connection, and knows no protocol.
            let scheme = match (&peer, is_encrypted) {
                (_, true) => Some("https"),
                (Some(_), false) => Some("http"),
                (None, false) => None,
            };
            if mode == ForwardedMode::Set {
                OTHERS
                    .iter()
                    .chain([&FOR, &PROTO, &X_FORWARDED_HOST])
                    .for_each(|name| drop(headers.remove(name)));
            }
            self.say(headers, peer.as_ref(), scheme);
        }
        self.hosts.name(headers);
    }

    /// Adds the gateway's own entry to what is left of these fields.
    fn say(&self, headers: &mut HeaderMap, peer: Option<&Peer>, scheme: Option<&'static str>) {
        let chain = chain(headers);
        if let Some(peer) = peer {
            let address = peer.address().to_string();
            let line = elements(headers).chain([address.as_bytes()]).collect::<Vec<_>>().join(&b", "[..]);
            set(headers, FOR.clone(), &line);
        }
        if let Some(scheme) = scheme.filter(|_| !headers.contains_key(PROTO)) {
            headers.insert(PROTO, HeaderValue::from_static(scheme));
        }
        let named = headers.get(X_FORWARDED_HOST).is_some_and(|host| self.hosts.serves(host));
        if !named || headers.get_all(X_FORWARDED_HOST).iter().count() > 1 {
            match headers.get(HOST).cloned() {
                Some(host) => headers.insert(X_FORWARDED_HOST, host),
                None => headers.remove(X_FORWARDED_HOST),
            };
        }
        let own = element(peer, headers.get(HOST), scheme);
        // Most proxies leave a client's `Forwarded` unchanged: it is rebuilt from the other fields.
        let line = chain.iter().map(|node| format!("for={node}, ")).chain([own]).collect::<String>();
        set(headers, FORWARDED, line.as_bytes());
    }
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &[u8]) {
    match HeaderValue::from_bytes(value) {
        Ok(value) => drop(headers.insert(name, value)),
        Err(_) => drop(headers.remove(name)),
    }
}

fn elements(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    fields::elements(headers, &FOR).filter(|element| !element.is_empty())
}

/// Returns the addresses of `X-Forwarded-For` in the form of RFC 7239.
fn chain(headers: &HeaderMap) -> Vec<String> {
    let nodes = elements(headers).map(|element| {
        let address = str::from_utf8(element).ok().and_then(|text| text.parse::<IpAddr>().ok());
        address.map_or_else(|| "unknown".to_owned(), peer::node)
    });
    let mut nodes: Vec<String> = nodes.collect();
    nodes.split_off(nodes.len().saturating_sub(MAX_CHAIN))
}

/// Returns the gateway's own element of `Forwarded`, such as `for=192.0.2.1;host="example.com";proto=http`.
fn element(peer: Option<&Peer>, host: Option<&HeaderValue>, scheme: Option<&str>) -> String {
    let plain = |host: &&str| !host.contains(['"', '\\']);
    let host = host.and_then(|host| host.to_str().ok()).filter(plain);
    let host = host.map(|host| [";host=\"", host, "\""].concat()).unwrap_or_default();
    let proto = scheme.map(|scheme| [";proto=", scheme].concat()).unwrap_or_default();
    ["for=", peer.map_or("unknown", Peer::node), &host, &proto].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel_settings::ServiceHost;

    const PROXY: &str = "10.0.0.7";
    const CLIENT: &str = "192.0.2.1";

    /// Fields that a client may send, with or without a proxy.
    const SENT: [(&str, &str); 8] = [
        ("host", "api.example"),
        ("x-forwarded-for", "198.51.100.7, 203.0.113.9"),
        ("x-forwarded-for", "2001:db8::1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "shop.example"),
        ("x-forwarded-port", "443"),
        ("x-real-ip", "198.51.100.7"),
        ("forwarded", "for=6.6.6.6;host=\"evil.example\";proto=https"),
    ];

    fn forwarding(mode: ForwardedMode, hosts: &[&str]) -> Forwarding {
        let hosts = hosts.iter().map(|host| ServiceHost::parse(host).expect("it is a host")).collect();
        let trusted = vec![ProxyRange::new([10, 0, 0, 0].into(), 8)];
        Forwarding::new(mode, trusted, Arc::new(ServiceHosts::new(hosts)))
    }

    /// Returns the fields that the upstream gets, one line each.
    fn written(
        forwarding: &Forwarding,
        peer: Option<&str>,
        lines: &[(&'static str, &'static str)],
    ) -> Vec<String> {
        let (mut parts, ()) = http::Request::new(()).into_parts();
        for (name, value) in lines {
            parts.headers.append(*name, HeaderValue::from_static(value));
        }
        if let Some(peer) = peer {
            parts.extensions.insert(Peer::new(peer.parse().expect("it is an address")));
        }
        forwarding.write(&mut parts);
        let mut lines: Vec<String> = parts
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().expect("it is text")))
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn forwarded_fields_of_an_untrusted_client_are_replaced() {
        for mode in [ForwardedMode::Set, ForwardedMode::Append, ForwardedMode::Keep] {
            let fields = written(&forwarding(mode, &[]), Some(CLIENT), &SENT);
            let expected = [
                "forwarded: for=192.0.2.1;host=\"api.example\";proto=http",
                "x-forwarded-for: 192.0.2.1",
                "x-forwarded-host: api.example",
                "x-forwarded-proto: http",
            ];
            assert_eq!(fields, expected, "{mode:?}");
        }
    }

    #[test]
    fn forwarded_fields_of_a_trusted_proxy_follow_the_configured_mode() {
        let set = written(&forwarding(ForwardedMode::Set, &[]), Some(PROXY), &SENT);
        assert!(set.contains(&"x-forwarded-for: 10.0.0.7".to_owned()), "{set:?}");
        assert!(
            set.iter().all(|line| !line.contains("198.51.100.7") && !line.contains("6.6.6.6")),
            "{set:?}"
        );

        let appended = written(&forwarding(ForwardedMode::Append, &[]), Some(PROXY), &SENT);
        let forwarded = "forwarded: for=198.51.100.7, for=203.0.113.9, for=\"[2001:db8::1]\", \
                         for=10.0.0.7;host=\"api.example\";proto=http";
        let expected = [
            forwarded,
            "x-forwarded-for: 198.51.100.7, 203.0.113.9, 2001:db8::1, 10.0.0.7",
            "x-forwarded-host: shop.example",
            "x-forwarded-port: 443",
            "x-forwarded-proto: https",
            "x-real-ip: 198.51.100.7",
        ];
        assert_eq!(appended, expected);

        let kept = written(&forwarding(ForwardedMode::Keep, &[]), Some(PROXY), &SENT);
        let mut sent: Vec<_> = SENT[1..].iter().map(|(name, value)| format!("{name}: {value}")).collect();
        sent.sort();
        assert_eq!(kept, sent);
    }

    #[test]
    fn a_trusted_proxy_without_fields_is_named_as_the_client() {
        let lines = [("host", "api.example"), ("forwarded", "for=6.6.6.6")];
        let fields = written(&forwarding(ForwardedMode::Append, &[]), Some(PROXY), &lines);
        let expected = [
            "forwarded: for=10.0.0.7;host=\"api.example\";proto=http",
            "x-forwarded-for: 10.0.0.7",
            "x-forwarded-host: api.example",
            "x-forwarded-proto: http",
        ];
        assert_eq!(fields, expected);
    }

    #[test]
    fn a_forwarded_host_is_a_name_of_the_service_where_names_are_listed() {
        let listed = forwarding(ForwardedMode::Append, &["api.example", "shop.example"]);
        let has = |fields: &[String], line: &str| fields.iter().any(|field| field == line);
        let fields = written(&listed, Some(PROXY), &SENT);
        assert!(
            has(&fields, "x-forwarded-host: shop.example") && has(&fields, "host: api.example"),
            "{fields:?}"
        );
        for forged in [&["evil.example"][..], &["shop.example", "evil.example"]] {
            let lines: Vec<_> = forged.iter().map(|host| ("x-forwarded-host", *host)).collect();
            let fields = written(&listed, Some(PROXY), &[&SENT[..1], &lines].concat());
            assert!(has(&fields, "x-forwarded-host: api.example"), "{fields:?}");
        }
    }

    #[test]
    fn the_client_is_the_last_address_that_a_trusted_proxy_names() {
        let client = |peer: &str, chain: &'static str| {
            let headers = HeaderMap::from_iter([(FOR.clone(), HeaderValue::from_static(chain))]);
            let peer = Peer::new(peer.parse().expect("it is an address"));
            forwarding(ForwardedMode::Append, &[]).client(&peer, &headers).to_string()
        };
        assert_eq!(client(CLIENT, "198.51.100.7"), CLIENT);
        assert_eq!(client(PROXY, "6.6.6.6, 198.51.100.7"), "198.51.100.7");
        assert_eq!(client(PROXY, "198.51.100.7, 10.0.0.8"), "198.51.100.7");
        assert_eq!(client(PROXY, "198.51.100.7, evil"), PROXY);
        assert_eq!(client(PROXY, ""), PROXY);
    }

    #[test]
    fn a_command_without_a_connection_gets_a_host_but_no_client() {
        let fields = written(&forwarding(ForwardedMode::Append, &[]), None, &SENT);
        assert_eq!(fields, ["forwarded: for=unknown;host=\"api.example\"", "x-forwarded-host: api.example"]);
    }

    #[test]
    fn a_chain_is_bounded_and_holds_addresses_only() {
        let forwarding = forwarding(ForwardedMode::Append, &[]);
        let fields =
            written(&forwarding, Some(PROXY), &[("x-forwarded-for", "a\";for=6.6.6.6, _x, 10.1.1.1:80")]);
        assert!(
            fields[0].starts_with("forwarded: for=unknown, for=unknown, for=unknown, for=10.0.0.7"),
            "{fields:?}"
        );
        let many: &'static str = Box::leak(vec!["192.0.2.9"; 1000].join(",").into_boxed_str());
        let fields = written(&forwarding, Some(PROXY), &[("x-forwarded-for", many)]);
        assert_eq!(fields[0].matches("for=192.0.2.9").count(), MAX_CHAIN);
    }
}
