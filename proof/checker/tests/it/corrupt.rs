//! Good histories with one fault: the checker must report the right invariant.

use semel_checker::event::{
    Answered, Called, Delivered, Effect, Event, Evidence, Gone, Invoked, Message, Metrics, Record, Verdict,
};

use crate::sample::{QUARANTINE, canary, good};

/// Corrupts good histories, and checks that something changed and that the checker reports the invariant.
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

/// Returns the line of the first event that fits.
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

/// Changes every look at the last record that fits.
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
fn second_effect_of_one_operation_is_found() {
    caught(1, |events| {
        let line = position(events, |event| matches!(event, Event::Effect(_)));
        let Event::Effect(effect) = events[line].clone() else { return };
        events.insert(line + 1, Event::Effect(Effect { effect: "effect-again".into(), ..effect }));
    });
}

#[test]
fn second_effect_of_one_business_reference_is_found() {
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
fn second_effect_of_one_key_before_expiry_is_found() {
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
fn success_without_an_effect_is_found() {
    caught(2, |events| {
        let line = position(events, |event| matches!(event, Event::Effect(_)));
        events.remove(line);
    });
}

#[test]
fn response_that_names_another_effect_is_found() {
    caught(2, |events| {
        let answer = answers(events).find(|answer| answer.effect.is_some());
        answer.expect("there is one").effect = Some("effect-of-somebody-else".into());
    });
}

#[test]
fn effect_of_a_declined_record_is_found() {
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
fn replay_that_differs_is_found() {
    caught(3, |events| {
        let replay = answers(events).find(|answer| answer.replayed);
        replay.expect("there is one").digest = "something else".into();
    });
}

#[test]
fn answer_with_another_status_than_the_stored_one_is_found() {
    caught(3, |events| {
        change_records(events, |record| record.status == Some(201), |record| record.status = Some(200));
    });
}

#[test]
fn answer_with_another_scopes_canary_is_found() {
    caught(4, |events| {
        let canaries: Vec<String> = answers(events).flat_map(|answer| answer.canaries.clone()).collect();
        let answer = answers(events).find(|answer| answer.canaries.first() == canaries.first());
        answer.expect("there is one").canaries.push(canaries.last().expect("there are several").clone());
    });
}

#[test]
fn operation_id_that_two_commands_share_is_found() {
    caught(4, |events| {
        let mut replays = answers(events).filter(|answer| answer.replayed);
        let first = replays.next().expect("there is one").operation_id.clone();
        replays.last().expect("there are several").operation_id = first;
    });
}

#[test]
fn record_of_another_tenant_is_found() {
    caught(4, |events| {
        change_records(events, |record| record.status.is_some(), |record| record.tenant = "tenant-9".into());
    });
}

#[test]
fn stored_response_for_another_payload_is_found() {
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
fn effect_of_another_payload_is_found() {
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
fn unknown_that_is_settled_without_evidence_is_found() {
    caught(6, |events| events.retain(|event| !matches!(event, Event::Evidence(_))));
}

#[test]
fn unknown_that_is_freed_before_quarantine_end_is_found() {
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
fn unknown_that_returns_to_processing_is_found() {
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
fn late_completion_without_a_call_is_found() {
    caught(6, |events| {
        let late =
            |record: &Record| has(record, "unknown", "lease_expired") && has(record, "succeeded", "answered");
        let id = records(events).find(|record| late(record)).expect("there is one").operation_id.clone();
        events.retain(|event| !matches!(event, Event::Called(call) if call.operation_id == id));
    });
}

#[test]
fn settled_record_with_another_response_is_found() {
    caught(7, |events| {
        let last = records(events)
            .filter(|record| record.state == "succeeded" && record.operation == "payments")
            .last();
        last.expect("there is one").response = Some("rewritten".into());
    });
}

#[test]
fn settled_record_that_is_reopened_is_found() {
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
fn epoch_that_falls_is_found() {
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
fn epoch_that_is_acquired_twice_is_found() {
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
fn second_completion_is_found() {
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
fn attempt_that_calls_twice_is_found() {
    caught(8, |events| {
        let line = position(events, |event| matches!(event, Event::Called(_)));
        let call = events[line].clone();
        events.insert(line + 1, call);
    });
}

#[test]
fn call_before_its_claim_is_found() {
    caught(9, |events| {
        let line = position(events, |event| matches!(event, Event::Called(_)));
        let Event::Called(call) = &mut events[line] else { return };
        call.at -= 1_000;
    });
}

#[test]
fn effect_of_an_unclaimed_attempt_is_found() {
    caught(9, |events| {
        let line = position(events, |event| matches!(event, Event::Effect(_)));
        let Event::Effect(effect) = &mut events[line] else { return };
        effect.attempt = 5;
    });
}

#[test]
fn effect_without_a_record_is_found() {
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
fn effect_of_an_attempt_answered_as_not_executed_is_found() {
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
fn effect_of_an_attempt_ruled_not_executed_is_found() {
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
fn effect_without_a_request_that_may_run_is_found() {
    caught(10, |events| {
        // The only request until then was told that the store is unavailable.
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
fn conflict_after_a_final_answer_is_found() {
    for (status, code) in [(409, "IDEMPOTENCY_REQUEST_IN_PROGRESS"), (409, "IDEMPOTENCY_OUTCOME_UNKNOWN")] {
        caught(11, |events| {
            let replay = answers(events).filter(|answer| answer.replayed).last().expect("there is one");
            (replay.status, replay.code) = (status, Some(code.into()));
            (replay.replayed, replay.expires, replay.effect) = (false, None, None);
        });
    }
}

#[test]
fn execution_after_a_final_answer_is_found() {
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
fn record_in_progress_at_the_end_is_found() {
    for state in ["processing", "claimed"] {
        caught(12, |events| {
            let last = records(events).last().expect("there is one");
            (last.state, last.status, last.response) = (state.into(), None, None);
            last.steps.truncate(1);
        });
    }
}

#[test]
fn commit_without_a_message_is_found() {
    caught(13, |events| {
        let line = position(events, |event| matches!(event, Event::Message(it) if it.state == "delivered"));
        events.remove(line);
    });
}

#[test]
fn commit_with_two_messages_is_found() {
    caught(13, |events| {
        let line = position(events, |event| matches!(event, Event::Message(_)));
        let Event::Message(message) = events[line].clone() else { return };
        events.push(Event::Message(Message { event_id: format!("{}-again", message.event_id), ..message }));
    });
}

#[test]
fn message_without_a_committed_row_is_found() {
    caught(13, |events| {
        let fits = |event: &Event| matches!(event, Event::Committed(row) if row.message.is_some());
        let line = position(events, fits);
        events.remove(line);
    });
}

#[test]
fn message_that_is_never_delivered_is_found() {
    caught(13, |events| {
        let line = position(events, |event| matches!(event, Event::Delivered(_)));
        let Event::Delivered(delivered) = &events[line] else { return };
        let id = delivered.event_id.clone();
        events.retain(|event| !matches!(event, Event::Delivered(it) if it.event_id == id));
    });
}

#[test]
fn message_with_two_effects_is_found() {
    caught(13, |events| {
        let again = |event: &Event| matches!(event, Event::Delivered(Delivered { effect: false, .. }));
        let line = position(events, again);
        let Event::Delivered(delivered) = &mut events[line] else { return };
        delivered.effect = true;
    });
}

#[test]
fn record_that_is_reaped_early_is_found() {
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
fn unknown_that_is_reaped_is_found() {
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
fn key_that_is_reused_before_expiry_is_found() {
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
fn counter_that_is_too_high_or_too_low_is_found() {
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
fn counter_that_contradicts_another_one_is_found() {
    caught(15, |events| {
        let sample =
            last_metrics(events).samples.iter_mut().find(|sample| sample.name == "idempotency_replays_total");
        sample.expect("there is one").value += 1;
    });
}

#[test]
fn worker_that_counts_an_execution_too_many_is_found() {
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
fn story_tells_the_events_in_order() {
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
