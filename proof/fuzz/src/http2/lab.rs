//! Lab: a gateway and an upstream that speaks frames, in this process and on one thread.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use metrics_exporter_prometheus::PrometheusBuilder;
use semel_gateway::service::ADDRESS_CHECKS;
use semel_server::gateway::Gateway;
use semel_settings::{Sources, load};
use semel_testkit::client::{Reply, pay};
use semel_testkit::http2::{Peer, data, headers};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

use super::naive::Naive;
use super::plan::Plan;

/// Timeout that only a hanging exchange reaches.
const FOREVER: Duration = Duration::from_secs(20);

/// Reader of the truncated messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The gateway.
    Gateway,
    /// A naive reader of requests, before the gateway.
    NaiveOfRequests,
    /// A naive reader of responses, behind the gateway.
    NaiveOfResponses,
}

/// End of a message at the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// END_STREAM.
    Whole,
    /// A reset, or the end of its connection.
    Cut,
}

/// A request as the upstream saw it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) body: Vec<u8>,
    pub(super) ended: Ended,
}

/// Result of an exchange.
pub(super) struct Conversation {
    /// Requests at the upstream.
    pub(super) seen: Vec<Seen>,
    /// Body of the response, if it was complete.
    pub(super) answer: Option<Vec<u8>>,
    /// Response to the complete request, sent again, if it is a command.
    pub(super) retry: Option<Reply>,
}

/// State shared with the upstream.
#[derive(Default)]
struct Shared {
    /// Frames of the next response, by stream number, and true if the connection ends with them.
    script: Mutex<Option<Answer>>,
    seen: Mutex<Vec<Seen>>,
    leave: Arc<Notify>,
}

type Answer = Box<dyn FnOnce(u32) -> (Vec<Vec<u8>>, bool) + Send>;

/// A gateway before an upstream.
pub(super) struct Lab {
    runtime: Runtime,
    gateway: Gateway,
    /// Address for clients: the gateway, or a reader before it.
    front: SocketAddr,
    naive: Naive,
    shared: Arc<Shared>,
    /// Number of tasks without connections.
    at_rest: usize,
}

