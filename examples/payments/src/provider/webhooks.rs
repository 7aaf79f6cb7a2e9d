//! Sender of events about charges: one after the other, signed, with retries.
//!
//! An event can arrive twice: a provider that was killed before it had noted the answer sends it again.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{CONNECTION, CONTENT_TYPE, HOST, USER_AGENT};
use axum::http::{Request, StatusCode, Uri};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::Provider;
use super::endpoint::Endpoint;
use super::events::{Agenda, Due};
use super::ledger::{Broken, Ledger};
use super::refusal::Refusal;
use super::signature::signature;

/// Maximum number of tries of an event, and the bounds of its backoff, which doubles each time.
const MAX_TRIES: u32 = 10;
const FIRST_WAIT: Duration = Duration::from_millis(100);
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Timeout of a receiver.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum size of an answer's head, in bytes.
const MAX_HEAD: usize = 16 * 1024;
/// Pause while the ledger is not available.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn subscribe(State(provider): State<Provider>, body: Bytes) -> Result<Json<Value>, Refusal> {
    let Endpoint { url, secret } = serde_json::from_slice(&body)
        .map_err(|error| Refusal::bad_request(format!("{{\"url\": …, \"secret\": …}} is needed: {error}")))?;
    let endpoint = Endpoint::new(url, secret).map_err(Refusal::bad_request)?;
    let url = endpoint.url.clone();
    provider.ledger.subscribe(endpoint).await?;
    Ok(Json(json!({ "url": url })))
}

/// Sends due events, for ever.
pub(super) async fn run(ledger: Ledger) {
    loop {
        let wait = match ledger.agenda().await {
            Ok(Agenda::Send(due)) => match tell(&ledger, due).await {
                Ok(()) => continue,
                Err(_) => PAUSE,
            },
            Ok(Agenda::Wait(until)) => until,
            Ok(Agenda::Idle) => Duration::MAX,
            Err(_) => PAUSE,
        };
        let _ = tokio::time::timeout(wait, ledger.news()).await;
    }
}

/// Sends one event, and stores the result.
async fn tell(ledger: &Ledger, due: Due) -> Result<(), Broken> {
    let why = match tokio::time::timeout(PATIENCE, send(&due)).await {
        Ok(Ok(status)) if status.is_success() => return ledger.sent(due.id).await,
        Ok(Ok(status)) => format!("it answered {status}"),
        Ok(Err(why)) => why,
        Err(_) => "no answer in time".to_owned(),
    };
    let tries = due.tries + 1;
    let again = (tries < MAX_TRIES).then(|| MAX_WAIT.min(FIRST_WAIT * 2_u32.saturating_pow(tries - 1)));
    ledger.failed(due.id, why, again).await
}

async fn send(due: &Due) -> Result<StatusCode, String> {
    let address: Uri = due.endpoint.url.parse().map_err(|error| format!("the address: {error}"))?;
    let authority = address.authority().ok_or("the address has no host")?;
    let request = Request::post(address.path_and_query().map_or("/", |path| path.as_str()))
        .header(HOST, authority.as_str())
        .header(CONNECTION, "close")
        .header(USER_AGENT, "provider")
        .header(CONTENT_TYPE, "application/json")
        .header("semel-event-id", &due.id)
        .header("semel-signature", signature(&due.endpoint.secret, due.seconds, &due.id, &due.body))
        .body(Full::new(Bytes::from(due.body.clone())))
        .map_err(|error| format!("it cannot be sent: {error}"))?;
    let connect_to = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80));
    let stream = TcpStream::connect(&connect_to).await;
    let stream = stream.map_err(|error| format!("cannot connect to {connect_to}: {error}"))?;
    let _ = stream.set_nodelay(true);
    let handshake = http1::Builder::new().max_buf_size(MAX_HEAD).handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(|error| error.to_string())?;
    let no_answer = |error: hyper::Error| format!("no answer: {error}");
    // In the same task, so that both end together.
    let answering = sender.send_request(request);
    tokio::pin!(connection);
    tokio::pin!(answering);
    tokio::select! {
        biased;
        answer = &mut answering => answer.map(|answer| answer.status()).map_err(no_answer),
        ended = &mut connection => {
            ended.map_err(no_answer)?;
            // The answer may have arrived before the connection ended.
            answering.await.map(|answer| answer.status()).map_err(no_answer)
        }
    }
}
