//! Expiry: the deletion of records, and its time.

use std::time::Duration;

use semel_core::transition::{PURGE_GRACE, Refusal};
use semel_core::{Change, Claim, Decision, Lapse, Reason, StateName};

use super::{Subject, acquire, applied, apply, claim_decision, complete, race, read};
use crate::sample;

const A_DAY: Duration = Duration::from_secs(24 * 60 * 60 + 1);

pub(super) async fn an_expired_key_is_a_new_command(subject: &dyn Subject) {
    let store = subject.store();
    for reaped in [false, true] {
        let key = format!("reaped-{reaped}");
        let (old, fence) = complete(&*store, &key, "old").await;
        subject.advance(A_DAY);
        if reaped {
            store.reap(10).await.expect("the store reaps");
            assert_eq!(store.get(&sample::id(&old)).await.expect("the store reads").record, None);
        }
        let fresh = sample::for_body(sample::claim(&key), "another body altogether");
        let record = acquire(&*store, &fresh).await;
        assert_eq!(record.operation_id, fresh.operation_id, "it is a new operation");
        assert_eq!(record.head.fingerprint, fresh.attempt.fingerprint);
        assert_eq!(record.result, None, "nothing of the old one is left");
        assert_eq!(read(&*store, &record.id).await, record);
        let late = apply(&*store, &record.id, Change::complete(fence, sample::created("old"))).await;
        assert_eq!(late.decision, Decision::Fenced);
    }
}

pub(super) async fn an_expired_key_with_a_tombstone_is_refused(subject: &dyn Subject) {
    let store = subject.store();
    for reaped in [false, true] {
        let claim =
            || sample::under(sample::claim(&format!("reaped-{reaped}")), sample::terms_with_tombstones());
        let record = acquire(&*store, &claim()).await;
        applied(&*store, &record.id, Change::complete(record.head.fence(), sample::created("ok"))).await;
        subject.advance(A_DAY);
        if reaped {
            assert_eq!(store.reap(10).await.expect("the store reaps").len(), 1);
            let tombstone = read(&*store, &record.id).await;
            assert_eq!(tombstone.head.state.name(), StateName::Expired);
            assert_eq!(tombstone.result, None, "a tombstone keeps no response");
        }
        assert_eq!(claim_decision(&*store, &claim()).await, Decision::Expired);
        let other = sample::for_body(claim(), "another body");
        assert_eq!(claim_decision(&*store, &other).await, Decision::Mismatch);
        subject.advance(7 * A_DAY);
        assert_eq!(claim_decision(&*store, &claim()).await, Decision::Execute, "tombstones end too");
    }
}

pub(super) async fn only_settled_records_are_reaped(subject: &dyn Subject) {
    let store = subject.store();
    let running = acquire(&*store, &sample::claim("running")).await;
    let claimed = sample::for_worker(sample::claim("claimed"), 900 * A_DAY);
    store.claim(&claimed).await.expect("the store takes claims");
    let lost = acquire(&*store, &sample::claim("lost")).await;
    applied(&*store, &lost.id, Change::abandon(lost.head.fence(), Reason::TimedOut)).await;
    let released = acquire(&*store, &sample::claim("released")).await;
    applied(&*store, &released.id, Change::release(released.head.fence(), Reason::NotExecuted)).await;
    complete(&*store, "done", "ok").await;

    assert_eq!(store.reap(100).await.expect("the store reaps").len(), 0, "nothing has expired");
    subject.advance(400 * A_DAY);
    assert_eq!(store.reap(100).await.expect("the store reaps").len(), 2, "the released one and the done one");
    assert_eq!(read(&*store, &lost.id).await.head.state.name(), StateName::Unknown);
    assert_eq!(read(&*store, &sample::id(&claimed)).await.head.state.name(), StateName::Claimed);
    assert!(store.get(&running.id).await.expect("the store reads").record.is_some());
    assert_eq!(claim_decision(&*store, &sample::claim("running")).await, Decision::Reconcile);
}

pub(super) async fn reaping_goes_in_batches_beside_live_traffic(subject: &dyn Subject) {
    let store = subject.store();
    for number in 0..30 {
        complete(&*store, &format!("old-{number}"), "old").await;
    }
    subject.advance(A_DAY);
    let live = tokio::spawn({
        let store = store.clone();
        async move {
            for number in 0..30 {
                complete(&*store, &format!("new-{number}"), "new").await;
            }
        }
    });
    let mut reaped = Vec::new();
    loop {
        // While others write, a store may leave all records for the next call.
        let alone = live.is_finished();
        let count = store.reap(7).await.expect("the store reaps").len();
        assert!(count <= 7, "a reap keeps to its limit");
        match count {
            0 if alone => break,
            0 => {}
            _ => reaped.push(count),
        }
        tokio::task::yield_now().await;
    }
    live.await.expect("live traffic goes on");
    assert_eq!(reaped.iter().sum::<usize>(), 30, "{reaped:?}");
    for number in 0..30 {
        let claim = sample::claim(&format!("new-{number}"));
        assert_eq!(claim_decision(&*store, &claim).await, Decision::Replay, "live records stay");
    }
}

