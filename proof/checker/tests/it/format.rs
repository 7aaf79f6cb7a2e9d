//! Malformed or incomplete histories: the checker refuses them.

use semel_checker::event::{Event, Looked};

use crate::sample::good;

fn refusal(change: impl FnOnce(&mut Vec<Event>)) -> String {
    let mut events = good(1, 5);
    change(&mut events);
    semel_checker::check(&events).expect_err("it is not whole").to_string()
}

#[test]
fn truncated_history_is_not_judged() {
    let cut_off = refusal(|events| {
        events.retain(|event| !matches!(event, Event::Looked(Looked { last: true, .. }) | Event::Record(_)));
    });
    assert!(cut_off.contains("has no end"), "{cut_off}");
    let headless = refusal(|events| drop(events.remove(0)));
    assert!(headless.contains("the first event"), "{headless}");
}

#[test]
fn answer_without_a_request_is_not_judged() {
    let orphan = refusal(|events| {
        let first = events.iter().position(|event| matches!(event, Event::Invoked(_)));
        events.remove(first.expect("there is one"));
    });
    assert!(orphan.contains("was not invoked"), "{orphan}");
}

#[test]
fn unknown_event_is_an_error_that_names_its_line() {
    let error = semel_checker::read("{\"event\":\"quiet\",\"at\":1}\n{\"event\":\"dance\"}".as_bytes());
    let error = error.expect_err("nothing is passed over").to_string();
    assert!(error.starts_with("line 2 "), "{error}");
}
