//! Connection that hyper gets instead of the socket. [`Inbound`] sees every inbound byte before hyper, and
//! [`Outbound`] every outbound byte after the socket took it; this file holds the bytes and the timers.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, BytesMut};
use semel_core::policy::Profile;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::deadline::Deadline;
use super::farewell::Farewell;
use super::inbound::{Inbound, InboundDecision};
use super::limits::ClientLimits;
use super::outbound::Outbound;
use super::refusal::GuardRefusal;

/// Largest number of bytes read at once for inspection.
const READ_SIZE: usize = 8 * 1024;

/// Connection that passes only unambiguous requests. See the [module](super) for the rules.
#[derive(Debug)]
pub struct Guarded<S> {
    stream: S,
    limits: ClientLimits,
    profile: Profile,
    inbound: Inbound,
    outbound: Outbound,
    /// Bytes that were read from the stream and not yet passed on.
    held: BytesMut,
    /// Number of held bytes that may pass.
    cleared: usize,
    refusal: Option<GuardRefusal>,
    /// End of the connection, if the refusal is answered here; hyper may not write any more then.
    farewell: Option<Farewell>,
    read_deadline: Deadline,
    write_deadline: Deadline,
    /// Task that waits for the current response to end, when the next request is checked or the idle time
    /// begins.
    awaiting_response: Option<Waker>,
}

/// Reason for which a read waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadWait {
    Request,
    RestOfHead,
    Body,
    Response,
    Opaque,
}

impl<S> Guarded<S> {
    /// Guards a connection from its first byte on.
    pub fn new(stream: S, limits: ClientLimits) -> Guarded<S> {
        Guarded {
            stream,
            limits,
            profile: Profile::default(),
            inbound: Inbound::new(limits.max_head),
            outbound: Outbound::new(),
            held: BytesMut::new(),
            cleared: 0,
            refusal: None,
            farewell: None,
            read_deadline: Deadline::default(),
            write_deadline: Deadline::default(),
            awaiting_response: None,
        }
    }

    /// Sends refusals in this profile.
    pub fn with_profile(self, profile: Profile) -> Guarded<S> {
        Guarded { profile, ..self }
    }

    fn wait(&self) -> ReadWait {
        match (self.inbound.is_opaque(), self.inbound.expects_head(), self.outbound.is_idle()) {
            (true, _, _) => ReadWait::Opaque,
            (false, false, _) => ReadWait::Body,
            (false, true, false) => ReadWait::Response,
            (false, true, true) if self.held.len() == self.cleared => ReadWait::Request,
            (false, true, true) => ReadWait::RestOfHead,
        }
    }

    /// Checks the held bytes as far as possible.
    fn judge(&mut self) {
        while self.refusal.is_none() && self.cleared < self.held.len() && self.wait() != ReadWait::Response {
            match self.inbound.inspect(&self.held[self.cleared..]) {
                Ok(InboundDecision::Hold) => break,
                Ok(InboundDecision::Pass(length)) => self.cleared += length,
                Ok(InboundDecision::Head { length, head }) => {
                    self.cleared += length;
                    self.read_deadline.clear();
                    self.outbound.expect_response(head.is_head);
                }
                Err(refusal) => self.refuse(refusal),
            }
        }
    }

    fn refuse(&mut self, refusal: GuardRefusal) {
        // No byte of the request is logged: it may be anything.
        tracing::info!(event = "request_refused", code = refusal.kind().code(), detail = %refusal);
        self.refusal = Some(refusal);
        // A refused head has no response before it; a refused body may have one, even a complete one.
        if self.inbound.expects_head() || self.outbound.is_untouched() {
            self.farewell = Some(Farewell::new(refusal, self.refuses_head(), self.profile));
        }
    }

    /// Returns true if the refused request is a `HEAD`, as far as that is known.
    fn refuses_head(&self) -> bool {
        if !self.inbound.expects_head() {
            return self.outbound.answers_head();
        }
        let held = &self.held[self.cleared..];
        held.strip_prefix(b"\r\n").unwrap_or(held).starts_with(b"HEAD ")
    }

    /// Hands over the bytes that may pass.
    fn release(&mut self, buf: &mut ReadBuf<'_>) {
        let length = self.cleared.min(buf.remaining());
        buf.put_slice(&self.held[..length]);
        self.held.advance(length);
        self.cleared -= length;
        if self.held.is_empty() {
            // An idle connection holds no memory.
            self.held = BytesMut::new();
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Guarded<S> {
    /// Reads more bytes for inspection. Returns `false` at the end of the stream.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut scratch = [MaybeUninit::uninit(); READ_SIZE];
        let mut scratch = ReadBuf::uninit(&mut scratch);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut scratch))?;
        self.held.extend_from_slice(scratch.filled());
        Poll::Ready(Ok(!scratch.filled().is_empty()))
    }

