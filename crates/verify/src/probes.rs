//! The probes, one after another, and their common ground: a first command that succeeded, and a way to count executions.

mod faults;
mod requests;
mod retries;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::client::{Exchange, HttpAnswer, NoAnswer, ProbeClient, ProbeRequest};
use crate::judge::{CounterChange, ExecutionIdentity, ExecutionJudge, Runs, count_in};
use crate::options::VerifyOptions;
use crate::report::{VerifyReport, excerpt};
use crate::rules::{RuleFinding, RuleFindings, RuleOutcome};

/// The note of a request with a changed value under a used key.
const CHANGED: &str = "a changed value";
/// The most retries while the server says that the command is still running.
const MAX_RETRIES: usize = 20;
/// The pause between them without a `Retry-After`, and the shortest one.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between them.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(2);
/// The time that an execution may go on after its answer, or after its client hung up, in addition to twice the time
/// of a command. The counter is read after that.
const SETTLING: Duration = Duration::from_millis(100);
/// The longest time that is waited before the counter is read.
const MAX_SETTLING: Duration = Duration::from_secs(5);

/// The endpoint under test.
struct TriedEndpoint<'a> {
    options: &'a VerifyOptions,
    client: ProbeClient,
    judge: ExecutionJudge,
    /// True if the counter counted the first commands.
    counts: bool,
    /// The time of a command.
    took: Duration,
    /// The key of the first command.
    key: String,
    first: Exchange,
    answer: HttpAnswer,
}

/// The reason why nothing can be tried.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The endpoint refuses the command.
    #[error(
        "nothing can be tried: {url} answered a command under a fresh key with {status}: {body}\n\
         It needs a body that it accepts any number of times, and credentials, if any, in --header"
    )]
    Refused {
        /// The endpoint.
        url: String,
        /// The status of its answer.
        status: StatusCode,
        /// The beginning of its answer.
        body: String,
    },
    /// The endpoint gives no answer.
    #[error("{url}: {error}")]
    NoAnswer {
        /// The endpoint.
        url: String,
        /// The reason.
        error: NoAnswer,
    },
}

/// Tries every rule.
///
/// # Errors
/// If the endpoint cannot be reached, or refuses a first command.
pub(super) async fn try_all(options: &VerifyOptions) -> Result<VerifyReport, ProbeError> {
    let (subject, basis) = TriedEndpoint::meet(options).await?;
    let mut findings = RuleFindings::default();
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
    let findings: Vec<RuleFinding> = findings.into_all();
    Ok(VerifyReport {
        url: options.address.to_string(),
        profile: options.profile,
        requests: subject.client.sent(),
        basis,
        findings,
    })
}

impl<'a> TriedEndpoint<'a> {
    /// Runs two commands under keys of their own, and learns from them how to tell executions apart.
    async fn meet(options: &'a VerifyOptions) -> Result<(TriedEndpoint<'a>, Vec<String>), ProbeError> {
        let client = ProbeClient::new(options.timeout);
        let before = read_counter(&client, options).await;
        let (key, other_key) = (fresh_key(), fresh_key());
        let (first, answer) = introduce(&client, options, &key).await?;
        let (_, second) = introduce(&client, options, &other_key).await?;
        let took = answer.took.max(second.took);
        let identity = ExecutionIdentity::between((&answer, &key), (&second, &other_key));
        let judge = ExecutionJudge { identity, accepts: answer.status == StatusCode::ACCEPTED };
        let mut subject =
            TriedEndpoint { options, client, judge, counts: before.is_some(), took, key, first, answer };
        let counted = CounterChange::between(before, subject.settled_count().await);
        subject.counts = counted == CounterChange::By(2);
        let basis = subject.basis(&counted);
        Ok((subject, basis))
    }

    /// Describes the counter and the part of an answer that tell executions apart.
    fn basis(&self, counted: &CounterChange) -> Vec<String> {
        let counter = match (&self.options.count, counted) {
            (Some(url), CounterChange::By(2)) => format!("counted by {url}: two commands moved it by 2"),
            (Some(url), CounterChange::By(moved)) => {
                format!("not counted by {url}: two commands moved it by {moved}, so it cannot be trusted")
            }
            (Some(url), CounterChange::Unreadable(why)) => format!("not counted by {url}: {why}"),
            (None, _) | (_, CounterChange::NotUsed) => "not counted: there is no --count-url".to_owned(),
        };
        let identity = match self.judge.identity {
            Some(identity) => format!("told apart by {}", identity.describe()),
            None => {
                "not told apart: two different commands got answers that name nothing different".to_owned()
            }
        };
        vec![counter, identity]
    }

    /// Makes the command under this key.
    fn command(&self, key: &str) -> ProbeRequest {
        command(self.options, key)
    }

    async fn send(&self, note: &'static str, message: ProbeRequest) -> Exchange {
        self.client.send(note, &self.options.address, message).await
    }

