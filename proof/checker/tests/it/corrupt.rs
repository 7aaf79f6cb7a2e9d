//! Good histories with one thing wrong, which must be found under its number.

use semel_checker::event::{
    Answered, Called, Delivered, Effect, Event, Evidence, Gone, Invoked, Message, Metrics, Record, Verdict,
};

use crate::sample::{QUARANTINE, canary, good};

/// Makes one thing wrong, and says whether it found what it wanted to change. Then the checker must find it.
#[track_caller]
pub(crate) fn caught(invariant: u8, corrupt: impl Fn(&mut Vec<Event>)) {
    for seed in [1, 2, 3] {
        let mut events = good(seed, 10);
        let before = events.clone();
        corrupt(&mut events);
        assert_ne!(events, before, "seed {seed}: nothing was changed");
        let report = semel_checker::check(&events).expect("it is whole");
        assert!(report.count(invariant) > 0, "seed {seed}: invariant {invariant} is not found:\n{report}");
        let told = report.to_string();
        assert!(told.contains(&format!("invariant {invariant} (")), "{told}");
    }
}

/// The line of the first event that fits.
pub(crate) fn position(events: &[Event], fits: impl Fn(&Event) -> bool) -> usize {
    events.iter().position(fits).expect("a good history has one of each")
}

pub(crate) fn answers(events: &mut [Event]) -> impl Iterator<Item = &mut Answered> {
    events.iter_mut().filter_map(|event| match event {
        Event::Answered(answered) => Some(answered),
        _ => None,
    })
}

pub(crate) fn records(events: &mut [Event]) -> impl Iterator<Item = &mut Record> {
    events.iter_mut().filter_map(|event| match event {
        Event::Record(record) => Some(record),
        _ => None,
    })
}

/// Every look at the records that fit.
pub(crate) fn change_records(
    events: &mut [Event],
    fits: impl Fn(&Record) -> bool,
    change: impl Fn(&mut Record),
) {
    let id = records(events).filter(|record| fits(record)).last().expect("there is one").operation_id.clone();
    records(events).filter(|record| record.operation_id == id && fits(record)).for_each(change);
}

fn step(record: &Record, state: &str, reason: &str) -> Option<usize> {
    record.steps.iter().position(|step| step.state == state && step.reason == reason)
}

pub(crate) fn has(record: &Record, state: &str, reason: &str) -> bool {
    step(record, state, reason).is_some()
}

#[test]
fn a_second_effect_of_one_operation() {
    caught(1, |events| {
        let line = position(events, |event| matches!(event, Event::Effect(_)));
        let Event::Effect(effect) = events[line].clone() else { return };
        events.insert(line + 1, Event::Effect(Effect { effect: "effect-again".into(), ..effect }));
    });
}

#[test]
fn a_second_effect_of_one_business_reference() {
    caught(1, |events| {
        let reference = events.iter().find_map(|event| match event {
            Event::Effect(effect) => {
                effect.reference.clone().map(|reference| (reference, effect.command.clone()))
            }
            _ => None,
        });
        let (reference, holder) = reference.expect("some carry one");
        let other = events.iter_mut().find_map(|event| match event {
            Event::Effect(effect)
                if effect.command.tenant == holder.tenant
                    && effect.command.operation == holder.operation
                    && effect.command != holder =>
            {
                Some(effect)
            }
            _ => None,
        });
        other.expect("there are several of each tenant").reference = Some(reference);
    });
}

#[test]
fn a_second_effect_of_one_key_before_its_record_expires() {
    caught(1, |events| {
        let effects: Vec<(usize, Effect)> = events
            .iter()
            .enumerate()
            .filter_map(|(line, event)| match event {
                Event::Effect(effect) if effect.command.operation == "drafts" => Some((line, effect.clone())),
                _ => None,
            })
            .collect();
        let (_, first) = &effects[0];
        let second = effects
            .iter()
            .find(|(_, effect)| effect.command == first.command && effect.operation_id != first.operation_id);
        let (line, _) = second.expect("drafts are used twice");
        let Event::Effect(effect) = &mut events[*line] else { return };
        effect.at = first.at + 10;
    });
}

