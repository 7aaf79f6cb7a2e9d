//! Tests of the judge: a correct observation with one wrong change is condemned under every code.

use bytes::Bytes;

use super::{TOO_MANY, judge};
use crate::seen::{Answer, Effect, Record, Seen, Told};
use crate::table::Code;

const OWN: &[u8] = b"{\"effect\":1}";
const OPERATOR: &[u8] = b"{\"effect\":\"seen\"}";

fn answer(status: u16, code: Option<&str>, body: &'static [u8]) -> Answer {
    Answer {
        status,
        code: code.map(str::to_owned),
        operation_id: Some("op-1".to_owned()),
        location: None,
        replayed: false,
        retry_after: true,
        status_url: true,
        body: Bytes::from_static(body),
    }
}

fn told(answer: Answer) -> Told {
    Told::Answer(Box::new(answer))
}

fn done() -> Told {
    told(answer(201, None, OWN))
}

fn replay_of(body: &'static [u8]) -> Told {
    told(Answer { replayed: true, ..answer(201, None, body) })
}

fn replay() -> Told {
    replay_of(OWN)
}

fn problem(status: u16, code: &str) -> Told {
    told(answer(status, Some(code), b"{}"))
}

fn in_progress() -> Told {
    problem(409, "IDEMPOTENCY_REQUEST_IN_PROGRESS")
}

fn unknown() -> Told {
    problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN")
}

fn unavailable() -> Told {
    problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE")
}

fn dropped() -> Told {
    Told::Dropped("cut".to_owned())
}

fn effect() -> Effect {
    Effect { operation_id: "op-1".to_owned(), key: "key".to_owned(), body: Bytes::from_static(OWN) }
}

fn record(state: &str) -> Option<Record> {
    let (operation_id, state) = ("op-1".to_owned(), state.to_owned());
    Some(Record { operation_id, state, epoch: 1, history: String::new() })
}

/// Observation of a command that was executed and answered, and is replayed.
fn well() -> Seen {
    Seen {
        at_fault: (None, 0),
        first: done(),
        during: Vec::new(),
        beyond: Vec::new(),
        effects_then: 1,
        after: vec![replay()],
        last: vec![replay(), replay()],
        record: record("succeeded"),
        effects: vec![effect()],
        operator: None,
        executor_gone: false,
    }
}

/// Correct observation for a code.
fn well_for(code: Code) -> Seen {
    match code {
        Code::FailClosed => Seen { first: unavailable(), effects_then: 0, after: vec![done()], ..well() },
        Code::Owned => Seen { during: vec![in_progress(), replay()], beyond: vec![unknown()], ..well() },
        Code::NeverStarted => Seen {
            first: dropped(),
            effects_then: 0,
            after: vec![in_progress(), unknown()],
            last: vec![unknown()],
            record: record("unknown"),
            effects: Vec::new(),
            executor_gone: true,
            ..well()
        },
        Code::NeverStartedFenced => Seen {
            first: unavailable(),
            during: vec![unknown()],
            effects_then: 0,
            after: vec![done()],
            ..well()
        },
        Code::Unknown => Seen {
            first: dropped(),
            after: vec![unknown()],
            last: vec![unknown()],
            record: record("unknown"),
            executor_gone: true,
            ..well()
        },
        Code::Fenced | Code::UnknownFenced => Seen {
            first: replay_of(OPERATOR),
            during: vec![unknown()],
            after: vec![replay_of(OPERATOR)],
            last: vec![replay_of(OPERATOR)],
            operator: Some(Bytes::from_static(OPERATOR)),
            ..well()
        },
        Code::NotRetained => {
            let gone = problem(201, "IDEMPOTENCY_RESPONSE_NOT_RETAINED");
            Seen { after: vec![gone.clone()], last: vec![gone], ..well() }
        }
        Code::Lost => Seen { after: vec![done()], effects: vec![effect(), effect()], ..well() },
        Code::Refused => Seen {
            first: problem(400, "MISSING_IDEMPOTENCY_KEY"),
            effects_then: 0,
            after: Vec::new(),
            last: Vec::new(),
            record: None,
            effects: Vec::new(),
            ..well()
        },
        _ => well(),
    }
}

