//! Proxy between a client and a gateway, which cuts connections and records the client's bytes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};

/// Carries connections to a server.
pub(crate) struct Line {
    pub(crate) address: SocketAddr,
    carried: Arc<Carried>,
}

#[derive(Default)]
struct Carried {
    /// Number of connections that are still to be cut.
    cuts: AtomicUsize,
    /// Bytes that clients sent.
    sent: Mutex<Vec<u8>>,
}

impl Line {
    /// Starts a line to this server. Its first `cuts` connections end when the server begins to answer, and
    /// the client sees nothing of the answer.
    pub(crate) async fn start(server: SocketAddr, cuts: usize) -> Line {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let carried = Arc::new(Carried { cuts: AtomicUsize::new(cuts), ..Carried::default() });
        let line = Line { address, carried: carried.clone() };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server, carried.clone()));
            }
        });
        line
    }

    /// Returns the number of connections that are still to be cut.
    pub(crate) fn cuts(&self) -> usize {
        self.carried.cuts.load(Ordering::SeqCst)
    }

    /// Returns the boundary of each multipart body that a client announced.
    pub(crate) fn boundaries(&self) -> Vec<String> {
        let sent = self.carried.sent.lock().expect("nobody panics with it");
        let sent = String::from_utf8_lossy(&sent).into_owned();
        let after = sent.split("multipart/form-data; boundary=").skip(1);
        after.filter_map(|rest| rest.lines().next()).map(str::to_owned).collect()
    }
}

async fn carry(client: TcpStream, server: SocketAddr, carried: Arc<Carried>) {
    let server = TcpStream::connect(server).await.expect("the server listens");
    let left = carried.cuts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let there = async move {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
            carried.sent.lock().expect("nobody panics with it").extend_from_slice(&buffer[..length]);
            if to_server.write_all(&buffer[..length]).await.is_err() {
                break;
            }
        }
        // The answer ends the connection.
        std::future::pending::<()>().await;
    };
    let back = async move {
        if left.is_ok() {
            let _ = from_server.read(&mut [0; 1]).await;
        } else {
            let _ = copy(&mut from_server, &mut to_client).await;
        }
    };
    tokio::select! {
        () = there => {}
        () = back => {}
    }
}
