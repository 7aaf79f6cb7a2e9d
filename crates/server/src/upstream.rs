//! Connections to the upstream, and the one question that matters about them: was the request sent?
//!
//! Invariant: `NeverSent` is answered only if not one byte of the request can have reached the upstream. hyper
//! hands a request back exactly if its connection never took it; everything else may have been sent, but for what the
//! upstream itself says that it has not read: a stream that it refused, a handshake that it ended. A request
//! that was handed back goes out on another connection, since nothing has happened to it; nothing else is ever
//! tried again.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{HOST, HeaderMap, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, Uri, Version};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use semel_http::{Body, CloseDelimited, Execution, WholeBody};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::client::TlsStream;

use crate::forward;
use crate::tls::client::Settings;
use crate::tls::live::Live;

/// How long a connection may take to be made, if the call's own time does not end sooner.
const MAX_CONNECT_TIME: Duration = Duration::from_secs(5);
/// How many connections are kept for later.
const MAX_IDLE: usize = 512;
/// How long one is kept. Shorter than servers keep theirs, so that none is closed just as it is used: whether a
/// request reached it then could not be told.
const MAX_IDLE_TIME: Duration = Duration::from_secs(4);
/// How many connections there are at the most.
const MAX_CONNECTIONS: usize = 2048;
/// How many of them others than commands may take: whoever reads slowly there cannot hold up commands.
const MAX_GUESTS: usize = MAX_CONNECTIONS / 4 * 3;
/// How long a connection may take to be ready for the next request once a response has ended.
const SETTLE_TIME: Duration = Duration::from_secs(1);
/// How often an HTTP/2 connection is asked whether it is still there.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// How many stale connections are passed over for one request.
const MAX_STALE: usize = 16;

/// What the upstream speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 without TLS, with prior knowledge.
    H2c,
    /// HTTP/2 over TLS.
    H2,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// Nothing reached the upstream.
    #[error("not sent: {0}")]
    NeverSent(String),
    /// Something may have.
    #[error("broke off: {0}")]
    MaybeSent(String),
}

type Http1 = http1::SendRequest<Body>;
type Http2 = http2::SendRequest<Body>;

/// The upstream, and the connections to it.
pub struct Upstream {
    authority: Authority,
    tls: Option<Arc<Live<Settings>>>,
    protocol: Protocol,
    connect_time: Duration,
    idle: Mutex<VecDeque<(Http1, Instant)>>,
    places: Arc<Semaphore>,
    /// HTTP/1: those of requests that are no commands.
    guests: Arc<Semaphore>,
    /// HTTP/2: one connection for commands, one for everything else, so that whoever reads slowly there cannot
    /// hold up commands here.
    shared: [Mutex<Option<Http2>>; 2],
}