/// Codes that are judged by the observations of a gateway.
const CODES: [Code; 13] = [
    Code::Nothing,
    Code::FailClosed,
    Code::Owned,
    Code::NeverStarted,
    Code::NeverStartedFenced,
    Code::Ambiguous,
    Code::Unknown,
    Code::Fenced,
    Code::UnknownFenced,
    Code::Done,
    Code::Lost,
    Code::NotRetained,
    Code::Cached,
];

#[track_caller]
fn is_condemned(code: Code, why: &str, seen: &Seen) {
    let violated = judge(code, seen);
    assert!(violated.iter().any(|violated| violated == why), "{code:?}: {why:?} is not in {violated:?}");
}

#[test]
fn correct_observation_passes_under_every_code() {
    for code in CODES.into_iter().chain([Code::Refused]) {
        assert_eq!(judge(code, &well_for(code)), Vec::<String>::new(), "{code:?}");
    }
}

#[test]
fn surplus_effect_is_condemned_under_every_code() {
    for code in CODES.into_iter().chain([Code::Refused]) {
        let mut seen = well_for(code);
        while seen.effects.len() < if code == Code::Lost { 3 } else { 2 } {
            seen.effects.push(effect());
        }
        is_condemned(code, TOO_MANY, &seen);
    }
}

#[test]
fn changed_or_invented_response_is_condemned_under_every_code() {
    for code in CODES {
        let mut seen = well_for(code);
        seen.last.push(replay_of(b"{\"effect\":7}"));
        is_condemned(code, "an answer that nobody gave", &seen);
    }
    let other = Answer { operation_id: Some("op-2".to_owned()), replayed: true, ..answer(201, None, OWN) };
    let seen = Seen { last: vec![replay(), told(other)], ..well() };
    is_condemned(Code::Done, "two clients got two answers to one command", &seen);
}

#[test]
fn response_without_next_step_is_condemned_under_every_code() {
    for code in CODES.into_iter().chain([Code::Refused]) {
        let mut seen = well_for(code);
        seen.during.push(told(Answer { retry_after: false, ..*answered(&in_progress()) }));
        seen.during.push(told(Answer { retry_after: false, ..*answered(&unavailable()) }));
        seen.during.push(told(Answer { status_url: false, ..*answered(&unknown()) }));
        seen.during.push(problem(500, "SOMETHING_ELSE"));
        is_condemned(code, "told to wait, and not for how long", &seen);
        is_condemned(code, "told to come back, and not when", &seen);
        is_condemned(code, "told that nobody knows, and not where to ask", &seen);
        is_condemned(code, "an answer that the contract does not have: 500 SOMETHING_ELSE", &seen);
    }
}

fn answered(told: &Told) -> Box<Answer> {
    Box::new(told.as_answer().cloned().expect("it is one"))
}

#[test]
fn false_claim_that_nothing_ran_is_condemned() {
    for first in [unavailable(), problem(502, "UPSTREAM_UNREACHABLE")] {
        let seen = Seen { first, effects_then: 1, ..well() };
        for code in [Code::Ambiguous, Code::Done, Code::Cached] {
            is_condemned(code, "a client was told that nothing ran, and it had", &seen);
        }
    }
}

#[test]
fn vanished_record_and_unanswered_retry_are_condemned() {
    for code in [Code::Nothing, Code::FailClosed, Code::Owned, Code::Ambiguous, Code::Done, Code::Cached] {
        is_condemned(code, "the record is None, not succeeded", &Seen { record: None, ..well_for(code) });
        let stuck = Seen { last: vec![in_progress()], ..well_for(code) };
        is_condemned(code, "a retry gets no answer", &stuck);
        let fresh = Seen { last: vec![done()], ..well_for(code) };
        is_condemned(code, "a retry is not marked as a replay", &fresh);
        is_condemned(code, "not exactly one effect", &Seen { effects: Vec::new(), ..well_for(code) });
    }
}