#[test]
fn a_success_without_an_effect() {
    caught(2, |events| {
        let line = position(events, |event| matches!(event, Event::Effect(_)));
        events.remove(line);
    });
}

#[test]
fn a_response_that_names_another_effect() {
    caught(2, |events| {
        let answer = answers(events).find(|answer| answer.effect.is_some());
        answer.expect("there is one").effect = Some("effect-of-somebody-else".into());
    });
}

#[test]
fn an_effect_whose_record_says_that_it_was_declined() {
    caught(2, |events| {
        let line = position(events, |event| matches!(event, Event::Answered(answer) if answer.status == 402));
        let Event::Answered(answer) = &events[line] else { return };
        let id = answer.operation_id.clone().expect("it has one");
        let call = events.iter().find_map(|event| match event {
            Event::Called(call) if call.operation_id == id => Some(call.clone()),
            _ => None,
        });
        let Called { at, operation_id, attempt, command, canary } = call.expect("it was called");
        let effect = "effect-in-secret".into();
        let made = Effect { at, effect, operation_id, attempt, command, canary, reference: None };
        events.insert(line, Event::Effect(made));
    });
}

#[test]
fn a_replay_that_differs() {
    caught(3, |events| {
        let replay = answers(events).find(|answer| answer.replayed);
        replay.expect("there is one").digest = "something else".into();
    });
}

#[test]
fn an_answer_with_another_status_than_the_stored_one() {
    caught(3, |events| {
        change_records(events, |record| record.status == Some(201), |record| record.status = Some(200));
    });
}

#[test]
fn an_answer_with_another_scopes_canary() {
    caught(4, |events| {
        let canaries: Vec<String> = answers(events).flat_map(|answer| answer.canaries.clone()).collect();
        let answer = answers(events).find(|answer| answer.canaries.first() == canaries.first());
        answer.expect("there is one").canaries.push(canaries.last().expect("there are several").clone());
    });
}

#[test]
fn an_operation_id_that_two_commands_share() {
    caught(4, |events| {
        let mut replays = answers(events).filter(|answer| answer.replayed);
        let first = replays.next().expect("there is one").operation_id.clone();
        replays.last().expect("there are several").operation_id = first;
    });
}

#[test]
fn a_record_that_the_store_has_for_another_tenant() {
    caught(4, |events| {
        change_records(events, |record| record.status.is_some(), |record| record.tenant = "tenant-9".into());
    });
}

#[test]
fn a_stored_response_for_another_payload() {
    caught(5, |events| {
        let tampered = events.iter().find_map(|event| match event {
            Event::Invoked(invoked) if invoked.payload == 1 => Some(invoked.clone()),
            _ => None,
        });
        let Invoked { request, command, .. } = tampered.expect("there is one");
        let answer = answers(events).find(|answer| answer.request == request);
        answer.expect("it was answered").canaries = vec![canary(&command, 0)];
    });
}

#[test]
fn an_effect_of_another_payload() {
    caught(5, |events| {
        let tampered = events.iter().find_map(|event| match event {
            Event::Invoked(invoked) if invoked.payload == 1 => Some(invoked.clone()),
            _ => None,
        });
        let Invoked { command, canary, .. } = tampered.expect("there is one");
        let effect = events.iter_mut().find_map(|event| match event {
            Event::Effect(effect) if effect.command == command => Some(effect),
            _ => None,
        });
        effect.expect("it had one").canary = canary;
    });
}

#[test]
fn an_unknown_that_is_settled_without_evidence() {
    caught(6, |events| events.retain(|event| !matches!(event, Event::Evidence(_))));
}

#[test]
fn an_unknown_that_is_freed_before_the_quarantine_is_over() {
    caught(6, |events| {
        let freed = |record: &Record| has(record, "failed_retryable", "verdict_not_executed");
        change_records(events, freed, |record| {
            let at = step(record, "failed_retryable", "verdict_not_executed").expect("it has one");
            record.steps[at].at -= QUARANTINE / 2;
        });
        for event in events.iter_mut() {
            if let Event::Evidence(Evidence { at, verdict: Verdict::NotExecuted, .. }) = event {
                *at -= QUARANTINE;
            }
        }
    });
}

