//! Connections of the admin listener: limited in number, each within the limits of the guard.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use semel_gateway::guard::{ClientLimits, Guarded};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Largest number of connections.
const MAX_CONNECTIONS: usize = 256;

/// Peer of a connection.
#[derive(Clone, Copy)]
pub(super) struct CameFrom(pub(super) SocketAddr);

impl<L: Listener<Addr = SocketAddr>> Connected<IncomingStream<'_, Bounded<L>>> for CameFrom {
    fn connect_info(stream: IncomingStream<'_, Bounded<L>>) -> CameFrom {
        CameFrom(*stream.remote_addr())
    }
}

/// Listener with limits on the number and the time of its connections. Every connection is accepted: over the
/// limit, one that waits for a request is closed, so that idle connections cannot keep a probe out.
pub(super) struct Bounded<L> {
    listener: L,
    open: Arc<Open>,
}

impl<L> Bounded<L> {
    pub(super) fn new(listener: L) -> Bounded<L> {
        Bounded { listener, open: Arc::default() }
    }
}

impl<L: Listener> Listener for Bounded<L> {
    type Io = Guarded<PlacedConnection<L::Io>>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, address) = self.listener.accept().await;
        let place = self.open.enter(MAX_CONNECTIONS);
        (
            Guarded::new(
                PlacedConnection { stream, place, open: self.open.clone() },
                ClientLimits::default(),
            ),
            address,
        )
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// Open connections, the oldest first.
#[derive(Default)]
struct Open(Mutex<Vec<Arc<AdminPlace>>>);

impl Open {
    fn places(&self) -> MutexGuard<'_, Vec<Arc<AdminPlace>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection. Over the limit, the oldest that waits for a request is closed, or else the oldest
    /// of all.
    fn enter(&self, max: usize) -> Arc<AdminPlace> {
        let place = Arc::new(AdminPlace::default());
        let mut places = self.places();
        if places.len() >= max {
            let idle = places.iter().position(|place| !place.is_busy.load(Ordering::Relaxed));
            places.remove(idle.unwrap_or(0)).end();
        }
        places.push(place.clone());
        place
    }

    fn leave(&self, place: &Arc<AdminPlace>) {
        self.places().retain(|other| !Arc::ptr_eq(other, place));
    }
}

/// Place of one connection.
#[derive(Default)]
struct AdminPlace {
    /// True if something was read since the last write.
    is_busy: AtomicBool,
    has_ended: AtomicBool,
    reader: Mutex<Option<Waker>>,
}

impl AdminPlace {
    fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
        if let Some(reader) = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take() {
            reader.wake();
        }
    }
}

/// Connection that ends when its place is needed, and returns its place at its end.
pub(super) struct PlacedConnection<S> {
    stream: S,
    place: Arc<AdminPlace>,
    open: Arc<Open>,
}

impl<S> Drop for PlacedConnection<S> {
    fn drop(&mut self) {
        self.open.leave(&self.place);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PlacedConnection<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        *this.place.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        if this.place.has_ended.load(Ordering::SeqCst) {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        if buf.filled().len() > before {
            this.place.is_busy.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PlacedConnection<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.place.is_busy.store(false, Ordering::Relaxed);
        Pin::new(&mut this.stream).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_admin_connection_evicts_an_idle_one_before_a_busy_one() {
        let open = Open::default();
        let places: Vec<_> = (0..3).map(|_| open.enter(3)).collect();
        places[0].is_busy.store(true, Ordering::Relaxed);
        let ended = |place: &Arc<AdminPlace>| place.has_ended.load(Ordering::SeqCst);
        let newcomer = open.enter(3);
        assert_eq!(places.iter().map(ended).collect::<Vec<_>>(), [false, true, false]);
        for place in [&places[2], &newcomer] {
            place.is_busy.store(true, Ordering::Relaxed);
        }
        open.enter(3);
        assert!(ended(&places[0]), "where all are busy, the oldest goes");
        open.leave(&newcomer);
        assert_eq!(open.places().len(), 2);
    }
}
