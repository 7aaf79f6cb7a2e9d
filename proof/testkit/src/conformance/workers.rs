//! Commands that a worker runs, resumes, or seeks evidence for.

use std::time::Duration;

use bytes::Bytes;
use semel_core::policy::OnLeaseExpired;
use semel_core::transition::Refusal;
use semel_core::{
    Attempt, Change, Claim, Decision, Ids, Item, RandomIds, Reason, Record, RecordId, Records, Start,
    StateName, StepKind, StoredRequest, Terms, Waiting, WaitingFilter, WaitingPlace,
};

use super::{Subject, acquire, applied, apply, claim_decision, race, read};
use crate::sample;

const HOUR: Duration = Duration::from_secs(3600);

/// Returns a claim on `key` that is left to a worker, with this request.
fn for_later(key: &str, request: &'static str) -> Claim {
    let request = Some(StoredRequest::input(Bytes::from_static(request.as_bytes())));
    Claim { request, ..sample::for_worker(sample::claim(key), HOUR) }
}

/// Returns a claim on `key` that runs at once, and is resumed by a worker.
fn in_phases(key: &str) -> Claim {
    let claim = for_later(key, "input");
    let terms = Terms { on_lease_expired: OnLeaseExpired::Resume, ..claim.attempt.terms };
    Claim { attempt: Attempt { start: Start::Resumable(HOUR), terms, ..claim.attempt }, ..claim }
}

async fn waiting(store: &dyn Records, phased: bool) -> Vec<Waiting> {
    let page = store.waiting(&WaitingFilter { phased, ..WaitingFilter::default() }).await;
    page.expect("the store reads").found
}

async fn only_waiting(store: &dyn Records) -> Waiting {
    let mut found = waiting(store, false).await;
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

async fn start(store: &dyn Records, record: &Record) -> Option<Record> {
    let token = RandomIds.attempt_token();
    let answer = apply(store, &record.id, Change::start(record.head.fence(), token)).await;
    (answer.decision == Decision::Execute).then_some(answer.record).flatten()
}

pub(super) async fn a_command_for_later_waits_with_its_request(subject: &dyn Subject) {
    let store = subject.store();
    let first = for_later("k", "the first");
    assert_eq!(claim_decision(&*store, &first).await, Decision::Wait);
    assert_eq!(claim_decision(&*store, &for_later("k", "a retry")).await, Decision::Wait);
    acquire(&*store, &sample::claim("another")).await;
    let found = only_waiting(&*store).await;
    assert_eq!(found.record, read(&*store, &sample::id(&first)).await);
    assert_eq!(Some(found.request), first.request, "the request of the claim that counts");
    let other = WaitingFilter { operations: Some(vec!["x".into()]), ..WaitingFilter::default() };
    assert!(store.waiting(&other).await.expect("the store reads").found.is_empty());
    let own = vec!["x".to_owned(), found.record.operation.to_string()];
    let own = WaitingFilter { operations: Some(own), ..other };
    assert_eq!(store.waiting(&own).await.expect("the store reads").found.len(), 1);
    assert!(waiting(&*store, true).await.is_empty(), "it has no phases");
    subject.advance(HOUR);
    assert!(waiting(&*store, false).await.is_empty(), "nobody starts it any more");
}

/// Claims `count` commands of a tenant for a worker, one per second, and returns their ids.
async fn queue(subject: &dyn Subject, tenant: &str, count: usize) -> Vec<RecordId> {
    let store = subject.store();
    let mut ids = Vec::new();
    for number in 0..count {
        let scope = sample::scope_of(tenant, "alice", "payments.create", &format!("k-{number}"));
        let claim = Claim { request: for_later("k", "input").request, ..sample::claim_on(scope) };
        let claim = sample::for_worker(claim, HOUR);
        assert_eq!(claim_decision(&*store, &claim).await, Decision::Wait);
        ids.push(sample::id(&claim));
        subject.advance(Duration::from_secs(1));
    }
    ids
}

/// Returns every page from the front to the end of the queue.
async fn pages(store: &dyn Records, share: usize, limit: usize) -> Vec<Vec<Waiting>> {
    let mut filter = WaitingFilter { share, limit, ..WaitingFilter::default() };
    let mut pages = Vec::new();
    for _ in 0..100 {
        let page = store.waiting(&filter).await.expect("the store reads");
        assert!(page.found.len() <= limit, "{} of {limit}", page.found.len());
        let ready = |waiting: &Waiting| waiting.place().ready_at <= page.now;
        assert!(page.found.iter().all(ready), "the page has the store's time");
        pages.push(page.found);
        match page.next {
            Some(next) => filter.after = Some(next),
            None => return pages,
        }
    }
    panic!("the queue has no end");
}

fn of_tenant(found: &[Waiting], tenant: &str) -> Vec<RecordId> {
    let own = |waiting: &&Waiting| waiting.record.principal.tenant() == tenant;
    found.iter().filter(own).map(|waiting| waiting.record.id).collect()
}

pub(super) async fn waiting_commands_are_listed_page_by_page(subject: &dyn Subject) {
    let store = subject.store();
    let tenants = ["acme", "Zeta", "b", "émile"];
    let mut queued = Vec::new();
    for (tenant, count) in tenants.into_iter().zip([5, 3, 1, 2]) {
        queued.push((tenant, queue(subject, tenant, count).await));
    }
    for limit in [1, 2, 3, 4, 100] {
        let found: Vec<Waiting> = pages(&*store, limit, limit).await.into_iter().flatten().collect();
        assert_eq!(found.len(), 11, "each once, on pages of {limit}");
        for (tenant, ids) in &queued {
            assert_eq!(of_tenant(&found, tenant), *ids, "the longest ready first, on pages of {limit}");
        }
    }
    // From a position whose command is gone, and from behind one tenant's commands.
    let first = store.waiting(&WaitingFilter { limit: 1, ..WaitingFilter::default() }).await;
    let first = first.expect("the store reads").found.remove(0);
    assert!(start(&*store, &first.record).await.is_some());
    for (after, left) in [
        (first.place(), 10),
        (WaitingPlace::end_of(first.record.principal.tenant()), 11 - queued_of(&queued, &first).len()),
    ] {
        let filter = WaitingFilter { after: Some(after), ..WaitingFilter::default() };
        let page = store.waiting(&filter).await.expect("the store reads");
        assert_eq!((page.found.len(), page.next), (left, None));
    }
}

fn queued_of<'a>(queued: &'a [(&str, Vec<RecordId>)], waiting: &Waiting) -> &'a [RecordId] {
    let tenant = waiting.record.principal.tenant();
    queued.iter().find(|(name, _)| *name == tenant).map_or(&[], |(_, ids)| ids)
}

