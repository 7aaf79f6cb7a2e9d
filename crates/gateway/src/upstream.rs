//! Connections to the upstream. They answer one question: was the request sent?
//!
//! Invariant: `NeverSent` means that no byte of the request can have reached the upstream. hyper hands a
//! request back only if its connection never took it; such a request goes out on another connection. Every
//! other request may have been sent, except on a stream or a handshake that the upstream refused, and is
//! never retried.
//!
//! Invariant: a connection has one owner (`kept`), and bytes that came before a request are never its
//! response (`line`).

mod handed;
mod kept;
mod line;
mod steps;

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, Uri, Version};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use semel_core::Principal;
use semel_http::{Body, CloseDelimited, Delivery, Execution, Share, ShareHolder, Shares, WholeBody};
use semel_settings::{UpstreamProtocol, UpstreamReuse, has_no_body};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use self::handed::HandedBody;
use self::kept::{IdleConnections, Owner};
use self::line::{Conduct, Outgoing, UpstreamLine, Wire, is_quiet};
use crate::forward;
use crate::peer::Peer;
use crate::tls::client::UpstreamTlsSettings;
use crate::tls::live::Live;

/// Timeout for connecting, if the call's own timeout is not shorter.
const MAX_CONNECT_TIME: Duration = Duration::from_secs(5);
/// Largest number of idle connections, in all and of one owner.
const MAX_IDLE: usize = 512;
const MAX_IDLE_OF_ONE: usize = 64;
/// Largest idle time of a connection. It is shorter than that of servers, so that none is closed just as it
/// is used: the fate of the request would be unknown then.
const MAX_IDLE_TIME: Duration = Duration::from_secs(4);
/// Largest number of commands at the upstream, shared by tenant and caller.
const MAX_COMMANDS: usize = 2048;
/// Largest number of other requests at the upstream, shared by the client's address and connection: slow
/// readers there cannot hold up commands.
const MAX_GUESTS: usize = 1536;
/// Largest number of bytes that are read ahead of one response.
const MAX_READ_AHEAD: usize = 64 * 1024;
/// HTTP/2 windows: read-ahead of one response, and of all on a connection.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 256 * 1024;
/// Timeout for a connection to be ready for its next request after a response.
const SETTLE_TIME: Duration = Duration::from_secs(1);
/// Interval of pings on an HTTP/2 connection.
const PING_INTERVAL: Duration = Duration::from_secs(10);
/// Largest number of stale connections that are skipped for one request.
const MAX_STALE: usize = 16;

/// Purpose of a request to the upstream.
#[derive(Clone, Copy)]
pub enum Purpose<'a> {
    /// Command: part of an execution, whose lease is checked at the last moment.
    Command(&'a Execution),
    /// Question on behalf of a caller.
    Question(&'a Principal),
    /// Forwarded request of a client's connection.
    PassOn(Option<&'a Peer>),
}

impl<'a> Purpose<'a> {
    /// Returns the only owner that may use its connection again; `None` if none may.
    fn owner(self) -> Option<Owner> {
        match self {
            Purpose::Command(execution) => Some(Owner::Commands(execution.principal().clone())),
            Purpose::Question(principal) => Some(Owner::Questions(principal.clone())),
            Purpose::PassOn(peer) => peer.map(|peer| Owner::Connection(peer.connection())),
        }
    }

    /// Returns the holder of its place.
    fn holder(self) -> ShareHolder {
        match self {
            Purpose::Command(execution) => of_caller(execution.principal()),
            Purpose::Question(principal) => of_caller(principal),
            Purpose::PassOn(peer) => peer.map_or_else(|| ShareHolder::new("", ""), Peer::holder),
        }
    }

    /// Returns the delivery of a command's request.
    fn delivery(self) -> Option<&'a Delivery> {
        match self {
            Purpose::Command(execution) => Some(execution.delivery()),
            Purpose::Question(_) | Purpose::PassOn(_) => None,
        }
    }

    /// Returns true if it may be sent: a command's executor must still hold its lease.
    fn may_send(self) -> bool {
        match self {
            Purpose::Command(execution) => execution.check_lease().is_ok(),
            Purpose::Question(_) | Purpose::PassOn(_) => true,
        }
    }
}

fn of_caller(principal: &Principal) -> ShareHolder {
    ShareHolder::new(principal.tenant(), principal.caller())
}

/// Reason for having no response.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// Nothing was sent, since this client or caller has reached its limit at the upstream.
    #[error("not sent: too many requests are with the upstream")]
    Overloaded,
    /// Nothing reached the upstream.
    #[error("not sent: {0}")]
    NeverSent(String),
    /// Something may have reached the upstream.
    #[error("broke off: {0}")]
    MaybeSent(String),
}

