//! Recognises the service's own addresses, so that their content may be fetched from the service. Pure.
//!
//! Invariant: the result is a path, which is only ever requested from the service itself. The host of an
//! address decides only if it is requested, never from where.

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

use crate::path::{RequestPath, is_reserved};

/// Returns the path of one of the service's own addresses: a path from the root, or an `http` or `https`
/// address at one of `hosts`. `None` for a foreign or ambiguous address.
pub fn own_path(address: &str, hosts: &[&str]) -> Option<PathAndQuery> {
    let address = address.split('#').next().unwrap_or_default();
    let path = if address.starts_with('/') {
        PathAndQuery::try_from(address).ok()?
    } else {
        let uri: Uri = address.parse().ok()?;
        let (scheme, authority) = (uri.scheme()?, uri.authority()?);
        if !hosts.iter().any(|host| is_at(scheme, authority, host)) {
            return None;
        }
        uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"))
    };
    // A host follows two slashes; any other doubtful address is the service's own, in its own spelling.
    let form = RequestPath::read(path.path()).ok()?;
    let text = form.as_str();
    if text.starts_with("//") || is_reserved(text) {
        return None;
    }
    match path.query() {
        Some(query) => PathAndQuery::try_from(format!("{text}?{query}")).ok(),
        None => PathAndQuery::try_from(text).ok(),
    }
}

/// Returns true if an address with this scheme and authority is at `host`, which may name a port.
fn is_at(scheme: &Scheme, authority: &Authority, host: &str) -> bool {
    let default_port = match scheme.as_str() {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let plain = |host: &str| {
        let host = host.to_ascii_lowercase();
        host.strip_suffix(default_port).map(str::to_owned).unwrap_or(host)
    };
    !authority.as_str().contains('@') && plain(authority.as_str()) == plain(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(address: &str) -> Option<String> {
        own_path(address, &["api.example", "127.0.0.1:3000"]).map(|path| path.to_string())
    }

    #[test]
    fn a_reference_accepts_paths_and_urls_of_its_own_hosts() {
        for (address, expected) in [
            ("/payments/1", "/payments/1"),
            ("/payments/1?full=yes#top", "/payments/1?full=yes"),
            ("http://api.example/payments/1", "/payments/1"),
            ("https://API.example/payments/1", "/payments/1"),
            ("https://api.example:443/payments/1", "/payments/1"),
            ("http://api.example:80/payments/1", "/payments/1"),
            ("http://127.0.0.1:3000/payments/1?a=b", "/payments/1?a=b"),
            ("http://api.example", "/"),
        ] {
            assert_eq!(path(address).as_deref(), Some(expected), "{address}");
        }
    }

    #[test]
    fn foreign_and_doubtful_addresses_are_refused() {
        for address in [
            "http://evil.example/payments/1",
            "http://api.example.evil/payments/1",
            "http://api.example:8080/payments/1",
            "http://api.example:443/payments/1",
            "http://127.0.0.1/payments/1",
            "http://api.example@evil.example/payments/1",
            "http://evil.example@api.example/payments/1",
            "ftp://api.example/payments/1",
            "file:///etc/passwd",
            "//evil.example/payments/1",
            "//api.example/payments/1",
            "/\\evil.example/payments/1",
            "http://api.example//evil.example/x",
            "/public/../admin",
            "/public/%2e%2e/admin",
            "http://api.example/public/..;/admin",
            "/.well-known/semel/operations/1",
            "payments/1",
            "../payments/1",
            "?id=1",
            "",
            "#top",
            "/pay ments",
            "/payments/\u{e9}\u{7f}",
        ] {
            assert_eq!(path(address), None, "{address:?}");
        }
    }
}
