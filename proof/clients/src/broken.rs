//! Broken drivers: each makes one mistake that clients make, and the judge must find it.
//!
//! The run starts one as a process of this program, with the command line of a real driver. A driver without its mistake
//! would keep all rules.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::book::Number;
use crate::judge::Rule;
use crate::line::intent;
use crate::wire::Message;

/// Commands at a time, as in real drivers.
const SIDE_BY_SIDE: usize = 16;
/// Attempts of a command; fewer by a driver that gives up.
const ATTEMPTS: u64 = 30;
const FEW_ATTEMPTS: u64 = 3;
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(30);
/// Timeout of an attempt.
const PATIENCE: Duration = Duration::from_secs(10);

/// Mistake of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// A new key for each attempt.
    NewKeys,
    /// A journal that is cleared when a call ends, with or without an outcome.
    ClearsEarly,
    /// A lost answer is the outcome.
    FailsFinally,
    /// A call ends long before its attempts are used up.
    GivesUp,
}

impl Mistake {
    pub(crate) const ALL: [Mistake; 4] =
        [Mistake::NewKeys, Mistake::ClearsEarly, Mistake::FailsFinally, Mistake::GivesUp];

    /// Returns the name on the command line.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Mistake::NewKeys => "new-keys",
            Mistake::ClearsEarly => "clears-early",
            Mistake::FailsFinally => "fails-finally",
            Mistake::GivesUp => "gives-up",
        }
    }

    /// Returns the mistake of this name.
    pub(crate) fn of(name: &str) -> Option<Mistake> {
        Mistake::ALL.into_iter().find(|mistake| mistake.as_str() == name)
    }

    /// Returns the rules that it must be found to break.
    pub(crate) fn breaks(self) -> &'static [Rule] {
        match self {
            Mistake::NewKeys => &[Rule::OneEffect, Rule::OneKey],
            Mistake::ClearsEarly => &[Rule::Journal],
            Mistake::FailsFinally => &[Rule::OwnOutcome],
            Mistake::GivesUp => &[Rule::NotTooEarly],
        }
    }
}

/// Result of a call: the outcome, its status and body, and the attempts.
struct Called {
    outcome: &'static str,
    answer: Option<Message>,
    attempts: u64,
}

/// Sends the commands, writes the journal when all are done, and returns the output.
///
/// # Errors
/// Says why the journal cannot be written.
pub(crate) async fn drive(
    mistake: Mistake,
    origin: &str,
    path: &str,
    count: Number,
    journal: &Path,
) -> Result<String, String> {
    let address = origin.trim_start_matches("http://").to_owned();
    let places = Arc::new(Semaphore::new(SIDE_BY_SIDE));
    let mut calls = Vec::new();
    for number in 0..count {
        let (address, path, places) = (address.clone(), path.to_owned(), places.clone());
        calls.push(tokio::spawn(async move {
            let _place = places.acquire().await;
            call(mistake, &address, &path, number).await
        }));
    }
    let (mut printed, mut lines, mut pending) = (String::new(), String::new(), Vec::new());
    for (number, call) in (0..).zip(calls) {
        let Called { outcome, answer, attempts } = call.await.map_err(|error| error.to_string())?;
        let line = json!({
            "n": number,
            "outcome": outcome,
            "status": answer.as_ref().map(Message::status),
            "replayed": answer.as_ref().map(|answer| answer.field("idempotency-replayed").is_some()),
            "attempts": attempts,
            "stopped": (outcome == "unresolved").then_some("attempts"),
            "body": answer.map(|answer| String::from_utf8_lossy(&answer.body).into_owned()),
        });
        writeln!(printed, "{line}").map_err(|error| error.to_string())?;
        let is_kept = outcome != "final" && mistake != Mistake::ClearsEarly;
        if is_kept {
            pending.push(intent(number));
            writeln!(lines, "{}", json!({"begin": {"intent": intent(number)}}))
                .map_err(|error| error.to_string())?;
        }
    }
    std::fs::write(journal, lines).map_err(|error| format!("{}: {error}", journal.display()))?;
    Ok(printed + &format!("{}\n", json!({"pending": pending})))
}

async fn call(mistake: Mistake, address: &str, path: &str, number: Number) -> Called {
    let most = if mistake == Mistake::GivesUp { FEW_ATTEMPTS } else { ATTEMPTS };
    let mut key = new_key();
    for attempts in 1..=most {
        if mistake == Mistake::NewKeys {
            key = new_key();
        }
        let answer = tokio::time::timeout(PATIENCE, attempt(address, path, &key, number)).await;
        let answer = answer.ok().and_then(Result::ok).flatten();
        if let Some(answer) = answer {
            let advice = answer.field("idempotency-retry");
            let is_own = answer.field("idempotency-operation-id").is_some() && advice.is_none();
            if is_own {
                return Called { outcome: "final", answer: Some(answer), attempts };
            }
            if advice == Some("poll") {
                return Called { outcome: "unknown", answer: None, attempts };
            }
            if mistake == Mistake::FailsFinally && answer.status() >= 500 {
                return Called { outcome: "final", answer: Some(answer), attempts };
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    Called { outcome: "unresolved", answer: None, attempts: most }
}

async fn attempt(address: &str, path: &str, key: &str, number: Number) -> std::io::Result<Option<Message>> {
    let mut server = BufReader::new(TcpStream::connect(address).await?);
    let body = json!({"n": number}).to_string().into_bytes();
    let fields = [
        ("host", address),
        ("content-type", "application/json"),
        ("idempotency-key", key),
        ("content-length", &body.len().to_string()),
    ];
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let request = Message { first: format!("POST {path} HTTP/1.1"), fields, body };
    server.write_all(&request.to_bytes()).await?;
    Message::read(&mut server).await
}

fn new_key() -> String {
    let secret: String = semel_core::ids::secret().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{secret}\"")
}
