//! Invariants 16 to 20: commands in phases or items.

use std::collections::{BTreeMap, BTreeSet};

use super::answers::is_settled;
use super::found;
use crate::book::{At, Book, Life};
use crate::event::{Command, Committed, Item, Mode, PhaseProgress};
use crate::story::Violation;

/// Checks invariant 16: each part of one operation id has at most one effect.
pub(super) fn have_one_effect(book: &Book<'_>, violations: &mut Vec<Violation>) {
    for (id, life) in &book.operations {
        for part in life.parts_with_effects() {
            let effects = life.effects_of(part);
            if effects.len() > 1 {
                let what = format!("{part} of operation {id} has several effects: {}", effects.join(", "));
                found(violations, 16, book.story(life), what);
            }
        }
    }
}

/// Checks invariant 17: a finished phase stays finished, and is not called again unless the provider deduplicates.
pub(super) fn finished_ones_stay_so(book: &Book<'_>, violations: &mut Vec<Violation>) {
    for (id, life) in &book.operations {
        let done = life.phases.iter().filter(|(_, phase)| phase.progress == PhaseProgress::Done);
        for (finished, phase) in done {
            let name = &phase.phase;
            let later = |line: usize| line > *finished;
            let again = life
                .requested
                .iter()
                .any(|(line, call)| later(*line) && call.part == *name && !call.deduplicated);
            let undone = life.phases.iter().any(|(line, other)| {
                later(*line) && other.phase == *name && other.progress != PhaseProgress::Done
            });
            let what = match (again, undone && life.gone.is_empty()) {
                (true, _) => "was finished, and called again",
                (_, true) => "was finished, and is not any more",
                _ => continue,
            };
            found(violations, 17, book.story(life), format!("{name} of operation {id} {what}"));
            break;
        }
    }
}

/// Checks invariant 18: the parts with an effect are the first ones, a success has all of them, and a verdict about
/// an open call resumes the command.
pub(super) fn go_on(book: &Book<'_>, violations: &mut Vec<Violation>) {
    for (id, life) in &book.operations {
        if book.mode_of(life) != Some(Mode::Phased) {
            continue;
        }
        if let Some(what) = misses_parts(book, life).or_else(|| is_not_resumed(life)) {
            found(violations, 18, book.story(life), format!("operation {id} {what}"));
        }
    }
}

fn misses_parts(book: &Book<'_>, life: &Life<'_>) -> Option<String> {
    let operation = book.run.operations.get(life.operation()?)?;
    let done = life.parts_with_effects();
    let missing = operation.parts.iter().position(|part| !done.contains(part.as_str()));
    let state = life.record().map_or("", |(_, record)| record.state.as_str());
    let Some(missing) = missing else { return misnames(life, state) };
    let part = &operation.parts[missing];
    if state == "succeeded" {
        return Some(format!("succeeded without {part}"));
    }
    let later = operation.parts[missing..].iter().find(|part| done.contains(part.as_str()));
    match later {
        Some(later) => Some(format!("has {later}, and not {part}, which is before it")),
        None => misnames(life, state),
    }
}

/// Checks that a success names at least one effect, and only effects of its own parts.
fn misnames(life: &Life<'_>, state: &str) -> Option<String> {
    let (_, record) = life.record()?;
    if !is_settled(state) {
        return None;
    }
    let own: BTreeSet<&str> =
        life.parts_with_effects().into_iter().flat_map(|part| life.effects_of(part)).collect();
    let strange = record.effects.iter().find(|effect| !own.contains(effect.as_str()));
    match (strange, state) {
        (Some(strange), _) => Some(format!("names {strange}, which is no effect of its parts")),
        (None, "succeeded") if record.effects.is_empty() => {
            Some("succeeded, and its response names no effect".to_owned())
        }
        _ => None,
    }
}

fn is_not_resumed(life: &Life<'_>) -> Option<String> {
    let ruled = life.rulings.iter().any(|(_, ruled)| ruled.part.is_some() && ruled.accepted == Some(true));
    let verdict = life.steps().iter().rposition(|step| step.reason.starts_with("verdict_"));
    let state = life.record().map_or("", |(_, record)| record.state.as_str());
    match verdict {
        None if ruled && !life.has_gaps() && !life.looks.is_empty() => {
            Some("has a verdict that counted, and its record knows nothing of it".to_owned())
        }
        Some(verdict) if is_settled(state) => {
            let resumed = life.steps()[verdict..].iter().any(|step| step.state == "processing");
            (!resumed).then(|| format!("is {state} by a verdict about one call, and was not resumed"))
        }
        _ => None,
    }
}

