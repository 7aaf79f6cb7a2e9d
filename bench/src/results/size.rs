//! Size of the gateway: memory with many commands in flight, start-up time, size of the program.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::growth::folder_with;
use super::report::{Aim, Section};
use super::{Figures, Form, Result};
use crate::chart::{Bar, Bars, Kind, count, figure};
use crate::serve::Serve;
use crate::used;

/// Upstream protocols: setting, name, and numbers of commands in flight. The gateway opens at most 2,048 connections to
/// an upstream, and HTTP/1.1 needs one for each command.
const UPSTREAMS: [(&str, &str, &[usize]); 2] =
    [("h2c", "HTTP/2", &[10, 1_000, 4_000, 10_000]), ("http1", "HTTP/1.1", &[10, 1_000, 2_000])];
/// Number of further waves with the greatest number of commands: more commands than the gateway keeps settled records
/// of.
const WAVES: usize = 5;
/// Settings under which no held command times out.
const SETTINGS: &str = "[server]\nmax_connections = 20000\n[defaults]\ntimeout = \"10m\"\nlease = \"15m\"\n";
/// Bytes of each command's body.
const BODY: usize = 1024;
/// Number of records in the store that is not empty.
const RECORDS: u64 = 100_000;
/// Timeout for commands to reach the upstream, and for responses.
const PATIENCE: Duration = Duration::from_secs(120);
/// Number of open files besides connections.
const OTHER_FILES: u64 = 500;
const KIB: f64 = 1024.0;
const MIB: f64 = KIB * KIB;

/// Measures this program.
pub async fn run(form: Form, semel: &Path) -> Result<Section> {
    let files = allow_files()?;
    let mut memories: Vec<Memory> = UPSTREAMS.iter().map(|upstream| Memory::new(*upstream, files)).collect();
    let mut starts = [Figures::default(), Figures::default()];
    let upstream = Upstream::start().await?;
    let filled = folder_with(RECORDS).await?;
    for round in 0..form.few_rounds() {
        println!("   round {} of {}", round + 1, form.few_rounds());
        for memory in &mut memories {
            memory.measure(semel, &upstream).await?;
        }
        let empty = tempfile::TempDir::new()?;
        for (folder, start) in [&empty, &filled].into_iter().zip(&mut starts) {
            start.push(start_up(semel, folder.path(), &upstream, round).await?.as_secs_f64() * 1e3);
        }
    }
    Ok(section(&memories, &starts, &program_sizes(semel)?))
}

/// Raises the limit of open files of this process to its maximum, and returns it. The gateway does so itself.
fn allow_files() -> Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

/// Returns the bytes of the program, and of the program without symbols.
fn program_sizes(program: &Path) -> Result<[u64; 2]> {
    let folder = tempfile::TempDir::new()?;
    let stripped = folder.path().join("stripped");
    let done = Command::new("strip").arg("-o").arg(&stripped).arg(program).status();
    if !done.map_err(|error| format!("strip (binutils) cannot be run: {error}"))?.success() {
        return Err(format!("strip did not take {}", program.display()).into());
    }
    Ok([std::fs::metadata(program)?.len(), std::fs::metadata(stripped)?.len()])
}

/// Measures the time from the start to the first response.
async fn start_up(semel: &Path, folder: &Path, upstream: &Upstream, round: usize) -> Result<Duration> {
    let begun = Instant::now();
    let gateway = Serve::start(semel, folder, upstream.address, "").await?;
    let stream = command(gateway.address(), "/now", &format!("first-of-round-{round}")).await?;
    tokio::time::timeout(PATIENCE, answered(stream)).await??;
    let elapsed = begun.elapsed();
    gateway.stop().await?;
    Ok(elapsed)
}

/// Resident memory of one gateway, in MiB, as commands come and go.
struct Memory {
    protocol: &'static str,
    spoken: &'static str,
    idle: Figures,
    levels: Vec<(usize, Figures)>,
    /// Number of levels for which there are not enough files.
    left_out: usize,
    answered: Figures,
    /// Memory with as many in flight as at the last level, wave by wave.
    waves: Vec<Figures>,
    answered_again: Figures,
}

impl Memory {
    fn new((protocol, spoken, levels): (&'static str, &'static str, &[usize]), files: u64) -> Memory {
        let possible = within(levels, if protocol == "http1" { files / 2 } else { files });
        Memory {
            protocol,
            spoken,
            idle: Figures::default(),
            left_out: levels.len() - possible.len(),
            levels: possible.into_iter().map(|level| (level, Figures::default())).collect(),
            answered: Figures::default(),
            waves: vec![Figures::default(); if protocol == "h2c" { WAVES } else { 0 }],
            answered_again: Figures::default(),
        }
    }

