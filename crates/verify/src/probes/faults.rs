//! Probes with network faults: concurrent duplicates, and clients that hang up.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::{TriedEndpoint, fresh_key, must_run_once};
use crate::client::{Exchange, HttpAnswer};
use crate::judge::{CounterChange, Runs};
use crate::rules::{EndpointRule, RuleFindings, RuleOutcome};

/// The number of concurrent duplicates.
const DUPLICATES: usize = 20;

/// The moments of hanging up: the part of the body that is sent, and the part of a command's time that is waited then, in
/// quarters.
const HANG_UPS: [(usize, u32); 5] = [(2, 0), (4, 0), (4, 1), (4, 2), (4, 3)];

impl TriedEndpoint<'_> {
    /// Sends one command over many connections at once, all opened beforehand.
    pub(super) async fn duplicate(&self, findings: &mut RuleFindings) {
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
        let counted = CounterChange::between(before, self.settled_count().await);
        let answers: Vec<&HttpAnswer> =
            exchanges.iter().filter_map(|exchange| exchange.answer.as_ref().ok()).collect();
        let unanswered = exchanges.len() - answers.len();
        let outcome = match self.judge.runs(1, &counted, &answers) {
            Runs::Right(_) if counted == CounterChange::NotUsed && unanswered > 0 => RuleOutcome::NotTried(
                format!("{unanswered} had no answer: whether they ran, only a counter tells"),
            ),
            Runs::Right(how) => RuleOutcome::Pass(format!("{how}; {statuses}")),
            runs => must_run_once(runs),
        };
        // One exchange for each distinct answer.
        let mut evidence: Vec<&Exchange> = Vec::new();
        for exchange in &exchanges {
            if !evidence.iter().any(|shown| self.looks_like(shown, exchange)) {
                evidence.push(exchange);
            }
        }
        findings.record(EndpointRule::DuplicatesRunOnce, outcome, &evidence);
        match &odd {
            None => findings.record(EndpointRule::DuplicatesAnswered, RuleOutcome::Pass(statuses), &evidence),
            Some(odd) => {
                let why = format!("not all were answered as they should be: {statuses}");
                findings.record(EndpointRule::DuplicatesAnswered, RuleOutcome::Fail(why), &[odd]);
            }
        }
    }

    /// Returns whether an answer is right for a duplicate.
    fn answers_duplicate(&self, exchange: &Exchange) -> bool {
        exchange.answer.as_ref().is_ok_and(|answer| {
            answer.succeeded() || (answer.status == 409 && answer.headers.contains_key("retry-after"))
        })
    }

    /// Returns whether two exchanges have the same status and identity.
    fn looks_like(&self, one: &Exchange, two: &Exchange) -> bool {
        match (&one.answer, &two.answer) {
            (Ok(one), Ok(two)) => {
                let name = |answer: &HttpAnswer| self.judge.identity.and_then(|identity| identity.of(answer));
                one.status == two.status && name(one) == name(two)
            }
            (Err(_), Err(_)) => true,
            _ => false,
        }
    }

    /// Hangs up at different moments of a command, and then retries.
    pub(super) async fn disconnect(&self, findings: &mut RuleFindings) {
        let before = self.count().await;
        let (mut retries, mut again) = (Vec::new(), Vec::new());
        for (body_quarters, time_quarters) in HANG_UPS {
            let message = self.command(&fresh_key());
            let bytes = message.body.len() * body_quarters / 4;
            let after = self.took * time_quarters / 4;
            if let Err(error) = self.client.hang_up(&self.options.address, &message, bytes, after).await {
                let outcome = RuleOutcome::NotTried(error.to_string());
                let rules = [EndpointRule::DisconnectRunsOnce, EndpointRule::DisconnectAnswered];
                return findings.record_all(&rules, &outcome, &[]);
            }
            let note = "a retry, after hanging up in the middle";
            retries.push(self.send_until_settled(note, &message).await);
            self.settle().await;
            again.push(self.send_until_settled("and once more", &message).await);
        }
        let counted = CounterChange::between(before, self.settled_count().await);
        let mut outcome = self.hung_up(&counted, retries.len());
        let mut evidence: Vec<&Exchange> = retries.iter().collect();
        for (retry, again) in retries.iter().zip(&again) {
            if let (Ok(one), Ok(two)) = (&retry.answer, &again.answer)
                && let Runs::TooOften(how) = self.judge.runs(0, &CounterChange::NotUsed, &[one, two])
            {
                (outcome, evidence) = (RuleOutcome::Fail(how), vec![retry, again]);
            }
        }
        findings.record(EndpointRule::DisconnectRunsOnce, outcome, &evidence);
        let failed =
            retries.iter().find(|exchange| !exchange.answer.as_ref().is_ok_and(HttpAnswer::succeeded));
        let answered = match failed.map(|exchange| &exchange.answer) {
            None => RuleOutcome::Pass(format!("{} retries: {}", retries.len(), statuses(&retries))),
            Some(Ok(answer)) => {
                RuleOutcome::Fail(format!("a retry was still answered {} in the end", answer.status))
            }
            Some(Err(error)) => RuleOutcome::Fail(format!("a retry: {error}")),
        };
        findings.record(
            EndpointRule::DisconnectAnswered,
            answered,
            &failed.map_or(evidence, |failed| vec![failed]),
        );
    }

    /// Judges by the counter alone, since the lost answer cannot be compared.
    fn hung_up(&self, counted: &CounterChange, commands: usize) -> RuleOutcome {
        let expected = commands as i128;
        match counted {
            CounterChange::By(moved) if *moved > expected => RuleOutcome::Fail(format!(
                "{commands} commands, each hung up once, moved the counter by {moved}"
            )),
            CounterChange::By(moved) if *moved == expected => RuleOutcome::Pass(format!(
                "{commands} commands, each hung up once, moved the counter by {moved}"
            )),
            CounterChange::By(moved) => RuleOutcome::NotTried(format!(
                "the counter moved by {moved} for {commands} commands: not all of them ran"
            )),
            CounterChange::Unreadable(why) => {
                RuleOutcome::NotTried(format!("the counter could not be read: {why}"))
            }
            CounterChange::NotUsed => RuleOutcome::NotTried(
                "the answer that was lost cannot be compared: only a --count-url that can be used tells"
                    .to_owned(),
            ),
        }
    }
}

/// Returns the number of each status: `1 × 201, 19 × 409`.
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
