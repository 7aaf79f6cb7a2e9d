//! The same command again: as it was, in another spelling, and with a value changed.

use http::header::HeaderMap;

use super::super::client::Answer;
use super::super::judge::{Counted, Runs};
use super::super::rules::{Findings, Outcome, Rule};
use super::super::spelling;
use super::{CHANGED, Subject, must_run_once, unanswered, unanswered_must};

/// Rules that only a replay can be judged by.
const ABOUT_REPLAYS: [Rule; 3] = [Rule::ReplayGiven, Rule::ReplayIsExact, Rule::ReplayMarked];

/// Fields that belong to one moment, one connection or one hop, and may differ on a replay.
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

impl Subject<'_> {
    /// The same request, byte for byte.
    pub(super) async fn retry(&self, findings: &mut Findings) {
        let before = self.count().await;
        let retry = self.send_until_settled("the same again", &self.command(&self.key)).await;
        let counted = Counted::between(before, self.settled_count().await);
        let evidence = [&self.first, &retry];
        let answer = match &retry.answer {
            Ok(answer) => answer,
            Err(error) => {
                findings.record(Rule::RetryRunsOnce, unanswered_must(error, &counted), &evidence);
                return findings.record_all(&ABOUT_REPLAYS, &unanswered(error), &evidence);
            }
        };
        let runs = self.judge.runs(0, &counted, &[&self.answer, answer]);
        let again = matches!(runs, Runs::TooOften(_));
        findings.record(Rule::RetryRunsOnce, must_run_once(runs), &evidence);
        if !answer.succeeded() {
            let why = format!("the retry was answered {}", answer.status);
            findings.record(Rule::ReplayGiven, Outcome::Fail(why.clone()), &evidence);
            let nothing = Outcome::NotTried(format!("nothing was replayed: {why}"));
            return findings.record_all(&ABOUT_REPLAYS, &nothing, &evidence);
        }
        if again {
            let nothing = Outcome::NotTried("nothing was replayed: the command ran again".to_owned());
            return findings.record_all(&ABOUT_REPLAYS, &nothing, &evidence);
        }
        findings.record(Rule::ReplayGiven, Outcome::Pass(format!("{}", answer.status)), &evidence);
        let exact = match difference(&self.answer, answer) {
            Some(difference) => Outcome::Fail(difference),
            None => Outcome::Pass(format!("{}, {} bytes", answer.status, answer.body.len())),
        };
        findings.record(Rule::ReplayIsExact, exact, &evidence);
        findings.record(Rule::ReplayMarked, self.mark(answer), &evidence);
    }

    fn mark(&self, replay: &Answer) -> Outcome {
        let name = self.options.profile.replay_mark();
        let marked = |answer: &Answer| answer.header(name) == Some("true");
        match (marked(&self.answer), marked(replay)) {
            (false, true) => Outcome::Pass(format!("{name}: true")),
            (true, _) => Outcome::Fail(format!("the first answer already carries {name}")),
            (false, false) => Outcome::Fail(format!("the replay does not carry {name}: true")),
        }
    }

    /// The same document with its members in another order, and other whitespace.
    pub(super) async fn respell(&self, findings: &mut Findings) {
        let Some(body) = spelling::respelled(&self.options.body) else {
            let outcome = Outcome::NotTried("the body is not JSON".to_owned());
            return findings.record_all(&[Rule::RespelledRunsOnce, Rule::RespelledIsSame], &outcome, &[]);
        };
        let before = self.count().await;
        let mut message = self.command(&self.key);
        message.body = body.into();
        let exchange = self.send_until_settled("members in another order, other whitespace", &message).await;
        let counted = Counted::between(before, self.settled_count().await);
        let evidence = [&self.first, &exchange];
        let answer = match &exchange.answer {
            Ok(answer) => answer,
            Err(error) => {
                findings.record(Rule::RespelledRunsOnce, unanswered_must(error, &counted), &evidence);
                return findings.record(Rule::RespelledIsSame, unanswered(error), &evidence);
            }
        };
        let runs = self.judge.runs(0, &counted, &[&self.answer, answer]);
        let same = match (&runs, answer.succeeded()) {
            (Runs::TooOften(_), _) => {
                Outcome::NotTried("nothing was replayed: the command ran again".to_owned())
            }
            (_, true) if answer.body == self.answer.body => Outcome::Pass(format!("{}", answer.status)),
            (_, true) => Outcome::Fail("the answer is not the first one".to_owned()),
            (_, false) => Outcome::Fail(format!("it was answered {}", answer.status)),
        };
        findings.record(Rule::RespelledRunsOnce, must_run_once(runs), &evidence);
        findings.record(Rule::RespelledIsSame, same, &evidence);
    }

    /// Another command under the same key.
    pub(super) async fn change(&self, findings: &mut Findings) {
        let Some((body, what)) = spelling::changed(&self.options.body) else {
            let outcome = Outcome::NotTried("the body has no value that could be changed".to_owned());
            return findings.record_all(&[Rule::ChangedIsNoRetry, Rule::ChangedCode], &outcome, &[]);
        };
        let before = self.count().await;
        let mut message = self.command(&self.key);
        message.body = body.into();
        let exchange = self.send(CHANGED, message).await;
        let counted = Counted::between(before, self.settled_count().await);
        findings.refusal(&exchange);
        let evidence = [&self.first, &exchange];
        let answer = match &exchange.answer {
            Ok(answer) => answer,
            Err(error) => {
                findings.record(Rule::ChangedIsNoRetry, unanswered_must(error, &counted), &evidence);
                return findings.record(Rule::ChangedCode, unanswered(error), &evidence);
            }
        };
        findings.record(Rule::ChangedIsNoRetry, self.change_kept_out(answer, &counted, &what), &evidence);
        let (right, status) = (self.options.profile.reused_key(), answer.status.as_u16());
        let code = if status == right {
            Outcome::Pass(format!("{status}"))
        } else {
            Outcome::Fail(format!("answered {status}, where {right} is right ({what})"))
        };
        findings.record(Rule::ChangedCode, code, &evidence);
    }

    fn change_kept_out(&self, answer: &Answer, counted: &Counted, what: &str) -> Outcome {
        if let Counted::By(moved @ 1..) = counted {
            return Outcome::Fail(format!("{what}, and it ran: the counter moved by {moved}"));
        }
        if answer.succeeded() {
            let did = self.judge.came_of_a_change(&self.answer, answer, counted);
            return Outcome::Fail(format!("{what}, and {did}"));
        }
        match (answer.refused(), counted) {
            (true, Counted::By(0)) => Outcome::Pass(format!("{what}: {}, nothing ran", answer.status)),
            (true, _) => {
                Outcome::Pass(format!("{what}: {}; that nothing ran is the server's word", answer.status))
            }
            (false, _) => Outcome::NotTried(format!("{what}: {} does not say what happened", answer.status)),
        }
    }
}

/// How a replay differs from the first answer. Fields that only the replay has are no difference: they say
/// something about the replay.
fn difference(first: &Answer, replay: &Answer) -> Option<String> {
    if first.status != replay.status {
        return Some(format!("the status was {}, then {}", first.status, replay.status));
    }
    if let Some(name) = changed_field(&first.headers, &replay.headers) {
        let shown = |answer: &Answer| {
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
