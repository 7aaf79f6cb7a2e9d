//! Answers to refused requests, and to those that cannot be answered: a status, and a sentence in JSON.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

pub(super) fn refusal(status: StatusCode, why: &str) -> Response {
    (status, Json(json!({ "error": why }))).into_response()
}

/// Error: the database could not be read.
#[derive(Debug)]
pub(super) struct Unavailable(pub(super) String);

impl IntoResponse for Unavailable {
    fn into_response(self) -> Response {
        refusal(StatusCode::SERVICE_UNAVAILABLE, &format!("payments cannot be read: {}", self.0))
    }
}
