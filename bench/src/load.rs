//! HTTP/1.1 load on loopback: closed loop (as fast as responses come) or open loop (at a fixed rate).
//!
//! In an open loop, requests are due at their times even while earlier ones are unanswered, and latency counts from the
//! due time: a server that stalls for a second makes a thousand late responses at 1,000 requests per second, not one.
//! The client uses one thread, so that on two cores the other is left to the measured server.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc};

/// Request that is sent repeatedly.
#[derive(Clone, Debug)]
pub struct Request {
    head: String,
    keys: Keys,
    rest: String,
}

/// Idempotency keys of the requests.
#[derive(Clone, Debug)]
pub enum Keys {
    /// No key.
    None,
    /// A new key for each request, with this prefix.
    Fresh(String),
    /// Keys in rotation: this prefix, and the number of different keys.
    Among(String, u64),
}

impl Request {
    /// Makes a `POST` request with a JSON body.
    pub fn post(path: &str, json: &str, keys: Keys) -> Request {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
            json.len()
        );
        Request { head, keys, rest: format!("\r\n{json}") }
    }

    /// Adds a header field.
    #[must_use]
    pub fn field(mut self, name: &str, value: &str) -> Request {
        self.head.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    fn write(&self, number: u64, into: &mut Vec<u8>) {
        into.clear();
        into.extend_from_slice(self.head.as_bytes());
        let number = match &self.keys {
            Keys::None => None,
            Keys::Fresh(prefix) => Some((prefix, number)),
            Keys::Among(prefix, count) => Some((prefix, number % count)),
        };
        if let Some((prefix, number)) = number {
            into.extend_from_slice(format!("Idempotency-Key: \"{prefix}-{number:012x}\"\r\n").as_bytes());
        }
        into.extend_from_slice(self.rest.as_bytes());
    }
}

/// Order and rate of requests.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// Closed loop: each connection sends its next request once the last one is answered.
    Closed,
    /// Closed loop that ends after this total number of requests.
    Times(u64),
    /// Open loop at this many requests per second, independent of responses.
    Open(f64),
    /// One request on each connection, all at the same time; every latency counts from that time.
    AtOnce,
}

/// One run of load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Address of the server.
    pub to: SocketAddr,
    /// Request to send.
    pub request: Request,
    /// Number of connections.
    pub connections: usize,
    /// Order and rate of requests.
    pub pace: Pace,
    /// Duration of the run, for a pace without an end of its own.
    pub time: Duration,
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Number of responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Number of requests without a response.
    pub failed: u64,
    /// Time from the first request to the last response.
    pub elapsed: Duration,
    /// Latencies in microseconds, sorted.
    latencies: Vec<u32>,
}

impl Outcome {
    /// Returns the number of responses.
    pub fn answered(&self) -> u64 {
        self.statuses.values().sum()
    }

    /// Returns responses per second.
    pub fn per_second(&self) -> f64 {
        self.answered() as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Returns the latency that this part of the responses did not exceed.
    pub fn quantile(&self, part: f64) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        let at = (last as f64 * part).round() as usize;
        Duration::from_micros(self.latencies.get(at).copied().unwrap_or(0).into())
    }

    fn add(&mut self, other: Outcome) {
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        self.failed += other.failed;
        self.latencies.extend(other.latencies);
    }
}

/// Timeout of one response. A request that exceeds it has failed, and its connection is replaced.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of due requests in the queue for a connection, at a fixed rate.
const BACKLOG: usize = 1 << 20;

/// Runs the plan and blocks until it ends.
pub fn run(plan: &Plan) -> io::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run_all(plan, Clock::Thread))
}

/// Runs the plan in the current runtime, whose thread never sleeps meanwhile.
pub async fn run_watching(plan: &Plan) -> io::Result<Outcome> {
    run_all(plan, Clock::Watched).await
}

