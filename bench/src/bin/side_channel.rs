//! Timing side channel: tries if response times tell another tenant's operation from an absent one.
//! It asks a gateway on one connection, in random order, for `GET /.well-known/semel/operations/{id}` of absent ids, of
//! another tenant's records (small and large), and, as a control, of the caller's own. For each store it prints
//! medians, Welch's t, and the Mann-Whitney AUC against absent ids (0.5: no difference) with its 99 % interval. It
//! exits with 1 if the control shows no difference: then nothing was measured.
#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use semel_core::{Clock, Ids, RandomIds, SystemClock};
use semel_gateway::service::ADDRESS_CHECKS;
use semel_server::gateway::Gateway;
use semel_server::telemetry;
use semel_settings::{Sources, load};
use semel_testkit::postgres::Cluster;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Requests of each kind for each store, unless the first argument says otherwise.
const QUESTIONS: usize = 4000;
/// Time limit for one store; requests sent by then are judged.
const TIME: Duration = Duration::from_secs(12);
/// Number of different ids of each kind.
const IDS: usize = 48;
const LARGE: usize = 512 << 10;
/// Least distance of the control's AUC from 0.5, with its whole interval.
const NOTICED: f64 = 0.1;

const KINDS: [&str; 4] = ["absent", "foreign, small", "foreign, 512 KiB", "own (control)"];

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode> {
    let questions = std::env::args().nth(1).map_or(Ok(QUESTIONS), |text| text.parse())?;
    let metrics = telemetry::metrics()?;
    let upstream = upstream().await?;
    let folder = tempfile::TempDir::new()?;
    let cluster = Cluster::start()?;
    let database = cluster.create_database()?;
    let key = folder.path().join("store.key");
    std::fs::write(&key, "5e".repeat(32))?;
    let sealed = format!(
        "[encryption]\ncurrent = \"a\"\n[[encryption.key]]\nid = \"a\"\nfile = \"{}\"\n",
        key.display()
    );
    let file = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
    let mut trusted = true;
    for (name, store, more) in [
        ("SQLite", file("plain.db"), ""),
        ("SQLite, encrypted", file("sealed.db"), sealed.as_str()),
        ("PostgreSQL", database.url(), ""),
    ] {
        let text = format!(
            "listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\nupstream = \"http://{upstream}\"\nstore = \"{store}\"\n\
             [identity]\nsource = \"trusted-headers\"\ntrusted_proxies = [\"127.0.0.1\"]\n\
             tenant_header = \"X-Tenant\"\ncaller_header = \"X-Caller\"\n{more}"
        );
        let loaded = load(&Sources::new().file("semel.toml", text), ADDRESS_CHECKS)?;
        let gateway = Gateway::start(&loaded.config, Vec::new(), metrics.clone()).await?;
        let samples = measure(gateway.address, questions).await?;
        trusted &= report(name, &samples);
        gateway.shut_down(std::future::pending()).await;
    }
    Ok(if trusted { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Starts an upstream that answers with as many bytes as the path says.
async fn upstream() -> Result<SocketAddr> {
    async fn answer(request: Request<Incoming>) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
        let length = request.uri().path().trim_start_matches('/').parse().unwrap_or(0);
        let _ = request.into_body().collect().await;
        Ok(Response::new(Full::from(vec![b'x'; length])))
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
            });
        }
    });
    Ok(address)
}

/// A keep-alive connection and its read buffer.
struct Client {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Client {
    async fn connect(address: SocketAddr) -> Result<Client> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, answer: Vec::new() })
    }

    /// Sends a request and reads its response to the end; returns the head.
    async fn send(&mut self, request: &str) -> Result<String> {
        self.stream.write_all(request.as_bytes()).await?;
        self.answer.clear();
        let mut chunk = [0; 64 * 1024];
        loop {
            let read = self.stream.read(&mut chunk).await?;
            if read == 0 {
                return Err("the gateway closed the connection".into());
            }
            self.answer.extend_from_slice(&chunk[..read]);
            let Some(end) = self.answer.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&self.answer[..end]).to_ascii_lowercase();
            let length: usize = field(&head, "content-length").ok_or("an answer has no length")?.parse()?;
            if self.answer.len() >= end + 4 + length {
                return Ok(head);
            }
        }
    }
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Creates commands of this tenant with responses of this length, and returns their ids.
async fn commands(client: &mut Client, tenant: &str, length: usize) -> Result<Vec<String>> {
    let mut ids = Vec::new();
    for number in 0..IDS {
        let head = client
            .send(&format!(
                "POST /{length} HTTP/1.1\r\nHost: lab\r\nX-Tenant: {tenant}\r\nX-Caller: somebody\r\n\
                 Idempotency-Key: side-channel-{length}-{number:08}\r\nContent-Length: 0\r\n\r\n"
            ))
            .await?;
        ids.push(field(&head, "idempotency-operation-id").ok_or("a command was not carried out")?.to_owned());
    }
    Ok(ids)
}

