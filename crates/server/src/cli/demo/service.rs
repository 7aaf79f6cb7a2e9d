//! Payment service of the demo, in its own process: every charge is a line in a ledger, written to disk
//! before anything else happens. It has a page, `GET /`, on which a person pays and gives it bad days.

mod events;
mod page;
mod pay;
mod shop;
mod switches;
mod visitors;

use std::io::{BufRead, ErrorKind, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::middleware;
use axum::routing::{get, post, put};
use tokio::net::TcpListener;

use self::shop::Shop;
use super::PATIENCE;
use super::introduction::Introduction;
use super::ledger::ChargeLedger;
use crate::cli::{CommandResult, say};

pub(super) use pay::STORY_DAY;

/// Largest body of a request in bytes.
const MAX_BODY: usize = 16 * 1024;
/// Most bytes of the introduction.
const MAX_INTRODUCTION: u64 = 4096;

// The command line of the hidden `semel demo-service`. A doc comment would become its help.
#[derive(Debug, clap::Args)]
pub(crate) struct ServiceArgs {
    #[arg(long)]
    port: u16,
    #[arg(long)]
    ledger: PathBuf,
}

pub(crate) fn run(args: &ServiceArgs) -> anyhow::Result<CommandResult> {
    let shop = Arc::new(Shop::new(ChargeLedger::at(&args.ledger)));
    let port = args.port;
    let introduced = shop.clone();
    std::thread::spawn(move || listen_to_the_demo(&introduced));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = bind(port).await?;
        say(listener.local_addr()?);
        axum::serve(listener, router(shop)).await?;
        Ok(CommandResult::Yes)
    })
}

/// Reads the introduction, and ends this process with its standard input.
fn listen_to_the_demo(shop: &Shop) {
    let mut line = String::new();
    let mut input = std::io::stdin().lock();
    if (&mut input).take(MAX_INTRODUCTION).read_line(&mut line).is_ok()
        && let Some(introduction) = Introduction::parse(&line)
    {
        shop.introduce(introduction);
    }
    let _ = std::io::copy(&mut input, &mut std::io::sink());
    std::process::exit(0);
}

fn router(shop: Arc<Shop>) -> Router {
    Router::new()
        .route("/", get(page::show))
        .route("/demo/style.css", get(page::style))
        .route("/demo/script.js", get(page::script))
        .route("/demo/base.js", get(page::base))
        .route("/demo/left.js", get(page::left))
        .route("/demo/words.js", get(page::words))
        .route("/demo/icon.svg", get(page::icon))
        .route("/demo/state", get(page::state))
        .route("/demo/switches", put(page::switches))
        .route("/payments", post(pay::pay))
        .route("/ledger", get(async |State(shop): State<Arc<Shop>>| shop.ledger.lines()))
        .route("/ledger/count", get(async |State(shop): State<Arc<Shop>>| shop.ledger.count().to_string()))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn(visitors::check))
        .with_state(shop)
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
