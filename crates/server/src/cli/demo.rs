//! `semel demo`: the story of a payment on the terminal, with a real gateway, a real service behind it, and a
//! ledger that counts real charges.
//!
//! The service runs in a process of its own, so that it can really be killed. Every claim that the demo makes is
//! checked against the ledger; `--once` exits with 0 only if all of them held.

mod client;
mod service;
mod story;

use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::{Done, say};
use crate::config::{Config, StoreLocation};
use crate::gateway::Gateway;
use crate::telemetry;

pub(super) use service::{command as service_command, run as run_service};

pub(super) fn command() -> Command {
    Command::new("demo")
        .about("See it work: a payment that is charged once, whatever happens")
        .long_about(
            "Starts a gateway on a SQLite file and a small payment service behind it, and tells the story of a \
             payment: a lost answer, a changed amount, fifty duplicates at once, a service killed in the middle of \
             a charge. Each step shows the request, the answer, and how many charges the ledger counts. Then it \
             stays up for you to try.",
        )
        .arg(
            Arg::new("once")
                .long("once")
                .action(ArgAction::SetTrue)
                .help("Exit after the story; 0 only if the ledger proves every claim"),
        )
}

pub(super) fn run(matches: &ArgMatches) -> anyhow::Result<Done> {
    let once = matches.get_flag("once");
    let folder = Folder::new()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let proven = runtime.block_on(demo(&folder.0, once))?;
    runtime.shutdown_background();
    Ok(if proven { Done::Yes } else { Done::No })
}

/// A folder that goes with the demo.
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

async fn demo(folder: &Path, once: bool) -> anyhow::Result<bool> {
    let service = service::Service::start(folder, 0)?;
    let config = config(folder, &service)?;
    let gateway = start(&config).await?;
    let mut story = story::Story::new(folder, gateway.address, service);
    let proven = story.tell().await?;
    if once {
        gateway.shut_down().await;
        return Ok(proven);
    }
    let pay = format!("curl -si http://{}/payments -H 'Content-Type: application/json'", gateway.address);
    say("Now you. The gateway and the service stay up until Ctrl-C:");
    say(format!("\n  {pay} -H 'Idempotency-Key: my-own-payment-0001' -d '{{\"amount\": 5}}'"));
    say("\nSend it twice; change the amount; leave the key out. The ledger, and the metrics:");
    say(format!("\n  curl -s http://{}/ledger", gateway.address));
    say(format!("  curl -s http://{}/metrics", gateway.admin_address));
    tokio::signal::ctrl_c().await?;
    gateway.shut_down().await;
    Ok(proven)
}

fn config(folder: &Path, service: &service::Service) -> anyhow::Result<Config> {
    let any = |port| std::net::SocketAddr::from(([127, 0, 0, 1], port));
    Ok(Config {
        listen: any(8080),
        admin_listen: any(9090),
        upstream: format!("http://{}", service.address).parse()?,
        store: StoreLocation::Sqlite(folder.join("semel.db")),
        ..Config::default()
    })
}

/// On the usual ports if they are free, else on any.
async fn start(config: &Config) -> anyhow::Result<Gateway> {
    let metrics = telemetry::metrics()?;
    match Gateway::start(config, metrics.clone()).await {
        Ok(gateway) => Ok(gateway),
        Err(_) => {
            let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
            let config = Config { listen: any, admin_listen: any, ..config.clone() };
            Gateway::start(&config, metrics).await
        }
    }
}
