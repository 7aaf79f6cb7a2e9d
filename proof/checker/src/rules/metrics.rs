//! Invariant 15: counters agree with the answers that clients saw.
//!
//! Between two readings of one process, every request that was sent and answered is counted once, by its answer. A
//! request without an answer, or in progress at a reading, may be counted as anything or not at all.

use std::collections::BTreeMap;

use super::found;
use crate::book::{At, Book};
use crate::event::{Event, Metrics, Mode};
use crate::kind::Kind;
use crate::story::Violation;

/// Outcomes that are counted together, with the answers that show them.
const GROUPS: [(&str, &[&str], &[Kind]); 7] = [
    (
        "executed",
        &["executed", "reacquired"],
        &[Kind::Executed, Kind::Passed, Kind::Broken, Kind::Unreachable],
    ),
    ("replayed", &["replayed"], &[Kind::Replayed]),
    ("mismatch", &["mismatch"], &[Kind::Mismatch]),
    // The request that starts a worker's command and its duplicates get equal answers.
    ("in progress or accepted", &["in_progress", "accepted"], &[Kind::InProgress, Kind::Accepted]),
    ("unknown", &["unknown"], &[Kind::Unknown]),
    ("refused", &["refused"], &[Kind::Duplicate, Kind::Refused]),
    ("store error", &["store_error"], &[Kind::StoreAway]),
];

const CLAIMS: &str = "idempotency_claims_total";
const ZOMBIES: &str = "idempotency_zombies_total";

/// Counters that must equal the claims with this outcome.
const SAME: [(&str, &str); 3] = [
    ("idempotency_replays_total", "replayed"),
    ("idempotency_in_progress_total", "in_progress"),
    ("idempotency_fingerprint_mismatch_total", "mismatch"),
];

/// Checks invariant 15: the counters of each process rise by the events between two readings.
pub(super) fn tell_what_happened(book: &Book<'_>, violations: &mut Vec<Violation>) {
    compare_workers(book, violations);
    let mut before: BTreeMap<(&str, u32), At<'_, Metrics>> = BTreeMap::new();
    for (line, event) in book.events.iter().enumerate() {
        let Event::Metrics(metrics) = event else { continue };
        let process = (metrics.gateway.as_str(), metrics.process);
        if let Some(from) = before.insert(process, (line, metrics)) {
            let operations =
                book.run.operations.iter().filter(|(_, it)| matches!(it.mode, Mode::Sync | Mode::Async));
            for (operation, settings) in operations {
                compare(book, from, (line, metrics), operation, settings.mode, violations);
            }
            for (other, outcome) in SAME {
                let claims = rise(from.1, metrics, CLAIMS, &|labels| {
                    labels.get("outcome").is_some_and(|it| it == outcome)
                });
                let same = rise(from.1, metrics, other, &|_| true);
                if claims != same {
                    let what =
                        format!("{} counts {same} in {other}, and {claims} in {CLAIMS}", metrics.gateway);
                    found(violations, 15, vec![from.0, line], what);
                }
            }
        }
    }
}

/// Compares the executions that all workers counted since faults stopped with the calls that the service saw.
fn compare_workers(book: &Book<'_>, violations: &mut Vec<Violation>) {
    let quiet = book.events.iter().position(|event| matches!(event, Event::Quiet(_))).unwrap_or(usize::MAX);
    let mut read: BTreeMap<(&str, u32), Vec<At<'_, Metrics>>> = BTreeMap::new();
    for (line, event) in book.events.iter().enumerate().filter(|(line, _)| *line > quiet) {
        if let Event::Metrics(metrics) = event {
            read.entry((&metrics.gateway, metrics.process)).or_default().push((line, metrics));
        }
    }
    let lines: Vec<usize> = read.values().flatten().map(|(line, _)| *line).collect();
    let (Some(begin), Some(end)) = (lines.iter().min().copied(), lines.iter().max().copied()) else { return };
    for (operation, _) in book.run.operations.iter().filter(|(_, settings)| settings.mode == Mode::Async) {
        let executed = |labels: &BTreeMap<String, String>| {
            let is = |name: &str, values: &[&str]| {
                labels.get(name).is_some_and(|it| values.contains(&it.as_str()))
            };
            is("operation", &[operation]) && is("outcome", &["executed", "reacquired"])
        };
        let rises = read.values().filter_map(|readings| {
            let ((_, from), (_, to)) = (readings.first()?, readings.last()?);
            Some(rise(from, to, CLAIMS, &executed))
        });
        let counted: u64 = rises.sum();
        let between =
            |event: &&Event| matches!(event, Event::Called(call) if call.command.operation == *operation);
        let calls = book.events[begin..=end].iter().filter(between).count() as u64;
        if counted != calls {
            let what = format!(
                "workers count {counted} executions of {operation} once all was quiet, and the service saw {calls}"
            );
            found(violations, 15, lines.clone(), what);
        }
    }
}

/// Compares the counters of one operation between two readings with the answers of its requests.
///
/// The counts are exact if no request is uncertain. A zombie has run the command and yet answers with the record, so
/// each zombie may shift two counts by one. An unconfirmed claim of a worker's command is answered with "begun, outcome
/// unknown" and counted as unknown.
fn compare(
    book: &Book<'_>,
    (begin, from): At<'_, Metrics>,
    (end, to): At<'_, Metrics>,
    operation: &str,
    mode: Mode,
    violations: &mut Vec<Violation>,
) {
    let mut seen: BTreeMap<Kind, u64> = BTreeMap::new();
    let mut uncertain = 0;
    for request in book.requests.values() {
        let (invoked, asked) = request.invoked;
        let ended = request.ended().unwrap_or(usize::MAX);
        if asked.gateway != to.gateway
            || asked.command.operation != operation
            || ended < begin
            || invoked > end
        {
            continue;
        }
        match request.kind().filter(|_| begin < invoked && ended < end) {
            Some(kind) => *seen.entry(kind).or_default() += 1,
            None => uncertain += 1,
        }
    }
    let of = |labels: &BTreeMap<String, String>| labels.get("operation").is_some_and(|it| it == operation);
    let zombies = rise(from, to, ZOMBIES, &of);
    for (name, outcomes, kinds) in GROUPS {
        // A worker executes commands of earlier requests to any gateway.
        if mode == Mode::Async && name == "executed" {
            continue;
        }
        let counted = rise(from, to, CLAIMS, &|labels| {
            of(labels) && labels.get("outcome").is_some_and(|it| outcomes.contains(&it.as_str()))
        });
        let unconfirmed = (mode == Mode::Async && name == "unknown").then_some(&Kind::Broken);
        let told: u64 = kinds.iter().chain(unconfirmed).filter_map(|kind| seen.get(kind)).sum();
        let least = told.saturating_sub(zombies);
        let most = told + zombies + uncertain;
        if !(least..=most).contains(&counted) {
            let expected = if least == most { least.to_string() } else { format!("{least} to {most}") };
            let what = format!(
                "{} counts {counted} of {operation} as {name} between lines {} and {}, and clients saw {expected}",
                to.gateway,
                begin + 1,
                end + 1
            );
            found(violations, 15, vec![begin, end], what);
        }
    }
}

/// Returns the rise of the counters with this name and fitting labels.
fn rise(from: &Metrics, to: &Metrics, name: &str, fits: &dyn Fn(&BTreeMap<String, String>) -> bool) -> u64 {
    let sum = |metrics: &Metrics| -> u64 {
        let samples = metrics.samples.iter().filter(|sample| sample.name == name && fits(&sample.labels));
        samples.map(|sample| sample.value).sum()
    };
    sum(to).saturating_sub(sum(from))
}
