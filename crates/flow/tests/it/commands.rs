//! Single commands: duplicates, and every result of their work.

use std::time::Duration;

use semel_core::policy::StoreResponse;
use semel_core::{Decision, Transacted};

use crate::lab::{End, Gate, Lab, Saw, Step, both, command, command_with, pays, saw, stored};

both!(
    effect_record_response_and_messages_commit_together,
    a_retry_gets_the_same_answer_and_runs_nothing,
    one_of_fifty_concurrent_requests_runs,
    a_duplicate_in_another_process_waits_and_then_replays,
    an_impatient_duplicate_in_the_same_process_gets_wait,
    a_duplicate_in_another_process_is_not_run_while_the_first_runs,
    another_request_under_the_same_key_is_refused,
    a_final_failure_is_kept_and_its_writes_are_not,
    a_retryable_failure_stores_nothing_and_can_be_retried,
    an_error_is_a_retryable_failure,
    work_that_panics_leaves_nothing,
    work_continues_after_its_client_disconnects_and_is_replayed,
    a_message_of_a_kind_is_sent_once,
    a_large_response_is_not_kept_and_not_made_again,
    the_operation_decides_how_much_of_a_response_is_stored,
);

async fn effect_record_response_and_messages_commit_together(lab: impl Lab) {
    let work = pays().then(Step::Push("receipt.requested"));
    let answered = lab.transact(&command("key"), work).await;
    let Transacted::Executed { record, response, .. } = answered.outcome() else {
        panic!("it ran: {answered:?}")
    };
    let body = response.body.clone().expect("it has a body");
    assert_eq!(body, format!("answer of {}", record.operation_id));
    assert_eq!(lab.counts().await, (1, 2, 1));
    let found = lab.store().await.find(record.operation_id).await.expect("it reads").record;
    let found = found.expect("the record is there");
    assert_eq!((found.head, &found.result), (record.head, &record.result), "the record as it was told");
    assert_eq!(found.head.state.name().as_str(), "succeeded");
    assert_eq!(stored(&found), (201, body));
    let in_order = "SELECT count(*) FROM semel_outbox WHERE state = 'pending'
         AND (position, kind) IN (VALUES (0, 'payment.created'), (1, 'receipt.requested'))";
    assert_eq!(lab.number(in_order).await, 2, "messages keep their order");
}

async fn a_retry_gets_the_same_answer_and_runs_nothing(lab: impl Lab) {
    let Saw::Executed(status, body) = lab.see(&command("key"), pays()).await else { panic!("it runs") };
    let retry = lab.see(&command("key"), pays()).await;
    assert_eq!(retry, Saw::Replayed(status, body.clone()));
    assert_eq!(lab.second().await.see(&command("key"), pays()).await, Saw::Replayed(status, body));
    assert_eq!(lab.counts().await, (1, 1, 1));
}

async fn one_of_fifty_concurrent_requests_runs(lab: impl Lab) {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let lab = lab.clone();
        tasks.spawn(async move { lab.see(&command("key"), pays()).await });
    }
    let all = tasks.join_all().await;
    assert_eq!(all.iter().filter(|saw| saw.executed()).count(), 1, "{all:?}");
    assert_eq!(all.iter().filter(|saw| saw.replayed()).count(), 49, "{all:?}");
    assert_eq!(lab.counts().await, (1, 1, 1));
}

async fn a_duplicate_in_another_process_waits_and_then_replays(lab: impl Lab) {
    let gate = Gate::new();
    let first = {
        let (lab, work) = (lab.clone(), pays().then(Step::Wait(gate.clone())));
        tokio::spawn(async move { lab.see(&command("key"), work).await })
    };
    gate.begun().await;
    let second = {
        let lab = lab.second().await;
        tokio::spawn(async move { lab.see(&command("key"), pays()).await })
    };
    gate.open();
    let first = first.await.expect("it ends");
    let Saw::Executed(status, body) = first else { panic!("the first runs: {first:?}") };
    assert_eq!(second.await.expect("it ends"), Saw::Replayed(status, body));
    assert_eq!(lab.counts().await, (1, 1, 1));
}

async fn an_impatient_duplicate_in_the_same_process_gets_wait(lab: impl Lab) {
    let gate = Gate::new();
    let first = {
        let (lab, work) = (lab.clone(), pays().then(Step::Wait(gate.clone())));
        tokio::spawn(async move { lab.see(&command("key"), work).await })
    };
    gate.begun().await;
    let impatient = command_with("key", |policy| policy.wait = Duration::from_millis(10));
    assert_eq!(lab.see(&impatient, pays()).await, Saw::Decided(Decision::Wait));
    gate.open();
    assert!(first.await.expect("it ends").executed());
    assert!(lab.see(&impatient, pays()).await.replayed());
    assert_eq!(lab.counts().await, (1, 1, 1));
}

async fn a_duplicate_in_another_process_is_not_run_while_the_first_runs<L: Lab>(lab: L) {
    let gate = Gate::new();
    let first = {
        let (lab, work) = (lab.clone(), pays().then(Step::Wait(gate.clone())));
        tokio::spawn(async move { lab.see(&command("key"), work).await })
    };
    gate.begun().await;
    let impatient = command_with("key", |policy| policy.wait = Duration::from_millis(10));
    assert_eq!(lab.second().await.see(&impatient, pays()).await, L::HELD_ELSEWHERE);
    gate.open();
    assert!(first.await.expect("it ends").executed());
    assert_eq!(lab.counts().await, (1, 1, 1));
}

