//! Each constructor of a change sets what it was given.

use std::time::Duration;

use bytes::Bytes;
use semel_core::progress::{MAX_OUTPUT, Mark, OpenCall, Progress, StepKind};
use semel_core::transition::{PhaseVerdict, Proof, Recorded, Verdict};
use semel_core::{About, AttemptToken, Change, Event, Fence, Filter, Note, Reason, StoredResult, Timestamp};

use crate::records::result;

const TOKEN: AttemptToken = AttemptToken::from_bytes([9; 16]);
const FENCE: Fence = Fence { epoch: 3, token: AttemptToken::from_bytes([1; 16]) };
const AT: Timestamp = Timestamp::from_millis(5_000);
const TIME: Duration = Duration::from_secs(8);

fn not_executed(seen: Option<Timestamp>) -> Event {
    Event::Resolve { verdict: Verdict::NotExecuted(Proof::Quarantine), seen, about: About::Command }
}

/// Returns every change, its event, its result, and true if it may be sent twice.
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
        (Change::doubt(), Event::Doubt, None, true),
        (Change::free(), Event::Free, None, false),
        (Change::purge(), Event::Purge, None, false),
    ]
}

#[test]
fn a_change_holds_its_event_and_its_result_and_no_note() {
    for (change, event, brings, _) in all() {
        assert_eq!((change.event(), change.result(), change.note()), (&event, brings.as_ref(), None));
    }
}

#[test]
fn changes_with_a_token_are_repeatable_and_verdicts_are_not() {
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
fn only_resolve_events_take_the_time_they_were_seen() {
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
fn the_default_list_filter_matches_every_record_up_to_100() {
    let Filter { state, operation, tenant, caller, since, until, after, limit } = Filter::default();
    assert_eq!((state, operation, tenant, caller), (None, None, None, None));
    assert_eq!((since, until, after, limit), (None, None, None, 100));
}

#[test]
fn only_changes_of_an_executor_carry_a_fence() {
    for (change, event, ..) in all() {
        let is_executors = matches!(
            event,
            Event::Start { .. }
                | Event::Renew { .. }
                | Event::Complete { .. }
                | Event::Fail { .. }
                | Event::Release { .. }
                | Event::Requeue { .. }
                | Event::Defer { .. }
                | Event::Abandon { .. }
        );
        assert_eq!(change.event().fence(), is_executors.then_some(FENCE), "{event:?}");
    }
    assert_eq!(TOKEN.as_bytes(), &[9; 16]);
}

#[test]
fn only_resolve_events_take_the_attempt_they_are_about() {
    for (change, event, ..) in all() {
        let expected = match event {
            Event::Resolve { verdict, seen, .. } => Event::Resolve { verdict, seen, about: About::Only(2) },
            other => other,
        };
        assert_eq!(*change.about(About::Only(2)).event(), expected);
    }
}

#[test]
fn a_change_carries_the_observation_of_its_executor() {
    let change = Change::abandon(FENCE, Reason::TimedOut);
    assert_eq!(change.observation(), None);
    assert_eq!(change.observing("no answer").observation(), Some("no answer"));
}

fn step(name: &str, what: StepKind) -> Progress {
    Progress { position: 0, name: name.into(), what, began_at: AT, done_at: None }
}

fn external(name: &str, output: Option<Bytes>) -> Progress {
    step(name, StepKind::External { deduplicated: false, output })
}

#[test]
fn a_call_verdict_fits_only_the_open_call_of_its_phase() {
    let output = Bytes::from_static(b"{}");
    let done = [
        step("book", StepKind::Local { output: output.clone() }),
        external("charge", Some(output.clone())),
        step("1", StepKind::item(None)),
    ];
    let open = [done.as_slice(), &[external("ship", None)]].concat();
    let executed = |phase| Change::resolve_call_executed(3, phase, output.clone()).expect("it is JSON");
    let not_executed = |phase| Change::resolve_call_not_executed(3, phase, Proof::ProviderTombstone);
    for (change, name, fits_open, fits_done, mark) in [
        (
            executed("ship"),
            "executed",
            true,
            false,
            Some(Mark::Answered { name: "ship".into(), output: output.clone() }),
        ),
        (not_executed("ship"), "not_executed", true, false, Some(Mark::TakenBack { name: "ship".into() })),
        (
            not_executed("charge"),
            "not_executed",
            false,
            false,
            Some(Mark::TakenBack { name: "charge".into() }),
        ),
        (Change::resume(3), "resume", false, true, None),
    ] {
        let call = change.call().expect("it is about one").clone();
        assert_eq!((call.fits(&open), call.fits(&done), call.mark()), (fits_open, fits_done, mark));
        let Event::ResolvePhase { recorded, verdict, .. } = change.event_for(&open, true) else {
            panic!("it is about a phase")
        };
        assert_eq!((recorded, verdict.as_str()), (Recorded { fits: fits_open, has_input: true }, name));
        let note = Note { who: "ann".into(), action: "resolve".into(), why: "the bank says so".into() };
        let noted = change.noted(note);
        assert_eq!(noted.note().map(|note| note.action.as_str()), Some(&*format!("resolve {name}")));
    }
    assert_eq!(Change::renew(FENCE).call(), None);
    let recorded = Recorded::default();
    let within = Duration::from_secs(86_400);
    let resume =
        Event::ResolvePhase { epoch: 3, verdict: PhaseVerdict::NothingOpen, seen: None, within, recorded };
    assert_eq!(*Change::resume(3).event(), resume, "a worker has a day");
}

#[test]
fn only_local_and_answered_phase_marks_are_done() {
    let (name, output) = ("charge".to_owned(), Bytes::from_static(b"{}"));
    let begun = Mark::Begun { position: 1, name: name.clone(), deduplicated: true };
    assert!(Mark::Local { position: 1, name: name.clone(), output: output.clone() }.is_done());
    assert!(Mark::Answered { name: name.clone(), output: output.clone() }.is_done());
    assert!(!begun.is_done() && !Mark::TakenBack { name }.is_done());

    let known = StepKind::Local { output: output.clone() };
    assert_eq!((known.output(), StepKind::item(None).output()), (Some(&output), None));
    assert_eq!(external("charge", None).what.output(), None);
    assert_eq!(external("charge", Some(output.clone())).what.output(), Some(&output));
}

#[test]
fn an_output_is_json_of_a_bounded_size() {
    let text = |bytes: usize| Bytes::from(format!("\"{}\"", "x".repeat(bytes - 2)));
    let largest = OpenCall::executed("charge", text(MAX_OUTPUT));
    assert_eq!(largest, Ok(OpenCall::Executed { phase: "charge".into(), output: text(MAX_OUTPUT) }));
    for (output, why) in [
        (text(MAX_OUTPUT + 1), "the output has 65537 bytes; at most 65536 are kept"),
        (Bytes::from_static(b"no"), "the output of a phase is JSON"),
    ] {
        let refused = OpenCall::executed("charge", output).expect_err(why);
        assert!(refused.to_string().starts_with(why), "{refused}");
    }
}

#[test]
fn a_note_reports_an_execution_only_if_its_action_names_a_verdict() {
    let said =
        |action: &str| Note { who: "ann".into(), action: action.into(), why: "seen".into() }.says_executed();
    assert_eq!(said("resolve executed"), Some(true));
    assert_eq!((said("resolve failed"), said("release")), (Some(false), Some(false)));
    assert_eq!((said("resolve"), said("purge")), (None, None));
}
