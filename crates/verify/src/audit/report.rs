//! The report of an audit, as text and as JSON.

use std::fmt::Write;

use indexmap::IndexMap;
use serde_json::{Map, Value, json};

use super::document::printable;
use super::groups::{self, EndpointGroup};
use super::judge::{ANSWERS, AuditedEndpoint, Expiry};

/// The widest column. Longer paths are shown whole, but do not widen the table.
const MAX_COLUMN: usize = 48;

/// The result of an audit.
#[derive(Debug)]
pub struct AuditReport {
    /// The version of OpenAPI, as the document has it.
    pub(super) version: String,
    pub(super) endpoints: Vec<AuditedEndpoint>,
    /// The endpoints that were left out on request, as method and path.
    pub(super) ignored: Vec<String>,
}

impl AuditReport {
    /// Returns whether every endpoint declares everything.
    pub fn ok(&self) -> bool {
        self.lacking() == 0
    }

    fn lacking(&self) -> usize {
        self.endpoints.iter().filter(|endpoint| !endpoint.missing().is_empty()).count()
    }

    /// Returns the report for programs. Its names are part of the contract.
    pub fn to_json(&self) -> Value {
        json!({
            "ok": self.ok(),
            "openapi": self.version,
            "endpoints": self.endpoints.iter().map(endpoint_json).collect::<Vec<_>>(),
            "groups": groups::of(&self.endpoints).iter().map(group_json).collect::<Vec<_>>(),
            "ignored": self.ignored,
        })
    }

    /// Returns the report for people.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        if groups::are_wanted(&self.endpoints) {
            groups::of(&self.endpoints).iter().for_each(|group| show_group(&mut out, group));
        } else if !self.endpoints.is_empty() {
            table(&mut out, &self.endpoints.iter().collect::<Vec<_>>());
            line(&mut out, "");
            self.endpoints.iter().for_each(|endpoint| show(&mut out, endpoint));
        }
        line(&mut out, &self.summary());
        out
    }

    fn summary(&self) -> String {
        let ignored = match self.ignored.len() {
            0 => String::new(),
            ignored => format!(" {ignored} ignored."),
        };
        let verdict = match (self.endpoints.len(), self.lacking()) {
            (0, _) if self.ignored.is_empty() => "There is no endpoint that changes state.".to_owned(),
            (0, _) => "There is no other endpoint that changes state.".to_owned(),
            (1, 0) => "The one endpoint declares everything.".to_owned(),
            (all, 0) => format!("All {all} endpoints declare everything."),
            (all, lacking) => {
                format!("{lacking} of {all} lack something: `semel audit --help` says how to declare it.")
            }
        };
        verdict + &ignored
    }
}

/// Writes the missing parts and the notes of one endpoint.
fn show(out: &mut String, endpoint: &AuditedEndpoint) {
    let missing = endpoint.missing();
    if missing.is_empty() && endpoint.notes.is_empty() {
        return;
    }
    let (method, path) = (printable(&endpoint.method), printable(&endpoint.path));
    line(out, &format!("{method} {path} (line {})", endpoint.line));
    for missing in missing.into_iter().filter(|_| endpoint.seen) {
        line(out, &format!("  {:6}  {}", missing.name(), missing.sentence()));
    }
    for note in &endpoint.notes {
        line(out, &format!("  note    {note}"));
    }
    line(out, "");
}

/// Writes a group: its table, and each sentence once, with the number of its endpoints.
fn show_group(out: &mut String, group: &EndpointGroup<'_>) {
    let (name, all, lacking) = (printable(group.name), group.endpoints.len(), group.lacking());
    line(out, &format!("== {name}: {lacking} of {all} lack something =="));
    line(out, "");
    table(out, &group.endpoints);
    line(out, "");
    let mut sentences: IndexMap<String, usize> = IndexMap::new();
    for endpoint in &group.endpoints {
        let missing = endpoint.missing().into_iter().filter(|_| endpoint.seen);
        let missing = missing.map(|missing| format!("{:6}  {}", missing.name(), missing.sentence()));
        let notes = endpoint.notes.iter().map(|note| format!("note    {note}"));
        missing.chain(notes).for_each(|sentence| *sentences.entry(sentence).or_default() += 1);
    }
    for (sentence, count) in &sentences {
        line(out, &format!("  {count:4} x  {sentence}"));
    }
    if !sentences.is_empty() {
        line(out, "");
    }
}

fn table(out: &mut String, endpoints: &[&AuditedEndpoint]) {
    let heads = ["METHOD", "PATH", "LINE", "KEY", ANSWERS[0], ANSWERS[1], ANSWERS[2], "EXPIRY"];
    let mut rows = vec![heads.map(str::to_owned)];
    rows.extend(endpoints.iter().map(|endpoint| row(endpoint)));
    let widths: [usize; 8] = std::array::from_fn(|column| {
        let widest = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        widest.min(MAX_COLUMN)
    });
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        line(out, &cells.collect::<Vec<_>>().join("  "));
    }
}

fn row(endpoint: &AuditedEndpoint) -> [String; 8] {
    let [first, second, third] =
        endpoint.answers.map(|declared| if declared { "yes" } else { "-" }.to_owned());
    let expiry = match &endpoint.expiry {
        None => "-".to_owned(),
        Some(Expiry::Extension(time) | Expiry::Description(time)) => printable(time),
        Some(Expiry::Header) => "in each answer".to_owned(),
    };
    [
        printable(&endpoint.method),
        printable(&endpoint.path),
        endpoint.line.to_string(),
        endpoint.key.name().to_owned(),
        first,
        second,
        third,
        expiry,
    ]
}

fn group_json(group: &EndpointGroup<'_>) -> Value {
    json!({ "name": group.name, "endpoints": group.endpoints.len(), "lacking": group.lacking() })
}

fn endpoint_json(endpoint: &AuditedEndpoint) -> Value {
    let answers: Map<String, Value> = ANSWERS
        .into_iter()
        .zip(endpoint.answers)
        .map(|(status, declared)| (status.to_owned(), declared.into()))
        .collect();
    let expiry = endpoint.expiry.as_ref().map(|expiry| match expiry {
        Expiry::Extension(time) => json!({ "from": "extension", "value": time }),
        Expiry::Header => json!({ "from": "header", "value": null }),
        Expiry::Description(time) => json!({ "from": "description", "value": time }),
    });
    json!({
        "method": endpoint.method,
        "path": endpoint.path,
        "operationId": endpoint.operation_id,
        "line": endpoint.line,
        "group": groups::name(endpoint),
        "key": endpoint.key.name(),
        "keyIn": endpoint.key_place.as_ref().map(|(place, _)| place.name()),
        "keyName": endpoint.key_place.as_ref().map(|(_, name)| name),
        "answers": answers,
        "expiry": expiry,
        "missing": endpoint.missing().into_iter().map(|missing| missing.name()).collect::<Vec<_>>(),
        "notes": endpoint.notes,
    })
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{}", text.trim_end()).expect("a string takes whatever is written");
}
