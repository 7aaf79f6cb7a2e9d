//! Reads of many records at the admin listener, with a store that is slow: their turns, and their end.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::{StatusCode, header};
use http_body_util::BodyExt;
use semel_settings::Sources;
use semel_stores::{Breaker, MemoryStore};
use serde_json::Value;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::Instant;

use super::*;
use crate::operate::busy::{BusyCallerRow, BusySource, HotKeyRow};
use crate::slow_store::SlowStore;

struct Idle;

impl BusySource for Idle {
    fn callers(&self) -> Vec<BusyCallerRow> {
        Vec::new()
    }

    fn hot_keys(&self) -> Vec<HotKeyRow> {
        Vec::new()
    }
}

/// Returns an admin listener's state in front of a slow store.
async fn slow() -> (Arc<SlowStore>, Arc<Admin>) {
    let config = semel_settings::load(&Sources::new(), semel_gateway::service::ADDRESS_CHECKS);
    let config = config.expect("the defaults can be used").config;
    let memory = Arc::new(MemoryStore::new());
    let store = Arc::new(SlowStore::new(memory.clone()));
    let admin = Admin {
        store: Arc::new(Breaker::new(store.clone())),
        outbox: None,
        audit: memory.clone(),
        holds: memory,
        busy: Arc::new(Idle),
        reconciler: None,
        closing: Arc::new(AtomicBool::new(false)),
        metrics: Arc::new(String::new),
        log: None,
        gate: AdminGate::new(&config).await.expect("it needs no token"),
        config,
        settings: Vec::new(),
        history: MetricsHistory::new(),
        ledger: None,
    };
    (store, Arc::new(admin))
}

async fn get(admin: &Arc<Admin>, path: &str) -> Response {
    let request = Request::get(path).header(header::HOST, "127.0.0.1").body(Body::empty());
    let answered = answer(admin.clone(), request.expect("it is a request"));
    tokio::time::timeout(2 * ANSWER_TIME, answered).await.expect("it is answered in time")
}

fn begin(admin: &Arc<Admin>, path: &'static str) -> JoinHandle<Response> {
    let admin = admin.clone();
    tokio::spawn(async move { get(&admin, path).await })
}

async fn json_of(response: Response) -> Value {
    let body = response.into_body().collect().await.expect("it is whole").to_bytes();
    serde_json::from_slice(&body).expect("it is JSON")
}

#[tokio::test(start_paused = true)]
async fn lists_wait_for_their_turn_and_are_refused_after_a_while() {
    let (store, admin) = slow().await;
    let both = [begin(&admin, "/admin/v1/records"), begin(&admin, "/admin/v1/status")];
    store.begun().await;
    store.begun().await;
    for path in ["/admin/v1/records", "/admin/v1/status", "/admin/v1/records/export", "/admin/v1/audit"] {
        let start = Instant::now();
        let refused = get(&admin, path).await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert_eq!(refused.headers()[header::RETRY_AFTER], "1", "{path}");
        let waited = start.elapsed();
        assert!(waited > Duration::from_secs(1) && waited < ANSWER_TIME, "{path}: {waited:?}");
        let problem = json_of(refused).await;
        assert_eq!(problem["code"], "OVERLOADED", "{path}");
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("the turn of this one did not come"), "{path}: {detail}");
    }
    assert_eq!(store.reads(), 2, "no more than these reached the store");
    let next = begin(&admin, "/admin/v1/records");
    yield_now().await;
    store.gate.add_permits(3);
    for answered in both {
        assert_eq!(answered.await.expect("it does not panic").status(), StatusCode::OK);
    }
    assert_eq!(
        next.await.expect("it does not panic").status(),
        StatusCode::OK,
        "it waited, and had its turn"
    );
}

#[tokio::test(start_paused = true)]
async fn readiness_and_holds_wait_for_no_turn() {
    let (store, admin) = slow().await;
    let lists: Vec<_> = (0..MAX_AT_ONCE).map(|_| begin(&admin, "/admin/v1/records")).collect();
    store.begun().await;
    store.begun().await;
    let start = Instant::now();
    for path in ["/healthz", "/readyz", "/metrics", "/admin/v1/holds"] {
        assert_eq!(get(&admin, path).await.status(), StatusCode::OK, "{path}");
    }
    assert_eq!(start.elapsed(), Duration::ZERO);
    let crowded = lists.iter().filter(|list| list.is_finished()).count();
    assert!(crowded > 0, "a few lists wait, and the others are refused at once");
    assert_eq!(store.reads(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_export_without_a_reader_ends_between_two_pages_without_a_match() {
    let (store, admin) = slow().await;
    let export = begin(&admin, "/admin/v1/records/export");
    store.begun().await;
    store.gate.add_permits(1);
    let answer = export.await.expect("it does not panic");
    assert_eq!(answer.status(), StatusCode::OK);
    store.begun().await;
    drop(answer);
    store.gate.add_permits(1_000);
    for _ in 0..10_000 {
        yield_now().await;
    }
    assert_eq!(store.reads(), 2, "the page that had begun was the last one");
    assert_eq!(Arc::strong_count(&admin.gate.turns), 1, "its task has ended");
}

#[tokio::test(start_paused = true)]
async fn an_export_without_a_reader_does_not_wait_for_its_turn() {
    let (store, admin) = slow().await;
    let export = begin(&admin, "/admin/v1/records/export");
    store.begun().await;
    let list = begin(&admin, "/admin/v1/records");
    store.begun().await;
    let waiting = [begin(&admin, "/admin/v1/records"), begin(&admin, "/admin/v1/records")];
    yield_now().await;
    // The export's page ends, and another list has its turn.
    store.gate.add_permits(1);
    let answer = export.await.expect("it does not panic");
    store.begun().await;
    drop(answer);
    for _ in 0..100 {
        yield_now().await;
    }
    assert_eq!(Arc::strong_count(&admin.gate.turns), 1, "its task has ended, and no list has");
    assert!(!list.is_finished() && waiting.iter().all(|list| !list.is_finished()));
}
