//! Selects the parts of a response, and of a request for a later worker, that are stored. Pure: executors
//! call it and store the result.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode};

use crate::policy::{Policy, StoreResponse};
use crate::response::{Response, reference};

/// Names of request fields that are stored for a worker; `*` at the end matches any suffix. A credential may
/// have any name, so all other fields are left out unless the operation names them.
pub const KEPT_FIELDS: [&str; 15] = [
    "accept",
    "accept-*",
    "baggage",
    "content-*",
    "date",
    "digest",
    "host",
    "idempotency-key",
    "if-*",
    "prefer",
    "repr-digest",
    "traceparent",
    "tracestate",
    "user-agent",
    "x-request-id",
];

/// Returns true if a request field of this name is always stored for a worker.
pub fn is_kept_field(name: &HeaderName) -> bool {
    let name = name.as_str();
    KEPT_FIELDS.iter().any(|kept| match kept.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == *kept,
    })
}

impl Policy {
    /// Returns true if a request field of this name is stored for a worker.
    pub fn keeps_request_field(&self, name: &HeaderName) -> bool {
        self.store_credentials || is_kept_field(name) || self.store_request_headers.contains(name)
    }

    /// Returns the parts of a response that the operation stores. `body` is `None` for a stream, or for a
    /// body too large for memory.
    pub fn keep(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        body: Option<&Bytes>,
        trailers: &HeaderMap,
    ) -> Response {
        self.keep_as(self.store_response, status, headers, body, trailers)
    }

    /// Returns the parts of a response to store as `stored` says, whatever the operation stores of other
    /// responses.
    pub fn keep_as(
        &self,
        stored: StoreResponse,
        status: StatusCode,
        headers: &HeaderMap,
        body: Option<&Bytes>,
        trailers: &HeaderMap,
    ) -> Response {
        let whole = body.filter(|body| body.len() <= self.max_stored_response);
        let nothing_to_leave_out = |body: &Bytes| body.is_empty() && trailers.is_empty();
        let mut kept = match (stored, whole) {
            (StoreResponse::Full, Some(body)) => Response::retain(status, headers, body.clone(), trailers),
            (StoreResponse::Headers | StoreResponse::Reference, Some(body)) if nothing_to_leave_out(body) => {
                Response::retain(status, headers, body.clone(), trailers)
            }
            // The address of a failure or a redirection does not lead to the first caller's result.
            (StoreResponse::Reference, _) if status.is_success() && reference(headers).is_some() => {
                Response::without_body(status, headers)
            }
            (StoreResponse::Full | StoreResponse::Headers | StoreResponse::Reference, _) => {
                Response::head(status, headers)
            }
        };
        for name in &self.store_headers_except {
            kept.headers.remove(name);
            kept.trailers.remove(name);
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const MODES: [StoreResponse; 3] = [StoreResponse::Full, StoreResponse::Headers, StoreResponse::Reference];

    fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| (name.parse().expect("valid"), HeaderValue::from_static(value)))
            .collect()
    }

    fn created() -> HeaderMap {
        fields(&[
            ("location", "/p/1"),
            ("content-type", "application/json"),
            ("content-length", "4"),
            ("content-encoding", "identity"),
            ("etag", "\"v1\""),
            ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("content-digest", "sha-256=:x:"),
            ("cache-control", "max-age=60"),
            ("trailer", "x-sum"),
            ("x-request-cost", "7"),
            ("set-cookie", "session=canary"),
        ])
    }

    fn keep(stored: StoreResponse, status: StatusCode, headers: &HeaderMap, body: Option<&str>) -> Response {
        let policy = Policy { store_response: stored, max_stored_response: 8, ..Policy::default() };
        let body = body.map(|body| Bytes::copy_from_slice(body.as_bytes()));
        policy.keep(status, headers, body.as_ref(), &HeaderMap::new())
    }

    #[test]
    fn credential_header_fields_of_any_name_are_not_stored_by_default() {
        let name = |text: &str| text.parse::<HeaderName>().expect("it is a name");
        let credentials = [
            "Authorization",
            "Cookie",
            "DPoP",
            "Proxy-Authorization",
            "X-Api-Key",
            "Cf-Access-Jwt-Assertion",
            "X-Goog-Iap-Jwt-Assertion",
            "X-Amzn-Oidc-Accesstoken",
            "X-Amzn-Oidc-Data",
            "Ocp-Apim-Subscription-Key",
            "X-Ms-Token-Aad-Access-Token",
            "X-Auth-Request-Access-Token",
            "X-Forwarded-Access-Token",
            "X-Gitlab-Token",
            "X-Shopify-Access-Token",
            "X-Figma-Token",
            "X-Hub-Signature-256",
            "Signature",
            "X-Our-Own-Secret",
        ];
        for credential in credentials {
            assert!(!Policy::default().keeps_request_field(&name(credential)), "{credential}");
        }
        for kept in [
            "Content-Type",
            "Content-Encoding",
            "Accept",
            "Accept-Language",
            "Host",
            "Idempotency-Key",
            "If-Match",
            "traceparent",
            "tracestate",
            "Baggage",
        ] {
            assert!(Policy::default().keeps_request_field(&name(kept)), "{kept}");
        }
        let named = Policy { store_request_headers: vec![name("X-Gitlab-Token")], ..Policy::default() };
        assert!(
            named.keeps_request_field(&name("x-gitlab-token")) && !named.keeps_request_field(&name("cookie"))
        );
        let all = Policy { store_credentials: true, ..Policy::default() };
        assert!(credentials.iter().all(|credential| all.keeps_request_field(&name(credential))));
    }

