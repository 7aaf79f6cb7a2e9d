//! Naive reader that trusts hyper for the end of a body, as the gateway once did. It stands before the gateway or
//! behind it, so that a test can see that the check finds the mistake.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Relay that forwards each message as a complete one.
#[derive(Clone, Default)]
pub(super) struct Naive {
    /// Number of requests in progress.
    passing: Arc<AtomicUsize>,
}

impl Naive {
    /// Listens, and forwards to this address until the lab says to leave. Returns the listening address.
    pub(super) async fn before(&self, target: SocketAddr, leave: Arc<Notify>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        tokio::spawn(self.clone().serve(listener, target, leave));
        address
    }

    /// Waits until no request is in progress.
    pub(super) async fn rest(&self) {
        while self.passing.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    }

    async fn serve(self, listener: TcpListener, target: SocketAddr, leave: Arc<Notify>) {
        while let Ok((stream, _)) = listener.accept().await {
            let (naive, leave) = (self.clone(), leave.clone());
            tokio::spawn(async move {
                let service = service_fn(move |request| naive.pass_on(request, target));
                let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service);
                tokio::select! {
                    _ = serving => {}
                    () = leave.notified() => {}
                }
            });
        }
    }

    /// Forwards a request in a task of its own, like the gateway executes commands: a client that leaves stops nothing.
    fn pass_on(
        &self,
        request: Request<Incoming>,
        target: SocketAddr,
    ) -> impl Future<Output = Result<Response<Full<Bytes>>, Error>> + use<> {
        self.passing.fetch_add(1, Ordering::SeqCst);
        let passing = self.passing.clone();
        let task = tokio::spawn(async move {
            let passed = exchange(request, target).await;
            passing.fetch_sub(1, Ordering::SeqCst);
            passed
        });
        async move { task.await? }
    }
}

async fn exchange(request: Request<Incoming>, target: SocketAddr) -> Result<Response<Full<Bytes>>, Error> {
    let (mut parts, body) = request.into_parts();
    // The mistake: a body that was reset with NO_ERROR ends like a complete one.
    let body = body.collect().await?.to_bytes();
    parts.headers.remove("content-length");
    let stream = TcpStream::connect(target).await?;
    let io = TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await?;
    tokio::spawn(connection);
    let response = sender.send_request(Request::from_parts(parts, Full::new(body))).await?;
    let (mut parts, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    parts.headers.remove("content-length");
    Ok(Response::from_parts(parts, Full::new(body)))
}
