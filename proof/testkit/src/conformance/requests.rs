//! Requests that are stored until the outcome of their command is known: present exactly as long as the
//! protocol says, and never read without a note.

use std::time::Duration;

use bytes::Bytes;
use semel_core::transition::Proof;
use semel_core::{
    Change, Claim, Decision, Ids, Note, RandomIds, Reason, Record, Records, StateName, StoredRequest,
    WaitingFilter,
};

use super::{Subject, acquire, applied, apply, claim_decision, read};
use crate::sample;

const HOUR: Duration = Duration::from_secs(3600);

fn note() -> Note {
    Note { who: "olga".into(), action: "request".into(), why: "to look for it".into() }
}

fn input(text: &'static str) -> Option<StoredRequest> {
    Some(StoredRequest::input(Bytes::from_static(text.as_bytes())))
}

/// Returns a claim on `key` that runs at once, and whose request is stored until the outcome is known.
fn kept(key: &str, request: &'static str) -> Claim {
    Claim { request: input(request), ..sample::claim(key) }.kept_while_unknown()
}

/// Returns the record of the command, whose request must be stored if, and only if, the protocol keeps it.
async fn in_order(store: &dyn Records, claim: &Claim, request: &'static str) -> Record {
    let record = read(store, &sample::id(claim)).await;
    let found = store.read_request(record.operation_id, &note()).await.expect("the store reads");
    let expected = record.head.keeps_request().then(|| input(request)).flatten();
    assert_eq!(found, expected, "{} because of {:?}", record.head.state.name(), record.head.reason);
    record
}

/// Checks that no worker sees the command.
async fn never_waits(store: &dyn Records) {
    for phased in [false, true] {
        let filter = WaitingFilter { phased, ..WaitingFilter::default() };
        assert!(store.waiting(&filter).await.expect("the store reads").found.is_empty(), "a worker has it");
    }
}

pub(super) async fn a_request_is_kept_until_the_outcome_is_known(subject: &dyn Subject) {
    let store = subject.store();
    type Ending = fn(&Record) -> Change;
    let endings: [(&str, StateName, Ending); 4] = [
        ("complete", StateName::Succeeded, |record| {
            Change::complete(record.head.fence(), sample::created("done"))
        }),
        ("fail", StateName::FailedFinal, |record| {
            Change::fail(record.head.fence(), Reason::Answered, sample::result(&sample::response(402, "no")))
        }),
        ("release", StateName::FailedRetryable, |record| {
            Change::release(record.head.fence(), Reason::NotExecuted)
        }),
        ("abandon", StateName::Unknown, |record| Change::abandon(record.head.fence(), Reason::BrokeOff)),
    ];
    for (name, state, ending) in endings {
        let claim = kept(name, "asked");
        let running = acquire(&*store, &claim).await;
        assert!(in_order(&*store, &claim, "asked").await.head.terms.keep_request, "{name}");
        never_waits(&*store).await;
        applied(&*store, &running.id, Change::renew(running.head.fence())).await;
        in_order(&*store, &claim, "asked").await;
        applied(&*store, &running.id, ending(&running)).await;
        assert_eq!(in_order(&*store, &claim, "asked").await.head.state.name(), state, "{name}");
        never_waits(&*store).await;
    }
    let verdicts: [(&str, StateName, Ending); 4] = [
        ("executed", StateName::Succeeded, |_| Change::resolve_executed(sample::created("found"))),
        ("not-executed", StateName::FailedRetryable, |_| {
            Change::resolve_not_executed(Proof::ProviderTombstone)
        }),
        ("late-completion", StateName::Succeeded, |record| {
            Change::complete(record.head.fence(), sample::created("late"))
        }),
        ("late-release", StateName::FailedRetryable, |record| {
            Change::release(record.head.fence(), Reason::NotExecuted)
        }),
    ];
    for (name, state, verdict) in verdicts {
        let claim = kept(name, "asked");
        let running = acquire(&*store, &claim).await;
        applied(&*store, &running.id, Change::abandon(running.head.fence(), Reason::TimedOut)).await;
        in_order(&*store, &claim, "asked").await;
        applied(&*store, &running.id, verdict(&running)).await;
        assert_eq!(in_order(&*store, &claim, "asked").await.head.state.name(), state, "{name}");
    }
}