    #[test]
    fn a_response_is_stored_whole_and_without_its_body_if_too_large() {
        let kept = keep(StoreResponse::Full, StatusCode::CREATED, &created(), Some("body"));
        assert_eq!(kept.body.as_deref(), Some(&b"body"[..]));
        assert!(kept.headers.contains_key("etag") && !kept.headers.contains_key("set-cookie"));
        for body in [Some("too large"), None] {
            let kept = keep(StoreResponse::Full, StatusCode::CREATED, &created(), body);
            let head = fields(&[("location", "/p/1"), ("x-request-cost", "7")]);
            assert_eq!((kept.body, kept.headers), (None, head), "what makes sense without the body");
        }
    }

    #[test]
    fn storing_headers_drops_the_body_and_the_fields_that_describe_it() {
        for body in [Some("body"), Some("too large"), None] {
            let kept = keep(StoreResponse::Headers, StatusCode::CREATED, &created(), body);
            assert_eq!(kept.body, None);
            assert_eq!(kept.headers, fields(&[("location", "/p/1"), ("x-request-cost", "7")]));
            assert_eq!(kept.encode().decode(), Ok(kept));
        }
    }

    #[test]
    fn storing_a_reference_keeps_only_the_address_field_of_the_response() {
        for body in [Some("body"), Some("too large"), None] {
            let kept = keep(StoreResponse::Reference, StatusCode::CREATED, &created(), body);
            assert_eq!((kept.body.clone(), &kept.headers), (None, &fields(&[("location", "/p/1")])));
            assert_eq!(kept.resource(), Some("/p/1"));
        }
        let elsewhere = fields(&[("content-location", "/p/2"), ("x-request-cost", "7")]);
        let kept = keep(StoreResponse::Reference, StatusCode::OK, &elsewhere, Some("body"));
        assert_eq!(kept.headers, fields(&[("content-location", "/p/2")]));
        assert_eq!(kept.resource(), Some("/p/2"));
    }

    #[test]
    fn storing_a_reference_without_an_address_keeps_the_header_fields() {
        let nowhere = fields(&[("x-request-cost", "7"), ("content-type", "text/plain")]);
        let kept = keep(StoreResponse::Reference, StatusCode::OK, &nowhere, Some("body"));
        assert_eq!((kept.body, kept.headers), (None, fields(&[("x-request-cost", "7")])));
        for status in [StatusCode::SEE_OTHER, StatusCode::CONFLICT, StatusCode::INTERNAL_SERVER_ERROR] {
            let kept = keep(StoreResponse::Reference, status, &created(), Some("body"));
            assert!(kept.headers.contains_key("x-request-cost"), "{status}");
        }
    }

    #[test]
    fn response_without_a_body_is_kept_whole() {
        for mode in MODES {
            let kept = keep(mode, StatusCode::NO_CONTENT, &created(), Some(""));
            assert_eq!(kept.body.as_deref(), Some(&b""[..]), "{mode:?}");
            assert!(kept.headers.contains_key("etag"), "{mode:?}");
        }
        let policy = Policy { store_response: StoreResponse::Headers, ..Policy::default() };
        let (head, trailers) = (HeaderMap::new(), fields(&[("grpc-message", "canary")]));
        let kept = policy.keep(StatusCode::OK, &head, Some(&Bytes::new()), &trailers);
        assert_eq!((kept.body, kept.trailers.len()), (None, 0), "trailers belong to the body");
    }

    #[test]
    fn headers_that_the_operation_excludes_are_not_kept() {
        for store_response in MODES {
            let except = vec![HeaderName::from_static("x-request-cost")];
            let policy = Policy { store_response, store_headers_except: except, ..Policy::default() };
            let body = Bytes::from_static(b"body");
            let kept =
                policy.keep(StatusCode::OK, &created(), Some(&body), &fields(&[("x-request-cost", "9")]));
            let named = |map: &HeaderMap| map.contains_key("x-request-cost");
            assert!(!named(&kept.headers) && !named(&kept.trailers), "{store_response:?}");
            assert!(kept.headers.contains_key("location"), "{store_response:?}");
        }
    }
}