#[test]
fn an_unknown_that_a_renewal_leaves() {
    caught(6, |events| {
        let late =
            |record: &Record| has(record, "unknown", "lease_expired") && has(record, "succeeded", "answered");
        change_records(events, late, |record| {
            let unknown = step(record, "unknown", "lease_expired").expect("it has one");
            let mut running = record.steps[unknown].clone();
            (running.state, running.reason) = ("processing".into(), "started".into());
            record.steps.insert(unknown + 1, running);
        });
    });
}

#[test]
fn a_late_word_of_somebody_who_never_called() {
    caught(6, |events| {
        let late =
            |record: &Record| has(record, "unknown", "lease_expired") && has(record, "succeeded", "answered");
        let id = records(events).find(|record| late(record)).expect("there is one").operation_id.clone();
        events.retain(|event| !matches!(event, Event::Called(call) if call.operation_id == id));
    });
}

#[test]
fn a_settled_record_with_another_response() {
    caught(7, |events| {
        let last = records(events)
            .filter(|record| record.state == "succeeded" && record.operation == "payments")
            .last();
        last.expect("there is one").response = Some("rewritten".into());
    });
}

#[test]
fn a_settled_record_that_is_opened_again() {
    caught(7, |events| {
        change_records(
            events,
            |record| record.state == "succeeded",
            |record| {
                let mut again = record.steps.last().expect("it has steps").clone();
                (again.state, again.reason) = ("processing".into(), "started".into());
                record.steps.push(again);
            },
        );
    });
}

#[test]
fn an_epoch_that_falls() {
    caught(8, |events| {
        change_records(
            events,
            |record| record.epoch == 2 && record.steps.len() > 3,
            |record| {
                record.steps.last_mut().expect("it has steps").epoch = 1;
            },
        );
    });
}

#[test]
fn an_epoch_that_is_acquired_twice() {
    caught(8, |events| {
        change_records(
            events,
            |record| record.epoch == 2,
            |record| {
                for step in &mut record.steps {
                    step.epoch = 1;
                }
            },
        );
    });
}

#[test]
fn a_second_completion() {
    caught(8, |events| {
        change_records(
            events,
            |record| record.state == "succeeded",
            |record| {
                record.steps.push(record.steps.last().expect("it has steps").clone());
            },
        );
    });
}

#[test]
fn an_attempt_that_calls_twice() {
    caught(8, |events| {
        let line = position(events, |event| matches!(event, Event::Called(_)));
        let call = events[line].clone();
        events.insert(line + 1, call);
    });
}

#[test]
fn an_effect_before_its_claim() {
    caught(9, |events| {
        let line = position(events, |event| matches!(event, Event::Called(_)));
        let Event::Called(call) = &mut events[line] else { return };
        call.at -= 1_000;
    });
}

#[test]
fn an_effect_of_an_attempt_that_nobody_claimed() {
    caught(9, |events| {
        let line = position(events, |event| matches!(event, Event::Effect(_)));
        let Event::Effect(effect) = &mut events[line] else { return };
        effect.attempt = 5;
    });
}

#[test]
fn an_effect_that_the_store_never_heard_of() {
    caught(9, |events| {
        let line = position(
            events,
            |event| matches!(event, Event::Effect(it) if it.command.operation == "payments"),
        );
        let Event::Effect(effect) = &events[line] else { return };
        let id = effect.operation_id.clone();
        events.retain(|event| !matches!(event, Event::Record(record) if record.operation_id == id));
    });
}

#[test]
fn an_effect_of_an_attempt_that_a_client_was_told_was_not_executed() {
    caught(10, |events| {
        let told =
            answers(events).find_map(|answer| Some((answer.operation_id.clone()?, answer.not_executed?)));
        let (id, attempt) = told.expect("there is one");
        let effect = events.iter_mut().find_map(|event| match event {
            Event::Effect(effect) if effect.operation_id == id => Some(effect),
            _ => None,
        });
        effect.expect("it had one later").attempt = attempt;
    });
}

