//! One probe after another, and what they share: a first command that succeeded, and how executions are counted.

mod faults;
mod requests;
mod retries;

use std::time::Duration;

use anyhow::bail;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use semel_core::ids;

use super::client::{Answer, Client, Exchange, Message, NoAnswer};
use super::judge::{Counted, Identity, Judge, Runs, count_in};
use super::options::Options;
use super::report::{Report, excerpt};
use super::rules::{Finding, Findings, Outcome};

/// The note of a request that has another value under a used key.
const CHANGED: &str = "a changed value";
/// How often a retry is sent while the command is said to be still running.
const MAX_RETRIES: usize = 20;
/// How long to wait between them, if the server does not say.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// The most that is waited, if it does.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(2);
/// How long an execution may go on after its answer, or after its client hung up, beyond twice the time that a
/// command takes. The counter is read only then.
const SETTLING: Duration = Duration::from_millis(100);
const MAX_SETTLING: Duration = Duration::from_secs(5);

/// An endpoint that is being tried.
struct Subject<'a> {
    options: &'a Options,
    client: Client,
    judge: Judge,
    /// Whether the counter was seen to count.
    counts: bool,
    /// How long a command takes.
    took: Duration,
    /// The first command: its key, and what came of it.
    key: String,
    first: Exchange,
    answer: Answer,
}

/// Tries every rule.
///
/// # Errors
/// If the endpoint cannot be reached, or does not carry out the command in the first place.
pub(super) async fn try_all(options: &Options) -> anyhow::Result<Report> {
    let (subject, basis) = Subject::meet(options).await?;
    let mut findings = Findings::default();
    subject.retry(&mut findings).await;
    subject.respell(&mut findings).await;
    subject.change(&mut findings).await;
    subject.duplicate(&mut findings).await;
    subject.disconnect(&mut findings).await;
    subject.get(&mut findings).await;
    subject.call_as_another(&mut findings).await;
    subject.omit_key(&mut findings).await;
    subject.malform_keys(&mut findings).await;
    subject.look_at_refusals(&mut findings);
    subject.look_at_expiry(&mut findings);
    let findings: Vec<Finding> = findings.into_all();
    Ok(Report {
        url: options.address.to_string(),
        profile: options.profile,
        requests: subject.client.sent(),
        basis,
        findings,
    })
}

impl<'a> Subject<'a> {
    /// Runs two commands under keys of their own, and learns from them how executions can be told apart.
    async fn meet(options: &'a Options) -> anyhow::Result<(Subject<'a>, Vec<String>)> {
        let client = Client::new(options.timeout);
        let before = read_counter(&client, options).await;
        let (key, other_key) = (fresh_key(), fresh_key());
        let (first, answer) = introduce(&client, options, &key).await?;
        let (_, second) = introduce(&client, options, &other_key).await?;
        let took = answer.took.max(second.took);
        let identity = Identity::between((&answer, &key), (&second, &other_key));
        let judge = Judge { identity, accepts: answer.status == http::StatusCode::ACCEPTED };
        let mut subject =
            Subject { options, client, judge, counts: before.is_some(), took, key, first, answer };
        let counted = Counted::between(before, subject.settled_count().await);
        subject.counts = counted == Counted::By(2);
        let basis = subject.basis(&counted);
        Ok((subject, basis))
    }

    /// What executions are judged by, in words.
    fn basis(&self, counted: &Counted) -> Vec<String> {
        let counter = match (&self.options.count, counted) {
            (Some(url), Counted::By(2)) => format!("counted by {url}: two commands moved it by 2"),
            (Some(url), Counted::By(moved)) => {
                format!("not counted by {url}: two commands moved it by {moved}, so it cannot be trusted")
            }
            (Some(url), Counted::Unreadable(why)) => format!("not counted by {url}: {why}"),
            (None, _) | (_, Counted::NotUsed) => "not counted: there is no --count-url".to_owned(),
        };
        let identity = match self.judge.identity {
            Some(identity) => format!("told apart by {}", identity.describe()),
            None => {
                "not told apart: two different commands got answers that name nothing different".to_owned()
            }
        };
        vec![counter, identity]
    }

    /// The command under this key.
    fn command(&self, key: &str) -> Message {
        command(self.options, key)
    }

    async fn send(&self, note: &'static str, message: Message) -> Exchange {
        self.client.send(note, &self.options.address, message).await
    }

