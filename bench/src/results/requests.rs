//! Instructions of `semel serve` for one whole request, by callgrind: for every kind of request, on every store.
//!
//! callgrind reports its count before and after some thousand requests, so that start, warming and end do not count,
//! and deferred work of the gateway and of SQLite does. One connection and one worker thread make the order of events
//! the same each time. Instructions of the kernel and of the database server do not count.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use semel_testkit::postgres::{Cluster, Database};
use serde::Deserialize;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::Command;

use super::report::Section;
use super::served::payment;
use super::{Form, Result};
use crate::chart::{Bar, Bars, Kind, count, figure};
use crate::load::{self, Keys, Pace, Plan};
use crate::serve::Serve;

/// Counts of an earlier commit, for comparison.
const BASELINE: &str = include_str!("../../requests.toml");
/// Number of warming requests: after them, connections are open and caches are filled.
const WARMING: u64 = 200;
/// Number of keys of replays, in rotation; all of them are among those of `WARMING`.
const KEYS: u64 = 100;
/// Name of the files that callgrind writes its counts to.
const DUMP: &str = "callgrind";
/// Settings that pass a request without a key through.
const SETTINGS: &str = "[defaults]\nkey = \"optional\"\n";

/// Note of requests of which every span is exported. The upstream takes the batches, too.
const TRACED: &str = ", traced";

/// Store of the gateway's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreKind {
    Memory,
    Sqlite,
    Postgresql,
}

impl StoreKind {
    const ALL: [StoreKind; 3] = [StoreKind::Memory, StoreKind::Sqlite, StoreKind::Postgresql];

    const fn name(self) -> &'static str {
        match self {
            StoreKind::Memory => "memory",
            StoreKind::Sqlite => "SQLite",
            StoreKind::Postgresql => "PostgreSQL",
        }
    }
}

/// Kind of a request, as the gateway sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestKind {
    PassThrough,
    Replay,
    FirstCall,
}

impl RequestKind {
    const ALL: [RequestKind; 3] = [RequestKind::PassThrough, RequestKind::Replay, RequestKind::FirstCall];

    const fn name(self) -> &'static str {
        match self {
            RequestKind::PassThrough => "pass-through",
            RequestKind::Replay => "replay",
            RequestKind::FirstCall => "first call",
        }
    }

    fn keys(self, turn: &str) -> Keys {
        match self {
            RequestKind::PassThrough => Keys::None,
            RequestKind::Replay => Keys::Among("count-again".into(), KEYS),
            RequestKind::FirstCall => Keys::Fresh(format!("count-{turn}")),
        }
    }
}

/// Counts of `BASELINE`, by the names of the table's rows.
#[derive(Debug, Deserialize)]
struct Baseline {
    commit: String,
    instructions: BTreeMap<String, f64>,
}

/// Counts every kind of request on every store, with this program.
pub async fn run(semel: &Path, form: Form) -> Result<Section> {
    println!("── requests");
    let requests = match form {
        Form::Quick => 2_000,
        Form::Whole => 10_000,
    };
    let baseline: Baseline = toml::from_str(BASELINE)?;
    let upstream = upstream().await?;
    let cluster = tokio::task::block_in_place(cluster)?;
    let mut counts = Vec::new();
    let traced = format!("{SETTINGS}[traces]\nendpoint = \"http://{upstream}/v1/traces\"\n");
    let untraced = StoreKind::ALL.map(|store| (store, SETTINGS, ""));
    for (store, settings, note) in untraced.into_iter().chain([(StoreKind::Memory, &*traced, TRACED)]) {
        let mut gateway = Counted::start(semel, upstream, (store, settings), &cluster).await?;
        for kind in RequestKind::ALL {
            let each = gateway.count(kind, requests).await?;
            let label = format!("{}, {}{note}", kind.name(), store.name());
            println!("   {label}: {}", figure(each));
            counts.push((label, each));
        }
        gateway.serve.stop().await?;
    }
    Ok(section(&counts, &baseline, requests))
}

/// Starts a database server without passwords. A login hashes for as many instructions as hundreds of requests, at
/// times that depend on the gateway's clock.
fn cluster() -> Result<Cluster> {
    let cluster = Cluster::start()?;
    std::fs::write(cluster.folder().join("data/pg_hba.conf"), "host all all 127.0.0.1/32 trust\n")?;
    cluster.server().sql("postgres", "SELECT pg_reload_conf()")?;
    Ok(cluster)
}

/// A gateway that runs under callgrind.
struct Counted {
    serve: Serve,
    folder: TempDir,
    /// Number of dumps so far.
    dumps: u32,
    /// Database of the gateway, removed when this is dropped.
    _database: Option<Database>,
}

impl Counted {
    async fn start(
        semel: &Path,
        upstream: SocketAddr,
        (store, settings): (StoreKind, &str),
        cluster: &Cluster,
    ) -> Result<Counted> {
        let folder = TempDir::new()?;
        let (database, store) = match store {
            StoreKind::Memory => (None, "memory:".to_owned()),
            StoreKind::Sqlite => (None, format!("sqlite:{}", folder.path().join("semel.db").display())),
            StoreKind::Postgresql => {
                let database = tokio::task::block_in_place(|| cluster.create_database())?;
                let url = database.url();
                (Some(database), url)
            }
        };
        let mut command = Command::new("valgrind");
        command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={DUMP}")).arg(semel).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).current_dir(folder.path());
        command.env("TOKIO_WORKER_THREADS", "1").env("RUST_LOG", "warn");
        let serve = Serve::start_by(command, folder.path(), &store, upstream, settings).await?;
        Ok(Counted { serve, folder, dumps: 0, _database: database })
    }

