//! Checks against requests that a foreign page makes the operator's browser send.
//!
//! By DNS rebinding such a page can point its own name to this machine: `Host` is that name then. It can also
//! send requests without reading the answers: then the browser marks them, and cannot send JSON without a
//! preflight, which this listener never grants.

use std::net::IpAddr;

use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue, ORIGIN};
use http::uri::Authority;
use http::{StatusCode, Uri};
use semel_core::Problem;
use semel_core::problem::ProblemKind;

/// Names by which a listener without tokens may be addressed.
pub(crate) struct Hosts {
    listens_at: IpAddr,
    names: Vec<String>,
}

impl Hosts {
    /// Makes the names of a listener at this address, with these.
    pub(crate) fn new(listens_at: IpAddr, names: Vec<String>) -> Hosts {
        Hosts { listens_at, names }
    }

    /// Checks that the request addresses this listener by one of its names.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Problem> {
        if headers.get(HOST).is_some_and(|host| self.are_meant(host)) {
            return Ok(());
        }
        Err(Problem::new(
            ProblemKind::Forbidden,
            "Without a token, this listener answers to its own address and to localhost only: ask for it by one of them, \
             or name the host of the request in `admin_hosts`.",
        ))
    }

    fn are_meant(&self, host: &HeaderValue) -> bool {
        let Ok(authority) = Authority::try_from(host.as_bytes()) else { return false };
        if authority.as_str().contains('@') {
            return false;
        }
        let name = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        match name.parse::<IpAddr>() {
            Ok(address) => {
                address.is_loopback()
                    || address == self.listens_at
                    || self.names.contains(&address.to_string())
            }
            Err(_) => name == "localhost" || self.names.contains(&name),
        }
    }
}

/// Header that only a page of this listener sends: a page of another origin needs a permission for it, which no answer gives.
const CONSOLE: &str = "semel-console";

/// Checks that a request with a credential of the browser's own comes from a page of this listener. Reads count, too.
pub(crate) fn check_ambient(headers: &HeaderMap) -> Result<(), Problem> {
    let mut lines = headers.get_all(CONSOLE).iter();
    if !matches!((lines.next(), lines.next()), (Some(line), None) if line == "1") {
        return Err(Problem::new(
            ProblemKind::Forbidden,
            "Whoever is signed in by a proxy needs the header `Semel-Console: 1`, which the console sends: open the page \
             `/console/`, or use a token.",
        ));
    }
    check_origin(headers)
}

/// Checks that no page of another origin made a browser send the request. Programs send none of the fields that tell.
pub(crate) fn check_origin(headers: &HeaderMap) -> Result<(), Problem> {
    match is_from_elsewhere(headers) {
        true => {
            Err(Problem::new(ProblemKind::Forbidden, "A browser sent this for a page of another origin."))
        }
        false => Ok(()),
    }
}

