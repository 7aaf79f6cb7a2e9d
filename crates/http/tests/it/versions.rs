//! Second version of the fingerprint, which only these tests have: effects of a change of version on live
//! records.

use semel_core::fingerprint::FingerprintVersion;
use semel_core::{Fingerprint, FingerprintInput, Formats};

use crate::lab::{Lab, pay, problem};

/// Returns the fingerprint of a later program, without the former one.
fn later_alone(input: &FingerprintInput<'_>, _: Formats) -> Fingerprint {
    let digest = input.fingerprint().digest().map(|byte| !byte);
    Fingerprint::from_parts(FingerprintVersion::from_number(2).expect("it is a version"), digest)
}

fn later(input: &FingerprintInput<'_>, formats: Formats) -> Fingerprint {
    later_alone(input, formats).with_other(input.fingerprint())
}

/// Returns the fingerprint of a later program while older ones may still read its records.
fn later_unfinished(input: &FingerprintInput<'_>, formats: Formats) -> Fingerprint {
    input.fingerprint().with_other(later_alone(input, formats))
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
async fn retries_meet_one_command_at_programs_of_both_versions() {
    let lab = Lab::new().await;
    let unfinished = lab.second_with(|builder| builder.fingerprint(later_unfinished)).await;
    let finished = lab.second_with(|builder| builder.fingerprint(later)).await;
    let mismatch = problem(422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST");
    // Before the end of the upgrade, each program reads what the other one writes.
    let key = "a-key-of-the-later-program-0002";
    assert_eq!(pay("{}").set("idempotency-key", key).to(unfinished).await.status, 201);
    assert!(lab.send(pay("{}").set("idempotency-key", key)).await.replayed());
    assert_eq!(lab.send(pay("[]").set("idempotency-key", key)).await.problem(), mismatch);
    // A later program that has not yet heard of the end reads what one that has heard of it writes.
    let key = "a-key-of-the-later-program-0003";
    assert_eq!(pay("{}").set("idempotency-key", key).to(finished).await.status, 201);
    assert!(pay("{}").set("idempotency-key", key).to(unfinished).await.replayed());
    assert_eq!(pay("[]").set("idempotency-key", key).to(unfinished).await.problem(), mismatch);
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
