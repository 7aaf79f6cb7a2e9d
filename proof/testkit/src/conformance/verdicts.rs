//! Verdicts: the ways out of `Unknown`.

use std::time::Duration;

use semel_core::transition::{Proof, Refusal};
use semel_core::{Change, Decision, Reason, Record, Records, State, StateName};

use super::{Subject, acquire, applied, apply, claim_decision, complete, read};
use crate::sample;

/// A lease, a call and the margin under the default terms, and a little more.
const PAST_THE_QUARANTINE: Duration = Duration::from_secs(61);

async fn lose(store: &dyn Records, key: &str) -> Record {
    let record = acquire(store, &sample::claim(key)).await;
    applied(store, &record.id, Change::abandon(record.head.fence(), Reason::TimedOut)).await
}

pub(super) async fn a_verdict_settles_an_unknown(subject: &dyn Subject) {
    let store = subject.store();
    let declined = sample::result(&sample::response(402, "declined"));
    for (key, result, state) in [
        ("made", sample::created("found at the provider"), StateName::Succeeded),
        ("declined", declined, StateName::FailedFinal),
    ] {
        let lost = lose(&*store, key).await;
        assert_eq!(claim_decision(&*store, &sample::claim(key)).await, Decision::Reconcile);
        let settled = applied(&*store, &lost.id, Change::resolve_executed(result.clone())).await;
        assert_eq!((settled.head.state.name(), settled.result), (state, Some(result)));
        assert_eq!(settled.head.reason, Reason::VerdictExecuted);
        assert_eq!(claim_decision(&*store, &sample::claim(key)).await, Decision::Replay);
    }
    for (proof, reason) in [
        (Proof::ProviderDeduplicates, Reason::VerdictDeduplicated),
        (Proof::ProviderTombstone, Reason::VerdictNotExecuted),
    ] {
        let lost = lose(&*store, &format!("{proof:?}")).await;
        let freed = applied(&*store, &lost.id, Change::resolve_not_executed(proof)).await;
        assert_eq!(freed.head.state.name(), StateName::FailedRetryable);
        assert_eq!(freed.head.reason, reason);
        let again = acquire(&*store, &sample::claim(&format!("{proof:?}"))).await;
        assert_eq!(again.head.epoch, lost.head.epoch + 1);
    }
}

pub(super) async fn a_late_completion_does_not_overwrite_a_verdict(subject: &dyn Subject) {
    let store = subject.store();
    let lost = lose(&*store, "k").await;
    let settled = applied(&*store, &lost.id, Change::resolve_executed(sample::created("the verdict"))).await;
    let late = Change::complete(lost.head.fence(), sample::created("the executor's own"));
    let answer = apply(&*store, &lost.id, late).await;
    assert_eq!(answer.decision, Decision::Fenced, "its client must get the record's truth, not its own");
    assert_eq!(answer.record.as_ref(), Some(&settled));
    assert_eq!(read(&*store, &lost.id).await, settled);
}

pub(super) async fn not_executed_is_refused_while_a_call_may_be_in_flight(subject: &dyn Subject) {
    let store = subject.store();
    let lost = lose(&*store, "k").await;
    let State::Unknown { quarantine_until, .. } = lost.head.state else { panic!("it is unknown") };
    let verdict = || Change::resolve_not_executed(Proof::Quarantine);
    let answer = apply(&*store, &lost.id, verdict()).await;
    let refusal = Refusal::StillInFlight { until: quarantine_until };
    assert_eq!(answer.decision, Decision::Refused(refusal));
    assert_eq!(read(&*store, &lost.id).await, lost);
    let during = answer.now;
    subject.advance(PAST_THE_QUARANTINE);
    let answer = apply(&*store, &lost.id, verdict().seen_at(during)).await;
    assert_eq!(answer.decision, Decision::Refused(refusal), "what landed since was not seen");
    let freed = applied(&*store, &lost.id, verdict().seen_at(answer.now)).await;
    assert_eq!(freed.head.state.name(), StateName::FailedRetryable);
}

pub(super) async fn a_late_completion_is_evidence_against_not_executed(subject: &dyn Subject) {
    let store = subject.store();
    let lost = lose(&*store, "k").await;
    let not_executed = || Change::resolve_not_executed(Proof::ProviderTombstone);
    let freed = applied(&*store, &lost.id, not_executed()).await;
    let fail =
        Change::fail(lost.head.fence(), Reason::Answered, sample::result(&sample::response(402, "no")));
    assert_eq!(apply(&*store, &lost.id, fail).await.decision, Decision::Fenced, "no effect, nothing to tell");
    assert_eq!(read(&*store, &lost.id).await, freed);
    let late = || Change::complete(lost.head.fence(), sample::created("it did happen"));
    let settled = applied(&*store, &lost.id, late()).await;
    assert_eq!(settled.head.state.name(), StateName::Succeeded);
    assert_eq!(claim_decision(&*store, &sample::claim("k")).await, Decision::Replay);

    // Once another executor has acquired the command, it is too late.
    let lost = lose(&*store, "taken").await;
    applied(&*store, &lost.id, not_executed()).await;
    let current = acquire(&*store, &sample::claim("taken")).await;
    let late = Change::complete(lost.head.fence(), sample::created("too late"));
    assert_eq!(apply(&*store, &lost.id, late).await.decision, Decision::Fenced);
    assert_eq!(read(&*store, &lost.id).await, current);
}

