//! The connections of the admin listener: so many at a time, each within the bounds of the guard.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::guard::{Guarded, Limits};

/// How many connections there are at a time; more of them wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 256;

/// Who is at the other end of a connection.
#[derive(Clone, Copy)]
pub(super) struct CameFrom(pub(super) SocketAddr);

impl<L: Listener<Addr = SocketAddr>> Connected<IncomingStream<'_, Bounded<L>>> for CameFrom {
    fn connect_info(stream: IncomingStream<'_, Bounded<L>>) -> CameFrom {
        CameFrom(*stream.remote_addr())
    }
}

/// A listener whose connections are bounded, in number and in time.
pub(super) struct Bounded<L> {
    listener: L,
    places: Arc<Semaphore>,
}

impl<L> Bounded<L> {
    pub(super) fn new(listener: L) -> Bounded<L> {
        Bounded { listener, places: Arc::new(Semaphore::new(MAX_CONNECTIONS)) }
    }
}

impl<L: Listener> Listener for Bounded<L> {
    type Io = Guarded<Placed<L::Io>>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        // Nobody closes the semaphore, so there is a place.
        let place = self.places.clone().acquire_owned().await.ok();
        let (stream, address) = self.listener.accept().await;
        (Guarded::new(Placed { stream, _place: place }, Limits::default()), address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A connection that gives its place back when it ends.
pub(super) struct Placed<S> {
    stream: S,
    _place: Option<OwnedSemaphorePermit>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Placed<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Placed<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
