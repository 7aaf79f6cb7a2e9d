//! Tests of the judge: for every code, it accepts correct observations and finds the wrong ones.

use bytes::Bytes;

use super::*;
use crate::kept::{Row, Settled};

const ID: &str = "0191";
const EVENT: &str = "01-91:payment.made";

fn told(status: u16, code: Option<&str>, body: &'static str) -> Told {
    Told::Answer(Box::new(Answer {
        status,
        code: code.map(str::to_owned),
        operation_id: None,
        location: None,
        replayed: false,
        retry_after: code.is_some(),
        status_url: false,
        body: Bytes::from_static(body.as_bytes()),
    }))
}

fn done() -> Told {
    told(201, None, r#"{"effect":"e1"}"#)
}

fn replay() -> Told {
    let Told::Answer(mut answer) = done() else { unreachable!("it is an answer") };
    answer.replayed = true;
    Told::Answer(answer)
}

fn busy() -> Told {
    told(409, Some("IDEMPOTENCY_REQUEST_IN_PROGRESS"), "")
}

fn unavailable() -> Told {
    told(503, Some("IDEMPOTENCY_STORE_UNAVAILABLE"), "")
}

fn in_doubt() -> Told {
    told(500, Some("IDEMPOTENCY_OUTCOME_UNKNOWN"), "")
}

fn rolled_back() -> Told {
    told(500, Some("COMMAND_ROLLED_BACK"), "")
}

/// Content with a committed command, with its message in this state.
fn kept(state: &str, epoch: u64) -> Kept {
    Kept {
        rows: vec![Row { operation_id: ID.to_owned(), effect: "e1".to_owned() }],
        records: vec![Settled { operation_id: ID.to_owned(), state: "succeeded".to_owned() }],
        messages: vec![Message {
            event_id: EVENT.to_owned(),
            state: state.to_owned(),
            attempts: epoch,
            epoch,
            reference: (state == "delivered").then(|| reference(EVENT)),
        }],
    }
}

fn delivery(event_id: &str, key: &str) -> Delivery {
    Delivery {
        event_id: event_id.to_owned(),
        key: format!("\"{event_id}\""),
        body: format!(r#"{{"effect":"e1","key":"{key}"}}"#).into(),
        is_taken: true,
    }
}

/// Observation of a command that had no effect at first, and that a retry executed.
fn nothing_then_done() -> Seen {
    Seen {
        committed: Some(false),
        first: unavailable(),
        after: vec![done()],
        last: vec![replay(), replay()],
        end: kept("delivered", 1),
        deliveries: vec![delivery(EVENT, "k")],
        ..Seen::default()
    }
}

/// Observation of a command that its first executor completed.
fn done_at_first() -> Seen {
    Seen {
        committed: Some(true),
        first: done(),
        then: kept("pending", 0),
        after: vec![replay()],
        ..nothing_then_done()
    }
}

fn fenced() -> Seen {
    Seen { first: replay(), during: vec![busy(), done()], then: kept("pending", 0), ..nothing_then_done() }
}

fn owned() -> Seen {
    Seen { during: vec![busy(), unavailable()], ..done_at_first() }
}

/// Observation of a message that came twice, since its first delivery was not written down.
fn redelivered() -> Seen {
    Seen {
        about_message: true,
        at_fault: kept("pending", 1),
        received: 1,
        first: done(),
        then: kept("pending", 1),
        last: vec![replay(), replay()],
        end: kept("delivered", 2),
        deliveries: vec![delivery(EVENT, "k"), delivery(EVENT, "k")],
        sent_again: Some(true),
        ..Seen::default()
    }
}

fn redelivered_fenced() -> Seen {
    Seen { then: kept("delivered", 2), won: kept("delivered", 2).messages.pop(), ..redelivered() }
}

fn accepted_once() -> Seen {
    Seen {
        end: kept("delivered", 1),
        deliveries: vec![delivery(EVENT, "k")],
        sent_again: None,
        ..redelivered()
    }
}

fn quarantined() -> Seen {
    let mut end = kept("dead", 3);
    let other = kept("delivered", 1);
    end.rows.extend(other.rows.into_iter().map(|row| Row { operation_id: "0192".to_owned(), ..row }));
    let renamed = |record: Settled| Settled { operation_id: "0192".to_owned(), ..record };
    end.records.extend(other.records.into_iter().map(renamed));
    let renamed = |message: Message| Message { event_id: "0192:payment.made".to_owned(), ..message };
    end.messages.extend(other.messages.into_iter().map(renamed));
    let refused = || Delivery { is_taken: false, ..delivery(EVENT, "bad") };
    Seen {
        about_message: true,
        first: done(),
        then: end.clone(),
        last: vec![replay()],
        end,
        deliveries: vec![refused(), delivery("0192:payment.made", "good"), refused(), refused()],
        poison: Some(Poison { key: "bad".to_owned(), tries: 3, other: done() }),
        ..Seen::default()
    }
}

fn lost() -> Seen {
    Seen { committed: Some(true), first: done(), ..nothing_then_done() }
}

/// Returns the violations after a change to a correct observation.
fn found(code: Code, mut seen: Seen, change: impl Fn(&mut Seen)) -> String {
    assert_eq!(judge(code, &seen), Vec::<String>::new(), "as it was, nothing is wrong");
    change(&mut seen);
    judge(code, &seen).join("; ")
}

#[test]
fn partial_or_uncommitted_content_violates_atomic() {
    let code = Code::Atomic;
    let wrong = found(code, done_at_first(), |seen| seen.then = Kept::default());
    assert!(wrong.contains("it is not what had been committed"), "{wrong}");
    let wrong = found(code, nothing_then_done(), |seen| seen.then = kept("pending", 0));
    assert!(wrong.contains("told that nothing happened, and it had"), "{wrong}");
    for part in [
        |kept: &mut Kept| kept.rows.clear(),
        |kept: &mut Kept| kept.records.clear(),
        |kept: &mut Kept| kept.messages.clear(),
        |kept: &mut Kept| kept.records[0].state = "processing".to_owned(),
    ] {
        let wrong = found(code, done_at_first(), |seen| part(&mut seen.then));
        assert!(wrong.contains("then there is a part of a command"), "{wrong}");
        let wrong = found(code, done_at_first(), |seen| part(&mut seen.end));
        assert!(wrong.contains("in the end there is a part of a command"), "{wrong}");
    }
    let wrong = found(code, done_at_first(), |seen| {
        seen.end.rows.push(Row { operation_id: ID.to_owned(), effect: "e2".to_owned() });
    });
    assert!(wrong.contains(TOO_MANY), "{wrong}");
}

#[test]
fn final_responses_and_messages_must_match_the_database() {
    let code = Code::Atomic;
    let other = || told(201, None, r#"{"effect":"e2"}"#);
    let wrong = found(code, done_at_first(), |seen| seen.first = other());
    assert!(wrong.contains("an answer that nothing stands for"), "{wrong}");
    assert!(wrong.contains("two clients got two answers"), "{wrong}");
    let wrong = found(code, done_at_first(), |seen| seen.last.clear());
    assert!(wrong.contains("a retry gets no answer"), "{wrong}");
    let wrong = found(code, done_at_first(), |seen| seen.last = vec![done()]);
    assert!(wrong.contains("not marked as a replay"), "{wrong}");
    let wrong = found(code, done_at_first(), |seen| seen.after.push(told(418, None, "")));
    assert!(wrong.contains("the contract does not have"), "{wrong}");
    let wrong = found(code, done_at_first(), |seen| seen.deliveries.push(delivery("0199:payment.made", "k")));
    assert!(wrong.contains("a message came of which nobody knows"), "{wrong}");
    let wrong = found(code, done_at_first(), |seen| seen.deliveries.clear());
    assert!(wrong.contains("marked as delivered, and never came"), "{wrong}");
    let wrong = found(code, done_at_first(), |seen| seen.end = kept("pending", 1));
    assert!(wrong.contains("a message was not delivered"), "{wrong}");
}

#[test]
fn any_content_or_success_violates_nothing() {
    let code = Code::Nothing;
    let wrong = found(code, nothing_then_done(), |seen| seen.then = kept("pending", 0));
    assert!(wrong.contains("something happened"), "{wrong}");
    let wrong = found(code, nothing_then_done(), |seen| seen.at_fault = kept("pending", 0));
    assert!(wrong.contains("something was there already"), "{wrong}");
    let wrong = found(code, nothing_then_done(), |seen| seen.first = done());
    assert!(wrong.contains("done, and yet nothing happened"), "{wrong}");
    let wrong = found(code, nothing_then_done(), |seen| seen.first = in_doubt());
    assert!(wrong.contains("not told that nothing happened"), "{wrong}");
    let doubted = Seen { first: in_doubt(), committing: true, ..nothing_then_done() };
    assert_eq!(judge(code, &doubted), Vec::<String>::new(), "a COMMIT that was sent is in doubt");
    let rolled_back = Seen { first: rolled_back(), ..nothing_then_done() };
    assert_eq!(judge(code, &rolled_back), Vec::<String>::new());
}

#[test]
fn response_before_decision_violates_ambiguous() {
    for seen in [done_at_first(), nothing_then_done()] {
        let wrong = found(Code::Ambiguous, seen, |seen| seen.first = in_doubt());
        assert!(wrong.contains("answered before it was decided"), "{wrong}");
    }
    let wrong = found(Code::Ambiguous, done_at_first(), |seen| seen.then = Kept::default());
    assert!(wrong.contains("told that it is done, and nothing is there"), "{wrong}");
}

#[test]
fn own_result_of_a_fenced_executor_violates_fenced() {
    for own in [done(), rolled_back(), unavailable()] {
        let wrong = found(Code::Fenced, fenced(), |seen| seen.first = own.clone());
        assert!(wrong.contains("told its own result"), "{wrong}");
    }
    let wrong = found(Code::Fenced, fenced(), |seen| seen.during = vec![busy()]);
    assert!(wrong.contains("nobody took it over"), "{wrong}");
}

#[test]
fn second_execution_violates_done() {
    let left = || Seen { first: Told::Left, ..done_at_first() };
    let wrong = found(Code::Done, left(), |seen| seen.after = vec![done()]);
    assert!(wrong.contains("it was done again"), "{wrong}");
    let wrong = found(Code::Done, left(), |seen| seen.during = vec![done()]);
    assert!(wrong.contains("done by somebody else"), "{wrong}");
}

#[test]
fn duplicate_that_does_not_wait_violates_owned() {
    let wrong = found(Code::Owned, owned(), |seen| seen.during.push(done()));
    assert!(wrong.contains("somebody was not told to wait"), "{wrong}");
    let wrong = found(Code::Owned, owned(), |seen| seen.during.clear());
    assert!(wrong.contains("somebody was not told to wait"), "{wrong}");
    let wrong = found(Code::Owned, owned(), |seen| seen.first = replay());
    assert!(wrong.contains("the owner has no answer"), "{wrong}");
    let wrong = found(Code::Owned, owned(), |seen| {
        let Told::Answer(answer) = &mut seen.during[0] else { unreachable!("it is an answer") };
        answer.retry_after = false;
    });
    assert!(wrong.contains("not when"), "{wrong}");
}

#[test]
fn partial_loss_or_another_key_violates_lost() {
    let twice = |key: &str| {
        let mut seen = lost();
        seen.deliveries.push(delivery("0190:payment.made", key));
        seen
    };
    let wrong = found(Code::Lost, twice("k"), |seen| *seen = twice("another"));
    assert!(wrong.contains("could not have told that it is the same command"), "{wrong}");
    let wrong =
        found(Code::Lost, twice("k"), |seen| seen.deliveries.push(delivery("0189:payment.made", "k")));
    assert!(wrong.contains(TOO_MANY), "{wrong}");
    let wrong = found(Code::Lost, lost(), |seen| seen.then = kept("pending", 0));
    assert!(wrong.contains("not everything is lost"), "{wrong}");
    let wrong = found(Code::Lost, lost(), |seen| seen.first = unavailable());
    assert!(wrong.contains("nothing was acknowledged"), "{wrong}");
    let wrong = found(Code::Lost, lost(), |seen| seen.end.records.clear());
    assert!(wrong.contains("a part of a command"), "{wrong}");
}

#[test]
fn message_that_vanishes_or_changes_violates_redelivered() {
    let code = Code::Redelivered;
    let wrong = found(code, redelivered(), |seen| seen.then = Kept::default());
    assert!(wrong.contains("it was away meanwhile"), "{wrong}");
    let wrong = found(code, redelivered(), |seen| {
        "01-91:payment.again".clone_into(&mut seen.at_fault.messages[0].event_id);
    });
    assert!(wrong.contains("another name than at the fault"), "{wrong}");
    let wrong = found(code, redelivered(), |seen| seen.deliveries[1].body = Bytes::from_static(b"{}"));
    assert!(wrong.contains("came again, and was another"), "{wrong}");
    let wrong = found(code, redelivered(), |seen| seen.deliveries[1].key = "\"another\"".to_owned());
    assert!(wrong.contains("its key is not its event id"), "{wrong}");
    let wrong = found(code, redelivered(), |seen| drop(seen.deliveries.pop()));
    assert!(wrong.contains("it was not sent again"), "{wrong}");
    let wrong = found(code, redelivered(), |seen| seen.sent_again = Some(false));
    assert!(wrong.contains("although it was known to be there"), "{wrong}");
    let wrong = found(code, redelivered(), |seen| seen.end = kept("dead", 2));
    assert!(wrong.contains("a message was not delivered"), "{wrong}");
    let wrong = found(code, redelivered(), |seen| seen.end.messages[0].reference = None);
    assert!(wrong.contains("what the receiver calls a message is not known"), "{wrong}");
}

#[test]
fn write_of_a_fenced_worker_violates_redelivered_fenced() {
    let code = Code::RedeliveredFenced;
    let wrong = found(code, redelivered_fenced(), |seen| seen.end = kept("delivered", 3));
    assert!(wrong.contains("who was given up changed the message"), "{wrong}");
    let wrong = found(code, redelivered_fenced(), |seen| seen.won = None);
    assert!(wrong.contains("who was given up changed the message"), "{wrong}");
}

#[test]
fn second_delivery_after_lost_answer_violates_ambiguous() {
    let again = |seen: &mut Seen| seen.deliveries.push(delivery(EVENT, "k"));
    let wrong = found(Code::Ambiguous, accepted_once(), again);
    assert!(wrong.contains("it was sent again"), "{wrong}");
}

#[test]
fn quarantine_condemns_wrong_states_and_attempts() {
    let code = Code::Quarantined;
    let wrong = found(code, quarantined(), |seen| seen.end.messages[0].state = "delivered".to_owned());
    assert!(wrong.contains("it was not given up"), "{wrong}");
    let wrong = found(code, quarantined(), |seen| seen.end.messages[1].state = "pending".to_owned());
    assert!(wrong.contains("another message did not move"), "{wrong}");
    let wrong = found(code, quarantined(), |seen| drop(seen.deliveries.pop()));
    assert!(wrong.contains("not tried as often"), "{wrong}");
    let wrong = found(code, quarantined(), |seen| seen.end.messages[0].attempts = 2);
    assert!(wrong.contains("its tries were not counted"), "{wrong}");
    let wrong = found(code, quarantined(), |seen| seen.poison = None);
    assert!(wrong.contains("nothing was refused"), "{wrong}");
}

#[test]
fn code_of_other_steps_is_condemned() {
    assert!(!judge(Code::Swept, &nothing_then_done()).is_empty());
    assert!(!judge(Code::Swept, &redelivered()).is_empty());
}

#[test]
fn violation_in_one_scene_is_reported_among_others() {
    let mut all = Found::default();
    all.judge("one", Code::Atomic, &done_at_first());
    all.judge("other", Code::Atomic, &Seen { then: Kept::default(), ..done_at_first() });
    assert_eq!(all.seen.len(), 2);
    assert!(all.violated.len() == 1 && all.violated[0].starts_with("other: "), "{:?}", all.violated);
}
