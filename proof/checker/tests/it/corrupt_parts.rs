//! Good histories with one fault in a command with parts: the checker must report the right invariant.

use semel_checker::event::{
    Action, Charged, Committed, Event, Evidence, Intervention, Message, Phase, PhaseProgress, Record,
    Requested, Verdict,
};

use crate::corrupt::{answers, caught, change_records, position, records};

fn rows(events: &mut [Event]) -> impl Iterator<Item = &mut Committed> {
    events.iter_mut().filter_map(|event| match event {
        Event::Committed(row) => Some(row),
        _ => None,
    })
}

/// Returns the operation id of the last record in the history that fits.
fn operation(events: &mut [Event], fits: impl Fn(&Record) -> bool) -> String {
    records(events).filter(|record| fits(record)).last().expect("there is one").operation_id.clone()
}

fn is(record: &Record, operation: &str, state: &str) -> bool {
    record.operation == operation && record.state == state
}

#[test]
fn message_that_vanishes_is_found() {
    caught(13, |events| {
        let line = position(events, |event| matches!(event, Event::Message(it) if it.state == "dead"));
        let Event::Message(dead) = events[line].clone() else { return };
        events.retain(|event| {
            let wish = matches!(event, Event::Intervention(it) if it.event_id == dead.event_id);
            let later =
                matches!(event, Event::Message(it) if it.event_id == dead.event_id && it.state != "dead");
            !wish && !later
        });
    });
}

#[test]
fn message_discarded_without_an_operator_is_found() {
    caught(13, |events| {
        let discards = |event: &Event| {
            matches!(event, Event::Intervention(Intervention { action: Action::Discard, .. }))
        };
        events.retain(|event| !discards(event));
    });
}

#[test]
fn undelivered_message_that_settled_its_command_is_found() {
    caught(13, |events| {
        let delivered = |it: &Message| it.state == "delivered" && it.event_id.ends_with(":charge");
        let line = position(events, |event| matches!(event, Event::Message(it) if delivered(it)));
        let Event::Message(message) = events[line].clone() else { return };
        events.retain(|event| !matches!(event, Event::Requested(call) if call.key == message.event_id));
    });
}

#[test]
fn second_charge_under_one_derived_key_is_found() {
    caught(16, |events| {
        let line = position(events, |event| matches!(event, Event::Charged(_)));
        let Event::Charged(charged) = events[line].clone() else { return };
        events.insert(line + 1, Event::Charged(Charged { effect: "effect-again".into(), ..charged }));
    });
}

#[test]
fn local_phase_that_is_committed_twice_is_found() {
    caught(16, |events| {
        let line = position(events, |event| matches!(event, Event::Committed(row) if row.part.is_some()));
        let Event::Committed(row) = events[line].clone() else { return };
        events.push(Event::Committed(Committed { effect: "effect-again".into(), ..row }));
    });
}

#[test]
fn finished_call_that_is_made_again_is_found() {
    caught(17, |events| {
        let fits = |event: &Event| matches!(event, Event::Phase(it) if it.phase == "charged" && it.progress == PhaseProgress::Done);
        let line = position(events, fits);
        let Event::Phase(phase) = events[line].clone() else { return };
        let call = events.iter().find_map(|event| match event {
            Event::Requested(call) if call.operation_id == phase.operation_id && call.part == "charged" => {
                Some(call.clone())
            }
            _ => None,
        });
        let again = Requested { at: 0, ..call.expect("it was called once") };
        events.insert(line + 1, Event::Requested(again));
    });
}

#[test]
fn finished_phase_that_is_forgotten_is_found() {
    caught(17, |events| {
        let fits = |event: &Event| matches!(event, Event::Phase(it) if it.progress == PhaseProgress::Done);
        let line = position(events, fits);
        let Event::Phase(phase) = events[line].clone() else { return };
        events.insert(line + 1, Event::Phase(Phase { progress: PhaseProgress::Gone, ..phase }));
    });
}

