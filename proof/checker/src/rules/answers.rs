//! Invariants 3, 4, 5 and 11: answers to clients.

use std::collections::BTreeSet;

use super::found;
use crate::book::{Book, Life, Request};
use crate::event::{Answered, Mode};
use crate::kind::Kind;
use crate::story::Violation;

/// Checks invariant 3: all final responses of one operation id are equal, and have the stored status.
pub(super) fn equal(book: &Book<'_>, violations: &mut Vec<Violation>) {
    for (id, life) in &book.operations {
        let finals = life.finals(book);
        let told: BTreeSet<(u16, &str)> =
            finals.iter().map(|(_, (_, answer))| (answer.status, answer.digest.as_str())).collect();
        if told.len() > 1 {
            let several: Vec<String> =
                told.iter().map(|(status, digest)| format!("{status} with digest {digest}")).collect();
            let what = format!("operation {id} has several final responses: {}", several.join("; "));
            found(violations, 3, book.story(life), what);
            continue;
        }
        let stored = life.looks.iter().find_map(|(_, record)| record.status);
        if let (Some((status, _)), Some(stored)) = (told.first(), stored)
            && *status != stored
        {
            let what = format!("operation {id} is answered with {status}, and the store has {stored}");
            found(violations, 3, book.story(life), what);
        }
    }
}

/// Checks invariant 4: no answer, record or effect carries another scope's canary, and no two commands share an
/// operation id.
pub(super) fn of_their_own_scope(book: &Book<'_>, violations: &mut Vec<Violation>) {
    for request in book.requests.values() {
        let (invoked, asked) = request.invoked;
        let Some((line, answer)) = request.answered else { continue };
        for canary in &answer.canaries {
            let whose = book.canaries.get(canary.as_str()).map(|(command, _)| *command);
            if whose != Some(&asked.command) {
                let whose = whose.map_or("nobody".to_owned(), ToString::to_string);
                let what = format!(
                    "request {} of {} got what belongs to {whose}: {canary}",
                    answer.request, asked.command
                );
                found(violations, 4, vec![invoked, line], what);
            }
        }
    }
    for (id, life) in &book.operations {
        if life.commands.len() > 1 {
            let several: Vec<String> = life.commands.iter().map(ToString::to_string).collect();
            let what =
                format!("operation {id} is said to belong to several commands: {}", several.join("; "));
            found(violations, 4, book.story(life), what);
        }
        let Some(command) = life.command() else { continue };
        let stored = life.record().into_iter().flat_map(|(line, record)| {
            record.canaries.iter().map(move |canary| (line, canary.as_str(), "its stored response"))
        });
        let made = life.effects.iter().map(|(line, effect)| (*line, effect.canary.as_str(), "its effect"));
        for (line, canary, where_) in stored.chain(made) {
            if book.canaries.get(canary).map(|(whose, _)| *whose) != Some(command) {
                let what = format!("operation {id} is for {command}, and {where_} has {canary}");
                found(violations, 4, vec![line], what);
            }
        }
        if let Some((line, record)) = life.record()
            && (&record.tenant, &record.caller, &record.operation)
                != (&command.tenant, &command.caller, &command.operation)
        {
            let what = format!(
                "operation {id} is for {command}, and the store has it as {}/{} {}",
                record.tenant, record.caller, record.operation
            );
            found(violations, 4, vec![line], what);
        }
    }
}

/// Checks invariant 5: one operation id has one payload; another payload does not run and does not get its response.
pub(super) fn of_their_own_payload(book: &Book<'_>, violations: &mut Vec<Violation>) {
    for request in book.requests.values() {
        let (invoked, asked) = request.invoked;
        let Some((line, answer)) = request.answered else { continue };
        for canary in &answer.canaries {
            let whose = book.canaries.get(canary.as_str());
            if let Some((command, payload)) = whose
                && *command == &asked.command
                && *payload != asked.payload
            {
                let what = format!(
                    "request {} sent payload {} of {}, and got the response to payload {payload}",
                    answer.request, asked.payload, asked.command
                );
                found(violations, 5, vec![invoked, line], what);
            }
        }
    }
    for (id, life) in &book.operations {
        let payload = |canary: &str| book.canaries.get(canary).map(|(_, payload)| *payload);
        let finals = life.finals(book);
        let run = life.calls.iter().filter_map(|(_, call)| payload(&call.canary));
        let made = life.effects.iter().filter_map(|(_, effect)| payload(&effect.canary));
        let told = finals.iter().map(|(asked, _)| asked.payload);
        let payloads: BTreeSet<u32> = run.chain(made).chain(told).collect();
        if payloads.len() > 1 {
            let what = format!("operation {id} was run for, or answered to, {} payloads", payloads.len());
            found(violations, 5, book.story(life), what);
        }
    }
}

/// Checks invariant 11: after a final answer, each request gets it or hears that the store is unavailable, and
/// nothing runs.
pub(super) fn final_ones_are_the_last_word(book: &Book<'_>, violations: &mut Vec<Violation>) {
    for (id, life) in &book.operations {
        let finals = life.finals(book);
        let Some((asked, (first, answer))) = finals.iter().min_by_key(|(_, (line, _))| *line) else {
            continue;
        };
        let expiry = expiry(life, answer);
        let mut wrong = None;
        for number in book.commands.get(&asked.command).into_iter().flatten() {
            let request = &book.requests[number];
            let (invoked, later) = request.invoked;
            if invoked > *first
                && later.payload == asked.payload
                && contradicts(book, request, id, expiry - book.run.rounding_ms)
            {
                wrong = Some((vec![invoked, request.ended().unwrap_or(invoked)], *number));
                break;
            }
        }
        if let Some((mut lines, number)) = wrong {
            lines.extend(book.story(life));
            let what =
                format!("operation {id} had a final answer, and request {number} after it got another one");
            found(violations, 11, lines, what);
        }
        if let Some((line, _)) = life.calls.iter().find(|(line, _)| line > first) {
            let mut lines = book.story(life);
            lines.push(*line);
            found(violations, 11, lines, format!("operation {id} had a final answer, and was run after it"));
        }
    }
}

/// Returns the expiry of a final answer's record: as stored, else to the second, as the client was told.
fn expiry(life: &Life<'_>, answer: &Answered) -> i64 {
    let stored = life.looks.iter().filter(|(_, record)| is_settled(&record.state));
    stored.filter_map(|(_, record)| record.expires_at).next_back().or(answer.expires).unwrap_or(i64::MAX)
}

pub(super) fn is_settled(state: &str) -> bool {
    matches!(state, "succeeded" | "failed_final")
}

fn contradicts(book: &Book<'_>, request: &Request<'_>, id: &str, expiry: i64) -> bool {
    let Some((_, answer)) = request.answered else { return false };
    if answer.at >= expiry {
        return false;
    }
    let is_async = book.mode(&request.invoked.1.command.operation) == Some(Mode::Async);
    match Kind::of(answer) {
        // An unconfirmed claim, which a worker may run by now, also counts as an unavailable store.
        Kind::Broken if is_async && answer.operation_id.is_none() => false,
        Kind::Replayed => answer.operation_id.as_deref() != Some(id),
        Kind::StoreAway | Kind::Refused => false,
        Kind::Executed
        | Kind::Passed
        | Kind::Broken
        | Kind::Unreachable
        | Kind::InProgress
        | Kind::Accepted
        | Kind::Unknown
        | Kind::Mismatch
        | Kind::Duplicate => true,
    }
}
