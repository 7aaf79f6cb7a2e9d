//! Answers of operations with Stripe's profile: Stripe's SDKs raise only what has Stripe's envelope.

use std::time::Duration;

use semel_core::Policy;
use semel_core::policy::{InProgress, KeyRequirement, Profile};
use semel_http::Operation;

use crate::lab::{Lab, pay, problem, stripe_error};

const REUSED: &str = "idempotency_key_reused_with_different_request";

async fn stripe(change: impl FnOnce(&mut Policy)) -> Lab {
    Lab::policy(|policy| {
        policy.follow(Profile::Stripe);
        change(policy);
    })
    .await
}

#[tokio::test]
async fn a_replay_has_stripes_mark_and_a_mismatch_is_an_idempotency_error() {
    let lab = stripe(|_| {}).await;
    lab.send(pay("{}")).await;
    let again = lab.send(pay("{}")).await;
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.header("idempotency-replayed"), None);
    let reused = lab.send(pay("[]")).await;
    assert_eq!(reused.stripe_error(), stripe_error(400, "idempotency_error", REUSED, Some("false")));
    assert_eq!(reused.header("idempotency-retry"), Some("never"));
}

#[tokio::test]
async fn a_missing_or_bad_key_is_an_invalid_request() {
    let lab = stripe(|_| {}).await;
    let refused = |code: &str| stripe_error(400, "invalid_request_error", code, Some("false"));
    let missing = lab.send(pay("{}").without("idempotency-key")).await;
    assert_eq!(missing.stripe_error(), refused("missing_idempotency_key"));
    for key in ["a b", "\"\"", &"k".repeat(256)] {
        let bad = lab.send(pay("{}").set("idempotency-key", key)).await;
        assert_eq!(bad.stripe_error(), refused("invalid_idempotency_key"), "{key}");
    }
    for key in ["k", &"k".repeat(255)] {
        let reply = lab.send(pay("{}").set("idempotency-key", key)).await;
        assert_eq!(reply.status, 201, "keys have 1 to 255 characters");
    }
    assert_eq!(lab.count(), 2);
}

#[tokio::test]
async fn a_command_that_still_runs_is_retried_and_an_unknown_one_is_not() {
    let lab = stripe(|policy| policy.wait = Duration::ZERO).await;
    let first = tokio::spawn(pay("{}").doing("gate").to(lab.address));
    lab.begun().await;
    let busy = lab.send(pay("{}")).await;
    let expected = stripe_error(409, "invalid_request_error", "idempotency_key_in_use", Some("true"));
    assert_eq!(busy.stripe_error(), expected);
    assert!(busy.header("retry-after").is_some());
    lab.open_gate();
    assert_eq!(first.await.expect("it is answered").status, 201);

    let other = |doing: &str| pay("{}").set("idempotency-key", "another-key-0123").doing(doing);
    let unknown = |status| stripe_error(status, "api_error", "idempotency_outcome_unknown", Some("false"));
    let panicked = lab.send(other("panic-after")).await;
    assert_eq!(panicked.stripe_error(), unknown(500));
    let again = lab.send(other("")).await;
    assert_eq!(again.stripe_error(), unknown(409));
    assert_eq!(again.header("idempotency-retry"), Some("poll"));
    let error = &again.json()["error"];
    assert!(error["operationId"].is_string(), "{error}");
    assert!(
        error["operationUrl"].as_str().is_some_and(|url| url.starts_with("/.well-known/semel/operations/"))
    );
    assert_eq!(lab.count(), 2);
}

#[tokio::test]
async fn a_success_without_its_body_has_no_error() {
    let lab = stripe(|_| {}).await;
    assert_eq!(lab.send(pay("{}").doing("big")).await.status, 201);
    let again = lab.send(pay("{}")).await;
    assert_eq!(again.status, 201);
    assert_eq!(again.json().get("error"), None);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.header("stripe-should-retry"), None);
}

#[tokio::test]
async fn an_accepted_duplicate_has_no_error() {
    let lab = stripe(|policy| {
        policy.wait = Duration::ZERO;
        policy.in_progress = InProgress::Accepted;
    })
    .await;
    let first = tokio::spawn(pay("{}").doing("gate").to(lab.address));
    lab.begun().await;
    let accepted = lab.send(pay("{}")).await;
    assert_eq!((accepted.status.as_u16(), accepted.json().get("error")), (202, None));
    lab.open_gate();
    assert_eq!(first.await.expect("it is answered").status, 201);
}

#[tokio::test]
async fn each_operation_answers_in_its_own_profile() {
    let lab = Lab::with(|builder| {
        let charges = Operation::new("charges.create", "POST /v1/charges");
        builder.operation(charges.with(|policy| {
            policy.follow(Profile::Stripe);
            policy.key = KeyRequirement::Optional;
        }))
    })
    .await;
    let forbidden = |target: &str| pay("{}").target(target).with("x-http-method-override", "DELETE");
    let malformed = lab.send(forbidden("/v1/charges")).await;
    let expected = stripe_error(400, "invalid_request_error", "malformed_request", Some("false"));
    assert_eq!(malformed.stripe_error(), expected, "refused before the operation is looked at");
    assert_eq!(lab.send(forbidden("/payments")).await.problem(), problem(400, "MALFORMED_REQUEST"));
    let anonymous = lab.send(pay("{}").target("/v1/charges").without("x-user")).await;
    let expected = stripe_error(401, "invalid_request_error", "unauthenticated", Some("false"));
    assert_eq!(anonymous.stripe_error(), expected);
    assert_eq!(lab.count(), 0);
}