impl SendError {
    /// Returns the name of the error's kind in logs.
    const fn kind(&self) -> &'static str {
        match self {
            SendError::Overloaded => "overloaded",
            SendError::NeverSent(_) => "never_sent",
            SendError::MaybeSent(_) => "maybe_sent",
        }
    }
}

/// HTTP/2 connection, which carries any number of requests.
#[derive(Clone)]
struct Http2 {
    sender: http2::SendRequest<HandedBody>,
    /// True if an answer on it is late: no further request begins on it.
    is_retired: Arc<AtomicBool>,
}

/// HTTP/1 connection between requests.
struct Http1 {
    sender: http1::SendRequest<Outgoing>,
    socket: Arc<TcpStream>,
    conduct: Arc<Conduct>,
}

impl Http1 {
    /// Ends the connection at once, even if part of a request is unwritten.
    fn end(socket: &TcpStream, conduct: &Conduct) {
        conduct.forbid();
        let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
    }
}

/// Request without an answer. Dropping it ends its connection at once, since hyper would go on sending the
/// body.
struct Unfinished(Option<(Arc<TcpStream>, Arc<Conduct>)>);

impl Unfinished {
    fn new(line: &Http1) -> Unfinished {
        Unfinished(Some((line.socket.clone(), line.conduct.clone())))
    }

    fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some((socket, conduct)) = self.0.take() {
            Http1::end(&socket, &conduct);
        }
    }
}

/// Upstream with its connections.
pub struct Upstream {
    authority: Authority,
    tls: Option<Arc<Live<UpstreamTlsSettings>>>,
    protocol: UpstreamProtocol,
    reuse: UpstreamReuse,
    connect_time: Duration,
    idle: IdleConnections<Http1>,
    /// HTTP/2: one connection for each owner. Streams share windows and a limit on their number: a slow or
    /// busy client would hold up the others.
    streams: IdleConnections<Http2>,
    commands: Shares,
    guests: Shares,
}

impl Upstream {
    /// Makes the upstream at this authority. `shortest_call` is the shortest timeout of all calls: connecting
    /// must take less, since a call that ends while it connects could not be told from one that was sent.
    pub fn new(
        authority: Authority,
        tls: Option<Arc<Live<UpstreamTlsSettings>>>,
        protocol: UpstreamProtocol,
        reuse: UpstreamReuse,
        shortest_call: Duration,
    ) -> Arc<Upstream> {
        let connect_time = MAX_CONNECT_TIME.min(shortest_call / 2);
        Arc::new(Upstream {
            authority,
            tls,
            protocol,
            reuse,
            connect_time,
            idle: IdleConnections::new(MAX_IDLE, MAX_IDLE_OF_ONE, MAX_IDLE_TIME),
            streams: IdleConnections::new(MAX_IDLE, 1, MAX_IDLE_TIME),
            commands: Shares::new(MAX_COMMANDS),
            guests: Shares::new(MAX_GUESTS),
        })
    }

    /// Sends a request.
    pub async fn send(
        self: &Arc<Self>,
        request: Request<Body>,
        purpose: Purpose<'_>,
    ) -> Result<Response<Body>, SendError> {
        steps::begun(purpose, &self.authority);
        let begun = steps::begin(purpose);
        let sent = self.send_in_place(request, purpose).await;
        steps::ended(purpose, &sent, begun);
        sent
    }

    /// Sends a request, if there is a place for it.
    async fn send_in_place(
        self: &Arc<Self>,
        mut request: Request<Body>,
        purpose: Purpose<'_>,
    ) -> Result<Response<Body>, SendError> {
        let places = if let Purpose::Command(_) = purpose { &self.commands } else { &self.guests };
        let place = places.try_take(purpose.holder(), 1).ok_or(SendError::Overloaded)?;
        // An upstream may leave an unexpected body unread, and take it for the next request.
        let is_alone = has_no_body(request.method()) && !request.body().is_end_stream();
        let owner = purpose.owner().filter(|_| self.reuse == UpstreamReuse::Caller && !is_alone);
        match self.protocol {
            UpstreamProtocol::Http1 => {
                if is_alone {
                    request.headers_mut().append(CONNECTION, HeaderValue::from_static("close"));
                    // hyper drops a body of unknown length on GET, HEAD and CONNECT unless the head announces one.
                    if request.body().size_hint().exact().is_none() {
                        let chunked = HeaderValue::from_static("chunked");
                        request.headers_mut().insert(TRANSFER_ENCODING, chunked);
                    }
                }
                self.send_http1(request, purpose, owner, place).await
            }
            UpstreamProtocol::H2c | UpstreamProtocol::H2 => {
                self.send_http2(request, purpose, owner, place).await
            }
        }
    }