pub(super) async fn one_tenants_backlog_leaves_room_for_others(subject: &dyn Subject) {
    let store = subject.store();
    let flood = queue(subject, "flood", 12).await;
    let [before, after] = [queue(subject, "a", 1).await, queue(subject, "z", 1).await];
    let filter = WaitingFilter { share: 2, limit: 4, ..WaitingFilter::default() };
    let page = store.waiting(&filter).await.expect("the store reads");
    assert_eq!(of_tenant(&page.found, "flood"), flood[..2], "its share, the longest ready first");
    assert_eq!(of_tenant(&page.found, "a"), before);
    assert_eq!(of_tenant(&page.found, "z"), after, "although it came last");
    let all = pages(&*store, 2, 2).await;
    assert!(all.iter().all(|page| of_tenant(page, "flood").len() <= 2), "on every page");
}

pub(super) async fn a_waiting_command_is_started_by_one_worker(subject: &dyn Subject) {
    let store = subject.store();
    claim_decision(&*store, &for_later("k", "request")).await;
    let found = only_waiting(&*store).await;
    let started = race(16, |_| {
        let (store, record) = (store.clone(), found.record.clone());
        async move { start(&*store, &record).await }
    })
    .await;
    let started: Vec<Record> = started.into_iter().flatten().collect();
    assert_eq!(started.len(), 1, "{started:?}");
    assert!(waiting(&*store, false).await.is_empty());
    let done = Change::complete(started[0].head.fence(), sample::created("done"));
    assert_eq!(applied(&*store, &found.record.id, done).await.head.state.name(), StateName::Succeeded);
    assert_eq!(claim_decision(&*store, &for_later("k", "a retry")).await, Decision::Replay);
}

