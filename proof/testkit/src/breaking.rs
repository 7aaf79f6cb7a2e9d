//! An HTTP/1 server whose handler may drop the connection in place of an answer.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The handler drops the connection without an answer.
#[derive(Debug, PartialEq, Eq)]
pub struct BrokenOff;

impl std::fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("broken off on purpose")
    }
}

impl std::error::Error for BrokenOff {}

/// The result of a handler.
pub type Answered = Result<Response<Full<Bytes>>, BrokenOff>;

/// Serves every connection of the listener until its future is dropped.
pub async fn serve<F>(listener: TcpListener, answer: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static)
where
    F: Future<Output = Answered> + Send + 'static,
{
    let answer = Arc::new(answer);
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let answer = answer.clone();
        connections.spawn(async move { serve_connection(stream, &*answer).await });
    }
}

/// Serves one connection. Each request runs in a task of its own: a client that leaves cancels nothing.
pub async fn serve_connection<F>(stream: TcpStream, answer: impl Fn(Request<Incoming>) -> F)
where
    F: Future<Output = Answered> + Send + 'static,
{
    let service = service_fn(|request| {
        let answering = tokio::spawn(answer(request));
        async move { answering.await.unwrap_or(Err(BrokenOff)) }
    });
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
