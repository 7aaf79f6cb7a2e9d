//! Answer to an invalid request: a status, and a sentence in JSON.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::ledger::Broken;

pub(super) struct Refusal(StatusCode, String);

impl Refusal {
    pub(super) fn new(status: StatusCode, why: impl Into<String>) -> Refusal {
        Refusal(status, why.into())
    }

    pub(super) fn bad_request(why: impl Into<String>) -> Refusal {
        Refusal(StatusCode::BAD_REQUEST, why.into())
    }
}

impl From<Broken> for Refusal {
    fn from(broken: Broken) -> Refusal {
        Refusal(StatusCode::INTERNAL_SERVER_ERROR, broken.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}
