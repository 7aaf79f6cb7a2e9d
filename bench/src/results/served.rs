//! Servers under the same load: the peers, and the gateway and plain proxies in front of the bare handler. Each is a
//! process of its own; all others are idle while one has its turn.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use semel_testkit::postgres::Cluster;
use tokio::process::Command;

use super::{Figures, Form, Result};
use crate::chart::Kind;
use crate::cores::Cores;
use crate::load::{self, Keys, Pace, Plan, Request};
use crate::peers::{
    Build, Fate, Findings, Installed, Peer, Place, Report, Running, Settings, Store, Tried, Work, all, check,
    install, program_with_verify,
};
use crate::used;

/// Body of every request.
const BODY: &str = r#"{"amount": 100, "currency": "EUR"}"#;
const CALLER: &str = "Bearer alice-0123456789abcdef";
/// Maximum of connections to the shared database server.
const CONNECTIONS: &str = "1000";

/// Programs and database cluster of a run.
pub struct Ground {
    /// Cluster of the databases.
    pub cluster: Cluster,
    /// The program `semel`.
    pub semel: PathBuf,
    /// Peers that could be installed.
    pub peers: Vec<Installed>,
    /// Peers that could not be installed, with reasons.
    pub missing: Vec<(Peer, String)>,
    /// Findings about the peers' responses.
    known: Report,
}

impl Ground {
    /// Installs everything. In the whole form, peers that were never tried are tried first.
    pub async fn prepare(form: Form) -> Result<Ground> {
        println!("── peers: installing what is not there yet");
        let semel = program_with_verify(Build::Dist).await?;
        let (mut peers, mut missing) = (Vec::new(), Vec::new());
        for peer in all()? {
            match install(&peer, Build::Dist).await {
                Ok(installed) => peers.push(installed),
                Err(why) => {
                    println!("   {}: {}", peer.name, why.to_string().lines().next().unwrap_or_default());
                    missing.push((peer, why.to_string()));
                }
            }
        }
        let mut known = Report::read()?;
        if form == Form::Whole {
            for (peer, why) in &missing {
                known.put(peer, super::today(), Tried::Not(format!("cannot be installed: {why}")));
            }
            known.write()?;
        }
        for installed in peers.iter().filter(|_| form == Form::Whole) {
            let Installed { peer, .. } = installed;
            if known.get(&peer.name).is_some_and(|entry| entry.version == peer.version) {
                continue;
            }
            println!("── peers: trying whether the answers of {} are right", peer.name);
            let found = check(installed, &semel).await;
            known.put(
                peer,
                super::today(),
                found.map_or_else(|why| Tried::Not(why.to_string()), Tried::Seen),
            );
            known.write()?;
        }
        let settings =
            [("max_connections", CONNECTIONS), ("max_wal_size", "4GB"), ("checkpoint_timeout", "30min")];
        let cluster = tokio::task::block_in_place(|| Cluster::start_with(&settings))?;
        Ok(Ground { cluster, semel, peers, missing, known })
    }

    /// Starts every peer, with this work of the handler.
    pub async fn peers(&self, work: Work) -> Result<Vec<Contender>> {
        let mut contenders = Vec::new();
        for installed in &self.peers {
            contenders.push(self.peer(installed, work).await?);
        }
        Ok(contenders)
    }

    async fn peer(&self, installed: &Installed, work: Work) -> Result<Contender> {
        let Installed { peer, .. } = installed;
        let place = Place::prepare(&self.cluster, peer).await?;
        let running = installed.start(&place, &Settings { work, ..Settings::default() }).await?;
        let kind = match peer.store {
            Store::None => Kind::Floor,
            _ if peer.package == "semel" => Kind::Ours,
            _ => Kind::Peer,
        };
        Ok(Contender {
            name: peer.name.clone(),
            kind,
            store: peer.store.words().into(),
            is_durable: self.is_kept(&peer.name),
            floor: peer.floor.clone(),
            faults: self.findings(&peer.name).map(faults),
            tried_in: None,
            tally: Tally::default(),
            running: vec![running],
            place,
        })
    }

    /// Starts the bare handler.
    pub async fn bare(&self, work: Work) -> Result<Contender> {
        let bare = self.peers.iter().find(|installed| installed.peer.name == "bare-axum");
        self.peer(bare.ok_or("the bare handler is always there")?, work).await
    }

