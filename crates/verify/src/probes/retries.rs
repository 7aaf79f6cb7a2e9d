//! Probes with retries: the same command, another spelling of it, and a changed value.

use http::header::HeaderMap;

use super::{CHANGED, TriedEndpoint, must_run_once, unanswered, unanswered_must};
use crate::client::HttpAnswer;
use crate::judge::{CounterChange, Runs};
use crate::rules::{EndpointRule, RuleFindings, RuleOutcome};
use crate::spelling;

/// The rules that need a replay.
const ABOUT_REPLAYS: [EndpointRule; 3] =
    [EndpointRule::ReplayGiven, EndpointRule::ReplayIsExact, EndpointRule::ReplayMarked];

/// Fields of one moment, one connection or one hop, which may differ on a replay.
const VOLATILE: [&str; 34] = [
    "age",
    "alt-svc",
    "authentication-info",
    "cf-ray",
    "connection",
    "content-length", // Framing: the bytes themselves are compared.
    "date",
    "idempotency-replayed",
    "idempotent-replayed",
    "keep-alive",
    "nel",
    "proxy-authenticate",
    "proxy-connection",
    "report-to",
    "request-id",
    "server-timing",
    "set-cookie",
    "set-cookie2",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
    "www-authenticate",
    "x-amz-request-id",
    "x-amzn-requestid",
    "x-amzn-trace-id",
    "x-correlation-id",
    "x-request-id",
    "x-response-time",
    "x-runtime",
    "x-trace-id",
];

impl TriedEndpoint<'_> {
    /// Sends the first command again, byte for byte.
    pub(super) async fn retry(&self, findings: &mut RuleFindings) {
        let before = self.count().await;
        let retry = self.send_until_settled("the same again", &self.command(&self.key)).await;
        let counted = CounterChange::between(before, self.settled_count().await);
        let evidence = [&self.first, &retry];
        let answer = match &retry.answer {
            Ok(answer) => answer,
            Err(error) => {
                findings.record(EndpointRule::RetryRunsOnce, unanswered_must(error, &counted), &evidence);
                return findings.record_all(&ABOUT_REPLAYS, &unanswered(error), &evidence);
            }
        };
        let runs = self.judge.runs(0, &counted, &[&self.answer, answer]);
        let again = matches!(runs, Runs::TooOften(_));
        findings.record(EndpointRule::RetryRunsOnce, must_run_once(runs), &evidence);
        if !answer.succeeded() {
            let why = format!("the retry was answered {}", answer.status);
            findings.record(EndpointRule::ReplayGiven, RuleOutcome::Fail(why.clone()), &evidence);
            let nothing = RuleOutcome::NotTried(format!("nothing was replayed: {why}"));
            return findings.record_all(&ABOUT_REPLAYS, &nothing, &evidence);
        }
        if again {
            let nothing = RuleOutcome::NotTried("nothing was replayed: the command ran again".to_owned());
            return findings.record_all(&ABOUT_REPLAYS, &nothing, &evidence);
        }
        findings.record(
            EndpointRule::ReplayGiven,
            RuleOutcome::Pass(format!("{}", answer.status)),
            &evidence,
        );
        let exact = match difference(&self.answer, answer) {
            Some(difference) => RuleOutcome::Fail(difference),
            None => RuleOutcome::Pass(format!("{}, {} bytes", answer.status, answer.body.len())),
        };
        findings.record(EndpointRule::ReplayIsExact, exact, &evidence);
        findings.record(EndpointRule::ReplayMarked, self.mark(answer), &evidence);
    }

    fn mark(&self, replay: &HttpAnswer) -> RuleOutcome {
        let name = self.options.profile.replay_mark();
        let marked = |answer: &HttpAnswer| answer.header(name) == Some("true");
        match (marked(&self.answer), marked(replay)) {
            (false, true) => RuleOutcome::Pass(format!("{name}: true")),
            (true, _) => RuleOutcome::Fail(format!("the first answer already carries {name}")),
            (false, false) => RuleOutcome::Fail(format!("the replay does not carry {name}: true")),
        }
    }

    /// Sends the document with its members in another order, and other whitespace.
    pub(super) async fn respell(&self, findings: &mut RuleFindings) {
        let Some(body) = spelling::respelled(&self.options.body) else {
            let outcome = RuleOutcome::NotTried("the body is not JSON".to_owned());
            return findings.record_all(
                &[EndpointRule::RespelledRunsOnce, EndpointRule::RespelledIsSame],
                &outcome,
                &[],
            );
        };
        let before = self.count().await;
        let mut message = self.command(&self.key);
        message.body = body.into();
        let exchange = self.send_until_settled("members in another order, other whitespace", &message).await;
        let counted = CounterChange::between(before, self.settled_count().await);
        let evidence = [&self.first, &exchange];
        let answer = match &exchange.answer {
            Ok(answer) => answer,
            Err(error) => {
                findings.record(EndpointRule::RespelledRunsOnce, unanswered_must(error, &counted), &evidence);
                return findings.record(EndpointRule::RespelledIsSame, unanswered(error), &evidence);
            }
        };
        let runs = self.judge.runs(0, &counted, &[&self.answer, answer]);
        let same = match (&runs, answer.succeeded()) {
            (Runs::TooOften(_), _) => {
                RuleOutcome::NotTried("nothing was replayed: the command ran again".to_owned())
            }
            (_, true) if answer.body == self.answer.body => RuleOutcome::Pass(format!("{}", answer.status)),
            (_, true) => RuleOutcome::Fail("the answer is not the first one".to_owned()),
            (_, false) => RuleOutcome::Fail(format!("it was answered {}", answer.status)),
        };
        findings.record(EndpointRule::RespelledRunsOnce, must_run_once(runs), &evidence);
        findings.record(EndpointRule::RespelledIsSame, same, &evidence);
    }

    /// Sends a changed command under the same key.
    pub(super) async fn change(&self, findings: &mut RuleFindings) {
        let Some((body, what)) = spelling::changed(&self.options.body) else {
            let outcome = RuleOutcome::NotTried("the body has no value that could be changed".to_owned());
            return findings.record_all(
                &[EndpointRule::ChangedIsNoRetry, EndpointRule::ChangedCode],
                &outcome,
                &[],
            );
        };
        let before = self.count().await;
        let mut message = self.command(&self.key);
        message.body = body.into();
        let exchange = self.send(CHANGED, message).await;
        let counted = CounterChange::between(before, self.settled_count().await);
        findings.refusal(&exchange);
        let evidence = [&self.first, &exchange];
        let answer = match &exchange.answer {
            Ok(answer) => answer,
            Err(error) => {
                findings.record(EndpointRule::ChangedIsNoRetry, unanswered_must(error, &counted), &evidence);
                return findings.record(EndpointRule::ChangedCode, unanswered(error), &evidence);
            }
        };
        findings.record(
            EndpointRule::ChangedIsNoRetry,
            self.change_kept_out(answer, &counted, &what),
            &evidence,
        );
        let (right, status) = (self.options.profile.reused_key(), answer.status.as_u16());
        let code = if status == right {
            RuleOutcome::Pass(format!("{status}"))
        } else {
            RuleOutcome::Fail(format!("answered {status}, where {right} is right ({what})"))
        };
        findings.record(EndpointRule::ChangedCode, code, &evidence);
    }

    fn change_kept_out(&self, answer: &HttpAnswer, counted: &CounterChange, what: &str) -> RuleOutcome {
        if let CounterChange::By(moved @ 1..) = counted {
            return RuleOutcome::Fail(format!("{what}, and it ran: the counter moved by {moved}"));
        }
        if answer.succeeded() {
            let did = self.judge.came_of_a_change(&self.answer, answer, counted);
            return RuleOutcome::Fail(format!("{what}, and {did}"));
        }
        match (answer.refused(), counted) {
            (true, CounterChange::By(0)) => {
                RuleOutcome::Pass(format!("{what}: {}, nothing ran", answer.status))
            }
            (true, _) => {
                RuleOutcome::Pass(format!("{what}: {}; that nothing ran is the server's word", answer.status))
            }
            (false, _) => {
                RuleOutcome::NotTried(format!("{what}: {} does not say what happened", answer.status))
            }
        }
    }
}