    async fn send_http1(
        self: &Arc<Self>,
        mut request: Request<Body>,
        purpose: Purpose<'_>,
        owner: Option<Owner>,
        place: Share,
    ) -> Result<Response<Body>, SendError> {
        *request.version_mut() = Version::HTTP_11;
        self.name_host(request.headers_mut());
        let mut place = Some(place);
        let mut request = request.map(|body| Outgoing::new(body, &Conduct::new()));
        for _ in 0..MAX_STALE {
            let (mut line, kept) = match owner.as_ref().and_then(|owner| self.take_idle(owner)) {
                Some(line) => (line, true),
                None => (self.connect_http1(purpose).await?, false),
            };
            if !kept && line.sender.ready().await.is_err() {
                let closed = "the connection was closed as soon as it was made";
                let why = if line.conduct.met_http2() { line::OTHER_PROTOCOL } else { closed };
                return Err(never_sent(why));
            }
            if !purpose.may_send() {
                return Err(never_sent("the lease expired first"));
            }
            line.conduct.begin(place.take());
            if let Some(delivery) = purpose.delivery() {
                line.conduct.deliver(delivery);
            }
            request.body_mut().redirect(&line.conduct);
            let conduct = line.conduct.clone();
            // An interim answer was not requested, and its meaning to the upstream is unknown.
            hyper::ext::on_informational(&mut request, move |_| conduct.doubt());
            let unfinished = Unfinished::new(&line);
            let sent = line.sender.try_send_request(request).await;
            unfinished.answered();
            match sent {
                Ok(response) => return Ok(self.answered(response, line, owner)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) if kept => (request, place) = (unsent, line.conduct.leave()),
                    Some(_) => return Err(never_sent(error.into_error().to_string())),
                    None => {
                        let error = error.into_error();
                        if !kept && line.conduct.met_http2() {
                            return Err(never_sent(line::OTHER_PROTOCOL));
                        }
                        if line.conduct.forbid() || (!kept && was_turned_away(&error)) {
                            return Err(never_sent(describe(&error)));
                        }
                        return Err(SendError::MaybeSent(describe(&error)));
                    }
                },
            }
        }
        Err(never_sent("every connection that was kept had been closed"))
    }

    /// Returns a response whose connection is kept for its owner after the end of the body.
    fn answered(
        self: &Arc<Self>,
        response: Response<Incoming>,
        line: Http1,
        owner: Option<Owner>,
    ) -> Response<Body> {
        let upgrades = response.status() == http::StatusCode::SWITCHING_PROTOCOLS;
        let is_close_delimited = !upgrades && is_close_delimited(&response);
        if is_close_delimited || is_doubtful(&response) {
            line.conduct.doubt();
        }
        let keeps = owner.filter(|_| !upgrades).map(|owner| (Arc::downgrade(self), owner));
        let mut response = response.map(|body| Body::stream(Pooled { body, line: Some(line), keeps }));
        if is_close_delimited {
            response.extensions_mut().insert(CloseDelimited);
        }
        response
    }

    /// Names the upstream as the host if there is none: HTTP/1.0 may omit it, HTTP/1.1 never (RFC 9112,
    /// section 3.2).
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
        purpose: Purpose<'_>,
        owner: Option<Owner>,
        place: Share,
    ) -> Result<Response<Body>, SendError> {
        *request.version_mut() = Version::HTTP_2;
        let host = request.headers_mut().remove(HOST);
        // HTTP/2 has no such field, and hyper would remove the fields that it names, including gRPC's `TE:
        // trailers`.
        request.headers_mut().remove(CONNECTION);
        *request.uri_mut() = self.absolute(request.uri(), host.as_ref())?;
        let mut connection = self.http2(owner, purpose).await?;
        let sender = &mut connection.sender;
        if sender.ready().await.is_err() {
            return Err(never_sent("the connection was closed"));
        }
        if !purpose.may_send() {
            return Err(never_sent("the lease expired first"));
        }
        let place = Arc::new(Mutex::new(Some(place)));
        if let Some(delivery) = purpose.delivery() {
            let (place, is_retired) = (place.clone(), connection.is_retired.clone());
            delivery.when_late(move || {
                is_retired.store(true, Ordering::SeqCst);
                drop(place.lock().unwrap_or_else(PoisonError::into_inner).take());
            });
        }
        let request = request.map(|body| HandedBody::new(body, purpose.delivery().cloned()));
        match sender.try_send_request(request).await {
            Ok(response) => Ok(response.map(|body| {
                let body = WholeBody::new(Version::HTTP_2, body);
                Body::stream(Streamed { body, _connection: connection, _place: place })
            })),
            Err(mut error) => {
                let unsent = error.take_message().is_some();
                let error = error.into_error();
                if unsent || was_refused(&error) || is_malformed(&error) {
                    Err(never_sent(describe(&error)))
                } else {
                    Err(SendError::MaybeSent(describe(&error)))
                }
            }
        }
    }

    /// Returns the absolute target at this host, or at the upstream itself.
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

    /// Connects, and performs the TLS handshake if there is one. No byte of any request is sent before its
    /// end.
    async fn connect(&self, purpose: Purpose<'_>) -> Result<UpstreamConnection, SendError> {
        let begun = steps::begin(purpose);
        match tokio::time::timeout(self.connect_time, self.reach()).await {
            Ok(Ok(connection)) => {
                steps::connected(purpose, begun);
                Ok(connection)
            }
            Ok(Err(error)) => Err(never_sent(error.to_string())),
            Err(_) => Err(never_sent("no connection could be made in time")),
        }
    }

    async fn reach(&self) -> std::io::Result<UpstreamConnection> {
        let port = self.authority.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let host = self.authority.host().trim_start_matches('[').trim_end_matches(']');
        let socket = TcpStream::connect((host, port)).await?;
        // Requests are written whole; a delay to fill packets gains nothing.
        let _ = socket.set_nodelay(true);
        let socket = Arc::new(socket);
        let Some(tls) = &self.tls else { return Ok(UpstreamConnection::Plain(socket)) };
        let tls = tls.current();
        let stream = tls.connector.connect(tls.name.clone(), Wire(socket.clone())).await?;
        if self.protocol == UpstreamProtocol::H2 && stream.get_ref().1.alpn_protocol().is_none() {
            return Err(std::io::Error::other("it does not offer HTTP/2 in its handshake (ALPN)"));
        }
        Ok(UpstreamConnection::Encrypted(Box::new(stream), socket))
    }

    async fn connect_http1(&self, purpose: Purpose<'_>) -> Result<Http1, SendError> {
        match self.connect(purpose).await? {
            UpstreamConnection::Plain(socket) => start_http1(Wire(socket.clone()), socket, true).await,
            UpstreamConnection::Encrypted(stream, socket) => start_http1(stream, socket, false).await,
        }
    }

    /// Returns the owner's HTTP/2 connection, or makes a new one.
    async fn http2(&self, owner: Option<Owner>, purpose: Purpose<'_>) -> Result<Http2, SendError> {
        let current = owner.as_ref().and_then(|owner| self.streams.take(owner));
        let is_good = |http2: &Http2| !http2.sender.is_closed() && !http2.is_retired.load(Ordering::SeqCst);
        let connection = match current.filter(is_good) {
            Some(connection) => connection,
            None => match self.connect(purpose).await? {
                UpstreamConnection::Plain(socket) => {
                    start_http2(TokioIo::new(Wire(socket)), self.connect_time).await?
                }
                UpstreamConnection::Encrypted(stream, _) => {
                    start_http2(TokioIo::new(stream), self.connect_time).await?
                }
            },
        };
        if let Some(owner) = owner {
            self.streams.keep(owner, connection.clone());
        }
        Ok(connection)
    }

    /// Returns the owner's last used connection that is ready and has no unread bytes. One that is not ready
    /// may still be taking another request.
    fn take_idle(&self, owner: &Owner) -> Option<Http1> {
        std::iter::from_fn(|| self.idle.take(owner))
            .find(|line| line.sender.is_ready() && is_quiet(&line.socket))
    }

    /// Keeps a ready connection, if its last request was without doubt.
    fn keep(&self, owner: Owner, line: Http1) {
        if !line.conduct.is_clean() || line.sender.is_closed() {
            return;
        }
        drop(line.conduct.leave());
        self.idle.keep(owner, line);
    }

    /// Closes connections that were idle for too long. Runs until it is dropped.
    pub async fn close_idle(self: Arc<Self>) {
        tokio::join!(self.idle.close_expired(), self.streams.close_expired());
    }
}

