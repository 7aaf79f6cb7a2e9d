//! State of a run: its members, store, ledger and history.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use semel_checker::Event;
use semel_checker::event::{Fault, Metrics};

use crate::counters;
use crate::place::Place;
use crate::settings::{LONG_STALL, Options, configuration};
use crate::upstream::{Ledger, Upstream};
use crate::versions::Versions;
use semel_chaos::process::Member;
use semel_chaos::scribe::{Scribe, now};
use semel_chaos::{client, program};

/// Longest start time of a process, with a slow store or machine.
const START_TIME: Duration = Duration::from_secs(90);

/// State of a run.
pub(crate) struct World {
    pub(crate) options: Options,
    pub(crate) folder: PathBuf,
    pub(crate) scribe: Arc<Scribe>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) upstream: Upstream,
    pub(crate) place: Place,
    /// Gateways; the first is never killed.
    pub(crate) gateways: Vec<Member>,
    pub(crate) service: Member,
    pub(crate) versions: Versions,
    /// Numbers of the next request and of the next command.
    pub(crate) requests: AtomicU64,
    pub(crate) commands: AtomicU64,
    /// True while faults are injected.
    pub(crate) breaking: AtomicBool,
    /// Time of the last stall that was longer than operators allow for.
    stalled_at: AtomicI64,
}

impl World {
    /// Starts the store, the upstream, the gateways and the service.
    pub(crate) async fn start(
        options: Options,
        folder: PathBuf,
        scribe: Arc<Scribe>,
    ) -> Result<Arc<World>, String> {
        let ledger = Ledger::new(scribe.clone(), options.seed, options.broken);
        let upstream = Upstream::start(ledger.clone()).await?;
        let place = Place::make(options.store, &folder).await?;
        let file = folder.join("semel.toml");
        std::fs::write(&file, configuration(options.broken)).map_err(|error| error.to_string())?;
        let names = ["gateway-a", "gateway-b", "gateway-c"];
        let versions = Versions::new(options.mixed, options.old.clone(), options.store.gateways());
        let gateways = names.iter().take(options.store.gateways()).copied().map(Member::new).collect();
        let world = Arc::new(World {
            options,
            folder,
            scribe,
            ledger,
            upstream,
            place,
            gateways,
            service: Member::new("service"),
            versions,
            requests: AtomicU64::new(1),
            commands: AtomicU64::new(0),
            breaking: AtomicBool::new(true),
            stalled_at: AtomicI64::new(0),
        });
        world.prepare_store().await?;
        for gateway in 0..world.gateways.len() {
            world.start_gateway(gateway).await?;
        }
        world.start_service().await?;
        Ok(world)
    }

    /// Returns a command for a program on the store at this address, without settings from the environment.
    fn program(&self, program: &std::path::Path, store: &str) -> Command {
        // A full disk is an error here, not the end: the shell ignores its signal, and so does the program that it
        // executes.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(program);
        command.current_dir(&self.folder).env_remove("RUST_LOG");
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEMEL_")) {
            command.env_remove(name);
        }
        command.env("SEMEL_STORE", store);
        command
    }

    /// Returns a command for the gateway's program, as an operator runs it.
    pub(crate) fn semel(&self) -> Command {
        let mut command = self.program(&self.options.program, &self.place.direct());
        self.versions.apply_to_operator(&mut command);
        command
    }

    /// Returns a command for the gateway's program in the old version of a mixed run.
    pub(crate) fn old_semel(&self) -> Command {
        self.program(self.versions.old_program(&self.options.program), &self.place.direct())
    }

    /// Makes the store of a mixed run by a program of the old version.
    async fn prepare_store(&self) -> Result<(), String> {
        if !self.versions.is_mixed {
            return Ok(());
        }
        let mut old = self.old_semel();
        old.args(["migrate", "--create"]);
        match program::done(old.into(), program::PATIENCE).await {
            Some(true) => Ok(()),
            other => Err(format!("the old version cannot make the store: {other:?}")),
        }
    }

    /// Starts a gateway, with retries while its store is unavailable.
    pub(crate) async fn start_gateway(self: &Arc<World>, number: usize) -> Result<(), String> {
        self.until_started(move |world| {
            let store = world.place.for_gateway(number);
            let mut command = world.program(world.versions.program(number, &world.options.program), &store);
            world.versions.apply(number, &mut command);
            command.args(["serve", "--config", "semel.toml", "--log-format", "json"]);
            command.args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
            command.args(["--upstream", &format!("http://{}", world.upstream.address)]);
            let member = &world.gateways[number];
            let log = world.folder.join(format!("{}.log", member.name));
            member.start(command, &["listening on http://", "admin on http://"], &log)
        })
        .await
    }

    /// Starts the service, with retries while its store is unavailable.
    pub(crate) async fn start_service(self: &Arc<World>) -> Result<(), String> {
        self.until_started(|world| {
            let own = std::env::current_exe().map_err(|error| error.to_string())?;
            let mut command = world.program(&own, &world.place.for_service());
            world.versions.apply(world.gateways.len(), &mut command);
            command.arg("service").arg(world.upstream.address.to_string());
            command.arg(world.options.seed.to_string());
            let log = world.folder.join("service.log");
            world.service.start(command, &["listening on http://"], &log)
        })
        .await
    }

    async fn until_started(
        self: &Arc<World>,
        start: impl Fn(&World) -> Result<(), String> + Clone + Send + 'static,
    ) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let (world, start) = (self.clone(), start.clone());
            let started = tokio::task::spawn_blocking(move || start(&world)).await;
            match started.map_err(|error| error.to_string())? {
                Ok(()) => return Ok(()),
                Err(why) if begun.elapsed() > START_TIME => return Err(why),
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }

    /// Returns true while faults are injected.
    pub(crate) fn is_breaking(&self) -> bool {
        self.breaking.load(Ordering::SeqCst)
    }

    /// Records a fault.
    pub(crate) fn fault(&self, kind: &str, target: &str, detail: impl Into<String>) {
        let (kind, target, detail) = (kind.to_owned(), target.to_owned(), detail.into());
        self.scribe.note(|at| Event::Fault(Fault { at, kind, target, detail }));
    }

    /// Records a stall of this length if it is longer than operators allow for: they then wait.
    pub(crate) fn stood_still(&self, time: Duration) {
        if time > LONG_STALL {
            self.stalled_at.store(now(), Ordering::SeqCst);
            self.fault("stall", "machine", format!("for {} ms", time.as_millis()));
        }
    }

    /// Returns the time of the last long stall.
    pub(crate) fn stalled_at(&self) -> i64 {
        self.stalled_at.load(Ordering::SeqCst)
    }

    /// Watches for stalls of this machine. Never ends.
    pub(crate) async fn watch_for_stalls(self: Arc<World>) {
        let tick = Duration::from_millis(100);
        loop {
            let begun = Instant::now();
            tokio::time::sleep(tick).await;
            self.stood_still(begun.elapsed().saturating_sub(tick));
        }
    }

    /// Records the counters of a gateway.
    pub(crate) async fn read_metrics(&self, gateway: &Member) -> Result<(), String> {
        let (Some(admin), Some(process)) = (gateway.admin(), gateway.process()) else {
            return Err(format!("{} does not run", gateway.name));
        };
        let page = client::get(admin, "/metrics").await.map_err(|why| format!("{}: {why}", gateway.name))?;
        let (gateway, samples) = (gateway.name.clone(), counters::read(&page));
        self.scribe.note(|at| Event::Metrics(Metrics { at, gateway, process, samples }));
        Ok(())
    }
}