/// Checks invariant 19: of all commands with one business reference, at most one has an effect in any part.
pub(super) fn share_no_reference(book: &Book<'_>, violations: &mut Vec<Violation>) {
    let mut holders: BTreeMap<(&str, &str, &str), BTreeMap<&Command, Vec<usize>>> = BTreeMap::new();
    for life in book.operations.values() {
        let rows = life.commits.iter().chain(&life.parts);
        let rows = rows.map(|(line, row)| (*line, row.canary.as_str(), row.reference.as_deref()));
        let charges = life.charges.iter();
        let charges = charges.map(|(line, it)| (*line, it.canary.as_str(), it.reference.as_deref()));
        for (line, canary, reference) in rows.chain(charges) {
            let (Some(reference), Some((command, _))) = (reference, book.canaries.get(canary)) else {
                continue;
            };
            let holder = (command.tenant.as_str(), command.operation.as_str(), reference);
            holders.entry(holder).or_default().entry(command).or_default().push(line);
        }
    }
    for ((tenant, operation, reference), commands) in holders {
        if commands.len() > 1 {
            let what = format!(
                "the business reference {reference} of {tenant} for {operation} has effects of {} commands",
                commands.len()
            );
            found(violations, 19, commands.into_values().flatten().collect(), what);
        }
    }
}

/// Checks invariant 20: an item has at most one row; all answers that call it finished agree, and name that row if it
/// succeeded.
pub(super) fn items_are_finished_once(book: &Book<'_>, violations: &mut Vec<Violation>) {
    let mut rows: BTreeMap<(&Command, &str), Vec<At<'_, Committed>>> = BTreeMap::new();
    for life in book.operations.values() {
        for (line, row) in &life.parts {
            let command = book.canaries.get(row.canary.as_str()).map(|(command, _)| *command);
            let bulk = command.filter(|it| book.mode(&it.operation) == Some(Mode::Bulk));
            if let (Some(command), Some(part)) = (bulk, row.part.as_deref()) {
                rows.entry((command, part)).or_default().push((*line, row));
            }
        }
    }
    for ((command, part), several) in rows.iter().filter(|(_, rows)| rows.len() > 1) {
        let what = format!("{part} of {command} was run {} times", several.len());
        found(violations, 20, several.iter().map(|(line, _)| *line).collect(), what);
    }
    let mut finished: BTreeMap<(&Command, &str), At<'_, Item>> = BTreeMap::new();
    for request in book.requests.values() {
        let Some((line, answer)) = request.answered else { continue };
        let command = &request.invoked.1.command;
        for item in &answer.items {
            let row = rows.get(&(command, item.name.as_str())).map(|rows| rows[0]);
            let before = finished.get(&(command, item.name.as_str())).copied();
            if let Some(what) = misjudged(item, row.map(|(_, row)| row), before.map(|(_, item)| item)) {
                let lines = [request.invoked.0, line].into_iter();
                let lines = lines.chain(before.map(|(line, _)| line)).chain(row.map(|(line, _)| line));
                found(violations, 20, lines.collect(), format!("{} of {command} {what}", item.name));
            }
            if item.is_finished() {
                finished.insert((command, &item.name), (line, item));
            }
        }
    }
}

fn misjudged(item: &Item, row: Option<&Committed>, before: Option<&Item>) -> Option<String> {
    let effect = row.map(|row| row.effect.as_str());
    match before {
        // Requests overlap: an answer may be older than an earlier one, but two final answers agree.
        Some(before) if item.is_finished() && before != item => {
            Some(format!("is {} with {:?}, and was {} before", item.outcome, item.effect, before.outcome))
        }
        _ if item.is_succeeded() && item.effect.as_deref() != effect => {
            Some(format!("succeeded with {:?}, and {effect:?} is committed", item.effect))
        }
        _ if item.outcome == "failed" && effect.is_some() => {
            Some(format!("failed for good, and {effect:?} is committed"))
        }
        _ => None,
    }
}