fn room(places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, SendError> {
    let place = places.clone().try_acquire_owned();
    place.map_err(|_| never_sent("there are too many connections to the upstream"))
}

impl Upstream {
    /// The upstream at this authority. `shortest_call` is the least time that any call has: connecting must take
    /// less, since a call that ends while it connects could not be told from one that was sent.
    pub(crate) fn new(
        authority: Authority,
        tls: Option<Arc<Live<Settings>>>,
        protocol: Protocol,
        shortest_call: Duration,
    ) -> Arc<Upstream> {
        let connect_time = MAX_CONNECT_TIME.min(shortest_call / 2);
        Arc::new(Upstream {
            authority,
            tls,
            protocol,
            connect_time,
            idle: Mutex::default(),
            places: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            guests: Arc::new(Semaphore::new(MAX_GUESTS)),
            shared: Default::default(),
        })
    }

    /// Sends a request; a command if it is part of an execution, whose lease is looked at in the last moment.
    pub async fn send(
        self: &Arc<Self>,
        request: Request<Body>,
        execution: Option<&Execution>,
    ) -> Result<Response<Body>, SendError> {
        match self.protocol {
            Protocol::Http1 => self.send_http1(request, execution).await,
            Protocol::H2c | Protocol::H2 => self.send_http2(request, execution).await,
        }
    }

    async fn send_http1(
        self: &Arc<Self>,
        mut request: Request<Body>,
        execution: Option<&Execution>,
    ) -> Result<Response<Body>, SendError> {
        *request.version_mut() = Version::HTTP_11;
        self.name_host(request.headers_mut());
        let guest = match execution {
            Some(_) => None,
            None => Some(room(&self.guests)?),
        };
        for _ in 0..MAX_STALE {
            let (mut sender, kept) = match self.take_idle() {
                Some(sender) => (sender, true),
                None => (self.connect_http1().await?, false),
            };
            if !kept && sender.ready().await.is_err() {
                return Err(never_sent("the connection was closed as soon as it was made"));
            }
            if !may_send(execution) {
                self.keep(sender);
                return Err(never_sent("the lease ended first"));
            }
            match sender.try_send_request(request).await {
                Ok(response) => {
                    let upgrades = response.status() == http::StatusCode::SWITCHING_PROTOCOLS;
                    let upstream = Arc::downgrade(self);
                    let sender = (!upgrades).then_some(sender);
                    let is_close_delimited = !upgrades && is_close_delimited(&response);
                    let mut response =
                        response.map(|body| Body::stream(Pooled { body, sender, upstream, _guest: guest }));
                    if is_close_delimited {
                        response.extensions_mut().insert(CloseDelimited);
                    }
                    return Ok(response);
                }
                Err(mut error) => match error.take_message() {
                    Some(unsent) if kept => request = unsent,
                    Some(_) => return Err(never_sent(error.into_error().to_string())),
                    None => {
                        let error = error.into_error();
                        if !kept && was_turned_away(&error) {
                            return Err(never_sent(describe(&error)));
                        }
                        return Err(SendError::MaybeSent(describe(&error)));
                    }
                },
            }
        }
        Err(never_sent("every connection that was kept had been closed"))
    }

    /// HTTP/1.0 may leave the host out, HTTP/1.1 never (RFC 9112, section 3.2): then it is the upstream itself.
    fn name_host(&self, headers: &mut HeaderMap) {
        if !headers.contains_key(HOST)
            && let Ok(host) = HeaderValue::from_str(self.authority.as_str())
        {
            headers.insert(HOST, host);
        }
    }

    async fn send_http2(
        &self,
        mut request: Request<Body>,
        execution: Option<&Execution>,
    ) -> Result<Response<Body>, SendError> {
        *request.version_mut() = Version::HTTP_2;
        let host = request.headers_mut().remove(HOST);
        *request.uri_mut() = self.absolute(request.uri(), host.as_ref())?;
        let mut sender = self.http2(&self.shared[usize::from(execution.is_some())]).await?;
        if sender.ready().await.is_err() {
            return Err(never_sent("the connection was closed"));
        }
        if !may_send(execution) {
            return Err(never_sent("the lease ended first"));
        }
        match sender.try_send_request(request).await {
            Ok(response) => Ok(response.map(|body| Body::stream(WholeBody::new(Version::HTTP_2, body)))),
            Err(mut error) => {
                let unsent = error.take_message().is_some();
                let error = error.into_error();
                if unsent || was_refused(&error) {
                    Err(never_sent(describe(&error)))
                } else {
                    Err(SendError::MaybeSent(describe(&error)))
                }
            }
        }
    }

    /// The target at the host that is to be told, or at the upstream itself.
    fn absolute(&self, uri: &Uri, host: Option<&HeaderValue>) -> Result<Uri, SendError> {
        let told = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        Uri::builder()
            .scheme(if self.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP })
            .authority(told.unwrap_or_else(|| self.authority.clone()))
            .path_and_query(path)
            .build()
            .map_err(|error| never_sent(error.to_string()))
    }

    /// A connection, with its handshake done if there is one. Until then, nothing of any request has been said.
    async fn connect(&self) -> Result<Connected, SendError> {
        match tokio::time::timeout(self.connect_time, self.reach()).await {
            Ok(connected) => connected.map_err(|error| never_sent(error.to_string())),
            Err(_) => Err(never_sent("no connection could be made in time")),
        }
    }

    async fn reach(&self) -> std::io::Result<Connected> {
        let port = self.authority.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let host = self.authority.host().trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((host, port)).await?;
        // Requests are written whole; waiting for more to fill a packet only delays them.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else { return Ok(Connected::Plain(TokioIo::new(stream))) };
        let tls = tls.current();
        let stream = tls.connector.connect(tls.name.clone(), stream).await?;
        if self.protocol == Protocol::H2 && stream.get_ref().1.alpn_protocol().is_none() {
            return Err(std::io::Error::other("it does not offer HTTP/2 in its handshake (ALPN)"));
        }
        Ok(Connected::Encrypted(TokioIo::new(Box::new(stream))))
    }

    async fn connect_http1(&self) -> Result<Http1, SendError> {
        let place = self.place()?;
        match self.connect().await? {
            Connected::Plain(io) => start_http1(io, place).await,
            Connected::Encrypted(io) => start_http1(io, place).await,
        }
    }

    /// A shared HTTP/2 connection, made anew if it is gone.
    async fn http2(&self, shared: &Mutex<Option<Http2>>) -> Result<Http2, SendError> {
        let current = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(sender) = current.filter(|sender| !sender.is_closed()) {
            return Ok(sender);
        }
        let place = self.place()?;
        let sender = match self.connect().await? {
            Connected::Plain(io) => start_http2(io, self.connect_time, place).await?,
            Connected::Encrypted(io) => start_http2(io, self.connect_time, place).await?,
        };
        *shared.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender.clone());
        Ok(sender)
    }

    /// Room for one more connection.
    fn place(&self) -> Result<OwnedSemaphorePermit, SendError> {
        room(&self.places)
    }

    /// The connection that was used last and is ready now. One that is not may still be taking somebody else's request.
    fn take_idle(&self) -> Option<Http1> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        // Those that have waited longest come first.
        while idle.front().is_some_and(|(_, since)| now.duration_since(*since) >= MAX_IDLE_TIME) {
            idle.pop_front();
        }
        while let Some((sender, _)) = idle.pop_back() {
            if sender.is_ready() {
                return Some(sender);
            }
        }
        None
    }

    fn keep(&self, sender: Http1) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE && !sender.is_closed() {
            idle.push_back((sender, Instant::now()));
        }
    }
}

