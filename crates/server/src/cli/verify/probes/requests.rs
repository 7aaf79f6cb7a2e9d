//! Keys where they do not belong, missing keys, keys that are none, another caller's keys; and what is said of them.

use bytes::Bytes;
use http::{HeaderValue, Method};
use semel_core::Timestamp;

use super::super::client::{Answer, Exchange};
use super::super::judge::Counted;
use super::super::options::Profile;
use super::super::rules::{Findings, Outcome, Rule};
use super::super::shape;
use super::{CHANGED, Subject, fresh_key, spelled, unanswered};

/// Longer than any key may be.
const TOO_LONG: usize = 300;

impl Subject<'_> {
    /// GET without a key, and under the key of the first command.
    pub(super) async fn get(&self, findings: &mut Findings) {
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
                let rules = [Rule::GetIsNoReplay, Rule::GetIgnoresKey];
                return findings.record_all(&rules, &unanswered(error), &evidence);
            }
        };
        let marked = with.header(self.options.profile.replay_mark()) == Some("true");
        let the_same =
            |answer: &Answer| answer.status == self.answer.status && answer.body == self.answer.body;
        let replayed = marked || (the_same(with) && !the_same(without));
        let no_replay = if replayed {
            Outcome::Fail("it got the answer of the command".to_owned())
        } else {
            Outcome::Pass(format!("{}", with.status))
        };
        findings.record(Rule::GetIsNoReplay, no_replay, &evidence);
        let (without, with) = (without.status, with.status);
        let ignored = if without == with {
            Outcome::Pass(format!("{with} with a key and without"))
        } else {
            Outcome::Fail(format!("{without} without a key, {with} with one"))
        };
        findings.record(Rule::GetIgnoresKey, ignored, &evidence);
    }

    /// The first command's key and body, sent by somebody else.
    pub(super) async fn call_as_another(&self, findings: &mut Findings) {
        let skip = |findings: &mut Findings, why: String, evidence: &[&Exchange]| {
            let rules = [Rule::CallersAreApart, Rule::CallersAreIndependent];
            findings.record_all(&rules, &Outcome::NotTried(why), evidence);
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
        if !own.answer.as_ref().is_ok_and(Answer::succeeded) {
            return skip(findings, "the second caller's own command did not succeed".to_owned(), &[&own]);
        }
        let before = self.count().await;
        let exchange = self
            .send_until_settled("the second caller, under the first one's key", &by_other(&self.key))
            .await;
        let counted = Counted::between(before, self.settled_count().await);
        let evidence = [&self.first, &exchange];
        let answer = match &exchange.answer {
            Ok(answer) => answer,
            Err(error) => return skip(findings, error.to_string(), &evidence),
        };
        findings.record(Rule::CallersAreApart, self.kept_apart(answer, &counted), &evidence);
        let independent = if answer.succeeded() {
            Outcome::Pass(format!("{}", answer.status))
        } else {
            Outcome::Fail(format!("answered {}: the key of another caller is in the way", answer.status))
        };
        findings.record(Rule::CallersAreIndependent, independent, &evidence);
    }

    fn kept_apart(&self, answer: &Answer, counted: &Counted) -> Outcome {
        let name = |answer: &Answer| self.judge.identity.and_then(|identity| identity.of(answer));
        let foreign = || Outcome::Fail("it got the first caller's answer".to_owned());
        match (answer.succeeded(), counted, name(answer)) {
            (false, _, _) if answer.refused() => Outcome::Pass(format!("refused with {}", answer.status)),
            (false, _, _) => Outcome::NotTried(format!("{} does not say what happened", answer.status)),
            (true, _, Some(named)) if Some(&named) == name(&self.answer).as_ref() => foreign(),
            (true, Counted::By(0), _) => foreign(),
            (true, Counted::By(1..), _) => Outcome::Pass("it ran as a command of its own".to_owned()),
            (true, _, Some(_)) => Outcome::Pass("its answer names another resource".to_owned()),
            (true, _, None) => Outcome::NotTried(
                "executions can neither be counted nor told apart, so nobody can tell whose answer it is"
                    .to_owned(),
            ),
        }
    }

    pub(super) async fn omit_key(&self, findings: &mut Findings) {
        if self.options.profile == Profile::Stripe {
            let why = "in this profile a key is optional".to_owned();
            return findings.record(Rule::MissingKeyRefused, Outcome::NotTried(why), &[]);
        }
        let mut message = self.command(&self.key);
        message.keys.clear();
        let exchange = self.send("no key", message).await;
        findings.refusal(&exchange);
        findings.record(Rule::MissingKeyRefused, refused_with_400(&[&exchange]), &[&exchange]);
    }

    pub(super) async fn malform_keys(&self, findings: &mut Findings) {
        let text = |text: &str| HeaderValue::from_str(text).expect("keys of ours are printable");
        let long = fresh_key() + &"0".repeat(TOO_LONG);
        let mut malformed = vec![
            ("an empty key", vec![text("")]),
            ("a key of more than 300 characters", vec![spelled(self.options, &long)]),
            ("two keys", vec![spelled(self.options, &fresh_key()), spelled(self.options, &fresh_key())]),
        ];
        // Where a key is any text, a quote that is never closed is part of it.
        if self.options.profile == Profile::Ietf {
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
        findings.record(Rule::MalformedKeysRefused, outcome, &evidence);
    }

    /// The shape of every refusal that was seen.
    pub(super) fn look_at_refusals(&self, findings: &mut Findings) {
        let refusals = findings.refusals().to_vec();
        let refusals: Vec<&Exchange> = refusals.iter().collect();
        if refusals.is_empty() {
            let why = "nothing was refused".to_owned();
            return findings.record(Rule::ProblemDetails, Outcome::NotTried(why), &[]);
        }
        for exchange in &refusals {
            let Ok(answer) = &exchange.answer else { continue };
            if let Err(why) = shape::check(answer, self.options.profile, exchange.note == CHANGED) {
                let why = format!("{}: {why}", exchange.note);
                return findings.record(Rule::ProblemDetails, Outcome::Fail(why), &[exchange]);
            }
        }
        let outcome = Outcome::Pass(format!("{} refusals", refusals.len()));
        findings.record(Rule::ProblemDetails, outcome, &refusals);
    }

    pub(super) fn look_at_expiry(&self, findings: &mut Findings) {
        let name = "idempotency-expires";
        let date = |name| self.answer.header(name).map(Timestamp::from_http_date);
        let outcome = match (date(name), date("date").flatten()) {
            (None, _) => Outcome::Fail(format!("the answer has no {name}")),
            (Some(None), _) => Outcome::Fail(format!("{name} is not an HTTP date")),
            (Some(Some(expires)), Some(now)) if expires <= now => {
                Outcome::Fail(format!("{name} is not after the answer's own Date"))
            }
            (Some(Some(expires)), _) => Outcome::Pass(expires.to_http_date()),
        };
        findings.record(Rule::ExpiryPublished, outcome, &[&self.first]);
    }
}

fn refused_with_400(exchanges: &[&Exchange]) -> Outcome {
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
        return Outcome::Fail(wrong.join("; "));
    }
    let tried: Vec<&str> = exchanges.iter().map(|exchange| exchange.note).collect();
    Outcome::Pass(tried.join(", "))
}
