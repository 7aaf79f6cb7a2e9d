//! `POST /payments`, and the caller's own payments.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use semel::flow::Idempotent;
use serde_json::json;

use super::book::Unavailable;
use super::payment::Order;
use super::stand::{self, Point};
use super::{Shared, identify};

/// Takes the payment, and answers 202: it is charged a moment later. What is asked for wrongly leaves nothing, so the
/// same key may be sent again with what was meant.
pub(super) async fn create(
    State(shared): State<Arc<Shared>>,
    Idempotent(command): Idempotent,
    body: Bytes,
) -> Response {
    let order = match Order::read(&body) {
        Ok(order) => order,
        Err(why) => return refusal(StatusCode::BAD_REQUEST, &why),
    };
    let answered = shared.book.accept(&command, order).await;
    stand::at(Point::AfterCommit);
    shared.wake();
    answered.into_response()
}

pub(super) async fn show(
    State(shared): State<Arc<Shared>>,
    Caller(caller): Caller,
    Path(id): Path<String>,
) -> Result<Response, Unavailable> {
    Ok(match shared.book.find(caller, id).await? {
        Some(payment) => Json(payment).into_response(),
        // Also if it is somebody else's.
        None => refusal(StatusCode::NOT_FOUND, "no such payment"),
    })
}

pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    Caller(caller): Caller,
) -> Result<Response, Unavailable> {
    Ok(Json(shared.book.list(caller).await?).into_response())
}

/// Who is asking, for requests that are no commands.
pub(super) struct Caller(pub(super) String);

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller, Response> {
        let who =
            identify(parts).map_err(|_| refusal(StatusCode::UNAUTHORIZED, "who is asking? say X-User"))?;
        Ok(Caller(who.caller().to_owned()))
    }
}

impl IntoResponse for Unavailable {
    fn into_response(self) -> Response {
        refusal(StatusCode::SERVICE_UNAVAILABLE, &format!("payments cannot be read: {}", self.0))
    }
}

pub(super) fn refusal(status: StatusCode, why: &str) -> Response {
    (status, Json(json!({ "error": why }))).into_response()
}