#[test]
fn each_code_condemns_its_own_violations() {
    let condemned = [
        (Code::Nothing, "there was a record already", Seen { at_fault: (record("processing"), 0), ..well() }),
        (Code::Nothing, "something had run already", Seen { at_fault: (None, 1), ..well() }),
        (Code::FailClosed, "the client was not refused", well()),
        (Code::FailClosed, "something ran without a store", Seen { effects_then: 1, ..well() }),
        (Code::Owned, "somebody was not told to wait", Seen { during: vec![unavailable()], ..well() }),
        (Code::Owned, "the owner has no answer", Seen { first: dropped(), ..well() }),
        (Code::Owned, "a jump of the clock had it run again", Seen { beyond: vec![dropped()], ..well() }),
        (Code::NeverStarted, "it was started", Seen { effects_then: 1, ..well_for(Code::NeverStarted) }),
        (
            Code::NeverStarted,
            "unknown, and something ran",
            Seen { effects: vec![effect()], ..well_for(Code::NeverStarted) },
        ),
        (Code::NeverStartedFenced, "who was given up ran it all the same", well()),
        (
            Code::Ambiguous,
            "the client was answered before it was decided",
            Seen { first: dropped(), ..well() },
        ),
        (Code::Ambiguous, "the one who ran it was given up", Seen { during: vec![unknown()], ..well() }),
        (Code::Unknown, "told that nothing ran, by whom it ran", Seen { first: unavailable(), ..well() }),
        (Code::Unknown, "it was run again", Seen { during: vec![done()], ..well_for(Code::Unknown) }),
        (Code::Unknown, "done, and yet unknown", Seen { first: done(), ..well_for(Code::Unknown) }),
        (
            Code::Unknown,
            "a retry is not told that nobody knows",
            Seen { last: vec![replay()], ..well_for(Code::Unknown) },
        ),
        (
            Code::Unknown,
            "the record is Some(\"processing\"), not unknown",
            Seen { record: record("processing"), ..well_for(Code::Unknown) },
        ),
        (Code::Fenced, "nobody was told that nobody knows", well()),
        (Code::Fenced, "nobody decided meanwhile", well()),
        (
            Code::Fenced,
            "who was given up told its own result",
            Seen { first: done(), ..well_for(Code::Fenced) },
        ),
        (
            Code::UnknownFenced,
            "the record does not say what was decided",
            Seen { last: vec![replay()], ..well_for(Code::UnknownFenced) },
        ),
        (Code::Lost, "the key does not work", Seen { last: vec![unknown()], ..well_for(Code::Lost) }),
        (
            Code::Lost,
            "a provider could not have told that it is the same command",
            Seen { effects: vec![effect(), Effect { key: "another".to_owned(), ..effect() }], ..well() },
        ),
        (Code::NotRetained, "a retry was not told that it is gone", well()),
        (
            Code::NotRetained,
            "the first client did not get it",
            Seen { first: dropped(), ..well_for(Code::NotRetained) },
        ),
        (Code::Cached, "memory answered something else", Seen { after: vec![unknown()], ..well() }),
        (Code::Refused, "it was not refused", Seen { first: done(), ..well_for(Code::Refused) }),
        (Code::Refused, "it ran", Seen { effects: vec![effect()], ..well_for(Code::Refused) }),
        (Code::Refused, "it has a record", Seen { record: record("processing"), ..well_for(Code::Refused) }),
        (Code::Swept, "this code is not judged by what a gateway shows", well()),
    ];
    for (code, why, seen) in &condemned {
        is_condemned(*code, why, seen);
    }
}
