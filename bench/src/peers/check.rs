//! Trials of a peer's responses: seven, each on a fresh store, each recording its observations.
//!
//! A trial records and does not judge. It waits for progress that the peer shows (`/count`, `/inserted`), never for a
//! fixed time, except for the end of a lease. Truth is the table of payments: two rows under one key are a payment that
//! was made twice.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use semel_testkit::postgres::Cluster;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::client::{ALICE, Answer, BOB, BODY, Client};
use super::place::Place;
use super::process::{Running, Settings};
use super::{Error, Installed};

const KEYS: usize = 20;
const DUPLICATES: usize = 50;
/// Duration of the handler while duplicates come, so that they overlap.
const OVERLAP: Duration = Duration::from_millis(50);
/// Lease in trials where it ends.
const LEASE: Duration = Duration::from_secs(1);
/// Time by which such a lease has ended, for any rounding.
const AFTER_LEASE: Duration = Duration::from_millis(2500);
/// Duration of a handler that outlasts the lease.
const SLOW: Duration = Duration::from_secs(5);
/// Duration of a handler that is killed before it ends.
const ENDLESS: Duration = Duration::from_secs(600);
/// Time after which a client gives up its retries.
const RETRIES: Duration = Duration::from_secs(12);
const PAUSE: Duration = Duration::from_millis(250);
/// Timeout for the handler to reach a step.
const ARRIVING: Duration = Duration::from_secs(20);
const OTHER_BODY: &str = r#"{"amount": 999, "currency": "EUR"}"#;

/// Result of a trial.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Tried<T> {
    /// Observation of the trial.
    Seen(T),
    /// Reason why the trial was not possible, or makes no sense here.
    Not(String),
}

/// Result of `semel verify`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verified {
    /// Profile of expected status codes.
    pub profile: String,
    /// Broken rules of the level *must*.
    pub must_broken: Vec<String>,
    /// Rules of the level *must* that could not be judged.
    pub must_not_tried: Vec<String>,
    /// Broken rules of the level *should*.
    pub should_broken: Vec<String>,
    /// Number of rules that hold.
    pub hold: usize,
    /// Reasons for each broken rule, in the words of `semel verify`.
    pub why: BTreeMap<String, String>,
}

/// Result of fifty concurrent requests under one key, twenty times.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Duplicates {
    /// Number of keys.
    pub keys: usize,
    /// Number of requests under each key.
    pub requests_each: usize,
    /// Number of rows; one for each key is correct.
    pub rows: i64,
    /// Number of keys with more than one row.
    pub keys_run_again: usize,
    /// Number of successful responses that name another payment than the first of their key.
    pub differing: usize,
    /// Number of responses by status; `none` counts requests without a response.
    pub statuses: BTreeMap<String, usize>,
}

/// Observed fate of one key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fate {
    /// Number of rows under the key.
    pub rows: i64,
    /// Response to the first request.
    pub first: String,
    /// Responses to the retries, without repeats.
    pub retries: Vec<String>,
    /// True if the client was told that the outcome is unknown.
    pub told_unknown: bool,
}

/// Result of another request under a used key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Second {
    /// Response to that request.
    pub answer: String,
    /// True if the response names the first request's payment.
    pub got_the_first: bool,
    /// Number of runs of the handler for both requests.
    pub runs: u64,
}

/// All findings about a peer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Findings {
    /// Rules of `semel verify`.
    pub verify: Tried<Verified>,
    /// Concurrent duplicates.
    pub duplicates: Tried<Duplicates>,
    /// The server is killed inside the handler, before its INSERT; then a retry.
    pub killed_before: Tried<Fate>,
    /// The server is killed inside the handler, after its INSERT; then a retry.
    pub killed_after: Tried<Fate>,
    /// The handler outlasts the lease; a retry meanwhile.
    pub slow: Tried<Fate>,
    /// The process is stopped for longer than the lease; a retry at a second process meanwhile.
    pub paused: Tried<Fate>,
    /// Server and store are killed after the response and started again; then a retry.
    pub store_killed: Tried<Fate>,
    /// Another payload under a used key.
    pub other_payload: Tried<Second>,
    /// Another caller with the same key and payload.
    pub other_caller: Tried<Second>,
}

