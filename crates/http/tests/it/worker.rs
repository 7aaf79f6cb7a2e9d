//! Failures around a worker.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use semel_core::{
    Clock, Command, FingerprintInput, Ids, OperationName, Policy, Principal, RandomIds, Scope, StateName,
    Store, StoredRequest, SystemClock,
};
use semel_http::{IdempotencyLayer, Operation, WorkerOptions};
use semel_testkit::ManualClock;
use semel_testkit::client::{KEY, pay, problem};
use semel_testkit::faulty::{Call, Fault};
use tokio::sync::Notify;

use crate::lab::identify;
use crate::later_lab::{EAGER, Kept, Later, get, later};

fn another(number: usize) -> String {
    format!("another-key-of-a-client-{number}")
}

#[tokio::test]
async fn an_unexecuted_command_is_retried_until_its_deadline() {
    let lab = Later::memory().await;
    lab.work();
    let accepted = lab.send(pay("{}").doing("not-executed")).await;
    for attempt in 1..=4_u32 {
        lab.begun().await;
        let waiting = loop {
            let operation = lab.becomes(&accepted, "claimed").await;
            if operation["attempt"] == attempt + 1 {
                break operation;
            }
        };
        assert_eq!(waiting["reason"], "not_executed");
        assert_eq!(lab.send(pay("{}")).await.status, 202, "it waits again");
        lab.advance(Duration::from_secs(60));
    }
    lab.begun().await;
    lab.becomes(&accepted, "claimed").await;
    lab.advance(later().start_within);
    assert_eq!(lab.poll(&accepted).await["state"], "failed_retryable");
    assert_eq!(lab.count(), 0);
    // One fresh request runs it; the instruction to the handler is not part of the fingerprint.
    let again = lab.send(pay("{}")).await;
    lab.becomes(&again, "succeeded").await;
    assert_eq!((lab.send(pay("{}")).await.status.as_u16(), lab.count()), (201, 1));
}