async fn another_request_under_the_same_key_is_refused(lab: impl Lab) {
    assert!(lab.see(&command("key"), pays()).await.executed());
    let mut other = command("key");
    other.fingerprint = semel_testkit::sample::fingerprint(r#"{"amount":2}"#);
    assert_eq!(lab.see(&other, pays()).await, Saw::Decided(Decision::Mismatch));
    assert_eq!(lab.counts().await, (1, 1, 1));
}

async fn a_final_failure_is_kept_and_its_writes_are_not(lab: impl Lab) {
    let first = lab.see(&command("key"), pays().ending(End::Final(402))).await;
    let Saw::Executed(402, body) = first else { panic!("it is the answer: {first:?}") };
    assert_eq!(lab.counts().await, (0, 0, 1), "only the record is there");
    assert_eq!(lab.see(&command("key"), pays()).await, Saw::Replayed(402, body));
    assert_eq!(lab.counts().await, (0, 0, 1), "nothing was run again");
    let found = lab.number("SELECT count(*) FROM semel_records WHERE state = 'failed_final'").await;
    assert_eq!(found, 1);
}

async fn a_retryable_failure_stores_nothing_and_can_be_retried(lab: impl Lab) {
    let failed = lab.see(&command("key"), pays().ending(End::Retryable(503))).await;
    assert_eq!(failed, Saw::RolledBack(503));
    assert_eq!(lab.counts().await, (0, 0, 0), "not even a record");
    assert!(lab.see(&command("key"), pays()).await.executed());
    assert_eq!(lab.counts().await, (1, 1, 1));
}

async fn an_error_is_a_retryable_failure(lab: impl Lab) {
    let broken = pays().then(Step::Sql("INSERT INTO nowhere VALUES (1)"));
    assert_eq!(lab.see(&command("key"), broken).await, Saw::RolledBack(500));
    assert_eq!(lab.counts().await, (0, 0, 0));
    assert!(lab.see(&command("key"), pays()).await.executed());
}

async fn work_that_panics_leaves_nothing(lab: impl Lab) {
    assert_eq!(lab.see(&command("key"), pays().ending(End::Panic)).await, Saw::RolledBack(500));
    assert_eq!(lab.counts().await, (0, 0, 0));
    assert!(lab.see(&command("key"), pays()).await.executed(), "the connection is as good as before");
    assert_eq!(lab.counts().await, (1, 1, 1));
}

async fn work_continues_after_its_client_disconnects_and_is_replayed(lab: impl Lab) {
    let gate = Gate::new();
    let client = {
        let (lab, work) = (lab.clone(), pays().then(Step::Wait(gate.clone())));
        tokio::spawn(async move { lab.see(&command("key"), work).await })
    };
    gate.begun().await;
    client.abort();
    assert!(client.await.is_err_and(|error| error.is_cancelled()), "the client has left");
    gate.open();
    let retry = lab.see(&command("key"), pays()).await;
    assert!(retry.replayed(), "the retry waited for the end, and got it: {retry:?}");
    assert_eq!(lab.counts().await, (1, 1, 1));
}

async fn a_message_of_a_kind_is_sent_once(lab: impl Lab) {
    let twice = pays().then(Step::Push("payment.created"));
    assert_eq!(lab.see(&command("key"), twice).await, Saw::RolledBack(500));
    assert_eq!(lab.see(&command("key"), pays().then(Step::Push("no spaces"))).await, Saw::RolledBack(500));
    assert_eq!(lab.counts().await, (0, 0, 0));
}

async fn a_large_response_is_not_kept_and_not_made_again(lab: impl Lab) {
    let small = command_with("key", |policy| policy.max_stored_response = 4);
    let first = lab.transact(&small, pays()).await;
    assert!(saw(&first).executed(), "the first gets it: {first:?}");
    let retry = lab.transact(&small, pays()).await;
    let Transacted::Decided { decision: Decision::Replay, record: Some(record), .. } = retry.outcome() else {
        panic!("it is not run again: {retry:?}")
    };
    let result = record.result.as_ref().expect("it is settled");
    assert_eq!(result.response.decode().expect("it can be read").body, None);
    assert_eq!(lab.counts().await, (1, 1, 1));
}

async fn the_operation_decides_how_much_of_a_response_is_stored(lab: impl Lab) {
    for (number, stored) in [StoreResponse::Headers, StoreResponse::Reference].into_iter().enumerate() {
        let wanted = command_with(&format!("key-{number}"), |policy| policy.store_response = stored);
        let first = lab.transact(&wanted, pays()).await;
        let Transacted::Executed { response, .. } = first.outcome() else { panic!("it ran: {first:?}") };
        assert!(response.body.as_ref().is_some_and(|body| !body.is_empty()), "the first gets all of it");
        let retry = lab.transact(&wanted, pays()).await;
        let Transacted::Decided { decision: Decision::Replay, record: Some(record), .. } = retry.outcome()
        else {
            panic!("it is not run again: {retry:?}")
        };
        let result = record.result.as_ref().expect("it is settled");
        assert_eq!((result.status, result.resource.as_deref()), (201, Some("/payments/7")));
        assert_eq!(result.response.decode().expect("it can be read").body, None);
        assert!(!result.response.bytes.windows(9).any(|window| window == b"answer of"));
    }
}
