//! Deadlines of clients: a command whose client has stopped waiting before the claim runs nothing.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use semel_http::{IdempotencyLayer, Operation};
use semel_stores::MemoryStore;
use serde_json::Value;
use tower::{Layer, ServiceExt};

use crate::lab::{KEY, identify};

/// The time that authorization takes, before every claim.
const BEFORE_THE_CLAIM: Duration = Duration::from_millis(1000);

/// The time that the handler takes.
const IN_THE_HANDLER: Duration = Duration::from_millis(500);

/// A layer around a handler that counts.
struct Timed {
    layer: IdempotencyLayer,
    count: Arc<AtomicUsize>,
}

/// An answer, read to its end.
#[derive(Debug)]
struct Told {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Told {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns the status and the code of a problem.
    fn problem(&self) -> (u16, String) {
        let document: Value = serde_json::from_slice(&self.body).expect("it is JSON");
        (self.status, document["code"].as_str().expect("it has a code").to_owned())
    }

    fn replayed(&self) -> bool {
        self.header("idempotency-replayed") == Some("true")
    }
}

fn problem(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

impl Timed {
    fn new() -> Timed {
        let layer = IdempotencyLayer::builder(Arc::new(MemoryStore::new()))
            .identify(identify)
            .cache_bytes(0)
            .operation(
                Operation::new("refunds", "POST /refunds").key(semel_core::policy::KeyRequirement::Optional),
            )
            .authorize(|_, _, _| async {
                tokio::time::sleep(BEFORE_THE_CLAIM).await;
                Ok(())
            });
        Timed { layer: layer.build().expect("the layer is valid"), count: Arc::default() }
    }

    /// Sends a request with these fields.
    async fn send(&self, request: http::request::Builder) -> Told {
        let count = self.count.clone();
        let service = tower::service_fn(move |request: Request<semel_http::Body>| {
            let count = count.clone();
            async move {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(IN_THE_HANDLER).await;
                let seen = request.headers().keys().any(|name| name.as_str().starts_with("semel-"));
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(format!("saw it: {seen}")))))
            }
        });
        let request = request.header("x-user", "alice").body(Full::new(Bytes::from_static(b"{}")));
        let request = request.expect("it is a request");
        let answer = self.layer.clone().layer(service).oneshot(request).await.expect("it is answered");
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.expect("it is whole").to_bytes();
        Told { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

fn pay() -> http::request::Builder {
    Request::post("/payments").header("idempotency-key", KEY)
}

fn pay_within(deadline: &str) -> http::request::Builder {
    pay().header("semel-deadline", deadline)
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_ends_before_the_claim_runs_nothing_and_takes_no_key() {
    let timed = Timed::new();
    for deadline in ["0", "999", "1000"] {
        let told = timed.send(pay_within(deadline)).await;
        assert_eq!(told.problem(), problem(503, "DEADLINE_EXCEEDED"), "{deadline}");
        assert_eq!(told.header("idempotency-retry"), Some("same-key"));
        assert_eq!(told.header("retry-after"), None);
        assert_eq!(told.header("idempotency-operation-id"), None);
    }
    assert_eq!(timed.count(), 0);
    let told = timed.send(pay()).await;
    assert_eq!((told.status, told.replayed(), timed.count()), (200, false, 1), "its key was never taken");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_that_ends_after_the_claim_changes_nothing() {
    let timed = Timed::new();
    let told = timed.send(pay_within("1001")).await;
    assert_eq!((told.status, &told.body[..]), (200, &b"saw it: false"[..]));
    assert_eq!(timed.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_known_command_is_answered_after_the_deadline() {
    let timed = Timed::new();
    let (first, duplicate) = tokio::join!(timed.send(pay()), async {
        // The first request is in its handler by the time at which this one could claim.
        tokio::time::sleep(IN_THE_HANDLER / 2).await;
        timed.send(pay_within("0")).await
    });
    assert_eq!(duplicate.problem(), problem(409, "IDEMPOTENCY_REQUEST_IN_PROGRESS"));
    let replay = timed.send(pay_within("0")).await;
    assert!(replay.replayed() && replay.body == first.body, "{replay:?}");
    let other = Request::post("/payments/of/another").header("idempotency-key", KEY);
    let other = timed.send(other.header("semel-deadline", "0")).await;
    assert_eq!(other.problem(), problem(503, "DEADLINE_EXCEEDED"), "it is another operation");
    assert_eq!(timed.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_malformed_deadline_of_a_command_is_refused() {
    let timed = Timed::new();
    for deadline in ["", "1s", "-1", "1.5", "10000000000", "1, 1"] {
        let told = timed.send(pay_within(deadline)).await;
        assert_eq!(told.problem(), problem(400, "MALFORMED_REQUEST"), "{deadline}");
    }
    let twice = timed.send(pay_within("5000").header("semel-deadline", "5000")).await;
    assert_eq!(twice.problem(), problem(400, "MALFORMED_REQUEST"));
    assert_eq!(timed.count(), 0);
    assert_eq!(timed.send(pay_within("9999999999")).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn only_a_command_with_a_key_has_a_deadline() {
    let timed = Timed::new();
    for deadline in ["0", "soon"] {
        let keyless = Request::post("/refunds").header("semel-deadline", deadline);
        let get = Request::get("/payments").header("idempotency-key", KEY).header("semel-deadline", deadline);
        for request in [keyless, get] {
            let told = timed.send(request).await;
            assert_eq!((told.status, &told.body[..]), (200, &b"saw it: false"[..]), "{deadline}");
        }
    }
    assert_eq!(timed.count(), 4);
}
