//! HTTP/2 frame by frame: messages cut at a chosen point, and an upstream that answers with them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use semel_testkit::http2::{CODES, NO_ERROR, Peer, data, go_away, headers, reset};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::seen::Effect;

/// Progress of a message at the moment it is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Point {
    BeforeHead,
    AfterHead,
    InBody,
    /// All bytes of the body are sent, but neither END_STREAM nor trailers.
    BeforeEnd,
    /// The message is complete.
    AfterEnd,
}

/// Way to cut a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    Reset(u32),
    /// GOAWAY, and the end of the connection. Its last stream id includes this stream or not.
    GoAway {
        includes_stream: bool,
        code: u32,
    },
    /// End of the connection.
    Close,
}

impl Cut {
    /// Returns a reset with every code, and every way for a connection to end.
    pub(crate) fn all() -> impl Iterator<Item = Cut> {
        let leaving = |includes_stream| Cut::GoAway { includes_stream, code: NO_ERROR };
        CODES.map(Cut::Reset).chain([leaving(true), leaving(false), Cut::Close])
    }

    /// Returns true if the connection ends with it.
    pub(crate) fn ends_connection(self) -> bool {
        !matches!(self, Cut::Reset(_))
    }

    fn frame(self, stream: u32) -> Vec<u8> {
        match self {
            Cut::Reset(code) => reset(stream, code),
            Cut::GoAway { includes_stream, code } => go_away(if includes_stream { stream } else { 0 }, code),
            Cut::Close => Vec::new(),
        }
    }
}

/// A message that is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CutMessage {
    pub(crate) point: Point,
    pub(crate) cut: Cut,
    /// True if the length is announced; otherwise a complete message ends with trailers.
    pub(crate) is_announced: bool,
}

impl CutMessage {
    /// Returns its frames on this stream, with these fields in its head.
    pub(crate) fn frames(&self, stream: u32, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
        let length = body.len().to_string();
        let mut fields = fields.to_vec();
        if self.is_announced {
            fields.push(("content-length", &length));
        }
        let (first, rest) = body.split_at(body.len() / 2);
        let mut frames = Vec::new();
        if self.point != Point::BeforeHead {
            frames.extend(headers(stream, &fields, false));
        }
        if matches!(self.point, Point::InBody | Point::BeforeEnd | Point::AfterEnd) {
            frames.extend(data(stream, first, false));
        }
        match self.point {
            Point::BeforeEnd => frames.extend(data(stream, rest, false)),
            Point::AfterEnd if self.is_announced => frames.extend(data(stream, rest, true)),
            Point::AfterEnd => {
                frames.extend(data(stream, rest, false));
                frames.extend(headers(stream, &[("x-sum", "7")], true));
            }
            _ => {}
        }
        frames.extend(self.cut.frame(stream));
        frames
    }
}

/// Behaviour of the upstream for the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Executes the call and answers.
    Answers,
    /// Executes the call and holds it before it is answered.
    Holds,
    /// Executes the call and cuts its response.
    Cuts(CutMessage),
    /// Executes nothing and cuts the stream.
    Declines(CutMessage),
}

/// HTTP/2 upstream with a ledger. It does not deduplicate.
pub(crate) struct FrameUpstream {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

struct Shared {
    next: Mutex<Next>,
    /// Numbers of held calls and of released calls.
    held: watch::Sender<(usize, usize)>,
    effects: Mutex<Vec<Effect>>,
    /// Marker in the bodies of this run's commands.
    marker: String,
}

impl FrameUpstream {
    /// Starts the upstream, for requests with this marker in their bodies.
    pub(crate) async fn start(marker: &str) -> Result<FrameUpstream, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let shared = Arc::new(Shared {
            next: Mutex::new(Next::Answers),
            held: watch::Sender::new((0, 0)),
            effects: Mutex::default(),
            marker: marker.to_owned(),
        });
        let serving = tokio::spawn(serve(listener, shared.clone()));
        Ok(FrameUpstream { address, shared, serving })
    }

    /// Sets the behaviour for the next call.
    pub(crate) fn will(&self, next: Next) {
        *lock(&self.shared.next) = next;
    }

    /// Returns the effects of the command whose request has this key in its body.
    pub(crate) fn effects(&self, key: &str) -> Vec<Effect> {
        lock(&self.shared.effects).iter().filter(|effect| effect.key.contains(key)).cloned().collect()
    }

    /// Waits until a call is held.
    pub(crate) async fn is_held(&self) {
        let _ = self.shared.held.subscribe().wait_for(|(held, released)| held > released).await;
    }

    /// Releases held calls.
    pub(crate) fn release(&self) {
        self.shared.held.send_modify(|(held, released)| *released = *held);
    }
}

impl Drop for FrameUpstream {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(carry(stream, shared.clone()));
    }
}

/// Answers the calls of one connection, each once its request has ended.
async fn carry(stream: TcpStream, shared: Arc<Shared>) {
    let Some(mut peer) = Peer::accept(stream).await else { return };
    let mut open: Option<(u32, Vec<u8>)> = None;
    while let Some(frame) = peer.next().await {
        if frame.is_headers() && open.as_ref().is_none_or(|(stream, _)| *stream != frame.stream) {
            open = Some((frame.stream, Vec::new()));
        }
        let Some((stream, body)) = open.as_mut().filter(|(stream, _)| *stream == frame.stream) else {
            continue;
        };
        body.extend_from_slice(frame.data());
        if frame.ends_message() {
            let (stream, body) = (*stream, String::from_utf8_lossy(body).into_owned());
            open = None;
            // A client of another run may still know this port; its calls are ignored.
            if !body.contains(&shared.marker) {
                return;
            }
            if shared.answer(&mut peer, stream, body).await.is_some_and(Cut::ends_connection) {
                return peer.finish().await;
            }
        } else if frame.reset_code().is_some() {
            open = None;
        }
    }
}

impl Shared {
    /// Handles a call as set, and returns the cut of its response.
    async fn answer(&self, peer: &mut Peer, stream: u32, request: String) -> Option<Cut> {
        let next = std::mem::replace(&mut *lock(&self.next), Next::Answers);
        let fields = [(":status", "201"), ("content-type", "application/json")];
        if let Next::Declines(message) = next {
            peer.send(&message.frames(stream, &fields, b"{}")).await;
            return Some(message.cut);
        }
        let body = self.effect(request);
        if next == Next::Holds {
            let mut held = self.held.subscribe();
            self.held.send_modify(|(held, _)| *held += 1);
            let _ = held.wait_for(|(held, released)| held == released).await;
        }
        if let Next::Cuts(message) = next {
            peer.send(&message.frames(stream, &fields, &body)).await;
            return Some(message.cut);
        }
        peer.send(&[headers(stream, &fields, false), data(stream, &body, true)].concat()).await;
        None
    }

    /// Adds an effect to the ledger.
    fn effect(&self, request: String) -> Bytes {
        let mut effects = lock(&self.effects);
        let body = Bytes::from(json!({ "effect": effects.len() + 1, "request": request }).to_string());
        effects.push(Effect { operation_id: String::new(), key: request, body: body.clone() });
        body
    }
}
