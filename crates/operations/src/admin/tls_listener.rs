//! Listener that passes connections to axum after their handshakes. No handshake delays another.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use semel_gateway::tls::server::Acceptor;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::server::TlsStream;

/// Largest number of concurrent handshakes. Over it, the oldest is aborted.
const MAX_HANDSHAKES: usize = 256;

/// Listener that speaks TLS.
pub struct TlsListener {
    listener: TcpListener,
    acceptor: Acceptor,
    handshakes: JoinSet<Option<(TlsStream<TcpStream>, SocketAddr)>>,
    /// Handshakes in order of their start, including some that have ended.
    begun: VecDeque<AbortHandle>,
}

impl TlsListener {
    /// Makes a listener that performs the handshake before it hands a connection on.
    pub fn new(listener: TcpListener, acceptor: Acceptor) -> TlsListener {
        TlsListener { listener, acceptor, handshakes: JoinSet::new(), begun: VecDeque::new() }
    }
}

impl TlsListener {
    fn shake_hands(&mut self, stream: TcpStream, peer: SocketAddr) {
        self.begun.retain(|begun| !begun.is_finished());
        if self.begun.len() >= MAX_HANDSHAKES
            && let Some(oldest) = self.begun.pop_front()
        {
            oldest.abort();
        }
        let acceptor = self.acceptor.clone();
        let begun = self.handshakes.spawn(async move { Some((acceptor.accept(stream).await?.0, peer)) });
        self.begun.push_back(begun);
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
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => self.shake_hands(stream, peer),
                    Err(error) => {
                        // For example, no file descriptor is left. Others will close; until then, do not
                        // spin.
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
