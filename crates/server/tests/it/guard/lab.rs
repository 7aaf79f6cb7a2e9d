//! hyper server behind the guard, which counts the complete requests that its service has seen.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, UPGRADE};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use semel_gateway::guard::{ClientLimits, Guarded};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Longer than anything here takes; a test that gets this far hangs.
const FOREVER: Duration = Duration::from_secs(20);

pub(crate) struct Lab {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    seen: AtomicUsize,
    broken: AtomicUsize,
    /// Gate for requests to `/gated`.
    gate: Semaphore,
    /// Ended connections.
    ended: Semaphore,
}

impl Lab {
    pub(crate) async fn start(limits: ClientLimits) -> Lab {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared {
            seen: AtomicUsize::new(0),
            broken: AtomicUsize::new(0),
            gate: Semaphore::new(0),
            ended: Semaphore::new(0),
        });
        let serving = shared.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(Guarded::new(stream, limits), serving.clone()));
            }
        });
        Lab { address, shared }
    }

    /// Returns the number of requests that the service has read to their end.
    pub(crate) fn seen(&self) -> usize {
        self.shared.seen.load(Ordering::SeqCst)
    }

    /// Returns the number of requests that broke off while the service read them.
    pub(crate) fn broken(&self) -> usize {
        self.shared.broken.load(Ordering::SeqCst)
    }

    /// Lets one request to `/gated` continue.
    pub(crate) fn open_gate(&self) {
        self.shared.gate.add_permits(1);
    }

    /// Waits until another connection has ended on the server's side.
    pub(crate) async fn one_ended(&self) {
        let ended = tokio::time::timeout(FOREVER, self.shared.ended.acquire()).await;
        ended.expect("a connection ends").expect("this is never closed").forget();
    }

    pub(crate) async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.address).await.expect("the server listens"))
    }

    /// Returns the server's whole answer to these bytes, until it closes the connection.
    pub(crate) async fn converse(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut client = self.connect().await;
        client.send(bytes).await;
        client.rest().await
    }
}

pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.expect("the server reads");
    }

    /// Reads until this text has arrived, and returns everything up to there.
    pub(crate) async fn until(&mut self, text: &str) -> String {
        let mut read = Vec::new();
        let reading = async {
            while !read.ends_with(text.as_bytes()) {
                read.push(self.0.read_u8().await.expect("the server goes on"));
            }
        };
        let outcome = tokio::time::timeout(FOREVER, reading).await;
        let read = String::from_utf8_lossy(&read).into_owned();
        assert!(outcome.is_ok(), "{text:?} never came, only {read:?}");
        read
    }

    /// Returns everything until the server closes the connection.
    pub(crate) async fn rest(&mut self) -> String {
        let mut read = Vec::new();
        let outcome = tokio::time::timeout(FOREVER, self.0.read_to_end(&mut read)).await;
        let read = String::from_utf8_lossy(&read).into_owned();
        assert!(matches!(outcome, Ok(Ok(_))), "{outcome:?} after {read:?}");
        read
    }
}

async fn serve(stream: Guarded<TcpStream>, shared: Arc<Shared>) {
    let answering = shared.clone();
    let service = service_fn(move |request| answer(request, answering.clone()));
    let builder = auto::Builder::new(TokioExecutor::new());
    // Broken connections are part of the tests; the client's side asserts them.
    let _ = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await;
    shared.ended.add_permits(1);
}

async fn answer(
    mut request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.uri().path() == "/upgrade" {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let (mut reader, mut writer) =
                tokio::io::split(TokioIo::new(upgrade.await.expect("hyper upgrades after a 101")));
            tokio::io::copy(&mut reader, &mut writer).await.expect("the client reads");
        });
        shared.seen.fetch_add(1, Ordering::SeqCst);
        let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
        return Ok(response
            .header(CONNECTION, "upgrade")
            .header(UPGRADE, "echo")
            .body(Full::default())
            .expect("the parts are valid"));
    }
    if request.uri().path() == "/early" {
        shared.seen.fetch_add(1, Ordering::SeqCst);
        return Ok(Response::new(Full::from("early")));
    }
    let path = request.uri().path().to_owned();
    let Ok(body) = request.into_body().collect().await else {
        shared.broken.fetch_add(1, Ordering::SeqCst);
        let response = Response::builder().status(StatusCode::BAD_REQUEST);
        return Ok(response.body(Full::from("the body broke off")).expect("the parts are valid"));
    };
    shared.seen.fetch_add(1, Ordering::SeqCst);
    match path.as_str() {
        "/gated" => shared.gate.acquire().await.expect("the gate is never closed").forget(),
        "/large" => return Ok(Response::new(Full::from(vec![b'x'; 64 * 1024 * 1024]))),
        _ => {}
    }
    let trailers = body.trailers().map_or(0, hyper::HeaderMap::len);
    let echo = [format!("{path} {trailers} ").as_bytes(), &body.to_bytes(), b"\n"].concat();
    Ok(Response::new(Full::from(echo)))
}
