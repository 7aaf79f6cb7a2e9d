//! Guarantees when answers are lost and processes come and go.

use semel_core::{Change, Decision, Records, StoreError};

use super::{Subject, acquire, applied, claim_decision, complete, race, read};
use crate::sample;

pub(super) async fn an_ambiguous_claim_is_decided_by_its_token(subject: &dyn Subject) {
    if !subject.capabilities().loses_answers {
        return;
    }
    let store = subject.store();
    let claim = sample::claim("k");
    subject.lose_next_answer();
    // The store may find out by itself, or report that it does not know. It may not report that it wrote
    // nothing.
    match store.claim(&claim).await {
        Ok(answer) => assert_eq!(answer.decision, Decision::Execute),
        Err(error) => assert!(matches!(error, StoreError::Ambiguous(_)), "{error}"),
    }
    let record = acquire(&*store, &claim).await;
    assert_eq!(record.head.epoch, 1, "it was acquired once");
    assert_eq!(claim_decision(&*store, &sample::claim("k")).await, Decision::Wait);
}

pub(super) async fn an_ambiguous_completion_is_decided_by_its_token(subject: &dyn Subject) {
    if !subject.capabilities().loses_answers {
        return;
    }
    let store = subject.store();
    let record = acquire(&*store, &sample::claim("k")).await;
    let change = Change::complete(record.head.fence(), sample::created("ok"));
    subject.lose_next_answer();
    match store.apply(&record.id, &change).await {
        Ok(answer) => assert_eq!(answer.decision, Decision::Applied),
        Err(error) => assert!(matches!(error, StoreError::Ambiguous(_)), "{error}"),
    }
    let settled = applied(&*store, &record.id, change).await;
    assert_eq!(settled.result, Some(sample::created("ok")));
}

pub(super) async fn a_dropped_claim_is_decided_by_sending_it_again(subject: &dyn Subject) {
    let store = subject.store();
    let claim = sample::claim("k");
    tokio::select! {
        biased;
        _ = store.claim(&claim) => {}
        () = std::future::ready(()) => {}
    }
    let record = acquire(&*store, &claim).await;
    assert_eq!(record.head.epoch, 1, "it was acquired once");
    applied(&*store, &record.id, Change::complete(record.head.fence(), sample::created("ok"))).await;
}

pub(super) async fn answered_changes_are_visible_to_another_process(subject: &dyn Subject) {
    if !subject.capabilities().durable {
        return;
    }
    let (claim, _) = complete(&*subject.store(), "done", "ok").await;
    let running = acquire(&*subject.store(), &sample::claim("running")).await;
    let other = subject.open_again().await;
    assert_eq!(read(&*other, &sample::id(&claim)).await, read(&*subject.store(), &sample::id(&claim)).await);
    assert_eq!(claim_decision(&*other, &sample::claim("done")).await, Decision::Replay);
    assert_eq!(claim_decision(&*other, &sample::claim("running")).await, Decision::Wait);
    applied(&*other, &running.id, Change::complete(running.head.fence(), sample::created("elsewhere"))).await;
    assert_eq!(claim_decision(&*subject.store(), &sample::claim("running")).await, Decision::Replay);
}

pub(super) async fn two_processes_race_for_one_key(subject: &dyn Subject) {
    if !subject.capabilities().durable {
        return;
    }
    let stores: [std::sync::Arc<dyn Records>; 2] = [subject.store(), subject.open_again().await];
    for round in 0..10 {
        let decisions = race(16, |number| {
            let store = stores[number % 2].clone();
            async move { claim_decision(&*store, &sample::claim(&format!("round-{round}"))).await }
        })
        .await;
        assert_eq!(decisions.iter().filter(|d| **d == Decision::Execute).count(), 1, "round {round}");
    }
}