/// Measures response times of each kind, in nanoseconds.
async fn measure(address: SocketAddr, questions: usize) -> Result<[Vec<f64>; 4]> {
    let mut client = Client::connect(address).await?;
    let absent = (0..IDS).map(|_| RandomIds.operation_id(SystemClock.now()).to_string()).collect();
    let ids: [Vec<String>; 4] = [
        absent,
        commands(&mut client, "acme", 100).await?,
        commands(&mut client, "acme", LARGE).await?,
        commands(&mut client, "globex", 100).await?,
    ];
    let mut samples: [Vec<f64>; 4] = Default::default();
    let mut dice = Dice(u64::from_be_bytes(RandomIds.attempt_token().as_bytes()[..8].try_into()?) | 1);
    let begun = Instant::now();
    // The first tenth warms up caches of all kinds.
    for asked in 0..questions * 44 / 10 {
        let kind = dice.below(KINDS.len());
        let id = &ids[kind][dice.below(IDS)];
        let request = format!(
            "GET /.well-known/semel/operations/{id} HTTP/1.1\r\nHost: lab\r\nX-Tenant: globex\r\nX-Caller: somebody\r\n\r\n"
        );
        let sent = Instant::now();
        let head = client.send(&request).await?;
        let time = sent.elapsed();
        let expected = if kind == 3 { "http/1.1 200" } else { "http/1.1 404" };
        if !head.starts_with(expected) {
            return Err(format!("{}: {head}", KINDS[kind]).into());
        }
        if asked >= questions * 4 / 10 {
            samples[kind].push(time.as_nanos() as f64);
        }
        if begun.elapsed() > TIME {
            break;
        }
    }
    Ok(samples)
}

/// Random numbers, good enough to shuffle with.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % bound
    }
}

/// Comparison of two samples.
struct Comparison {
    /// Difference of the medians, second minus first, in microseconds.
    slower: f64,
    welch: f64,
    auc: f64,
    /// Half of the 99 % interval of `auc`.
    margin: f64,
}

fn compare(first: &[f64], second: &[f64]) -> Comparison {
    let (n, m) = (first.len() as f64, second.len() as f64);
    let mean = |sample: &[f64]| sample.iter().sum::<f64>() / sample.len() as f64;
    let variance = |sample: &[f64]| {
        let mean = mean(sample);
        sample.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (sample.len() as f64 - 1.0)
    };
    let welch = (mean(second) - mean(first)) / (variance(first) / n + variance(second) / m).sqrt();
    let auc = auc(first, second);
    // Hanley and McNeil, 1982.
    let (q1, q2) = (auc / (2.0 - auc), 2.0 * auc * auc / (1.0 + auc));
    let spread = auc * (1.0 - auc) + (m - 1.0) * (q1 - auc * auc) + (n - 1.0) * (q2 - auc * auc);
    let margin = 2.576 * (spread / (n * m)).sqrt();
    Comparison { slower: (median(second) - median(first)) / 1000.0, welch, auc, margin }
}

/// Returns the probability that a value of the second sample is greater than one of the first; ties count half.
fn auc(first: &[f64], second: &[f64]) -> f64 {
    let mut sorted = first.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let beaten = second.iter().map(|time| {
        let less = sorted.partition_point(|other| other < time);
        let not_more = sorted.partition_point(|other| other <= time);
        (less + not_more) as f64 / 2.0
    });
    beaten.sum::<f64>() / (first.len() as f64 * second.len() as f64)
}

fn median(sample: &[f64]) -> f64 {
    let mut sorted = sample.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Prints the comparison. Returns true if the control was noticed.
fn report(store: &str, samples: &[Vec<f64>; 4]) -> bool {
    println!("{store}");
    println!(
        "  {:18} {:>5} asked, median {:8.1} us",
        KINDS[0],
        samples[0].len(),
        median(&samples[0]) / 1000.0
    );
    let mut tells: Vec<String> = Vec::new();
    let mut noticed = false;
    for kind in 1..KINDS.len() {
        let Comparison { slower, welch, auc, margin } = compare(&samples[0], &samples[kind]);
        println!(
            "  {:18} {:>5} asked, median {:8.1} us, {slower:+7.2} us, t {welch:+7.2}, AUC {auc:.3} (99 %: {:.3} to {:.3})",
            KINDS[kind],
            samples[kind].len(),
            median(&samples[kind]) / 1000.0,
            auc - margin,
            auc + margin,
        );
        let away = (auc - 0.5).abs();
        if kind == KINDS.len() - 1 {
            noticed = away - margin > NOTICED;
        } else if away > margin {
            // Number of requests of each kind that show this difference with 80 % power.
            let needed = (2.8 / (12_f64.sqrt() * away)).powi(2).ceil() * 2.0;
            tells.push(format!("{} by {slower:+.2} us (about {needed:.0} questions show it)", KINDS[kind]));
        }
    }
    let verdict = match (noticed, tells.is_empty()) {
        (false, _) => {
            "the control was not noticed: this run proves nothing. Try again on a quieter machine.".to_owned()
        }
        (true, true) => "what is foreign cannot be told from what is absent; the control can.".to_owned(),
        (true, false) => format!("told from what is absent, on this machine: {}.", tells.join("; ")),
    };
    println!("  => {verdict}");
    noticed
}
