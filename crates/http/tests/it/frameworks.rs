//! The layer around services other than axum's, and over HTTP/2.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use semel_http::{IdempotencyLayer, NotExecuted};
use semel_stores::MemoryStore;
use tokio::net::TcpListener;
use tower::{Layer, ServiceExt};

use crate::lab::{Lab, identify, pay, problem};

#[tokio::test]
async fn axum_over_http2_is_protected_as_over_http1() {
    let lab = Lab::new().await;
    let first = pay("{}").over_http2(lab.address).await;
    assert_eq!(first.status, 201);
    let over_http2 = pay("{}").over_http2(lab.address).await;
    let over_http1 = pay("{}").to(lab.address).await;
    assert!(over_http2.replayed() && over_http1.replayed());
    assert_eq!((&over_http2.body, &over_http1.body), (&first.body, &first.body));
    assert_eq!(lab.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_undelayed_command_is_answered_without_waiting_for_a_timer() {
    let service = tower::service_fn(|_: Request<semel_http::Body>| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"paid"))))
    });
    let layer = IdempotencyLayer::builder(Arc::new(MemoryStore::new())).identify(identify);
    let service = layer.build().expect("the layer is valid").layer(service);
    let request = Request::post("/payments")
        .header("x-user", "alice")
        .header("idempotency-key", "\"a-key-of-its-own-0001\"")
        .body(Full::new(Bytes::from_static(b"{}")))
        .expect("it is a request");
    // tokio's timers count whole milliseconds: between two of them, even a pause of zero lasts until the
    // next.
    tokio::time::advance(Duration::from_micros(300)).await;
    let begun = tokio::time::Instant::now();
    let answer = service.oneshot(request).await.expect("it is answered");
    assert_eq!(answer.status(), 200);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn a_plain_hyper_service_behind_the_layer_replays_responses() {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let service = tower::service_fn(move |request: Request<semel_http::Body>| {
        let counter = counter.clone();
        async move {
            let body = request.into_body().collect().await.expect("it is in hand").to_bytes();
            let number = counter.fetch_add(1, Ordering::SeqCst) + 1;
            let answer = [format!("{number}:").as_bytes(), &body].concat();
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(answer))))
        }
    });
    let layer = IdempotencyLayer::builder(Arc::new(MemoryStore::new())).identify(identify);
    let service = layer.build().expect("the layer is valid").layer(service);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(async move {
                auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await
            });
        }
    });
    let first = pay("a").to(address).await;
    let over_http1 = pay("a").to(address).await;
    let over_http2 = pay("a").over_http2(address).await;
    assert!(over_http1.replayed() && over_http2.replayed());
    assert_eq!((&over_http1.body, &over_http2.body), (&first.body, &first.body));
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_services_own_error_is_unknown_unless_it_proves_that_nothing_ran() {
    for proven in [false, true] {
        let service = tower::service_fn(move |_: Request<semel_http::Body>| async move {
            let error: semel_http::BoxError =
                if proven { Box::new(NotExecuted("refused".into())) } else { "it broke off".into() };
            Err::<Response<Full<Bytes>>, _>(error)
        });
        let layer = IdempotencyLayer::builder(Arc::new(MemoryStore::new())).identify(identify);
        let mut service = layer.build().expect("the layer is valid").layer(service);
        let mut send = async || {
            let request = Request::post("/payments")
                .header("idempotency-key", crate::lab::KEY)
                .header("x-user", "alice")
                .body(Full::new(Bytes::new()))
                .expect("valid");
            let answer = tower::Service::call(&mut service, request).await.expect("commands are answered");
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await.expect("it is in hand").to_bytes();
            let document: serde_json::Value = serde_json::from_slice(&body).expect("it is a problem");
            (status, document["code"].as_str().unwrap_or_default().to_owned())
        };
        if proven {
            assert_eq!(send().await, problem(502, "UPSTREAM_UNREACHABLE"));
            assert_eq!(send().await, problem(502, "UPSTREAM_UNREACHABLE"), "it was tried again");
        } else {
            assert_eq!(send().await, problem(502, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
            assert_eq!(send().await, problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
        }
    }
}
