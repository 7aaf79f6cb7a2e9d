//! Claims: exactly one request runs a command.

use std::time::Duration;

use semel_core::event::Refusal;
use semel_core::{Attempt, Change, Claim, Decision, Event, Reason, StateName, transition};

use super::{Subject, acquire, applied, apply, claim_decision, complete, race, read};
use crate::sample;

pub(super) async fn one_of_64_racing_claims_wins(subject: &dyn Subject) {
    let store = subject.store();
    let decisions = race(64, |_| {
        let store = store.clone();
        async move { claim_decision(&*store, &sample::claim("raced")).await }
    })
    .await;
    assert_eq!(decisions.iter().filter(|d| **d == Decision::Execute).count(), 1);
    assert_eq!(decisions.iter().filter(|d| **d == Decision::Wait).count(), 63);
}

pub(super) async fn each_of_many_racing_keys_has_one_winner(subject: &dyn Subject) {
    const KEYS: usize = 32;
    let store = subject.store();
    let decisions = race(8 * KEYS, |number| {
        let (store, key) = (store.clone(), number % KEYS);
        async move { (key, claim_decision(&*store, &sample::claim(&format!("key-{key}"))).await) }
    })
    .await;
    for key in 0..KEYS {
        let winners = decisions.iter().filter(|(k, d)| *k == key && *d == Decision::Execute).count();
        assert_eq!(winners, 1, "key {key}");
    }
}

pub(super) async fn a_claim_waits_while_another_runs(subject: &dyn Subject) {
    let store = subject.store();
    let first = acquire(&*store, &sample::claim("k")).await;
    let answer = store.claim(&sample::claim("k")).await.expect("the store takes claims");
    assert_eq!(answer.decision, Decision::Wait);
    assert_eq!(answer.record, Some(first), "the loser sees the winner's record, unchanged");
}

