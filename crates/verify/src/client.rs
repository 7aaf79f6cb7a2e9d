//! Sends requests, each on a connection of its own, and keeps the answers as evidence.
//!
//! The size of an answer, the time of a request and the number of requests of a run ([`MAX_REQUESTS`]) are bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use semel_outgoing::Error;
use tokio::io::AsyncWriteExt;

use crate::options::TestedAddress;

/// The most requests of one run. The probes need fewer: a run that reaches the bound has a bug.
pub(super) const MAX_REQUESTS: usize = 400;
/// The largest body of an answer.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// The field of a key.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A request without its address.
#[derive(Clone, Debug)]
pub(super) struct ProbeRequest {
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    /// The keys, one field line each.
    pub(super) keys: Vec<HeaderValue>,
    pub(super) body: Bytes,
}

/// A response, read to its end.
#[derive(Clone, Debug)]
pub(super) struct HttpAnswer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) took: Duration,
}

impl HttpAnswer {
    /// Returns the text of a field; `None` if it is missing, or no text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns whether the command succeeded. Some services say so with `303 See Other`.
    pub(super) fn succeeded(&self) -> bool {
        self.status.is_success() || self.status == StatusCode::SEE_OTHER
    }

    /// Returns whether the server refused the request, and so claims that nothing ran.
    pub(super) fn refused(&self) -> bool {
        self.status.is_client_error()
    }
}

/// The reason why a request has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NoAnswer {
    /// The connection cannot be made.
    #[error("cannot connect: {0}")]
    Unreachable(String),
    /// The answer took too long.
    #[error("no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The connection broke, or the answer is not HTTP.
    #[error("no answer: {0}")]
    Broken(String),
    /// The answer is too large.
    #[error("an answer of more than {MAX_ANSWER_BYTES} bytes")]
    TooLarge,
    /// The run has sent too many requests.
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

/// A request and its answer: evidence.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    /// The purpose of the request.
    pub(super) note: &'static str,
    pub(super) target: String,
    pub(super) message: ProbeRequest,
    pub(super) answer: Result<HttpAnswer, NoAnswer>,
}

/// Sends requests within the bounds of one run.
#[derive(Clone, Debug)]
pub(super) struct ProbeClient {
    timeout: Duration,
    sent: Arc<AtomicUsize>,
}

impl ProbeClient {
    /// Makes a client with this timeout for each request.
    pub(super) fn new(timeout: Duration) -> ProbeClient {
        ProbeClient { timeout, sent: Arc::default() }
    }

    /// Returns the timeout of one request.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the number of requests so far.
    pub(super) fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    /// Sends a request on a connection of its own.
    pub(super) async fn send(
        &self,
        note: &'static str,
        to: &TestedAddress,
        message: ProbeRequest,
    ) -> Exchange {
        let answer = match self.connect(to).await {
            Ok(connection) => connection.send(to, &message).await,
            Err(error) => Err(error),
        };
        Exchange { note, target: to.target().to_owned(), message, answer }
    }

    /// Makes a connection for one request.
    pub(super) async fn connect(&self, to: &TestedAddress) -> Result<ProbeConnection, NoAnswer> {
        self.count()?;
        Ok(ProbeConnection { connection: to.client.connect().await?, timeout: self.timeout })
    }

    /// Sends the first `body_bytes` of the body, waits, and hangs up without reading a byte.
    pub(super) async fn hang_up(
        &self,
        to: &TestedAddress,
        message: &ProbeRequest,
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

/// An open connection for one request.
pub(super) struct ProbeConnection {
    connection: semel_outgoing::Connection,
    timeout: Duration,
}

impl ProbeConnection {
    /// Sends the request and reads the whole answer.
    pub(super) async fn send(
        self,
        to: &TestedAddress,
        message: &ProbeRequest,
    ) -> Result<HttpAnswer, NoAnswer> {
        let mut request = Request::builder()
            .method(message.method.clone())
            .uri(to.target())
            .body(Full::new(message.body.clone()))
            .map_err(|error| NoAnswer::Broken(error.to_string()))?;
        *request.headers_mut() = fields(to, message);
        let begun = Instant::now();
        let answer = self.connection.send(request, self.timeout).await?.bytes(MAX_ANSWER_BYTES).await?;
        let (head, body) = answer.into_parts();
        Ok(HttpAnswer { status: head.status, headers: head.headers, body, took: begun.elapsed() })
    }
}

/// Returns the fields of a request, without its length.
fn fields(to: &TestedAddress, message: &ProbeRequest) -> HeaderMap {
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
