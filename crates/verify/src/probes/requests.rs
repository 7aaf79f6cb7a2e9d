//! Probes about keys on GET, missing and malformed keys, keys of another caller, refusals and expiry.

use bytes::Bytes;
use http::{HeaderValue, Method};
use jiff::Timestamp;
use jiff::fmt::rfc2822::{DateTimeParser, DateTimePrinter};

use super::{CHANGED, TriedEndpoint, fresh_key, spelled, unanswered};
use crate::client::{Exchange, HttpAnswer};
use crate::judge::CounterChange;
use crate::options::AnswerProfile;
use crate::rules::{EndpointRule, RuleFindings, RuleOutcome};
use crate::shape;

/// A length beyond that of any key.
const TOO_LONG: usize = 300;

impl TriedEndpoint<'_> {
    /// Sends GET without a key, and under the key of the first command.
    pub(super) async fn get(&self, findings: &mut RuleFindings) {
        let mut message = self.command(&self.key);
        message.method = Method::GET;
        message.body = Bytes::new();
        message.headers.remove(http::header::CONTENT_TYPE);
        let keyed = message.clone();
        message.keys.clear();
        let plain = self.send("GET without a key", message).await;
        let keyed = self.send("GET under the first command's key", keyed).await;
        let evidence = [&plain, &keyed];
        let (without, with) = match (&plain.answer, &keyed.answer) {
            (Ok(without), Ok(with)) => (without, with),
            (Err(error), _) | (_, Err(error)) => {
                let rules = [EndpointRule::GetIsNoReplay, EndpointRule::GetIgnoresKey];
                return findings.record_all(&rules, &unanswered(error), &evidence);
            }
        };
        let marked = with.header(self.options.profile.replay_mark()) == Some("true");
        let the_same =
            |answer: &HttpAnswer| answer.status == self.answer.status && answer.body == self.answer.body;
        let replayed = marked || (the_same(with) && !the_same(without));
        let no_replay = if replayed {
            RuleOutcome::Fail("it got the answer of the command".to_owned())
        } else {
            RuleOutcome::Pass(format!("{}", with.status))
        };
        findings.record(EndpointRule::GetIsNoReplay, no_replay, &evidence);
        let (without, with) = (without.status, with.status);
        let ignored = if without == with {
            RuleOutcome::Pass(format!("{with} with a key and without"))
        } else {
            RuleOutcome::Fail(format!("{without} without a key, {with} with one"))
        };
        findings.record(EndpointRule::GetIgnoresKey, ignored, &evidence);
    }

    /// Sends the first command's key and body as another caller.
    pub(super) async fn call_as_another(&self, findings: &mut RuleFindings) {
        let skip = |findings: &mut RuleFindings, why: String, evidence: &[&Exchange]| {
            let rules = [EndpointRule::CallersAreApart, EndpointRule::CallersAreIndependent];
            findings.record_all(&rules, &RuleOutcome::NotTried(why), evidence);
        };
        let Some(headers) = &self.options.other_caller else {
            return skip(findings, "there is no second caller: give --other-header".to_owned(), &[]);
        };
        let by_other = |key: &str| {
            let mut message = self.command(key);
            message.headers = headers.clone();
            message
        };
        let own = self.send("the second caller, under a key of its own", by_other(&fresh_key())).await;
        if !own.answer.as_ref().is_ok_and(HttpAnswer::succeeded) {
            return skip(findings, "the second caller's own command did not succeed".to_owned(), &[&own]);
        }
        let before = self.count().await;
        let exchange = self
            .send_until_settled("the second caller, under the first one's key", &by_other(&self.key))
            .await;
        let counted = CounterChange::between(before, self.settled_count().await);
        let evidence = [&self.first, &exchange];
        let answer = match &exchange.answer {
            Ok(answer) => answer,
            Err(error) => return skip(findings, error.to_string(), &evidence),
        };
        findings.record(EndpointRule::CallersAreApart, self.kept_apart(answer, &counted), &evidence);
        let independent = if answer.succeeded() {
            RuleOutcome::Pass(format!("{}", answer.status))
        } else {
            RuleOutcome::Fail(format!("answered {}: the key of another caller is in the way", answer.status))
        };
        findings.record(EndpointRule::CallersAreIndependent, independent, &evidence);
    }

    fn kept_apart(&self, answer: &HttpAnswer, counted: &CounterChange) -> RuleOutcome {
        let name = |answer: &HttpAnswer| self.judge.identity.and_then(|identity| identity.of(answer));
        let foreign = || RuleOutcome::Fail("it got the first caller's answer".to_owned());
        match (answer.succeeded(), counted, name(answer)) {
            (false, _, _) if answer.refused() => RuleOutcome::Pass(format!("refused with {}", answer.status)),
            (false, _, _) => RuleOutcome::NotTried(format!("{} does not say what happened", answer.status)),
            (true, _, Some(named)) if Some(&named) == name(&self.answer).as_ref() => foreign(),
            (true, CounterChange::By(0), _) => foreign(),
            (true, CounterChange::By(1..), _) => {
                RuleOutcome::Pass("it ran as a command of its own".to_owned())
            }
            (true, _, Some(_)) => RuleOutcome::Pass("its answer names another resource".to_owned()),
            (true, _, None) => RuleOutcome::NotTried(
                "executions can neither be counted nor told apart, so the answer cannot be matched to its request"
                    .to_owned(),
            ),
        }
    }

    /// Sends a command without a key.
    pub(super) async fn omit_key(&self, findings: &mut RuleFindings) {
        if self.options.profile == AnswerProfile::Stripe {
            let why = "in this profile a key is optional".to_owned();
            return findings.record(EndpointRule::MissingKeyRefused, RuleOutcome::NotTried(why), &[]);
        }
        let mut message = self.command(&self.key);
        message.keys.clear();
        let exchange = self.send("no key", message).await;
        findings.refusal(&exchange);
        findings.record(EndpointRule::MissingKeyRefused, refused_with_400(&[&exchange]), &[&exchange]);
    }

    /// Sends commands with malformed keys.
    pub(super) async fn malform_keys(&self, findings: &mut RuleFindings) {
        let text = |text: &str| HeaderValue::from_str(text).expect("keys of ours are printable");
        let long = fresh_key() + &"0".repeat(TOO_LONG);
        let mut malformed = vec![
            ("an empty key", vec![text("")]),
            ("a key of more than 300 characters", vec![spelled(self.options, &long)]),
            ("two keys", vec![spelled(self.options, &fresh_key()), spelled(self.options, &fresh_key())]),
        ];
        // Where any text is a key, an open quote is part of it.
        if self.options.profile == AnswerProfile::Ietf {
            malformed.push(("a quote that is never closed", vec![text(&format!("\"{}", fresh_key()))]));
        }
        let mut exchanges = Vec::new();
        for (note, keys) in malformed {
            let mut message = self.command(&self.key);
            message.keys = keys;
            let exchange = self.send(note, message).await;
            findings.refusal(&exchange);
            exchanges.push(exchange);
        }
        let exchanges: Vec<&Exchange> = exchanges.iter().collect();
        let outcome = refused_with_400(&exchanges);
        let accepted =
            |exchange: &&Exchange| !exchange.answer.as_ref().is_ok_and(|answer| answer.status == 400);
        let (wrong, right): (Vec<_>, Vec<_>) = exchanges.into_iter().partition(accepted);
        let evidence = if wrong.is_empty() { right } else { wrong };
        findings.record(EndpointRule::MalformedKeysRefused, outcome, &evidence);
    }

    /// Checks the shape of every refusal so far.
    pub(super) fn look_at_refusals(&self, findings: &mut RuleFindings) {
        let refusals = findings.refusals().to_vec();
        let refusals: Vec<&Exchange> = refusals.iter().collect();
        if refusals.is_empty() {
            let why = "nothing was refused".to_owned();
            return findings.record(EndpointRule::ProblemDetails, RuleOutcome::NotTried(why), &[]);
        }
        for exchange in &refusals {
            let Ok(answer) = &exchange.answer else { continue };
            if let Err(why) = shape::check(answer, self.options.profile, exchange.note == CHANGED) {
                let why = format!("{}: {why}", exchange.note);
                return findings.record(EndpointRule::ProblemDetails, RuleOutcome::Fail(why), &[exchange]);
            }
        }
        let outcome = RuleOutcome::Pass(format!("{} refusals", refusals.len()));
        findings.record(EndpointRule::ProblemDetails, outcome, &refusals);
    }

    /// Checks the expiry date of the first answer.
    pub(super) fn look_at_expiry(&self, findings: &mut RuleFindings) {
        let name = "idempotency-expires";
        let date = |name| self.answer.header(name).map(http_date);
        let outcome = match (date(name), date("date").flatten()) {
            (None, _) => RuleOutcome::Fail(format!("the answer has no {name}")),
            (Some(None), _) => RuleOutcome::Fail(format!("{name} is not an HTTP date")),
            (Some(Some(expires)), Some(now)) if expires <= now => {
                RuleOutcome::Fail(format!("{name} is not after the answer's own Date"))
            }
            (Some(Some(expires)), _) => RuleOutcome::Pass(shown_date(expires)),
        };
        findings.record(EndpointRule::ExpiryPublished, outcome, &[&self.first]);
    }
}

