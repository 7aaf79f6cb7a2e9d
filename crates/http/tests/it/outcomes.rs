//! Outcomes of commands by the handler's behaviour.

use std::time::Duration;

use semel_core::policy::OnServerError;
use semel_core::{Change, Policy, Records, Store, Upkeep};

use semel_testkit::faulty::{Call, Fault};

use crate::lab::{Lab, pay, problem};

#[tokio::test]
async fn a_failure_before_the_effect_frees_the_key() {
    let lab = Lab::new().await;
    let reply = lab.send(pay("{}").doing("not-executed")).await;
    assert_eq!(
        (reply.status.as_u16(), &reply.body[..]),
        (503, &b"nothing ran"[..]),
        "as the handler answered"
    );
    assert_eq!(lab.state().await, "failed_retryable");
    let again = lab.send(pay("{}")).await;
    assert_eq!((again.status.as_u16(), again.header("x-attempt")), (201, Some("2")));
    assert_eq!(again.header("idempotency-operation-id"), reply.header("idempotency-operation-id"));
    assert!(lab.send(pay("{}")).await.replayed());
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn a_final_failure_is_replayed() {
    let lab = Lab::new().await;
    let first = lab.send(pay("{}").doing("status-402")).await;
    let again = lab.send(pay("{}")).await;
    assert_eq!((again.status.as_u16(), &again.body), (402, &first.body));
    assert!(again.replayed());
    assert_eq!((lab.count(), lab.state().await.as_str()), (1, "failed_final"));
}

#[tokio::test]
async fn a_server_error_follows_the_policy() {
    for (choice, state, retry) in [
        (OnServerError::Unknown, "unknown", 409),
        (OnServerError::Replay, "failed_final", 500),
        (OnServerError::Retry, "failed_retryable", 201),
    ] {
        // RFC 9110, section 15: a status beyond 599 is treated as a server error.
        for status in [500, 600, 999] {
            let lab = Lab::policy(|policy| policy.on_server_error = choice).await;
            let first = lab.send(pay("{}").doing(&format!("status-{status}"))).await;
            assert_eq!((first.status.as_u16(), &first.body[..]), (status, &b"1:{}"[..]), "as answered");
            assert_eq!(lab.state().await, state, "{status}");
            let retry = if retry == 500 { status } else { retry };
            assert_eq!(lab.send(pay("{}")).await.status, retry, "{status}");
        }
    }
}

#[tokio::test]
async fn a_busy_answer_frees_the_key() {
    for status in ["status-425", "status-429"] {
        let lab = Lab::new().await;
        lab.send(pay("{}").doing(status)).await;
        assert_eq!(lab.state().await, "failed_retryable", "{status}");
    }
}

#[tokio::test]
async fn a_declared_outcome_decides_over_the_status_and_is_not_forwarded() {
    let lab = Lab::new().await;
    let first = lab.send(pay("{}").doing("status-500 outcome-final")).await;
    assert_eq!(first.header("semel-outcome"), None, "that is between the handler and us");
    assert!(lab.send(pay("{}")).await.replayed());
    let lab = Lab::new().await;
    assert_eq!(lab.send(pay("{}").doing("status-200 outcome-unknown")).await.status, 200);
    assert_eq!(lab.send(pay("{}")).await.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
}

#[tokio::test]
async fn a_handler_that_panics_leaves_an_unknown() {
    for what in ["panic-before", "panic-after"] {
        let lab = Lab::new().await;
        let reply = lab.send(pay("{}").doing(what)).await;
        assert_eq!(reply.problem(), problem(500, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
        let again = lab.send(pay("{}")).await;
        assert_eq!(again.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
        let id = again.json()["operationId"].as_str().expect("it names the operation").to_owned();
        assert_eq!(again.json()["operationUrl"], format!("/.well-known/semel/operations/{id}"));
        assert!(lab.count() <= 1);
    }
}

#[tokio::test]
async fn a_panic_after_a_typed_not_executed_frees_the_key() {
    let lab = Lab::new().await;
    let reply = lab.send(pay("{}").doing("not-executed panicking-body")).await;
    assert_eq!(reply.problem(), problem(502, "UPSTREAM_UNREACHABLE"));
    assert_eq!(lab.state().await, "failed_retryable");
    assert_eq!(lab.send(pay("{}")).await.status, 201);
}

#[tokio::test]
async fn a_body_that_breaks_off_leaves_an_unknown() {
    for (what, status) in [("broken-body", 502), ("panicking-body", 500)] {
        let lab = Lab::new().await;
        let reply = lab.send(pay("{}").doing(what)).await;
        assert_eq!(reply.problem(), problem(status, "IDEMPOTENCY_OUTCOME_UNKNOWN"), "{what}");
        assert_eq!(lab.state().await, "unknown");
        assert_eq!(lab.send(pay("{}")).await.status, 409);
    }
}

#[tokio::test]
async fn a_handler_that_takes_too_long_leaves_an_unknown() {
    let lab = Lab::policy(|policy| policy.timeout = Duration::from_millis(50)).await;
    let reply = lab.send(pay("{}").doing("hold")).await;
    assert_eq!(reply.problem(), problem(504, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    assert_eq!(lab.send(pay("{}")).await.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn a_lease_is_renewed_while_the_handler_runs() {
    let lab = Lab::policy(|policy| {
        policy.lease = Duration::from_millis(300);
        policy.wait = Duration::ZERO;
    })
    .await;
    let renewals = lab.count_renewals();
    let first = tokio::spawn(pay("{}").doing("hold").to(lab.address));
    // Six renewals at a third of the lease each: two leases have passed.
    let _ = renewals.acquire_many(6).await.expect("it is never closed");
    let duplicate = lab.send(pay("{}")).await;
    assert_eq!(duplicate.problem(), problem(409, "IDEMPOTENCY_REQUEST_IN_PROGRESS"));
    lab.open_gate();
    assert_eq!(first.await.expect("it is answered").status, 201);
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn a_response_that_ends_with_its_connection_reaches_the_first_caller_only() {
    let lab = Lab::new().await;
    let first = lab.send(pay("{}").doing("close-delimited")).await;
    assert_eq!(
        (first.status.as_u16(), &first.body[..]),
        (201, &b"1:{}"[..]),
        "nobody knows that it is whole"
    );
    let again = lab.send(pay("{}")).await;
    assert_eq!(again.problem(), problem(201, "IDEMPOTENCY_RESPONSE_NOT_RETAINED"));
    assert!(again.replayed());
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn a_response_that_is_too_large_reaches_the_first_caller_only() {
    let lab = Lab::new().await;
    let first = lab.send(pay("{}").doing("big")).await;
    assert_eq!((first.status.as_u16(), first.body.len()), (201, 3 << 20));
    let again = lab.send(pay("{}")).await;
    assert_eq!(again.status, 201, "the stored status");
    assert_eq!(again.json()["code"], "IDEMPOTENCY_RESPONSE_NOT_RETAINED");
    assert_eq!(again.json()["status"], 201);
    assert_eq!(again.header("location"), Some("/payments/1"), "the way to the result is kept");
    assert_eq!(again.header("idempotency-body"), Some("not-retained"));
    assert_eq!(first.header("idempotency-body"), None);
    assert!(again.json()["detail"].to_string().contains("Location"), "{}", again.json());
    assert!(again.replayed());
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn a_stream_reaches_the_first_caller_only() {
    let lab = Lab::new().await;
    let first = lab.send(pay("{}").doing("event-stream")).await;
    assert_eq!(&first.body[..], b"data: 1\n\n");
    let again = lab.send(pay("{}")).await;
    assert_eq!(again.header("idempotency-body"), Some("not-retained"));
    assert_eq!(again.header("content-type"), Some("application/problem+json"), "it is no stream");
    assert_eq!(again.json()["code"], "IDEMPOTENCY_RESPONSE_NOT_RETAINED");
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn an_executor_overruled_by_a_verdict_returns_the_recorded_response() {
    let lab = Lab::new().await;
    let request = tokio::spawn(pay("{}").doing("hold").to(lab.address));
    lab.begun().await;
    // Its lease expires unnoticed, and evidence settles the command before the handler returns.
    lab.sqlite.shift_clock(Duration::from_secs(31));
    assert_eq!(lab.sqlite.sweep(10).await.expect("it sweeps").len(), 1);
    let record = &lab.sqlite.list(&Default::default()).await.expect("it lists").records[0];
    let verdict = Change::resolve_executed(semel_testkit::sample::created("the verdict"));
    lab.sqlite.apply(&record.id, &verdict).await.expect("it resolves");
    lab.open_gate();
    let reply = request.await.expect("it is answered");
    assert_eq!((reply.status.as_u16(), &reply.body[..]), (201, &b"the verdict"[..]), "never its own result");
}

#[tokio::test]
async fn a_late_executor_settles_its_own_unknown() {
    let lab = Lab::new().await;
    let request = tokio::spawn(pay("{}").doing("hold").to(lab.address));
    lab.begun().await;
    lab.sqlite.shift_clock(Duration::from_secs(31));
    assert_eq!(lab.send(pay("{}")).await.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    lab.open_gate();
    assert_eq!(request.await.expect("it is answered").status, 201);
    assert!(lab.send(pay("{}")).await.replayed());
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn a_handler_can_tell_that_its_lease_has_ended() {
    let lab = Lab::policy(|policy| policy.lease = Duration::from_millis(150)).await;
    lab.store.script(|call| (call == Call::Renew).then_some(Fault::Unavailable));
    let request = tokio::spawn(pay("{}").doing("gate check-lease").to(lab.address));
    lab.begun().await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    lab.open_gate();
    assert_eq!(request.await.expect("it is answered").status, 503);
    assert_eq!(
        (lab.count(), lab.state().await.as_str()),
        (0, "failed_retryable"),
        "its own word: nothing ran"
    );
}

#[tokio::test]
async fn a_shutdown_claims_nothing_and_waits_for_what_runs() {
    let lab = Lab::new().await;
    let running = tokio::spawn(pay("{}").doing("hold").to(lab.address));
    lab.begun().await;
    let layer = lab.layer.clone();
    let shutdown = tokio::spawn(async move { layer.shutdown(Duration::from_secs(30)).await });
    let refused = loop {
        // Until the shutdown has begun, the handler itself answers, without a code.
        let other = pay("{}").set("idempotency-key", "another-key-0000000001").doing("not-executed");
        let reply = lab.send(other).await;
        if reply.header("content-type") == Some("application/problem+json") {
            break reply;
        }
    };
    assert_eq!(refused.problem(), problem(503, "SHUTTING_DOWN"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    lab.open_gate();
    let ended = shutdown.await.expect("it ends");
    assert_eq!((ended.drained, ended.abandoned), (true, 0));
    assert_eq!(running.await.expect("it is answered").status, 201);
}

#[tokio::test]
async fn a_shutdown_abandons_running_commands_as_unknown_after_its_drain() {
    let lab = Lab::new().await;
    let running = tokio::spawn(pay("{}").doing("hold").to(lab.address));
    lab.begun().await;
    let ended = lab.layer.shutdown(Duration::from_millis(10)).await;
    assert_eq!((ended.drained, ended.abandoned), (false, 1));
    assert_eq!(lab.state().await, "unknown");
    let (second, _) = lab.second(Policy::default()).await;
    assert_eq!(pay("{}").to(second).await.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    // If the handler still returns before the process ends, its outcome counts.
    lab.open_gate();
    assert_eq!(running.await.expect("it is answered").status, 201);
    assert!(pay("{}").to(second).await.replayed());
}

#[tokio::test]
async fn a_claim_that_lands_during_a_shutdown_runs_nothing() {
    let lab = Lab::with(|builder| builder.store_timeout(Duration::from_secs(10))).await;
    let gate = lab.hold_claims();
    let request = tokio::spawn(pay("{}").to(lab.address));
    gate.arrived().await;
    let ended = lab.layer.shutdown(Duration::from_millis(20)).await;
    assert_eq!((ended.drained, ended.abandoned), (false, 0));
    gate.open();
    assert_eq!(request.await.expect("it is answered").problem(), problem(503, "SHUTTING_DOWN"));
    assert_eq!((lab.count(), lab.state().await.as_str()), (0, "failed_retryable"));
}

#[tokio::test]
async fn a_shutdown_waits_for_an_outcome_that_is_not_stored_yet() {
    let lab = Lab::new().await;
    lab.store.script(|call| (call == Call::Apply).then_some(Fault::Unavailable));
    assert_eq!(lab.send(pay("{}")).await.problem(), problem(500, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    let layer = lab.layer.clone();
    let shutdown = tokio::spawn(async move { layer.shutdown(Duration::from_secs(30)).await });
    tokio::task::yield_now().await;
    lab.store.heal();
    assert!(shutdown.await.expect("it ends").drained);
    assert_eq!(lab.state().await, "succeeded", "its known outcome is not lost");
}

#[tokio::test]
async fn one_lost_renewal_does_not_cost_the_lease() {
    let lab = Lab::policy(|policy| {
        policy.lease = Duration::from_secs(1);
        policy.wait = Duration::ZERO;
    })
    .await;
    let renewals = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let counter = renewals.clone();
    let mut number = 0;
    lab.store.script(move |call| {
        let renewal = call == Call::Renew;
        number += usize::from(renewal);
        counter.add_permits(usize::from(renewal));
        (renewal && number == 1).then_some(Fault::HangsUndone)
    });
    let first = tokio::spawn(pay("{}").doing("hold").to(lab.address));
    let _ = renewals.acquire_many(4).await.expect("it is never closed");
    let duplicate = lab.send(pay("{}")).await;
    assert_eq!(duplicate.problem(), problem(409, "IDEMPOTENCY_REQUEST_IN_PROGRESS"));
    lab.open_gate();
    assert_eq!(first.await.expect("it is answered").status, 201);
}

#[tokio::test]
async fn an_outcome_that_cannot_be_read_is_unknown() {
    for said in ["outcome-typo", "outcome-twice"] {
        let lab = Lab::new().await;
        let first = lab.send(pay("{}").doing(said)).await;
        assert_eq!((first.status.as_u16(), first.header("semel-outcome")), (201, None));
        assert_eq!(lab.state().await, "unknown", "{said}");
    }
}

#[tokio::test]
async fn an_answer_for_which_there_is_no_memory_reaches_the_first_caller_only() {
    let lab = Lab::with(|builder| builder.answer_bytes(3)).await;
    let first = lab.send(pay("{}")).await;
    assert_eq!((first.status.as_u16(), &first.body[..]), (201, &b"1:{}"[..]), "all of it");
    let again = lab.send(pay("{}")).await;
    assert_eq!(again.problem(), problem(201, "IDEMPOTENCY_RESPONSE_NOT_RETAINED"));
    assert_eq!(again.header("idempotency-body"), Some("not-retained"));
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn an_unknown_record_holds_the_observation_of_its_executor() {
    for (what, seen) in [
        ("status-500", "POST /payments: answered with 500 Internal Server Error"),
        ("panic-after", "POST /payments: the handler panicked"),
    ] {
        let lab = Lab::new().await;
        lab.send(pay("{}").doing(what)).await;
        let records = lab.sqlite.list(&semel_core::Filter::default()).await.expect("the store lists").records;
        assert_eq!(records[0].history.observation(), Some(seen));
    }
}
