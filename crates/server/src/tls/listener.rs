//! A listener of which axum gets connections once their handshakes are done. None of them holds up another.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::server::TlsStream;

use super::server::Acceptor;

/// How many handshakes there may be at a time; more of them wait in the kernel's queue.
const MAX_HANDSHAKES: usize = 256;

/// A listener that speaks TLS.
pub(crate) struct TlsListener {
    listener: TcpListener,
    acceptor: Acceptor,
    handshakes: JoinSet<Option<(TlsStream<TcpStream>, SocketAddr)>>,
}

impl TlsListener {
    pub(crate) fn new(listener: TcpListener, acceptor: Acceptor) -> TlsListener {
        TlsListener { listener, acceptor, handshakes: JoinSet::new() }
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            tokio::select! {
                Some(done) = self.handshakes.join_next() => {
                    if let Ok(Some(accepted)) = done {
                        return accepted;
                    }
                }
                accepted = self.listener.accept(), if self.handshakes.len() < MAX_HANDSHAKES => match accepted {
                    Ok((stream, peer)) => {
                        let acceptor = self.acceptor.clone();
                        let shake_hands = async move { Some((acceptor.accept(stream).await?.0, peer)) };
                        self.handshakes.spawn(shake_hands);
                    }
                    Err(error) => {
                        // Out of file descriptors, say. Others will close theirs; until then, do not spin.
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}
