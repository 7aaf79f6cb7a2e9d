//! State of the payment service: its ledger, its bad days, and what became of its events.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::{Value, json};

use super::switches::ArmedDays;
use crate::cli::demo::introduction::Introduction;
use crate::cli::demo::ledger::ChargeLedger;

/// Number of charges that the page shows, and of events that are remembered.
const MAX_SHOWN: usize = 12;
/// Answer to an event whose process was killed before it sent it.
const LOST: &str = "lost";

/// Payment service.
pub(super) struct Shop {
    pub(super) ledger: ChargeLedger,
    introduction: OnceLock<Introduction>,
    days: Mutex<ArmedDays>,
    events: Mutex<BTreeMap<usize, EventReport>>,
}

/// Delivery of the event about a charge.
struct EventReport {
    /// Number of times that it is sent.
    copies: usize,
    /// The gateway's answers so far.
    answers: Vec<String>,
}

impl Shop {
    /// Opens the service with this ledger, and without an introduction.
    pub(super) fn new(ledger: ChargeLedger) -> Shop {
        let events = Mutex::new(read_events(&events_file(&ledger)));
        Shop { ledger, introduction: OnceLock::new(), days: Mutex::default(), events }
    }

    /// Opens the page, and begins to send events.
    pub(super) fn introduce(&self, introduction: Introduction) {
        // There is one line, so there is no second introduction.
        let _ = self.introduction.set(introduction);
    }

    /// Returns the introduction, once the story is told.
    pub(super) fn introduction(&self) -> Option<&Introduction> {
        self.introduction.get()
    }

    /// Returns the bad days.
    pub(super) fn days(&self) -> MutexGuard<'_, ArmedDays> {
        self.days.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn events(&self) -> MutexGuard<'_, BTreeMap<usize, EventReport>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers that the event about this charge is going to be sent.
    pub(super) fn expect_event(&self, charge: usize, copies: usize) {
        let mut events = self.events();
        events.insert(charge, EventReport { copies, answers: Vec::new() });
        if events.len() > MAX_SHOWN {
            events.pop_first();
        }
        self.keep(&events);
    }

    /// Remembers an answer to the event about this charge.
    pub(super) fn note_answer(&self, charge: usize, answer: String) {
        let mut events = self.events();
        if let Some(report) = events.get_mut(&charge) {
            report.answers.push(answer);
        }
        self.keep(&events);
    }

    /// Keeps the reports for the page of the next process. Without the file, that page says less.
    fn keep(&self, events: &BTreeMap<usize, EventReport>) {
        let lines = events.iter().map(|(charge, report)| json!([charge, report.copies, report.answers]));
        let _ = std::fs::write(events_file(&self.ledger), Value::from_iter(lines).to_string());
    }

    /// Returns the state for the page; the latest charges come first.
    pub(super) fn show(&self) -> Value {
        let charges = self.ledger.charges();
        let events = self.events();
        let event = |charge: &Value| {
            let number = charge["charge"].as_u64().and_then(|number| usize::try_from(number).ok());
            let report = number.and_then(|number| events.get(&number));
            report.map(|report| json!({ "copies": report.copies, "answers": report.answers }))
        };
        let latest: Vec<Value> = charges
            .iter()
            .rev()
            .take(MAX_SHOWN)
            .map(|charge| {
                json!({
                    "charge": charge["charge"],
                    "amount": charge["amount"],
                    "operation": charge["operation"],
                    "body": charge.to_string(),
                    "event": event(charge),
                })
            })
            .collect();
        json!({
            "process": std::process::id(),
            "introduction": self.introduction().map(Introduction::show),
            "switches": self.days().show(),
            "count": charges.len(),
            "charges": latest,
        })
    }
}

/// Returns the file with the reports, beside the ledger.
fn events_file(ledger: &ChargeLedger) -> PathBuf {
    ledger.path().with_extension("events.json")
}

/// Reads the reports of the process before. What it had not sent is lost.
fn read_events(file: &Path) -> BTreeMap<usize, EventReport> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<Value> = serde_json::from_str(&text).unwrap_or_default();
    let number = |value: &Value| value.as_u64().and_then(|number| usize::try_from(number).ok());
    let report = |line: &Value| {
        let (charge, copies) = (number(&line[0])?, number(&line[1])?);
        let mut answers: Vec<String> =
            line[2].as_array()?.iter().filter_map(|answer| answer.as_str().map(str::to_owned)).collect();
        answers.resize(copies, LOST.to_owned());
        Some((charge, EventReport { copies, answers }))
    };
    lines.iter().filter_map(report).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_process_knows_which_events_were_sent_and_which_are_lost() {
        let folder = tempfile::TempDir::new().expect("there is room");
        let ledger = ChargeLedger::of(folder.path());
        for charge in 1..=3 {
            let charge = json!({ "charge": charge, "amount": 5, "operation": null });
            ledger.write(&charge).expect("there is room");
        }
        let shop = Shop::new(ledger.clone());
        shop.expect_event(1, 1);
        shop.note_answer(1, "taken".to_owned());
        shop.expect_event(2, 2);
        let events = |shop: &Shop| -> Vec<Value> {
            let shown = shop.show();
            let charges = shown["charges"].as_array().expect("it is a list");
            charges.iter().rev().map(|charge| charge["event"]["answers"].clone()).collect()
        };
        assert_eq!(events(&shop), [json!(["taken"]), json!([]), json!(null)]);
        assert_eq!(events(&Shop::new(ledger)), [json!(["taken"]), json!([LOST, LOST]), json!(null)]);
    }
}