/// Describes the first difference between a replay and the first answer. Additional fields of the replay are allowed.
fn difference(first: &HttpAnswer, replay: &HttpAnswer) -> Option<String> {
    if first.status != replay.status {
        return Some(format!("the status was {}, then {}", first.status, replay.status));
    }
    if let Some(name) = changed_field(&first.headers, &replay.headers) {
        let shown = |answer: &HttpAnswer| {
            let values: Vec<_> =
                answer.headers.get_all(name).iter().map(|value| format!("{value:?}")).collect();
            if values.is_empty() { "missing".to_owned() } else { values.join(", ") }
        };
        return Some(format!("the field {name} was {}, then {}", shown(first), shown(replay)));
    }
    let same = first.body == replay.body;
    (!same).then(|| {
        let at = first.body.iter().zip(&replay.body).position(|(one, two)| one != two);
        let at = at.unwrap_or_else(|| first.body.len().min(replay.body.len()));
        let (one, two) = (first.body.len(), replay.body.len());
        format!("the bodies differ from byte {at} on ({one} bytes, then {two})")
    })
}

fn changed_field<'a>(first: &'a HeaderMap, replay: &HeaderMap) -> Option<&'a str> {
    let volatile = |name: &str| {
        VOLATILE.contains(&name) || name.starts_with("ratelimit") || name.starts_with("x-ratelimit")
    };
    let names = first.keys().map(http::HeaderName::as_str);
    names.filter(|name| !volatile(name)).find(|name| !first.get_all(*name).iter().eq(replay.get_all(*name)))
}
