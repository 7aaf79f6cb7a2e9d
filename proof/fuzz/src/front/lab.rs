//! A gateway and an upstream in this process, on one thread, and a client that says its bytes and listens to the end.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use metrics_exporter_prometheus::PrometheusBuilder;
use semel_server::gateway::Gateway;
use semel_settings::{Sources, load};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

use crate::http1::{self, Kind, Message, Read};

/// The field by which the upstream numbers its answers.
pub(super) const NUMBER: &str = "x-number";

/// Longer than anything here takes: a conversation that gets this far hangs.
const FOREVER: Duration = Duration::from_secs(20);

/// What came in on one connection of the upstream.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) bytes: Vec<u8>,
}

/// What became of some bytes.
pub(super) struct Conversation {
    /// The answers, without those that only say to go on.
    pub(super) answers: Vec<Message>,
    /// The connection was reset, with answers that nobody got to read.
    pub(super) is_broken: bool,
    /// What the upstream saw meanwhile, in the order in which it came.
    pub(super) seen: Vec<Seen>,
}

/// A gateway before an upstream.
pub(super) struct Lab {
    runtime: Runtime,
    address: SocketAddr,
    shared: Arc<Mutex<Vec<Seen>>>,
    /// The tasks that there are while nothing is to be done.
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
            let loaded = load(&Sources::new().file("semel.toml", file)).expect("it can be used");
            let metrics = PrometheusBuilder::new().build_recorder().handle();
            Gateway::start(&loaded.config, metrics).await.expect("a gateway starts")
        });
        let mut lab = Lab { address: gateway.address, runtime, shared, at_rest: 0, _gateway: gateway };
        // Whatever is only made when it is first needed is made now.
        lab.at_rest = usize::MAX;
        let first = b"GET / HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n";
        let answers = lab.converse(first, &AsksHead { whole: vec![false], rest: false }).answers.len();
        assert_eq!(answers, 1, "the gateway answers");
        lab.at_rest = lab.runtime.block_on(async {
            let mut tasks = alive();
            // Once a second look finds as few as the first, all that ran for the request has ended.
            for _ in 0..1000 {
                tokio::task::yield_now().await;
                tasks = tasks.min(alive());
            }
            tasks
        });
        lab.shared.lock().unwrap_or_else(PoisonError::into_inner).clear();
        lab
    }

    /// Sends these bytes, of whose requests some ask with `HEAD`, and waits until nothing is left to be done for them.
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

/// Requests by `HEAD`, whose answers have no body.
pub(super) struct AsksHead {
    /// For each whole request.
    pub(super) whole: Vec<bool>,
    /// For the bytes after them, which are refused.
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

/// Says everything at once, and listens: first for as many answers as there are whole requests; then, having said that
/// nothing more comes, until the other side has nothing to say either.
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
    // A head that cannot be understood is refused in the same way whatever its method was meant to be, and nothing follows.
    let was_refused = |answer: &Message| answer.status() == 400 && answer.values("connection") == [b"close"];
    let to_head = answers.len().checked_sub(1).is_some_and(|last| asks_head.at(last));
    let is_whole = heard.is_empty() || to_head && answers.last().is_some_and(was_refused);
    assert!(is_whole || is_broken, "half an answer: {}", heard.escape_ascii());
    (answers, is_broken)
}

/// Takes the next answer off what was heard, once it is whole.
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

/// Answers the first request of a connection, and goes on listening: nothing may follow it.
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

/// Whether the upstream hangs up on this request without a word.
pub(super) fn is_dropped(request: &Message) -> bool {
    request.start[1].starts_with(b"/drop")
}

/// The body of the answer of this number.
pub(super) fn body(number: &[u8]) -> Vec<u8> {
    [b"answer ", number].concat()
}