async fn run_all(plan: &Plan, clock: Clock) -> io::Result<Outcome> {
    let mut connections = Vec::with_capacity(plan.connections);
    for _ in 0..plan.connections {
        connections.push(Connection::open(plan.to).await?);
    }
    let begun = Instant::now();
    let turns = Turns::new(plan, clock, begun)?;
    let mut tasks = tokio::task::JoinSet::new();
    for (number, connection) in (0..).zip(connections) {
        let turns = match plan.pace {
            Pace::AtOnce => Turns::One(Some((number, begun))),
            Pace::Closed | Pace::Times(_) | Pace::Open(_) => turns.clone(),
        };
        tasks.spawn(connection.run(plan.request.clone(), turns));
    }
    let mut outcome = Outcome::default();
    while let Some(part) = tasks.join_next().await {
        outcome.add(part.map_err(io::Error::other)?);
    }
    outcome.elapsed = begun.elapsed();
    outcome.latencies.sort_unstable();
    Ok(outcome)
}

/// Timer of the due times. The runtime's own timers have a resolution of a millisecond.
#[derive(Clone, Copy, Debug)]
enum Clock {
    /// A thread sleeps until the due time.
    Thread,
    /// A task polls the time: it keeps a core busy, and needs no wake-up of a thread.
    Watched,
}

/// Source of request numbers and of the times from which latencies count.
#[derive(Clone)]
enum Turns {
    /// Immediately, until the run ends.
    Closed { next: Arc<AtomicU64>, until: Instant },
    /// Immediately, for this many requests.
    Times { next: Arc<AtomicU64>, count: u64 },
    /// Due at the times of a fixed rate.
    Open { due: Arc<Mutex<mpsc::Receiver<(u64, Instant)>>> },
    /// A single request.
    One(Option<(u64, Instant)>),
}

impl Turns {
    fn new(plan: &Plan, clock: Clock, begun: Instant) -> io::Result<Turns> {
        let until = begun + plan.time;
        let rate = match plan.pace {
            Pace::Closed => return Ok(Turns::Closed { next: Arc::default(), until }),
            Pace::Times(count) => return Ok(Turns::Times { next: Arc::default(), count }),
            Pace::AtOnce => return Ok(Turns::One(None)),
            Pace::Open(rate) => rate,
        };
        let (give, due) = mpsc::channel(BACKLOG);
        let times =
            (0..).map(move |number: u64| (number, begun + Duration::from_secs_f64(number as f64 / rate)));
        let mut times = times.take_while(move |(_, at)| *at < until);
        match clock {
            Clock::Thread => {
                std::thread::Builder::new().name("clock".into()).spawn(move || {
                    times.all(|(number, at)| {
                        std::thread::sleep(at.saturating_duration_since(Instant::now()));
                        give.try_send((number, at)).is_ok()
                    })
                })?;
            }
            Clock::Watched => {
                tokio::spawn(async move {
                    for (number, at) in times {
                        while Instant::now() < at {
                            tokio::task::yield_now().await;
                        }
                        if give.try_send((number, at)).is_err() {
                            break;
                        }
                    }
                });
            }
        }
        Ok(Turns::Open { due: Arc::new(Mutex::new(due)) })
    }

    /// Returns the number of the next request, and the time from which its latency counts.
    async fn next(&mut self) -> Option<(u64, Instant)> {
        match self {
            Turns::Closed { next, until } => {
                let now = Instant::now();
                (now < *until).then(|| (next.fetch_add(1, Ordering::Relaxed), now))
            }
            Turns::Times { next, count } => {
                let number = next.fetch_add(1, Ordering::Relaxed);
                (number < *count).then(|| (number, Instant::now()))
            }
            Turns::Open { due } => due.lock().await.recv().await,
            Turns::One(turn) => turn.take(),
        }
    }
}

struct Connection {
    to: SocketAddr,
    stream: TcpStream,
    received: Vec<u8>,
}

impl Connection {
    async fn open(to: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { to, stream, received: Vec::with_capacity(4096) })
    }

    async fn run(mut self, request: Request, mut turns: Turns) -> Outcome {
        let (mut outcome, mut bytes) = (Outcome::default(), Vec::with_capacity(1024));
        while let Some((number, since)) = turns.next().await {
            request.write(number, &mut bytes);
            let answer = tokio::time::timeout(PATIENCE, self.exchange(&bytes)).await;
            match answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(Answer { status, closes }) => {
                    *outcome.statuses.entry(status).or_default() += 1;
                    let micros = since.elapsed().as_micros();
                    outcome.latencies.push(u32::try_from(micros).unwrap_or(u32::MAX));
                    if !closes {
                        continue;
                    }
                }
                Err(_) => outcome.failed += 1,
            }
            match Connection::open(self.to).await {
                Ok(fresh) => self = fresh,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
        outcome
    }

    async fn exchange(&mut self, request: &[u8]) -> io::Result<Answer> {
        self.stream.write_all(request).await?;
        self.received.clear();
        loop {
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(answer) = Answer::read(&self.received)? {
                return Ok(answer);
            }
        }
    }
}

