//! `POST /webhooks/provider`: what the provider tells by itself, as evidence about a payment.
//!
//! It is believed if it is signed with the shared secret, a moment ago. It settles a payment whose answer was lost, and
//! changes nothing about one that is settled: told twice, late or in the wrong order, it says the same.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use hmac::{Hmac, KeyInit, Mac};
use semel::core::{Clock, Note, OperationId, SystemClock};
use semel::flow::Settled;
use serde::Deserialize;
use sha2::Sha256;

use super::Shared;
use super::pay::refusal;
use super::payment::Charge;

/// How far the time of a signature may be from ours.
const WINDOW: Duration = Duration::from_secs(5 * 60);

/// What the provider tells.
#[derive(Deserialize)]
struct Event {
    id: String,
    r#type: String,
    data: Charge,
}

pub(super) async fn take(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode, Response> {
    let secret = shared.webhook_secret.as_deref();
    let secret = secret.ok_or_else(|| refusal(StatusCode::NOT_FOUND, "no webhooks are taken here"))?;
    let event_id = verified(secret, &headers, &body)
        .map_err(|why| refusal(StatusCode::UNAUTHORIZED, &format!("the webhook is not believed: {why}")))?;
    let wrong = |why: &str| refusal(StatusCode::BAD_REQUEST, why);
    let event: Event = serde_json::from_slice(&body).map_err(|error| wrong(&format!("the body: {error}")))?;
    if event.id != event_id {
        return Err(wrong("the header and the body name different events"));
    }
    // Charges that others have made are none of ours.
    let Ok(command) = event.data.reference.parse::<OperationId>() else { return Ok(StatusCode::NO_CONTENT) };
    let note = Note {
        who: "the provider's webhook".to_owned(),
        action: "resolve".to_owned(),
        why: format!("{}: {} for {}", event.id, event.r#type, event.data.id),
    };
    match shared.book.settle(command, event.data, Some(note)).await {
        Settled::Now(_) | Settled::Before(_) | Settled::Absent => Ok(StatusCode::NO_CONTENT),
        Settled::RolledBack | Settled::Unavailable | Settled::InDoubt => {
            Err(refusal(StatusCode::SERVICE_UNAVAILABLE, "it could not be written down; tell it again"))
        }
    }
}

/// The id of the event, if somebody who knows the secret has signed it a moment ago.
fn verified(secret: &str, headers: &HeaderMap, body: &[u8]) -> Result<String, &'static str> {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let event_id = header("semel-event-id").ok_or("there is no Semel-Event-Id")?;
    let signature = header("semel-signature").ok_or("there is no Semel-Signature")?;
    let parts = signature.strip_prefix("t=").and_then(|rest| rest.split_once(",v1="));
    let (seconds, hex) = parts.ok_or("the signature is not t=SECONDS,v1=HEX")?;
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).map_err(|_| "the secret is no key")?;
    mac.update(format!("{seconds}.{event_id}.").as_bytes());
    mac.update(body);
    mac.verify_slice(&bytes(hex).ok_or("the signature is not in hex")?)
        .map_err(|_| "the signature is wrong")?;
    let seconds: i64 = seconds.parse().map_err(|_| "its time is not a number")?;
    let now = SystemClock.now().as_millis() / 1000;
    if now.abs_diff(seconds) > WINDOW.as_secs() {
        return Err("it was signed too long ago");
    }
    Ok(event_id.to_owned())
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    pairs
        .map(|pair| {
            u8::from_str_radix(std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?, 16).ok()
        })
        .collect()
}
