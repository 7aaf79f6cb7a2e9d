//! Environment of a gateway's cell: a store, two gateways on it, the upstream behind them, and one command.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use semel_faults::Lever;
use tokio::task::JoinHandle;

use crate::client::{self, Asked};
use crate::lab::{Lab, Place, output};
use crate::patience::PATIENCE;
use crate::process::Process;
use crate::seen::{Record, Told};
use crate::upstream::{Mood, Upstream};

/// Settings of the gateways.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) lease: Duration,
    /// True for a setting that permits second effects, to test that the judge finds them.
    pub(crate) broken: bool,
    /// Path of the command.
    pub(crate) path: &'static str,
}

impl Settings {
    pub(crate) fn configuration(self) -> String {
        let on_lease_expired = if self.broken { "on_lease_expired = \"rerun\"\n" } else { "" };
        format!(
            "[identity]\nsource = \"trusted-headers\"\ntrusted_proxies = [\"127.0.0.1\"]\n\
             tenant_header = \"X-Tenant\"\ncaller_header = \"X-Caller\"\n\n\
             [defaults]\nlease = \"{}ms\"\ntimeout = \"30s\"\nquarantine_margin = \"1s\"\n\
             max_request = \"64KiB\"\nmax_stored_response = \"2KiB\"\n{on_lease_expired}\n\
             [maintenance]\nsweep_interval = \"200ms\"\nreap_interval = \"1s\"\n\n\
             [[operation]]\nname = \"payments.create\"\nmatch = \"POST /payments\"\n\n\
             [[operation]]\nname = \"reports.create\"\nmatch = \"POST /reports\"\nmode = \"async\"\n",
            self.lease.as_millis()
        )
    }
}

/// Environment of one cell. The first request always goes to gateway `a`.
pub(crate) struct World<'a> {
    lab: &'a Lab,
    pub(crate) folder: PathBuf,
    pub(crate) place: Place,
    pub(crate) upstream: Upstream,
    pub(crate) a: Process,
    pub(crate) b: Process,
    key: String,
    path: &'static str,
}

impl World<'_> {
    pub(crate) async fn start(lab: &Lab, settings: Settings, mood: Mood) -> Result<World<'_>, String> {
        let folder = lab.cell_folder()?;
        let file = folder.join("semel.toml");
        std::fs::write(&file, settings.configuration()).map_err(|error| error.to_string())?;
        let place = lab.place(&folder).await?;
        let key = lab.key(&folder);
        let upstream = Upstream::start(mood, &key).await?;
        let a = start_gateway(lab, &folder, &place, upstream.address, 0)?;
        let b = start_gateway(lab, &folder, &place, upstream.address, 1)?;
        Ok(World { lab, folder, place, upstream, a, b, key, path: settings.path })
    }

    /// Starts gateway `a` again.
    pub(crate) fn restart_a(&mut self) -> Result<(), String> {
        self.a = start_gateway(self.lab, &self.folder, &self.place, self.upstream.address, 0)?;
        Ok(())
    }

    /// Starts both gateways again.
    pub(crate) fn restart(&mut self) -> Result<(), String> {
        self.restart_a()?;
        self.b = start_gateway(self.lab, &self.folder, &self.place, self.upstream.address, 1)?;
        Ok(())
    }

    /// Returns the request of the one command.
    pub(crate) fn asked(&self) -> Asked {
        Asked::command(self.path, &self.key)
    }

    /// Sends the request to this gateway, in a task of its own.
    pub(crate) fn send(&self, gateway: &Process) -> JoinHandle<Told> {
        tokio::spawn(client::send(gateway.address(), self.asked()))
    }

    /// Returns the one record there can be.
    pub(crate) fn record(&self) -> Result<Option<Record>, String> {
        let mut records = self.place.records()?;
        match records.len() {
            0 | 1 => Ok(records.pop()),
            many => Err(format!("one command has {many} records")),
        }
    }

    /// Sets the clock of both gateways' stores, in milliseconds from the real time.
    pub(crate) async fn set_clock(&self, millis: i64) -> Result<(), String> {
        self.a.pull(Lever::Clock(millis)).await?;
        self.b.pull(Lever::Clock(millis)).await
    }

    /// Resolves this attempt of the command as an operator: executed, with this response.
    pub(crate) fn resolve(&self, operation_id: &str, attempt: u32, body: &str) -> Result<(), String> {
        let file = self.folder.join("verdict.json");
        std::fs::write(&file, body).map_err(|error| error.to_string())?;
        let mut command = self.lab.program(&self.place.direct());
        command.args([
            "records",
            "resolve",
            operation_id,
            "--verdict",
            "executed",
            "--status",
            "201",
            "--body",
        ]);
        command.arg(&file).args(["--header", "Content-Type: application/json"]);
        command.args(["--attempt", &attempt.to_string(), "--reason", "the ledger of the provider shows it"]);
        tokio::task::block_in_place(|| output(&mut command)).map(drop)
    }

    /// Repeats the request at a gateway until a response matches. Returns all responses.
    pub(crate) async fn ask_until(
        &self,
        gateway: &Process,
        what: &str,
        is_it: impl Fn(&Told) -> bool,
    ) -> Result<Vec<Told>, String> {
        let mut all: Vec<Told> = Vec::new();
        let begun = Instant::now();
        loop {
            let told = client::send(gateway.address(), self.asked()).await;
            let found = is_it(&told);
            if !found && begun.elapsed() > PATIENCE {
                return Err(format!("{what} in {} s; the last answer was {told}", PATIENCE.as_secs()));
            }
            all.push(told);
            if found {
                return Ok(all);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Starts one of the two gateways, with the settings in `semel.toml` of this folder.
pub(crate) fn start_gateway(
    lab: &Lab,
    folder: &Path,
    place: &Place,
    upstream: SocketAddr,
    number: usize,
) -> Result<Process, String> {
    let name = ["a", "b"][number];
    let mut command = lab.program(&place.for_gateway(number));
    command.current_dir(folder);
    command.args(["serve", "--config", "semel.toml", "--log-format", "json"]);
    command.args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    command.args(["--upstream", &format!("http://{upstream}")]);
    let words = ["listening on http://", "admin on http://"];
    let log = folder.join(format!("{name}.log"));
    let faults = folder.join(format!("faults-{name}"));
    tokio::task::block_in_place(|| Process::start(command, &words, &log, &faults))
        .map_err(|why| format!("gateway {name}: {why}"))
}
