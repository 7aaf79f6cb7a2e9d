//! `hosts`: the names of the service behind the gateway.

use crate::engine::kind::{ValueKind, ValueRefusal, quoted};

/// Name of the service: a host, with a port if only that port is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceHost {
    host: String,
    port: Option<u16>,
}

impl ServiceHost {
    /// Reads a host with an optional port, such as `api.example.com` or `[::1]:8080`.
    pub fn parse(text: &str) -> Option<ServiceHost> {
        let (host, port) = split(text)?;
        let port = match port {
            Some(port) => Some(port.parse().ok().filter(|port| *port > 0)?),
            None => None,
        };
        let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = match address {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.len() <= 253 && host.chars().all(name),
        };
        is_host.then(|| ServiceHost { host: host.to_ascii_lowercase(), port })
    }

    /// Returns true if a requested host is this one.
    pub fn is(&self, asked: &str) -> bool {
        let Some((host, port)) = split(asked) else { return false };
        let same_port = self.port.is_none_or(|own| port.and_then(|port| port.parse().ok()) == Some(own));
        self.host.eq_ignore_ascii_case(host) && same_port
    }
}

impl std::fmt::Display for ServiceHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => f.write_str(&self.host),
        }
    }
}

/// Splits a host from its port. The colons inside the brackets of an address belong to no port.
fn split(text: &str) -> Option<(&str, Option<&str>)> {
    let end = text.rfind(']').map_or(0, |end| end + 1);
    match text[end..].split_once(':') {
        None => Some((text, None)),
        Some((rest, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some((&text[..end + rest.len()], Some(port).filter(|port| !port.is_empty())))
        }
        Some(_) => None,
    }
}

impl ValueKind for ServiceHost {
    type Value = ServiceHost;

    fn expected() -> String {
        "a host with an optional port, such as \"api.example.com\"".to_owned()
    }

    fn parse(text: &str) -> Result<ServiceHost, ValueRefusal> {
        ServiceHost::parse(text).ok_or(ValueRefusal::Unexpected)
    }

    fn show(value: &ServiceHost) -> Option<String> {
        Some(quoted(&value.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_an_optional_port_and_nothing_else() {
        for (text, shown) in
            [("A.example", "a.example"), ("a:80", "a:80"), ("[::1]:80", "[::1]:80"), ("10.0.0.1", "10.0.0.1")]
        {
            assert_eq!(ServiceHost::parse(text).map(|host| host.to_string()).as_deref(), Some(shown));
        }
        for text in ["", ":80", "a:0", "a:65536", "a:x", "http://a", "a/b", "u@a", "a b", "[a]", "::1", "*.a"]
        {
            assert_eq!(ServiceHost::parse(text), None, "{text}");
        }
    }
}
