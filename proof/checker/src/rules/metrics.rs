//! Invariant 15: counters against what clients saw.
//!
//! Between two readings of one process, every request that was sent and answered is counted once, by what it was told.
//! A request whose answer was lost, or that was under way at a reading, may have been counted as anything, or not at
//! all. So where there is none, the counts are exact. An executor that was overruled (it is counted as a zombie) has
//! run the command and yet tells the record's truth: each may be counted once here and told otherwise there. Who asks
//! for a command of a worker runs nothing: "begun, outcome unknown" is what they are told whose claim could not be
//! confirmed, and is counted as unknown.

use std::collections::BTreeMap;

use super::found;
use crate::book::{At, Book};
use crate::event::{Event, Metrics, Mode};
use crate::kind::Kind;
use crate::story::Violation;

/// What is counted together, and by which answers it shows.
const GROUPS: [(&str, &[&str], &[Kind]); 7] = [
    (
        "executed",
        &["executed", "reacquired"],
        &[Kind::Executed, Kind::Passed, Kind::Broken, Kind::Unreachable],
    ),
    ("replayed", &["replayed"], &[Kind::Replayed]),
    ("mismatch", &["mismatch"], &[Kind::Mismatch]),
    // Who has a command taken up is told the same as who finds it taken up.
    ("in progress or accepted", &["in_progress", "accepted"], &[Kind::InProgress, Kind::Accepted]),
    ("unknown", &["unknown"], &[Kind::Unknown]),
    ("refused", &["refused"], &[Kind::Duplicate, Kind::Refused]),
    ("store error", &["store_error"], &[Kind::StoreAway]),
];

const CLAIMS: &str = "idempotency_claims_total";
const ZOMBIES: &str = "idempotency_zombies_total";

/// Counters that must say the same as another one, where they are read together.
const SAME: [(&str, &str); 3] = [
    ("idempotency_replays_total", "replayed"),
    ("idempotency_in_progress_total", "in_progress"),
    ("idempotency_fingerprint_mismatch_total", "mismatch"),
];

/// 15: what the processes that lived from one reading to the next have counted is what happened in between.
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

/// What workers have run since everything was quiet, wherever they are: each call of the service was counted once.
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
        // A worker runs what others have asked for, elsewhere and earlier.
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

/// By how much counters of this name have risen, those whose labels fit.
fn rise(from: &Metrics, to: &Metrics, name: &str, fits: &dyn Fn(&BTreeMap<String, String>) -> bool) -> u64 {
    let sum = |metrics: &Metrics| -> u64 {
        let samples = metrics.samples.iter().filter(|sample| sample.name == name && fits(&sample.labels));
        samples.map(|sample| sample.value).sum()
    };
    sum(to).saturating_sub(sum(from))
}