/// A connection to the upstream.
enum Connected {
    Plain(TokioIo<TcpStream>),
    Encrypted(TokioIo<Box<TlsStream<TcpStream>>>),
}

/// Begins to speak HTTP/1.1.
async fn start_http1(
    io: impl Read + Write + Unpin + Send + 'static,
    place: OwnedSemaphorePermit,
) -> Result<Http1, SendError> {
    let handshake = http1::handshake(io);
    let (sender, connection) = handshake.await.map_err(|error| never_sent(error.to_string()))?;
    tokio::spawn(async move {
        let _place = place;
        let _ = connection.with_upgrades().await;
    });
    Ok(sender)
}

/// Begins to speak HTTP/2.
async fn start_http2(
    io: impl Read + Write + Unpin + Send + 'static,
    patience: Duration,
    place: OwnedSemaphorePermit,
) -> Result<Http2, SendError> {
    let handshake = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(patience)
        .handshake(io);
    let (sender, connection) = handshake.await.map_err(|error| never_sent(error.to_string()))?;
    tokio::spawn(async move {
        let _place = place;
        let _ = connection.await;
    });
    Ok(sender)
}

/// Whether the executor still holds its lease, if there is one.
fn may_send(execution: Option<&Execution>) -> bool {
    execution.is_none_or(|execution| execution.check_lease().is_ok())
}

fn never_sent(why: impl Into<String>) -> SendError {
    SendError::NeverSent(why.into())
}

/// An error with what caused it: hyper's own words alone say little.
fn describe(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Whether only the end of the connection ends this HTTP/1 response (RFC 9112, section 6.3).
fn is_close_delimited(response: &Response<Incoming>) -> bool {
    !forward::is_chunked(response.headers()) && response.body().size_hint().exact().is_none()
}

/// REFUSED_STREAM: the upstream's word that it did nothing with the request (RFC 9113, section 8.7).
fn was_refused(error: &hyper::Error) -> bool {
    std::error::Error::source(error)
        .and_then(|cause| cause.downcast_ref::<h2::Error>())
        .is_some_and(|cause| cause.is_remote() && cause.reason() == Some(h2::Reason::REFUSED_STREAM))
}

/// The upstream's word that it did not accept our certificate, or lacks one. In TLS 1.3 it comes when our part of the
/// handshake is done and a request may be on its way, which nobody reads any more (RFC 8446, sections 4.4.2.4 and 6.2):
/// these alerts belong to the handshake, and no server has ended that and sends one.
fn was_turned_away(error: &hyper::Error) -> bool {
    use rustls::AlertDescription as Alert;
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    let cause =
        cause.and_then(std::io::Error::get_ref).and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::AlertReceived(alert)) = cause else { return false };
    matches!(
        alert,
        Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::CertificateRequired
            | Alert::DecryptError
    )
}

/// A response's body; its connection is kept for later once the body was read to its end.
struct Pooled {
    body: Incoming,
    sender: Option<Http1>,
    upstream: Weak<Upstream>,
    /// Its place among the guests, until the response has ended.
    _guest: Option<OwnedSemaphorePermit>,
}

impl Pooled {
    /// Keeps the connection once it is ready, which it mostly is: the request that it carried may not have been sent to its
    /// end yet.
    fn give_back(&mut self) {
        if let (Some(mut sender), Some(upstream)) = (self.sender.take(), self.upstream.upgrade()) {
            if sender.is_ready() {
                return upstream.keep(sender);
            }
            tokio::spawn(async move {
                if let Ok(Ok(())) = tokio::time::timeout(SETTLE_TIME, sender.ready()).await {
                    upstream.keep(sender);
                }
            });
        }
    }
}

impl http_body::Body for Pooled {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.give_back();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        // A body that was empty from the start is never polled.
        if self.body.is_end_stream() {
            self.give_back();
        }
    }
}
