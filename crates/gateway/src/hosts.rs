//! Host names of the service behind the gateway: checks the `Host` of requests and sets the upstream's.
//!
//! Invariant: the upstream never acts on a host that the fingerprint lacks. Either it gets its own host, or
//! every accepted host is a name of the same service.

use http::header::{HOST, HeaderMap, HeaderValue};
use semel_core::Problem;
use semel_core::problem::ProblemKind;
use semel_settings::ServiceHost;

/// Host names of the service. Empty: every host is accepted, and the upstream gets its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceHosts(Vec<ServiceHost>);

impl ServiceHosts {
    /// Makes the list of names, all of one service.
    pub fn new(hosts: Vec<ServiceHost>) -> ServiceHosts {
        ServiceHosts(hosts)
    }

    /// Refuses a request whose host is not one of the names, if there are any.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        if self.0.is_empty() || headers.get(HOST).is_some_and(|host| self.serves(host)) {
            return Ok(());
        }
        let detail = "This gateway does not serve the host that the request asks for.";
        Err(Problem::new(ProblemKind::MisdirectedRequest, detail))
    }

    /// Returns true if requests for this host are served.
    pub fn serves(&self, host: &HeaderValue) -> bool {
        self.0.is_empty() || host.to_str().is_ok_and(|asked| self.0.iter().any(|host| host.is(asked)))
    }

    /// Keeps `Host` if it is one of the names, else removes it, so that the upstream gets its own.
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
    fn a_request_for_an_unlisted_host_is_misdirected() {
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
            assert_eq!(problem.kind, ProblemKind::MisdirectedRequest, "{host}");
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
}
