//! The fence of a restored store: no command begins that an attempt may have begun which the store has forgotten.

use std::time::Duration;

use bytes::Bytes;
use semel_core::store_fence::CLOCK_DIFFERENCE;
use semel_core::transition::{Proof, Refusal};
use semel_core::{
    Attempt, Change, Claim, Decision, HoldChange, HoldTarget, Note, Reason, Records, State, StateName,
    StoredRequest, WaitingFilter,
};

use super::{Subject, acquire, applied, apply, claim_decision, complete, race, read};
use crate::sample;

const REFUSED: Decision = Decision::Refused(Refusal::StoreFenced);
const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);
/// A lease, a call and the margin under the default terms, and a little more.
const PAST_THE_QUARANTINE: Duration = Duration::from_secs(61);

async fn hold(subject: &dyn Subject, target: HoldTarget) {
    let note = Note { who: "erin".into(), action: format!("hold {target}"), why: "restored".into() };
    let done = subject.holds().hold(&target, &note).await.expect("the store takes holds");
    assert_eq!(done, HoldChange::Done);
}

async fn lift(subject: &dyn Subject) {
    let note = Note { who: "erin".into(), action: "lift store".into(), why: "compared".into() };
    let done = subject.holds().lift(&HoldTarget::Store, &note).await.expect("the store lifts holds");
    assert_eq!(done, HoldChange::Done);
}

fn look_up_first() -> HoldTarget {
    HoldTarget::LookUpFirst("payments.create".to_owned())
}

fn request() -> StoredRequest {
    StoredRequest::input(Bytes::from_static(b"what was asked"))
}

async fn is_absent(store: &dyn Records, key: &str) -> bool {
    store.get(&sample::id(&sample::claim(key))).await.expect("the store reads").record.is_none()
}

pub(super) async fn under_a_fence_only_what_the_store_knows_is_answered(subject: &dyn Subject) {
    let store = subject.store();
    complete(&*store, "done", "charged").await;
    let running = acquire(&*store, &sample::claim("running")).await;
    let lost = acquire(&*store, &sample::claim("lost")).await;
    applied(&*store, &lost.id, Change::abandon(lost.head.fence(), Reason::TimedOut)).await;
    subject.advance(SECOND);
    hold(subject, HoldTarget::Store).await;
    subject.advance(SECOND);
    for (key, decision) in
        [("done", Decision::Replay), ("running", Decision::Reconcile), ("lost", Decision::Reconcile)]
    {
        assert_eq!(claim_decision(&*store, &sample::claim(key)).await, decision, "{key}");
    }
    for record in [&running, &lost] {
        let doubted = read(&*store, &record.id).await;
        assert_eq!(doubted.head.reason, Reason::StoreRestored, "later attempts may be forgotten");
    }
    let other = sample::for_body(sample::claim("done"), "another");
    assert_eq!(claim_decision(&*store, &other).await, Decision::Mismatch);
    let mut claims = vec![
        sample::claim("missing"),
        sample::for_worker(sample::claim("missing"), HOUR),
        sample::claim("missing"),
    ];
    if subject.capabilities().references {
        claims.push(sample::with_reference(sample::claim("missing"), "order 7"));
    }
    for claim in claims {
        let answer = store.claim(&claim).await.expect("the store takes claims");
        assert_eq!((answer.decision, answer.record), (REFUSED, None));
        assert!(is_absent(&*store, "missing").await);
    }
    let racing = race(8, |number| {
        let (store, claim) = (subject.store(), sample::claim(&format!("racing-{}", number % 3)));
        async move { store.claim(&claim).await.expect("the store takes claims").decision }
    });
    assert_eq!(racing.await, [REFUSED; 8]);
    applied(&*store, &running.id, Change::complete(running.head.fence(), sample::created("late"))).await;
    assert_eq!(claim_decision(&*store, &sample::claim("running")).await, Decision::Replay);
    lift(subject).await;
    acquire(&*store, &sample::claim("missing")).await;
}