/// Connection to the upstream.
enum UpstreamConnection {
    Plain(Arc<TcpStream>),
    Encrypted(Box<TlsStream<Wire>>, Arc<TcpStream>),
}

/// Starts HTTP/1.1.
async fn start_http1<S>(stream: S, socket: Arc<TcpStream>, is_plain: bool) -> Result<Http1, SendError>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let conduct = Conduct::new();
    let line = UpstreamLine::new(stream, socket.clone(), conduct.clone(), is_plain);
    let handshake = http1::Builder::new().max_buf_size(MAX_READ_AHEAD).handshake(TokioIo::new(line));
    let (sender, connection) = handshake.await.map_err(|error| never_sent(error.to_string()))?;
    let place = conduct.clone();
    tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
        drop(place.leave());
    });
    Ok(Http1 { sender, socket, conduct })
}

/// Starts HTTP/2.
async fn start_http2(
    io: impl Read + Write + Unpin + Send + 'static,
    patience: Duration,
) -> Result<Http2, SendError> {
    let handshake = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(patience)
        .handshake(io);
    let (sender, connection) = handshake.await.map_err(|error| never_sent(error.to_string()))?;
    tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(Http2 { sender, is_retired: Arc::default() })
}

fn never_sent(why: impl Into<String>) -> SendError {
    SendError::NeverSent(why.into())
}

