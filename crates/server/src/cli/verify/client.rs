//! Sends requests, each on a connection of its own, and keeps what came back as evidence.
//!
//! Whatever the server answers, what is held of it is bounded, and so is the time; a run cannot send more than
//! [`MAX_REQUESTS`].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use semel_outgoing::Error;
use tokio::io::AsyncWriteExt;

use super::options::Address;

/// How many requests one run may send: more than the probes need, so that reaching it is a bug of ours.
pub(super) const MAX_REQUESTS: usize = 400;
/// How much of an answer's body is read.
const MAX_ANSWER_BYTES: usize = 1 << 20;

pub(super) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A request, apart from where it goes.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    /// One field line each.
    pub(super) keys: Vec<HeaderValue>,
    pub(super) body: Bytes,
}

/// A response, read to its end.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) took: Duration,
}

impl Answer {
    /// The text of a field; `None` if it is missing, or no text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Whether the command succeeded. `303 See Other` is how some say that it did.
    pub(super) fn succeeded(&self) -> bool {
        self.status.is_success() || self.status == StatusCode::SEE_OTHER
    }

    /// Whether the request was refused, so that by the server's word nothing ran.
    pub(super) fn refused(&self) -> bool {
        self.status.is_client_error()
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    #[error("cannot connect: {0}")]
    Unreachable(String),
    #[error("no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    #[error("no answer: {0}")]
    Broken(String),
    #[error("an answer of more than {MAX_ANSWER_BYTES} bytes")]
    TooLarge,
    #[error("more than {MAX_REQUESTS} requests")]
    TooMany,
}

impl From<Error> for NoAnswer {
    fn from(error: Error) -> NoAnswer {
        match error {
            Error::Unreachable(_, why) => NoAnswer::Unreachable(why),
            Error::Tls(error) => NoAnswer::Unreachable(error.to_string()),
            Error::NoAnswer(why) | Error::BrokenOff(why) => NoAnswer::Broken(why),
            Error::TooLarge(_) => NoAnswer::TooLarge,
            Error::TimedOut(timeout) => NoAnswer::TimedOut(timeout),
        }
    }
}

/// A request and what came of it: evidence.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    /// Why it was sent, where the request does not show it.
    pub(super) note: &'static str,
    pub(super) target: String,
    pub(super) message: Message,
    pub(super) answer: Result<Answer, NoAnswer>,
}

/// Sends requests within the bounds of one run.
#[derive(Clone, Debug)]
pub(super) struct Client {
    timeout: Duration,
    sent: Arc<AtomicUsize>,
}

impl Client {
    pub(super) fn new(timeout: Duration) -> Client {
        Client { timeout, sent: Arc::default() }
    }

    /// How long one request may take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// How many requests were sent.
    pub(super) fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    /// Sends a request on a connection of its own.
    pub(super) async fn send(&self, note: &'static str, to: &Address, message: Message) -> Exchange {
        let answer = match self.connect(to).await {
            Ok(connection) => connection.send(to, &message).await,
            Err(error) => Err(error),
        };
        Exchange { note, target: to.target().to_owned(), message, answer }
    }

    /// Makes a connection for one request.
    pub(super) async fn connect(&self, to: &Address) -> Result<Connection, NoAnswer> {
        self.count()?;
        Ok(Connection { connection: to.client.connect().await?, timeout: self.timeout })
    }

    /// Sends this much of the body, waits, and hangs up without reading a byte.
    pub(super) async fn hang_up(
        &self,
        to: &Address,
        message: &Message,
        body_bytes: usize,
        after: Duration,
    ) -> Result<(), NoAnswer> {
        self.count()?;
        let mut stream = to.client.dial().await?;
        let mut request = Vec::from(format!("{} {} HTTP/1.1\r\n", message.method, to.target()));
        for (name, value) in &fields(to, message) {
            request.extend_from_slice(name.as_str().as_bytes());
            request.extend_from_slice(b": ");
            request.extend_from_slice(value.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(format!("content-length: {}\r\n\r\n", message.body.len()).as_bytes());
        request.extend_from_slice(message.body.get(..body_bytes).unwrap_or(&message.body));
        let write = async {
            stream.write_all(&request).await?;
            stream.flush().await
        };
        match tokio::time::timeout(self.timeout, write).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(NoAnswer::Broken(error.to_string())),
            Err(_) => return Err(NoAnswer::TimedOut(self.timeout)),
        }
        tokio::time::sleep(after.min(self.timeout)).await;
        Ok(())
    }

    /// Counts a connection as a request.
    fn count(&self) -> Result<(), NoAnswer> {
        match self.sent.fetch_add(1, Ordering::Relaxed) >= MAX_REQUESTS {
            true => Err(NoAnswer::TooMany),
            false => Ok(()),
        }
    }
}

/// A connection that was made, for one request.
pub(super) struct Connection {
    connection: semel_outgoing::Connection,
    timeout: Duration,
}

impl Connection {
    /// Sends the request and reads the whole answer.
    pub(super) async fn send(self, to: &Address, message: &Message) -> Result<Answer, NoAnswer> {
        let mut request = Request::builder()
            .method(message.method.clone())
            .uri(to.target())
            .body(Full::new(message.body.clone()))
            .map_err(|error| NoAnswer::Broken(error.to_string()))?;
        *request.headers_mut() = fields(to, message);
        let begun = Instant::now();
        let answer = self.connection.send(request, self.timeout).await?.bytes(MAX_ANSWER_BYTES).await?;
        let (head, body) = answer.into_parts();
        Ok(Answer { status: head.status, headers: head.headers, body, took: begun.elapsed() })
    }
}

/// All field lines of a request but its length.
fn fields(to: &Address, message: &Message) -> HeaderMap {
    let mut fields = message.headers.clone();
    if let (false, Ok(host)) =
        (fields.contains_key(header::HOST), HeaderValue::from_str(to.client.address().authority()))
    {
        fields.insert(header::HOST, host);
    }
    fields.insert(header::CONNECTION, HeaderValue::from_static("close"));
    for key in &message.keys {
        fields.append(IDEMPOTENCY_KEY, key.clone());
    }
    fields
}
