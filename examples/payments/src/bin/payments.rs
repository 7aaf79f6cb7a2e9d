//! The payment service as a program: `payments --provider URL`. Its code is in `src/service`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};
use payments::service::{Address, Options, Place, Service, listen};

/// Place of the worker that charges.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// This process serves and works.
    On,
    /// Another process works.
    Off,
    /// This process only works.
    Only,
}

fn command() -> Command {
    let duration = |name: &'static str, default: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("TIME")
            .default_value(default)
            .value_parser(|text: &str| duration(text).ok_or("write it as 500ms, 30s, 5m or 24h"))
    };
    let args = [
        Arg::new("store")
            .long("store")
            .value_name("FILE")
            .default_value("payments.db")
            .value_parser(value_parser!(PathBuf))
            .help(
                "The SQLite file with everything; if DATABASE_URL is set, that PostgreSQL database instead",
            ),
        Arg::new("listen")
            .long("listen")
            .value_name("ADDRESS")
            .default_value("127.0.0.1:0")
            .value_parser(value_parser!(SocketAddr))
            .help("Where to listen; port 0 takes a free one, and the first line of output says which"),
        Arg::new("provider")
            .long("provider")
            .value_name("URL")
            .required(true)
            .value_parser(value_parser!(Address))
            .help("Who charges: http://HOST:PORT"),
        Arg::new("webhook-secret").long("webhook-secret").value_name("TEXT").help(
            "The key that the provider signs its webhooks with, 16 bytes or more; without it none is taken",
        ),
        Arg::new("worker")
            .long("worker")
            .value_name("WHERE")
            .default_value("on")
            .value_parser(["on", "off", "only"])
            .help("Whether this process charges what was ordered: on, off, or only that and nothing else"),
        duration("ttl", "24h").help("How long a key is remembered once its payment is settled"),
        duration("patience", "1m")
            .help("How long a payment may wait for the provider before it is called unknown"),
        duration("timeout", "2s").help("How long one call of the provider may take"),
    ];
    Command::new("payments").about("A payment service that charges once, whatever happens.").args(args)
}

fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|character: char| !character.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok().filter(|number| (1..=1_000_000).contains(number))?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number * 60)),
        "h" => Some(Duration::from_secs(number * 3600)),
        _ => None,
    }
}

fn options(matches: &mut ArgMatches) -> Result<Options, String> {
    let file: PathBuf = matches.remove_one("store").ok_or("--store is missing")?;
    Ok(Options {
        place: match std::env::var("DATABASE_URL") {
            Ok(url) => Place::Postgres(url),
            Err(_) => Place::Sqlite(file),
        },
        provider: matches.remove_one("provider").ok_or("--provider is missing")?,
        webhook_secret: matches.remove_one("webhook-secret"),
        ttl: matches.remove_one("ttl").ok_or("--ttl is missing")?,
        patience: matches.remove_one("patience").ok_or("--patience is missing")?,
        timeout: matches.remove_one("timeout").ok_or("--timeout is missing")?,
    })
}

async fn run() -> Result<(), String> {
    let mut matches = command().get_matches();
    let address: SocketAddr = matches.remove_one("listen").ok_or("--listen is missing")?;
    let work = match matches.remove_one::<String>("worker").as_deref() {
        Some("off") => Work::Off,
        Some("only") => Work::Only,
        _ => Work::On,
    };
    let service = Service::open(options(&mut matches)?).await?;
    let listener = if work == Work::Only { None } else { Some(listen(address).await?) };
    match &listener {
        Some(listener) => {
            let address = listener.local_addr().map_err(|error| error.to_string())?;
            announce(&format!("listening on {address}"));
        }
        None => announce("working"),
    }
    let working = (work != Work::Off).then(|| service.work());
    // Ctrl-C: accept nothing new, let running work end, then stop. It may be killed as well.
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    match listener {
        Some(listener) => service.serve(listener, stop).await?,
        None => stop.await,
    }
    if let Some(working) = working {
        working.stop().await;
    }
    Ok(())
}

#[allow(clippy::print_stdout, reason = "whoever starts it must learn the port")]
fn announce(line: &str) {
    println!("{line}");
}

#[tokio::main]
#[allow(clippy::print_stderr, reason = "a command line talks to people")]
async fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(is_terminal)
        .init();
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("payments: {why}");
            ExitCode::FAILURE
        }
    }
}