    /// Starts the gateway in front of the bare handler, on this store.
    pub async fn gateway(&self, store: Store, work: Work) -> Result<Contender> {
        let bare = self.bare(work).await?;
        let address = free()?;
        let (is_shared, folder) = (store == Store::Postgresql, bare.folder().to_owned());
        let kept = match is_shared {
            true => bare.place.database_url(),
            false => format!("sqlite:{}", folder.join("gateway.db").display()),
        };
        let command = self.gateway_command(&folder, &kept, address, bare.address())?;
        let name = if is_shared { "semel-gateway-postgres" } else { "semel-gateway-sqlite" };
        let gateway = bare.behind(name, command, address).await?;
        let (store, tried_in) = (
            store.words().into(),
            Some("the [crash matrix](../docs/src/explanation/crash-matrix.md), not here"),
        );
        Ok(Contender { kind: Kind::Ours, store, is_durable: None, faults: None, tried_in, ..gateway })
    }

    /// Returns the command of a gateway in front of this address.
    pub fn gateway_command(
        &self,
        folder: &Path,
        store: &str,
        listen: SocketAddr,
        upstream: SocketAddr,
    ) -> Result<Command> {
        let mut command = Command::new(&self.semel);
        // Like the plain proxies, the gateway does not log requests.
        command.arg("serve").current_dir(folder).env("RUST_LOG", "warn");
        command.args(["--listen", &listen.to_string(), "--admin-listen", &free()?.to_string()]);
        command.args(["--upstream", &format!("http://{upstream}"), "--store", store, "--key", "optional"]);
        Ok(command)
    }

    /// Starts a plain proxy in front of the bare handler.
    pub async fn proxy(&self, proxy: Proxy) -> Result<Contender> {
        let bare = self.bare(Work::None).await?;
        let address = free()?;
        let command = proxy.command(bare.folder(), address, bare.address(), Cores::All)?;
        bare.behind(proxy.program(), command, address).await
    }

    /// Returns true if a peer still replayed its response after it and its store were killed.
    fn is_kept(&self, name: &str) -> Option<bool> {
        match &self.findings(name)?.store_killed {
            Tried::Seen(fate) => Some(fate.rows == 1),
            Tried::Not(_) => None,
        }
    }

    fn findings(&self, name: &str) -> Option<&Findings> {
        match &self.known.get(name)?.found {
            Tried::Seen(findings) => Some(findings),
            Tried::Not(_) => None,
        }
    }
}

/// Returns the faults that the trials found.
fn faults(findings: &Findings) -> Vec<String> {
    let mut faults = Vec::new();
    if let Tried::Seen(found) = &findings.duplicates
        && found.rows > found.keys as i64
    {
        faults.push(format!("{} effects for {} keys under duplicates", found.rows, found.keys));
    }
    let trials = [
        ("killed", &findings.killed_after),
        ("slow", &findings.slow),
        ("paused", &findings.paused),
        ("store killed", &findings.store_killed),
    ];
    let of = |is: fn(&Fate) -> bool| {
        let named = trials.iter().filter(|(_, fate)| matches!(fate, Tried::Seen(fate) if is(fate)));
        named.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    };
    let twice = of(|fate| fate.rows > 1);
    if !twice.is_empty() {
        faults.push(format!("two effects: {twice}"));
    }
    let is_stuck = |fate: &Tried<Fate>| {
        matches!(fate, Tried::Seen(fate)
            if !fate.told_unknown && fate.retries.last().is_some_and(|last| last.contains("given up")))
    };
    if is_stuck(&findings.killed_before) {
        faults.push("stuck when killed".into());
    }
    if matches!(&findings.other_payload, Tried::Seen(second) if second.got_the_first) {
        faults.push("another payload gets the first answer".into());
    }
    if matches!(&findings.other_caller, Tried::Seen(second) if second.got_the_first) {
        faults.push("another caller gets the first answer".into());
    }
    if let Tried::Seen(verified) = &findings.verify
        && !verified.must_broken.is_empty()
    {
        faults.push(format!("`semel verify`: {}", verified.must_broken.join(", ")));
    }
    faults
}

