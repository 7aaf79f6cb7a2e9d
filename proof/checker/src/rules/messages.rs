//! Invariants 13, 21 and 22: commits, their messages, and rolled-back effects.

use std::collections::{BTreeMap, BTreeSet};

use super::found;
use crate::book::{Book, Life};
use crate::event::{Action, Committed, Event, Message, Mode};
use crate::story::Violation;

/// Facts about one message.
#[derive(Default)]
struct Known<'a> {
    /// Last state of the message in the outbox.
    last: Option<&'a Message>,
    lines: Vec<usize>,
    is_seen: bool,
    is_committed: bool,
    /// True if an operator discarded the message.
    is_discarded: bool,
    deliveries: usize,
    effects: usize,
}

/// Checks invariant 13: a message is committed with a row and delivered with one effect, unless it is dead or
/// discarded by an operator.
pub(super) fn are_delivered(book: &Book<'_>, violations: &mut Vec<Violation>) {
    let messages = messages(book);
    for (id, life) in &book.operations {
        let rows = life.commits.iter().chain(&life.parts).filter(|(_, row)| row.message.is_some());
        for (line, row) in rows {
            let known = row.message.as_deref().and_then(|message| messages.get(message));
            if !known.is_some_and(|known| known.is_seen || known.is_discarded) {
                let mut lines = book.story(life);
                lines.push(*line);
                let what = format!("operation {id} has committed {}, and its message is nowhere", row.effect);
                found(violations, 13, lines, what);
            }
        }
        if book.mode_of(life) == Some(Mode::Local) && life.commits.len() > 1 {
            let what = format!("operation {id} has {} committed rows", life.commits.len());
            found(violations, 13, book.story(life), what);
        }
    }
    for (id, known) in &messages {
        if let Some(what) = wrong(id, known) {
            found(violations, 13, known.lines.clone(), what);
        }
    }
}

fn wrong(id: &str, known: &Known<'_>) -> Option<String> {
    let state = known.last.map(|message| message.state.as_str());
    match (state, known.deliveries, known.effects) {
        _ if !known.is_committed => Some(format!("the message {id} is there, and nobody has committed it")),
        (None, _, _) if !known.is_discarded => Some(format!("the message {id} has vanished")),
        (Some("delivered" | "pending"), 0, _) => {
            Some(format!("the message {id} is {}, and never reached its receiver", state.unwrap_or_default()))
        }
        (Some("delivered"), _, 0) | (_, _, 2..) => {
            Some(format!("the message {id} had {} effects at its receiver", known.effects))
        }
        _ => None,
    }
}

fn messages<'a>(book: &Book<'a>) -> BTreeMap<&'a str, Known<'a>> {
    let mut messages: BTreeMap<&str, Known<'_>> = BTreeMap::new();
    for (line, event) in book.events.iter().enumerate() {
        let (id, change): (&str, &dyn Fn(&mut Known<'a>)) = match event {
            Event::Message(message) => (&message.event_id, &|known| {
                known.is_seen = true;
                known.last = (line > book.last_look.0).then_some(message);
            }),
            Event::Delivered(delivered) => (&delivered.event_id, &|known| {
                known.deliveries += 1;
                known.effects += usize::from(delivered.effect);
            }),
            // The provider receives messages that settle their command.
            Event::Requested(call) => (&call.key, &|known| known.deliveries += 1),
            Event::Charged(charge) => (&charge.key, &|known| known.effects += 1),
            Event::Intervention(wish) if wish.action == Action::Discard => {
                (&wish.event_id, &|known| known.is_discarded = true)
            }
            Event::Committed(Committed { message: Some(message), .. }) => {
                (message, &|known| known.is_committed = true)
            }
            _ => continue,
        };
        let known = messages.entry(id).or_default();
        known.lines.push(line);
        change(known);
    }
    let calls = phase_keys(book);
    // A provider that declines has also taken the message.
    let declined = book.operations.values().flat_map(|life| &life.declines);
    let declined: BTreeSet<&str> = declined.map(|(_, refusal)| refusal.key.as_str()).collect();
    for key in declined {
        if let Some(known) = messages.get_mut(key) {
            known.effects += 1;
        }
    }
    messages.retain(|id, _| !calls.contains(id));
    messages
}

/// Returns the derived keys of phases: these calls are not messages.
fn phase_keys<'a>(book: &Book<'a>) -> BTreeSet<&'a str> {
    let phased = book.operations.values().filter(|life| book.mode_of(life) == Some(Mode::Phased));
    phased.flat_map(|life| life.requested.iter().map(|(_, call)| call.key.as_str())).collect()
}

/// Checks invariant 21: a command with a delivered message is settled with the provider's effect, or with none if it
/// declined; and no settled command denies an effect.
pub(super) fn settle_their_commands(book: &Book<'_>, violations: &mut Vec<Violation>) {
    let messages = messages(book);
    for (id, life) in &book.operations {
        if book.mode_of(life) != Some(Mode::Deferred) {
            continue;
        }
        let own = life.parts.iter().filter_map(|(_, row)| messages.get(row.message.as_deref()?));
        let delivered = own.filter_map(|known| known.last).any(|message| message.state == "delivered");
        if let Some(what) = unsettled(book, life, delivered) {
            found(violations, 21, book.story(life), format!("operation {id} {what}"));
        }
    }
}

fn unsettled(book: &Book<'_>, life: &Life<'_>, delivered: bool) -> Option<String> {
    let charged: Vec<&str> = life.charges.iter().map(|(_, charge)| charge.effect.as_str()).collect();
    let (_, record) = life.record()?;
    let named: Vec<&str> = record.effects.iter().map(String::as_str).collect();
    match (record.state.as_str(), charged.as_slice()) {
        ("succeeded", _) if named.is_empty() => {
            Some("succeeded, and its response names no effect".to_owned())
        }
        ("succeeded" | "failed_final", _) if named != charged => {
            Some(format!("has the provider's effects {charged:?}, and its response names {named:?}"))
        }
        ("failed_final", []) if delivered && life.declines.is_empty() => {
            Some("failed for good, and the provider has not declined it".to_owned())
        }
        ("succeeded" | "failed_final" | "expired", _) => {
            let told = life.finals(book).into_iter().find(|(_, (_, answer))| {
                answer.effect.as_deref().is_some_and(|effect| !charged.contains(&effect))
            });
            told.map(|(_, (_, answer))| {
                format!("is answered with {:?}, and was charged {charged:?}", answer.effect)
            })
        }
        (state, _) if delivered => Some(format!("is {state}, and its message was delivered")),
        _ => None,
    }
}

/// Checks invariant 22: no row has the name of an effect that an answer reports as rolled back.
pub(super) fn rolled_back_ones_are_gone(book: &Book<'_>, violations: &mut Vec<Violation>) {
    let mut rows: BTreeMap<&str, (usize, &Life<'_>)> = BTreeMap::new();
    for life in book.operations.values() {
        for (line, row) in life.commits.iter().chain(&life.parts) {
            rows.insert(&row.effect, (*line, life));
        }
    }
    for request in book.requests.values() {
        let Some((line, undone)) = request.answered.and_then(|(line, it)| Some((line, it.undone.as_ref()?)))
        else {
            continue;
        };
        // Retries get the same answer: one violation is enough.
        if let Some((row, life)) = rows.remove(undone.effect.as_str()) {
            let mut lines = book.story(life);
            lines.extend([request.invoked.0, line, row]);
            let what = format!(
                "request {} was told that {} is rolled back ({}), and it is committed",
                request.invoked.1.request, undone.effect, undone.end
            );
            found(violations, 22, lines, what);
        }
    }
}