#[tokio::test]
async fn a_command_of_unknown_outcome_is_not_retried() {
    let lab = Later::with(Later::in_memory(), |builder| {
        builder.defaults(Policy { timeout: Duration::from_millis(200), ..later() })
    })
    .await;
    lab.work_with(WorkerOptions { concurrency: 1, ..EAGER });
    let cases = [("panic-after", "panicked"), ("hold", "timed_out"), ("status-500", "server_error")];
    for (number, (what, reason)) in cases.into_iter().enumerate() {
        let key = another(number);
        let accepted = lab.send(pay("{}").doing(what).set("idempotency-key", &key)).await;
        let lost = lab.becomes(&accepted, "unknown").await;
        assert_eq!(lost["reason"], reason);
        let again = lab.send(pay("{}").set("idempotency-key", &key)).await;
        assert_eq!(again.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    }
    assert_eq!(lab.count(), 3);
    let declined = lab.send(pay("{}").doing("status-402")).await;
    lab.becomes(&declined, "failed_final").await;
    assert_eq!(lab.send(pay("{}")).await.status, 402);
}

#[tokio::test]
async fn commands_that_cannot_be_carried_out_do_not_stop_others() {
    let payments = |name: &str| Operation::new(name, "POST /payments");
    let lab = Later::with(Later::in_memory(), |builder| {
        builder.defaults(later()).operation(payments("payments.create").alias("payments"))
    })
    .await;
    // Another process, with other rules.
    let other = IdempotencyLayer::builder(lab.store.clone()).identify(identify).defaults(later());
    let other = other.operation(payments("payments.make")).build().expect("it is valid");
    let other = crate::lab::serve(lab.app.clone().layer(other)).await;
    let mut poison = Vec::new();
    for number in 0..20 {
        poison.push(pay("{}").set("idempotency-key", another(number)).to(other).await);
    }
    let scope = Scope::new(
        Principal::new("acme", "alice").expect("they are names"),
        OperationName::new("payments").expect("it is a name"),
        later().key_rules.parse([KEY.as_bytes()]).ok().flatten().expect("it is a key"),
    );
    let command = Command {
        scope: scope.clone(),
        fingerprint: lab.records().await[0].head.fingerprint,
        business_reference: None,
        former: [].into(),
        policy: later().into(),
        trace: None,
    };
    let unreadable = StoredRequest::input(Bytes::from_static(b"not a request"));
    let (id, token) = (RandomIds.operation_id(SystemClock.now()), RandomIds.attempt_token());
    lab.store.claim(&command.claim_for_later(id, token, unreadable)).await.expect("the store writes");

    lab.work_with(WorkerOptions { concurrency: 1, ..EAGER });
    let good = lab.send(pay("{}").set("idempotency-key", another(99))).await;
    lab.becomes(&good, "succeeded").await;
    assert_eq!(lab.count(), 1);
    for left in &poison {
        assert_eq!(lab.poll(left).await["state"], "claimed", "it is left to its deadline");
    }
    lab.advance(later().start_within);
    for left in &poison {
        assert_eq!(lab.poll(left).await["state"], "failed_retryable");
    }
    assert_eq!(lab.count(), 1);
}

/// Claims a command of this tenant for a worker, under this key, whose request is `bytes`.
async fn claim_for_later(lab: &Later, tenant: &str, key: &str, bytes: StoredRequest) {
    let scope = Scope::new(
        Principal::new(tenant, "alice").expect("they are names"),
        OperationName::new("POST /payments").expect("it is a name"),
        later().key_rules.parse([key.as_bytes()]).ok().flatten().expect("it is a key"),
    );
    let fingerprint = semel_testkit::sample::fingerprint("{}");
    let command = Command {
        scope,
        fingerprint,
        business_reference: None,
        former: [].into(),
        policy: later().into(),
        trace: None,
    };
    let (id, token) = (RandomIds.operation_id(SystemClock.now()), RandomIds.attempt_token());
    lab.store.claim(&command.claim_for_later(id, token, bytes)).await.expect("the store writes");
}

#[tokio::test]
async fn a_worker_skips_700_unreadable_commands() {
    for kept in [Later::in_memory(), Later::in_a_file()] {
        let lab = Later::with(kept, |builder| builder.defaults(later())).await;
        for number in 0..700 {
            let unreadable = StoredRequest::input(Bytes::from_static(b"not a request"));
            claim_for_later(&lab, "acme", &another(number), unreadable).await;
        }
        lab.work_with(WorkerOptions { concurrency: 1, ..EAGER });
        for number in 700..703 {
            let good = lab.send(pay("{}").set("idempotency-key", another(number))).await;
            assert_eq!(good.status, 202);
            lab.becomes(&good, "succeeded").await;
        }
        assert_eq!(lab.count(), 3);
    }
}

#[tokio::test]
async fn a_tenants_single_command_does_not_wait_for_anothers_backlog() {
    for kept in [Later::in_memory(), Later::in_a_file()] {
        let lab = Later::with(kept, |builder| builder.defaults(later())).await;
        for number in 0..60 {
            let held = lab.send(pay("{}").doing("hold").set("idempotency-key", another(number))).await;
            assert_eq!(held.status, 202);
        }
        lab.work_with(WorkerOptions { concurrency: 2, ..EAGER });
        for _ in 0..2 {
            lab.begun().await;
        }
        let single = lab.send(pay("{}").doing("hold").with("x-tenant", "zeta")).await;
        assert_eq!(single.status, 202);
        // Two places are taken; one of the next two that begin is the single command.
        for _ in 0..2 {
            lab.open_gate();
            lab.begun().await;
        }
        let address = single.header("location").expect("it says where to ask");
        let state = lab.send(get(address).with("x-tenant", "zeta")).await.json();
        assert_eq!(state["state"], "processing", "although 58 others came before it");
        for _ in 0..61 {
            lab.open_gate();
        }
    }
}

#[tokio::test]
async fn a_request_that_was_exchanged_in_the_store_is_not_sent() {
    let lab = Later::memory().await;
    let forge = |key: &str, body: &str| {
        let mut headers = HeaderMap::new();
        headers.insert("idempotency-key", key.parse().expect("it is a value"));
        headers.insert("content-type", "application/json".parse().expect("it is a value"));
        let (method, target) = (http::Method::POST, "/payments".parse().expect("it is a path"));
        semel_core::Request { method, target, headers, body: Bytes::copy_from_slice(body.as_bytes()) }
    };
    let fingerprint = FingerprintInput {
        method: "POST",
        path: "/payments",
        query: None,
        content_type: Some(b"application/json"),
        content_encoding: None,
        body: b"{}",
        exclude: &[],
    };
    let claim = |key: &str, request: semel_core::Request| {
        let key = later().key_rules.parse([key.as_bytes()]).ok().flatten().expect("it is a key");
        let scope = Scope::new(
            Principal::new("acme", "alice").expect("they are names"),
            OperationName::new("POST /payments").expect("it is a name"),
            key,
        );
        let command = Command {
            scope,
            fingerprint: fingerprint.fingerprint(),
            business_reference: None,
            former: [].into(),
            policy: later().into(),
            trace: None,
        };
        let (id, token) = (RandomIds.operation_id(SystemClock.now()), RandomIds.attempt_token());
        command.claim_for_later(id, token, request.encode(|_| true))
    };
    let (own, other, third) = (another(1), another(2), another(3));
    for claim in [
        claim(&own, forge(&own, r#"{"amount":1000000}"#)),
        claim(&other, forge(&own, "{}")),
        claim(&third, semel_core::Request { headers: HeaderMap::new(), ..forge(&third, "{}") }),
    ] {
        lab.store.claim(&claim).await.expect("the store writes");
    }
    let genuine = claim(KEY, forge(KEY, "{}"));
    lab.store.claim(&genuine).await.expect("the store writes");
    lab.work_with(WorkerOptions { concurrency: 1, ..EAGER });
    lab.begun().await;
    while lab
        .store
        .get(&genuine.scope.record_id())
        .await
        .expect("it reads")
        .record
        .is_none_or(|record| record.head.state.name() != StateName::Succeeded)
    {
        tokio::task::yield_now().await;
    }
    let waiting =
        lab.records().await.into_iter().filter(|record| record.head.state.name() == StateName::Claimed);
    assert_eq!((lab.count(), waiting.count()), (1, 3), "they are left to their deadline");
}

#[tokio::test]
async fn a_former_name_is_carried_out_under_the_new_one() {
    let lab = Later::with(Later::in_memory(), |builder| {
        builder.operation(
            Operation::new("payments.create", "POST /payments").alias("payments").with(|p| *p = later()),
        )
    })
    .await;
    let before = IdempotencyLayer::builder(lab.store.clone()).identify(identify);
    let before = before.operation(Operation::new("payments", "POST /payments").with(|p| *p = later()));
    let before = crate::lab::serve(lab.app.clone().layer(before.build().expect("it is valid"))).await;
    let accepted = pay("{}").to(before).await;
    assert_eq!(accepted.status, 202);
    lab.work();
    lab.becomes(&accepted, "succeeded").await;
    assert!(lab.send(pay("{}")).await.replayed());
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn an_unconfirmed_async_claim_answers_unknown_and_a_worker_executes_it() {
    for fault in [Fault::AnswerLost, Fault::Hangs] {
        let lab = Later::with(Later::in_a_file(), |builder| {
            builder.defaults(later()).store_timeout(Duration::from_millis(200))
        })
        .await;
        lab.store.script(move |call| (call == Call::Claim).then_some(fault));
        let reply = lab.send(pay("{}")).await;
        assert_eq!(reply.problem(), problem(500, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
        lab.store.heal();
        lab.work();
        let again = lab.send(pay("{}")).await;
        lab.becomes(&again, "succeeded").await;
        assert_eq!(lab.count(), 1, "{fault:?}");
    }
}

#[tokio::test]
async fn a_start_whose_answer_was_lost_runs_the_command_once() {
    let lab = Later::sqlite().await;
    let mut lost = false;
    lab.store.script(move |call| {
        let lose = call == Call::Apply && !std::mem::replace(&mut lost, true);
        lose.then_some(Fault::AnswerLost)
    });
    lab.work();
    let accepted = lab.send(pay("{}")).await;
    assert_eq!(lab.becomes(&accepted, "succeeded").await["attempt"], 1);
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn an_unconfirmed_start_is_undone_and_the_command_runs_once() {
    let lab = Later::sqlite().await;
    let mut calls = 0;
    lab.store.script(move |call| {
        calls += usize::from(call == Call::Apply);
        match (call, calls) {
            (Call::Apply, 1) => Some(Fault::AnswerLost),
            (Call::Apply, 2..=3) => Some(Fault::Unavailable),
            _ => None,
        }
    });
    lab.work();
    let accepted = lab.send(pay("{}")).await;
    let done = lab.becomes(&accepted, "succeeded").await;
    assert_eq!(done["attempt"], 2, "the first was started, and nobody ran it");
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn a_resent_start_found_after_its_lease_frees_the_key_unexecuted() {
    let clock = ManualClock::new();
    let lab = Later::with(Kept::Memory(clock.clone()), |builder| builder.defaults(later())).await;
    let mut calls = 0;
    lab.store.script(move |call| {
        calls += usize::from(call == Call::Apply);
        match (call, calls) {
            (Call::Apply, 1) => Some(Fault::AnswerLost),
            (Call::Apply, 2) => {
                clock.advance(Policy::default().lease * 2);
                None
            }
            _ => None,
        }
    });
    lab.work();
    let accepted = lab.send(pay("{}")).await;
    lab.becomes(&accepted, "failed_retryable").await;
    assert_eq!(lab.count(), 0, "nobody ran it");
}

#[tokio::test]
async fn a_worker_goes_on_when_its_store_is_back() {
    let lab = Later::sqlite().await;
    let accepted = lab.send(pay("{}")).await;
    let asked = Arc::new(Notify::new());
    let in_vain = asked.clone();
    lab.store.script(move |_| {
        in_vain.notify_one();
        Some(Fault::Unavailable)
    });
    lab.work();
    asked.notified().await;
    lab.store.heal();
    lab.becomes(&accepted, "succeeded").await;
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn several_workers_carry_out_each_command_once() {
    let lab = Later::sqlite().await;
    let mut accepted = Vec::new();
    for number in 0..100 {
        accepted.push(lab.send(pay("{}").set("idempotency-key", another(number))).await);
    }
    let other = IdempotencyLayer::builder(lab.store.clone()).identify(identify).defaults(later());
    let other = other.build().expect("it is valid");
    for _ in 0..2 {
        lab.work();
        tokio::spawn(other.worker(lab.app.clone(), EAGER).run());
    }
    for accepted in &accepted {
        assert_eq!(lab.becomes(accepted, "succeeded").await["attempt"], 1);
    }
    assert_eq!(lab.count(), 100);
}

#[tokio::test]
async fn a_worker_runs_at_most_its_concurrency_of_commands_at_once() {
    let lab = Later::memory().await;
    let mut accepted = Vec::new();
    for number in 0..5 {
        accepted.push(lab.send(pay("{}").doing("gate").set("idempotency-key", another(number))).await);
    }
    lab.work_with(WorkerOptions { concurrency: 2, ..EAGER });
    for _ in 0..5 {
        lab.begun().await;
        let states = lab.records().await.into_iter().map(|record| record.head.state.name().as_str());
        assert!(states.filter(|state| *state == "processing").count() <= 2);
        lab.open_gate();
    }
    for accepted in &accepted {
        lab.becomes(accepted, "succeeded").await;
    }
    assert_eq!(lab.count(), 5);
}

#[tokio::test]
async fn a_stopped_worker_settles_its_running_command_and_starts_no_other() {
    let lab = Later::memory().await;
    let (stop, ended) = lab.work();
    let begun = lab.send(pay("{}").doing("gate")).await;
    lab.begun().await;
    stop.stop();
    let left = lab.send(pay("{}").set("idempotency-key", another(1))).await;
    assert_eq!(left.status, 202, "the layer goes on");
    lab.open_gate();
    ended.await.expect("it ends by itself");
    assert_eq!(lab.poll(&begun).await["state"], "succeeded");
    assert_eq!((lab.poll(&left).await["state"].clone(), lab.count()), ("claimed".into(), 1));
    lab.work();
    lab.becomes(&left, "succeeded").await;
}

#[tokio::test]
async fn a_shutdown_waits_for_the_running_command_of_a_worker() {
    let lab = Later::memory().await;
    let (_stop, ended) = lab.work_with(WorkerOptions { concurrency: 1, ..EAGER });
    let begun = lab.send(pay("{}").doing("gate")).await;
    lab.begun().await;
    let left = lab.send(pay("{}").set("idempotency-key", another(1))).await;
    let layer = lab.layer.clone();
    let shutdown = tokio::spawn(async move { layer.shutdown(Duration::from_secs(60)).await });
    while lab.send(pay("{}").set("idempotency-key", another(2))).await.status != 503 {}
    lab.open_gate();
    let shutdown = shutdown.await.expect("it comes to its end");
    assert_eq!((shutdown.drained, shutdown.abandoned), (true, 0));
    ended.await.expect("it ends by itself");
    assert_eq!(lab.poll(&begun).await["state"], "succeeded");
    assert_eq!(lab.poll(&left).await["state"], "claimed", "it waits for another process");
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn a_shutdown_abandons_the_commands_of_a_worker_as_unknown() {
    let lab = Later::memory().await;
    lab.work();
    let begun = lab.send(pay("{}").doing("gate")).await;
    lab.begun().await;
    let shutdown = lab.layer.shutdown(Duration::from_millis(50)).await;
    assert_eq!((shutdown.drained, shutdown.abandoned), (false, 1));
    let lost = lab.poll(&begun).await;
    assert_eq!((&lost["state"], &lost["reason"]), (&"unknown".into(), &"shut_down".into()));
}

#[tokio::test]
async fn a_worker_can_call_a_service_already_wrapped_in_the_layer() {
    let lab = Later::memory().await;
    tokio::spawn(lab.layer.worker(lab.app.clone().layer(lab.layer.clone()), EAGER).run());
    let accepted = lab.send(pay("{}").doing("status-409 outcome-final")).await;
    lab.becomes(&accepted, "failed_final").await;
    assert_eq!((lab.send(pay("{}")).await.status.as_u16(), lab.count()), (409, 1));
}

#[tokio::test]
async fn a_response_that_is_too_large_is_settled_without_it() {
    let lab = Later::memory().await;
    lab.work();
    let accepted = lab.send(pay("{}").doing("big")).await;
    lab.becomes(&accepted, "succeeded").await;
    let again = lab.send(pay("{}")).await;
    assert_eq!(again.json()["code"], "IDEMPOTENCY_RESPONSE_NOT_RETAINED");
    assert_eq!((again.status.as_u16(), lab.count()), (201, 1));
}