    /// Sends a command, and again while the server says that it is running, within the timeout of one request.
    async fn send_until_settled(&self, note: &'static str, message: &ProbeRequest) -> Exchange {
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

    /// Returns whether an answer says "not yet".
    fn is_pending(&self, answer: &HttpAnswer) -> bool {
        matches!(answer.status.as_u16(), 409 | 423 | 425 | 429 | 503)
            || (answer.succeeded() && !self.judge.shows_outcome(answer))
    }

    /// Reads the counter, if it is used.
    async fn count(&self) -> Option<Result<u64, String>> {
        if self.counts { read_counter(&self.client, self.options).await } else { None }
    }

    /// Reads the counter after executions had time to end.
    async fn settled_count(&self) -> Option<Result<u64, String>> {
        if !self.counts {
            return None;
        }
        self.settle().await;
        self.count().await
    }

    /// Waits for executions that may still run.
    async fn settle(&self) {
        tokio::time::sleep((2 * self.took + SETTLING).min(MAX_SETTLING)).await;
    }
}

/// Returns the outcome of a rule about the number of executions.
fn must_run_once(runs: Runs) -> RuleOutcome {
    match runs {
        Runs::Right(how) => RuleOutcome::Pass(how),
        Runs::TooOften(how) => RuleOutcome::Fail(how),
        Runs::Unclear(why) => RuleOutcome::NotTried(why),
    }
}

/// Draws a new key.
fn fresh_key() -> String {
    let mut drawn = [0; 16];
    #[expect(
        clippy::disallowed_methods,
        reason = "the tester shares no code with the gateway, and so no `Ids`"
    )]
    getrandom::fill(&mut drawn).expect("the operating system has randomness");
    let digits: String = drawn.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("verify-{digits}")
}

/// Returns a key as a field value.
fn spelled(options: &VerifyOptions, key: &str) -> HeaderValue {
    HeaderValue::from_str(&options.profile.spell(key)).expect("a key of ours is letters, digits and hyphens")
}

/// Makes the command under this key.
fn command(options: &VerifyOptions, key: &str) -> ProbeRequest {
    ProbeRequest {
        method: Method::POST,
        headers: options.caller.clone(),
        keys: vec![spelled(options, key)],
        body: options.body.clone(),
    }
}

/// Sends a first command, which must succeed.
async fn introduce(
    client: &ProbeClient,
    options: &VerifyOptions,
    key: &str,
) -> Result<(Exchange, HttpAnswer), ProbeError> {
    let exchange = client.send("a first command", &options.address, command(options, key)).await;
    match &exchange.answer {
        Ok(answer) if answer.succeeded() => {
            let answer = answer.clone();
            Ok((exchange, answer))
        }
        Ok(answer) => Err(ProbeError::Refused {
            url: options.address.to_string(),
            status: answer.status,
            body: excerpt(&answer.body),
        }),
        Err(error) => Err(ProbeError::NoAnswer { url: options.address.to_string(), error: error.clone() }),
    }
}

/// Reads the counter; `None` if there is none.
async fn read_counter(client: &ProbeClient, options: &VerifyOptions) -> Option<Result<u64, String>> {
    let url = options.count.as_ref()?;
    // Credentials go to the server of the command only.
    let same_server = url.client.address().authority() == options.address.client.address().authority();
    let mut headers = if same_server { options.caller.clone() } else { HeaderMap::new() };
    headers.remove(http::header::CONTENT_TYPE);
    let message = ProbeRequest { method: Method::GET, headers, keys: Vec::new(), body: Bytes::new() };
    let read = match client.send("the counter", url, message).await.answer {
        Ok(answer) if answer.status.is_success() => count_in(&answer.body)
            .ok_or_else(|| format!("it is neither a number nor JSON with one: {}", excerpt(&answer.body))),
        Ok(answer) => Err(format!("it answered {}", answer.status)),
        Err(error) => Err(error.to_string()),
    };
    Some(read)
}

/// Returns the pause that a server asks for, within bounds.
fn pause_after(answer: &HttpAnswer) -> Duration {
    let seconds = answer.header("retry-after").and_then(|text| text.trim().parse().ok());
    seconds.map_or(RETRY_PAUSE, Duration::from_secs).clamp(RETRY_PAUSE, MAX_RETRY_PAUSE)
}

/// Returns the outcome of a rule whose request had no answer and should have run nothing.
fn unanswered_must(error: &NoAnswer, counted: &CounterChange) -> RuleOutcome {
    match counted {
        CounterChange::By(moved @ 1..) => {
            RuleOutcome::Fail(format!("{error}, and the counter moved by {moved}"))
        }
        _ => unanswered(error),
    }
}

/// Returns the outcome of a rule whose request had no answer.
fn unanswered(error: &NoAnswer) -> RuleOutcome {
    RuleOutcome::NotTried(error.to_string())
}
