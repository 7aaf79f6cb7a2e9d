//! A client that pays an invoice once, however often it is started: `pay --invoice 4711 --amount 1200`.
//!
//! Its journal has the key on the disk before the first attempt. Kill it at any time, and start it again.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};
use semel_client::{ClientCommand, CommandClient, CommandOutcome, FileJournal};
use serde_json::json;

fn command() -> Command {
    let args = [
        Arg::new("service")
            .long("service")
            .value_name("ORIGIN")
            .default_value("http://127.0.0.1:3000")
            .help("The payment service: http://HOST:PORT"),
        Arg::new("journal")
            .long("journal")
            .value_name("FILE")
            .default_value("pay.journal")
            .value_parser(value_parser!(PathBuf))
            .help("The file with the keys of payments whose outcome is not known"),
        Arg::new("user").long("user").default_value("alice").help("The user who pays"),
        Arg::new("card").long("card").default_value("4242424242424242").help("The card to charge"),
        Arg::new("invoice").long("invoice").required(true).help("The invoice to pay"),
        Arg::new("amount")
            .long("amount")
            .required(true)
            .value_parser(value_parser!(u64))
            .help("The amount in cents"),
    ];
    Command::new("pay").about("Pays an invoice once, however often it is started.").args(args)
}

async fn run(matches: &ArgMatches) -> Result<String, Box<dyn std::error::Error>> {
    let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    let journal = matches.get_one::<PathBuf>("journal").cloned().unwrap_or_default();
    let (service, user, invoice) = (text("service"), text("user"), text("invoice"));
    let client =
        CommandClient::builder([&service]).journal(FileJournal::new(journal)).caller(&user).build()?;
    let amount = matches.get_one::<u64>("amount").copied().unwrap_or_default();
    let payment = ClientCommand::post(format!("{service}/payments"))
        .header("X-User", &user)
        .json(&json!({"amount": amount, "currency": "EUR", "card": text("card"), "reference": invoice}));
    let intent = format!("invoice {invoice} of {user}");
    let is_pending = client.pending().await?.iter().any(|entry| entry.intent == intent);
    let outcome = match is_pending {
        true => client.resume(&intent, payment).await?,
        // The intent is forgotten once its outcome is known: the key is derived, so that the record answers then.
        false => client.send(payment.key(format!("payment of {intent}")).intent(intent)).await?,
    };
    Ok(match outcome {
        CommandOutcome::Final { response, replayed, .. } => {
            let again = if replayed { ", as before" } else { "" };
            format!("{}{again}: {}", response.status(), response.text())
        }
        CommandOutcome::Unknown { operation, .. } | CommandOutcome::Accepted { operation, .. } => {
            format!("not known yet, start me again: {}", operation.url())
        }
        CommandOutcome::Unresolved { stopped, .. } => {
            format!("it may have been paid, start me again: {}", stopped.as_str())
        }
    })
}

#[tokio::main]
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line talks to people")]
async fn main() -> ExitCode {
    match run(&command().get_matches()).await {
        Ok(end) => {
            println!("{end}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("pay: {error}");
            ExitCode::FAILURE
        }
    }
}