#[test]
fn success_that_lacks_a_part_is_found() {
    for part in ["reserved", "charged", "mailed", "shipped"] {
        caught(18, |events| {
            let id = operation(events, |record| is(record, "orders", "succeeded"));
            events.retain(|event| match event {
                Event::Committed(row) => row.operation_id != id || row.part.as_deref() != Some(part),
                Event::Charged(charge) => charge.operation_id != id || charge.part != part,
                _ => true,
            });
        });
    }
}

#[test]
fn command_settled_by_a_verdict_about_one_call_is_found() {
    for invariant in [6, 18] {
        caught(invariant, |events| {
            let ruled = |record: &Record| record.steps.iter().any(|step| step.reason == "verdict_executed");
            let fits = |record: &Record| is(record, "orders", "succeeded") && ruled(record);
            change_records(events, fits, |record| {
                let verdict = record.steps.iter().position(|step| step.reason == "verdict_executed");
                record.steps.truncate(verdict.expect("it has one") + 1);
                let last = record.steps.last_mut().expect("it is there");
                last.state = "succeeded".into();
            });
        });
    }
}

#[test]
fn verdict_about_a_call_without_evidence_is_found() {
    caught(6, |events| {
        let of_call = |event: &Event| {
            matches!(event, Event::Evidence(Evidence { part: Some(_), verdict: Verdict::Executed, .. }))
        };
        events.retain(|event| !of_call(event));
    });
}

#[test]
fn business_reference_of_two_commands_with_rows_is_found() {
    caught(19, |events| {
        let ordered = |row: &Committed| row.part.as_deref() == Some("reserved");
        let mut orders = rows(events).filter(|row| ordered(row));
        let first = orders.next().expect("there are several");
        first.reference = Some("order-shared".into());
        // Some later rows belong to another tenant, but at least one does not.
        orders.for_each(|row| row.reference = Some("order-shared".into()));
    });
}

#[test]
fn item_that_is_run_twice_is_found() {
    caught(20, |events| {
        let line = position(
            events,
            |event| matches!(event, Event::Committed(row) if row.part.as_deref() == Some("one")),
        );
        let Event::Committed(row) = events[line].clone() else { return };
        let (operation_id, effect) = (format!("{}-again", row.operation_id), "effect-again".to_owned());
        events.push(Event::Committed(Committed { operation_id, effect, ..row }));
    });
}

#[test]
fn item_that_succeeded_without_an_effect_is_found() {
    caught(20, |events| {
        events.retain(|event| !matches!(event, Event::Committed(row) if row.part.as_deref() == Some("two")));
    });
}

#[test]
fn item_that_failed_and_has_an_effect_is_found() {
    caught(20, |events| {
        rows(events).filter(|row| row.part.as_deref() == Some("two")).for_each(|row| {
            row.part = Some("three".into());
        });
    });
}

#[test]
fn finished_item_with_another_outcome_later_is_found() {
    caught(20, |events| {
        let several = answers(events).filter(|answer| !answer.items.is_empty());
        let last = several.last().expect("there is one");
        last.items[0].outcome = "failed".into();
    });
}

#[test]
fn deferred_command_that_denies_its_charge_is_found() {
    caught(21, |events| {
        let fits = |record: &Record| is(record, "charges", "succeeded");
        change_records(events, fits, |record| {
            record.effects = vec!["effect-nobody".into()];
        });
    });
}

#[test]
fn deferred_command_left_open_after_delivery_is_found() {
    caught(21, |events| {
        let fits = |record: &Record| is(record, "charges", "succeeded") && record.reason == "answered";
        change_records(events, fits, |record| {
            (record.state, record.status, record.effects) = ("unknown".into(), None, Vec::new());
        });
    });
}

#[test]
fn deferred_command_that_fails_without_a_refusal_is_found() {
    caught(21, |events| {
        events.retain(|event| !matches!(event, Event::Declined(_)));
    });
}

#[test]
fn rolled_back_effect_that_is_committed_is_found() {
    for end in ["refused", "failed", "ended"] {
        caught(22, |events| {
            let undone = answers(events).find_map(|answer| answer.undone.clone().filter(|it| it.end == end));
            let undone = undone.expect("each end is met");
            rows(events).next().expect("there are rows").effect = undone.effect;
        });
    }
}
