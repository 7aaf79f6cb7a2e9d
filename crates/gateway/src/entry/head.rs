//! Normal form for requests of every HTTP version: the guard's rules on the target and the fields of a
//! request, without those on framing. HTTP/2 does not pass through the guard.

use http::header::{CONNECTION, CONTENT_LENGTH, COOKIE, HOST, HeaderMap, HeaderName, HeaderValue};
use http::uri::{PathAndQuery, Scheme};
use http::{Method, Request, Uri, Version};
use semel_core::Problem;
use semel_core::fields;
use semel_core::path::RequestPath;
use semel_core::problem::ProblemKind;

use crate::guard::is_authority;

/// Largest number of field lines in a request.
const MAX_FIELDS: usize = 128;

/// Refuses a request that the upstream could read differently; returns any other with a path and one host.
pub fn normalize<B>(request: Request<B>) -> Result<Request<B>, Problem> {
    let (mut parts, body) = request.into_parts();
    check_fields(&parts.headers)?;
    check_target(&parts.method, &parts.uri)?;
    let host = host(&parts.uri, &parts.headers)?;
    // Only HTTP/1.0 may omit it, and the guard checks HTTP/1.1.
    if host.is_none() && parts.version == Version::HTTP_2 {
        return refuse("The request names no host.");
    }
    if let Some(host) = host {
        parts.headers.insert(HOST, host);
    }
    join_cookies(&mut parts.headers);
    parts.uri = Uri::from(target(&parts.method, &parts.uri)?);
    Ok(Request::from_parts(parts, body))
}

fn refuse<T>(detail: &str) -> Result<T, Problem> {
    Err(Problem::new(ProblemKind::MalformedRequest, detail))
}

fn check_fields(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.len() > MAX_FIELDS {
        return Err(Problem::new(ProblemKind::RequestHeadTooLarge, "The request has too many field lines."));
    }
    if headers.get_all(HOST).iter().count() > 1 || headers.get_all(CONTENT_LENGTH).iter().count() > 1 {
        return refuse("Host or Content-Length is there twice.");
    }
    // The gateway's decision and the upstream must see the same field.
    for element in fields::elements(headers, &CONNECTION).filter(|element| !element.is_empty()) {
        match HeaderName::from_bytes(element) {
            Ok(name) if !fields::is_end_to_end(&name) => {}
            Ok(_) => return refuse("Connection names an end-to-end field."),
            Err(_) => return refuse("Connection names something that is not a field."),
        }
    }
    let is_padded = |value: &HeaderValue| value.len() > 1 && value.as_bytes().starts_with(b"0");
    if headers.get(CONTENT_LENGTH).is_some_and(is_padded) {
        return refuse("Content-Length is not a decimal number in its shortest form.");
    }
    Ok(())
}

fn check_target(method: &Method, uri: &Uri) -> Result<(), Problem> {
    if *method == Method::CONNECT {
        return refuse("CONNECT is not supported: this is a gateway and no tunnel.");
    }
    if uri.scheme().is_some_and(|scheme| *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS) {
        return refuse("The scheme of the target is not http.");
    }
    if uri.path() == "*" && *method != Method::OPTIONS {
        return refuse("The request target * is for OPTIONS only.");
    }
    Ok(())
}

/// Returns the path in its normal form, and the query unchanged. The route decides on the exemptions that it
/// needs.
fn target(method: &Method, uri: &Uri) -> Result<PathAndQuery, Problem> {
    let sent = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    if *method == Method::OPTIONS && sent.path() == "*" {
        return Ok(sent);
    }
    let form = match RequestPath::read(sent.path()) {
        Ok(form) => form,
        Err(refusal) => return refuse(&refusal.to_string()),
    };
    if form.as_str() == sent.path() {
        return Ok(sent);
    }
    let spelled = match sent.query() {
        Some(query) => format!("{}?{query}", form.as_str()),
        None => form.as_str().to_owned(),
    };
    spelled.parse().or_else(|_| refuse("The path has no form."))
}

/// Returns the host of a request, from its target or its `Host` field; the two must agree.
fn host(uri: &Uri, headers: &HeaderMap) -> Result<Option<HeaderValue>, Problem> {
    let field = headers.get(HOST);
    if field.is_some_and(|field| !is_authority(field.as_bytes())) {
        return refuse("Host is not a host with an optional port.");
    }
    let Some(authority) = uri.authority() else { return Ok(field.cloned()) };
    if authority.as_str().contains('@') {
        return refuse("The target has user information.");
    }
    let asked = HeaderValue::from_str(authority.as_str());
    let Some(asked) = asked.ok().filter(|asked| is_authority(asked.as_bytes())) else {
        return refuse("The target has no valid host.");
    };
    let same = |field: &HeaderValue| field.as_bytes().eq_ignore_ascii_case(asked.as_bytes());
    let default_port = |field: &HeaderValue| {
        let text = String::from_utf8_lossy(field.as_bytes()).to_ascii_lowercase();
        let asked = authority.as_str().to_ascii_lowercase();
        let port = if uri.scheme() == Some(&Scheme::HTTPS) { ":443" } else { ":80" };
        text.trim_end_matches(port) == asked.trim_end_matches(port)
    };
    match field {
        Some(field) if !same(field) && !default_port(field) => {
            refuse("Host and the target name different hosts.")
        }
        _ => Ok(Some(asked)),
    }
}

