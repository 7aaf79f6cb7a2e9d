//! Each change is made by its constructor, and says what that was given.

use std::time::Duration;

use semel_core::transition::{Proof, Verdict};
use semel_core::{About, AttemptToken, Change, Event, Fence, Filter, Note, Reason, StoredResult, Timestamp};

use crate::records::result;

const TOKEN: AttemptToken = AttemptToken::from_bytes([9; 16]);
const FENCE: Fence = Fence { epoch: 3, token: AttemptToken::from_bytes([1; 16]) };
const AT: Timestamp = Timestamp::from_millis(5_000);
const TIME: Duration = Duration::from_secs(8);

fn not_executed(seen: Option<Timestamp>) -> Event {
    Event::Resolve { verdict: Verdict::NotExecuted(Proof::Quarantine), seen, about: About::Command }
}

/// Every change, the event that it is, the result that it brings, and whether it may be sent twice.
fn all() -> Vec<(Change, Event, Option<StoredResult>, bool)> {
    let (fence, reason) = (FENCE, Reason::TimedOut);
    let (good, bad) = (result(201), result(402));
    let postponed = |counts| Event::Postpone { until: AT, attempts: 4, counts };
    vec![
        (Change::start(fence, TOKEN), Event::Start { fence, token: TOKEN }, None, true),
        (Change::renew(fence), Event::Renew { fence }, None, true),
        (Change::complete(fence, good.clone()), Event::Complete { fence }, Some(good.clone()), true),
        (Change::fail(fence, reason, bad.clone()), Event::Fail { fence, reason }, Some(bad.clone()), true),
        (Change::release(fence, reason), Event::Release { fence, reason }, None, true),
        (Change::requeue(fence, reason, TIME), Event::Requeue { fence, reason, after: TIME }, None, true),
        (Change::defer(fence, TIME), Event::Defer { fence, time: TIME }, None, true),
        (Change::abandon(fence, reason), Event::Abandon { fence, reason }, None, true),
        (Change::resolve_executed(good.clone()), Event::resolve(Verdict::Succeeded), Some(good), false),
        (Change::resolve_executed(bad.clone()), Event::resolve(Verdict::FailedFinal), Some(bad), false),
        (Change::resolve_not_executed(Proof::Quarantine), not_executed(None), None, false),
        (Change::postpone(AT, 4), postponed(true), None, false),
        (Change::put_off(AT, 4), postponed(false), None, false),
        (Change::free(), Event::Free, None, false),
        (Change::purge(), Event::Purge, None, false),
    ]
}

#[test]
fn a_change_is_its_event_with_what_that_brings() {
    for (change, event, brings, _) in all() {
        assert_eq!((change.event(), change.result(), change.note()), (&event, brings.as_ref(), None));
    }
}

#[test]
fn what_carries_a_token_may_be_sent_twice_and_a_word_from_outside_may_not() {
    for (change, event, _, repeatable) in all() {
        assert_eq!(change.event().is_repeatable(), repeatable, "{event:?}");
    }
    let attempt = crate::records::claim().attempt;
    for event in [Event::Claim(attempt), Event::Look { fingerprint: attempt.fingerprint }, Event::Age] {
        assert!(event.is_repeatable(), "{event:?}");
    }
}

#[test]
fn the_first_status_that_is_no_success_is_400() {
    for (status, verdict) in [(399, Verdict::Succeeded), (400, Verdict::FailedFinal)] {
        assert_eq!(*Change::resolve_executed(result(status)).event(), Event::resolve(verdict), "{status}");
    }
}

#[test]
fn evidence_says_when_it_was_seen_and_nothing_else_does() {
    for (change, event, brings, _) in all() {
        let seen = change.seen_at(AT);
        let expected = match event {
            Event::Resolve { verdict, about, .. } => Event::Resolve { verdict, seen: Some(AT), about },
            other => other,
        };
        assert_eq!((seen.event(), seen.result()), (&expected, brings.as_ref()));
    }
}

#[test]
fn a_note_and_another_form_of_the_result_go_with_a_change() {
    let note = Note { who: "ann".into(), action: "resolve".into(), why: "the bank says so".into() };
    for (change, event, brings, _) in all() {
        let noted = change.noted(note.clone());
        let note = match event {
            Event::Resolve { verdict, .. } => {
                Note { action: format!("resolve {}", verdict.as_str()), ..note.clone() }
            }
            _ => note.clone(),
        };
        assert_eq!((noted.event(), noted.note()), (&event, Some(&note)));
        let sealed = noted.with_result(result(299));
        assert_eq!((sealed.event(), sealed.note()), (&event, Some(&note)));
        let expected = brings.map(|_| result(299));
        assert_eq!(sealed.result(), expected.as_ref(), "what brings none is given none: {event:?}");
    }
}

#[test]
fn a_list_is_of_everybody_and_bounded() {
    let Filter { state, operation, tenant, updated_before, after, limit } = Filter::default();
    assert_eq!((state, operation, tenant, updated_before, after, limit), (None, None, None, None, None, 100));
}
