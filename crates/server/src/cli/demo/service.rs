//! Payment service of the demo, in its own process: every charge is a line in a ledger, written to disk
//! before anything else happens.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use anyhow::Context;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::PATIENCE;
use crate::cli::{CommandResult, say};

/// Header by which the story asks for a failure.
pub(super) const BAD_DAY: &str = "x-demo-bad-day";

/// Running service.
pub(super) struct Service {
    pub(super) address: SocketAddr,
    process: Child,
    _output: BufReader<ChildStdout>,
}

impl Service {
    /// Starts the service on this port, or on any if it is 0.
    pub(super) fn start(folder: &Path, port: u16) -> anyhow::Result<Service> {
        let mut process = std::process::Command::new(std::env::current_exe()?)
            .args(["demo-service", "--port", &port.to_string(), "--ledger"])
            .arg(ledger(folder))
            // The service ends with this pipe, however the demo ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("the payment service cannot be started")?;
        let mut output = BufReader::new(process.stdout.take().context("its output is piped")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        let address = line.trim().parse().context("the payment service did not say where it listens")?;
        Ok(Service { address, process, _output: output })
    }

    /// Ends the service with SIGKILL.
    pub(super) fn kill(&mut self) -> std::io::Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Returns the path of the ledger.
fn ledger(folder: &Path) -> PathBuf {
    folder.join("ledger.jsonl")
}

/// Returns the charges in the ledger.
pub(super) fn charges(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(ledger(folder)).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

// The command line of the hidden `semel demo-service`. A doc comment would become its help.
#[derive(Debug, clap::Args)]
pub(crate) struct ServiceArgs {
    #[arg(long)]
    port: u16,
    #[arg(long)]
    ledger: PathBuf,
}

pub(crate) fn run(args: &ServiceArgs) -> anyhow::Result<CommandResult> {
    let (port, ledger) = (args.port, args.ledger.clone());
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = bind(port).await?;
        say(listener.local_addr()?);
        let app = Router::new()
            .route("/payments", post(pay))
            .route("/ledger", get(async |State(ledger): State<PathBuf>| lines(&ledger)))
            .route("/ledger/count", get(async |State(ledger): State<PathBuf>| count(&ledger).to_string()))
            .with_state(ledger);
        axum::serve(listener, app).await?;
        Ok(CommandResult::Yes)
    })
}

/// Binds the port, and retries while another process has it: a restarted service needs its former port.
async fn bind(port: u16) -> std::io::Result<TcpListener> {
    let patient = async {
        loop {
            match TcpListener::bind(("127.0.0.1", port)).await {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                bound => return bound,
            }
        }
    };
    tokio::time::timeout(PATIENCE, patient).await.unwrap_or_else(|_| Err(ErrorKind::AddrInUse.into()))
}

fn lines(ledger: &Path) -> String {
    std::fs::read_to_string(ledger).unwrap_or_default()
}

fn count(ledger: &Path) -> usize {
    lines(ledger).lines().count()
}

/// Charges the card: writes a line to the ledger, then answers unless the story asks for a failure.
async fn pay(
    State(ledger): State<PathBuf>,
    headers: HeaderMap,
    Json(payment): Json<Value>,
) -> impl IntoResponse {
    let number = count(&ledger) + 1;
    let operation = headers.get("semel-operation-id").and_then(|id| id.to_str().ok());
    let charge = json!({ "charge": number, "amount": payment["amount"], "operation": operation });
    if let Err(error) = write(&ledger, &charge) {
        return (StatusCode::INTERNAL_SERVER_ERROR, HeaderMap::new(), error.to_string());
    }
    match headers.get(BAD_DAY).map(|day| day.as_bytes()) {
        Some(b"slow") => tokio::time::sleep(Duration::from_millis(150)).await,
        // Charged, but without an answer: the story kills the process meanwhile.
        Some(b"stuck") => std::future::pending::<()>().await,
        _ => {}
    }
    let mut fields = HeaderMap::new();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(value) = format!("/payments/{number}").parse() {
        fields.insert(header::LOCATION, value);
    }
    // A line end for people who use curl.
    (StatusCode::CREATED, fields, format!("{charge}\n"))
}

fn write(ledger: &Path, charge: &Value) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(ledger)?;
    writeln!(file, "{charge}")?;
    file.sync_all()
}
