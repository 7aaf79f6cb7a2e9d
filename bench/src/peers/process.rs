//! A running peer: a process of its own on a free port, ended by its id.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::client::Client;
use super::{Error, Installed, Place};
use crate::cores::Cores;

/// Timeout of a peer's first response. Python on a busy machine takes seconds.
const STARTING: Duration = Duration::from_secs(60);
/// Timeout of a peer's graceful end.
const ENDING: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(25);
/// Number of ports to try: another process may take one between the check and the start.
const PORTS: usize = 5;
const LAST_WORDS: usize = 12;

/// Work of the handler for each payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Inserts a row.
    Insert,
    /// No work.
    None,
}

/// Settings of a running peer.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Work of the handler for each payment.
    pub work: Work,
    /// Sleep before the INSERT.
    pub before: Duration,
    /// Sleep after the INSERT.
    pub after: Duration,
    /// Lease of a claim, where it can be set; `None` keeps the peer's default.
    pub lease: Option<Duration>,
    /// Number of this process among several of one peer.
    pub instance: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            work: Work::Insert,
            before: Duration::ZERO,
            after: Duration::ZERO,
            lease: None,
            instance: 1,
        }
    }
}

/// A peer that answers. Dropping it asks it to end, then kills it.
pub struct Running {
    address: SocketAddr,
    process: Child,
    log: PathBuf,
}

impl Installed {
    /// Starts the peer, and waits until it answers.
    pub async fn start(&self, place: &Place, settings: &Settings) -> Result<Running, Error> {
        let mut why = Error::from("no port was tried");
        for _ in 0..PORTS {
            match self.start_once(place, settings).await {
                Ok(running) => return Ok(running),
                Err(error) => why = error,
            }
            if !why.to_string().to_lowercase().contains("in use") {
                break;
            }
        }
        Err(why)
    }

    async fn start_once(&self, place: &Place, settings: &Settings) -> Result<Running, Error> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let log = place.folder().join(format!("{}-{}.log", self.peer.name, settings.instance));
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.folder).envs(&self.peer.environment);
        command.env("PORT", address.port().to_string()).env("DATABASE_URL", place.database_url());
        command.env("DATA_DIR", place.folder()).env("INSTANCE", settings.instance.to_string());
        command.env("WORK", if settings.work == Work::Insert { "insert" } else { "none" });
        command.env("SLEEP_BEFORE_MS", settings.before.as_millis().to_string());
        command.env("SLEEP_AFTER_MS", settings.after.as_millis().to_string());
        command.env_remove("LEASE_MS").env("NODE_ENV", "production");
        if let Some(lease) = settings.lease {
            command.env("LEASE_MS", lease.as_millis().to_string());
        }
        if let Some(url) = place.redis_url() {
            command.env("REDIS_URL", url);
        }
        Running::launch(command, address, log, Cores::All).await
    }
}

impl Running {
    /// Starts a program, and waits until the handler answers at this address: its own, or one behind it.
    pub async fn launch(
        mut command: Command,
        address: SocketAddr,
        log: PathBuf,
        cores: Cores,
    ) -> Result<Running, Error> {
        let file = File::options().create(true).append(true).open(&log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).kill_on_drop(true);
        let process = cores
            .within(|| command.spawn())?
            .map_err(|error| format!("{}: {error}", command.as_std().get_program().display()))?;
        let mut running = Running { address, process, log };
        running.wait().await?;
        Ok(running)
    }

    /// Returns the number of runs that the handler has begun.
    pub async fn runs(&self) -> Result<u64, Error> {
        Client::new(self.address).number("/count").await
    }

    /// Returns the address at which the peer answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the process id, for measurements of its memory and processor.
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }

    async fn wait(&mut self) -> Result<(), Error> {
        let client = Client::new(self.address);
        let deadline = tokio::time::Instant::now() + STARTING;
        while client.number("/count").await.is_err() {
            if let Some(status) = self.process.try_wait()? {
                return Err(format!("it ended at once, {status}: {}", self.last_words()).into());
            }
            if tokio::time::Instant::now() > deadline {
                let words = self.last_words();
                return Err(format!("it did not answer within {} s: {words}", STARTING.as_secs()).into());
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Returns the end of the log.
    pub fn last_words(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LAST_WORDS)..].join("\n")
    }

    /// Asks the peer to end, and kills it if it does not.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.signal(Signal::TERM)?;
        if tokio::time::timeout(ENDING, self.process.wait()).await.is_err() {
            self.process.kill().await?;
        }
        Ok(())
    }

    /// Kills the peer, as the kernel does when memory is short.
    pub async fn kill(mut self) -> Result<(), Error> {
        Ok(self.process.kill().await?)
    }

    /// Stops the process, like a virtual machine that is migrated.
    pub fn pause(&self) -> Result<(), Error> {
        self.signal(Signal::STOP)
    }

    /// Continues a stopped process.
    pub fn resume(&self) -> Result<(), Error> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<(), Error> {
        let id = self.process.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        Ok(kill_process(id.ok_or("the process has ended")?, signal)?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A server with child processes ends them only on SIGTERM.
        for _ in 0..40 {
            if self.process.try_wait().is_ok_and(|ended| ended.is_some())
                || self.signal(Signal::TERM).is_err()
            {
                return;
            }
            std::thread::sleep(POLL);
        }
    }
}
