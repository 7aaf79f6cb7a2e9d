//! Lab: a gateway and an upstream in this process, on one thread, and a client that sends bytes and reads to the end.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use metrics_exporter_prometheus::PrometheusBuilder;
use semel_gateway::service::ADDRESS_CHECKS;
use semel_server::gateway::Gateway;
use semel_settings::{Sources, load};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

use crate::http1::{self, Kind, Message, Read};

/// Header field with the number of the upstream's response.
pub(super) const NUMBER: &str = "x-number";

/// Timeout that only a hanging conversation reaches.
const FOREVER: Duration = Duration::from_secs(20);

/// Bytes of one connection at the upstream.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) bytes: Vec<u8>,
}

/// Result of one input.
pub(super) struct Conversation {
    /// Final responses, without interim ones.
    pub(super) answers: Vec<Message>,
    /// True if the connection was reset, with unread responses.
    pub(super) is_broken: bool,
    /// Connections at the upstream meanwhile, in order.
    pub(super) seen: Vec<Seen>,
}

/// A gateway before an upstream.
pub(super) struct Lab {
    runtime: Runtime,
    address: SocketAddr,
    shared: Arc<Mutex<Vec<Seen>>>,
    /// Number of tasks of an idle lab.
    at_rest: usize,
    _gateway: Gateway,
}

impl Lab {
    pub(super) fn start() -> Lab {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
        let shared = Arc::new(Mutex::new(Vec::new()));
        let gateway = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let upstream = listener.local_addr().expect("it is bound");
            tokio::spawn(serve(listener, shared.clone()));
            let file = format!(
                "listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\nstore = \"memory:\"\nupstream = \"http://{upstream}\"\n"
            );
            let loaded = load(&Sources::new().file("semel.toml", file), ADDRESS_CHECKS).expect("it can be used");
            let metrics = PrometheusBuilder::new().build_recorder().handle();
            Gateway::start(&loaded.config, Vec::new(), metrics).await.expect("a gateway starts")
        });
        let mut lab = Lab { address: gateway.address, runtime, shared, at_rest: 0, _gateway: gateway };
        // This request creates everything that is created on first use.
        lab.at_rest = usize::MAX;
        let first = b"GET / HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n";
        let answers = lab.converse(first, &AsksHead { whole: vec![false], rest: false }).answers.len();
        assert_eq!(answers, 1, "the gateway answers");
        lab.at_rest = lab.runtime.block_on(async {
            let mut tasks = alive();
            // Once a second look finds as few tasks as the first, all work for the request has ended.
            for _ in 0..1000 {
                tokio::task::yield_now().await;
                tasks = tasks.min(alive());
            }
            tasks
        });
        lab.shared.lock().unwrap_or_else(PoisonError::into_inner).clear();
        lab
    }

    /// Sends these bytes, and waits until all work for them has ended. `asks_head` names requests with `HEAD`.
    pub(super) fn converse(&mut self, bytes: &[u8], asks_head: &AsksHead) -> Conversation {
        self.runtime.block_on(async {
            let talking = tokio::time::timeout(FOREVER, talk(self.address, bytes, asks_head));
            let Ok((answers, is_broken)) = talking.await else {
                panic!("a request is not answered: {}", bytes.escape_ascii())
            };
            let begun = Instant::now();
            while alive() > self.at_rest {
                assert!(begun.elapsed() < FOREVER, "something still runs for {}", bytes.escape_ascii());
                tokio::task::yield_now().await;
            }
            let seen = std::mem::take(&mut *self.shared.lock().unwrap_or_else(PoisonError::into_inner));
            Conversation { answers, is_broken, seen }
        })
    }
}

/// Requests with `HEAD`, whose responses have no body.
pub(super) struct AsksHead {
    /// True for each complete request with `HEAD`.
    pub(super) whole: Vec<bool>,
    /// True if the bytes after them, which are refused, begin with `HEAD`.
    pub(super) rest: bool,
}

impl AsksHead {
    fn at(&self, number: usize) -> bool {
        self.whole.get(number).copied().unwrap_or(self.rest)
    }
}

fn alive() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// Sends all bytes at once, and reads: first as many responses as there are complete requests; then, after closing its
/// sending side, to the end of the connection.
async fn talk(address: SocketAddr, bytes: &[u8], asks_head: &AsksHead) -> (Vec<Message>, bool) {
    let mut stream = TcpStream::connect(address).await.expect("the gateway listens");
    let (mut answers, mut heard, mut is_broken) = (Vec::new(), Vec::new(), false);
    let mut is_open = stream.write_all(bytes).await.is_ok();
    loop {
        while let Some(answer) = next(&mut heard, asks_head.at(answers.len())) {
            if answer.status() >= 200 {
                answers.push(answer);
            }
        }
        if is_open && answers.len() >= asks_head.whole.len() {
            is_open = false;
            let _ = stream.shutdown().await;
        }
        match stream.read_buf(&mut heard).await {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => {
                is_broken = error.kind() == io::ErrorKind::ConnectionReset;
                assert!(is_broken, "{error}");
                break;
            }
        }
    }
    // An unreadable head gets the same refusal whatever its method, and nothing follows.
    let was_refused = |answer: &Message| answer.status() == 400 && answer.values("connection") == [b"close"];
    let to_head = answers.len().checked_sub(1).is_some_and(|last| asks_head.at(last));
    let is_whole = heard.is_empty() || to_head && answers.last().is_some_and(was_refused);
    assert!(is_whole || is_broken, "half an answer: {}", heard.escape_ascii());
    (answers, is_broken)
}

/// Takes the next response off the received bytes, once it is complete.
fn next(heard: &mut Vec<u8>, to_head: bool) -> Option<Message> {
    match http1::read(heard, Kind::Response { to_head }) {
        Read::Whole(answer) => {
            heard.drain(..answer.length);
            Some(answer)
        }
        Read::Part => None,
        Read::Not => panic!("this is no answer: {}", heard.escape_ascii()),
    }
}

async fn serve(listener: TcpListener, shared: Arc<Mutex<Vec<Seen>>>) {
    let mut number = 0;
    while let Ok((stream, _)) = listener.accept().await {
        number += 1;
        tokio::spawn(answer(stream, number, shared.clone()));
    }
}

/// Answers the first request of a connection, and keeps reading: nothing may follow it.
async fn answer(mut stream: TcpStream, number: usize, shared: Arc<Mutex<Vec<Seen>>>) {
    let mut seen = Seen::default();
    let mut is_answered = false;
    while let Ok(1..) = stream.read_buf(&mut seen.bytes).await {
        if is_answered {
            continue;
        }
        match http1::read(&seen.bytes, Kind::Request) {
            Read::Part => continue,
            Read::Not => break,
            Read::Whole(request) if is_dropped(&request) => break,
            Read::Whole(request) => {
                is_answered = true;
                let body = body(number.to_string().as_bytes());
                let status = if request.start[1].starts_with(b"/fail") { "503 Busy" } else { "201 Created" };
                let head = format!(
                    "HTTP/1.1 {status}\r\nConnection: close\r\n{NUMBER}: {number}\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                let body = if request.start[0] == b"HEAD" { Vec::new() } else { body };
                if stream.write_all(&[head.as_bytes(), &body].concat()).await.is_err() {
                    break;
                }
            }
        }
    }
    shared.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
}

/// Returns true if the upstream closes the connection of this request without a response.
pub(super) fn is_dropped(request: &Message) -> bool {
    request.start[1].starts_with(b"/drop")
}

/// Returns the body of the response with this number.
pub(super) fn body(number: &[u8]) -> Vec<u8> {
    [b"answer ", number].concat()
}
