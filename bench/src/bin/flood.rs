//! Benchmark of tenant isolation: a gateway on SQLite, a calm tenant at a fixed rate, and a loud one that sends 100,000
//! new keys, with and without `[limits]`. Rounds: calm alone; with a limited flood; and, once at the end, with an
//! unlimited one. Latency counts from the due time of a request, so that a stalled gateway is not excused by unsent
//! requests. First argument: keys of a flood; second: number of rounds.
#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use semel_gateway::service::ADDRESS_CHECKS;
use semel_server::gateway::Gateway;
use semel_server::telemetry;
use semel_settings::{Sources, load};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Requests per second of each tenant.
const CALM: u32 = 100;
const LOUD: u32 = 5000;

/// Connections of each tenant.
const CALM_CONNECTIONS: u32 = 8;
const LOUD_CONNECTIONS: u32 = 32;

const LIMITS: &str = "[limits]\ntenant_new_keys = \"200/s\"\ntenant_lookups = \"400/s\"\n";

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse());
    let keys: u32 = arguments.next().transpose()?.unwrap_or(100_000);
    let rounds: u32 = arguments.next().transpose()?.unwrap_or(2);
    let metrics = telemetry::metrics()?;
    let folder = tempfile::TempDir::new()?;
    // Server and clients have separate runtimes, so that they do not schedule each other.
    let server = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let upstream = server.block_on(upstream())?;
    let start = |name: &str, limits: &str| {
        let file = format!(
            "listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\nupstream = \"http://{upstream}\"\n\
             store = \"sqlite:{}\"\n[identity]\nsource = \"trusted-headers\"\ntrusted_proxies = [\"127.0.0.1\"]\n\
             tenant_header = \"X-Tenant\"\ncaller_header = \"X-Caller\"\n{limits}",
            folder.path().join(name).display()
        );
        let loaded = load(&Sources::new().file("flood.toml", &file), ADDRESS_CHECKS)
            .map_err(|errors| errors.to_string())?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(server.block_on(Gateway::start(
            &loaded.config,
            Vec::new(),
            metrics.clone(),
        ))?)
    };
    let clients = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let limited = start("limited.db", LIMITS)?;
    let unlimited = start("unlimited.db", "")?;
    println!("| | calm: median | p99 | worst | loud: let in | refused |\n|---|---|---|---|---|---|");
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let alone = clients.block_on(measure(limited.address, keys, round * 2, false))?;
        alone.report("alone");
        let flooded = clients.block_on(measure(limited.address, keys, round * 2 + 1, true))?;
        flooded.report("beside a limited flood");
        ratios.push(flooded.at(99).as_secs_f64() / alone.at(99).as_secs_f64());
    }
    clients.block_on(measure(unlimited.address, keys, 1000, true))?.report("beside an unlimited flood");
    let ratios: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
    println!("\np99 beside a limited flood by p99 alone, round by round: {}", ratios.join(", "));
    Ok(())
}

/// Result of one round.
struct Round {
    latencies: Vec<Duration>,
    let_in: u32,
    refused: u32,
}

impl Round {
    fn at(&self, percent: usize) -> Duration {
        self.latencies[(self.latencies.len() * percent / 100).min(self.latencies.len() - 1)]
    }

    fn report(&self, name: &str) {
        let ms = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1000.0);
        println!(
            "| {name} | {} | {} | {} | {} | {} |",
            ms(self.at(50)),
            ms(self.at(99)),
            ms(self.at(100)),
            self.let_in,
            self.refused
        );
    }
}

/// Measures the calm tenant for the duration of a flood, with or without one.
async fn measure(gateway: SocketAddr, keys: u32, round: u32, flood: bool) -> Result<Round> {
    let time = Duration::from_secs_f64(f64::from(keys) / f64::from(LOUD));
    let calm = (time.as_secs_f64() * f64::from(CALM)) as u32;
    let begin = Instant::now() + Duration::from_millis(100);
    let mut tasks = tokio::task::JoinSet::new();
    for connection in 0..CALM_CONNECTIONS {
        let lane =
            Lane { tenant: "calm", round, connection, of: CALM_CONNECTIONS, begin, rate: CALM, count: calm };
        tasks.spawn(async move { lane.run(gateway).await.map(|done| (done, true)) });
    }
    let loud = if flood { LOUD_CONNECTIONS } else { 0 };
    for connection in 0..loud {
        let lane = Lane { tenant: "loud", round, connection, of: loud, begin, rate: LOUD, count: keys };
        tasks.spawn(async move { lane.run(gateway).await.map(|done| (done, false)) });
    }
    let mut all = Round { latencies: Vec::new(), let_in: 0, refused: 0 };
    while let Some(lane) = tasks.join_next().await {
        match lane?? {
            (done, true) if done.refused > 0 => return Err("the calm tenant was refused".into()),
            (done, true) => all.latencies.extend(done.latencies),
            (done, false) => {
                all.let_in += done.let_in;
                all.refused += done.refused;
            }
        }
    }
    all.latencies.sort_unstable();
    Ok(all)
}

/// One connection of a tenant, which sends its share of the requests at their due times.
struct Lane {
    tenant: &'static str,
    round: u32,
    connection: u32,
    of: u32,
    begin: Instant,
    rate: u32,
    count: u32,
}

impl Lane {
    async fn run(self, gateway: SocketAddr) -> Result<Round> {
        let Lane { tenant, round, connection, of, begin, rate, count } = self;
        let mut stream = TcpStream::connect(gateway).await?;
        stream.set_nodelay(true)?;
        let mut done = Round { latencies: Vec::new(), let_in: 0, refused: 0 };
        for number in (connection..count).step_by(of as usize) {
            let due = begin + Duration::from_secs(1) * number / rate;
            tokio::time::sleep_until(due).await;
            let request = format!(
                "POST /payments HTTP/1.1\r\nHost: bench\r\nX-Tenant: {tenant}\r\nX-Caller: bench\r\n\
                 Idempotency-Key: {tenant}-round-{round}-key-{number}\r\nContent-Type: application/json\r\n\
                 Content-Length: 14\r\n\r\n{{\"amount\":100}}"
            );
            stream.write_all(request.as_bytes()).await?;
            match status(&mut stream).await? {
                200 => done.let_in += 1,
                429 => done.refused += 1,
                other => return Err(format!("{tenant} got {other}").into()),
            }
            done.latencies.push(due.elapsed());
        }
        Ok(done)
    }
}

/// Reads a response to its end, and returns its status.
async fn status(stream: &mut TcpStream) -> Result<u16> {
    let mut answer = Vec::with_capacity(1024);
    loop {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err("the gateway closed the connection".into());
        }
        let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = std::str::from_utf8(&answer[..end])?.to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.ok_or("a response has no length")?.trim().parse()?;
        if answer.len() >= end + 4 + length {
            return Ok(head.get(9..12).ok_or("there is no status")?.parse()?);
        }
    }
}

/// Starts an upstream that answers at once.
async fn upstream() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            let answer = |request: Request<hyper::body::Incoming>| async move {
                drop(request);
                Ok::<_, std::convert::Infallible>(Response::new(Full::<Bytes>::from("paid")))
            };
            tokio::spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new());
                builder.serve_connection(TokioIo::new(stream), service_fn(answer)).await.is_ok()
            });
        }
    });
    Ok(address)
}