/// Returns an error with its causes: hyper's own text alone says little.
fn describe(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Returns true if only the end of the connection ends this HTTP/1 response (RFC 9112, section 6.3).
fn is_close_delimited(response: &Response<Incoming>) -> bool {
    !forward::is_chunked(response.headers()) && response.body().size_hint().exact().is_none()
}

/// Returns true if another reader could see another end of this HTTP/1 response.
fn is_doubtful(response: &Response<Incoming>) -> bool {
    let headers = response.headers();
    let has_coding = headers.contains_key(TRANSFER_ENCODING);
    let has_length = headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0");
    let is_bodiless =
        matches!(response.status(), http::StatusCode::NO_CONTENT | http::StatusCode::RESET_CONTENT);
    response.version() != Version::HTTP_11
        || (has_coding && headers.contains_key(CONTENT_LENGTH))
        || (is_bodiless && (has_coding || has_length))
}

/// Returns true for REFUSED_STREAM: the upstream did not process the request (RFC 9113, section 8.7).
fn was_refused(error: &hyper::Error) -> bool {
    std::error::Error::source(error)
        .and_then(|cause| cause.downcast_ref::<h2::Error>())
        .is_some_and(|cause| cause.is_remote() && cause.reason() == Some(h2::Reason::REFUSED_STREAM))
}

/// Returns true if HTTP/2 has no form for this request: it was refused here, and nothing of it was sent.
fn is_malformed(error: &hyper::Error) -> bool {
    std::error::Error::source(error)
        .and_then(|cause| cause.downcast_ref::<h2::Error>())
        .is_some_and(|cause| !cause.is_io() && cause.reason().is_none())
}

/// Returns true if the upstream refused the gateway's certificate, or requires one. In TLS 1.3 this alert comes
/// when the gateway's part of the handshake is done and a request may be on its way, which the upstream does
/// not read any more (RFC 8446, sections 4.4.2.4 and 6.2). These alerts belong to the handshake: no server
/// sends one after its end.
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

/// Body of an HTTP/1 response; its connection is kept for its owner once the body was read to its end.
struct Pooled {
    body: Incoming,
    line: Option<Http1>,
    keeps: Option<(Weak<Upstream>, Owner)>,
}

impl Pooled {
    /// Keeps the connection once it is ready, which it mostly is already.
    fn give_back(&mut self) {
        let Some((mut line, (upstream, owner))) = self.line.take().zip(self.keeps.take()) else { return };
        let Some(upstream) = upstream.upgrade() else { return };
        if line.sender.is_ready() {
            return upstream.keep(owner, line);
        }
        tokio::spawn(async move {
            if let Ok(Ok(())) = tokio::time::timeout(SETTLE_TIME, line.sender.ready()).await {
                upstream.keep(owner, line);
            }
        });
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
        // A body that is empty from the start is never polled.
        if self.body.is_end_stream() {
            self.give_back();
        }
        if let Some(line) = self.line.take() {
            Http1::end(&line.socket, &line.conduct);
        }
    }
}

/// Body of an HTTP/2 response, with its place.
struct Streamed {
    body: WholeBody<Incoming>,
    /// A connection ends when its last sender is dropped.
    _connection: Http2,
    _place: Arc<Mutex<Option<Share>>>,
}

impl http_body::Body for Streamed {
    type Data = Bytes;
    type Error = semel_http::BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, semel_http::BoxError>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
