//! Upstream of the gateways. It keeps a ledger, does not deduplicate, and mistreats the first call as a cell wants.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use semel_testkit::breaking::{self, Answered, BrokenOff};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::gate::Gate;
use crate::seen::Effect;

/// Treatment of the first call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Call that is executed and answered.
    Well,
    /// Call that is held before its execution.
    HoldsBefore,
    /// Call that is executed, and held before it is answered.
    HoldsAfter,
    /// The connection ends before its execution, or after.
    BreaksOffBefore,
    BreaksOffAfter,
    /// Call that is executed and answered with bytes that are not HTTP.
    Garbage,
    /// Call that is executed and answered with a truncated response.
    HalfAnswer,
    /// Call that is executed and answered with a response too large to be stored.
    TooLarge,
}

/// Upstream of the gateways.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

struct Shared {
    mood: Mood,
    /// Suffix of the keys of calls that are executed: a client of another run may still know this port.
    key: String,
    called: AtomicBool,
    gate: Gate,
    effects: Mutex<Vec<Effect>>,
}

impl Upstream {
    /// Starts the upstream, for commands under this key, or under keys that end with it.
    pub(crate) async fn start(mood: Mood, key: &str) -> Result<Upstream, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let shared = Arc::new(Shared {
            mood,
            key: key.to_owned(),
            called: AtomicBool::new(false),
            gate: Gate::default(),
            effects: Mutex::default(),
        });
        let serving = tokio::spawn(serve(listener, shared.clone()));
        Ok(Upstream { address, shared, serving })
    }

    /// Returns the effects in the ledger.
    pub(crate) fn effects(&self) -> Vec<Effect> {
        self.shared.effects.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the first call is held.
    pub(crate) async fn is_held(&self) {
        self.shared.gate.is_held().await;
    }

    /// Releases the held call.
    pub(crate) fn release(&self) {
        self.shared.gate.open();
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(carry(stream, shared.clone()));
    }
}

async fn carry(stream: TcpStream, shared: Arc<Shared>) {
    if matches!(shared.mood, Mood::Garbage | Mood::HalfAnswer) && !shared.called.load(Ordering::SeqCst) {
        let _ = answer_badly(stream, &shared).await;
        return;
    }
    breaking::serve_connection(stream, |request| shared.clone().answer(request)).await;
}

/// Reads the head of a request, executes it, and writes a response that is broken.
async fn answer_badly(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        stream.readable().await?;
        let mut chunk = [0; 4096];
        match stream.try_read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(length) => request.extend_from_slice(&chunk[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    let head = String::from_utf8_lossy(&request).into_owned();
    let field = |wanted: &str| {
        let line = head.lines().find(|line| line.to_lowercase().starts_with(&format!("{wanted}:")));
        line.and_then(|line| line.split_once(':')).map_or("", |(_, value)| value.trim()).to_owned()
    };
    if !field("idempotency-key").ends_with(&shared.key) {
        return Ok(());
    }
    shared.called.store(true, Ordering::SeqCst);
    shared.effect(field("semel-operation-id"), field("idempotency-key"), 0);
    let answer: &[u8] = match shared.mood {
        Mood::Garbage => b"SSH-2.0-what-is-this\r\n\r\n",
        _ => b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: 400\r\n\r\n{\"effect\":",
    };
    stream.writable().await?;
    let _ = stream.try_write(answer)?;
    Ok(())
}

impl Shared {
    async fn answer(self: Arc<Shared>, request: Request<Incoming>) -> Answered {
        let field = |name: &str| {
            request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let (operation_id, key) = (field("semel-operation-id"), field("idempotency-key"));
        request.into_body().collect().await.map_err(|_| BrokenOff)?;
        if !key.ends_with(&self.key) {
            return Err(BrokenOff);
        }
        let mood = if self.called.swap(true, Ordering::SeqCst) { Mood::Well } else { self.mood };
        match mood {
            Mood::HoldsBefore => self.gate.hold().await,
            Mood::BreaksOffBefore => return Err(BrokenOff),
            _ => {}
        }
        let padding = if mood == Mood::TooLarge { 4096 } else { 0 };
        let (number, body) = self.effect(operation_id, key, padding);
        match mood {
            Mood::HoldsAfter => self.gate.hold().await,
            Mood::BreaksOffAfter => return Err(BrokenOff),
            _ => {}
        }
        Response::builder()
            .status(201)
            .header("content-type", "application/json")
            .header("location", format!("/payments/{number}"))
            .body(Full::new(body))
            .map_err(|_| BrokenOff)
    }

    /// Adds an effect to the ledger.
    fn effect(&self, operation_id: String, key: String, padding: usize) -> (usize, Bytes) {
        let mut effects = self.effects.lock().unwrap_or_else(PoisonError::into_inner);
        let number = effects.len() + 1;
        let body = json!({ "effect": number, "operation": operation_id, "padding": "x".repeat(padding) });
        let body = Bytes::from(body.to_string());
        effects.push(Effect { operation_id, key, body: body.clone() });
        (number, body)
    }
}
