//! `semel demo`: the story of a payment on the terminal, with a real gateway, a real service behind it, and a
//! ledger that counts real charges.
//!
//! The service runs in its own process, so that it can really be killed. The demo checks each of its claims
//! against the ledger; `--once` exits with 0 only if all of them held.

mod client;
mod service;
mod story;

use std::io::{ErrorKind, IsTerminal};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use semel_settings::{Config, StoreLocation};
use tokio::signal::unix::{SignalKind, signal};

use super::{CommandResult, say};
use crate::gateway::Gateway;
use crate::telemetry;

pub(super) use service::{ServiceArgs, run as run_service};

/// Timeout for expected events.
const PATIENCE: Duration = Duration::from_secs(10);
/// Port of the gateway in the demo, if it is free.
const GATEWAY_PORT: u16 = 8080;
/// Port of the payment service itself, past the gateway.
const SERVICE_PORT: u16 = 8081;
/// Port of the metrics.
const ADMIN_PORT: u16 = 9090;

/// The command line of `semel demo`.
#[derive(Debug, clap::Args)]
#[command(
    about = "See it work: a payment that is charged once, whatever happens",
    long_about = "Starts a gateway on a SQLite file and a small payment service behind it, and tells the story of a \
        payment: a lost answer, a changed amount, fifty duplicates at once, a service killed in the middle of \
        a charge. Each step shows the request, the answer, and how many charges the ledger counts. Then it \
        stays up for you to try, and says at which addresses.\n\n\
        On a terminal it takes its time, so that it can be read: about a minute. `--fast` tells it at once, and so does a \
        file or a pipe.\n\n\
        The gateway is at 127.0.0.1:8080, or where `--listen` says, its metrics at :9090, and the bare payment \
        service at :8081; where a port is taken, it says which it uses instead. Everything is kept in a temporary folder, which goes with \
        the demo.",
    after_help = "Examples:\n  \
        semel demo                             then Ctrl-C\n  \
        semel demo --fast --listen 127.0.0.1:7070\n  \
        semel demo --once                      for a test, or a recording\n\n\
        Exit codes: 0 the ledger proves every claim, 1 it does not, 2 wrong use, or the demo cannot run."
)]
pub(super) struct DemoArgs {
    #[arg(long, help = "Exit after the story; 0 only if the ledger proves every claim")]
    once: bool,
    #[arg(long, help = "Tell the story without pauses")]
    fast: bool,
    #[arg(
        long,
        value_name = "ADDRESS",
        help = "Address of the gateway, on this machine only [default: 127.0.0.1:8080]"
    )]
    listen: Option<SocketAddr>,
}

pub(super) fn run(args: &DemoArgs) -> anyhow::Result<CommandResult> {
    let DemoArgs { once, fast, listen } = *args;
    if let Some(address) = listen {
        ensure!(
            address.ip().is_loopback(),
            "--listen {address}: the demo takes everybody for the same caller, so it listens on this machine only, such as at \
             127.0.0.1:{}",
            address.port()
        );
    }
    let settings = DemoSettings { once, listen, is_paced: !fast && std::io::stdout().is_terminal() };
    let folder = Folder::new()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let proven = runtime.block_on(demo(&folder.0, &settings))?;
    runtime.shutdown_background();
    Ok(if proven { CommandResult::Yes } else { CommandResult::No })
}

/// Options of the demo.
struct DemoSettings {
    /// True if the demo ends with the story.
    once: bool,
    /// Address for clients, if not the usual one.
    listen: Option<SocketAddr>,
    /// True if the demo pauses for reading.
    is_paced: bool,
}

/// Folder that is removed with the demo.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("semel-demo-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn demo(folder: &Path, settings: &DemoSettings) -> anyhow::Result<bool> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let port = free_or_any("the payment service", SERVICE_PORT)?.port();
    // A port that was free a moment ago may be taken now: then any port is used.
    let service = service::Service::start(folder, port).or_else(|_| service::Service::start(folder, 0))?;
    let mut config = Config {
        listen: match settings.listen {
            Some(address) => address,
            None => free_or_any("the gateway", GATEWAY_PORT)?,
        },
        admin_listen: free_or_any("its metrics", ADMIN_PORT)?,
        upstream: format!("http://{}", service.address).parse()?,
        store: StoreLocation::Sqlite(folder.join("semel.db")),
        ..Config::default()
    };
    let metrics = telemetry::metrics()?;
    let gateway = match Gateway::start(&config, metrics.clone()).await {
        Ok(gateway) => gateway,
        Err(error) if settings.listen.is_some() => return Err(error),
        Err(_) => {
            (config.listen, config.admin_listen) = (loopback(0), loopback(0));
            Gateway::start(&config, metrics).await?
        }
    };
    let mut story = story::Story::new(folder, gateway.address, service, settings.is_paced);
    let told = tokio::select! {
        proven = story.tell() => Some(proven?),
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
    };
    let (Some(proven), false) = (told, settings.once) else {
        gateway.shut_down(std::future::pending()).await;
        // A stopped story has proven nothing, which fails only `--once`.
        return Ok(told.unwrap_or(!settings.once));
    };
    say(invitation(&config, &gateway, &story));
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    gateway.shut_down(std::future::pending()).await;
    Ok(proven)
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// Returns the usual port if it is free, else any. It announces another port, since the README names the
/// usual ones.
fn free_or_any(who: &str, port: u16) -> anyhow::Result<SocketAddr> {
    let address = loopback(port);
    match std::net::TcpListener::bind(address) {
        Ok(_) => Ok(address),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            say(format!(
                "{address} is taken by another program, so {who} gets another port. Where the README says {port}, \
                 use the port that is shown here.\n"
            ));
            Ok(loopback(0))
        }
        Err(error) => Err(error).with_context(|| format!("cannot listen on {address}")),
    }
}

/// Returns the commands to try after the story.
fn invitation(config: &Config, gateway: &Gateway, story: &story::Story) -> String {
    let (clients, admin, bare) = (gateway.address, gateway.admin_address, story.service_address());
    let store = &config.store;
    let program = std::env::args().next().unwrap_or_else(|| "semel".to_owned());
    format!(
        "Now you. Everything stays up until Ctrl-C:\n\n  \
         http://{clients}           the gateway, in front of the payment service\n  \
         http://{bare}           the payment service itself, without Semel\n  \
         http://{admin}/metrics   what the gateway counts\n\n\
         In another terminal, pay:\n\n  \
         curl -si http://{clients}/payments -H 'Content-Type: application/json' \
         -H 'Idempotency-Key: my-own-payment-0001' -d '{{\"amount\": 5}}'\n\n\
         Send it twice, and the second answer says Idempotency-Replayed: true. Change the amount: 422. Leave the key \
         out: 400.\n\n  \
         curl -s http://{clients}/ledger          # every charge there was\n  \
         curl -s http://{bare}/ledger/count    # how many; this is the service itself, without Semel\n  \
         curl -s http://{admin}/metrics         # what the gateway counts\n  \
         {program} records list --store {store}"
    )
}
