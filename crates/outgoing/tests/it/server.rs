//! Servers that send the bytes of a test.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Server that answers each request with the same bytes.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    pub(crate) requests: Arc<AtomicUsize>,
}

/// End of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// The connection closes.
    Close,
    /// The connection waits for the next request.
    Stay,
    /// Nothing more comes.
    Hang,
    /// Bytes come without end.
    Flood,
}

impl Server {
    pub(crate) async fn start(answer: &'static str, then: Then) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let server = Server {
            address: listener.local_addr().expect("it is bound"),
            connections: Arc::default(),
            requests: Arc::default(),
        };
        let (connections, requests) = (server.connections.clone(), server.requests.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, answer, then, requests.clone()));
            }
        });
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/a?b", self.address)
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve(mut stream: TcpStream, answer: &str, then: Then, requests: Arc<AtomicUsize>) {
    loop {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut piece = [0; 4096];
            match stream.read(&mut piece).await {
                Ok(length @ 1..) => request.extend_from_slice(&piece[..length]),
                _ => return,
            }
        }
        requests.fetch_add(1, Ordering::SeqCst);
        let _ = stream.write_all(answer.as_bytes()).await;
        match then {
            Then::Close => return,
            Then::Stay => {}
            Then::Hang => drop(stream.read_to_end(&mut Vec::new()).await),
            Then::Flood => while stream.write_all(&[b'x'; 4096]).await.is_ok() {},
        }
    }
}
