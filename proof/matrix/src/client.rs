//! HTTP client of a cell: it gets a response, is disconnected, or leaves.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Body as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::seen::Told;

/// Timeout of a request. Longer than any step of a cell takes.
const PATIENCE: Duration = Duration::from_secs(40);
/// Maximum length of a response.
const MAX_ANSWER: usize = 4 << 20;

/// Request of a client.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: &'static str,
    pub(crate) path: &'static str,
    pub(crate) key: Option<String>,
    pub(crate) caller: &'static str,
    pub(crate) body: Bytes,
}

impl Asked {
    /// Makes a command at this path under this key.
    pub(crate) fn command(path: &'static str, key: &str) -> Asked {
        Asked {
            method: "POST",
            path,
            key: Some(key.to_owned()),
            caller: "alice",
            body: Bytes::from_static(br#"{"amount":100,"currency":"EUR"}"#),
        }
    }

    fn request(&self, address: SocketAddr) -> Result<Request<Full<Bytes>>, String> {
        let mut request = Request::builder().method(self.method).uri(self.path);
        request = request.header("host", address.to_string()).header("content-type", "application/json");
        request = request.header("x-tenant", "shop").header("x-caller", self.caller);
        if let Some(key) = &self.key {
            request = request.header("idempotency-key", key);
        }
        request.body(Full::new(self.body.clone())).map_err(|error| error.to_string())
    }
}

/// Sends the request on a connection of its own, which ends with this future.
pub(crate) async fn send(address: SocketAddr, asked: Asked) -> Told {
    match asked.request(address) {
        Ok(request) => send_request(address, request).await,
        Err(why) => Told::Dropped(why),
    }
}

/// Sends any request on a connection of its own, which ends with this future.
pub(crate) async fn send_request(address: SocketAddr, request: Request<Full<Bytes>>) -> Told {
    match tokio::time::timeout(PATIENCE, exchange(address, request)).await {
        Ok(Ok(told)) => told,
        Ok(Err(why)) => Told::Dropped(why),
        Err(_) => Told::Dropped("no answer in time".to_owned()),
    }
}

async fn exchange(address: SocketAddr, request: Request<Full<Bytes>>) -> Result<Told, String> {
    let lost = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
    let stream = TcpStream::connect(address).await.map_err(|error| lost("not connected", &error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| lost("not connected", &error))?;
    // The connection ends with this request: a client that leaves closes it.
    let connection = Connection(tokio::spawn(async move { drop(connection.await) }));
    let response = sender.send_request(request).await.map_err(|error| lost("no answer", &error))?;
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, MAX_ANSWER).collect().await;
    let body = body.map_err(|error| lost("the answer broke off", &error))?.to_bytes();
    drop(connection);
    Ok(Told::answer(&parts, body))
}

/// Sends the request over HTTP/2, on a connection of its own.
pub(crate) async fn send_over_http2(address: SocketAddr, asked: Asked) -> Told {
    match tokio::time::timeout(PATIENCE, exchange_over_http2(address, &asked)).await {
        Ok(Ok(told)) => told,
        Ok(Err(why)) => Told::Dropped(why),
        Err(_) => Told::Dropped("no answer in time".to_owned()),
    }
}

async fn exchange_over_http2(address: SocketAddr, asked: &Asked) -> Result<Told, String> {
    let lost = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
    let mut request = asked.request(address)?;
    request.headers_mut().remove("host");
    *request.uri_mut() =
        format!("http://{address}{}", asked.path).parse().map_err(|error| lost("no address", &error))?;
    let stream = TcpStream::connect(address).await.map_err(|error| lost("not connected", &error))?;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(|error| lost("not connected", &error))?;
    let connection = Connection(tokio::spawn(async move { drop(connection.await) }));
    let response = sender.send_request(request).await.map_err(|error| lost("no answer", &error))?;
    let (parts, mut body) = response.into_parts();
    let mut bytes = Vec::new();
    // hyper takes a reset with NO_ERROR for an end; only the end of the stream is one.
    while !body.is_end_stream() {
        let frame = body.frame().await.ok_or("the answer broke off")?;
        let frame = frame.map_err(|error| lost("the answer broke off", &error))?;
        bytes.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new()));
        if bytes.len() > MAX_ANSWER {
            return Err("the answer is too long".to_owned());
        }
    }
    drop(connection);
    Ok(Told::answer(&parts, bytes.into()))
}

struct Connection(tokio::task::JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}