/// Joins the parts of a cookie, which HTTP/2 may split, into one line for HTTP/1 (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let pieces: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(|value| value.as_bytes()).collect();
    if pieces.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&pieces.join(&b"; "[..]))
    {
        headers.insert(COOKIE, joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, target: &str, lines: &[(&'static str, &'static str)]) -> Request<()> {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        request.body(()).expect("tests send valid requests")
    }

    #[test]
    fn every_target_becomes_a_path_at_one_host() {
        let same = [("http://api.example/p?q=1", &[][..]), ("/p?q=1", &[("host", "api.example")][..])];
        for (target, lines) in same {
            let normal = normalize(request("POST", target, lines)).expect("it is unambiguous");
            assert_eq!(
                (normal.uri().to_string().as_str(), &normal.headers()["host"]),
                ("/p?q=1", &"api.example".parse::<HeaderValue>().expect("valid"))
            );
        }
        let cookies =
            normalize(request("GET", "/", &[("cookie", "a=1"), ("cookie", "b=2")])).expect("it is fine");
        assert_eq!(cookies.headers().get_all("cookie").iter().collect::<Vec<_>>(), ["a=1; b=2"]);
        assert!(normalize(request("OPTIONS", "*", &[])).is_ok());
        assert!(normalize(request("GET", "http://a:80/", &[("host", "A")])).is_ok());
        assert!(normalize(request("GET", "https://a:443/", &[("host", "A")])).is_ok());
        assert!(normalize(request("GET", "https://a:80/", &[("host", "A")])).is_err());
    }

    #[test]
    fn ambiguous_requests_are_refused() {
        let refused = [
            request("CONNECT", "127.0.0.1:22", &[]),
            request("POST", "*", &[]),
            request("POST", "ftp://a/p", &[]),
            request("POST", "http://user:pw@a/p", &[]),
            request("POST", "http://evil/p", &[("host", "good")]),
            request("POST", "/p", &[("host", "a"), ("host", "a")]),
            request("POST", "/p", &[("content-length", "1"), ("content-length", "1")]),
            request("POST", "/p", &[("connection", "close, Idempotency-Key")]),
            request("POST", "/p", &[("connection", "x-tenant")]),
        ];
        for request in refused {
            let shown = format!("{request:?}");
            assert!(normalize(request).is_err(), "{shown}");
        }
        for host in ["evil.example/../x?", "a@b", "", "a b", "a,b", "a:b"] {
            assert!(normalize(request("GET", "/", &[("host", host)])).is_err(), "{host}");
        }
        assert!(normalize(request("POST", "/p", &[("content-length", "05")])).is_err());
        let mut unreadable = request("GET", "/", &[]);
        let value = HeaderValue::from_bytes(b"close, \xff").expect("it is a value");
        unreadable.headers_mut().insert(CONNECTION, value);
        assert!(normalize(unreadable).is_err());
        let mut nobody = request("GET", "/", &[]);
        *nobody.version_mut() = Version::HTTP_2;
        assert!(normalize(nobody).is_err(), "HTTP/2 always names a host");
        let many: Vec<(&'static str, &'static str)> = vec![("x-field", "1"); 129];
        assert_eq!(
            normalize(request("GET", "/", &many)).expect_err("too many").kind,
            ProblemKind::RequestHeadTooLarge
        );
    }

    #[test]
    fn dot_segments_are_refused_in_every_disguise() {
        let disguises = [
            "/public/../payments",
            "/public/..;/payments",
            "/public/%2e%2e/payments",
            "/public/..%2fpayments",
            "/public/%252e%252e/payments",
            "/public/..%5cpayments",
            "/./payments",
            "/payments/..",
            "/a/.;x=1/b",
        ];
        for path in disguises {
            assert!(normalize(request("POST", path, &[])).is_err(), "{path}");
        }
        for path in ["/a..b", "/...", "/.well-known/x", "/a%2fb", "/x;y=1", "/x//a", "/a/.b/c."] {
            assert!(normalize(request("POST", path, &[])).is_ok(), "{path}");
        }
    }
}
