//! Relays with mistakes between the gateway and the upstream.

use std::net::SocketAddr;
use std::sync::Arc;

use semel_fuzz::http1::{self, Kind, Read};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

use super::Defect;

/// A connection to the upstream, and its bytes that were not read yet.
type Line = (TcpStream, Vec<u8>);

/// Starts a relay, and returns its address.
pub(crate) async fn behind(defect: Defect, upstream: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let shared: Arc<Mutex<Option<Line>>> = Arc::default();
    tokio::spawn(async move {
        while let Ok((gateway, _)) = listener.accept().await {
            tokio::spawn(relay(gateway, defect, upstream, shared.clone()));
        }
    });
    address
}

/// Forwards requests, one after the other.
async fn relay(
    mut gateway: TcpStream,
    defect: Defect,
    upstream: SocketAddr,
    shared: Arc<Mutex<Option<Line>>>,
) {
    let mut bytes = Vec::new();
    loop {
        let request = match http1::read(&bytes, Kind::Request) {
            Read::Whole(request) => bytes.drain(..request.length).collect::<Vec<u8>>(),
            Read::Part => match gateway.read_buf(&mut bytes).await {
                Ok(1..) => continue,
                _ => return,
            },
            Read::Not => return,
        };
        let answer = match defect {
            Defect::SharesConnection => {
                let mut line = shared.lock().await;
                exchange(&mut line, upstream, &request).await
            }
            _ => match exchange(&mut None, upstream, &request).await {
                // The mistake: the upstream may have executed it.
                None => exchange(&mut None, upstream, &request).await,
                answer => answer,
            },
        };
        let Some(answer) = answer else { return };
        if gateway.write_all(&answer).await.is_err() {
            return;
        }
    }
}

/// Sends a request, and takes the next bytes for its response.
async fn exchange(line: &mut Option<Line>, upstream: SocketAddr, request: &[u8]) -> Option<Vec<u8>> {
    let (mut stream, mut heard) = match line.take() {
        Some(line) => line,
        None => (TcpStream::connect(upstream).await.ok()?, Vec::new()),
    };
    stream.write_all(request).await.ok()?;
    let mut answer = Vec::new();
    loop {
        match http1::read(&heard, Kind::Response { to_head: false }) {
            Read::Whole(response) => {
                answer.extend(heard.drain(..response.length));
                if response.status() >= 200 {
                    *line = Some((stream, heard));
                    return Some(answer);
                }
            }
            Read::Part => {
                if !matches!(stream.read_buf(&mut heard).await, Ok(1..)) {
                    return None;
                }
            }
            Read::Not => return None,
        }
    }
}