pub(super) async fn under_a_fence_only_a_verdict_frees_what_counted_as_not_executed(subject: &dyn Subject) {
    let store = subject.store();
    let mut freed = Vec::new();
    for key in ["released", "judged-before", "judged-since"] {
        freed.push(acquire(&*store, &sample::claim(key)).await);
    }
    let tombstone = || Change::resolve_not_executed(Proof::ProviderTombstone);
    applied(&*store, &freed[0].id, Change::release(freed[0].head.fence(), Reason::NotExecuted)).await;
    for record in &freed[1..] {
        applied(&*store, &record.id, Change::abandon(record.head.fence(), Reason::TimedOut)).await;
    }
    applied(&*store, &freed[1].id, tombstone()).await;
    subject.advance(SECOND);
    hold(subject, HoldTarget::Store).await;
    subject.advance(SECOND);
    for key in ["released", "judged-before"] {
        let before = read(&*store, &sample::id(&sample::claim(key))).await;
        assert_eq!(claim_decision(&*store, &sample::claim(key)).await, REFUSED, "{key}");
        assert_eq!(read(&*store, &before.id).await, before, "{key}");
    }
    let early = apply(&*store, &freed[2].id, tombstone()).await.decision;
    assert!(
        matches!(early, Decision::Refused(Refusal::StillInFlight { .. })),
        "a forgotten attempt may be in flight: {early:?}"
    );
    subject.advance(PAST_THE_QUARANTINE);
    applied(&*store, &freed[2].id, tombstone()).await;
    let again = acquire(&*store, &sample::claim("judged-since")).await;
    assert_eq!(again.head.epoch, 2);
}

pub(super) async fn under_a_fence_missing_keys_are_looked_up_first_where_an_operator_says_so(
    subject: &dyn Subject,
) {
    let store = subject.store();
    let before = acquire(&*store, &sample::claim("released")).await;
    applied(&*store, &before.id, Change::release(before.head.fence(), Reason::NotExecuted)).await;
    subject.advance(SECOND);
    hold(subject, HoldTarget::Store).await;
    hold(subject, look_up_first()).await;
    let kept = sample::claim("kept");
    let kept = Claim { request: Some(request()), ..kept }.kept_while_unknown();
    let mut for_worker = sample::for_worker(sample::claim("for-a-worker"), HOUR);
    for_worker.request = Some(request());
    let claims = [sample::claim("missing"), sample::claim("released"), kept, for_worker];
    for claim in &claims {
        let key = claim.scope.key().as_str();
        let answer = store.claim(claim).await.expect("the store takes claims");
        assert_eq!(answer.decision, Decision::Reconcile, "{key}");
        let record = answer.record.expect("it has a record");
        assert_eq!(read(&*store, &record.id).await, record, "{key}");
        assert_eq!(
            (record.head.state.name(), record.head.reason),
            (StateName::Unknown, Reason::StoreRestored)
        );
        let State::Unknown { quarantine_until, .. } = record.head.state else { panic!("it is unknown") };
        assert_eq!(quarantine_until, answer.now.plus(record.head.terms.quarantine), "{key}");
        let release = Change::release(record.head.fence(), Reason::ClaimUnconfirmed);
        assert_eq!(apply(&*store, &record.id, release).await.decision, Decision::Fenced, "{key}");
        assert_eq!(claim_decision(&*store, claim).await, Decision::Reconcile, "{key}: sent again");
        let note = Note { who: "erin".into(), action: "read-request".into(), why: "a test".into() };
        let stored = store.read_request(record.operation_id, &note).await.expect("the store reads");
        assert_eq!(stored.is_some(), key == "kept", "{key}");
        subject.advance(PAST_THE_QUARANTINE);
        applied(&*store, &record.id, Change::resolve_not_executed(Proof::Quarantine)).await;
        let token = sample::claim(key).attempt.token;
        let retry = Claim { attempt: Attempt { token, ..claim.attempt }, ..claim.clone() };
        let again = store.claim(&retry).await.expect("the store takes claims");
        let begun = if key == "for-a-worker" { Decision::Wait } else { Decision::Execute };
        assert_eq!(again.decision, begun, "{key}");
        assert_eq!(again.record.map(|again| again.head.epoch), Some(record.head.epoch + 1), "{key}");
    }
    let racing = race(8, |_| {
        let (store, claim) = (subject.store(), sample::claim("racing"));
        async move { store.claim(&claim).await.expect("the store takes claims") }
    });
    let racing = racing.await;
    assert!(racing.iter().all(|answer| answer.decision == Decision::Reconcile));
    let ids = racing.iter().filter_map(|answer| answer.record.as_ref()).map(|record| record.operation_id);
    assert_eq!(ids.collect::<std::collections::HashSet<_>>().len(), 1, "one of them is the first");
}

