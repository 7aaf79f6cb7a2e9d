//! Histories that keep every promise.

use semel_checker::{Event, Tally};

use crate::sample::good;

#[test]
fn a_good_history_passes() {
    for seed in 1..=40 {
        let events = good(seed, 30);
        let report = semel_checker::check(&events).expect("it is whole");
        assert!(report.violations.is_empty(), "seed {seed}:\n{report}");
    }
}

#[test]
fn a_good_history_passes_as_the_file_that_it_is_written_to() {
    let events = good(3, 20);
    let lines: Vec<String> =
        events.iter().map(|event| serde_json::to_string(event).expect("it is JSON")).collect();
    let read = semel_checker::read(lines.join("\n").as_bytes()).expect("it reads back");
    assert_eq!(read, events);
}

#[test]
fn a_history_in_which_nothing_happened_is_known_for_that() {
    let mut events = good(1, 5);
    assert_eq!(Tally::of(&events).lacks(), None);
    events.retain(|event| !matches!(event, Event::Fault(_)));
    assert_eq!(Tally::of(&events).lacks(), Some("a fault"));
    events.retain(|event| !matches!(event, Event::Answered(answer) if answer.replayed));
    assert_eq!(Tally::of(&events).lacks(), Some("a replay"));
    assert_eq!(Tally::of(&[]).lacks(), Some("an effect"));
}

#[test]
fn a_history_without_a_situation_that_it_should_have_met_is_known_for_that() {
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
