//! State of a run: its database, gateways, ledger and history.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use semel_chaos::process::Member;
use semel_chaos::scribe::{Scribe, now};
use semel_checker::Event;
use semel_checker::event::Fault;

use crate::base::Base;
use crate::commits::Commits;
use crate::health::Health;
use crate::programs::command;
use crate::settings::{GATEWAYS, Options, configuration};
use crate::upstream::Ledger;

/// Longest start of a gateway: it waits for its database.
const START_TIME: Duration = Duration::from_secs(120);
/// Longest time of a database to recover from a fault.
pub(crate) const RECOVERY: Duration = Duration::from_secs(180);

/// State of a run.
pub(crate) struct World {
    pub(crate) options: Options,
    pub(crate) folder: PathBuf,
    pub(crate) scribe: Arc<Scribe>,
    pub(crate) ledger: Arc<Ledger>,
    upstream: SocketAddr,
    pub(crate) base: Base,
    /// Commits of the probe.
    pub(crate) commits: Arc<Commits>,
    pub(crate) gateways: Vec<Member>,
    /// Time of the last first answer of each gateway.
    answered: Vec<AtomicI64>,
    /// Numbers of the next request and of the next command.
    pub(crate) requests: AtomicU64,
    pub(crate) commands: AtomicU64,
    /// Commands without a final answer.
    pub(crate) open: Mutex<BTreeSet<u64>>,
    pub(crate) acknowledged: AtomicU64,
    /// True while new commands come.
    pub(crate) loaded: AtomicBool,
    pub(crate) gap: Mutex<Gap>,
}

/// Times without a first answer, for the lines that the run prints.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gap {
    last: i64,
    longest: i64,
}

impl World {
    /// Starts the database, the service and the gateways.
    pub(crate) async fn start(
        options: Options,
        folder: PathBuf,
        scribe: Arc<Scribe>,
    ) -> Result<Arc<World>, String> {
        let (chosen, place) = (options.clone(), folder.clone());
        let base = tokio::task::spawn_blocking(move || Base::start(&chosen, &place, RECOVERY)).await;
        let base = base.map_err(|error| error.to_string())??;
        let (ledger, upstream) = Ledger::start(scribe.clone(), options.seed, base.own()).await?;
        std::fs::write(folder.join("semel.toml"), configuration(base.own()))
            .map_err(|error| error.to_string())?;
        let world = Arc::new(World {
            gateways: (1..=GATEWAYS).map(|number| Member::new(format!("gateway-{number}"))).collect(),
            answered: (0..GATEWAYS).map(|_| AtomicI64::new(0)).collect(),
            requests: AtomicU64::new(1),
            commands: AtomicU64::new(0),
            open: Mutex::default(),
            acknowledged: AtomicU64::new(0),
            loaded: AtomicBool::new(true),
            gap: Mutex::default(),
            options,
            folder,
            scribe,
            ledger,
            upstream,
            base,
            commits: Arc::default(),
        });
        for gateway in 0..GATEWAYS {
            world.start_gateway(gateway).await?;
        }
        Ok(world)
    }

    /// Returns a command for Semel's program at a place, without settings from the environment.
    fn program(&self, mut words: Vec<String>) -> Command {
        words.push(self.options.program.display().to_string());
        let mut command = command(&words, &self.folder);
        command.env_remove("RUST_LOG");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEMEL_")) {
            command.env_remove(name);
        }
        command.env("SEMEL_STORE", self.base.store());
        command
    }

    /// Returns a command for the program, as an operator runs it.
    pub(crate) fn semel(&self) -> Command {
        self.program(Vec::new())
    }

    /// Starts a gateway, with retries while its database is away.
    pub(crate) async fn start_gateway(self: &Arc<World>, number: usize) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let world = self.clone();
            let started = tokio::task::spawn_blocking(move || world.start_gateway_once(number)).await;
            match started.map_err(|error| error.to_string())? {
                Ok(()) => return Ok(()),
                Err(why) if begun.elapsed() > START_TIME => return Err(why),
                Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
            }
        }
    }

    fn start_gateway_once(&self, number: usize) -> Result<(), String> {
        let (address, words) = self.base.gateway(number);
        let mut command = self.program(words);
        command.args(["serve", "--config", "semel.toml", "--log-format", "json"]);
        command.args(["--listen", &format!("{address}:0"), "--admin-listen", "127.0.0.1:0"]);
        command.args(["--upstream", &format!("http://{}", self.upstream)]);
        let member = &self.gateways[number];
        let log = self.folder.join(format!("{}.log", member.name));
        member.start(command, &["listening on http://", "admin on http://"], &log)
    }

    /// Waits until a gateway has printed the tier of its store, and returns that line.
    pub(crate) async fn tier(&self, number: usize) -> Result<String, String> {
        let begun = Instant::now();
        loop {
            let output = self.gateways[number].output();
            if let Some(line) =
                output.lines().find(|line| line.starts_with("store ") && line.contains(": tier "))
            {
                let tier = line.rsplit_once(": tier ").map_or(line, |(_, tier)| tier);
                return Ok(format!("tier {tier}"));
            }
            if begun.elapsed() > START_TIME {
                return Err(format!("{} has not printed the tier of its store", self.gateways[number].name));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns true while new commands come.
    pub(crate) fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::SeqCst)
    }

    /// Records the begin or the end of a fault.
    pub(crate) fn fault(&self, kind: &str, target: &str, detail: impl Into<String>) {
        let (kind, target, detail) = (kind.to_owned(), target.to_owned(), detail.into());
        self.scribe.note(|at| Event::Fault(Fault { at, kind, target, detail }));
    }

    /// Notes a first answer.
    pub(crate) fn acknowledge(&self, gateway: usize, at: i64) {
        self.answered[gateway].store(at, Ordering::SeqCst);
        self.acknowledged.fetch_add(1, Ordering::SeqCst);
        let mut gap = self.gap.lock().unwrap_or_else(PoisonError::into_inner);
        gap.longest = gap.longest.max(at - gap.last);
        gap.last = at;
    }

    /// Returns the longest time without a first answer since the last call.
    pub(crate) fn take_gap(&self) -> Duration {
        let mut gap = self.gap.lock().unwrap_or_else(PoisonError::into_inner);
        let longest = std::mem::take(&mut gap.longest);
        Duration::from_millis(longest.unsigned_abs())
    }

    /// Runs a step that blocks.
    pub(crate) async fn blocking<T: Send + 'static>(
        self: &Arc<World>,
        step: impl FnOnce(&World) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let world = self.clone();
        tokio::task::spawn_blocking(move || step(&world)).await.map_err(|error| error.to_string())?
    }

    /// Waits until the database has recovered and every gateway has given a first answer since.
    pub(crate) async fn wait_until_well(self: &Arc<World>) -> Result<Health, String> {
        let health = self.blocking(|world| world.base.wait_until_healthy(RECOVERY)).await?;
        let (since, begun) = (now(), Instant::now());
        loop {
            let silent = self.answered.iter().position(|at| at.load(Ordering::SeqCst) <= since);
            match silent {
                None => return Ok(health),
                Some(gateway) if begun.elapsed() > RECOVERY => {
                    let name = &self.gateways[gateway].name;
                    return Err(format!("{name} gives no answers although its database has recovered"));
                }
                Some(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }
}
