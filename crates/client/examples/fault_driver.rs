//! Sends many commands, for a test with a fault proxy in front of a real server.
//!
//! `fault_driver ORIGIN PATH COUNT JOURNAL` sends commands with the bodies `{"n": 0}`, `{"n": 1}` and so on, each with
//! the intent `command N`, sixteen at a time. It prints a line of JSON for each: `n`, `outcome` (`final`, `unknown`,
//! `accepted`, `unresolved` or `error:KIND`), `status`, `replayed`, `attempts`, `stopped`, `body`. The last line has
//! `pending`: the intents that the journal still has.

use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use semel_client::{
    CallError, ClientCommand, ClientOptions, CommandClient, CommandOutcome, CommandResponse, SqliteJournal,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

const SIDE_BY_SIDE: usize = 16;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [origin, path, count, journal] = &arguments[..] else {
        return Err("use: fault_driver ORIGIN PATH COUNT JOURNAL".into());
    };
    let mut options = ClientOptions::default();
    options.base = Duration::from_millis(10);
    options.deadline = Duration::from_secs(60);
    options.attempts = 30;
    options.budget_tokens = 1_000_000;
    let client = CommandClient::builder([origin])
        .options(options)
        .journal(SqliteJournal::new(journal))
        .http(reqwest::Client::builder().no_proxy())
        .build()?;
    let places = Arc::new(Semaphore::new(SIDE_BY_SIDE));
    let commands = (0..count.parse::<u64>()?).map(|number| {
        let (client, places, url) = (client.clone(), Arc::clone(&places), format!("{origin}{path}"));
        tokio::spawn(async move {
            let _place = places.acquire_owned().await;
            let command = ClientCommand::post(url).json(&json!({"n": number}));
            shown(number, &client.send(command.intent(format!("command {number}"))).await)
        })
    });
    let mut output = std::io::stdout();
    for command in commands.collect::<Vec<_>>() {
        writeln!(output, "{}", command.await?)?;
    }
    let pending: Vec<_> = client.pending().await?.into_iter().map(|entry| entry.intent).collect();
    writeln!(output, "{}", json!({"pending": pending}))?;
    Ok(())
}

/// Returns the line of a command.
fn shown(number: u64, ended: &Result<CommandOutcome, CallError>) -> Value {
    let outcome =
        ended.as_ref().map_or_else(|error| format!("error:{}", error.kind()), |done| done.kind().into());
    let (mut replayed, mut stopped, mut attempts) =
        (None, None, ended.as_ref().ok().map(CommandOutcome::attempts));
    let mut response: Option<&CommandResponse> = None;
    match ended {
        Ok(CommandOutcome::Final { response: answer, replayed: again, .. }) => {
            response = Some(answer);
            replayed = Some(*again);
        }
        Ok(CommandOutcome::Unresolved { stopped: reason, .. }) => stopped = Some(reason.as_str()),
        Err(CallError::NotExecuted { attempts: made, stopped: reason, .. }) => {
            attempts = Some(*made);
            stopped = Some(reason.as_str());
        }
        Err(error) => response = error.answer().map(|answer| &answer.response),
        Ok(CommandOutcome::Unknown { .. } | CommandOutcome::Accepted { .. }) => {}
    }
    json!({
        "n": number,
        "outcome": outcome,
        "replayed": replayed,
        "attempts": attempts,
        "stopped": stopped,
        "status": response.map(|response| response.status().as_u16()),
        "body": response.map(CommandResponse::text),
    })
}
