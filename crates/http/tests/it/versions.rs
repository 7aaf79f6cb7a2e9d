//! Second version of the fingerprint, which only these tests have: effects of a change of version on live
//! records.

use semel_core::fingerprint::FingerprintVersion;
use semel_core::{Fingerprint, FingerprintInput};

use crate::lab::{Lab, pay, problem};

/// Returns the fingerprint of a later program, without the former one.
fn later_alone(input: &FingerprintInput<'_>) -> Fingerprint {
    let digest = input.fingerprint().digest().map(|byte| !byte);
    Fingerprint::from_parts(FingerprintVersion::from_number(2).expect("it is a version"), digest)
}

fn later(input: &FingerprintInput<'_>) -> Fingerprint {
    later_alone(input).with_former(input.fingerprint())
}

#[tokio::test]
async fn a_record_is_compared_in_its_own_version() {
    let lab = Lab::new().await;
    assert_eq!(lab.send(pay("{}")).await.status, 201);
    let upgraded = lab.second_with(|builder| builder.fingerprint(later)).await;
    for place in ["the store", "memory"] {
        assert!(pay("{}").to(upgraded).await.replayed(), "from {place}");
        let other = pay("[]").to(upgraded).await;
        assert_eq!(
            other.problem(),
            problem(422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST"),
            "in {place}"
        );
    }
    let key = "a-key-of-the-later-program-0001";
    assert_eq!(pay("{}").set("idempotency-key", key).to(upgraded).await.status, 201);
    assert!(pay("{}").set("idempotency-key", key).to(upgraded).await.replayed());
    let other = pay("[]").set("idempotency-key", key).to(upgraded).await;
    assert_eq!(other.problem(), problem(422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST"));
    assert_eq!(lab.count(), 2);
}

#[tokio::test]
async fn a_record_of_a_version_that_is_not_known_is_refused_and_not_run() {
    let lab = Lab::new().await;
    let upgraded = lab.second_with(|builder| builder.fingerprint(later)).await;
    assert_eq!(pay("{}").to(upgraded).await.status, 201);
    for body in ["{}", "[]"] {
        for _ in 0..2 {
            let reply = lab.send(pay(body)).await;
            assert_eq!(reply.problem(), problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE"), "{body}");
        }
    }
    let forgetful = lab.second_with(|builder| builder.fingerprint(later_alone)).await;
    let key = "a-key-of-the-former-program-0001";
    assert_eq!(lab.send(pay("{}").set("idempotency-key", key)).await.status, 201);
    let reply = pay("{}").set("idempotency-key", key).to(forgetful).await;
    assert_eq!(reply.problem(), problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE"));
    assert_eq!(lab.count(), 2);
}