pub(super) async fn two_reapers_do_not_reap_twice(subject: &dyn Subject) {
    let store = subject.store();
    for number in 0..20 {
        complete(&*store, &format!("old-{number}"), "old").await;
    }
    subject.advance(A_DAY);
    let counts = race(4, |_| {
        let store = store.clone();
        async move { store.reap(100).await.expect("the store reaps").len() }
    })
    .await;
    assert_eq!(counts.iter().sum::<usize>(), 20);
}

pub(super) async fn a_purge_leaves_a_tombstone_until_caches_have_noticed(subject: &dyn Subject) {
    let store = subject.store();
    let (claim, _) = complete(&*store, "k", "secret").await;
    let purged = applied(&*store, &sample::id(&claim), Change::purge()).await;
    assert_eq!((purged.head.state.name(), purged.head.reason), (StateName::Expired, Reason::Purged));
    assert_eq!(read(&*store, &purged.id).await.result, None, "the response is gone at once");
    assert_eq!(claim_decision(&*store, &sample::claim("k")).await, Decision::Expired);
    subject.advance(PURGE_GRACE);
    assert_eq!(claim_decision(&*store, &sample::claim("k")).await, Decision::Execute);

    let running = acquire(&*store, &sample::claim("running")).await;
    let answer = apply(&*store, &running.id, Change::purge()).await;
    assert_eq!(answer.decision, Decision::Refused(Refusal::WrongState));
    assert_eq!(read(&*store, &running.id).await, running);
}

pub(super) async fn only_a_command_that_did_not_run_is_freed(subject: &dyn Subject) {
    let store = subject.store();
    let released = acquire(&*store, &sample::claim("released")).await;
    applied(&*store, &released.id, Change::release(released.head.fence(), Reason::NotExecuted)).await;
    let answer = apply(&*store, &released.id, Change::free()).await;
    assert_eq!((answer.decision, answer.record), (Decision::Applied, None));
    let other = sample::for_body(sample::claim("released"), "another body");
    assert_eq!(claim_decision(&*store, &other).await, Decision::Execute, "the key is as good as new");

    let running = acquire(&*store, &sample::claim("running")).await;
    let answer = apply(&*store, &running.id, Change::free()).await;
    assert_eq!(answer.decision, Decision::Refused(Refusal::WrongState));
    assert_eq!(read(&*store, &running.id).await, running);
}

/// Claims meet a row that others delete at the same time. Every claim must get an answer, and each
/// acquisition has one owner.
pub(super) async fn a_claim_survives_that_its_row_vanishes(subject: &dyn Subject) {
    let store = subject.store();
    let id = sample::id(&sample::claim("k"));
    let executed = race(8, |_| {
        let store = store.clone();
        async move {
            let mut executed = 0;
            for _ in 0..25 {
                let answer = store.claim(&sample::claim("k")).await.expect("a claim ends in an answer");
                if answer.decision != Decision::Execute {
                    assert_eq!(answer.decision, Decision::Wait);
                    continue;
                }
                executed += 1;
                let fence = answer.record.expect("it has a record").head.fence();
                let release = Change::release(fence, Reason::NotExecuted);
                assert_eq!(
                    apply(&*store, &id, release).await.decision,
                    Decision::Applied,
                    "it was mine alone"
                );
                // Either a claim acquires the command first, or this deletes it.
                apply(&*store, &id, Change::free()).await;
            }
            executed
        }
    })
    .await;
    assert!(executed.iter().sum::<u32>() > 0);
}

pub(super) async fn a_claim_tells_what_had_lapsed_before_it(subject: &dyn Subject) {
    let store = subject.store();
    let send = async |claim: &Claim| {
        let answer = store.claim(claim).await.expect("the store takes claims");
        (answer.decision, answer.lapse)
    };
    let (died, done) = (sample::claim("died"), sample::claim("done"));
    assert_eq!(send(&died).await, (Decision::Execute, None), "it is the first");
    complete(&*store, "done", "ok").await;
    assert_eq!(send(&done).await, (Decision::Replay, None), "it has not expired");
    subject.advance(A_DAY);
    let retry = || sample::claim("died");
    assert_eq!(
        send(&retry()).await,
        (Decision::Reconcile, Some(Lapse::Lease)),
        "this claim found its lease expired"
    );
    assert_eq!(send(&retry()).await, (Decision::Reconcile, None), "the one before it wrote that");
    assert_eq!(
        send(&done).await,
        (Decision::Execute, Some(Lapse::Retention)),
        "a late retry is a new command"
    );
    assert_eq!(send(&sample::claim("new")).await, (Decision::Execute, None));
}