    /// Returns the mean number of instructions of a request of this kind.
    async fn count(&mut self, kind: RequestKind, requests: u64) -> Result<f64> {
        self.ask(kind, "warm", WARMING).await?;
        self.dump().await?;
        self.ask(kind, "counted", requests).await?;
        Ok(self.dump().await? / requests as f64)
    }

    /// Sends requests one at a time; each must be answered with 201.
    async fn ask(&self, kind: RequestKind, turn: &str, times: u64) -> Result<()> {
        let plan = Plan {
            to: self.serve.address(),
            request: payment(kind.keys(turn)),
            connections: 1,
            pace: Pace::Times(times),
            time: Duration::ZERO,
        };
        let outcome = tokio::task::spawn_blocking(move || load::run(&plan)).await??;
        if outcome.statuses == BTreeMap::from([(201, times)]) && outcome.failed == 0 {
            return Ok(());
        }
        let (statuses, failed) = (outcome.statuses, outcome.failed);
        Err(format!("of {times} requests, {failed} were not answered, the others so: {statuses:?}").into())
    }

    /// Returns the instructions since the last dump, or since the start.
    async fn dump(&mut self) -> Result<f64> {
        self.dumps += 1;
        let id = self.serve.id()?.to_string();
        let asked = Command::new("callgrind_control").args(["--dump", &id]).output().await;
        let asked = asked.map_err(|error| format!("callgrind_control cannot be run: {error}"))?;
        let file = self.folder.path().join(format!("{DUMP}.{}", self.dumps));
        let dump = std::fs::read_to_string(&file).map_err(|error| {
            format!("callgrind did not write {DUMP}: {error}. {}", String::from_utf8_lossy(&asked.stderr))
        })?;
        summary(&dump).ok_or_else(|| format!("{} has no summary", file.display()).into())
    }
}

/// Returns the total of instructions in a dump of callgrind.
fn summary(dump: &str) -> Option<f64> {
    dump.lines().find_map(|line| line.strip_prefix("summary: ")?.trim().parse().ok())
}

/// Starts the upstream of the gateway, in this process.
async fn upstream() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new());
                builder.serve_connection(TokioIo::new(stream), service_fn(answer)).await.is_ok()
            });
        }
    });
    Ok(address)
}

async fn answer(request: Request<Incoming>) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    let _ = request.into_body().collect().await;
    let mut response = Response::new(Full::from(r#"{"id":"pay_1","status":"paid"}"#));
    *response.status_mut() = StatusCode::CREATED;
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    Ok(response)
}

fn section(counts: &[(String, f64)], baseline: &Baseline, requests: u64) -> Section {
    let earlier = format!("at `{}`", baseline.commit);
    let names = ["request", "instructions", &earlier, "of that"];
    let mut table = vec![names.map(str::to_owned).to_vec()];
    let mut bars = Vec::new();
    for (label, value) in counts {
        let before = baseline.instructions.get(label);
        let (shown, ratio) = match before {
            Some(before) => (figure(*before), format!("{:.3}", value / before)),
            None => (String::new(), String::new()),
        };
        let note =
            if ratio.is_empty() { String::new() } else { format!("· {ratio} of {}", baseline.commit) };
        table.push(vec![label.clone(), figure(*value), shown, ratio]);
        let (value, spread) = (*value, (*value, *value));
        bars.push(Bar { label: label.clone(), value, spread, kind: Kind::Ours, note });
    }
    let chart = Bars { title: "Whole requests".into(), unit: "instructions".into(), bars };
    Section {
        title: "Whole requests".into(),
        what: format!(
            "Instructions of `semel serve` for one request, by callgrind, in the mean of {}: everything between the two sockets, \
             without the kernel and without the database server. Requests come one at a time on one connection, to a gateway \
             with one worker thread. A pass-through is a POST without a key. A traced request exports its spans to a collector.",
            count(requests),
        ),
        charts: vec![("requests.svg".into(), chart.svg())],
        table,
        aims: Vec::new(),
        why: "callgrind counts what runs, not how long it takes: it is for comparing two commits on any machine. callgrind's \
              processor has no instructions for SHA-256, which real ones have."
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_on_every_store_has_a_baseline() {
        let baseline: Baseline = toml::from_str(BASELINE).expect("it is TOML");
        let mut labels = Vec::new();
        for store in StoreKind::ALL {
            labels.extend(RequestKind::ALL.map(|kind| format!("{}, {}", kind.name(), store.name())));
        }
        labels.sort();
        assert_eq!(labels, baseline.instructions.into_keys().collect::<Vec<_>>());
    }

    #[test]
    fn total_of_a_dump_is_its_summary_line() {
        assert_eq!(
            summary("# callgrind format\nevents: Ir\nsummary: 44496\n\nfn=(1)\n7 12\n"),
            Some(44_496.0)
        );
        assert_eq!(summary("# callgrind format\n"), None);
    }

    #[test]
    fn count_is_shown_beside_its_baseline() {
        let baseline = Baseline {
            commit: "abc".into(),
            instructions: BTreeMap::from([("replay, memory".into(), 20_000.0)]),
        };
        let section = section(&[("replay, memory".into(), 18_000.0)], &baseline, 500);
        assert_eq!(section.table[1], ["replay, memory", "18,000", "20,000", "0.900"]);
    }
}
