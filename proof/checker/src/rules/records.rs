//! Invariants 6, 7, 8, 12 and 14: steps of a record.

use super::answers::is_settled;
use super::found;
use crate::book::{Book, Life};
use crate::event::{Mode, Record, Step, Verdict};
use crate::story::Violation;

/// Checks invariant 6: a record leaves `unknown` by a verdict with evidence, or by the outcome of that epoch's
/// executor.
pub(super) fn unknown_is_left_by_evidence(book: &Book<'_>, violations: &mut Vec<Violation>) {
    for (id, life) in &book.operations {
        for pair in life.steps().windows(2) {
            let [before, after] = pair else { continue };
            if before.state != "unknown" || after.state == "unknown" {
                continue;
            }
            if let Err(why) = left(book, life, before, after) {
                let what =
                    format!("operation {id} went from unknown to {} ({}): {why}", after.state, after.reason);
                found(violations, 6, book.story(life), what);
            }
        }
    }
}

fn left(book: &Book<'_>, life: &Life<'_>, before: &Step, after: &Step) -> Result<(), &'static str> {
    let said = |verdict: Verdict| {
        let mut evidence = life.evidence.iter().map(|(_, evidence)| evidence);
        evidence.any(|said| said.verdict == verdict && said.at <= after.at + book.run.rounding_ms)
    };
    let called =
        || life.calls.iter().any(|(_, call)| call.attempt == before.epoch) || !life.requested.is_empty();
    let of_call = after.reason.starts_with("verdict_") || after.reason == "resumed";
    if book.mode_of(life) == Some(Mode::Phased) && of_call {
        return call_ruled(book, life, before, after);
    }
    if after.epoch != before.epoch {
        return Err("in another epoch");
    }
    match (after.state.as_str(), after.reason.as_str()) {
        ("succeeded" | "failed_final", "verdict_executed") if said(Verdict::Executed) => Ok(()),
        ("failed_retryable", "verdict_not_executed") if said(Verdict::NotExecuted) => {
            let quarantine = life.record().map_or(0, |(_, record)| {
                book.run.operations.get(&record.operation).map_or(0, |operation| operation.quarantine_ms)
            });
            if after.at < before.at + quarantine {
                return Err("a call could still have been on its way");
            }
            Ok(())
        }
        // A call that lands late and the next call meet at the provider, which deduplicates them.
        ("failed_retryable", "verdict_deduplicated") if said(Verdict::NotExecuted) => {
            let settings = life.record().and_then(|(_, record)| book.run.operations.get(&record.operation));
            if settings.is_some_and(|operation| operation.deduplicates) {
                return Ok(());
            }
            Err("nobody deduplicates it")
        }
        (_, "verdict_executed" | "verdict_not_executed" | "verdict_deduplicated") => {
            Err("nobody had given evidence")
        }
        ("succeeded" | "failed_final", "answered" | "server_error") if called() => Ok(()),
        ("succeeded" | "failed_final", "answered" | "server_error") => Err("the service was never called"),
        ("failed_retryable", "not_executed" | "claim_unconfirmed" | "shut_down") => Ok(()),
        _ => Err("nobody may do that"),
    }
}

/// Checks that a verdict about the open call of a command in phases resumes it under the next epoch.
fn call_ruled(book: &Book<'_>, life: &Life<'_>, before: &Step, after: &Step) -> Result<(), &'static str> {
    let verdict = match after.reason.as_str() {
        "verdict_executed" => Verdict::Executed,
        "resumed" => Verdict::NothingOpen,
        _ => Verdict::NotExecuted,
    };
    let said = life.evidence.iter().map(|(_, evidence)| evidence).any(|said| {
        let of_call = said.part.is_some() || verdict == Verdict::NothingOpen;
        said.verdict == verdict && of_call && said.at <= after.at + book.run.rounding_ms
    });
    let quarantine = life.operation().and_then(|operation| book.run.operations.get(operation));
    let quarantine = quarantine.map_or(0, |operation| operation.quarantine_ms);
    match () {
        () if !said => Err("nobody had given evidence about its open call"),
        () if !matches!(after.state.as_str(), "claimed" | "failed_retryable") => {
            Err("a verdict about one call settled the whole command")
        }
        () if after.epoch != before.epoch + 1 => Err("it kept the epoch of an executor that may still write"),
        () if verdict == Verdict::NotExecuted && after.at < before.at + quarantine => {
            Err("a call could still have been on its way")
        }
        () => Ok(()),
    }
}

/// Checks invariant 7: a settled record does not change until it expires.
pub(super) fn settled_ones_do_not_change(book: &Book<'_>, violations: &mut Vec<Violation>) {
    for (id, life) in &book.operations {
        let Some((first, settled)) = life.looks.iter().find(|(_, record)| is_settled(&record.state)) else {
            continue;
        };
        for (line, later) in life.looks.iter().filter(|(line, _)| line > first) {
            let (_, looked) = book.look(later.look);
            let expired =
                later.state == "expired" && settled.expires_at.is_some_and(|expiry| expiry <= looked);
            if !expired && !same(settled, later) {
                let mut lines = book.story(life);
                lines.extend([*first, *line]);
                let what = format!(
                    "operation {id} was settled as {}, and its record changed afterwards, to {}",
                    settled.state, later.state
                );
                found(violations, 7, lines, what);
                break;
            }
        }
        let settles = life.steps().iter().position(|step| is_settled(&step.state));
        let after = settles.map_or(&[][..], |position| &life.steps()[position + 1..]);
        if let Some(step) = after.iter().find(|step| step.state != "expired" && !is_settled(&step.state)) {
            let what = format!("operation {id} was settled, and went on to {} ({})", step.state, step.reason);
            found(violations, 7, book.story(life), what);
        }
    }
}

