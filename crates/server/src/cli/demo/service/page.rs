//! The demo's page and its endpoints. Its files are served as they are; its scripts insert all data as
//! text, and the content security policy allows no other script.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::shop::Shop;

const POLICY: &str = "default-src 'none'; connect-src 'self'; img-src 'self'; script-src 'self'; style-src 'self'; \
                      form-action 'none'; frame-ancestors 'none'; base-uri 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

pub(super) async fn show() -> impl IntoResponse {
    file("text/html; charset=utf-8", include_str!("../page/index.html"))
}

pub(super) async fn style() -> impl IntoResponse {
    file("text/css; charset=utf-8", include_str!("../page/style.css"))
}

pub(super) async fn script() -> impl IntoResponse {
    file("text/javascript; charset=utf-8", include_str!("../page/script.js"))
}

pub(super) async fn base() -> impl IntoResponse {
    file("text/javascript; charset=utf-8", include_str!("../page/base.js"))
}

pub(super) async fn left() -> impl IntoResponse {
    file("text/javascript; charset=utf-8", include_str!("../page/left.js"))
}

pub(super) async fn words() -> impl IntoResponse {
    file("text/javascript; charset=utf-8", include_str!("../page/words.js"))
}

pub(super) async fn icon() -> impl IntoResponse {
    file("image/svg+xml", include_str!("../page/icon.svg"))
}

/// Returns what the page shows: charges, bad days, and the addresses around.
pub(super) async fn state(State(shop): State<Arc<Shop>>) -> impl IntoResponse {
    ([(CACHE_CONTROL, "no-store")], Json(shop.show()))
}

/// Arms or disarms bad days. There are none during the story.
pub(super) async fn switches(
    State(shop): State<Arc<Shop>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, (StatusCode, Json<serde_json::Value>)> {
    let refuse = |status, error: String| Err((status, Json(json!({ "error": error }))));
    if headers.get(CONTENT_TYPE) != Some(&HeaderValue::from_static("application/json")) {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "JSON is needed".to_owned());
    }
    if shop.introduction().is_none() {
        return refuse(StatusCode::CONFLICT, "the story is not over".to_owned());
    }
    let mut days = shop.days();
    match days.change(&body) {
        Ok(()) => Ok(Json(days.show()).into_response()),
        Err(error) => refuse(StatusCode::BAD_REQUEST, error),
    }
}

fn file(content_type: &'static str, text: &'static str) -> impl IntoResponse {
    let headers = [
        (CONTENT_TYPE, content_type),
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("referrer-policy"), "no-referrer"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
    ];
    (headers, text)
}