pub(super) async fn the_request_of_an_executor_that_died_is_kept(subject: &dyn Subject) {
    let store = subject.store();
    let (lost, rerun) = (kept("lost", "asked"), kept("rerun", "asked"));
    let rerun = sample::under(rerun, sample::terms_with_rerun()).kept_while_unknown();
    for claim in [&lost, &rerun] {
        acquire(&*store, claim).await;
    }
    subject.advance(HOUR);
    store.sweep(10).await.expect("the store sweeps");
    assert_eq!(in_order(&*store, &lost, "asked").await.head.state.name(), StateName::Unknown);
    assert_eq!(in_order(&*store, &rerun, "asked").await.head.state.name(), StateName::FailedRetryable);
    never_waits(&*store).await;
    // An unknown command and its request are never deleted.
    subject.advance(HOUR * 24 * 400);
    store.reap(10).await.expect("the store reaps");
    assert_eq!(in_order(&*store, &lost, "asked").await.head.state.name(), StateName::Unknown);
    assert_eq!(store.read_request(rerun.operation_id, &note()).await.expect("the store reads"), None);
}

pub(super) async fn a_command_that_is_claimed_again_keeps_its_last_request(subject: &dyn Subject) {
    let store = subject.store();
    let first = kept("k", "the first");
    let running = acquire(&*store, &first).await;
    assert_eq!(claim_decision(&*store, &kept("k", "a duplicate")).await, Decision::Wait);
    in_order(&*store, &first, "the first").await;
    assert_eq!(claim_decision(&*store, &first).await, Decision::Execute, "the same claim, sent again");
    in_order(&*store, &first, "the first").await;
    applied(&*store, &running.id, Change::release(running.head.fence(), Reason::NotExecuted)).await;
    let second = kept("k", "the second");
    let running = acquire(&*store, &second).await;
    in_order(&*store, &first, "the second").await;
    applied(&*store, &running.id, Change::release(running.head.fence(), Reason::NotExecuted)).await;
    // Under other terms, nothing is stored.
    let running = acquire(&*store, &sample::claim("k")).await;
    assert!(!in_order(&*store, &first, "").await.head.terms.keep_request);
    applied(&*store, &running.id, Change::abandon(running.head.fence(), Reason::TimedOut)).await;
    in_order(&*store, &first, "").await;
    // An expired lease makes room for the next attempt without a sweep in between.
    let again = kept("rerun", "before");
    acquire(&*store, &sample::under(again, sample::terms_with_rerun()).kept_while_unknown()).await;
    subject.advance(HOUR);
    let again = sample::under(kept("rerun", "after"), sample::terms_with_rerun()).kept_while_unknown();
    acquire(&*store, &again).await;
    in_order(&*store, &again, "after").await;
}

pub(super) async fn a_workers_command_keeps_its_request_while_it_is_unknown(subject: &dyn Subject) {
    let store = subject.store();
    for keeps in [true, false] {
        let key = if keeps { "kept" } else { "erased" };
        let claim = Claim { request: input("asked"), ..sample::for_worker(sample::claim(key), HOUR) };
        let claim = if keeps { claim.kept_while_unknown() } else { claim };
        assert_eq!(claim_decision(&*store, &claim).await, Decision::Wait);
        let waiting = in_order(&*store, &claim, "asked").await;
        let start = Change::start(waiting.head.fence(), RandomIds.attempt_token());
        let running = apply(&*store, &waiting.id, start).await.record.expect("it is started");
        in_order(&*store, &claim, "asked").await;
        applied(&*store, &running.id, Change::abandon(running.head.fence(), Reason::TimedOut)).await;
        let unknown = in_order(&*store, &claim, "asked").await;
        assert_eq!(unknown.head.keeps_request(), keeps);
        never_waits(&*store).await;
        applied(&*store, &running.id, Change::resolve_executed(sample::created("found"))).await;
        in_order(&*store, &claim, "asked").await;
    }
}

pub(super) async fn reading_a_request_writes_a_note(subject: &dyn Subject) {
    if !subject.capabilities().references {
        return;
    }
    let store = subject.store();
    let (claim, plain) = (kept("k", "asked"), sample::claim("plain"));
    let running = acquire(&*store, &claim).await;
    acquire(&*store, &plain).await;
    assert_eq!(store.read_request(plain.operation_id, &note()).await.expect("the store reads"), None);
    assert_eq!(
        store.notes(plain.operation_id).await.expect("the store reads"),
        [],
        "there was nothing to read"
    );
    let found = store.read_request(claim.operation_id, &note()).await.expect("the store reads");
    assert_eq!(found, claim.request);
    let taken = store.notes(claim.operation_id).await.expect("the store reads");
    assert_eq!(taken.into_iter().map(|taken| taken.note).collect::<Vec<_>>(), [note()]);
    applied(&*store, &running.id, Change::complete(running.head.fence(), sample::created("done"))).await;
    assert_eq!(store.read_request(claim.operation_id, &note()).await.expect("the store reads"), None);
    assert_eq!(store.notes(claim.operation_id).await.expect("the store reads").len(), 1);
}