    /// Reads data that need no inspection straight into the caller's buffer. Returns `false` at the end of
    /// the stream.
    fn poll_data(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<bool>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let data = &buf.filled()[before..];
        self.inbound.inspect(data).map_err(invalid)?;
        Poll::Ready(Ok(!data.is_empty()))
    }

    /// Waits after a read that gave nothing. Becomes ready with the end of the stream or an error at the
    /// timeout.
    fn poll_patience(&mut self, cx: &mut Context<'_>, wait: ReadWait) -> Poll<io::Result<()>> {
        let limit = match wait {
            ReadWait::Request => self.limits.idle_timeout,
            ReadWait::RestOfHead => self.limits.head_timeout,
            ReadWait::Body => self.limits.body_timeout,
            ReadWait::Response | ReadWait::Opaque => return Poll::Pending,
        };
        // Not cleared: a reader that reads again after the end gets the end again.
        ready!(self.read_deadline.poll(cx, limit));
        match wait {
            ReadWait::Body => Poll::Ready(Err(timed_out("the body of a request stalled"))),
            ReadWait::RestOfHead => {
                self.refuse(GuardRefusal::HeadTimeout);
                self.poll_refused(cx, GuardRefusal::HeadTimeout)
            }
            ReadWait::Request | ReadWait::Response | ReadWait::Opaque => Poll::Ready(Ok(())),
        }
    }

    /// Answers hyper's read of a refused request: the end of the stream, or an error inside a body.
    fn poll_refused(&mut self, cx: &mut Context<'_>, refusal: GuardRefusal) -> Poll<io::Result<()>> {
        ready!(self.poll_farewell(cx));
        Poll::Ready(if self.inbound.expects_head() { Ok(()) } else { Err(invalid(refusal)) })
    }

    /// Becomes ready with true if the connection is past its farewell; every call of hyper moves it on.
    fn poll_farewell(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        match &mut self.farewell {
            None => Poll::Ready(false),
            Some(farewell) => farewell.poll(&mut self.stream, cx).map(|()| true),
        }
    }

    /// Bounds a write, a flush or a shutdown that makes no progress.
    fn bounded<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match outcome {
            Poll::Ready(outcome) => {
                self.write_deadline.clear();
                Poll::Ready(outcome)
            }
            Poll::Pending => {
                ready!(self.write_deadline.poll(cx, self.limits.write_timeout));
                Poll::Ready(Err(timed_out("the client stopped reading")))
            }
        }
    }

    /// Follows the bytes that the stream took from these buffers.
    fn wrote(&mut self, bufs: &[IoSlice<'_>], mut written: usize) -> io::Result<()> {
        if self.inbound.is_opaque() {
            return Ok(());
        }
        for buf in bufs {
            let taken = &buf[..buf.len().min(written)];
            self.outbound.wrote(taken).map_err(invalid)?;
            written -= taken.len();
        }
        if self.outbound.has_switched() {
            self.inbound.become_opaque();
        }
        if self.wait() != ReadWait::Response
            && let Some(reader) = self.awaiting_response.take()
        {
            reader.wake();
        }
        Ok(())
    }

    fn poll_write_guarded(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if ready!(self.poll_farewell(cx)) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let outcome = write(Pin::new(&mut self.stream), cx);
        let written = ready!(self.bounded(cx, outcome))?;
        self.wrote(bufs, written)?;
        Poll::Ready(Ok(written))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            this.judge();
            if this.cleared > 0 || buf.remaining() == 0 {
                this.release(buf);
                return Poll::Ready(Ok(()));
            }
            if let Some(refusal) = this.refusal {
                return this.poll_refused(cx, refusal);
            }
            let wait = this.wait();
            if wait == ReadWait::Response {
                this.awaiting_response = Some(cx.waker().clone());
                // Reading on shows that the client is still connected; the bytes that it may send ahead are
                // bounded.
                if this.held.len() >= this.limits.max_head {
                    return Poll::Pending;
                }
            }
            let direct = this.held.is_empty() && this.inbound.data_ahead() >= buf.remaining() as u64;
            let read = if direct { this.poll_data(cx, buf) } else { this.poll_fill(cx) };
            let Poll::Ready(more) = read else { return this.poll_patience(cx, wait) };
            if wait != ReadWait::RestOfHead {
                this.read_deadline.clear();
            }
            if !more? || direct {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_guarded(cx, &[IoSlice::new(buf)], |stream, cx| stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_guarded(cx, bufs, |stream, cx| stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_flush(cx);
        this.bounded(cx, outcome)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if ready!(this.poll_farewell(cx)) {
            return Poll::Ready(Ok(()));
        }
        let outcome = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.bounded(cx, outcome)
    }
}

fn invalid(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn timed_out(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}