/// A server that takes turns under load.
pub struct Contender {
    /// Name in tables.
    pub name: String,
    /// Owner of the bar in charts.
    pub kind: Kind,
    /// Store for responses.
    pub store: String,
    /// True if it replayed its response after it and its store were killed. `None` if that was not tried.
    pub is_durable: Option<bool>,
    /// Name of the server without protection.
    pub floor: Option<String>,
    /// Faults of its responses. `None` if they were not tried.
    pub faults: Option<Vec<String>>,
    /// Place of these findings, if elsewhere.
    tried_in: Option<&'static str>,
    /// Figures of its turns.
    pub tally: Tally,
    /// Running processes: the server that gets the requests comes first, those behind it follow.
    running: Vec<Running>,
    place: Place,
}

/// Figures of a server's turns.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Responses per second, as fast as they come.
    pub rate: Figures,
    /// Median and 99th percentile at a fixed rate, in microseconds.
    pub open: [Figures; 2],
    /// Microseconds of processor time for a request, as fast as they come, in user mode and in the kernel.
    pub processor: [Figures; 2],
    /// Number of unexpected responses, and of requests without a response.
    pub wrong: u64,
    /// Number of requests.
    pub all: u64,
    /// Number of runs of the handler.
    pub runs: u64,
}

impl Contender {
    /// Returns the address that gets the requests.
    pub fn address(&self) -> SocketAddr {
        self.running[0].address()
    }

    /// Returns the folder of its files.
    fn folder(&self) -> &Path {
        self.place.folder()
    }

    /// Puts this program in front of the server.
    async fn behind(mut self, name: &str, command: Command, address: SocketAddr) -> Result<Contender> {
        let log = self.folder().join("front.log");
        let front = Running::launch(command, address, log, Cores::All).await?;
        self.running.insert(0, front);
        Ok(Contender { name: name.to_owned(), floor: Some(self.name.clone()), ..self })
    }

    /// Runs one turn.
    pub async fn turn(&mut self, keys: Keys, connections: usize, pace: Pace, time: Duration) -> Result<()> {
        let plan = Plan { to: self.address(), request: payment(keys), connections, pace, time };
        let processor = || self.running[0].id().map_or([0.0; 2], used::processor);
        let (before, used) = (self.running[0].runs().await?, processor());
        let outcome = tokio::task::spawn_blocking(move || load::run(&plan)).await??;
        let answered = outcome.answered().max(1) as f64;
        let micros = |part: f64| outcome.quantile(part).as_secs_f64() * 1e6;
        let now = processor();
        let tally = &mut self.tally;
        match pace {
            Pace::Closed | Pace::Times(_) => {
                tally.rate.push(outcome.per_second());
                for (number, figures) in tally.processor.iter_mut().enumerate() {
                    figures.push((now[number] - used[number]) / answered);
                }
            }
            Pace::Open(_) | Pace::AtOnce => {
                tally.open[0].push(micros(0.5));
                tally.open[1].push(micros(0.99));
            }
        }
        let good = outcome.statuses.get(&201).copied().unwrap_or(0);
        tally.all += outcome.answered() + outcome.failed;
        tally.wrong += outcome.answered() + outcome.failed - good;
        self.tally.runs += self.running[0].runs().await? - before;
        Ok(())
    }

    /// Checkpoints the database, so that the next turn does not pay for this one.
    pub fn rest(&self) -> Result<()> {
        tokio::task::block_in_place(|| self.place.checkpoint())
    }

    /// Ends all processes.
    pub async fn stop(self) -> Result<()> {
        for running in self.running {
            running.stop().await?;
        }
        Ok(())
    }

    /// Says in words if responses outlive the server and its store.
    pub const fn durability(&self) -> &'static str {
        match self.is_durable {
            Some(true) => "yes",
            Some(false) => "no",
            None if self.tried_in.is_some() => "see right",
            None => "not tried",
        }
    }

    /// Describes the findings about its responses.
    pub fn answers(&self) -> String {
        let mut said = match &self.faults {
            _ if self.kind == Kind::Floor => "no protection".into(),
            None => self.tried_in.map_or("not tried".into(), |place| format!("tried in {place}")),
            Some(faults) if faults.is_empty() => "yes, in all trials".into(),
            Some(faults) => format!("**no**: {}", faults.join("; ")),
        };
        let trouble = self.trouble();
        if !trouble.is_empty() {
            said = format!("{said}; under this load {trouble}");
        }
        said
    }

    /// Describes unexpected responses of its turns.
    pub fn trouble(&self) -> String {
        match self.tally.wrong {
            0 => String::new(),
            wrong => format!("{:.1} % not 201", 100.0 * wrong as f64 / self.tally.all.max(1) as f64),
        }
    }
}

