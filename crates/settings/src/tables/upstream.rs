//! The service behind the gateway: its address, its protocol, and the reuse of connections.

use http::Uri;
use http::uri::Scheme;

use crate::engine::kind::{ValueKind, ValueRefusal, Words, quoted};

/// Returns true if connections to the upstream are encrypted.
pub fn is_encrypted(upstream: &Uri) -> bool {
    upstream.scheme() == Some(&Scheme::HTTPS)
}

/// Returns the port of the upstream.
pub fn port_of(upstream: &Uri) -> u16 {
    upstream.port_u16().unwrap_or(if is_encrypted(upstream) { 443 } else { 80 })
}

/// Scheme and authority of the upstream only.
impl ValueKind for Uri {
    type Value = Uri;

    fn expected() -> String {
        "the address of an HTTP service, such as \"http://127.0.0.1:3000\"".to_owned()
    }

    fn parse(text: &str) -> Result<Uri, ValueRefusal> {
        let because = |reason: &str| ValueRefusal::Because(reason.to_owned());
        let uri: Uri = text.parse().map_err(|_| ValueRefusal::Unexpected)?;
        let Some(authority) = uri.authority() else { return Err(because("`http://` is missing")) };
        match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS => {}
            None if authority.as_str().contains('@') => return Err(because("`http://` is missing")),
            None => return Err(ValueRefusal::DidYouMean(format!("http://{authority}"))),
            Some(_) => return Err(ValueRefusal::Unexpected),
        }
        if authority.as_str().contains('@') {
            return Err(ValueRefusal::ReasonFirst("credentials do not belong in the address".to_owned()));
        }
        if authority.host().is_empty() {
            return Err(because("the host is missing"));
        }
        let port = &authority.as_str()[authority.host().len()..];
        if !port.is_empty() && authority.port_u16().is_none_or(|port| port == 0) {
            return Err(because("a port is a number from 1 to 65535"));
        }
        // `Uri` silently drops a fragment.
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() || text.contains('#') {
            return Err(because("a path or query is not supported: requests keep their own"));
        }
        Ok(uri)
    }

    fn show(value: &Uri) -> Option<String> {
        Some(quoted(value.to_string().trim_end_matches('/')))
    }
}

/// The protocol of the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamProtocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 without TLS, with prior knowledge.
    H2c,
    /// HTTP/2 over TLS.
    H2,
}

/// Reuse of a connection to the upstream after its first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamReuse {
    /// Reused for the same caller and the same purpose.
    Caller,
    /// Used for one request only.
    Never,
}

impl Words for UpstreamProtocol {
    const WORDS: &'static [(&'static str, Self)] =
        &[("http1", UpstreamProtocol::Http1), ("h2c", UpstreamProtocol::H2c), ("h2", UpstreamProtocol::H2)];
}

impl Words for UpstreamReuse {
    const WORDS: &'static [(&'static str, Self)] =
        &[("caller", UpstreamReuse::Caller), ("never", UpstreamReuse::Never)];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_with_or_without_a_port_is_an_upstream() {
        for (text, port) in [
            ("http://127.0.0.1:3000", 3000),
            ("http://[::1]:3000", 3000),
            ("http://api.internal", 80),
            ("http://api:80/", 80),
            ("https://api.internal", 443),
            ("https://api.internal:8443", 8443),
        ] {
            let uri = <Uri as ValueKind>::parse(text).ok().expect("it is an upstream");
            assert_eq!(Uri::show(&uri), Some(quoted(text.trim_end_matches('/'))));
            assert_eq!((port_of(&uri), is_encrypted(&uri)), (port, text.starts_with("https")));
        }
    }

    #[test]
    fn malformed_addresses_are_refused() {
        for text in [
            "",
            "/",
            "*",
            "api",
            "api:3000",
            "127.0.0.1:3000",
            "ftp://a",
            "https://",
            "https://a/b",
            "https://u:p@a",
            "http://",
            "http://:80",
            "http://a:",
            "http://a:0",
            "http://a:65536",
            "http://a:x",
            "http://u@a",
            "http://u:p@a",
            "http://a/b",
            "http://a?b",
            "http://a/?b",
            "http://a#b",
            "http://a b",
            "http://é",
        ] {
            assert!(<Uri as ValueKind>::parse(text).is_err(), "{text}");
        }
    }
}
