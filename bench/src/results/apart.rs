//! Latency that a process between client and handler adds. Client and handler share one thread that never sleeps, so
//! that neither waits for a core; the process between has the other cores.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::served::{Ground, free, payment};
use super::ways::{CONNECTIONS, Front, THROUGH, Way};
use super::{Figures, Form, Result};
use crate::cores::Cores;
use crate::load::{self, Keys, Outcome, Pace, Plan};
use crate::peers::Running;
use crate::used;

/// Response body of the handler.
const ANSWER: &str = r#"{"status":"paid","amount":100,"currency":"EUR"}"#;

/// Duration of a turn at a fixed rate. It is short, so that a virtual machine whose host takes its cores for some
/// milliseconds now and then has turns without steal. `TURNS` is their number for each round of the others.
const TURN: Duration = Duration::from_millis(100);
const TURNS: usize = 10;
/// Least number of turns without steal; with fewer, all turns count.
const FEW: usize = 3;

/// Result of all ways.
pub struct Apart {
    /// Peak rate of the gateway in pass-through, in requests per second.
    pub peak: f64,
    /// Median and 99th percentile of each way at half of that rate, in microseconds.
    pub latencies: Vec<[Figures; 2]>,
    /// Number of turns at that rate.
    pub turns: usize,
    /// Number of turns that count.
    pub counted: usize,
}

/// One way to the handler, with its turns.
struct Path {
    keys: fn(&str) -> Keys,
    to: SocketAddr,
    front: Option<(Running, TempDir)>,
    rate: Figures,
    turns: Vec<Turn>,
}

/// A turn at a fixed rate.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// Median and 99th percentile, in microseconds.
    latencies: [f64; 2],
    /// True if the host took cores during the turn.
    was_stolen: bool,
}

/// Measures all ways.
pub async fn run(ground: &Ground, form: Form, ways: &[Way]) -> Result<Apart> {
    println!("   with cores of its own for what stands between");
    let ends = Ends::start()?;
    let mut paths = Vec::new();
    for Way { front, keys, .. } in ways {
        let (to, front) = match launched(ground, *front, ends.handler).await? {
            Some((to, running, folder)) => (to, Some((running, folder))),
            None => (ends.handler, None),
        };
        paths.push(Path { keys: *keys, to, front, rate: Figures::default(), turns: Vec::new() });
    }
    for path in &paths {
        ends.turn(path, "warm", Pace::Closed, form.turn()).await?;
    }
    for round in 0..form.few_rounds() {
        for path in &mut paths {
            let outcome = ends.turn(path, &format!("closed-{round}"), Pace::Closed, form.turn()).await?;
            path.rate.push(outcome.per_second());
        }
    }
    let peak = paths[THROUGH].rate.median();
    let rounds = TURNS * form.rounds();
    println!("   {rounds} rounds at a fixed rate");
    for round in 0..rounds {
        for path in &mut paths {
            // A way that cannot keep up with this rate is measured at half of its own.
            let pace = Pace::Open(peak.min(path.rate.median()) / 2.0);
            let before = used::stolen();
            let outcome = ends.turn(path, &format!("open-{round}"), pace, TURN).await?;
            let latencies = [0.5, 0.99].map(|part| outcome.quantile(part).as_secs_f64() * 1e6);
            path.turns.push(Turn { latencies, was_stolen: used::stolen() > before });
        }
    }
    let (mut latencies, mut counted) = (Vec::new(), 0);
    for path in paths {
        let turns = counting(&path.turns);
        counted += turns.len();
        latencies.push([0, 1].map(|part| turns.iter().map(|turn| turn.latencies[part]).collect()));
        if let Some((front, _folder)) = path.front {
            front.stop().await?;
        }
    }
    Ok(Apart { peak, latencies, turns: rounds * ways.len(), counted })
}

/// Returns the turns without steal, or all turns if these are too few.
fn counting(turns: &[Turn]) -> Vec<Turn> {
    let quiet: Vec<Turn> = turns.iter().copied().filter(|turn| !turn.was_stolen).collect();
    if quiet.len() < FEW { turns.to_vec() } else { quiet }
}

