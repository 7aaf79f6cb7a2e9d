//! Leases: the consequence of a silent executor.

use std::time::Duration;

use semel_core::policy::OnLeaseExpired;
use semel_core::{AgedRecord, Change, Decision, Reason, Record, State, StateName, Terms};

use super::{Subject, acquire, applied, apply, claim_decision, race, read};
use crate::sample;

const PAST_THE_LEASE: Duration = Duration::from_secs(31);

pub(super) async fn an_ended_lease_is_unknown_not_free(subject: &dyn Subject) {
    let store = subject.store();
    let record = acquire(&*store, &sample::claim("k")).await;
    subject.advance(PAST_THE_LEASE);
    let decisions = race(16, |_| {
        let store = store.clone();
        async move { claim_decision(&*store, &sample::claim("k")).await }
    })
    .await;
    assert!(decisions.iter().all(|decision| *decision == Decision::Reconcile), "{decisions:?}");
    let swept = read(&*store, &record.id).await;
    assert_eq!(swept.head.state.name(), StateName::Unknown, "the claim that met it has swept it");
    assert_eq!(swept.head.reason, Reason::LeaseExpired);
    assert_eq!(swept.head.fence(), record.head.fence(), "epoch and token stay the executor's");
}

pub(super) async fn a_sweep_makes_ended_leases_unknown(subject: &dyn Subject) {
    let store = subject.store();
    let early = acquire(&*store, &sample::claim("early")).await;
    subject.advance(Duration::from_secs(20));
    let late = acquire(&*store, &sample::claim("late")).await;
    assert_eq!(store.sweep(10).await.expect("the store sweeps").len(), 0, "no lease has ended");
    subject.advance(Duration::from_secs(15));
    assert_eq!(store.sweep(10).await.expect("the store sweeps").len(), 1);
    assert_eq!(store.sweep(10).await.expect("the store sweeps").len(), 0);
    assert_eq!(read(&*store, &early.id).await.head.state.name(), StateName::Unknown);
    assert_eq!(read(&*store, &late.id).await, late);
}

pub(super) async fn two_sweepers_do_not_sweep_twice(subject: &dyn Subject) {
    let store = subject.store();
    for number in 0..20 {
        acquire(&*store, &sample::claim(&format!("key-{number}"))).await;
    }
    subject.advance(PAST_THE_LEASE);
    assert_eq!(store.sweep(5).await.expect("the store sweeps").len(), 5, "a sweep keeps to its limit");
    let counts = race(4, |_| {
        let store = store.clone();
        async move { store.sweep(100).await.expect("the store sweeps").len() }
    })
    .await;
    assert_eq!(counts.iter().sum::<usize>(), 15);
}

pub(super) async fn a_renewal_extends_the_lease(subject: &dyn Subject) {
    let store = subject.store();
    let record = acquire(&*store, &sample::claim("k")).await;
    for _ in 0..4 {
        subject.advance(Duration::from_secs(20));
        let renewed = applied(&*store, &record.id, Change::renew(record.head.fence())).await;
        assert_eq!(renewed.head.fence(), record.head.fence(), "a renewal is not a re-acquisition");
        assert_eq!(claim_decision(&*store, &sample::claim("k")).await, Decision::Wait);
        assert_eq!(store.sweep(10).await.expect("the store sweeps").len(), 0);
    }
    applied(&*store, &record.id, Change::complete(record.head.fence(), sample::created("ok"))).await;
}

pub(super) async fn a_renewal_never_leaves_unknown(subject: &dyn Subject) {
    let store = subject.store();
    for swept in [false, true] {
        let record = acquire(&*store, &sample::claim(&format!("swept-{swept}"))).await;
        subject.advance(PAST_THE_LEASE);
        if swept {
            store.sweep(10).await.expect("the store sweeps");
        }
        let answer = apply(&*store, &record.id, Change::renew(record.head.fence())).await;
        assert_eq!(answer.decision, Decision::Fenced);
        assert_eq!(read(&*store, &record.id).await.head.state.name(), StateName::Unknown);
    }
}

