//! The address of a service: scheme, host, port, path and query.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::Uri;
use http::uri::{PathAndQuery, Scheme};

/// An `http://` or `https://` address, without credentials and without a fragment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address(Uri);

/// The reason why a text is no [`Address`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The text is no URL.
    #[error("it is not a URL")]
    Malformed,
    /// The scheme is missing, or another one.
    #[error("it does not begin with http:// or https://")]
    Scheme,
    /// A user or a password stands before the host.
    #[error("credentials do not belong in the address")]
    Credentials,
    /// The host is empty.
    #[error("the host is missing")]
    Host,
    /// The port is no port.
    #[error("a port is a number from 1 to 65535")]
    Port,
    /// A fragment stands at the end.
    #[error("a fragment is never sent")]
    Fragment,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let uri: Uri = text.parse().map_err(|_| AddressError::Malformed)?;
        if !matches!(uri.scheme(), Some(scheme) if *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS) {
            return Err(AddressError::Scheme);
        }
        let authority = uri.authority().ok_or(AddressError::Host)?;
        if authority.as_str().contains('@') {
            return Err(AddressError::Credentials);
        }
        if authority.host().is_empty() {
            return Err(AddressError::Host);
        }
        let port = &authority.as_str()[authority.host().len()..];
        if !port.is_empty() && authority.port_u16().is_none_or(|port| port == 0) {
            return Err(AddressError::Port);
        }
        // `Uri` drops a fragment without a word.
        if text.contains('#') {
            return Err(AddressError::Fragment);
        }
        // A request line needs a path before the query.
        match uri.path_and_query().map(PathAndQuery::as_str) {
            Some(target) if target.starts_with('?') => {
                format!("{}/{target}", &text[..text.len() - target.len()]).parse()
            }
            _ => Ok(Address(uri)),
        }
    }
}

impl Address {
    /// Returns whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.0.scheme() == Some(&Scheme::HTTPS)
    }

    /// Returns whether the host is this machine.
    pub fn is_local(&self) -> bool {
        let host = self.host();
        host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// Returns whether what is sent there crosses a network in the clear.
    pub fn is_exposed(&self) -> bool {
        !self.is_encrypted() && !self.is_local()
    }

    /// Returns the scheme: `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.is_encrypted() { "https" } else { "http" }
    }

    /// Returns the host, without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        self.0.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
    }

    /// Returns the port, the scheme's own if none is written.
    pub fn port(&self) -> u16 {
        self.0.port_u16().unwrap_or(if self.is_encrypted() { 443 } else { 80 })
    }

    /// Returns host and port as the field `Host` has them.
    pub fn authority(&self) -> &str {
        self.0.authority().map_or("", |authority| authority.as_str())
    }

    /// Returns the path.
    pub fn path(&self) -> &str {
        self.0.path()
    }

    /// Returns path and query, as a request line has them.
    pub fn target(&self) -> &str {
        self.0.path_and_query().map_or("/", PathAndQuery::as_str)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        text.parse().expect("it is an address")
    }

    #[test]
    fn an_address_has_a_host_and_may_have_a_path() {
        for text in
            ["http://127.0.0.1:1/keys", "https://issuer.example/.well-known/jwks.json?a=b", "http://[::1]"]
        {
            assert_eq!(address(text).to_string().trim_end_matches('/'), text);
        }
        let v6 = address("https://[::1]:99/a?b");
        assert_eq!((v6.host(), v6.port(), v6.authority(), v6.target()), ("::1", 99, "[::1]:99", "/a?b"));
        assert_eq!((address("http://a").port(), address("https://a").port()), (80, 443));
        assert_eq!((address("http://a").target(), address("http://a?b").target()), ("/", "/?b"));
    }

    #[test]
    fn other_texts_are_refused_with_the_reason() {
        for (text, why) in [
            ("", AddressError::Malformed),
            ("http:// a", AddressError::Malformed),
            ("keys.json", AddressError::Scheme),
            ("/etc/keys.json", AddressError::Scheme),
            ("a:80", AddressError::Scheme),
            ("ftp://a", AddressError::Scheme),
            ("http://u:p@a", AddressError::Credentials),
            ("https://u@a", AddressError::Credentials),
            ("http://:80", AddressError::Host),
            ("http://a:", AddressError::Port),
            ("http://a:0", AddressError::Port),
            ("http://a:65536", AddressError::Port),
            ("http://a/#b", AddressError::Fragment),
        ] {
            assert_eq!(text.parse::<Address>(), Err(why), "{text}");
        }
        assert!("http://".parse::<Address>().is_err() && "http://a:x/".parse::<Address>().is_err());
    }

    #[test]
    fn only_plain_http_to_another_machine_is_exposed() {
        for text in ["http://127.0.0.1:1/keys", "http://[::1]/", "http://localhost", "https://10.0.0.1/"] {
            assert!(!address(text).is_exposed(), "{text}");
        }
        for text in ["http://10.0.0.1/", "http://localhost.example/", "http://issuer.example"] {
            assert!(address(text).is_exposed(), "{text}");
        }
    }
}
