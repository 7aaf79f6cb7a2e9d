//! Replays equal the stored response, to the byte.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use semel_http::IdempotencyLayer;
use semel_stores::MemoryStore;
use tower::{Layer, Service};

use crate::lab::{KEY, Lab, identify, pay};

fn lines<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a [u8]> {
    headers.get_all(name).iter().map(|value| value.as_bytes()).collect()
}

#[tokio::test]
async fn a_replay_has_the_same_bytes_and_the_same_field_lines() {
    let lab = Lab::new().await;
    for what in ["", "binary"] {
        let key = format!("replay-of-the-bytes-{what}");
        let request = || pay("{\"a\":1}").set("idempotency-key", &key).doing(what);
        let first = lab.send(request()).await;
        let again = lab.send(request()).await;
        assert!(again.replayed());
        assert_eq!((again.status, &again.body), (first.status, &first.body));
        assert_eq!(lines(&again.headers, "link"), [&b"</a>; rel=\"x, y\", </b>"[..], b"</c>"]);
        for name in first.headers.keys() {
            if !["date", "set-cookie"].contains(&name.as_str()) {
                assert_eq!(
                    lines(&again.headers, name.as_str()),
                    lines(&first.headers, name.as_str()),
                    "{name}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_replay_gives_no_cookie_and_is_not_to_be_cached() {
    let lab = Lab::new().await;
    lab.send(pay("{}")).await;
    let again = lab.send(pay("{}")).await;
    assert_eq!(again.header("set-cookie"), None);
    assert_eq!(again.header("cache-control"), Some("no-store"));
    assert!(again.header("date").is_some());
}

#[tokio::test]
async fn a_replay_has_the_trailers_of_the_first_response() {
    let lab = Lab::new().await;
    for (replayed, http2) in [(false, false), (true, false), (true, true)] {
        let request = pay("{}").doing("trailers").with("te", "trailers");
        let reply = if http2 { request.over_http2(lab.address).await } else { request.to(lab.address).await };
        assert_eq!(reply.replayed(), replayed);
        let trailers = reply.trailers.expect("there are trailers");
        assert_eq!(trailers.get("grpc-status").map(|value| value.as_bytes()), Some(&b"0"[..]));
    }
}

#[tokio::test]
async fn a_replay_is_the_same_from_memory_and_from_the_store() {
    let lab = Lab::new().await;
    lab.send(pay("{}")).await;
    let from_memory = lab.send(pay("{}")).await;
    let (second, _) = lab.second(semel_core::Policy::default()).await;
    let mut from_store = pay("{}").to(second).await;
    from_store.headers.insert("date", from_memory.headers["date"].clone());
    assert_eq!((from_store.status, from_store.body), (from_memory.status, from_memory.body));
    assert_eq!(from_store.headers, from_memory.headers);
}

/// Buffer into which a server has read several answers, like hyper's.
struct ReadBuffer(Arc<[u8]>);

impl AsRef<[u8]> for ReadBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[tokio::test]
async fn a_replay_from_memory_does_not_keep_the_read_buffer_of_the_response() {
    let owner: Arc<[u8]> = vec![b'x'; 8192].into();
    let answer = Arc::new(Mutex::new(Some(Bytes::from_owner(ReadBuffer(owner.clone())))));
    let service = tower::service_fn(move |_: Request<semel_http::Body>| {
        let read = answer.lock().expect("nobody panicked").take().expect("it is run once");
        let location = HeaderValue::from_maybe_shared(read.slice(..8)).expect("it is text");
        let answer = Response::builder().status(201).header("location", location);
        std::future::ready(answer.body(Full::new(read.slice(8..16))))
    });
    let layer = IdempotencyLayer::builder(Arc::new(MemoryStore::new())).identify(identify);
    let mut service = layer.build().expect("the layer is valid").layer(service);
    for replayed in [false, true] {
        let request = Request::post("/payments").header("x-user", "alice").header("idempotency-key", KEY);
        let request = request.body(Full::new(Bytes::new())).expect("it is a request");
        let answer = service.call(request).await.expect("it answers");
        assert_eq!(answer.headers().contains_key("idempotency-replayed"), replayed);
        assert_eq!(answer.headers()["location"], "xxxxxxxx");
        let body = answer.into_body().collect().await.expect("it is whole").to_bytes();
        assert_eq!(body, "xxxxxxxx");
    }
    // The tasks of the first request may still be ending.
    let freed = async {
        while Arc::strong_count(&owner) > 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), freed).await.expect("nothing holds it any more");
}