    async fn measure(&mut self, semel: &Path, upstream: &Upstream) -> Result<()> {
        let folder = tempfile::TempDir::new()?;
        let settings = format!("upstream_protocol = \"{}\"\n{SETTINGS}", self.protocol);
        let gateway = Serve::start(semel, folder.path(), upstream.address, &settings).await?;
        let first = command(gateway.address(), "/now", "before-anything-else").await?;
        tokio::time::timeout(PATIENCE, answered(first)).await??;
        let now = || -> Result<f64> { Ok(used::resident(gateway.id()?)? as f64 / MIB) };
        self.idle.push(now()?);
        let mut held = Vec::new();
        for (level, figures) in &mut self.levels {
            hold(&mut held, *level, "first", &gateway, upstream).await?;
            figures.push(now()?);
        }
        let most = held.len();
        upstream.answer(held).await?;
        self.answered.push(now()?);
        for (number, wave) in self.waves.iter_mut().enumerate() {
            let mut held = Vec::new();
            hold(&mut held, most, &format!("wave-{number}"), &gateway, upstream).await?;
            wave.push(now()?);
            upstream.answer(held).await?;
        }
        self.answered_again.push(now()?);
        gateway.stop().await
    }
}

/// Returns the levels for which there are enough files.
fn within(levels: &[usize], files: u64) -> Vec<usize> {
    levels.iter().copied().filter(|level| *level as u64 + OTHER_FILES <= files).collect()
}

/// Sends commands until there are `level` of them, and waits until all are at the upstream.
async fn hold(
    held: &mut Vec<TcpStream>,
    level: usize,
    name: &str,
    gateway: &Serve,
    upstream: &Upstream,
) -> Result<()> {
    while held.len() < level {
        held.push(command(gateway.address(), "/held", &format!("{name}-command-{:06}", held.len())).await?);
    }
    let mut arrived = upstream.held.subscribe();
    let all = tokio::time::timeout(PATIENCE, arrived.wait_for(|count| *count == level)).await;
    let missing = |_| {
        let count = *upstream.held.borrow();
        format!(
            "{count} of {level} commands are at the upstream; the gateway's log ends with: {}",
            gateway.last_words()
        )
    };
    all.map_err(missing)??;
    Ok(())
}

/// Sends a command on a connection of its own.
async fn command(to: SocketAddr, path: &str, key: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(to).await?;
    let body = format!("{{\"note\":\"{}\"}}", "x".repeat(BODY - "{\"note\":\"\"}".len()));
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Idempotency-Key: \"{key}\"\r\nContent-Length: {BODY}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

/// Reads the response, which must be 201.
async fn answered(mut stream: TcpStream) -> Result<()> {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    if answer.starts_with(b"HTTP/1.1 201 ") {
        return Ok(());
    }
    Err(format!("a command was answered with: {}", String::from_utf8_lossy(&answer)).into())
}

/// Upstream that holds requests to `/held` until it is told to answer. It speaks HTTP/1.1 and HTTP/2.
struct Upstream {
    address: SocketAddr,
    held: Arc<watch::Sender<usize>>,
    answers: Arc<watch::Sender<u64>>,
}

impl Upstream {
    async fn start() -> Result<Upstream> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let upstream =
            Upstream { address: listener.local_addr()?, held: Arc::default(), answers: Arc::default() };
        let (held, answers) = (upstream.held.clone(), upstream.answers.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (held, answers) = (held.clone(), answers.clone());
                tokio::spawn(async move {
                    let serve = service_fn(move |request| serve(request, held.clone(), answers.clone()));
                    let mut builder = auto::Builder::new(TokioExecutor::new());
                    builder.http2().max_concurrent_streams(u32::MAX);
                    builder.serve_connection(TokioIo::new(stream), serve).await.is_ok()
                });
            }
        });
        Ok(upstream)
    }

    /// Answers all held requests, and waits until their clients have the responses.
    async fn answer(&self, held: Vec<TcpStream>) -> Result<()> {
        self.answers.send_modify(|times| *times += 1);
        let all = async {
            for stream in held {
                answered(stream).await?;
            }
            Ok(())
        };
        tokio::time::timeout(PATIENCE, all).await.map_err(|_| "the gateway does not answer everybody")?
    }
}

async fn serve(
    request: Request<Incoming>,
    held: Arc<watch::Sender<usize>>,
    answers: Arc<watch::Sender<u64>>,
) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    let is_held = request.uri().path() == "/held";
    let mut answers = answers.subscribe();
    let before = *answers.borrow_and_update();
    let _ = request.into_body().collect().await;
    if is_held {
        held.send_modify(|count| *count += 1);
        let _ = answers.wait_for(|times| *times > before).await;
        held.send_modify(|count| *count -= 1);
    }
    let mut response = Response::new(Full::from("{\"paid\":true}"));
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

