//! Server that can close a connection without an answer, which axum's own server cannot.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, IntoResponseParts, Response, ResponseParts};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Maximum number of connected clients; the others wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 1024;
/// Timeout of the head of a request, and of a request as a whole.
const HEAD_TIME: Duration = Duration::from_secs(30);
const REQUEST_TIME: Duration = Duration::from_secs(90);
/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(50);

/// Marker in place of an answer: the connection is closed.
#[derive(Clone, Debug)]
pub(super) struct HangUp;

impl std::fmt::Display for HangUp {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("the connection is closed on purpose")
    }
}

impl std::error::Error for HangUp {}

impl IntoResponseParts for HangUp {
    type Error = Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        parts.extensions_mut().insert(self);
        Ok(parts)
    }
}

impl IntoResponse for HangUp {
    fn into_response(self) -> Response {
        (self, ()).into_response()
    }
}

pub(super) async fn serve(listener: TcpListener, app: Router) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let app = app.clone();
                tokio::spawn(async move {
                    connection(stream, app).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn connection(stream: TcpStream, app: Router) {
    let app = TowerToHyperService::new(app);
    let answer = move |request: hyper::Request<Incoming>| {
        let answering = tokio::time::timeout(REQUEST_TIME, app.call(request));
        async move {
            let Ok(Ok(response)) = answering.await else { return Err(HangUp) };
            if response.extensions().get::<HangUp>().is_some() { Err(HangUp) } else { Ok(response) }
        }
    };
    // However it ends, the client sees it.
    let _ = stream.set_nodelay(true);
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await;
}
