//! What networks do to commands: duplicates at once, and clients that hang up.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::super::client::{Answer, Exchange};
use super::super::judge::{Counted, Runs};
use super::super::rules::{Findings, Outcome, Rule};
use super::{Subject, fresh_key, must_run_once};

/// How many duplicates are sent at once.
const DUPLICATES: usize = 20;

/// When a client hangs up: which part of the body is sent, and which part of a command's usual time is waited
/// after it, in quarters.
const HANG_UPS: [(usize, u32); 5] = [(2, 0), (4, 0), (4, 1), (4, 2), (4, 3)];

impl Subject<'_> {
    /// The same command on many connections, all made beforehand.
    pub(super) async fn duplicate(&self, findings: &mut Findings) {
        let message = self.command(&fresh_key());
        let before = self.count().await;
        let (barrier, mut sending) = (Arc::new(Barrier::new(DUPLICATES)), JoinSet::new());
        for _ in 0..DUPLICATES {
            let (barrier, client) = (barrier.clone(), self.client.clone());
            let (address, message) = (self.options.address.clone(), message.clone());
            sending.spawn(async move {
                let connection = client.connect(&address).await;
                barrier.wait().await;
                let answer = match connection {
                    Ok(connection) => connection.send(&address, &message).await,
                    Err(error) => Err(error),
                };
                Exchange { note: "one of 20 at once", target: address.target().to_owned(), message, answer }
            });
        }
        let mut exchanges = sending.join_all().await;
        let odd = exchanges.iter().find(|exchange| !self.answers_duplicate(exchange)).cloned();
        let statuses = statuses(&exchanges);
        exchanges.push(self.send_until_settled("and once more", &message).await);
        let counted = Counted::between(before, self.settled_count().await);
        let answers: Vec<&Answer> =
            exchanges.iter().filter_map(|exchange| exchange.answer.as_ref().ok()).collect();
        let unanswered = exchanges.len() - answers.len();
        let outcome = match self.judge.runs(1, &counted, &answers) {
            Runs::Right(_) if counted == Counted::NotUsed && unanswered > 0 => Outcome::NotTried(format!(
                "{unanswered} had no answer: whether they ran, only a counter tells"
            )),
            Runs::Right(how) => Outcome::Pass(format!("{how}; {statuses}")),
            runs => must_run_once(runs),
        };
        // Those that show the most: each outcome that was seen, once.
        let mut evidence: Vec<&Exchange> = Vec::new();
        for exchange in &exchanges {
            if !evidence.iter().any(|shown| self.looks_like(shown, exchange)) {
                evidence.push(exchange);
            }
        }
        findings.record(Rule::DuplicatesRunOnce, outcome, &evidence);
        match &odd {
            None => findings.record(Rule::DuplicatesAnswered, Outcome::Pass(statuses), &evidence),
            Some(odd) => {
                let why = format!("not all were answered as they should be: {statuses}");
                findings.record(Rule::DuplicatesAnswered, Outcome::Fail(why), &[odd]);
            }
        }
    }

    fn answers_duplicate(&self, exchange: &Exchange) -> bool {
        exchange.answer.as_ref().is_ok_and(|answer| {
            answer.succeeded() || (answer.status == 409 && answer.headers.contains_key("retry-after"))
        })
    }

    fn looks_like(&self, one: &Exchange, two: &Exchange) -> bool {
        match (&one.answer, &two.answer) {
            (Ok(one), Ok(two)) => {
                let name = |answer: &Answer| self.judge.identity.and_then(|identity| identity.of(answer));
                one.status == two.status && name(one) == name(two)
            }
            (Err(_), Err(_)) => true,
            _ => false,
        }
    }

    /// Commands whose client hangs up at different moments, and then tries again.
    pub(super) async fn disconnect(&self, findings: &mut Findings) {
        let before = self.count().await;
        let (mut retries, mut again) = (Vec::new(), Vec::new());
        for (body_quarters, time_quarters) in HANG_UPS {
            let message = self.command(&fresh_key());
            let bytes = message.body.len() * body_quarters / 4;
            let after = self.took * time_quarters / 4;
            if let Err(error) = self.client.hang_up(&self.options.address, &message, bytes, after).await {
                let outcome = Outcome::NotTried(error.to_string());
                let rules = [Rule::DisconnectRunsOnce, Rule::DisconnectAnswered];
                return findings.record_all(&rules, &outcome, &[]);
            }
            let note = "a retry, after hanging up in the middle";
            retries.push(self.send_until_settled(note, &message).await);
            self.settle().await;
            again.push(self.send_until_settled("and once more", &message).await);
        }
        let counted = Counted::between(before, self.settled_count().await);
        let mut outcome = self.hung_up(&counted, retries.len());
        let mut evidence: Vec<&Exchange> = retries.iter().collect();
        for (retry, again) in retries.iter().zip(&again) {
            if let (Ok(one), Ok(two)) = (&retry.answer, &again.answer)
                && let Runs::TooOften(how) = self.judge.runs(0, &Counted::NotUsed, &[one, two])
            {
                (outcome, evidence) = (Outcome::Fail(how), vec![retry, again]);
            }
        }
        findings.record(Rule::DisconnectRunsOnce, outcome, &evidence);
        let failed = retries.iter().find(|exchange| !exchange.answer.as_ref().is_ok_and(Answer::succeeded));
        let answered = match failed.map(|exchange| &exchange.answer) {
            None => Outcome::Pass(format!("{} retries: {}", retries.len(), statuses(&retries))),
            Some(Ok(answer)) => {
                Outcome::Fail(format!("a retry was still answered {} in the end", answer.status))
            }
            Some(Err(error)) => Outcome::Fail(format!("a retry: {error}")),
        };
        findings.record(Rule::DisconnectAnswered, answered, &failed.map_or(evidence, |failed| vec![failed]));
    }

    /// By the counter alone: an answer that nobody read cannot be compared.
    fn hung_up(&self, counted: &Counted, commands: usize) -> Outcome {
        let expected = commands as i128;
        match counted {
            Counted::By(moved) if *moved > expected => {
                Outcome::Fail(format!("{commands} commands, each hung up once, moved the counter by {moved}"))
            }
            Counted::By(moved) if *moved == expected => {
                Outcome::Pass(format!("{commands} commands, each hung up once, moved the counter by {moved}"))
            }
            Counted::By(moved) => Outcome::NotTried(format!(
                "the counter moved by {moved} for {commands} commands: not all of them ran"
            )),
            Counted::Unreadable(why) => Outcome::NotTried(format!("the counter could not be read: {why}")),
            Counted::NotUsed => Outcome::NotTried(
                "the answer that was lost cannot be compared: only a --count-url that can be used tells"
                    .to_owned(),
            ),
        }
    }
}

/// How many there were of each: `1 × 201, 19 × 409`.
fn statuses(exchanges: &[Exchange]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for exchange in exchanges {
        let status = exchange
            .answer
            .as_ref()
            .map_or("no answer".to_owned(), |answer| answer.status.as_str().to_owned());
        *counts.entry(status).or_default() += 1;
    }
    let counts: Vec<String> = counts.iter().map(|(status, count)| format!("{count} × {status}")).collect();
    counts.join(", ")
}
