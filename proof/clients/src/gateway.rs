//! Gateway of a run: the program `semel serve` on a SQLite file, as an operator starts it.
//!
//! The run starts it, and it ends with its `Process`. Its proxy is trusted, and names the caller.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use semel_testkit::process::Process;

use crate::upstream::{LEDGER, PATH};

/// Fields by which the proxy names the caller.
pub(crate) const CALLER: [(&str, &str); 2] = [("x-tenant", "lab"), ("x-caller", "client")];

/// Starts the gateway. Blocks until it listens.
///
/// # Errors
/// Names what it printed in place of its address.
pub(crate) fn start(program: &Path, folder: &Path, upstream: SocketAddr) -> Result<Process, String> {
    let file = folder.join("semel.toml");
    std::fs::write(&file, configuration(upstream)).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut command = Command::new(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SEMEL_")) {
        command.env_remove(name);
    }
    command.current_dir(folder).env_remove("RUST_LOG").env("SEMEL_STORE", "sqlite:semel.db");
    command.args(["serve", "--config", "semel.toml", "--log-format", "json"]);
    command.args([
        "--listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
        "--upstream",
        &format!("http://{upstream}"),
    ]);
    Process::start(command, &["listening on http://"], &folder.join("semel.log"))
        .map_err(|why| format!("semel serve: {why}"))
}

/// Returns the configuration. `wait` is short, so that duplicates of slow commands hear "in progress"; outcomes that are
/// unknown are looked up often, and the quarantine is longer than any call of the service.
fn configuration(upstream: SocketAddr) -> String {
    format!(
        "[identity]\nsource = \"trusted-headers\"\ntrusted_proxies = [\"127.0.0.1\"]\n\
         tenant_header = \"X-Tenant\"\ncaller_header = \"X-Caller\"\n\n\
         [defaults]\nlease = \"4s\"\ntimeout = \"5s\"\nquarantine_margin = \"3s\"\nwait = \"20ms\"\n\n\
         [maintenance]\nsweep_interval = \"1s\"\n\n\
         [reconcile]\ninterval = \"1s\"\nfirst_delay = \"1s\"\nmax_delay = \"2s\"\nmax_attempts = 1000\n\n\
         [[operation]]\nname = \"payments.create\"\nmatch = \"POST {PATH}\"\n\n\
         [operation.reconcile]\nurl = \"http://{upstream}{LEDGER}{{operation_id}}\"\nreference = \"/reference\"\n\
         status = \"/status\"\nexecuted = [\"captured\"]\npending = [\"processing\"]\nnot_found = \"not-executed\"\n\
         response_status = 201\ntimeout = \"2s\"\n"
    )
}
