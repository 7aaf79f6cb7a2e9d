//! Content codings: a retry gets a stored body only if it accepts the body's coding.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, LOCATION, VARY};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use semel_http::{Body, Idempotency, IdempotencyLayer};
use semel_stores::MemoryStore;
use tower::{Layer, Service};

use crate::lab::{KEY, identify};

/// Stand-in for a gzip body.
const PACKED: &str = "\u{1f}packed";

/// Makes a service that encodes its answers on request, or always.
fn service(
    always: bool,
) -> Idempotency<
    impl Service<Request<Body>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send> + Clone,
> {
    let handler = tower::service_fn(move |request: Request<Body>| async move {
        let asked = request.headers().get_all(ACCEPT_ENCODING).iter().any(|line| line == "gzip");
        let created = Response::builder().status(201).header(LOCATION, "/p/1");
        Ok::<_, Infallible>(if asked || always {
            created.header(CONTENT_ENCODING, "gzip").body(Full::from(PACKED)).expect("it is valid")
        } else {
            created.body(Full::from("plain")).expect("it is valid")
        })
    });
    let layer = IdempotencyLayer::builder(Arc::new(MemoryStore::new())).identify(identify);
    layer.build().expect("the layer is valid").layer(handler)
}

/// Sends a request that accepts these codings.
async fn send<S>(
    service: &mut Idempotency<S>,
    method: &str,
    path: &str,
    accepts: Option<&str>,
) -> (StatusCode, HeaderMap, Bytes)
where
    Idempotency<S>: Service<Request<Full<Bytes>>, Response = Response<Body>, Error = Infallible>,
{
    let mut request =
        Request::builder().method(method).uri(path).header("x-user", "alice").header("idempotency-key", KEY);
    if let Some(accepts) = accepts {
        request = request.header(ACCEPT_ENCODING, accepts);
    }
    let request = request.body(Full::new(Bytes::new())).expect("it is valid");
    let (parts, body) = service.call(request).await.expect("it is answered").into_parts();
    (parts.status, parts.headers, body.collect().await.expect("it is whole").to_bytes())
}

#[tokio::test]
async fn a_handler_is_asked_for_a_body_that_everybody_can_read() {
    let mut service = service(false);
    for accepts in [Some("gzip"), Some("identity"), None] {
        let (status, headers, body) = send(&mut service, "POST", "/payments", accepts).await;
        assert_eq!((status, &body[..]), (StatusCode::CREATED, &b"plain"[..]), "{accepts:?}");
        assert!(!headers.contains_key(CONTENT_ENCODING) && !headers.contains_key(VARY), "{accepts:?}");
    }
}

#[tokio::test]
async fn a_coded_body_is_replayed_only_to_whom_accepts_its_coding() {
    let mut service = service(true);
    let (_, first, body) = send(&mut service, "POST", "/payments", Some("identity")).await;
    assert_eq!(body, PACKED, "the handler's own answer is the handler's own affair");
    let id = first["idempotency-operation-id"].to_str().expect("it is text").to_owned();
    let result = format!("/.well-known/semel/operations/{id}/result");
    for (method, path) in [("POST", "/payments"), ("GET", &*result)] {
        for accepts in [Some("br, gzip"), Some("*"), None] {
            let (status, headers, body) = send(&mut service, method, path, accepts).await;
            assert_eq!((status, &body[..]), (StatusCode::CREATED, PACKED.as_bytes()), "{accepts:?}");
            assert!(headers[CONTENT_ENCODING] == "gzip" && headers[VARY] == "accept-encoding");
        }
        for accepts in ["identity", "br", "gzip;q=0", ""] {
            let (status, headers, body) = send(&mut service, method, path, Some(accepts)).await;
            assert_eq!(status, StatusCode::CREATED, "an error would invite a new key");
            let document: serde_json::Value = serde_json::from_slice(&body).expect("everybody can read it");
            assert_eq!(document["code"], "IDEMPOTENCY_RESPONSE_NOT_RETAINED", "{accepts}");
            assert!(!headers.contains_key(CONTENT_ENCODING), "{accepts}");
            assert!(headers[LOCATION] == "/p/1" && headers[VARY] == "accept-encoding");
            assert_eq!(headers["idempotency-replayed"], "true");
        }
    }
}
