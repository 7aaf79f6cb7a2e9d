//! The admin listener: is it alive, is it ready, what does it count.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use semel_core::Store;

use crate::breaker::Breaker;

/// How long the store may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the admin listener shows.
#[derive(Clone)]
pub struct Admin {
    pub(crate) store: Arc<Breaker>,
    pub(crate) closing: Arc<AtomicBool>,
    pub(crate) metrics: PrometheusHandle,
}

/// The admin listener's pages.
pub fn router(admin: Admin) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(admin)
}

/// Whether commands are taken: the store answers, and nobody has asked us to stop.
async fn readyz(State(admin): State<Admin>) -> impl IntoResponse {
    if admin.closing.load(Ordering::SeqCst) {
        return (StatusCode::SERVICE_UNAVAILABLE, "shutting down\n");
    }
    if admin.store.is_open() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the store is away\n");
    }
    match tokio::time::timeout(PATIENCE, admin.store.now()).await {
        Ok(Ok(_)) => (StatusCode::OK, "ready\n"),
        Ok(Err(_)) | Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the store is away\n"),
    }
}

async fn metrics(State(admin): State<Admin>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], admin.metrics.render())
}
