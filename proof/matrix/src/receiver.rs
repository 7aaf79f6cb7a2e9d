//! Receiver of messages. It keeps the first message of each event id, answers duplicates the same, and misbehaves as a
//! cell wants.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use semel_testkit::breaking::{self, Answered, BrokenOff};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::gate::Gate;

/// Behaviour of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Messages are accepted and answered.
    Well,
    /// The first message is accepted, and held before it is answered.
    Holds,
    /// Messages of the first command fail: with an error worth a retry (`Fails`), or a permanent one (`Refuses`).
    Fails,
    Refuses,
    /// Messages of the first command are accepted, and the connection ends without a response.
    BreaksOff,
}

/// A delivered message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) event_id: String,
    /// Idempotency key header, for receivers that deduplicate by it.
    pub(crate) key: String,
    pub(crate) body: Bytes,
    /// True if the message was accepted, also as a duplicate.
    pub(crate) is_taken: bool,
}

/// Receiver of messages.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

struct Shared {
    manner: Manner,
    /// Key in the payloads of messages that are not accepted.
    poison: String,
    gate: Gate,
    deliveries: Mutex<Vec<Delivery>>,
}

impl Receiver {
    pub(crate) async fn start(manner: Manner, poison: &str) -> Result<Receiver, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let shared = Arc::new(Shared {
            manner,
            poison: poison.to_owned(),
            gate: Gate::default(),
            deliveries: Mutex::default(),
        });
        let serving = {
            let shared = shared.clone();
            tokio::spawn(breaking::serve(listener, move |request| shared.clone().answer(request)))
        };
        Ok(Receiver { address, shared, serving })
    }

    /// Returns all deliveries.
    pub(crate) fn deliveries(&self) -> Vec<Delivery> {
        self.shared.deliveries().clone()
    }

    /// Waits until the first message is held.
    pub(crate) async fn is_held(&self) -> Result<(), String> {
        let held = tokio::time::timeout(crate::patience::PATIENCE, self.shared.gate.is_held()).await;
        held.map_err(|_| "no message came".to_owned())
    }

    /// Releases the held message.
    pub(crate) fn release(&self) {
        self.shared.gate.open();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Returns the receiver's reference for the message with this event id.
pub(crate) fn reference(event_id: &str) -> String {
    format!("taken-{event_id}")
}

impl Shared {
    fn deliveries(&self) -> MutexGuard<'_, Vec<Delivery>> {
        self.deliveries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(self: Arc<Shared>, request: Request<Incoming>) -> Answered {
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
                self.gate.hold().await;
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
}
