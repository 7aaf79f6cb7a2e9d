//! `semel demo`: the story of a payment on the terminal, with a real gateway, a real service behind it, and a
//! ledger that counts real charges.
//!
//! The service runs in its own process, so that it can really be killed. The demo checks each of its claims
//! against the ledger; `--once` exits with 0 only if all of them held. Otherwise one payment is left to be
//! settled, and the service opens its page, on which a person pays.

mod client;
mod introduction;
mod ledger;
mod process;
mod service;
mod settings;
mod story;

use std::io::{ErrorKind, IsTerminal};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use metrics_exporter_prometheus::PrometheusHandle;
use semel_settings::{Loaded, StoreLocation};
use tokio::signal::unix::{SignalKind, signal};

use self::introduction::{Introduction, LeftPayment};
use self::process::ServiceProcess;
use self::settings::DemoAddresses;
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
/// Port of console, admin API and metrics.
const ADMIN_PORT: u16 = 9090;
/// Time for which a service that died stays dead, so that a person sees it.
const DEAD_TIME: Duration = Duration::from_secs(2);
/// Time between two looks at the payment that was left.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The command line of `semel demo`.
#[derive(Debug, clap::Args)]
#[command(
    about = "See it work: a payment that is charged once, whatever happens",
    long_about = "Starts a gateway on a SQLite file and a small payment service behind it, and tells the story of a \
        payment: a lost answer, a changed amount, fifty duplicates at once, a service killed in the middle of \
        a charge. Each step shows the request, the answer, and how many charges the ledger counts. Then it \
        stays up for you: on its page you pay and give the service bad days, and one payment is left to be \
        settled in the console. It says at which addresses.\n\n\
        On a terminal it takes its time, so that it can be read: about a minute. `--fast` tells it at once, and so does a \
        file or a pipe.\n\n\
        The gateway and the page are at 127.0.0.1:8080, or where `--listen` says, console and metrics at :9090, and \
        the bare payment service at :8081; where a port is taken, it says which it uses instead. Everything is \
        kept in a temporary folder, which goes with the demo.",
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
    settings::with_secret()?;
    let settings = DemoSettings { once, listen, is_paced: !fast && std::io::stdout().is_terminal() };
    let folder = Folder::new()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let end = runtime.block_on(demo(&folder.0, &settings))?;
    runtime.shutdown_background();
    let removed = folder.remove();
    if end.is_stopped {
        // A terminal has just written `^C` on a line of its own.
        say(match removed {
            Ok(()) => "\nStopped; the folder is removed.".to_owned(),
            Err(error) => format!("\nStopped; the folder could not be removed: {error}"),
        });
    }
    Ok(if end.is_proven { CommandResult::Yes } else { CommandResult::No })
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

/// End of the demo.
struct DemoEnd {
    /// True if the ledger proved every claim.
    is_proven: bool,
    /// True if a signal ended the demo.
    is_stopped: bool,
}

/// Folder that is removed with the demo. Nobody else reads it, and nobody can have made it before.
struct Folder(PathBuf);