fn same(one: &Record, other: &Record) -> bool {
    Record { look: other.look, ..one.clone() } == *other
}

/// Checks invariant 8: epochs rise with every acquisition and never fall; an epoch runs once; there is one
/// completion.
pub(super) fn epochs_rise(book: &Book<'_>, violations: &mut Vec<Violation>) {
    for (id, life) in &book.operations {
        if let Some(what) = wrong_epoch(life) {
            found(violations, 8, book.story(life), format!("operation {id} {what}"));
        }
    }
}

fn wrong_epoch(life: &Life<'_>) -> Option<String> {
    let steps = life.steps();
    let mut highest = 0;
    for step in steps {
        let acquired = step.reason == "claimed";
        if step.epoch < highest || (acquired && step.epoch <= highest) {
            return Some(format!("was in epoch {highest}, and then {} in epoch {}", step.state, step.epoch));
        }
        highest = step.epoch;
    }
    let completions = steps.iter().filter(|step| is_settled(&step.state)).count();
    if completions > 1 {
        return Some(format!("was completed {completions} times"));
    }
    for pair in life.looks.windows(2) {
        let [(_, before), (_, after)] = pair else { continue };
        if after.epoch < before.epoch {
            return Some(format!("fell from epoch {} to {}", before.epoch, after.epoch));
        }
    }
    let mut attempts: Vec<u32> = life.calls.iter().map(|(_, call)| call.attempt).collect();
    attempts.sort_unstable();
    let twice = attempts.windows(2).find(|pair| pair[0] == pair[1])?;
    Some(format!("was run twice in epoch {}", twice[0]))
}

/// Checks invariant 12: at the end, no record is claimed or processing for longer than its lease and two sweeps.
pub(super) fn come_to_an_end(book: &Book<'_>, violations: &mut Vec<Violation>) {
    let (_, last) = book.last_look;
    for (id, life) in &book.operations {
        let Some((line, record)) = life.looks.last().filter(|(_, record)| record.look == last.look) else {
            continue;
        };
        if !matches!(record.state.as_str(), "claimed" | "processing") {
            continue;
        }
        let lease = book.run.operations.get(&record.operation).map_or(0, |operation| operation.lease_ms);
        let since = record.steps.last().map_or(0, |step| step.at);
        if since + lease + 2 * book.run.sweep_ms < last.begun {
            let mut lines = book.story(life);
            lines.push(*line);
            let what = format!(
                "operation {id} is still {} at the end, {} ms after its last step",
                record.state,
                last.begun - since
            );
            found(violations, 12, lines, what);
        }
    }
}

/// Checks invariant 14: a record exists until it expires, and its key gets no other operation id before that.
pub(super) fn are_kept_for_their_time(book: &Book<'_>, violations: &mut Vec<Violation>) {
    for (id, life) in &book.operations {
        let (Some((_, gone)), Some((_, record))) = (life.gone.first(), life.record()) else { continue };
        let (_, missed) = book.look(gone.look);
        let until = kept_until(book, record);
        if missed < until {
            let what = format!(
                "operation {id} was {} and had to be kept until {until}, and is gone at {missed}",
                record.state
            );
            found(violations, 14, book.story(life), what);
        }
    }
    let mut lives: Vec<(&str, &Life<'_>)> = book.operations.iter().map(|(id, life)| (*id, life)).collect();
    lives.sort_by_key(|(_, life)| (life.command(), life.steps().first().map(|step| step.at)));
    for pair in lives.windows(2) {
        let [(first_id, first), (second_id, second)] = pair else { continue };
        if first.command().is_none() || first.command() != second.command() {
            continue;
        }
        let (Some((_, record)), Some(begun)) = (first.record(), second.steps().first()) else { continue };
        let until = kept_until(book, record);
        if begun.at < until {
            let what = format!(
                "operation {first_id} was {} and had to be kept until {until}, and operation {second_id} took its key at {}",
                record.state, begun.at
            );
            let lines = book.story(first).into_iter().chain(book.story(second)).collect();
            found(violations, 14, lines, what);
        }
    }
}

/// Returns the earliest expiry of a record, by its state at the last look.
fn kept_until(book: &Book<'_>, record: &Record) -> i64 {
    let (seen, _) = book.look(record.look);
    let settled_later = seen.saturating_add(book.ttl(&record.operation));
    match (record.state.as_str(), record.expires_at) {
        ("succeeded" | "failed_final" | "expired", Some(expiry)) => expiry,
        // Another request may have acquired the command meanwhile.
        ("failed_retryable", Some(expiry)) => expiry.min(settled_later),
        _ => settled_later,
    }
}