pub(super) async fn a_requeued_command_waits_until_it_is_ready(subject: &dyn Subject) {
    let store = subject.store();
    claim_decision(&*store, &for_later("k", "request")).await;
    let found = only_waiting(&*store).await;
    let first = start(&*store, &found.record).await.expect("nobody else starts it");
    let minute = Duration::from_secs(60);
    let requeue = || Change::requeue(first.head.fence(), Reason::NotExecuted, minute);
    let queued = applied(&*store, &first.id, requeue()).await;
    assert_eq!((queued.head.state.name(), queued.head.epoch), (StateName::Claimed, first.head.epoch + 1));
    assert!(waiting(&*store, false).await.is_empty(), "it is not ready");
    assert_eq!(apply(&*store, &first.id, requeue()).await.decision, Decision::Fenced);
    subject.advance(minute);
    let again = only_waiting(&*store).await;
    assert_eq!(again.request, found.request);
    let second = start(&*store, &again.record).await.expect("nobody else starts it");
    let late = Change::complete(first.head.fence(), sample::created("late"));
    assert_eq!(apply(&*store, &first.id, late).await.decision, Decision::Fenced);
    let at_last = Change::requeue(second.head.fence(), Reason::NotExecuted, HOUR);
    let free = applied(&*store, &first.id, at_last).await;
    assert_eq!(free.head.state.name(), StateName::FailedRetryable, "its time is over");
}

pub(super) async fn a_new_attempt_brings_its_own_request(subject: &dyn Subject) {
    let store = subject.store();
    claim_decision(&*store, &for_later("k", "the first")).await;
    subject.advance(HOUR);
    let second = for_later("k", "the second");
    assert_eq!(claim_decision(&*store, &second).await, Decision::Wait);
    let found = only_waiting(&*store).await;
    assert_eq!(found.record.head.epoch, 2, "the first was never started");
    assert_eq!(Some(found.request), second.request);
}

pub(super) async fn a_command_that_is_started_again_after_its_lease_may_have_run(subject: &dyn Subject) {
    let store = subject.store();
    let claim = sample::under(for_later("k", "input"), sample::terms_with_rerun());
    assert_eq!(claim_decision(&*store, &claim).await, Decision::Wait);
    let started = start(&*store, &only_waiting(&*store).await.record).await.expect("nobody has it");
    let requeue = |record: &Record| Change::requeue(record.head.fence(), Reason::NotExecuted, Duration::ZERO);
    let waits = applied(&*store, &started.id, requeue(&started)).await;
    assert!(!waits.head.earlier_may_have_run, "provably nothing ran");
    let started = start(&*store, &waits).await.expect("nobody has it");
    subject.advance(started.head.terms.lease);
    store.sweep(10).await.expect("the store sweeps");
    let waits = only_waiting(&*store).await.record;
    assert!(waits.head.earlier_may_have_run, "its worker has not said a word");
    let freed = apply(&*store, &waits.id, Change::free()).await.decision;
    assert_eq!(freed, Decision::Refused(Refusal::WrongState));
    let started = start(&*store, &waits).await.expect("nobody has it");
    applied(&*store, &started.id, requeue(&started)).await;
    subject.advance(HOUR);
    store.sweep(10).await.expect("the store sweeps");
    let given_up = read(&*store, &waits.id).await;
    let head = given_up.head;
    assert_eq!((head.state.name(), head.reason), (StateName::FailedRetryable, Reason::NeverStarted));
    assert!(head.earlier_may_have_run, "what the last one did not do says nothing of those before it");
}

pub(super) async fn a_command_with_phases_is_resumed_while_its_time_lasts(subject: &dyn Subject) {
    let store = subject.store();
    let claim = in_phases("k");
    let first = acquire(&*store, &claim).await;
    assert!(waiting(&*store, true).await.is_empty(), "it is in hand");
    subject.advance(Duration::from_secs(31));
    store.sweep(10).await.expect("the store sweeps");
    let found = waiting(&*store, true).await;
    assert_eq!(found.len(), 1);
    assert_eq!(Some(&found[0].request), claim.request.as_ref());
    assert_eq!(claim_decision(&*store, &in_phases("k")).await, Decision::Wait, "a worker resumes it");
    let resumed = start(&*store, &found[0].record).await.expect("nobody else resumes it");
    assert_eq!(resumed.head.epoch, first.head.epoch + 1);
    let late = Change::complete(first.head.fence(), sample::created("late"));
    assert_eq!(apply(&*store, &first.id, late).await.decision, Decision::Fenced);
    subject.advance(HOUR);
    assert_eq!(claim_decision(&*store, &in_phases("k")).await, Decision::Reconcile, "it was given up");
    assert_eq!(
        apply(&*store, &first.id, Change::free()).await.decision,
        Decision::Refused(Refusal::WrongState)
    );
}