impl Lab {
    pub(super) fn start(reader: Reader) -> Lab {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
        let shared = Arc::new(Shared::default());
        let naive = Naive::default();
        let (gateway, front) = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let mut upstream = listener.local_addr().expect("it is bound");
            tokio::spawn(serve(listener, shared.clone()));
            if reader == Reader::NaiveOfResponses {
                upstream = naive.before(upstream, shared.leave.clone()).await;
            }
            let file = format!(
                "listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\nstore = \"memory:\"\n\
                 upstream = \"http://{upstream}\"\nupstream_protocol = \"h2c\"\n"
            );
            let loaded =
                load(&Sources::new().file("semel.toml", file), ADDRESS_CHECKS).expect("it can be used");
            let metrics = PrometheusBuilder::new().build_recorder().handle();
            let gateway =
                Gateway::start(&loaded.config, Vec::new(), metrics).await.expect("a gateway starts");
            let front = match reader {
                Reader::NaiveOfRequests => naive.before(gateway.address, shared.leave.clone()).await,
                Reader::Gateway | Reader::NaiveOfResponses => gateway.address,
            };
            (gateway, front)
        });
        let at_rest = runtime.block_on(async {
            for _ in 0..1000 {
                tokio::task::yield_now().await;
            }
            alive()
        });
        Lab { runtime, gateway, front, naive, shared, at_rest }
    }

    /// Runs the exchange, and, if it is a command, sends the complete request once more.
    pub(super) fn converse(&mut self, plan: &Plan, key: &str) -> Conversation {
        let (address, shared) = (self.gateway.address, &self.shared);
        self.runtime.block_on(async {
            *lock(&shared.script) = Some(script(plan));
            let talking = tokio::time::timeout(FOREVER, async {
                let answer = talk(self.front, plan, key).await;
                self.naive.rest().await;
                answer
            });
            let Ok(answer) = talking.await else { panic!("{plan:?} hangs") };
            self.rest(plan).await;
            let seen = std::mem::take(&mut *lock(&shared.seen));
            *lock(&shared.script) = None;
            let body = String::from_utf8(plan.request.body.clone()).expect("it is text");
            let again = pay(&body).set("idempotency-key", key);
            let retry = match plan.is_command {
                true => Some(again.over_http2(address).await),
                false => None,
            };
            self.rest(plan).await;
            let before =
                usize::from(retry.as_ref().is_some_and(|retry| retry.status == 201 && !retry.replayed()));
            assert_eq!(std::mem::take(&mut *lock(&shared.seen)).len(), before, "{plan:?}: it ran again");
            Conversation { seen, answer, retry }
        })
    }

    /// Ends the connections to the upstream, and waits until all work has ended.
    async fn rest(&self, plan: &Plan) {
        let begun = Instant::now();
        while alive() > self.at_rest {
            assert!(begun.elapsed() < FOREVER, "something still runs for {plan:?}");
            self.shared.leave.notify_waiters();
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn alive() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Returns the upstream's response to the first request.
fn script(plan: &Plan) -> Answer {
    let (frames, closes) = (plan.response.frames(1, &[(":status", "201")]), plan.response.closes());
    let is_slow = plan.is_slow;
    // The stream's number is known only then; it is at the same place in every frame.
    Box::new(move |stream| {
        let number = |mut frame: Vec<u8>| {
            if frame[5..9] == 1_u32.to_be_bytes() {
                frame[5..9].copy_from_slice(&stream.to_be_bytes());
            }
            frame
        };
        let frames: Vec<Vec<u8>> = frames.into_iter().map(number).collect();
        (if is_slow { frames } else { vec![frames.concat()] }, closes)
    })
}

/// Sends the request and reads the response to its end. Returns the body, if the response is complete.
async fn talk(address: SocketAddr, plan: &Plan, key: &str) -> Option<Vec<u8>> {
    let mut fields = vec![
        (":method", if plan.is_command { "POST" } else { "PUT" }),
        (":scheme", "http"),
        (":authority", "lab"),
        (":path", "/payments"),
        ("content-type", "application/json"),
    ];
    if plan.is_command {
        fields.push(("idempotency-key", key));
    }
    let mut peer = Peer::connect(address).await;
    let frames = plan.request.frames(1, &fields);
    send(&mut peer, if plan.is_slow { frames } else { vec![frames.concat()] }).await;
    if plan.request.closes() {
        return None;
    }
    if !plan.request.is_left_alone() || !plan.request.is_whole() {
        peer.settle().await;
        return None;
    }
    let mut body = Vec::new();
    while let Some(frame) = peer.next().await {
        body.extend_from_slice(frame.data());
        if frame.stream == 1 && frame.ends_message() {
            return Some(body);
        }
        if frame.stream == 1 && frame.reset_code().is_some() {
            return None;
        }
    }
    None
}

async fn send(peer: &mut Peer, pieces: Vec<Vec<u8>>) {
    for piece in pieces {
        peer.send(&piece).await;
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        tokio::spawn(async move {
            let answering = async {
                if let Some(peer) = Peer::accept(stream).await {
                    answer(peer, &shared).await;
                }
            };
            tokio::select! {
                () = answering => {}
                () = shared.leave.notified() => {}
            }
        });
    }
}

/// Answers the requests of one connection, each once it has ended.
async fn answer(mut peer: Peer, shared: &Shared) {
    // There is only one request at a time.
    let mut open: Option<(u32, Noted<'_>)> = None;
    while let Some(frame) = peer.next().await {
        if frame.is_headers() && open.as_ref().is_none_or(|(stream, _)| *stream != frame.stream) {
            open = Some((frame.stream, Noted { shared, body: Vec::new(), ended: Ended::Cut }));
        }
        let Some((stream, noted)) = &mut open else { continue };
        if *stream != frame.stream {
            continue;
        }
        noted.body.extend_from_slice(frame.data());
        if frame.reset_code().is_some() {
            open = None;
        } else if frame.ends_message() {
            let stream = *stream;
            noted.ended = Ended::Whole;
            open = None;
            let script = lock(&shared.script).take();
            let plain = |stream| {
                (vec![headers(stream, &[(":status", "201")], false), data(stream, b"", true)], false)
            };
            let (frames, closes) = script.map_or_else(|| plain(stream), |script| script(stream));
            send(&mut peer, frames).await;
            if closes {
                return peer.finish().await;
            }
        }
    }
}

/// A request that is recorded when it ends, in any way.
struct Noted<'a> {
    shared: &'a Shared,
    body: Vec<u8>,
    ended: Ended,
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        lock(&self.shared.seen).push(Seen { body: std::mem::take(&mut self.body), ended: self.ended });
    }
}