#[test]
fn an_effect_of_an_attempt_that_an_operator_was_told_was_not_executed() {
    caught(10, |events| {
        let freed = |record: &&mut Record| has(record, "failed_retryable", "verdict_not_executed");
        let id = records(events).find(freed).expect("there is one").operation_id.clone();
        let effect = events.iter_mut().find_map(|event| match event {
            Event::Effect(effect) if effect.operation_id == id => Some(effect),
            _ => None,
        });
        effect.expect("it had one later").attempt = 1;
    });
}

#[test]
fn an_effect_that_nobody_can_have_caused() {
    caught(10, |events| {
        // The only request until then was told that the store is away.
        let away = position(
            events,
            |event| matches!(event, Event::Answered(it) if it.status == 503 && it.code.is_some()),
        );
        let effect = (away..events.len()).find(|line| matches!(events[*line], Event::Effect(_)));
        let effect = events.remove(effect.expect("it had one later"));
        events.insert(away + 1, effect);
    });
}

#[test]
fn a_conflict_after_a_final_answer() {
    for (status, code) in [(409, "IDEMPOTENCY_REQUEST_IN_PROGRESS"), (409, "IDEMPOTENCY_OUTCOME_UNKNOWN")] {
        caught(11, |events| {
            let replay = answers(events).filter(|answer| answer.replayed).last().expect("there is one");
            (replay.status, replay.code) = (status, Some(code.into()));
            (replay.replayed, replay.expires, replay.effect) = (false, None, None);
        });
    }
}

#[test]
fn an_execution_after_a_final_answer() {
    caught(11, |events| {
        let replay = position(events, |event| matches!(event, Event::Answered(answer) if answer.replayed));
        let Event::Answered(answer) = &events[replay] else { return };
        let id = answer.operation_id.clone();
        let call = events
            .iter()
            .find(|event| matches!(event, Event::Called(call) if Some(&call.operation_id) == id.as_ref()));
        let call = call.expect("it was called").clone();
        events.insert(replay + 1, call);
    });
}

#[test]
fn a_record_that_is_still_running_at_the_end() {
    for state in ["processing", "claimed"] {
        caught(12, |events| {
            let last = records(events).last().expect("there is one");
            (last.state, last.status, last.response) = (state.into(), None, None);
            last.steps.truncate(1);
        });
    }
}

#[test]
fn a_commit_without_a_message() {
    caught(13, |events| {
        let line = position(events, |event| matches!(event, Event::Message(it) if it.state == "delivered"));
        events.remove(line);
    });
}

#[test]
fn a_commit_with_two_messages() {
    caught(13, |events| {
        let line = position(events, |event| matches!(event, Event::Message(_)));
        let Event::Message(message) = events[line].clone() else { return };
        events.push(Event::Message(Message { event_id: format!("{}-again", message.event_id), ..message }));
    });
}

#[test]
fn a_message_of_nothing_that_was_committed() {
    caught(13, |events| {
        let fits = |event: &Event| matches!(event, Event::Committed(row) if row.message.is_some());
        let line = position(events, fits);
        events.remove(line);
    });
}

#[test]
fn a_message_that_is_never_delivered() {
    caught(13, |events| {
        let line = position(events, |event| matches!(event, Event::Delivered(_)));
        let Event::Delivered(delivered) = &events[line] else { return };
        let id = delivered.event_id.clone();
        events.retain(|event| !matches!(event, Event::Delivered(it) if it.event_id == id));
    });
}

#[test]
fn a_message_with_two_effects() {
    caught(13, |events| {
        let again = |event: &Event| matches!(event, Event::Delivered(Delivered { effect: false, .. }));
        let line = position(events, again);
        let Event::Delivered(delivered) = &mut events[line] else { return };
        delivered.effect = true;
    });
}

