//! `POST /payments`, and the caller's own payments.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use semel::flow::Idempotent;

use super::Shared;
use super::caller::Caller;
use super::payment::Order;
use super::refusal::{Unavailable, refusal};
use super::stand::{self, Point};

/// Accepts the payment, and answers 202: it is charged a moment later. An invalid request stores nothing, so the same
/// key may be sent again with a corrected one.
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
        // Also if it belongs to another caller.
        None => refusal(StatusCode::NOT_FOUND, "no such payment"),
    })
}

pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    Caller(caller): Caller,
) -> Result<Response, Unavailable> {
    Ok(Json(shared.book.list(caller).await?).into_response())
}
