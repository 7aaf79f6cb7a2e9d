//! Signed events about charges, sent to the gateway some time after the charge. An event of a process that
//! has died is lost.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::Method;
use http::header::CONTENT_TYPE;
use http_body_util::Full;
use semel_core::{Clock, SystemClock};
use semel_flow::outbox::http::signature;
use semel_outgoing::{Client, TlsSettings};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::shop::Shop;
use crate::cli::demo::settings::SECRET_VARIABLE;

/// Path of the gateway's webhook.
const WEBHOOK: &str = "/.well-known/semel/webhooks/payments";
/// Time between a charge and its event: longer than the gateway waits for an answer, so that a person sees
/// the outcome being unknown.
const DELAY: Duration = Duration::from_secs(8);
/// Most tries of an event.
const MAX_TRIES: usize = 3;
/// Pause before the next try.
const PAUSE: Duration = Duration::from_secs(1);
/// Most bytes of an answer.
const MAX_ANSWER: usize = 4096;
/// Most events that wait at a time. More charges than that go without one.
const MAX_WAITING: usize = 100;

static WAITING: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(MAX_WAITING)));

/// Sends the event about a charge, this number of times, after a while; nothing during the story.
pub(super) fn send_later(shop: &Arc<Shop>, number: usize, charge: &Value, copies: usize) {
    let Some(gateway) = shop.introduction().map(|introduction| introduction.gateway) else { return };
    let Ok(place) = WAITING.clone().try_acquire_owned() else { return };
    let id = format!("evt_{number}");
    let body = json!({ "id": id, "type": "charge.captured", "data": charge }).to_string();
    shop.expect_event(number, copies);
    let shop = shop.clone();
    tokio::spawn(async move {
        tokio::time::sleep(DELAY).await;
        let address = format!("http://{gateway}");
        for _ in 0..copies {
            let answer = deliver(&address, &id, &body).await;
            shop.note_answer(number, answer.unwrap_or_else(|_| "no answer".to_owned()));
        }
        drop(place);
    });
}

/// Sends the event until it is answered, and returns the answer in a word.
async fn deliver(gateway: &str, id: &str, body: &str) -> anyhow::Result<String> {
    for _ in 1..MAX_TRIES {
        match post(gateway, id, body).await {
            Ok(answer) if !answer.starts_with('5') => return Ok(answer),
            Ok(_) | Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    post(gateway, id, body).await
}

async fn post(gateway: &str, id: &str, body: &str) -> anyhow::Result<String> {
    let secret = std::env::var(SECRET_VARIABLE).context("there is no secret")?;
    let seconds = SystemClock.now().as_millis() / 1000;
    let client = Client::new(gateway.parse()?, TlsSettings::default())?;
    let request = client
        .request(Method::POST, WEBHOOK)
        .header(CONTENT_TYPE, "application/json")
        .header("semel-event-id", id)
        .header("semel-signature", signature(secret.as_bytes(), seconds, id, body.as_bytes()));
    let answer = client.send(request.body(Full::new(Bytes::copy_from_slice(body.as_bytes())))?).await?;
    let (parts, answer) = answer.bytes(MAX_ANSWER).await?.into_parts();
    let told: Value = serde_json::from_slice(&answer).unwrap_or_default();
    let word = ["taken", "seen", "ignored"].into_iter().find(|word| told[*word] == true);
    Ok(word.map_or_else(|| parts.status.as_u16().to_string(), str::to_owned))
}
