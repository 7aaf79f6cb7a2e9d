//! Who gets the messages. It keeps the first of each event id, answers the same to every other one of it, and does to
//! messages what a cell wants.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// What happens to messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// They are taken and answered.
    Well,
    /// The first one that comes is taken, and held before it is answered.
    Holds,
    /// Those of the first command are not taken: perhaps another time, or never.
    Fails,
    Refuses,
    /// Those of the first command are taken, and the connection ends without an answer.
    BreaksOff,
}

/// A message that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) event_id: String,
    /// The same, for those who deduplicate by this header.
    pub(crate) key: String,
    pub(crate) body: Bytes,
    /// Whether it was taken, be it for the second time.
    pub(crate) is_taken: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Expected,
    Held,
    Released,
}

/// The receiver.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

struct Shared {
    manner: Manner,
    /// Whose messages are not taken: their payload has this in it.
    poison: String,
    stage: watch::Sender<Stage>,
    deliveries: Mutex<Vec<Delivery>>,
}

/// The connection ends without an answer.
#[derive(Debug, PartialEq, Eq)]
struct BrokenOff;

impl std::fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("broken off on purpose")
    }
}

impl std::error::Error for BrokenOff {}

impl Receiver {
    pub(crate) async fn start(manner: Manner, poison: &str) -> Result<Receiver, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let shared = Arc::new(Shared {
            manner,
            poison: poison.to_owned(),
            stage: watch::Sender::new(Stage::Expected),
            deliveries: Mutex::default(),
        });
        let serving = tokio::spawn(serve(listener, shared.clone()));
        Ok(Receiver { address, shared, serving })
    }

    /// What came.
    pub(crate) fn deliveries(&self) -> Vec<Delivery> {
        self.shared.deliveries().clone()
    }

    /// Waits until the first one is held.
    pub(crate) async fn is_held(&self) -> Result<(), String> {
        let mut stage = self.shared.stage.subscribe();
        let held = stage.wait_for(|stage| *stage != Stage::Expected);
        let held = tokio::time::timeout(crate::patience::PATIENCE, held).await;
        held.map(drop).map_err(|_| "no message came".to_owned())
    }

    /// Lets it go on.
    pub(crate) fn release(&self) {
        self.shared.stage.send_replace(Stage::Released);
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// What the receiver calls the message with this event id.
pub(crate) fn reference(event_id: &str) -> String {
    format!("taken-{event_id}")
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(carry(stream, shared.clone()));
    }
}

async fn carry(stream: TcpStream, shared: Arc<Shared>) {
    let service = service_fn(|request| {
        let shared = shared.clone();
        // In a task of its own: a sender that leaves stops nothing.
        async move { tokio::spawn(shared.answer(request)).await.unwrap_or(Err(BrokenOff)) }
    });
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

impl Shared {
    fn deliveries(&self) -> MutexGuard<'_, Vec<Delivery>> {
        self.deliveries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(
        self: Arc<Shared>,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, BrokenOff> {
        let field = |name: &str| {
            request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let (event_id, key) = (field("semel-event-id"), field("idempotency-key"));
        let body = request.into_body().collect().await.map_err(|_| BrokenOff)?.to_bytes();
        let is_poison = String::from_utf8_lossy(&body).contains(&self.poison);
        let is_taken = !(is_poison && matches!(self.manner, Manner::Fails | Manner::Refuses));
        let is_first = {
            let mut deliveries = self.deliveries();
            deliveries.push(Delivery { event_id: event_id.clone(), key, body, is_taken });
            deliveries.len() == 1
        };
        let status = match self.manner {
            Manner::Holds if is_first => {
                self.hold().await;
                200
            }
            Manner::Fails if is_poison => 500,
            Manner::Refuses if is_poison => 422,
            Manner::BreaksOff if is_poison => return Err(BrokenOff),
            _ => 200,
        };
        let answer = Response::builder().status(status).header("semel-reference", reference(&event_id));
        answer.body(Full::default()).map_err(|_| BrokenOff)
    }

    async fn hold(&self) {
        let mut stage = self.stage.subscribe();
        self.stage.send_if_modified(|stage| {
            *stage == Stage::Expected && {
                *stage = Stage::Held;
                true
            }
        });
        let _ = stage.wait_for(|stage| *stage == Stage::Released).await;
    }
}