fn section(memories: &[Memory], starts: &[Figures; 2], program: &[u64; 2]) -> Section {
    let mut table = vec![["what", "for each command, KiB", "in all"].map(str::to_owned).to_vec()];
    let mut row = |what: String, each: String, all: String| table.push(vec![what, each, all]);
    let (mut bars, mut aims) = (Vec::new(), Vec::new());
    for memory in memories {
        let mib = |figures: &Figures| format!("{} MiB", figures.words());
        let upstream = format!("{} upstream", memory.spoken);
        row(format!("{upstream}: idle"), String::new(), mib(&memory.idle));
        for (level, figures) in &memory.levels {
            let each = (figures.median() - memory.idle.median()) * KIB / *level as f64;
            let label = format!("{upstream}: {} in flight", count(*level as u64));
            let (value, spread) = (figures.median(), figures.spread());
            let note = format!("MiB, {each:.0} KiB each above idle");
            bars.push(Bar { label: label.clone(), value, spread, kind: Kind::Ours, note });
            row(label, format!("{each:.1}"), mib(figures));
        }
        row(format!("{upstream}: all answered"), String::new(), mib(&memory.answered));
        let level = count(memory.levels.last().map_or(0, |(level, _)| *level as u64));
        for wave in &memory.waves {
            row(format!("{upstream}: {level} more in flight"), String::new(), mib(wave));
        }
        if let [.., before, last] = &memory.waves[..] {
            row(format!("{upstream}: all answered"), String::new(), mib(&memory.answered_again));
            let factor = last.median() / before.median().max(f64::MIN_POSITIVE);
            aims.push(Aim {
                what: format!(
                    "once the records that are kept for replays are all there, {level} more commands leave no more than 2 % behind"
                ),
                seen: format!("{factor:.2} times from the last wave but one to the last"),
                is_met: factor <= 1.02,
            });
        }
    }
    for (store, start) in ["an empty store", "100,000 records"].into_iter().zip(starts) {
        let all = format!("{} ms", start.words());
        row(format!("from start to first answer, {store}"), String::new(), all);
    }
    for (what, bytes) in ["program", "program, stripped"].into_iter().zip(program) {
        row(what.to_owned(), String::new(), format!("{} MiB", figure(*bytes as f64 / MIB)));
    }
    let mut why = String::from(
        "Two connections belong to each command at an upstream that speaks HTTP/1.1, of which the gateway opens 2,048 at the \
         most; at one that speaks HTTP/2, all share one. Settled records stay in memory for replays, up to 64 MiB by the \
         gateway's own count, and the allocator gives little back of what was freed. A file of up to 1 GiB is checked for \
         damage at every start, which is why 100,000 records take longer.",
    );
    let left_out: usize = memories.iter().map(|memory| memory.left_out).sum();
    if left_out > 0 {
        why.push_str(&format!(
            " {left_out} numbers of commands in flight are left out: they need more open files than this machine allows (`ulimit -Hn`)."
        ));
    }
    let chart = Bars { title: "Memory of the gateway".into(), unit: "MiB resident".into(), bars };
    Section {
        title: "Size of the gateway".into(),
        what: format!(
            "`semel serve` on SQLite, in front of an upstream that holds its answers. Every command is on an HTTP/1.1 connection of \
             its own, with a key and a body of {BODY} bytes. Memory is what is resident; for each command, what is above idle. \
             When all are answered, as many come again, {WAVES} times, so that what is kept for good would show. A start is from the \
             beginning of the process to its first answer."
        ),
        charts: vec![("size.svg".into(), chart.svg())],
        table,
        aims,
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_beyond_the_file_limit_are_left_out() {
        assert_eq!(within(&[10, 1_000, 10_000], 10_499), [10, 1_000]);
        assert_eq!(within(&[10, 1_000, 10_000], 10_500), [10, 1_000, 10_000]);
    }

    #[test]
    fn memory_of_a_command_is_the_part_above_idle() {
        let mut memory = Memory::new(("h2c", "HTTP/2", &[1_024]), u64::MAX);
        memory.idle.push(10.0);
        memory.levels[0].1.push(26.0);
        memory.waves = [30.0, 33.0].map(|wave| [wave].into_iter().collect()).to_vec();
        let section = section(&[memory], &Default::default(), &[0, 0]);
        assert_eq!(section.table[2], ["HTTP/2 upstream: 1,024 in flight", "16.0", "26.0 (26.0 to 26.0) MiB"]);
        assert!(!section.why.contains("left out"));
        assert!(section.aims[0].seen.starts_with("1.10 times") && !section.aims[0].is_met);
    }

    #[test]
    fn report_names_left_out_levels() {
        let memory = Memory::new(("http1", "HTTP/1.1", &[10, 1_000]), 1_020);
        assert_eq!(memory.levels.len(), 1);
        assert!(section(&[memory], &Default::default(), &[0, 0]).why.contains("1 numbers of commands"));
    }

    #[tokio::test]
    async fn an_upstream_holds_commands_until_it_is_told_to_answer() {
        let upstream = Upstream::start().await.expect("it listens");
        let direct = |path: &'static str| command(upstream.address, path, "a-key-of-its-own");
        answered(direct("/now").await.expect("it is sent")).await.expect("it is answered at once");
        let held = vec![direct("/held").await.expect("it is sent")];
        upstream.held.subscribe().wait_for(|count| *count == 1).await.expect("it arrives");
        upstream.answer(held).await.expect("it is answered");
        upstream.held.subscribe().wait_for(|count| *count == 0).await.expect("it has left");
    }
}
