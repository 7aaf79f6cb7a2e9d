//! `GET /`: a payment form. Its files are served as they are; `page/script.js` inserts all data as text, and the
//! content security policy allows no other script.
//!
//! `page/client` is a copy of the compiled client of `sdk/typescript`, whose `check.sh` compares the two.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName};
use axum::response::{IntoResponse, Response};

const POLICY: &str = "default-src 'none'; connect-src 'self'; img-src data:; script-src 'self'; style-src 'self'; \
                      form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

pub(super) async fn show() -> impl IntoResponse {
    file("text/html; charset=utf-8", include_str!("page/index.html"))
}

pub(super) async fn style() -> impl IntoResponse {
    file("text/css; charset=utf-8", include_str!("page/style.css"))
}

pub(super) async fn script() -> impl IntoResponse {
    file("text/javascript; charset=utf-8", include_str!("page/script.js"))
}

/// Declares the modules of the client, each with its text.
macro_rules! client {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("page/client/", $name)))),*]
    };
}

const CLIENT: [(&str, &str); 20] = client![
    "answer.js",
    "attempt.js",
    "budget.js",
    "call.js",
    "client.js",
    "clock.js",
    "decide.js",
    "done.js",
    "errors.js",
    "failure.js",
    "form.js",
    "index.js",
    "indexeddb.js",
    "journal.js",
    "judge.js",
    "key.js",
    "request.js",
    "resume.js",
    "submission.js",
    "telemetry.js",
];

pub(super) async fn client(Path(name): Path<String>) -> Response {
    match CLIENT.iter().find(|(module, _)| *module == name) {
        Some((_, text)) => file("text/javascript; charset=utf-8", text).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn file(content_type: &'static str, text: &'static str) -> impl IntoResponse {
    let headers = [
        (CONTENT_TYPE, content_type),
        (CONTENT_SECURITY_POLICY, POLICY),
        (CACHE_CONTROL, "no-cache"),
        (HeaderName::from_static("referrer-policy"), "no-referrer"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
    ];
    (headers, text)
}
