//! `semel serve` as a process of its own, in front of an upstream.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::Result;

/// Timeout of its start, and of its end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running gateway. Dropping it kills the process.
pub struct Serve {
    address: SocketAddr,
    process: Child,
    log: PathBuf,
    /// Standard output, kept open because the gateway prints more than its address.
    _said: Lines<BufReader<ChildStdout>>,
}

impl Serve {
    /// Starts a gateway in this folder, on its file `semel.db`. `settings` are lines of a configuration, tables last.
    pub async fn start(program: &Path, folder: &Path, upstream: SocketAddr, settings: &str) -> Result<Serve> {
        let mut command = Command::new(program);
        command.env_clear();
        let store = format!("sqlite:{}", folder.join("semel.db").display());
        Serve::start_by(command, folder, &store, upstream, settings).await
    }

    /// Starts a gateway in this folder, on this store. `command` is the program, or a wrapper that runs it.
    pub async fn start_by(
        mut command: Command,
        folder: &Path,
        store: &str,
        upstream: SocketAddr,
        settings: &str,
    ) -> Result<Serve> {
        let (file, log) = (folder.join("semel.toml"), folder.join("semel.log"));
        let config = format!(
            "listen = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\nupstream = \"http://{upstream}\"\n\
             store = \"{store}\"\n{settings}"
        );
        std::fs::write(&file, config)?;
        command.args(["serve", "--config"]).arg(&file).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let program = command.as_std().get_program().to_owned();
        let mut process = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
        let said = process.stdout.take().ok_or("its output is piped")?;
        let mut said = BufReader::new(said).lines();
        let listens = async {
            while let Some(line) = said.next_line().await? {
                if let Some(address) = line.strip_prefix("listening on http://") {
                    return Ok(address.parse::<SocketAddr>()?);
                }
            }
            Err(format!("semel ended at once: {}", std::fs::read_to_string(&log)?).into())
        };
        let listens: Result<SocketAddr> = tokio::time::timeout(PATIENCE, listens)
            .await
            .map_err(|_| format!("semel did not listen within {} s", PATIENCE.as_secs()))?;
        Ok(Serve { address: listens?, process, log, _said: said })
    }

    /// Returns the listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the process id, for measurements of its memory and processor.
    pub fn id(&self) -> Result<u32> {
        self.process.id().ok_or_else(|| format!("semel has ended: {}", self.last_words()).into())
    }

    /// Returns the last line of the log.
    pub fn last_words(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().last().unwrap_or_default().to_owned()
    }

    /// Asks the gateway to end, and waits until it did.
    pub async fn stop(mut self) -> Result<()> {
        let id = Pid::from_raw(self.id()?.try_into()?).ok_or("a process has an id")?;
        kill_process(id, Signal::TERM)?;
        match tokio::time::timeout(PATIENCE, self.process.wait()).await {
            Ok(ended) => drop(ended?),
            Err(_) => self.process.kill().await?,
        }
        Ok(())
    }
}