/// Checks that a change comes from a program, or from a page of this listener.
pub(crate) fn check_change(headers: &HeaderMap) -> Result<(), Problem> {
    if !is_json(headers) {
        let problem = Problem::new(
            ProblemKind::MalformedRequest,
            "An action is described by a JSON object: send it with `Content-Type: application/json`.",
        );
        return Err(problem.with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    }
    if is_from_elsewhere(headers) {
        return Err(Problem::new(
            ProblemKind::Forbidden,
            "A browser sent this for a page of another origin. Nothing was changed.",
        ));
    }
    Ok(())
}

fn is_json(headers: &HeaderMap) -> bool {
    let essence = |value: &HeaderValue| {
        let text = value.to_str().unwrap_or_default();
        text.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
    };
    let mut lines = headers.get_all(CONTENT_TYPE).iter();
    matches!((lines.next(), lines.next()), (Some(line), None) if essence(line))
}

/// Returns true if a browser says that a page of another origin made it send the request. Programs say nothing of it.
pub fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    // Another port of this machine is the same site, but not the same origin.
    let is_own_site = |value: &HeaderValue| value == "same-origin" || value == "none";
    let host = headers.get(HOST).map(HeaderValue::as_bytes).unwrap_or_default();
    let is_own_origin = |value: &HeaderValue| {
        let origin = value.to_str().ok().and_then(|text| text.parse::<Uri>().ok());
        let authority = origin.as_ref().and_then(|origin| origin.scheme().and(origin.authority()));
        authority.is_some_and(|authority| authority.as_str().as_bytes().eq_ignore_ascii_case(host))
    };
    !headers.get_all("sec-fetch-site").iter().all(is_own_site)
        || !headers.get_all(ORIGIN).iter().all(is_own_origin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_listener_answers_to_its_own_names_only() {
        let hosts = Hosts::new(Ipv4Addr::new(127, 0, 0, 9).into(), vec!["admin.internal".to_owned()]);
        for host in [
            "localhost",
            "LOCALHOST:9090",
            "127.0.0.1:9090",
            "127.0.0.9",
            "[::1]:9090",
            "Admin.Internal",
            "admin.internal:443",
        ] {
            assert!(hosts.check(&headers(&[("host", host)])).is_ok(), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9090",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "evil@localhost",
            "10.0.0.1",
            "not a host",
        ] {
            assert!(hosts.check(&headers(&[("host", host)])).is_err(), "{host}");
        }
        assert!(hosts.check(&HeaderMap::new()).is_err());
    }

    #[test]
    fn an_ambient_credential_counts_for_our_own_page_only() {
        const HOST: (&str, &str) = ("host", "admin.example");
        const OURS: (&str, &str) = ("semel-console", "1");
        for lines in [
            &[HOST, OURS][..],
            &[HOST, OURS, ("sec-fetch-site", "same-origin")],
            &[HOST, OURS, ("sec-fetch-site", "same-origin"), ("origin", "https://admin.example")],
        ] {
            assert_eq!(check_ambient(&headers(lines)), Ok(()), "{lines:?}");
        }
        for lines in [
            &[HOST][..],
            &[HOST, ("sec-fetch-site", "same-origin")],
            &[HOST, ("semel-console", "")],
            &[HOST, ("semel-console", "true")],
            &[HOST, OURS, OURS],
            &[HOST, OURS, ("sec-fetch-site", "cross-site")],
            &[HOST, OURS, ("sec-fetch-site", "same-site")],
            &[HOST, OURS, ("origin", "https://evil.example")],
            &[HOST, OURS, ("origin", "null")],
        ] {
            assert!(check_ambient(&headers(lines)).is_err(), "{lines:?}");
        }
    }

    #[test]
    fn a_change_comes_from_a_program_or_from_our_own_page() {
        const JSON: (&str, &str) = ("content-type", "application/json");
        const HOST: (&str, &str) = ("host", "localhost:9090");
        for lines in [
            &[JSON, HOST][..],
            &[("content-type", "Application/JSON; charset=utf-8"), HOST],
            &[JSON, HOST, ("sec-fetch-site", "none")],
            &[JSON, HOST, ("sec-fetch-site", "same-origin"), ("origin", "http://localhost:9090")],
            &[JSON, ("host", "admin.example"), ("origin", "https://admin.example")],
        ] {
            assert_eq!(check_change(&headers(lines)), Ok(()), "{lines:?}");
        }
        for lines in [
            &[HOST][..],
            &[HOST, ("content-type", "text/plain")],
            &[HOST, ("content-type", "application/x-www-form-urlencoded")],
            &[HOST, ("content-type", "text/plain; application/json")],
            &[HOST, JSON, JSON],
            &[JSON, HOST, ("sec-fetch-site", "cross-site")],
            &[JSON, HOST, ("sec-fetch-site", "same-site")],
            &[JSON, HOST, ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
            &[JSON, HOST, ("origin", "null")],
            &[JSON, HOST, ("origin", "http://evil.example")],
            &[JSON, HOST, ("origin", "http://localhost:3000")],
            &[JSON, HOST, ("origin", "localhost:9090")],
            &[JSON, HOST, ("sec-fetch-site", "same-origin"), ("origin", "http://evil.example")],
        ] {
            assert!(check_change(&headers(lines)).is_err(), "{lines:?}");
        }
    }
}
