//! Good histories: the checker reports no violation.

use semel_checker::{Event, Tally};

use crate::sample::good;

#[test]
fn good_history_passes() {
    for seed in 1..=40 {
        let events = good(seed, 30);
        let report = semel_checker::check(&events).expect("it is whole");
        assert!(report.violations.is_empty(), "seed {seed}:\n{report}");
    }
}

#[test]
fn good_history_reads_back_from_its_file() {
    let events = good(3, 20);
    let lines: Vec<String> =
        events.iter().map(|event| serde_json::to_string(event).expect("it is JSON")).collect();
    let read = semel_checker::read(lines.join("\n").as_bytes()).expect("it reads back");
    assert_eq!(read, events);
}

#[test]
fn history_without_a_fault_or_replay_or_effect_lacks_it() {
    let mut events = good(1, 5);
    assert_eq!(Tally::of(&events).lacks(), None);
    events.retain(|event| !matches!(event, Event::Fault(_)));
    assert_eq!(Tally::of(&events).lacks(), Some("a fault"));
    events.retain(|event| !matches!(event, Event::Answered(answer) if answer.replayed));
    assert_eq!(Tally::of(&events).lacks(), Some("a replay"));
    assert_eq!(Tally::of(&[]).lacks(), Some("an effect"));
}

#[test]
fn history_without_a_required_situation_lacks_it() {
    let events = good(1, 5);
    assert_eq!(Tally::of(&events).situations.len(), 18, "each is counted");
    let without = |fits: &dyn Fn(&Event) -> bool| {
        let events: Vec<Event> = events.iter().filter(|event| !fits(event)).cloned().collect();
        Tally::of(&events).lacks()
    };
    assert_eq!(without(&|event| matches!(event, Event::Phase(_))), Some("phase finished"));
    assert_eq!(
        without(&|event| matches!(event, Event::Intervened(_))),
        Some("message retried by an operator")
    );
    let bulk = |event: &Event| matches!(event, Event::Answered(answer) if !answer.items.is_empty());
    assert_eq!(without(&bulk), Some("bulk request partly done"));
    let undone = |event: &Event| matches!(event, Event::Answered(answer) if answer.undone.is_some());
    assert_eq!(without(&undone), Some("work refused"));
}