pub(super) async fn under_a_fence_no_new_command_takes_a_business_reference(subject: &dyn Subject) {
    let store = subject.store();
    let younger = HoldTarget::YoungerKeys("payments.create".to_owned());
    for target in [HoldTarget::Store, look_up_first(), younger] {
        hold(subject, target).await;
    }
    subject.advance(HOUR);
    let now = store.now().await.expect("the store has a time");
    let digits = format!("{:012x}", now.as_millis());
    let young = format!("{}-{}-7abc-8def-0123456789ab", &digits[..8], &digits[8..]);
    for key in ["referring", &young] {
        let referring = || sample::with_reference(sample::claim(key), "order 7");
        let refused = claim_decision(&*store, &referring()).await;
        let expected = if subject.capabilities().references { REFUSED } else { refused };
        assert_eq!(refused, expected, "{key}: a forgotten command may hold the reference");
    }
}

pub(super) async fn under_a_fence_younger_keys_run_where_an_operator_says_so(subject: &dyn Subject) {
    let store = subject.store();
    let younger = HoldTarget::YoungerKeys("payments.create".to_owned());
    hold(subject, HoldTarget::Store).await;
    let fenced_at = store.now().await.expect("the store has a time");
    subject.advance(HOUR);
    let key = |after: Duration, number: u8| {
        let digits = format!("{:012x}", fenced_at.plus(after).as_millis());
        format!("{}-{}-7abc-8def-0123456789{number:02x}", &digits[..8], &digits[8..])
    };
    let (young, old) = (key(HOUR, 1), key(CLOCK_DIFFERENCE / 2, 2));
    assert_eq!(claim_decision(&*store, &sample::claim(&young)).await, REFUSED, "the operator chose nothing");
    hold(subject, younger).await;
    acquire(&*store, &sample::claim(&young)).await;
    for other in [&old, &key(HOUR * 2, 3), "an-ordinary-key-without-a-time"] {
        assert_eq!(claim_decision(&*store, &sample::claim(other)).await, REFUSED, "{other}");
    }
    let released = read(&*store, &sample::id(&sample::claim(&young))).await;
    applied(&*store, &released.id, Change::release(released.head.fence(), Reason::NotExecuted)).await;
    let again = acquire(&*store, &sample::claim(&young)).await;
    assert_eq!(again.head.epoch, 2, "the store knows all of its attempts");
    let elsewhere = sample::scope_of("acme", "alice", "refunds.create", &key(HOUR, 4));
    assert_eq!(
        claim_decision(&*store, &sample::claim_on(elsewhere)).await,
        REFUSED,
        "of this operation only"
    );
}

pub(super) async fn a_command_whose_end_may_be_forgotten_is_unknown_and_no_worker_starts_it(
    subject: &dyn Subject,
) {
    let store = subject.store();
    let mut waiting = sample::for_worker(sample::claim("waiting"), HOUR);
    waiting.request = Some(request());
    assert_eq!(claim_decision(&*store, &waiting).await, Decision::Wait);
    let running = acquire(&*store, &sample::claim("running")).await;
    let (done, _) = complete(&*store, "done", "charged").await;
    let all = WaitingFilter { operations: None, phased: false, limit: 10, share: 10, after: None };
    assert_eq!(store.waiting(&all).await.expect("the store reads").found.len(), 1);
    subject.advance(SECOND);
    hold(subject, HoldTarget::Store).await;
    assert_eq!(store.waiting(&all).await.expect("the store reads").found.len(), 0, "it hands out no work");
    assert_eq!(store.due_to_reconcile(10).await.expect("the store reads").len(), 0);
    let before = read(&*store, &sample::id(&waiting)).await;
    let start = Change::start(before.head.fence(), crate::sample::claim("any").attempt.token);
    assert_eq!(apply(&*store, &before.id, start).await.decision, Decision::Fenced, "a start on its way");
    lift(subject).await;
    for claim in [&waiting, &sample::claim("running")] {
        let unknown = match claim.scope.key().as_str() {
            "waiting" => read(&*store, &sample::id(claim)).await,
            _ => applied(&*store, &sample::id(claim), Change::doubt()).await,
        };
        assert_eq!(
            (unknown.head.state.name(), unknown.head.reason),
            (StateName::Unknown, Reason::StoreRestored)
        );
        assert_eq!(read(&*store, &unknown.id).await, unknown);
        assert_eq!(apply(&*store, &unknown.id, Change::doubt()).await.decision, Decision::Idle);
    }
    assert_eq!(apply(&*store, &sample::id(&done), Change::doubt()).await.decision, Decision::Idle);
    let late = Change::complete(running.head.fence(), sample::created("its own word"));
    applied(&*store, &running.id, late).await;
    let before = read(&*store, &sample::id(&waiting)).await;
    let start = Change::start(before.head.fence(), crate::sample::claim("any").attempt.token);
    assert_eq!(apply(&*store, &before.id, start).await.decision, Decision::Fenced);
}
