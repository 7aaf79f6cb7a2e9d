//! `POST /payments`: charges the card, then has the bad day that somebody asked for.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Value, json};

use super::events;
use super::shop::Shop;
use super::switches::BadDay;

/// Header by which the story asks for a failure.
pub(in crate::cli::demo) const STORY_DAY: &str = "x-demo-bad-day";

/// Charges the card: writes a line to the ledger, then answers unless it has a bad day.
pub(super) async fn pay(
    State(shop): State<Arc<Shop>>,
    headers: HeaderMap,
    Json(payment): Json<Value>,
) -> Response {
    if !payment["amount"].is_number() {
        let error = json!({ "error": "`amount` is a number" });
        return (StatusCode::BAD_REQUEST, Json(error)).into_response();
    }
    let (day, doubled) = {
        let mut days = shop.days();
        (days.take_one_of_the_answer(), days.take(BadDay::DoubleWebhooks))
    };
    let number = shop.ledger.count() + 1;
    let operation = headers.get("semel-operation-id").and_then(|id| id.to_str().ok());
    let charge = json!({ "charge": number, "amount": payment["amount"], "operation": operation });
    let story_day = headers.get(STORY_DAY).map(|day| day.as_bytes());
    let is_killed_by_the_story = shop.introduction().is_none() && story_day == Some(b"stuck");
    if operation.is_some() && (day == Some(BadDay::DieAfterCharging) || is_killed_by_the_story) {
        // The event would come from this process, which does not live to send it. The next one says so, and the
        // story kills this one as soon as it sees the charge.
        shop.expect_event(number, 1);
    }
    if let Err(error) = shop.ledger.write(&charge) {
        return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response();
    }
    if day == Some(BadDay::DieAfterCharging) {
        let _ = kill_process(getpid(), Signal::KILL);
    }
    if operation.is_some() {
        events::send_later(&shop, number, &charge, if doubled { 2 } else { 1 });
    }
    match (day, story_day) {
        (_, Some(b"slow")) => tokio::time::sleep(Duration::from_millis(150)).await,
        // Charged, but without an answer: the story kills the process meanwhile, or the client gives up.
        (_, Some(b"stuck")) | (Some(BadDay::TimeoutAfterCharging), _) => std::future::pending::<()>().await,
        (Some(BadDay::ErrorAfter), _) => {
            let error = json!({ "error": "something broke, and nobody knows when" });
            return (StatusCode::INTERNAL_SERVER_ERROR, Json(error)).into_response();
        }
        _ => {}
    }
    let mut fields = HeaderMap::new();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(value) = format!("/payments/{number}").parse() {
        fields.insert(header::LOCATION, value);
    }
    // A line end for people who use curl.
    (StatusCode::CREATED, fields, format!("{charge}\n")).into_response()
}