struct Answer {
    status: u16,
    closes: bool,
}

impl Answer {
    /// Reads a response. Returns `None` while it is incomplete.
    fn read(bytes: &[u8]) -> io::Result<Option<Answer>> {
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut head = httparse::Response::new(&mut fields);
        let body = match head.parse(bytes).map_err(io::Error::other)? {
            httparse::Status::Complete(length) => &bytes[length..],
            httparse::Status::Partial => return Ok(None),
        };
        let value = |name: &str| {
            let field = head.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name))?;
            std::str::from_utf8(field.value).ok()
        };
        let is_whole = match value("content-length").map(str::parse::<usize>) {
            Some(length) => body.len() >= length.map_err(io::Error::other)?,
            None if value("transfer-encoding").is_some() => body.ends_with(b"0\r\n\r\n"),
            None => head.code == Some(204),
        };
        let closes = value("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        Ok(is_whole.then_some(Answer { status: head.code.unwrap_or(0), closes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_is_read_once_complete() {
        let whole: [&[u8]; 3] = [
            b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok",
            b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            b"HTTP/1.1 204 No Content\r\n\r\n",
        ];
        for bytes in whole {
            let answer = Answer::read(bytes).expect("it is HTTP").expect("it is all there");
            assert!(answer.status >= 201 && !answer.closes);
            let most = Answer::read(&bytes[..bytes.len() - 1]).expect("it is HTTP so far");
            assert!(most.is_none(), "{}", String::from_utf8_lossy(bytes));
        }
        assert!(Answer::read(b"SSH-2.0-x\r\n\r\n").is_err());
    }

    #[test]
    fn keys_are_fresh_or_repeat_in_rotation() {
        let sent = |keys, number| {
            let mut bytes = Vec::new();
            Request::post("/", "{}", keys).write(number, &mut bytes);
            String::from_utf8(bytes).expect("it is text")
        };
        assert!(!sent(Keys::None, 1).contains("Idempotency-Key"));
        let fresh = |number| sent(Keys::Fresh("run-1".into()), number);
        assert!(fresh(1).contains("Idempotency-Key: \"run-1-000000000001\"\r\n\r\n{}"));
        assert_ne!(fresh(1), fresh(3));
        let among = |number| sent(Keys::Among("run-1".into(), 2), number);
        assert_eq!(among(1), among(3));
    }

    /// Starts a server that answers every request, for as long as requests come.
    async fn server() -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let to = listener.local_addr().expect("it is bound");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut bytes = [0; 4096];
                    while stream.read(&mut bytes).await.is_ok_and(|count| count > 0) {
                        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.expect("it is read");
                    }
                });
            }
        });
        to
    }

    async fn statuses(connections: usize, pace: Pace) -> BTreeMap<u16, u64> {
        let request = Request::post("/", "{}", Keys::Among("storm".into(), 1));
        let plan = Plan { to: server().await, request, connections, pace, time: Duration::ZERO };
        let outcome = run_all(&plan, Clock::Thread).await.expect("it is loaded");
        assert_eq!(outcome.failed, 0);
        outcome.statuses
    }

    #[tokio::test]
    async fn at_once_every_connection_sends_one_request() {
        assert_eq!(statuses(50, Pace::AtOnce).await, BTreeMap::from([(204, 50)]));
    }

    #[tokio::test]
    async fn times_pace_sends_its_count_on_any_number_of_connections() {
        for connections in [1, 7] {
            assert_eq!(statuses(connections, Pace::Times(100)).await, BTreeMap::from([(204, 100)]));
        }
    }

    #[test]
    fn quantiles_are_read_off_the_sorted_latencies() {
        let outcome = Outcome { latencies: (1..=101).collect(), ..Outcome::default() };
        assert_eq!(outcome.quantile(0.5), Duration::from_micros(51));
        assert_eq!(outcome.quantile(0.99), Duration::from_micros(100));
        assert_eq!(Outcome::default().quantile(0.5), Duration::ZERO);
    }
}
