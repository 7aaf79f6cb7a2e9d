//! HTTP/1 connection to the upstream, and its conduct: how much of a request was sent, and if unrequested
//! bytes came.
//!
//! Invariant: bytes that arrived before a request's first byte was written are never read as its response. If
//! nothing was written by the time of `forbid`, nothing ever is.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use rustix::net::{RecvFlags, recv};
use semel_http::{Body, BoxError, Delivery, Share};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The body of the request has ended.
const ENDED: u8 = 1;
/// Part of the request may have been written.
const WRITTEN: u8 = 2;
/// All of the request was written.
const SENT: u8 = 4;
/// A fault occurred: the connection is not used again.
const DOUBTFUL: u8 = 8;
/// Writing is forbidden.
const FORBIDDEN: u8 = 16;
/// The upstream speaks HTTP/2, and takes nothing else for a request.
const HTTP2: u8 = 32;

/// Advice on an upstream of another protocol.
pub(super) const OTHER_PROTOCOL: &str =
    "the upstream speaks HTTP/2 and not HTTP/1.1: set `upstream_protocol` to \"h2c\", or to \"h2\" over TLS";

/// Conduct of a connection during one request.
pub(super) struct Conduct {
    flags: AtomicU8,
    /// Place of the request, until the connection is idle or gone.
    place: Mutex<Option<Share>>,
    /// Delivery of the command, if the request is one's.
    delivery: Mutex<Option<Delivery>>,
}

impl Conduct {
    pub(super) fn new() -> Arc<Conduct> {
        Arc::new(Conduct { flags: AtomicU8::new(0), place: Mutex::default(), delivery: Mutex::default() })
    }

    /// Begins a request on an idle connection.
    pub(super) fn begin(&self, place: Option<Share>) {
        self.flags.store(0, Ordering::SeqCst);
        *self.delivery.lock().unwrap_or_else(PoisonError::into_inner) = None;
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = place;
    }

    /// Connects the request with a command's delivery, which learns when all of it was sent. At the timeout
    /// of the call its place is freed, and the connection is not used again.
    pub(super) fn deliver(self: &Arc<Self>, delivery: &Delivery) {
        let conduct = Arc::downgrade(self);
        delivery.when_late(move || {
            if let Some(conduct) = conduct.upgrade() {
                conduct.doubt();
                drop(conduct.leave());
            }
        });
        *self.delivery.lock().unwrap_or_else(PoisonError::into_inner) = Some(delivery.clone());
    }

    /// Records that all of the request was written.
    fn sent(&self) {
        self.set(SENT);
        if let Some(delivery) = self.delivery.lock().unwrap_or_else(PoisonError::into_inner).take() {
            delivery.sent();
        }
    }

    /// Gives the place back.
    pub(super) fn leave(&self) -> Option<Share> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn doubt(&self) {
        self.set(DOUBTFUL);
    }

    /// Forbids writing from now on. Returns true if nothing was written, and so nothing ever will be.
    pub(super) fn forbid(&self) -> bool {
        self.set(FORBIDDEN) & WRITTEN == 0
    }

    /// Records a write before it happens. Returns false if writing is forbidden.
    fn write(&self) -> bool {
        let allowed = |flags| (flags & FORBIDDEN == 0).then_some(flags | WRITTEN);
        self.flags.fetch_update(Ordering::SeqCst, Ordering::SeqCst, allowed).is_ok()
    }

    /// Returns true if the whole request was sent before its response began, without any fault.
    pub(super) fn is_clean(&self) -> bool {
        self.flags.load(Ordering::SeqCst) & (SENT | DOUBTFUL | FORBIDDEN) == SENT
    }

    /// Returns true if the upstream speaks HTTP/2: its first bytes refuse the request (RFC 9113, section
    /// 3.4).
    pub(super) fn met_http2(&self) -> bool {
        self.has(HTTP2)
    }