/// Starts the process between, on its own cores.
async fn launched(
    ground: &Ground,
    front: Front,
    handler: SocketAddr,
) -> Result<Option<(SocketAddr, Running, TempDir)>> {
    let (folder, listen) = (TempDir::new()?, free()?);
    let command = match front {
        Front::Nothing => return Ok(None),
        Front::Proxy(proxy) => proxy.command(folder.path(), listen, handler, Cores::Between)?,
        Front::Gateway => {
            let store = format!("sqlite:{}", folder.path().join("gateway.db").display());
            ground.gateway_command(folder.path(), &store, listen, handler)?
        }
    };
    let log = folder.path().join("front.log");
    Ok(Some((listen, Running::launch(command, listen, log, Cores::Between).await?, folder)))
}

/// Thread that is client and handler. Dropping this ends it.
struct Ends {
    handler: SocketAddr,
    thread: Handle,
    _end: oneshot::Sender<Infallible>,
}

impl Ends {
    fn start() -> Result<Ends> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let (handler, thread) = (listener.local_addr()?, runtime.handle().clone());
        let (end, ended) = oneshot::channel();
        runtime.spawn(async move { answer_all(TcpListener::from_std(listener)?).await });
        std::thread::Builder::new()
            .name("ends".into())
            .spawn(move || Cores::Ends.within(|| drop(runtime.block_on(ended))))?;
        Ok(Ends { handler, thread, _end: end })
    }

    async fn turn(&self, path: &Path, turn: &str, pace: Pace, time: Duration) -> Result<Outcome> {
        let request = payment((path.keys)(turn));
        let plan = Plan { to: path.to, request, connections: CONNECTIONS, pace, time };
        let outcome = self.thread.spawn(async move { load::run_watching(&plan).await }).await??;
        let created = outcome.statuses.get(&201).copied().unwrap_or(0);
        match outcome.failed + outcome.answered() - created {
            0 => Ok(outcome),
            wrong => {
                let said = path.front.as_ref().map_or_else(String::new, |(front, _)| front.last_words());
                Err(format!("{wrong} requests were not answered with 201: {said}").into())
            }
        }
    }
}

async fn answer_all(listener: TcpListener) -> std::io::Result<()> {
    let runs = Arc::new(AtomicU64::new(0));
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(answer_one(stream, runs.clone()));
    }
}

async fn answer_one(stream: TcpStream, runs: Arc<AtomicU64>) {
    let _ = stream.set_nodelay(true);
    let answer = service_fn(|request: Request<Incoming>| {
        let runs = runs.clone();
        async move {
            if request.method() == Method::GET {
                return Ok(Response::new(Full::<Bytes>::from(runs.load(Ordering::Relaxed).to_string())));
            }
            request.into_body().collect().await?;
            runs.fetch_add(1, Ordering::Relaxed);
            let mut response = Response::new(Full::from(Bytes::from_static(ANSWER.as_bytes())));
            *response.status_mut() = StatusCode::CREATED;
            response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
            Ok::<_, hyper::Error>(response)
        }
    });
    // The connection ends with its client, or with its thread.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ends_answer_in_closed_and_open_loop() {
        let ends = Ends::start().expect("it starts");
        let keys: fn(&str) -> Keys = |turn| Keys::Fresh(turn.to_owned());
        let path = Path { keys, to: ends.handler, front: None, rate: Figures::default(), turns: Vec::new() };
        let (closed, open) = (Duration::from_millis(50), Duration::from_millis(100));
        let outcome = ends.turn(&path, "closed", Pace::Closed, closed).await.expect("all are answered");
        assert!(outcome.answered() > 0);
        let outcome = ends.turn(&path, "open", Pace::Open(1000.0), open).await.expect("all are answered");
        assert_eq!(outcome.answered(), 100);
    }

    #[test]
    fn turns_with_steal_do_not_count_unless_too_few_others_remain() {
        let turn = |micros: f64, was_stolen| Turn { latencies: [micros; 2], was_stolen };
        let mut turns = vec![turn(1.0, false), turn(9.0, true), turn(2.0, false)];
        assert_eq!(counting(&turns).len(), 3);
        turns.push(turn(3.0, false));
        let counted: Vec<f64> = counting(&turns).iter().map(|turn| turn.latencies[1]).collect();
        assert_eq!(counted, [1.0, 2.0, 3.0]);
    }
}
