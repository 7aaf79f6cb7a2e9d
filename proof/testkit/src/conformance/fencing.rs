//! Fencing: only the current executor's word counts, and it counts once.

use semel_core::{AttemptToken, Change, Decision, Fence, Reason, StateName};

use super::{Subject, acquire, applied, apply, claim_decision, complete, race, read};
use crate::sample;

/// Returns every change that an executor may send.
fn words(fence: Fence) -> [Change; 5] {
    [
        Change::renew(fence),
        Change::complete(fence, sample::created("late")),
        Change::fail(fence, Reason::Answered, sample::result(&sample::response(402, "late"))),
        Change::release(fence, Reason::NotExecuted),
        Change::abandon(fence, Reason::TimedOut),
    ]
}

pub(super) async fn a_completed_command_is_replayed(subject: &dyn Subject) {
    let store = subject.store();
    let (claim, _) = complete(&*store, "k", r#"{"paid":true}"#).await;
    for _ in 0..3 {
        let answer = store.claim(&sample::claim("k")).await.expect("the store takes claims");
        assert_eq!(answer.decision, Decision::Replay);
        let record = answer.record.expect("a replay has a record");
        assert_eq!(record.head.state.name(), StateName::Succeeded);
        assert_eq!(record.result, Some(sample::created(r#"{"paid":true}"#)));
        assert_eq!(record.operation_id, claim.operation_id);
        let remaining = record.head.state.expires_at().expect("it expires").since(answer.now);
        assert!(remaining <= claim.attempt.terms.ttl, "the TTL counts from completion");
    }
}

pub(super) async fn a_failed_command_is_replayed(subject: &dyn Subject) {
    let store = subject.store();
    let record = acquire(&*store, &sample::claim("k")).await;
    let declined = sample::result(&sample::response(402, "declined"));
    applied(&*store, &record.id, Change::fail(record.head.fence(), Reason::Answered, declined.clone())).await;
    let answer = store.claim(&sample::claim("k")).await.expect("the store takes claims");
    assert_eq!(answer.decision, Decision::Replay);
    let record = answer.record.expect("a replay has a record");
    assert_eq!((record.head.state.name(), record.result), (StateName::FailedFinal, Some(declined)));
}

pub(super) async fn a_completion_sent_again_is_recognised_as_the_same(subject: &dyn Subject) {
    let store = subject.store();
    let (claim, fence) = complete(&*store, "k", "first").await;
    let before = read(&*store, &sample::id(&claim)).await;
    assert_eq!(before.head.token, claim.attempt.token, "the token stays after completion");
    let again = applied(&*store, &before.id, Change::complete(fence, sample::created("first"))).await;
    assert_eq!(again, before);
}

pub(super) async fn a_wrong_epoch_or_token_changes_nothing(subject: &dyn Subject) {
    let store = subject.store();
    let record = acquire(&*store, &sample::claim("k")).await;
    let fence = record.head.fence();
    let strangers = [
        Fence { epoch: fence.epoch + 1, ..fence },
        Fence { epoch: fence.epoch - 1, ..fence },
        Fence { token: AttemptToken::from_bytes([0; 16]), ..fence },
    ];
    for stranger in strangers {
        for word in words(stranger) {
            let answer = apply(&*store, &record.id, word.clone()).await;
            assert_eq!(answer.decision, Decision::Fenced, "{word:?}");
            assert_eq!(answer.record.as_ref(), Some(&record), "{word:?}");
            assert_eq!(read(&*store, &record.id).await, record, "{word:?}");
        }
    }
    let absent = sample::id(&sample::claim("nobody"));
    for word in words(fence) {
        let answer = apply(&*store, &absent, word).await;
        assert_eq!((answer.decision, answer.record), (Decision::Fenced, None));
    }
}

pub(super) async fn an_executor_that_was_replaced_is_fenced(subject: &dyn Subject) {
    let store = subject.store();
    let zombie = acquire(&*store, &sample::claim("k")).await;
    applied(&*store, &zombie.id, Change::release(zombie.head.fence(), Reason::NotExecuted)).await;
    let current = acquire(&*store, &sample::claim("k")).await;
    for word in words(zombie.head.fence()) {
        let answer = apply(&*store, &zombie.id, word.clone()).await;
        assert_eq!(answer.decision, Decision::Fenced, "{word:?}");
        assert_eq!(read(&*store, &zombie.id).await, current, "{word:?}");
    }
    applied(&*store, &current.id, Change::complete(current.head.fence(), sample::created("current"))).await;
    for word in words(zombie.head.fence()) {
        let answer = apply(&*store, &zombie.id, word).await;
        assert_eq!(answer.decision, Decision::Fenced);
        let truth = answer.record.expect("the zombie is shown the truth").result;
        assert_eq!(truth, Some(sample::created("current")));
    }
}

pub(super) async fn a_settled_record_never_changes(subject: &dyn Subject) {
    let store = subject.store();
    let (claim, fence) = complete(&*store, "k", "the truth").await;
    let settled = read(&*store, &sample::id(&claim)).await;
    let stranger = Fence { token: AttemptToken::from_bytes([1; 16]), ..fence };
    let verdicts = [
        Change::resolve_executed(sample::created("another truth")),
        Change::resolve_not_executed(semel_core::transition::Proof::ProviderTombstone),
        Change::postpone(settled.created_at, 0),
        Change::free(),
    ];
    for change in words(fence).into_iter().chain(words(stranger)).chain(verdicts) {
        apply(&*store, &settled.id, change.clone()).await;
        assert_eq!(read(&*store, &settled.id).await, settled, "{change:?}");
    }
    assert_eq!(claim_decision(&*store, &sample::claim("k")).await, Decision::Replay);
    assert_eq!(read(&*store, &settled.id).await, settled);
}

pub(super) async fn of_racing_completions_one_is_stored(subject: &dyn Subject) {
    let store = subject.store();
    let record = acquire(&*store, &sample::claim("k")).await;
    let (id, fence) = (record.id, record.head.fence());
    // Executors do not contradict themselves; if one did, the first word would stand.
    let answers = race(16, |number| {
        let store = store.clone();
        async move {
            let word = match number % 2 {
                0 => Change::complete(fence, sample::created("yes")),
                _ => Change::fail(fence, Reason::Answered, sample::result(&sample::response(402, "no"))),
            };
            apply(&*store, &id, word).await.record.expect("the record is there").result
        }
    })
    .await;
    let stored = read(&*store, &id).await.result;
    assert!(stored.is_some());
    assert!(answers.iter().all(|answer| *answer == stored), "everybody is shown what is stored");
}
