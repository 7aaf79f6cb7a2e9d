//! The names of the service that this gateway stands in front of: by which `Host` it may be asked, and which the upstream is told.
//!
//! Invariant: the upstream never acts on a host that the fingerprint does not know. Either it is told its own, or every host that
//! passes is a name of one and the same service.

use http::header::{HOST, HeaderMap, HeaderValue};
use semel_core::Problem;
use semel_core::problem::Kind;

/// The hosts that are names of the service; none: whichever the client says, and the upstream is told its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceHosts(Vec<ServiceHost>);

/// One of them: a name or an address, with a port if only that one counts.
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

    fn is(&self, asked: &str) -> bool {
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

/// A host and its port. The colons inside the brackets of an address are no port's.
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

impl ServiceHosts {
    /// These, which are names of one service.
    pub fn new(hosts: Vec<ServiceHost>) -> ServiceHosts {
        ServiceHosts(hosts)
    }

    /// Refuses a request for a host that is none of the names, if there are any.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        if self.0.is_empty() || headers.get(HOST).is_some_and(|host| self.serves(host)) {
            return Ok(());
        }
        let detail = "This gateway does not serve the host that the request asks for.";
        Err(Problem::new(Kind::MisdirectedRequest, detail))
    }

    /// Whether requests for this host are served.
    pub fn serves(&self, host: &HeaderValue) -> bool {
        self.0.is_empty() || host.to_str().is_ok_and(|asked| self.0.iter().any(|host| host.is(asked)))
    }

    /// Leaves `Host` as it came if it is one of the names, else removes it, so that the upstream is told its own.
    pub fn name(&self, headers: &mut HeaderMap) {
        if self.0.is_empty() {
            headers.remove(HOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(texts: &[&str]) -> ServiceHosts {
        ServiceHosts::new(texts.iter().map(|text| ServiceHost::parse(text).expect("it is a host")).collect())
    }

    fn asking(host: &str) -> HeaderMap {
        HeaderMap::from_iter([(HOST, HeaderValue::from_str(host).expect("it is a value"))])
    }

    #[test]
    fn only_names_of_the_service_are_served() {
        let listed = hosts(&["API.example.com", "other.example:8443", "[::1]"]);
        for host in
            ["api.example.com", "Api.Example.Com", "api.example.com:8080", "other.example:8443", "[::1]:80"]
        {
            assert_eq!(listed.check(&asking(host)), Ok(()), "{host}");
        }
        for host in [
            "example.com",
            "evil.api.example.com",
            "api.example.com.",
            "other.example",
            "other.example:443",
            "[::2]",
            "",
            "api.example.com:80:80",
            "api.example.com@evil",
        ] {
            let problem = listed.check(&asking(host)).expect_err(host);
            assert_eq!(problem.kind, Kind::MisdirectedRequest, "{host}");
        }
        assert!(listed.check(&HeaderMap::new()).is_err(), "no host is none of them");
        assert_eq!(ServiceHosts::default().check(&asking("anything")), Ok(()));
    }

    #[test]
    fn the_upstream_is_told_its_own_host_unless_names_are_listed() {
        let mut headers = asking("api.example");
        let mut listed = headers.clone();
        ServiceHosts::default().name(&mut headers);
        assert_eq!(headers, HeaderMap::new());
        hosts(&["api.example"]).name(&mut listed);
        assert_eq!(listed[HOST], "api.example");
    }

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