    /// Sends a command again for as long as it is said to be running, within the time of one request.
    async fn send_until_settled(&self, note: &'static str, message: &Message) -> Exchange {
        let until = tokio::time::Instant::now() + self.client.timeout();
        let mut exchange = self.send(note, message.clone()).await;
        for _ in 1..MAX_RETRIES {
            let pause = match &exchange.answer {
                Ok(answer) if self.is_pending(answer) => pause_after(answer),
                _ => break,
            };
            if tokio::time::Instant::now() + pause > until {
                break;
            }
            tokio::time::sleep(pause).await;
            exchange = self.send(note, message.clone()).await;
        }
        exchange
    }

    /// Whether an answer says "not yet".
    fn is_pending(&self, answer: &Answer) -> bool {
        matches!(answer.status.as_u16(), 409 | 423 | 425 | 429 | 503)
            || (answer.succeeded() && !self.judge.shows_outcome(answer))
    }

    /// The counter now, if it is used.
    async fn count(&self) -> Option<Result<u64, String>> {
        if self.counts { read_counter(&self.client, self.options).await } else { None }
    }

    /// The counter, once what may still run has ended.
    async fn settled_count(&self) -> Option<Result<u64, String>> {
        if !self.counts {
            return None;
        }
        self.settle().await;
        self.count().await
    }

    /// Waits until what may still run has ended, as far as that can be known.
    async fn settle(&self) {
        tokio::time::sleep((2 * self.took + SETTLING).min(MAX_SETTLING)).await;
    }
}

/// What a must that is about executions comes to.
fn must_run_once(runs: Runs) -> Outcome {
    match runs {
        Runs::Right(how) => Outcome::Pass(how),
        Runs::TooOften(how) => Outcome::Fail(how),
        Runs::Unclear(why) => Outcome::NotTried(why),
    }
}

/// A key that nobody has used.
fn fresh_key() -> String {
    let drawn: String = ids::secret().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("verify-{drawn}")
}

/// A key as a field value.
fn spelled(options: &Options, key: &str) -> HeaderValue {
    HeaderValue::from_str(&options.profile.spell(key)).expect("a key of ours is letters, digits and hyphens")
}

fn command(options: &Options, key: &str) -> Message {
    Message {
        method: Method::POST,
        headers: options.caller.clone(),
        keys: vec![spelled(options, key)],
        body: options.body.clone(),
    }
}

/// Sends a command that must succeed for there to be anything to try.
async fn introduce(client: &Client, options: &Options, key: &str) -> anyhow::Result<(Exchange, Answer)> {
    let exchange = client.send("a first command", &options.address, command(options, key)).await;
    match &exchange.answer {
        Ok(answer) if answer.succeeded() => {
            let answer = answer.clone();
            Ok((exchange, answer))
        }
        Ok(answer) => bail!(
            "nothing can be tried: {} answered a command under a fresh key with {}: {}\n\
             It needs a body that it accepts any number of times, and credentials, if any, in --header",
            options.address,
            answer.status,
            excerpt(&answer.body)
        ),
        Err(error) => bail!("{}: {error}", options.address),
    }
}

/// Reads the counter; `None` if there is none.
async fn read_counter(client: &Client, options: &Options) -> Option<Result<u64, String>> {
    let url = options.count.as_ref()?;
    // Credentials go where the command goes, and nowhere else.
    let same_server = url.client.address().authority() == options.address.client.address().authority();
    let mut headers = if same_server { options.caller.clone() } else { HeaderMap::new() };
    headers.remove(http::header::CONTENT_TYPE);
    let message = Message { method: Method::GET, headers, keys: Vec::new(), body: Bytes::new() };
    let read = match client.send("the counter", url, message).await.answer {
        Ok(answer) if answer.status.is_success() => count_in(&answer.body)
            .ok_or_else(|| format!("it is neither a number nor JSON with one: {}", excerpt(&answer.body))),
        Ok(answer) => Err(format!("it answered {}", answer.status)),
        Err(error) => Err(error.to_string()),
    };
    Some(read)
}

/// How long a server wants its client to wait, within reason.
fn pause_after(answer: &Answer) -> Duration {
    let seconds = answer.header("retry-after").and_then(|text| text.trim().parse().ok());
    seconds.map_or(RETRY_PAUSE, Duration::from_secs).clamp(RETRY_PAUSE, MAX_RETRY_PAUSE)
}

/// What a must comes to if the request had no answer, and should have run nothing.
fn unanswered_must(error: &NoAnswer, counted: &Counted) -> Outcome {
    match counted {
        Counted::By(moved @ 1..) => Outcome::Fail(format!("{error}, and the counter moved by {moved}")),
        _ => unanswered(error),
    }
}

/// What a rule comes to if a request that it needs had no answer.
fn unanswered(error: &NoAnswer) -> Outcome {
    Outcome::NotTried(error.to_string())
}
