//! Calls to the provider, under keys that are equal in every attempt.

use std::net::SocketAddr;

use axum::http::{Request, StatusCode};
use bytes::Bytes;
use http_body_util::Full;
use serde_json::Value;

use semel_chaos::client;
use semel_chaos::reading::NOT_EXECUTED;

/// Answer of the provider.
pub(super) enum Word {
    Charged(String),
    Declined,
    /// The provider will never take this call.
    Refused,
    NotExecuted(String),
    Unsure(String),
}

/// Call to the provider.
pub(super) struct Charge<'a> {
    pub(super) key: &'a str,
    pub(super) operation_id: &'a str,
    pub(super) part: &'a str,
    pub(super) deduplicated: bool,
    pub(super) asked: &'a Value,
}

/// Calls the provider once.
pub(super) async fn charge(provider: SocketAddr, charge: &Charge<'_>) -> Word {
    let request = Request::builder()
        .method("POST")
        .uri("/charges")
        .header("host", provider.to_string())
        .header("x-derived-key", charge.key)
        .header("x-operation-id", charge.operation_id)
        .header("x-part", charge.part)
        .header("x-deduplicated", charge.deduplicated.to_string())
        .body(Full::new(Bytes::from(charge.asked.to_string())));
    let Ok(request) = request else { return Word::NotExecuted("the call cannot be made".to_owned()) };
    let reply = match client::send(provider, request).await {
        Ok(reply) => reply,
        Err(why) if why.starts_with(client::NOT_CONNECTED) => return Word::NotExecuted(why),
        Err(why) => return Word::Unsure(why),
    };
    let document: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    match (reply.status, document["effect"].as_str()) {
        (StatusCode::CREATED, Some(effect)) => Word::Charged(effect.to_owned()),
        (StatusCode::PAYMENT_REQUIRED, _) => Word::Declined,
        (StatusCode::UNPROCESSABLE_ENTITY, _) => Word::Refused,
        _ if reply.header(NOT_EXECUTED).is_some() => Word::NotExecuted("it says so".to_owned()),
        (status, _) => Word::Unsure(format!("it answered {status}")),
    }
}