/// Reads the date of a header field.
fn http_date(text: &str) -> Option<Timestamp> {
    DateTimeParser::new().parse_timestamp(text).ok()
}

/// Writes a date as header fields do.
fn shown_date(date: Timestamp) -> String {
    DateTimePrinter::new().timestamp_to_rfc9110_string(&date).unwrap_or_else(|_| date.to_string())
}

/// Returns the outcome of requests that must all be refused with 400.
fn refused_with_400(exchanges: &[&Exchange]) -> RuleOutcome {
    let wrong = |exchange: &&Exchange| match &exchange.answer {
        Ok(answer) if answer.status == 400 => None,
        Ok(answer) if answer.succeeded() => {
            Some(format!("{}: it ran, with {}", exchange.note, answer.status))
        }
        Ok(answer) => Some(format!("{}: {}, where 400 is right", exchange.note, answer.status)),
        Err(error) => Some(format!("{}: {error}", exchange.note)),
    };
    let wrong: Vec<String> = exchanges.iter().filter_map(wrong).collect();
    if !wrong.is_empty() {
        return RuleOutcome::Fail(wrong.join("; "));
    }
    let tried: Vec<&str> = exchanges.iter().map(|exchange| exchange.note).collect();
    RuleOutcome::Pass(tried.join(", "))
}
