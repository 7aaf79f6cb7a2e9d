//! The payment provider as a program: `provider --ledger FILE`. Its code is in `src/provider`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};
use payments::provider::{Endpoint, Options, Provider, Switches};

fn command() -> Command {
    let file = Arg::new("ledger")
        .long("ledger")
        .value_name("FILE")
        .required(true)
        .value_parser(value_parser!(PathBuf))
        .help("The SQLite file with all charges; made if it is not there");
    let listen = Arg::new("listen")
        .long("listen")
        .value_name("ADDRESS")
        .default_value("127.0.0.1:0")
        .value_parser(value_parser!(SocketAddr))
        .help("Where to listen; port 0 takes a free one, and the first line of output says which");
    let url = Arg::new("webhook-url").long("webhook-url").value_name("URL").requires("webhook-secret").help(
        "Where events are sent: http://HOST:PORT/PATH; kept in the ledger, and PUT /webhook changes it",
    );
    let secret = Arg::new("webhook-secret")
        .long("webhook-secret")
        .value_name("TEXT")
        .requires("webhook-url")
        .help("The key that signs events");
    let switches = Arg::new("switches")
        .long("switches")
        .value_name("JSON")
        .default_value("{}")
        .help("The bad days to begin with, such as '{\"drop_response\": 1}'; PUT /switches changes them");
    Command::new("provider")
        .about(
            "A payment provider with good days and bad days. It takes no money; never send it a real card.",
        )
        .args([file, listen, url, secret, switches])
}

fn options(matches: &mut ArgMatches) -> Result<Options, String> {
    let text = matches.remove_one::<String>("switches").unwrap_or_default();
    let switches = Switches::from_json(&text).map_err(|why| format!("--switches: {why}"))?;
    let url = matches.remove_one::<String>("webhook-url");
    let webhook = match url.zip(matches.remove_one("webhook-secret")) {
        Some((url, secret)) => {
            Some(Endpoint::new(url, secret).map_err(|why| format!("--webhook-url: {why}"))?)
        }
        None => None,
    };
    let ledger = matches.remove_one("ledger").ok_or("--ledger is missing")?;
    Ok(Options { ledger, webhook, switches })
}

async fn run() -> Result<(), String> {
    let mut matches = command().get_matches();
    let address: SocketAddr = matches.remove_one("listen").ok_or("--listen is missing")?;
    let provider = Provider::open(options(&mut matches)?).await?;
    let listener = tokio::net::TcpListener::bind(address);
    let listener = listener.await.map_err(|error| format!("cannot listen on {address}: {error}"))?;
    announce(listener.local_addr().map_err(|error| error.to_string())?);
    // Until it is killed, which is safe at any time: all that matters is in the ledger.
    provider.serve(listener).await;
    Ok(())
}

#[allow(clippy::print_stdout, reason = "whoever starts it must learn the port")]
fn announce(address: SocketAddr) {
    println!("listening on {address}");
}

#[tokio::main]
#[allow(clippy::print_stderr, reason = "a command line talks to people")]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("provider: {why}");
            ExitCode::FAILURE
        }
    }
}
