//! Sink that sends each message as a signed POST over HTTP. It treats the answer as untrusted input.
//!
//! | header | |
//! |---|---|
//! | `Semel-Event-Id` | the event id, the same in every try |
//! | `Idempotency-Key` | the event id in quotes, for receivers that know this header |
//! | `Semel-Event-Kind` | the message's kind |
//! | `Semel-Signature` | `t=…,v1=…`: the send time in seconds since 1970, and the HMAC-SHA256 of `t.eventId.body` in hex |
//!
//! | answer | |
//! |---|---|
//! | 2xx | delivered; `Semel-Reference`, or else `Location`, is stored as the receiver's reference |
//! | 408, 425, 429, 500 and above, no answer, timeout | retried, not before `Retry-After` if that is reasonable |
//! | anything else, redirects included | dead at once: a retry would get the same answer |

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;
use semel_core::outbox::{Message, Tried};
use semel_core::{Clock, SystemClock, is_server_error};
use semel_outgoing::{Address, Client, Error, TlsError, TlsSettings};

use super::sink::Sink;
use crate::signature::{MIN_KEY, sign};

/// Maximum number of bytes read from an error response.
const MAX_ANSWER: usize = 64 * 1024;

/// Sends messages to one address.
pub struct HttpSink {
    client: Client,
    content_type: HeaderValue,
    key: Vec<u8>,
}

/// Error that rejects an address, its TLS files or a key.
#[derive(Debug, thiserror::Error)]
pub enum HttpSinkError {
    /// The address is not valid.
    #[error("{0:?} is not an address such as https://receiver.example/events: {1}")]
    Address(String, String),
    /// The TLS settings cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The key is too short.
    #[error("a key for signatures has at least {MIN_KEY} bytes, and this has {0}")]
    ShortKey(usize),
}

impl HttpSink {
    /// Creates a sink that sends to this address and signs with this key, which it shares with the receiver.
    pub fn new(address: &str, key: &[u8]) -> Result<HttpSink, HttpSinkError> {
        let parsed: Result<Address, _> = address.parse();
        let target =
            parsed.map_err(|error| HttpSinkError::Address(address.to_owned(), format!("{error}")))?;
        if key.len() < MIN_KEY {
            return Err(HttpSinkError::ShortKey(key.len()));
        }
        Ok(HttpSink {
            client: Client::new(target, TlsSettings::default())?.timeout(Duration::from_secs(8)),
            content_type: HeaderValue::from_static("application/json"),
            key: key.to_owned(),
        })
    }

    /// Uses these TLS files in place of the system's trusted certificates.
    ///
    /// # Errors
    /// If the files cannot be used.
    pub fn tls(self, settings: TlsSettings) -> Result<HttpSink, HttpSinkError> {
        Ok(HttpSink { client: self.client.tls(settings)?, ..self })
    }

    /// Sets the content type, for payloads that are not JSON.
    pub fn content_type(self, content_type: HeaderValue) -> HttpSink {
        HttpSink { content_type, ..self }
    }

    /// Sets the timeout of connecting, and the timeout of the whole call.
    pub fn timeouts(self, connect: Duration, total: Duration) -> HttpSink {
        HttpSink { client: self.client.connect_timeout(connect).timeout(total), ..self }
    }

    async fn send(&self, message: &Message) -> Result<Tried, String> {
        let answer = self.client.send(self.request(message)?).await.map_err(|error| match error {
            Error::TimedOut(_) => "no answer in time".to_owned(),
            other => other.to_string(),
        })?;
        let (status, headers) = (answer.head.status, answer.head.headers.clone());
        // A success status is final, even if the rest of the response is broken.
        if status.is_success() {
            return Ok(Tried::Accepted { reference: reference(&headers) });
        }
        let body = answer.bytes(MAX_ANSWER).await.map(http::Response::into_body).unwrap_or_default();
        Ok(judged(status, &headers, &body))
    }

    fn request(&self, message: &Message) -> Result<Request<Full<Bytes>>, String> {
        let seconds = SystemClock.now().as_millis() / 1000;
        let signature = signature(&self.key, seconds, &message.event_id, &message.payload);
        self.client
            .request(Method::POST, self.client.address().target())
            .header(CONTENT_TYPE, &self.content_type)
            .header("semel-event-id", &message.event_id)
            .header("semel-event-kind", &message.kind)
            .header("idempotency-key", format!("\"{}\"", message.event_id))
            .header("semel-signature", signature)
            .body(Full::new(message.payload.clone()))
            .map_err(|error| format!("it cannot be sent: {error}"))
    }
}

#[async_trait]
impl Sink for HttpSink {
    async fn deliver(&self, message: &Message) -> Tried {
        self.send(message).await.unwrap_or_else(|why| Tried::Failed { why, retry_after: None })
    }
}

/// Returns the value of `Semel-Signature` for a message sent at this second.
pub fn signature(key: &[u8], seconds: i64, event_id: &str, body: &[u8]) -> String {
    let mac = sign(key, &[format!("{seconds}.{event_id}.").as_bytes(), body]);
    format!("t={seconds},v1={mac}")
}

fn reference(headers: &HeaderMap) -> Option<String> {
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    headers.get("semel-reference").or_else(|| headers.get(LOCATION)).and_then(text)
}

/// Returns the result for a status other than success.
fn judged(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Tried {
    let said: String = String::from_utf8_lossy(body).chars().take(200).collect();
    let why = format!("status {}: {}", status.as_u16(), said.trim());
    match status {
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            Tried::Failed { why, retry_after: retry_after(headers) }
        }
        status if is_server_error(status) => Tried::Failed { why, retry_after: retry_after(headers) },
        status if status.is_redirection() => {
            Tried::Refused { why: format!("{why} (redirects are not followed)") }
        }
        _ => Tried::Refused { why },
    }
}

/// Returns the value of `Retry-After`: seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => Some(semel_core::Timestamp::from_http_date(text)?.since(SystemClock.now())),
    }
}