impl Folder {
    fn new() -> std::io::Result<Folder> {
        let chance = u32::from_be_bytes(semel_core::ids::secret()[..4].try_into().unwrap_or_default());
        let path = std::env::temp_dir().join(format!("semel-demo-{chance}"));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Folder(path))
    }

    /// Removes the folder now.
    fn remove(self) -> std::io::Result<()> {
        std::fs::remove_dir_all(&self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn demo(folder: &Path, settings: &DemoSettings) -> anyhow::Result<DemoEnd> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let port = free_or_any("the payment service", SERVICE_PORT)?.port();
    // A port that was free a moment ago may be taken now: then any port is used.
    let service = match ServiceProcess::start(folder, port).await {
        Ok(service) => service,
        Err(_) => ServiceProcess::start(folder, 0).await?,
    };
    let mut addresses = DemoAddresses {
        listen: match settings.listen {
            Some(address) => address,
            None => free_or_any("the gateway", GATEWAY_PORT)?,
        },
        admin_listen: free_or_any("its console", ADMIN_PORT)?,
        upstream: service.address,
    };
    let metrics = telemetry::metrics()?;
    let gateway = match start_gateway(folder, &addresses, metrics.clone()).await {
        Ok(gateway) => gateway,
        // A port that `--listen` names stays: if it is the one that is taken, this fails as well.
        Err(_) => {
            let listen = settings.listen.unwrap_or(loopback(0));
            addresses = DemoAddresses { listen, admin_listen: loopback(0), ..addresses };
            start_gateway(folder, &addresses, metrics).await?
        }
    };
    let mut story = story::Story::new(folder, gateway.address, service, settings.is_paced);
    let telling = async {
        let proven = story.tell().await?;
        let left = if settings.once { None } else { Some(story.leave_a_payment().await?) };
        anyhow::Ok((proven, left))
    };
    let told = tokio::select! {
        told = telling => Some(told?),
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
    };
    let Some((proven, Some(left))) = told else {
        gateway.shut_down(std::future::pending()).await;
        // A stopped story has proven nothing, which fails only `--once`.
        let is_proven = told.as_ref().map_or(!settings.once, |(proven, _)| *proven);
        return Ok(DemoEnd { is_proven, is_stopped: told.is_none() });
    };
    let mut service = story.into_service();
    let introduction = Introduction {
        gateway: gateway.address,
        admin: gateway.admin_address,
        service: service.address,
        left,
    };
    service.introduce(&introduction).await.context("the payment service cannot be told its addresses")?;
    say(invitation(&introduction, &StoreLocation::Sqlite(folder.join("semel.db"))));
    let up = async {
        tokio::try_join!(keep_up(folder, &mut service, &introduction), tell_when_settled(&introduction))
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        kept = up => { kept?; }
    }
    gateway.shut_down(std::future::pending()).await;
    Ok(DemoEnd { is_proven: proven, is_stopped: true })
}

async fn start_gateway(
    folder: &Path,
    addresses: &DemoAddresses,
    metrics: PrometheusHandle,
) -> anyhow::Result<Gateway> {
    let Loaded { config, rows, .. } = settings::load(folder, addresses)?;
    Gateway::start(&config, rows, metrics).await
}

/// Starts the service again whenever it has died, for ever.
async fn keep_up(
    folder: &Path,
    service: &mut ServiceProcess,
    introduction: &Introduction,
) -> anyhow::Result<()> {
    loop {
        service.ended().await?;
        tokio::time::sleep(DEAD_TIME).await;
        *service = ServiceProcess::start(folder, service.address.port()).await?;
        service.introduce(introduction).await?;
        say("The payment service had died, and is back.");
    }
}

/// Says when the payment that was left is settled.
async fn tell_when_settled(introduction: &Introduction) -> anyhow::Result<()> {
    let LeftPayment { operation_id, amount, .. } = &introduction.left;
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        // An answer that does not come now comes next time.
        match client::state_of(introduction.gateway, operation_id).await {
            Ok(state) if state != "unknown" => {
                let state = state.replace('_', " ");
                say(format!("The payment of {amount} that was left to you is settled now, as {state}."));
                return Ok(());
            }
            Ok(_) | Err(_) => {}
        }
    }
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

/// Returns the addresses to open after the story, and the commands to try.
fn invitation(introduction: &Introduction, store: &StoreLocation) -> String {
    let Introduction { gateway: clients, admin, service: bare, left } = introduction;
    let program = std::env::args().next().unwrap_or_else(|| "semel".to_owned());
    let LeftPayment { operation_id: id, amount, charge, body, .. } = left;
    format!(
        "Now you. Everything stays up until Ctrl-C. Open in a browser:\n\n  \
         http://{clients}/\n      \
         pay here, and give the service bad days\n  \
         http://{admin}/console/#/records/{id}\n      \
         settle this one: the service took {amount} (charge {charge} in the ledger), and died before it answered.\n      \
         It was executed, with status 201 and this body:\n      \
         {body}\n  \
         http://{admin}/console/#/unknown\n      \
         everything that waits to be settled\n\n\
         Or in another terminal:\n\n  \
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
