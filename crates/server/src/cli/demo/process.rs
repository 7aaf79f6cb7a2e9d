//! Process of the payment service, as the demo sees it.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::introduction::Introduction;
use super::ledger::ChargeLedger;

/// Running service. It is killed when this is dropped.
pub(super) struct ServiceProcess {
    pub(super) address: SocketAddr,
    process: Child,
    /// The service ends with this pipe, however the demo ends.
    input: ChildStdin,
    _output: BufReader<ChildStdout>,
}

impl ServiceProcess {
    /// Starts the service on this port, or on any if it is 0.
    pub(super) async fn start(folder: &Path, port: u16) -> anyhow::Result<ServiceProcess> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["demo-service", "--port", &port.to_string(), "--ledger"])
            .arg(ChargeLedger::of(folder).path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("the payment service cannot be started")?;
        let input = process.stdin.take().context("its input is piped")?;
        let mut output = BufReader::new(process.stdout.take().context("its output is piped")?);
        let mut line = String::new();
        output.read_line(&mut line).await?;
        let address = line.trim().parse().context("the payment service did not say where it listens")?;
        Ok(ServiceProcess { address, process, input, _output: output })
    }

    /// Tells the service who is around it, which opens its page.
    pub(super) async fn introduce(&mut self, introduction: &Introduction) -> std::io::Result<()> {
        self.input.write_all(format!("{}\n", introduction.show()).as_bytes()).await
    }

    /// Ends the service with SIGKILL.
    pub(super) async fn kill(&mut self) -> std::io::Result<()> {
        self.process.kill().await
    }

    /// Waits until the service has ended.
    pub(super) async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        self.process.wait().await
    }
}
