//! Invariants 1, 2, 9 and 10: effects in the ledger.

use std::collections::BTreeMap;

use super::found;
use crate::book::{At, Book, Life};
use crate::event::{Effect, Mode, Step};
use crate::kind::Kind;
use crate::story::Violation;

/// Checks invariant 1: one operation id, one business reference, and one key until its record expires, have at most
/// one effect.
pub(super) fn at_most_one(book: &Book<'_>, violations: &mut Vec<Violation>) {
    for (id, life) in &book.operations {
        let names = life.effect_names();
        if names.len() > 1 {
            let what = format!("operation {id} has {} effects: {}", names.len(), names.join(", "));
            found(violations, 1, book.story(life), what);
        }
    }
    let effects = || book.operations.values().flat_map(|life| life.effects.iter().copied());
    let mut by_reference: BTreeMap<(&str, &str, &str), Vec<At<'_, Effect>>> = BTreeMap::new();
    let mut by_command: BTreeMap<_, Vec<At<'_, Effect>>> = BTreeMap::new();
    for (line, effect) in effects() {
        by_command.entry(&effect.command).or_default().push((line, effect));
        if let Some(reference) = &effect.reference {
            let holder =
                (effect.command.tenant.as_str(), effect.command.operation.as_str(), reference.as_str());
            by_reference.entry(holder).or_default().push((line, effect));
        }
    }
    for ((tenant, operation, reference), several) in by_reference {
        if differing(&several) {
            let what = format!(
                "the business reference {reference} of {tenant} for {operation} has {} effects",
                several.len()
            );
            found(violations, 1, several_lives(book, &several), what);
        }
    }
    for (command, several) in by_command.iter_mut().filter(|(_, several)| differing(several)) {
        several.sort_by_key(|(line, _)| *line);
        for pair in several.windows(2) {
            let [(_, first), (_, second)] = pair else { continue };
            // The time to live starts when a record is settled, which is after its effect.
            if first.operation_id != second.operation_id
                && second.at < first.at + book.ttl(&command.operation) - book.run.rounding_ms
            {
                let what = format!(
                    "{command} has a second effect, {}, while the record of its first, {}, had to be kept",
                    second.effect, first.effect
                );
                found(violations, 1, several_lives(book, pair), what);
            }
        }
    }
}

/// Returns true if the effects belong to several operation ids: those of one id are reported already.
fn differing(effects: &[At<'_, Effect>]) -> bool {
    effects.iter().any(|(_, effect)| effect.operation_id != effects[0].1.operation_id)
}

fn several_lives(book: &Book<'_>, effects: &[At<'_, Effect>]) -> Vec<usize> {
    let lives = effects.iter().filter_map(|(_, effect)| book.operations.get(effect.operation_id.as_str()));
    lives.flat_map(|life| book.story(life)).collect()
}

/// Checks invariant 2: a success has exactly one effect, which its response names; and a command with an effect ends
/// as a success or unknown.
pub(super) fn named_by_successes(book: &Book<'_>, violations: &mut Vec<Violation>) {
    for (id, life) in &book.operations {
        if let Some(what) = misnamed(book, life) {
            found(violations, 2, book.story(life), format!("operation {id} {what}"));
        }
    }
}

fn misnamed(book: &Book<'_>, life: &Life<'_>) -> Option<String> {
    // Invariants 18, 20 and 21 check this for each part.
    if book.mode_of(life).is_some_and(Mode::has_parts) {
        return None;
    }
    let effects = life.effect_names();
    let real = |named: Option<&str>, whose: &str| match (named, effects.as_slice()) {
        (Some(named), [effect]) if named == *effect => None,
        (None, []) => None,
        (None, [effect, ..]) => Some(format!("had the effect {effect}, and {whose} names none")),
        (Some(named), []) => Some(format!("had no effect, and {whose} names {named}")),
        // Invariant 1 reports several effects; here the named one must be among them.
        (Some(named), several) if several.contains(&named) => None,
        (Some(named), several) => {
            Some(format!("had the effect {}, and {whose} names {named}", several.join(", ")))
        }
    };
    for (_, (_, answer)) in life.finals(book) {
        if let Some(what) = real(answer.effect.as_deref(), "a final response") {
            return Some(what);
        }
    }
    let (_, record) = life.record()?;
    match (record.state.as_str(), record.effects.as_slice()) {
        ("succeeded", []) => Some("succeeded, and its stored response names no effect".to_owned()),
        ("succeeded" | "failed_final", [named]) => real(Some(named), "its stored response"),
        ("failed_final", []) => real(None, "its stored response"),
        ("succeeded" | "failed_final", several) => {
            Some(format!("has a stored response that names {} effects", several.len()))
        }
        ("failed_retryable", _) if !effects.is_empty() => {
            Some(format!("had the effect {}, and its record says that nothing ran", effects.join(", ")))
        }
        _ => None,
    }
}

