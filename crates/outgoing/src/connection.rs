//! A connection that speaks HTTP/1.1, and the answer to a request on it.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::TRANSFER_ENCODING;
use http::response::Parts;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use crate::error::Error;

/// The largest head of an answer, in bytes.
const MAX_HEAD: usize = 64 * 1024;

/// Bytes in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection without HTTP: plain TCP, or TLS over it.
pub type Stream = Box<dyn Duplex>;

/// A connection that speaks HTTP/1.1; it closes when it is dropped.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    _driver: Driver,
}

/// The task that moves a connection's bytes; it ends with the connection.
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Connection {
    /// Begins to speak HTTP over a stream.
    pub(crate) async fn start(stream: Stream) -> Result<Connection, Error> {
        let handshake = http1::Builder::new().max_buf_size(MAX_HEAD).handshake(TokioIo::new(stream));
        let (sender, driver) = handshake.await.map_err(|error| Error::NoAnswer(error.to_string()))?;
        let driver = tokio::spawn(async move {
            let _ = driver.await;
        });
        Ok(Connection { sender, _driver: Driver(driver.abort_handle()) })
    }

    /// Sends the one request of this connection; the answer must be whole within `timeout`.
    ///
    /// # Errors
    /// If no answer begins in time.
    pub async fn send(
        self,
        request: Request<Full<Bytes>>,
        timeout: Duration,
    ) -> Result<ServiceAnswer, Error> {
        self.send_within(request, Bound::new(timeout)).await
    }

    pub(crate) async fn send_within(
        mut self,
        request: Request<Full<Bytes>>,
        bound: Bound,
    ) -> Result<ServiceAnswer, Error> {
        let (head, body) = bound.within(self.exchange(request)).await?.into_parts();
        Ok(ServiceAnswer { head, body, bound, _connection: self })
    }

    pub(crate) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Error> {
        self.sender.send_request(request).await.map_err(|error| Error::NoAnswer(in_words(&error)))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }
}

/// The time that an exchange may take, and its end.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    timeout: Duration,
    deadline: Instant,
}

impl Bound {
    pub(crate) fn new(timeout: Duration) -> Bound {
        Bound { timeout, deadline: Instant::now() + timeout }
    }

    pub(crate) fn left(self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    pub(crate) async fn within<T>(self, future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        timeout_at(self.deadline, future).await.unwrap_or(Err(Error::TimedOut(self.timeout)))
    }
}

/// An answer whose head has arrived.
pub struct ServiceAnswer {
    /// Status and header fields.
    pub head: Parts,
    body: Incoming,
    bound: Bound,
    _connection: Connection,
}

impl ServiceAnswer {
    /// Returns whether the end of the body can be told from a connection that broke.
    pub fn is_delimited(&self) -> bool {
        let mut codings = self.head.headers.get_all(TRANSFER_ENCODING).iter();
        let chunked = |coding: &http::HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
        self.body.size_hint().exact().is_some() || codings.next_back().is_some_and(chunked)
    }

    /// Reads the next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// If the body breaks off, or the time is over.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        self.bound.within(next(&mut self.body)).await
    }

    /// Reads the whole body, of at most `max` bytes.
    ///
    /// # Errors
    /// If the body breaks off or is larger, or the time is over.
    pub async fn bytes(mut self, max: usize) -> Result<Response<Bytes>, Error> {
        let body = self.bound.within(collect(&mut self.body, max)).await?;
        Ok(Response::from_parts(self.head, body))
    }
}

/// Reads a whole body, of at most `max` bytes.
pub(crate) async fn collect(body: &mut Incoming, max: usize) -> Result<Bytes, Error> {
    let mut whole = BytesMut::new();
    while let Some(data) = next(body).await? {
        if whole.len() + data.len() > max {
            return Err(Error::TooLarge(max));
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

async fn next(body: &mut Incoming) -> Result<Option<Bytes>, Error> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Error::BrokenOff(in_words(&error)))?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Returns an error with its causes, which hyper does not print by itself.
fn in_words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        cause = error.source();
    }
    words
}