pub(super) async fn the_current_executor_may_settle_an_unknown_late(subject: &dyn Subject) {
    let store = subject.store();
    let declined = sample::result(&sample::response(402, "declined"));
    for (word, expected) in [
        ("complete", StateName::Succeeded),
        ("fail", StateName::FailedFinal),
        ("release", StateName::FailedRetryable),
        ("abandon", StateName::Unknown),
    ] {
        let record = acquire(&*store, &sample::claim(word)).await;
        subject.advance(PAST_THE_LEASE);
        store.sweep(10).await.expect("the store sweeps");
        assert_eq!(read(&*store, &record.id).await.head.state.name(), StateName::Unknown);
        let fence = record.head.fence();
        let change = match word {
            "complete" => Change::complete(fence, sample::created("late")),
            "fail" => Change::fail(fence, Reason::Answered, declined.clone()),
            "release" => Change::release(fence, Reason::NotExecuted),
            _ => Change::abandon(fence, Reason::TimedOut),
        };
        let settled = applied(&*store, &record.id, change).await;
        assert_eq!(settled.head.state.name(), expected, "{word}");
    }
}

pub(super) async fn an_operation_declared_safe_is_run_again_by_one(subject: &dyn Subject) {
    let store = subject.store();
    let terms = Terms { on_lease_expired: OnLeaseExpired::Rerun, ..sample::terms() };
    let claim = move || sample::under(sample::claim("k"), terms);
    let first = acquire(&*store, &claim()).await;
    subject.advance(PAST_THE_LEASE);
    let decisions = race(16, |_| {
        let store = store.clone();
        async move { claim_decision(&*store, &claim()).await }
    })
    .await;
    assert_eq!(decisions.iter().filter(|d| **d == Decision::Execute).count(), 1);
    let second = read(&*store, &first.id).await;
    assert_eq!(second.head.epoch, first.head.epoch + 1);
    assert!(matches!(second.head.state, State::Processing { .. }));
    let late = apply(&*store, &first.id, Change::complete(first.head.fence(), sample::created("late"))).await;
    assert_eq!(late.decision, Decision::Fenced);
}

pub(super) async fn a_sweep_tells_what_became_of_each_record(subject: &dyn Subject) {
    let store = subject.store();
    let died = acquire(&*store, &sample::claim("died")).await;
    let rerun = sample::under(sample::claim("rerun"), sample::terms_with_rerun());
    let rerun = acquire(&*store, &rerun).await;
    subject.advance(PAST_THE_LEASE);
    let mut swept = store.sweep(10).await.expect("the store sweeps");
    swept.sort_by_key(|aged| aged.operation_id);
    let told = |before: &Record, state| AgedRecord {
        became: Some((state, Reason::LeaseExpired)),
        ..AgedRecord::new(before, None)
    };
    let mut expected = [told(&died, StateName::Unknown), told(&rerun, StateName::FailedRetryable)];
    expected.sort_by_key(|aged| aged.operation_id);
    assert_eq!(swept, expected);
    subject.advance(Duration::from_secs(25 * 3600));
    let reaped = store.reap(10).await.expect("the store reaps");
    let was = (StateName::FailedRetryable, Reason::LeaseExpired);
    let expected = AgedRecord { was, ..AgedRecord::new(&rerun, None) };
    assert_eq!(reaped, [expected], "deleted; an unknown one is never");
}

pub(super) async fn the_age_of_a_state_counts_from_its_beginning(subject: &dyn Subject) {
    let store = subject.store();
    let tick = || subject.advance(Duration::from_secs(10));
    let running = acquire(&*store, &sample::claim("k")).await;
    assert_eq!(running.state_since, running.created_at);
    tick();
    let renewed = applied(&*store, &running.id, Change::renew(running.head.fence())).await;
    assert_eq!(renewed.state_since, running.state_since, "a renewal is no new state");
    assert!(renewed.updated_at > renewed.state_since);
    tick();
    let unknown =
        applied(&*store, &running.id, Change::abandon(running.head.fence(), Reason::TimedOut)).await;
    assert!(unknown.state_since > renewed.updated_at, "it became unknown later");
    for look in 0..3 {
        tick();
        let looked = applied(&*store, &unknown.id, Change::postpone(unknown.updated_at, look)).await;
        assert_eq!(looked.state_since, unknown.state_since, "a look without evidence is no new state");
        assert_eq!(read(&*store, &unknown.id).await.state_since, unknown.state_since);
    }
    tick();
    let settled = applied(&*store, &unknown.id, Change::resolve_executed(sample::created("found"))).await;
    assert_eq!(settled.state_since, settled.updated_at);
    let again = acquire(&*store, &sample::claim("again")).await;
    tick();
    applied(&*store, &again.id, Change::release(again.head.fence(), Reason::NotExecuted)).await;
    tick();
    let again = acquire(&*store, &sample::claim("again")).await;
    assert_eq!(again.state_since, again.updated_at, "a new attempt runs since now");
    assert!(again.state_since > again.created_at);
}