/// A program that computes a second version of the fingerprint meets records of the first one, and vice
/// versa.
pub(super) async fn a_request_is_compared_in_the_version_of_its_record(subject: &dyn Subject) {
    let store = subject.store();
    let (body, other) = (r#"{"amount":1}"#, r#"{"amount":2}"#);
    let asking = |key: &str, fingerprint| {
        let claim = sample::claim(key);
        Claim { attempt: Attempt { fingerprint, ..claim.attempt }, ..claim }
    };
    let first = sample::fingerprint;
    let both = |body: &str| sample::later_fingerprint(body).with_other(first(body));
    let (claim, _) = complete(&*store, "older", "ok").await;
    let older = read(&*store, &sample::id(&claim)).await;
    assert_eq!(older.head.fingerprint, first(body));
    assert_eq!(claim_decision(&*store, &asking("older", both(body))).await, Decision::Replay);
    assert_eq!(claim_decision(&*store, &asking("older", both(other))).await, Decision::Mismatch);
    let unknown = Decision::Refused(Refusal::FingerprintVersion);
    assert_eq!(claim_decision(&*store, &asking("older", sample::later_fingerprint(body))).await, unknown);

    let newer = acquire(&*store, &asking("newer", both(body))).await;
    assert_eq!(newer.head.fingerprint, sample::later_fingerprint(body), "a record has one version");
    assert_eq!(read(&*store, &newer.id).await.head.fingerprint, newer.head.fingerprint);
    assert_eq!(claim_decision(&*store, &asking("newer", both(body))).await, Decision::Wait);
    assert_eq!(claim_decision(&*store, &asking("newer", both(other))).await, Decision::Mismatch);
    assert_eq!(
        claim_decision(&*store, &asking("newer", first(body))).await,
        unknown,
        "no mismatch, and not run"
    );
    assert_eq!(read(&*store, &newer.id).await, newer);

    applied(&*store, &newer.id, Change::release(newer.head.fence(), Reason::NotExecuted)).await;
    assert_eq!(claim_decision(&*store, &asking("newer", first(body))).await, unknown, "nor once it is free");
    assert_eq!(claim_decision(&*store, &asking("newer", both(body))).await, Decision::Execute);
}

pub(super) async fn another_request_is_a_mismatch_before_anything_else(subject: &dyn Subject) {
    let store = subject.store();
    let other = |key: &str| sample::for_body(sample::claim(key), r#"{"amount":2}"#);
    let running = acquire(&*store, &sample::claim("running")).await;
    assert_eq!(claim_decision(&*store, &other("running")).await, Decision::Mismatch);
    assert_eq!(read(&*store, &running.id).await, running);

    complete(&*store, "done", "ok").await;
    assert_eq!(claim_decision(&*store, &other("done")).await, Decision::Mismatch);

    let released = acquire(&*store, &sample::claim("released")).await;
    applied(&*store, &released.id, Change::release(released.head.fence(), Reason::NotExecuted)).await;
    assert_eq!(claim_decision(&*store, &other("released")).await, Decision::Mismatch);

    let lost = acquire(&*store, &sample::claim("lost")).await;
    applied(&*store, &lost.id, Change::abandon(lost.head.fence(), Reason::TimedOut)).await;
    assert_eq!(claim_decision(&*store, &other("lost")).await, Decision::Mismatch);
}

pub(super) async fn a_claim_sent_again_is_recognised_as_the_same(subject: &dyn Subject) {
    let store = subject.store();
    let claim = sample::claim("k");
    let first = acquire(&*store, &claim).await;
    let again = acquire(&*store, &claim).await;
    assert_eq!(again, first, "nothing changed: same epoch, same token, same operation");
    assert_eq!(claim_decision(&*store, &sample::claim("k")).await, Decision::Wait);
}

pub(super) async fn scopes_do_not_see_each_other(subject: &dyn Subject) {
    let store = subject.store();
    let scopes = [
        ("acme", "alice", "payments.create"),
        ("acme", "bob", "payments.create"),
        ("globex", "alice", "payments.create"),
        ("acme", "alice", "refunds.create"),
    ];
    for (tenant, caller, operation) in scopes {
        let claim = sample::claim_on(sample::scope_of(tenant, caller, operation, "the-same-key"));
        let record = acquire(&*store, &claim).await;
        let body = format!("{tenant}/{caller}/{operation}");
        applied(&*store, &record.id, Change::complete(record.head.fence(), sample::created(&body))).await;
    }
    for (tenant, caller, operation) in scopes {
        let claim = sample::claim_on(sample::scope_of(tenant, caller, operation, "the-same-key"));
        let answer = store.claim(&claim).await.expect("the store takes claims");
        assert_eq!(answer.decision, Decision::Replay);
        let record = answer.record.expect("a replay has a record");
        assert_eq!(record.result, Some(sample::created(&format!("{tenant}/{caller}/{operation}"))));
        let whose = (record.principal.tenant(), record.principal.caller(), record.operation.as_str());
        assert_eq!(whose, (tenant, caller, operation));
    }
}

pub(super) async fn a_released_key_is_acquired_by_exactly_one(subject: &dyn Subject) {
    let store = subject.store();
    let first = acquire(&*store, &sample::claim("k")).await;
    let released =
        applied(&*store, &first.id, Change::release(first.head.fence(), Reason::NotExecuted)).await;
    assert_eq!(released.head.state.name(), StateName::FailedRetryable);
    let decisions = race(64, |_| {
        let store = store.clone();
        async move { claim_decision(&*store, &sample::claim("k")).await }
    })
    .await;
    assert_eq!(decisions.iter().filter(|d| **d == Decision::Execute).count(), 1);
    let second = read(&*store, &first.id).await;
    assert_eq!(second.head.epoch, first.head.epoch + 1, "a re-acquisition raises the epoch");
    assert_eq!(second.operation_id, first.operation_id, "a retry is the same operation");
}

pub(super) async fn a_look_never_acquires(subject: &dyn Subject) {
    let store = subject.store();
    let claim = sample::claim("k");
    let record = acquire(&*store, &claim).await;
    applied(&*store, &record.id, Change::release(record.head.fence(), Reason::NotExecuted)).await;
    let look = Event::Look { fingerprint: claim.attempt.fingerprint };
    for _ in 0..3 {
        let snapshot = store.get(&record.id).await.expect("the store reads");
        let head = snapshot.record.expect("the record is there").head;
        assert_eq!(transition(Some(&head), &look, snapshot.now).decision, Decision::Vacant);
    }
    assert_eq!(
        claim_decision(&*store, &sample::claim("k")).await,
        Decision::Execute,
        "it is still to be had"
    );
}

pub(super) async fn a_claim_overtaken_by_its_own_release_runs_nothing(subject: &dyn Subject) {
    let store = subject.store();
    let claim = sample::claim("k");
    let record = acquire(&*store, &claim).await;
    let release = || Change::release(record.head.fence(), Reason::ClaimUnconfirmed);
    applied(&*store, &record.id, release()).await;
    assert_eq!(claim_decision(&*store, &claim).await, Decision::Vacant, "nobody is left to run it");
    applied(&*store, &record.id, release()).await;
    assert_eq!(claim_decision(&*store, &sample::claim("k")).await, Decision::Execute);
}

pub(super) async fn a_worker_starts_a_claimed_command_once(subject: &dyn Subject) {
    let store = subject.store();
    let claim = sample::for_worker(sample::claim("k"), Duration::from_secs(60));
    let answer = store.claim(&claim).await.expect("the store takes claims");
    assert_eq!(answer.decision, Decision::Wait, "its claimer does not run it");
    let claimed = answer.record.expect("it has a record");
    assert_eq!(claimed.head.state.name(), StateName::Claimed);
    let (id, fence) = (claimed.id, claimed.head.fence());
    let decisions = race(16, |_| {
        let (store, token) = (store.clone(), sample::claim("k").attempt.token);
        async move { (token, apply(&*store, &id, Change::start(fence, token)).await.decision) }
    })
    .await;
    let winners: Vec<_> = decisions.iter().filter(|(_, d)| *d == Decision::Execute).collect();
    assert_eq!(winners.len(), 1);
    let (token, _) = *winners[0];
    let again = apply(&*store, &id, Change::start(fence, token)).await;
    assert_eq!(again.decision, Decision::Execute, "a start sent again is recognised");
    let started = again.record.expect("it has a record").head;
    assert_eq!((started.token, started.state.name()), (token, StateName::Processing));
    applied(&*store, &id, Change::complete(started.fence(), sample::created("ok"))).await;
}

pub(super) async fn a_command_that_no_worker_starts_is_free_again(subject: &dyn Subject) {
    let store = subject.store();
    let claim = sample::for_worker(sample::claim("k"), Duration::from_secs(60));
    let claimed = store.claim(&claim).await.expect("the store takes claims").record.expect("it has a record");
    subject.advance(Duration::from_secs(61));
    assert_eq!(store.sweep(10).await.expect("the store sweeps").len(), 1);
    let swept = read(&*store, &claimed.id).await.head;
    assert_eq!((swept.state.name(), swept.reason), (StateName::FailedRetryable, Reason::NeverStarted));
    let late =
        apply(&*store, &claimed.id, Change::start(claimed.head.fence(), sample::claim("k").attempt.token));
    assert_eq!(late.await.decision, Decision::Fenced, "a worker that comes too late starts nothing");
    assert_eq!(claim_decision(&*store, &sample::claim("k")).await, Decision::Execute);
}