/// A plain reverse proxy.
#[derive(Clone, Copy, Debug)]
pub enum Proxy {
    /// nginx.
    Nginx,
    /// HAProxy.
    Haproxy,
}

impl Proxy {
    /// Returns the name of the program.
    pub const fn program(self) -> &'static str {
        match self {
            Proxy::Nginx => "nginx",
            Proxy::Haproxy => "haproxy",
        }
    }

    /// Returns the command of a proxy in front of this address, on these cores.
    pub fn command(
        self,
        folder: &Path,
        listen: SocketAddr,
        upstream: SocketAddr,
        cores: Cores,
    ) -> Result<Command> {
        let file = folder.join("proxy.conf");
        std::fs::write(&file, self.configuration(listen, upstream, folder, cores.count()?))?;
        let mut command = Command::new(self.program());
        match self {
            Proxy::Nginx => command.arg("-c").arg(&file).arg("-p").arg(folder),
            Proxy::Haproxy => command.arg("-f").arg(&file),
        };
        Ok(command)
    }

    /// Returns the configuration: both keep connections alive on both sides, use all their cores, and log nothing.
    fn configuration(self, listen: SocketAddr, upstream: SocketAddr, folder: &Path, cores: u32) -> String {
        let folder = folder.display();
        match self {
            Proxy::Nginx => format!(
                "worker_processes {cores}; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log warn;\n\
                 events {{ worker_connections 4096; }}\n\
                 http {{\n  access_log off; keepalive_requests 1000000000;\n  \
                 client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;\n  \
                 uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;\n  \
                 upstream handler {{ server {upstream}; keepalive 512; keepalive_requests 1000000000; }}\n  \
                 server {{\n    listen {listen} backlog=1024;\n    location / {{\n      proxy_pass http://handler;\n      \
                 proxy_http_version 1.1;\n      proxy_set_header Connection \"\";\n    }}\n  }}\n}}\n"
            ),
            Proxy::Haproxy => format!(
                "global\n  nbthread {cores}\n  maxconn 4096\n\
                 defaults\n  mode http\n  timeout connect 5s\n  timeout client 75s\n  timeout server 75s\n  \
                 http-reuse always\n\
                 frontend clients\n  bind {listen}\n  default_backend handlers\n\
                 backend handlers\n  server handler {upstream}\n"
            ),
        }
    }
}

/// Makes the request that every client sends, under these keys.
pub fn payment(keys: Keys) -> Request {
    Request::post("/payments", BODY, keys).field("Authorization", CALLER)
}

/// Returns a free local address.
pub fn free() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Second;

    fn fate(rows: i64, last: &str, told_unknown: bool) -> Tried<Fate> {
        Tried::Seen(Fate { rows, first: "no answer".into(), retries: vec![last.into()], told_unknown })
    }

    fn second(got_the_first: bool) -> Tried<Second> {
        Tried::Seen(Second { answer: "201".into(), got_the_first, runs: 1 })
    }

    #[test]
    fn wrong_findings_are_listed_as_faults() {
        let not = || "not tried".to_owned();
        let mut findings = Findings {
            verify: Tried::Not(not()),
            duplicates: Tried::Not(not()),
            killed_before: fate(0, "409 IDEMPOTENCY_OUTCOME_UNKNOWN", true),
            killed_after: fate(1, "409 IDEMPOTENCY_OUTCOME_UNKNOWN", true),
            slow: fate(1, "201", false),
            paused: Tried::Not(not()),
            store_killed: fate(1, "201", false),
            other_payload: second(false),
            other_caller: second(false),
        };
        assert_eq!(faults(&findings), Vec::<String>::new());
        findings.killed_before = fate(0, "409, given up after 12 s", false);
        findings.killed_after = fate(2, "201", false);
        findings.store_killed = fate(2, "201", false);
        findings.other_caller = second(true);
        let seen = [
            "two effects: killed, store killed",
            "stuck when killed",
            "another caller gets the first answer",
        ];
        assert_eq!(faults(&findings), seen);
    }
}
