//! A sink that sends each message as a POST over HTTP, signed, and does not trust the answer.
//!
//! | header | |
//! |---|---|
//! | `Semel-Event-Id` | the event id, the same in every try |
//! | `Idempotency-Key` | the same in quotes, for receivers that know this header |
//! | `Semel-Event-Kind` | what the message is about |
//! | `Semel-Signature` | `t=…,v1=…`: the seconds since 1970 when it was sent, and in hex the HMAC-SHA256 of `t.eventId.body` |
//!
//! | answer | |
//! |---|---|
//! | 2xx | delivered; `Semel-Reference`, or else `Location`, is kept as the receiver's reference |
//! | 408, 425, 429, 500 and above, none, or none in time | tried again, not before `Retry-After` if that is reasonable |
//! | anything else, redirects included | dead at once: it would be the same the next time |

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

/// How much of an answer is read, to say what went wrong.
const MAX_ANSWER: usize = 64 * 1024;

/// Sends messages to one address.
pub struct HttpSink {
    client: Client,
    content_type: HeaderValue,
    key: Vec<u8>,
}

/// Why messages cannot be sent there.
#[derive(Debug, thiserror::Error)]
pub enum HttpSinkError {
    /// The address is not one.
    #[error("{0:?} is not an address such as https://receiver.example/events: {1}")]
    Address(String, String),
    /// TLS cannot be spoken with the receiver.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The key is too short.
    #[error("a key for signatures has at least {MIN_KEY} bytes, and this has {0}")]
    ShortKey(usize),
}

impl HttpSink {
    /// Sends to this address, and signs with this key, which the receiver knows.
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

    /// Sends over TLS with these files, instead of trusting whom the system trusts.
    ///
    /// # Errors
    /// If they cannot be used.
    pub fn tls(self, settings: TlsSettings) -> Result<HttpSink, HttpSinkError> {
        Ok(HttpSink { client: self.client.tls(settings)?, ..self })
    }

    /// The same, for payloads that are not JSON.
    pub fn content_type(self, content_type: HeaderValue) -> HttpSink {
        HttpSink { content_type, ..self }
    }

    /// The same, with other bounds on the time that connecting takes, and on the time that all of it takes.
    pub fn timeouts(self, connect: Duration, total: Duration) -> HttpSink {
        HttpSink { client: self.client.connect_timeout(connect).timeout(total), ..self }
    }

    async fn send(&self, message: &Message) -> Result<Tried, String> {
        let answer = self.client.send(self.request(message)?).await.map_err(|error| match error {
            Error::TimedOut(_) => "no answer in time".to_owned(),
            other => other.to_string(),
        })?;
        let (status, headers) = (answer.head.status, answer.head.headers.clone());
        // What it accepted, it accepted, whatever comes of the rest.
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

/// The value of `Semel-Signature` for a message sent at this second.
pub fn signature(key: &[u8], seconds: i64, event_id: &str, body: &[u8]) -> String {
    let mac = sign(key, &[format!("{seconds}.{event_id}.").as_bytes(), body]);
    format!("t={seconds},v1={mac}")
}

fn reference(headers: &HeaderMap) -> Option<String> {
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    headers.get("semel-reference").or_else(|| headers.get(LOCATION)).and_then(text)
}

/// What an answer that is not a success means.
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

/// How long the receiver asks to be left alone: seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => Some(semel_core::Timestamp::from_http_date(text)?.since(SystemClock.now())),
    }
}
