//! `Idempotency-Retry`: advice for clients that look at headers only.

use std::time::Duration;

use semel_core::policy::OnServerError;

use crate::lab::{Lab, pay};

#[tokio::test]
async fn the_advice_about_a_server_error_follows_its_record() {
    for (choice, first, retry) in [
        (OnServerError::Unknown, "poll", Some("poll")),
        (OnServerError::Replay, "never", Some("never")),
        (OnServerError::Retry, "same-key", None),
    ] {
        let lab = Lab::policy(|policy| policy.on_server_error = choice).await;
        let failed = lab.send(pay("{}").doing("status-500")).await;
        assert_eq!(failed.header("idempotency-retry"), Some(first), "{choice:?}");
        let again = lab.send(pay("{}")).await;
        assert_eq!(again.header("idempotency-retry"), retry, "{choice:?}: {again:?}");
    }
}

#[tokio::test]
async fn the_retry_advice_follows_the_declared_outcome_before_the_status() {
    for (doing, advice) in [
        ("not-executed", Some("same-key")),
        ("status-429", Some("same-key")),
        ("status-500 outcome-final", Some("never")),
        ("status-200 outcome-unknown", Some("poll")),
        ("status-402", None),
        ("status-201", None),
    ] {
        let lab = Lab::new().await;
        let reply = lab.send(pay("{}").doing(doing)).await;
        assert_eq!(reply.header("idempotency-retry"), advice, "{doing}: {reply:?}");
    }
}

#[tokio::test]
async fn problems_have_the_advice_of_their_kind() {
    let lab = Lab::policy(|policy| policy.wait = Duration::ZERO).await;
    let advice = |reply: &crate::lab::Reply| {
        reply.problem();
        reply.header("idempotency-retry").map(str::to_owned)
    };
    let first = tokio::spawn(pay("{}").doing("gate").to(lab.address));
    lab.begun().await;
    assert_eq!(advice(&lab.send(pay("{}")).await).as_deref(), Some("same-key"), "in progress");
    assert_eq!(advice(&lab.send(pay("[]")).await).as_deref(), Some("never"), "a mismatch");
    lab.open_gate();
    assert_eq!(first.await.expect("it is answered").status, 201);
    let other = |doing: &str| pay("{}").set("idempotency-key", "another-key-0123").doing(doing);
    assert_eq!(advice(&lab.send(other("panic-before")).await).as_deref(), Some("poll"));
    assert_eq!(advice(&lab.send(other("")).await).as_deref(), Some("poll"), "unknown");
}

#[tokio::test]
async fn a_handler_cannot_give_the_advice_itself() {
    let lab = Lab::new().await;
    for _ in 0..2 {
        let reply = lab.send(pay("{}").doing("forged")).await;
        assert_eq!((reply.status.as_u16(), reply.header("idempotency-retry")), (201, None));
    }
}
