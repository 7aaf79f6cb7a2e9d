//! Failures of the store: nothing runs without a claim, and no client gets an unstored answer.

use std::time::Duration;

use semel_core::policy::OnLeaseExpired;
use semel_core::transition::Proof;
use semel_core::{Change, Decision, Filter, Policy, Records, Store};
use semel_http::Operation;
use semel_testkit::faulty::{Call, Fault};

use crate::lab::{Lab, Reply, pay, problem};

#[tokio::test]
async fn without_a_store_nothing_runs() {
    let lab = Lab::new().await;
    lab.store.always(Fault::Unavailable);
    let reply = lab.send(pay("{}")).await;
    assert_eq!(reply.problem(), problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE"));
    assert!(reply.header("retry-after").is_some());
    assert_eq!(lab.count(), 0);
    lab.store.heal();
    assert_eq!(lab.send(pay("{}")).await.status, 201, "it recovers by itself");
}

#[tokio::test]
async fn replays_in_memory_are_answered_without_a_store() {
    let lab = Lab::new().await;
    let first = lab.send(pay("{}")).await;
    lab.store.always(Fault::Unavailable);
    let again = lab.send(pay("{}")).await;
    assert!(again.replayed());
    assert_eq!(again.body, first.body);
    assert_eq!(lab.send(pay("[]")).await.problem().0, 422, "a mismatch is known as well");
    assert_eq!(lab.send(pay("{}").set("x-user", "bob")).await.problem().0, 503);
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn an_unconfirmed_claim_gets_503_and_its_key_is_freed() {
    for fault in [Fault::AnswerLost, Fault::Hangs] {
        let lab = Lab::with(|builder| builder.store_timeout(Duration::from_millis(200))).await;
        lab.store.script(move |call| (call == Call::Claim).then_some(fault));
        let reply = lab.send(pay("{}")).await;
        assert_eq!(reply.problem(), problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE"));
        assert_eq!(lab.count(), 0);
        lab.store.heal();
        // The claim had arrived. It is released in the background, so the same key runs, and is never
        // unknown.
        let again = loop {
            let again = lab.send(pay("{}")).await;
            if again.status != 409 {
                break again;
            }
            assert_eq!(again.problem(), problem(409, "IDEMPOTENCY_REQUEST_IN_PROGRESS"));
        };
        assert_eq!((again.status.as_u16(), lab.count()), (201, 1), "{fault:?}");
    }
}

#[tokio::test]
async fn a_resent_claim_found_after_its_lease_gets_503_and_frees_the_key() {
    let lab = Lab::new().await;
    let sqlite = lab.sqlite.clone();
    lab.store.resend_claim(move || sqlite.shift_clock(Duration::from_secs(31)));
    let reply = lab.send(pay("{}")).await;
    assert_eq!(reply.problem(), problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE"), "nothing ran, and it says so");
    assert_eq!(lab.count(), 0);
    let again = lab.send(pay("{}")).await;
    assert_eq!((again.status.as_u16(), lab.count()), (201, 1), "no unknown remains where nothing ran");
}

/// Checks that the command ran once, for another process, and that the late request got its response.
fn is_told_of(ran: &Reply, late: &Reply, lab: &Lab) {
    assert_eq!((ran.status.as_u16(), lab.count()), (201, 1));
    assert!(late.replayed(), "it ran, and nobody says that it did not: {late:?}");
    assert_eq!((late.status, &late.body), (ran.status, &ran.body));
}

#[tokio::test]
async fn a_late_release_of_a_claim_replays_the_other_execution() {
    let lab = Lab::new().await;
    let sqlite = lab.sqlite.clone();
    lab.store.resend_claim(move || sqlite.shift_clock(Duration::from_secs(31)));
    let gate = lab.hold_calls(&[Call::Apply]);
    let late = tokio::spawn(pay("{}").to(lab.address));
    gate.arrived().await;
    // Its release is on the way. Meanwhile the command is found not executed, and another process runs it.
    lab.sqlite.shift_clock(Duration::from_secs(60));
    let record = lab.sqlite.list(&Filter::default()).await.expect("the store lists").records.remove(0);
    let verdict = Change::resolve_not_executed(Proof::Quarantine);
    let freed = lab.sqlite.apply(&record.id, &verdict).await.expect("the store answers");
    assert_eq!(freed.decision, Decision::Applied);
    let (second, _) = lab.second(Policy::default()).await;
    let ran = pay("{}").to(second).await;
    gate.open();
    is_told_of(&ran, &late.await.expect("it is answered"), &lab);
}

#[tokio::test]
async fn a_claim_without_time_to_begin_replays_the_other_execution() {
    let policy = Policy {
        lease: Duration::from_millis(100),
        on_lease_expired: OnLeaseExpired::Rerun,
        ..Policy::default()
    };
    let lab = Lab::with(|builder| builder.defaults(policy.clone())).await;
    let gate = lab.hold_calls(&[Call::Claim, Call::Apply]);
    let late = tokio::spawn(pay("{}").to(lab.address));
    gate.arrived().await;
    // The claim takes as long as the lease that it asks for.
    tokio::time::sleep(policy.lease).await;
    gate.let_one_go();
    gate.arrived().await;
    // It is about to be given back. Meanwhile its lease ends in the store as well, and another process runs the command.
    let lease = policy.lease;
    let (second, sqlite) = lab.second(policy).await;
    sqlite.shift_clock(lease);
    let ran = pay("{}").to(second).await;
    gate.open();
    is_told_of(&ran, &late.await.expect("it is answered"), &lab);
}

#[tokio::test]
async fn a_resent_claim_found_after_its_lease_frees_the_business_reference() {
    let lab = Lab::with(|builder| {
        let orders = Operation::new("orders", "POST /payments").business_reference("/order");
        builder.operation(orders.with(|policy| policy.on_lease_expired = OnLeaseExpired::Rerun))
    })
    .await;
    let sqlite = lab.sqlite.clone();
    lab.store.resend_claim(move || sqlite.shift_clock(Duration::from_secs(31)));
    let order = || pay(r#"{"order":7}"#);
    let reply = lab.send(order()).await;
    assert_eq!(reply.problem(), problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE"), "nothing ran, and it says so");
    let other = lab.send(order().set("idempotency-key", "another-0123456789")).await;
    assert_eq!((other.status.as_u16(), lab.count()), (201, 1), "the order is free for another key");
}

/// A claim that never arrives is looked for until it cannot arrive any more: its key belongs to another request.
#[tokio::test]
async fn a_shutdown_does_not_wait_for_a_claim_whose_key_has_moved_on() {
    let lab = Lab::with(|builder| builder.store_timeout(Duration::from_millis(200))).await;
    lab.store.script(|call| (call == Call::Claim).then_some(Fault::HangsUndone));
    assert_eq!(lab.send(pay("{}")).await.problem(), problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE"));
    lab.store.heal();
    assert_eq!(lab.send(pay("{}")).await.status, 201);
    // Shorter than the time after which a shutdown gives up a claim that did not arrive.
    let ended = lab.layer.shutdown(Duration::from_secs(4)).await;
    assert!(ended.drained, "its release is over: {ended:?}");
}

#[tokio::test]
async fn a_shutdown_gives_up_a_claim_that_did_not_arrive() {
    let lab = Lab::with(|builder| builder.store_timeout(Duration::from_millis(200))).await;
    lab.store.script(|call| (call == Call::Claim).then_some(Fault::HangsUndone));
    assert_eq!(lab.send(pay("{}")).await.problem(), problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE"));
    lab.store.heal();
    let ended = lab.layer.shutdown(Duration::from_secs(60)).await;
    assert!(ended.drained, "{ended:?}");
}

#[tokio::test]
async fn a_completion_whose_answer_was_lost_is_resent_and_replayed() {
    let lab = Lab::new().await;
    let mut lost = false;
    lab.store.script(move |call| {
        let lose = call == Call::Apply && !std::mem::replace(&mut lost, true);
        lose.then_some(Fault::AnswerLost)
    });
    let reply = lab.send(pay("{}")).await;
    assert_eq!(reply.status, 201, "sent again with the same token, it is recognised");
    assert!(lab.send(pay("{}")).await.replayed());
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn a_failure_after_the_effect_but_before_the_response_was_stored_is_unknown() {
    let lab = Lab::policy(|policy| policy.wait = Duration::ZERO).await;
    lab.store.script(|call| (call == Call::Apply).then_some(Fault::Unavailable));
    let reply = lab.send(pay("{}")).await;
    assert_eq!(reply.problem(), problem(500, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    assert_eq!((reply.header("idempotency-retry"), reply.header("retry-after")), (Some("poll"), Some("1")));
    assert_eq!(lab.count(), 1);
    let again = lab.send(pay("{}")).await;
    assert_eq!(again.problem(), problem(409, "IDEMPOTENCY_REQUEST_IN_PROGRESS"), "until its lease ends");
    lab.sqlite.shift_clock(Duration::from_secs(31));
    let again = lab.send(pay("{}")).await;
    assert_eq!(again.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    // The executor retries its write; once the store accepts it, retries get the response.
    lab.store.heal();
    let replay = loop {
        let reply = lab.send(pay("{}")).await;
        if reply.status != 409 {
            break reply;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(replay.replayed());
    assert_eq!(&replay.body[..], b"1:{}");
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn a_response_that_the_store_refuses_is_settled_without_it() {
    let lab = Lab::new().await;
    let mut refused = false;
    lab.store.script(move |call| {
        let refuse = call == Call::Apply && !std::mem::replace(&mut refused, true);
        refuse.then_some(Fault::Rejected)
    });
    let first = lab.send(pay("{}")).await;
    assert_eq!((first.status.as_u16(), &first.body[..]), (201, &b"1:{}"[..]));
    let again = lab.send(pay("{}")).await;
    assert_eq!(again.json()["code"], "IDEMPOTENCY_RESPONSE_NOT_RETAINED");
    assert_eq!((again.status.as_u16(), lab.count()), (201, 1));
}

#[tokio::test]
async fn a_stored_response_that_cannot_be_read_is_not_run_again() {
    let lab = Lab::new().await;
    lab.send(pay("{}")).await;
    lab.damage("UPDATE semel_records SET encryption_key_id = 'a key that is gone'");
    let (second, _) = lab.second(semel_core::Policy::default()).await;
    let reply = pay("{}").to(second).await;
    assert_eq!(reply.problem(), problem(500, "IDEMPOTENCY_RESPONSE_UNREADABLE"));
    lab.damage("UPDATE semel_records SET fingerprint_version = 9");
    let reply = pay("{}").to(second).await;
    assert_eq!(
        reply.problem(),
        problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE"),
        "a newer fingerprint is not guessed at"
    );
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn a_response_refused_by_a_store_that_then_goes_away_is_settled_later() {
    let lab = Lab::policy(|policy| policy.wait = Duration::ZERO).await;
    let mut calls = 0;
    lab.store.script(move |call| {
        calls += usize::from(call == Call::Apply);
        match (call, calls) {
            (Call::Apply, 1) => Some(Fault::Rejected),
            (Call::Apply, 2..=4) => Some(Fault::Unavailable),
            _ => None,
        }
    });
    assert_eq!(lab.send(pay("{}")).await.problem(), problem(500, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    let again = loop {
        let reply = lab.send(pay("{}")).await;
        if reply.status != 409 {
            break reply;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(again.json()["code"], "IDEMPOTENCY_RESPONSE_NOT_RETAINED");
    assert_eq!((again.status.as_u16(), lab.count()), (201, 1));
}

#[tokio::test]
async fn a_waiter_survives_a_store_outage_and_gets_the_replay() {
    let lab = Lab::policy(|_| {}).await;
    let policy = semel_core::Policy { wait: Duration::from_millis(300), ..semel_core::Policy::default() };
    let (second, _) = lab.second(policy).await;
    let first = tokio::spawn(pay("{}").doing("hold").to(second));
    lab.begun().await;
    let (asked, mut heard) = tokio::sync::mpsc::unbounded_channel();
    lab.store.script(move |call| {
        let is_question = call == Call::Other;
        if is_question {
            let _ = asked.send(());
        }
        is_question.then_some(Fault::Unavailable)
    });
    let waiter = tokio::spawn(pay("{}").to(lab.address));
    heard.recv().await.expect("the waiter asks the store, which is away");
    lab.store.heal();
    lab.open_gate();
    assert_eq!(first.await.expect("it is answered").status, 201);
    let waiter = waiter.await.expect("it is answered");
    assert!(waiter.replayed(), "{waiter:?}");
}