/// Checks invariant 9: a stored claim of the same attempt precedes every call and every effect.
pub(super) fn after_a_claim(book: &Book<'_>, violations: &mut Vec<Violation>) {
    for (id, life) in &book.operations {
        let calls = life.calls.iter().map(|(line, call)| (*line, call.at, call.attempt, &call.command));
        let effects = life.effects.iter().map(|(line, it)| (*line, it.at, it.attempt, &it.command));
        for (line, at, attempt, command) in calls.chain(effects) {
            if life.looks.is_empty() {
                // No look took place while the record was kept.
                if at + book.ttl(&command.operation) < book.last_look.1.begun {
                    continue;
                }
                let what = format!("operation {id} was run, and the store never had a record of it");
                found(violations, 9, book.story(life), what);
                break;
            }
            let claimed = |step: &&Step| step.epoch == attempt && step.state == "processing";
            match life.steps().iter().find(claimed) {
                Some(step) if step.at <= at + book.run.rounding_ms => continue,
                None if life.has_gaps() => continue,
                Some(step) => {
                    let what = format!(
                        "attempt {attempt} of operation {id} was run at {at} (line {}), and claimed only at {}",
                        line + 1,
                        step.at
                    );
                    found(violations, 9, book.story(life), what);
                }
                None => {
                    let what = format!("attempt {attempt} of operation {id} was run, and never claimed");
                    found(violations, 9, book.story(life), what);
                }
            }
            break;
        }
    }
}

/// Checks invariant 10: an attempt that a client or the record calls "not executed" has no effect, before or after.
pub(super) fn never_after_a_word_to_the_contrary(book: &Book<'_>, violations: &mut Vec<Violation>) {
    for (id, life) in &book.operations {
        for (attempt, who) in denied(book, life) {
            if let Some((_, effect)) = life.effects.iter().find(|(_, effect)| effect.attempt == attempt) {
                let what = format!(
                    "attempt {attempt} of operation {id} had the effect {}, and {who} that it was not executed",
                    effect.effect
                );
                found(violations, 10, book.story(life), what);
            }
        }
        for (line, effect) in &life.effects {
            if book.mode(&effect.command.operation) != Some(Mode::Local) && !is_caused(book, *line, effect) {
                let what = format!(
                    "everybody who had asked for {} was told that nothing ran, and it had the effect {}",
                    effect.command, effect.effect
                );
                found(violations, 10, book.story(life), what);
            }
        }
    }
}

/// Returns the attempts that are called "not executed", each with its source.
fn denied(book: &Book<'_>, life: &Life<'_>) -> Vec<(u32, &'static str)> {
    let mut denied = Vec::new();
    let answers = life.answers.iter().filter_map(|number| book.requests.get(number)?.answered);
    denied.extend(answers.filter_map(|(_, answer)| Some((answer.not_executed?, "a client was told"))));
    for (position, step) in life.steps().iter().enumerate() {
        let before = position.checked_sub(1).map(|before| &life.steps()[before]);
        let words =
            ["not_executed", "claim_unconfirmed", "shut_down", "verdict_not_executed", "never_started"];
        if !words.contains(&step.reason.as_str()) {
            continue;
        }
        match (step.state.as_str(), before) {
            ("failed_retryable", _) => denied.push((step.epoch, "its record says")),
            // Requeuing a command for a worker raises its epoch.
            ("claimed", Some(before)) if before.state == "processing" => {
                denied.push((before.epoch, "its record says"));
            }
            _ => {}
        }
    }
    denied
}

/// Returns true if a request preceded the effect and was not told that nothing ran.
fn is_caused(book: &Book<'_>, line: usize, effect: &Effect) -> bool {
    let requests = book.commands.get(&effect.command).into_iter().flatten();
    requests.filter_map(|number| book.requests.get(number)).any(|request| {
        let (invoked, asked) = request.invoked;
        invoked < line && asked.canary == effect.canary && !request.kind().is_some_and(Kind::nothing_ran)
    })
}