    fn has(&self, flag: u8) -> bool {
        self.flags.load(Ordering::SeqCst) & flag != 0
    }

    /// Sets a flag, and returns the former flags.
    fn set(&self, flag: u8) -> u8 {
        self.flags.fetch_or(flag, Ordering::SeqCst)
    }
}

/// Body of an outgoing request.
pub(super) struct Outgoing {
    body: Body,
    conduct: Arc<Conduct>,
}

impl Outgoing {
    pub(super) fn new(body: Body, conduct: &Arc<Conduct>) -> Outgoing {
        let outgoing = Outgoing { body, conduct: conduct.clone() };
        outgoing.look();
        outgoing
    }

    /// Moves the body to another connection, after the former one has not taken it.
    pub(super) fn redirect(&mut self, conduct: &Arc<Conduct>) {
        self.conduct = conduct.clone();
        self.look();
    }

    fn look(&self) {
        use http_body::Body as _;
        if self.body.is_end_stream() || self.body.size_hint().exact() == Some(0) {
            self.conduct.set(ENDED);
        }
    }
}

impl http_body::Body for Outgoing {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        match &frame {
            Some(Ok(_)) => this.look(),
            Some(Err(_)) => this.conduct.doubt(),
            None => drop(this.conduct.set(ENDED)),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns true if no byte waits to be read and the peer has not closed. Asks the system, since the runtime
/// learns of new bytes only at its next poll.
pub(super) fn is_quiet(socket: &TcpStream) -> bool {
    let mut byte = [0_u8];
    matches!(
        recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT),
        Err(error) if error == rustix::io::Errno::AGAIN || error == rustix::io::Errno::WOULDBLOCK
    )
}

/// Socket that can be inspected while another task reads and writes.
pub(super) struct Wire(pub(super) Arc<TcpStream>);

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read(buf.initialize_unfilled()) {
                Ok(length) => {
                    buf.advance(length);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Wire {
    fn poll_try(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match write(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_try(cx, |socket| socket.try_write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_try(cx, |socket| socket.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(rustix::net::shutdown(&*self.0, rustix::net::Shutdown::Write).map_err(Into::into))
    }
}

/// Stream that hyper reads from and writes to.
pub(super) struct UpstreamLine<S> {
    stream: S,
    socket: Arc<TcpStream>,
    conduct: Arc<Conduct>,
    /// True if the bytes on the socket are those for hyper. False over TLS before the first answer, since TLS
    /// messages follow the handshake.
    is_plain: bool,
    /// True if anything was read.
    has_read: bool,
}

impl<S> UpstreamLine<S> {
    pub(super) fn new(
        stream: S,
        socket: Arc<TcpStream>,
        conduct: Arc<Conduct>,
        is_plain: bool,
    ) -> UpstreamLine<S> {
        UpstreamLine { stream, socket, conduct, is_plain, has_read: false }
    }

    /// Allows a request's first byte only while no bytes wait that would be taken for its response.
    fn may_write(&mut self) -> io::Result<()> {
        if !self.conduct.has(WRITTEN) && self.is_plain && !is_quiet(&self.socket) {
            self.conduct.set(DOUBTFUL | FORBIDDEN);
        }
        if self.conduct.write() { Ok(()) } else { Err(surplus()) }
    }
}

/// Returns true if a connection begins with a SETTINGS frame: every HTTP/2 server does, and no HTTP/1
/// response can.
fn is_settings(first: &[u8]) -> bool {
    matches!(first, [0, _, _, 4, 0, 0, 0, 0, 0, ..])
}

fn surplus() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the upstream sent bytes before a request")
}

impl<S: AsyncRead + Unpin> AsyncRead for UpstreamLine<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        if !std::mem::replace(&mut this.has_read, true) && is_settings(&buf.filled()[before..]) {
            this.conduct.set(HTTP2 | DOUBTFUL | FORBIDDEN);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, OTHER_PROTOCOL)));
        }
        if buf.filled().len() > before && !this.conduct.has(SENT) {
            // An answer to part of a request, or to none: the bytes after it are ambiguous.
            this.conduct.doubt();
            if !this.conduct.has(WRITTEN) {
                this.conduct.set(FORBIDDEN);
                return Poll::Ready(Err(surplus()));
            }
        }
        this.is_plain = true;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for UpstreamLine<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.may_write()?;
        Pin::new(&mut this.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.may_write()?;
        Pin::new(&mut this.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Marks the request as written: hyper flushes once it has written everything.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_flush(cx))?;
        if this.conduct.has(WRITTEN) && this.conduct.has(ENDED) {
            this.conduct.sent();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Returns a connection, and the upstream's end of it.
    async fn connected() -> (UpstreamLine<Wire>, Arc<Conduct>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (ours, theirs) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (socket, conduct) = (Arc::new(ours.expect("it listens")), Conduct::new());
        let line = UpstreamLine::new(Wire(socket.clone()), socket, conduct.clone(), true);
        (line, conduct, theirs.expect("it connects").0)
    }

    /// Waits until bytes can be read, which the runtime may not know yet.
    async fn arrived(line: &UpstreamLine<Wire>) {
        while is_quiet(&line.socket) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_request_is_not_written_to_a_connection_with_unread_bytes() {
        for close in [false, true] {
            let (mut line, conduct, mut upstream) = connected().await;
            conduct.begin(None);
            if close {
                upstream.shutdown().await.expect("it can");
            } else {
                upstream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.expect("it is sent");
            }
            arrived(&line).await;
            line.write_all(b"POST / HTTP/1.1\r\n").await.expect_err("it would be answered by what waits");
            assert!(conduct.forbid() && !conduct.is_clean(), "nothing was written, and nothing will be");
            line.write_all(b"POST / HTTP/1.1\r\n").await.expect_err("not later either");
            drop(line);
            let mut seen = Vec::new();
            // Unread bytes make the system end the connection with a reset.
            let _ = upstream.read_to_end(&mut seen).await;
            assert_eq!(seen, b"");
        }
    }

    #[tokio::test]
    async fn bytes_before_a_request_are_not_read_as_its_response() {
        let (mut line, conduct, mut upstream) = connected().await;
        conduct.begin(None);
        upstream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.expect("it is sent");
        line.read_u8().await.expect_err("no request was sent");
        assert!(conduct.forbid());
    }

    #[tokio::test]
    async fn an_answer_to_a_part_of_a_request_is_the_last_on_its_connection() {
        use http_body::Body as _;
        for whole in [true, false] {
            let (mut line, conduct, mut upstream) = connected().await;
            conduct.begin(None);
            let mut body = Outgoing::new(Body::full("abcd"), &conduct);
            line.write_all(b"POST / HTTP/1.1\r\n").await.expect("it is quiet");
            line.flush().await.expect("it can");
            if whole {
                std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
                line.write_all(b"abcd").await.expect("it is quiet");
                line.flush().await.expect("it can");
            }
            upstream.write_all(b"HTTP").await.expect("it is sent");
            assert_eq!(line.read_u8().await.expect("it is an answer"), b'H');
            assert_eq!(conduct.is_clean(), whole);
            assert!(!conduct.forbid(), "something was written");
        }
    }

    #[tokio::test]
    async fn a_new_request_resets_the_conduct_of_its_connection() {
        let (mut line, conduct, mut upstream) = connected().await;
        for _ in 0..2 {
            conduct.begin(None);
            let _body = Outgoing::new(Body::default(), &conduct);
            line.write_all(b"GET").await.expect("it is quiet");
            line.flush().await.expect("it can");
            upstream.write_all(b"H").await.expect("it is sent");
            line.read_u8().await.expect("it is an answer");
            assert!(conduct.is_clean());
        }
        conduct.doubt();
        assert!(!conduct.is_clean());
    }
}