pub(super) async fn a_deferred_command_is_settled_by_its_message(subject: &dyn Subject) {
    let store = subject.store();
    let record = acquire(&*store, &sample::claim("k")).await;
    let fence = record.head.fence();
    let deferred = applied(&*store, &record.id, Change::defer(fence, HOUR)).await;
    assert_eq!((deferred.head.state.name(), deferred.head.reason), (StateName::Processing, Reason::Deferred));
    subject.advance(Duration::from_secs(600));
    assert_eq!(claim_decision(&*store, &sample::claim("k")).await, Decision::Wait, "it has its time");
    assert_eq!(apply(&*store, &record.id, Change::renew(fence)).await.decision, Decision::Fenced);
    subject.advance(HOUR);
    assert_eq!(claim_decision(&*store, &sample::claim("k")).await, Decision::Reconcile);
    assert_eq!(read(&*store, &record.id).await.head.reason, Reason::DeferralExpired);
    applied(&*store, &record.id, Change::complete(fence, sample::created("late, and true"))).await;
    assert_eq!(claim_decision(&*store, &sample::claim("k")).await, Decision::Replay);
}

pub(super) async fn the_items_of_a_bulk_request_are_shown_as_long_as_it_is(subject: &dyn Subject) {
    let store = subject.store();
    let whole = acquire(&*store, &sample::claim("whole")).await;
    let first = sample::claim("first");
    let item = |name: &str, claim: &Claim| Item { name: name.to_owned(), record: sample::id(claim) };
    let items = [item("b", &first), item("a", &sample::claim("never"))];
    for _ in 0..2 {
        store.announce(whole.operation_id, &items).await.expect("the store writes");
        let told = store.get(&whole.id).await.expect("the store reads").record.expect("it is there");
        assert!(told.head.partly_done, "a part of it may be done from now on");
    }
    let own = acquire(&*store, &first).await;
    applied(&*store, &own.id, Change::complete(own.head.fence(), sample::created("done"))).await;
    let shown = store.progress(whole.operation_id).await.expect("the store reads");
    let whats: Vec<_> = shown.iter().map(|step| (step.name.as_str(), step.what.clone())).collect();
    let done = StepKind::Item {
        operation_id: Some(own.operation_id),
        state: Some(StateName::Succeeded),
        status: Some(201),
    };
    let open = StepKind::Item { operation_id: None, state: None, status: None };
    assert_eq!(whats, [("b", done), ("a", open)], "in their order");
    let other = store.progress(own.operation_id).await.expect("the store reads");
    assert!(other.is_empty(), "{other:?}");
    let end = Change::complete(whole.head.fence(), sample::created("all"));
    applied(&*store, &whole.id, end).await;
    subject.advance(HOUR * 25);
    assert_eq!(store.reap(9).await.expect("the store reaps").len(), 2);
    assert!(store.progress(whole.operation_id).await.expect("the store reads").is_empty());
}

pub(super) async fn unknown_commands_come_up_for_reconciliation_in_turn(subject: &dyn Subject) {
    let store = subject.store();
    acquire(&*store, &sample::claim("running")).await;
    let mut lost = Vec::new();
    for key in ["a", "b"] {
        let record = acquire(&*store, &sample::claim(key)).await;
        let abandon = Change::abandon(record.head.fence(), Reason::TimedOut);
        lost.push(applied(&*store, &record.id, abandon).await);
        subject.advance(Duration::from_secs(1));
    }
    let due = |limit| {
        let store = store.clone();
        async move {
            let due = store.due_to_reconcile(limit).await.expect("the store reads");
            due.into_iter().map(|record| record.id).collect::<Vec<_>>()
        }
    };
    assert_eq!(due(9).await, [lost[0].id, lost[1].id]);
    assert_eq!(due(1).await, [lost[0].id]);
    let until = lost[1].updated_at.plus(Duration::from_secs(600));
    let seekers = race(8, |_| {
        let (store, id) = (store.clone(), lost[0].id);
        async move { apply(&*store, &id, Change::postpone(until, 0)).await.decision }
    })
    .await;
    let first = seekers.iter().filter(|decision| **decision == Decision::Applied).count();
    let beaten = Decision::Refused(Refusal::Overtaken);
    assert_eq!((first, seekers.iter().filter(|decision| **decision == beaten).count()), (1, 7));
    assert_eq!(due(9).await, [lost[1].id]);
    subject.advance(Duration::from_secs(600));
    assert_eq!(due(9).await, [lost[1].id, lost[0].id], "the longest due first");
}
