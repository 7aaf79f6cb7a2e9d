//! Check against other web pages: by DNS rebinding, one can point a name of its own to this machine, and a
//! browser sends some requests for a page of another origin.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::{HOST, HeaderMap, HeaderValue};
use axum::http::uri::Authority;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use semel_operations::admin::is_from_elsewhere;

/// Answers requests that ask for this machine by its own name; changes come from its own page, or from a
/// program.
pub(super) async fn check(request: Request, next: Next) -> Response {
    let headers = request.headers();
    if !is_for_this_machine(headers) {
        return (StatusCode::MISDIRECTED_REQUEST, "Ask for localhost.\n").into_response();
    }
    if !request.method().is_safe() && is_from_elsewhere(headers) {
        return (StatusCode::FORBIDDEN, "A page of another origin sent this.\n").into_response();
    }
    next.run(request).await
}

fn is_for_this_machine(headers: &HeaderMap) -> bool {
    let authority = |host: &HeaderValue| Authority::try_from(host.as_bytes()).ok();
    let Some(authority) = headers.get(HOST).and_then(authority) else { return false };
    if authority.as_str().contains('@') {
        return false;
    }
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.parse()
        .map_or_else(|_| name.eq_ignore_ascii_case("localhost"), |address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn a_foreign_name_is_not_this_machine() {
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "127.0.0.9", "[::1]:8080"] {
            assert!(is_for_this_machine(&headers(&[("host", host)])), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "evil@localhost", "10.0.0.1", "not a host"] {
            assert!(!is_for_this_machine(&headers(&[("host", host)])), "{host}");
        }
        assert!(!is_for_this_machine(&HeaderMap::new()));
    }
}