#[test]
fn a_record_that_is_reaped_early() {
    caught(14, |events| {
        let line = position(
            events,
            |event| matches!(event, Event::Record(it) if it.operation == "payments" && it.state == "succeeded"),
        );
        let Event::Record(record) = events[line].clone() else { return };
        let later = (line..events.len()).find_map(|line| match &events[line] {
            Event::Looked(looked) => Some((line, looked.look)),
            _ => None,
        });
        let (at, look) = later.expect("there is a later look");
        events.insert(at + 1, Event::Gone(Gone { look, operation_id: record.operation_id }));
    });
}

#[test]
fn an_unknown_that_is_reaped() {
    caught(14, |events| {
        let line = position(events, |event| matches!(event, Event::Record(it) if it.state == "unknown"));
        let Event::Record(record) = events[line].clone() else { return };
        let id = record.operation_id;
        let look = (line..events.len()).find_map(|line| match &events[line] {
            Event::Looked(looked) => Some((line, looked.look)),
            _ => None,
        });
        let (at, look) = look.expect("there is a later look");
        events.insert(at + 1, Event::Gone(Gone { look, operation_id: id.clone() }));
        let mut number = 0;
        events.retain(|event| {
            number += 1;
            number <= at + 2 || !matches!(event, Event::Record(record) if record.operation_id == id)
        });
    });
}

#[test]
fn a_key_that_is_taken_anew_before_its_record_expires() {
    caught(14, |events| {
        let drafts: Vec<String> = records(events)
            .filter(|record| record.operation == "drafts")
            .map(|record| record.operation_id.clone())
            .collect();
        let second = drafts.iter().find(|id| **id != drafts[0]).expect("drafts are used twice").clone();
        records(events).filter(|record| record.operation_id == second).for_each(|record| {
            for step in &mut record.steps {
                step.at -= 3_000;
            }
        });
    });
}

fn last_metrics(events: &mut [Event]) -> &mut Metrics {
    let metrics = events.iter_mut().rev().find_map(|event| match event {
        Event::Metrics(metrics) => Some(metrics),
        _ => None,
    });
    metrics.expect("there is one")
}

#[test]
fn a_counter_that_counts_too_much_or_too_little() {
    for outcome in ["executed", "replayed", "mismatch", "unknown", "in_progress", "store_error", "accepted"] {
        for more in [true, false] {
            caught(15, |events| {
                let sample = last_metrics(events).samples.iter_mut().find(|sample| {
                    sample.name == "idempotency_claims_total"
                        && sample.labels.get("outcome").is_some_and(|it| it == outcome)
                });
                let sample = sample.expect("there is one");
                sample.value = if more { sample.value + 1 } else { sample.value - 1 };
            });
        }
    }
}

#[test]
fn a_counter_that_contradicts_another_one() {
    caught(15, |events| {
        let sample =
            last_metrics(events).samples.iter_mut().find(|sample| sample.name == "idempotency_replays_total");
        sample.expect("there is one").value += 1;
    });
}

#[test]
fn a_worker_that_counts_what_it_did_not_run() {
    caught(15, |events| {
        let sample = last_metrics(events).samples.iter_mut().find(|sample| {
            sample.name == "idempotency_claims_total"
                && sample.labels.get("operation").is_some_and(|it| it == "reports")
                && sample.labels.get("outcome").is_some_and(|it| it == "executed")
        });
        sample.expect("there is one").value += 1;
    });
}

#[test]
fn a_story_tells_the_events_in_order() {
    let mut events = good(1, 5);
    let line = position(&events, |event| matches!(event, Event::Effect(_)));
    let Event::Effect(effect) = events[line].clone() else { return };
    events.insert(line + 1, Event::Effect(Effect { effect: "effect-again".into(), ..effect.clone() }));
    let told = semel_checker::check(&events).expect("it is whole").to_string();
    let places =
        ["asks a for", "the service is called", "EFFECT effect-1", "EFFECT effect-again", "is told 201"];
    let found: Vec<usize> =
        places.iter().map(|place| told.find(place).unwrap_or_else(|| panic!("{place}: {told}"))).collect();
    assert!(found.is_sorted(), "{told}");
}