/// Tries one peer. `semel` is the program with the command `verify`.
pub async fn check(installed: &Installed, semel: &Path) -> Result<Findings, Error> {
    // The trial has its own cluster, since one of the trials kills it.
    let cluster = tokio::task::block_in_place(Cluster::start)?;
    let trial = Trial { installed, cluster: &cluster };
    Ok(Findings {
        verify: seen(trial.verify(semel).await),
        duplicates: seen(trial.duplicates().await),
        killed_before: seen(trial.killed(Point::BeforeInsert).await),
        killed_after: seen(trial.killed(Point::AfterInsert).await),
        slow: seen(trial.slow().await),
        paused: if installed.peer.store.is_shared() {
            seen(trial.paused().await)
        } else {
            Tried::Not("processes do not share what they remember".into())
        },
        store_killed: seen(trial.store_killed().await),
        other_payload: seen(trial.second(ALICE, OTHER_BODY).await),
        other_caller: seen(trial.second(BOB, BODY).await),
    })
}

fn seen<T>(result: Result<T, Error>) -> Tried<T> {
    match result {
        Ok(value) => Tried::Seen(value),
        Err(error) => Tried::Not(error.to_string()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Point {
    BeforeInsert,
    AfterInsert,
}

struct Trial<'a> {
    installed: &'a Installed,
    cluster: &'a Cluster,
}

impl Trial<'_> {
    async fn place(&self) -> Result<Place, Error> {
        Place::prepare(self.cluster, &self.installed.peer).await
    }

    async fn start(&self, place: &Place, settings: &Settings) -> Result<(Running, Client), Error> {
        let running = self.installed.start(place, settings).await?;
        let client = Client::new(running.address());
        Ok((running, client))
    }

    async fn verify(&self, semel: &Path) -> Result<Verified, Error> {
        let place = self.place().await?;
        let (running, _) = self.start(&place, &Settings::default()).await?;
        let body = place.folder().join("payment.json");
        std::fs::write(&body, BODY)?;
        let url = format!("http://{}", running.address());
        let mut command = Command::new(semel);
        command.arg("verify").args([
            "--url",
            &format!("{url}/payments"),
            "--count-url",
            &format!("{url}/count"),
        ]);
        command.args(["--header", &format!("Authorization: {ALICE}")]);
        command.args(["--other-header", &format!("Authorization: {BOB}")]);
        command.args(["--profile", &self.installed.peer.profile, "--json", "--body"]).arg(&body);
        let output = command.kill_on_drop(true).output().await?;
        running.stop().await?;
        // Exit code 1 means a broken rule, 2 a rule that could not be tried.
        if !matches!(output.status.code(), Some(0 | 1)) {
            return Err(format!("semel verify: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
        }
        read_verify(&output.stdout)
    }

    async fn duplicates(&self) -> Result<Duplicates, Error> {
        let place = self.place().await?;
        let (running, client) =
            self.start(&place, &Settings { before: OVERLAP, ..Settings::default() }).await?;
        let mut found = Duplicates {
            keys: KEYS,
            requests_each: DUPLICATES,
            rows: 0,
            keys_run_again: 0,
            differing: 0,
            statuses: BTreeMap::new(),
        };
        for _ in 0..KEYS {
            let key = fresh_key();
            let sent: Vec<_> = (0..DUPLICATES)
                .map(|_| {
                    let key = key.clone();
                    tokio::spawn(async move { client.pay(&key, ALICE, BODY).await })
                })
                .collect();
            let mut payments = Vec::new();
            for answer in sent {
                let answer = answer.await?;
                let status =
                    answer.as_ref().map_or("none".into(), |answer| answer.status.as_u16().to_string());
                *found.statuses.entry(status).or_default() += 1;
                payments.extend(answer.ok().and_then(|answer| answer.payment()));
            }
            found.differing += payments.iter().filter(|payment| Some(*payment) != payments.first()).count();
            let rows = place.rows(&key).await?;
            found.rows += rows;
            found.keys_run_again += usize::from(rows > 1);
        }
        running.stop().await?;
        Ok(found)
    }

    async fn killed(&self, point: Point) -> Result<Fate, Error> {
        let place = self.place().await?;
        let patient = Settings { lease: Some(LEASE), ..Settings::default() };
        let (settings, counter) = match point {
            Point::BeforeInsert => (Settings { before: ENDLESS, ..patient.clone() }, "/count"),
            Point::AfterInsert => (Settings { after: ENDLESS, ..patient.clone() }, "/inserted"),
        };
        let (running, client) = self.start(&place, &settings).await?;
        let key = fresh_key();
        let first = send(client, &key);
        arrive(client, counter).await?;
        running.kill().await?;
        let first = words(&first.await?);
        let (running, client) = self.start(&place, &patient).await?;
        let (retries, told_unknown) = retry(client, &key).await;
        let fate = Fate { rows: place.rows(&key).await?, first, retries, told_unknown };
        running.stop().await?;
        Ok(fate)
    }

    async fn slow(&self) -> Result<Fate, Error> {
        let place = self.place().await?;
        let settings = Settings { before: SLOW, lease: Some(LEASE), ..Settings::default() };
        let (running, client) = self.start(&place, &settings).await?;
        let key = fresh_key();
        let first = send(client, &key);
        arrive(client, "/count").await?;
        tokio::time::sleep(AFTER_LEASE).await;
        if client.number("/inserted").await? != 0 {
            return Err("the handler had ended before the retry was sent".into());
        }
        let second = send(client, &key).await?;
        let first = first.await?;
        let told_unknown = [&first, &second].into_iter().flatten().any(Answer::says_unknown);
        let fate = Fate {
            rows: place.rows(&key).await?,
            first: words(&first),
            retries: vec![words(&second)],
            told_unknown,
        };
        running.stop().await?;
        Ok(fate)
    }

    async fn paused(&self) -> Result<Fate, Error> {
        let place = self.place().await?;
        let settings = Settings { before: SLOW, lease: Some(LEASE), ..Settings::default() };
        let (one, client) = self.start(&place, &settings).await?;
        let other = Settings { before: Duration::ZERO, instance: 2, ..settings.clone() };
        let (two, other) = self.start(&place, &other).await?;
        let key = fresh_key();
        let first = send(client, &key);
        arrive(client, "/count").await?;
        one.pause()?;
        tokio::time::sleep(AFTER_LEASE).await;
        if place.rows(&key).await? != 0 {
            return Err("the handler had ended before its process stood still".into());
        }
        let (retries, told_unknown) = retry(other, &key).await;
        one.resume()?;
        let first = words(&first.await?);
        let fate = Fate { rows: place.rows(&key).await?, first, retries, told_unknown };
        one.stop().await?;
        two.stop().await?;
        Ok(fate)
    }

    async fn store_killed(&self) -> Result<Fate, Error> {
        let mut place = self.place().await?;
        let (running, client) = self.start(&place, &Settings::default()).await?;
        let key = fresh_key();
        let first = words(&client.pay(&key, ALICE, BODY).await);
        running.kill().await?;
        place.lose_power(self.cluster, self.installed.peer.store).await?;
        let (running, client) = self.start(&place, &Settings::default()).await?;
        let (retries, told_unknown) = retry(client, &key).await;
        let fate = Fate { rows: place.rows(&key).await?, first, retries, told_unknown };
        running.stop().await?;
        Ok(fate)
    }

    async fn second(&self, caller: &str, body: &str) -> Result<Second, Error> {
        let place = self.place().await?;
        let (running, client) = self.start(&place, &Settings::default()).await?;
        let key = fresh_key();
        let first = client.pay(&key, ALICE, BODY).await?;
        let second = client.pay(&key, caller, body).await;
        let payment = second.as_ref().ok().and_then(Answer::payment);
        let found = Second {
            answer: words(&second),
            got_the_first: payment.is_some() && payment == first.payment(),
            runs: client.number("/count").await?,
        };
        running.stop().await?;
        Ok(found)
    }
}

fn send(client: Client, key: &str) -> tokio::task::JoinHandle<Result<Answer, Error>> {
    let key = key.to_owned();
    tokio::spawn(async move { client.pay(&key, ALICE, BODY).await })
}

/// Waits until the handler has reached the step that `counter` counts.
async fn arrive(client: Client, counter: &str) -> Result<(), Error> {
    let deadline = tokio::time::Instant::now() + ARRIVING;
    while client.number(counter).await? == 0 {
        if tokio::time::Instant::now() > deadline {
            return Err(format!("{counter} was still 0 after {} s", ARRIVING.as_secs()).into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Retries like a client: until there is a payment, or a response that rules out further retries, or it gives up.
/// Returns the responses, without repeats, and true if one says that the outcome is unknown.
async fn retry(client: Client, key: &str) -> (Vec<String>, bool) {
    let deadline = tokio::time::Instant::now() + RETRIES;
    let mut told: Vec<String> = Vec::new();
    loop {
        let answer = tokio::time::timeout(RETRIES, client.pay(key, ALICE, BODY))
            .await
            .unwrap_or_else(|_| Err("no answer".into()));
        let said = words(&answer);
        if told.last() != Some(&said) {
            told.push(said);
        }
        if let Ok(answer) = &answer {
            if answer.says_unknown() {
                return (told, true);
            }
            let again = matches!(answer.status.as_u16(), 409 | 425 | 429) || answer.status.is_server_error();
            if !again {
                return (told, false);
            }
        }
        if tokio::time::Instant::now() > deadline {
            told.push(format!("given up after {} s", RETRIES.as_secs()));
            return (told, false);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn words(answer: &Result<Answer, Error>) -> String {
    match answer {
        Ok(answer) => {
            let marks = ["idempotency-replayed", "idempotent-replayed"];
            let replayed = marks.iter().any(|mark| answer.headers.contains_key(*mark));
            format!("{}{}", answer.words(), if replayed { " replayed" } else { "" })
        }
        Err(_) => "no answer".into(),
    }
}

/// Returns a version 4 UUID, which every peer accepts as a key.
fn fresh_key() -> String {
    let random = semel_core::ids::secret();
    let hex: String = random[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
}

#[derive(Deserialize)]
struct VerifyReport {
    profile: String,
    rules: Vec<VerifyRule>,
}

#[derive(Deserialize)]
struct VerifyRule {
    rule: String,
    level: String,
    outcome: String,
    why: String,
}

fn read_verify(text: &[u8]) -> Result<Verified, Error> {
    let report: VerifyReport = serde_json::from_slice(text)?;
    let of = |level: &str, outcome: &str| {
        let chosen = report.rules.iter().filter(|rule| rule.level == level && rule.outcome == outcome);
        chosen.map(|rule| rule.rule.clone()).collect::<Vec<_>>()
    };
    let broken = report.rules.iter().filter(|rule| rule.outcome == "fail");
    Ok(Verified {
        must_broken: of("must", "fail"),
        must_not_tried: of("must", "not tried"),
        should_broken: of("should", "fail"),
        hold: report.rules.iter().filter(|rule| rule.outcome == "pass").count(),
        why: broken.map(|rule| (rule.rule.clone(), rule.why.clone())).collect(),
        profile: report.profile,
    })
}
