//! HTTP client of the run: a request is answered or lost.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Timeout of a client.
const PATIENCE: Duration = Duration::from_secs(6);
/// Prefix of the error for a request that was never sent.
pub const NOT_CONNECTED: &str = "not connected";
/// Largest size of an answer.
const MAX_ANSWER: usize = 4 << 20;

/// Complete answer.
pub struct Reply {
    /// Status.
    pub status: StatusCode,
    /// Header fields.
    pub headers: HeaderMap,
    /// Whole body.
    pub body: Bytes,
}

impl Reply {
    /// Returns a header's value, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// Sends a request on its own connection. The error says how the request was lost.
pub async fn send(address: SocketAddr, request: Request<Full<Bytes>>) -> Result<Reply, String> {
    send_within(PATIENCE, address, request).await
}

/// Sends a request on its own connection, with this timeout.
pub async fn send_within(
    patience: Duration,
    address: SocketAddr,
    request: Request<Full<Bytes>>,
) -> Result<Reply, String> {
    tokio::time::timeout(patience, exchange(address, request))
        .await
        .unwrap_or_else(|_| Err("no answer in time".to_owned()))
}

async fn exchange(address: SocketAddr, request: Request<Full<Bytes>>) -> Result<Reply, String> {
    let lost = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
    let stream = TcpStream::connect(address).await.map_err(|error| lost(NOT_CONNECTED, &error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| lost(NOT_CONNECTED, &error))?;
    // The connection ends with this request: a client that leaves closes it.
    let connection = Connection(tokio::spawn(async move { drop(connection.await) }));
    let response = sender.send_request(request).await.map_err(|error| lost("no answer", &error))?;
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, MAX_ANSWER).collect().await;
    let body = body.map_err(|error| lost("the answer broke off", &error))?.to_bytes();
    drop(connection);
    Ok(Reply { status: parts.status, headers: parts.headers, body })
}

struct Connection(tokio::task::JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns the text of a page at this address.
pub async fn get(address: SocketAddr, path: &str) -> Result<String, String> {
    let request = Request::builder().uri(path).header("host", address.to_string()).body(Full::default());
    let reply = send(address, request.map_err(|error| error.to_string())?).await?;
    if reply.status != StatusCode::OK {
        return Err(format!("{path} answered {}", reply.status));
    }
    Ok(String::from_utf8_lossy(&reply.body).into_owned())
}
