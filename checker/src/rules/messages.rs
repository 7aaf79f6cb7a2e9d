//! Invariant 13: a committed command and its message.

use std::collections::BTreeMap;

use super::found;
use crate::book::Book;
use crate::event::{Event, Message};
use crate::story::Violation;

/// What is known of one message.
#[derive(Default)]
struct Known<'a> {
    message: Option<&'a Message>,
    lines: Vec<usize>,
    deliveries: usize,
    effects: usize,
}

/// 13: a row of a service is committed if, and only if, its one message is; that is delivered, with one effect.
pub(super) fn one_for_each_commit(book: &Book<'_>, violations: &mut Vec<Violation>) {
    let mut messages: BTreeMap<&str, Known<'_>> = BTreeMap::new();
    for (line, event) in book.events.iter().enumerate() {
        match event {
            Event::Message(message) => {
                let known = messages.entry(&message.event_id).or_default();
                known.lines.push(line);
                known.message = Some(message);
            }
            Event::Delivered(delivered) => {
                let known = messages.entry(&delivered.event_id).or_default();
                known.lines.push(line);
                known.deliveries += 1;
                known.effects += usize::from(delivered.effect);
            }
            _ => {}
        }
    }
    for (id, life) in &book.operations {
        let own = || {
            let mine = |known: &&Known<'_>| known.message.is_some_and(|it| it.operation_id == *id);
            messages.values().filter(mine)
        };
        if life.commits.is_empty() != (own().count() == 0) || own().count() > 1 {
            let lines = own().flat_map(|known| known.lines.clone()).chain(book.story(life)).collect();
            let what = format!(
                "operation {id} has {} committed row(s), and {} message(s)",
                life.commits.len(),
                own().count()
            );
            found(violations, 13, lines, what);
        }
    }
    for (id, known) in &messages {
        let what = match (known.message, known.deliveries, known.effects) {
            (Some(message), 0, _) => {
                format!("the message {id} is {}, and never reached its receiver", message.state)
            }
            (Some(_), _, 1) => continue,
            (Some(_), _, effects) => format!("the message {id} had {effects} effects at its receiver"),
            (None, _, _) => format!("the message {id} was delivered, and nobody has committed it"),
        };
        found(violations, 13, known.lines.clone(), what);
    }
}