/// Returns a command that a retry has acquired, while a call of its first attempt may still land: the
/// provider only deduplicates, or the expired lease frees the key.
async fn acquired_again(subject: &dyn Subject, key: &str, rerun: bool) -> Record {
    let store = subject.store();
    let claim = |key| sample::under(sample::claim(key), sample::terms_with_rerun());
    let first = acquire(&*store, &claim(key)).await;
    if rerun {
        subject.advance(first.head.terms.lease);
    } else {
        applied(&*store, &first.id, Change::abandon(first.head.fence(), Reason::TimedOut)).await;
        applied(&*store, &first.id, Change::resolve_not_executed(Proof::ProviderDeduplicates)).await;
    }
    acquire(&*store, &claim(key)).await
}

pub(super) async fn possible_effect_of_an_earlier_attempt_is_remembered_until_known(subject: &dyn Subject) {
    let store = subject.store();
    for rerun in [false, true] {
        let again = acquired_again(subject, &format!("k-{rerun}"), rerun).await;
        let id = &again.id;
        assert!(again.head.earlier_may_have_run);
        assert_eq!(read(&*store, id).await, again);
        let not_executed = |record: &Record| Change::release(record.head.fence(), Reason::NotExecuted);
        let released = applied(&*store, id, not_executed(&again)).await;
        assert_eq!(read(&*store, id).await, released);
        let freed = apply(&*store, id, Change::free()).await.decision;
        assert!(matches!(freed, Decision::Refused(Refusal::StillInFlight { .. })), "{freed:?}");
        let third = acquire(&*store, &sample::claim(&format!("k-{rerun}"))).await;
        assert!(third.head.earlier_may_have_run, "a retry that did not run says nothing of the first");
        subject.advance(third.head.terms.lease);
        store.sweep(10).await.expect("the store sweeps");
        let lost = read(&*store, id).await;
        assert_eq!((lost.head.state.name(), lost.head.earlier_may_have_run), (StateName::Unknown, true));
        let known = applied(&*store, id, Change::resolve_not_executed(Proof::ProviderTombstone)).await;
        assert!(!read(&*store, id).await.head.earlier_may_have_run, "it is about every attempt");
        assert_eq!(read(&*store, id).await, known);
        let fourth = acquire(&*store, &sample::claim(&format!("k-{rerun}"))).await;
        assert!(!read(&*store, id).await.head.earlier_may_have_run, "nothing is left to be remembered");
        applied(&*store, id, not_executed(&fourth)).await;
        assert_eq!(apply(&*store, id, Change::free()).await.decision, Decision::Applied);
    }
}

pub(super) async fn only_an_unknown_takes_a_verdict(subject: &dyn Subject) {
    let store = subject.store();
    let running = acquire(&*store, &sample::claim("running")).await;
    let released = acquire(&*store, &sample::claim("released")).await;
    applied(&*store, &released.id, Change::release(released.head.fence(), Reason::NotExecuted)).await;
    let (done, _) = complete(&*store, "done", "ok").await;
    let verdicts = || {
        [
            Change::resolve_executed(sample::created("verdict")),
            Change::resolve_not_executed(Proof::ProviderTombstone),
        ]
    };
    let [executed, not_executed] = verdicts();
    for (id, verdicts) in [
        (running.id, &[executed.clone(), not_executed.clone()][..]),
        (released.id, std::slice::from_ref(&not_executed)),
        (sample::id(&done), &[executed.clone(), not_executed.clone()]),
    ] {
        let before = read(&*store, &id).await;
        for verdict in verdicts.iter().cloned() {
            let answer = apply(&*store, &id, verdict).await;
            assert_eq!(answer.decision, Decision::Refused(Refusal::WrongState));
            assert_eq!(read(&*store, &id).await, before);
        }
    }
    // Evidence of the effect of a command that counted as not executed.
    applied(&*store, &released.id, executed).await;
    assert_eq!(read(&*store, &released.id).await.head.state.name(), StateName::Succeeded);
    for verdict in verdicts() {
        let answer = apply(&*store, &sample::id(&sample::claim("nobody")), verdict).await;
        assert_eq!(answer.decision, Decision::Refused(Refusal::Absent));
    }
}

pub(super) async fn a_postponed_look_for_evidence_is_counted(subject: &dyn Subject) {
    let store = subject.store();
    let lost = lose(&*store, "k").await;
    let State::Unknown { since, quarantine_until, .. } = lost.head.state else { panic!("it is unknown") };
    for attempts in 1..=3 {
        let reconcile_after = since.plus(Duration::from_secs(60 * u64::from(attempts)));
        let postponed = applied(&*store, &lost.id, Change::postpone(reconcile_after, attempts - 1)).await;
        let expected = State::Unknown { since, reconcile_after, attempts, quarantine_until };
        assert_eq!(postponed.head.state, expected);
        assert_eq!(read(&*store, &lost.id).await.head.state, expected);
        let reconcile_after = reconcile_after.plus(Duration::from_secs(5));
        let put_off = applied(&*store, &lost.id, Change::put_off(reconcile_after, attempts)).await;
        let expected = State::Unknown { since, reconcile_after, attempts, quarantine_until };
        assert_eq!(put_off.head.state, expected, "the end of a look is no other look");
    }
}
