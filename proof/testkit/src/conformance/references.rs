//! Business references, and operations with former names.

use std::time::Duration;

use semel_core::transition::{PURGE_GRACE, Proof};
use semel_core::{Change, Claim, Decision, OperationName, Reason, Record, Records, ReferenceEntry};

use super::{Subject, acquire, applied, apply, claim_decision, race};
use crate::sample;

const A_DAY: Duration = Duration::from_secs(24 * 60 * 60 + 1);

/// Returns a claim of another key for the same order.
fn order(key: &str) -> Claim {
    sample::with_reference(sample::claim(key), "order-7")
}

pub(super) async fn a_business_reference_is_held_by_one_command(subject: &dyn Subject) {
    if !subject.capabilities().references {
        return;
    }
    let store = subject.store();
    let first = order("first");
    acquire(&*store, &first).await;
    assert_eq!(claim_decision(&*store, &first).await, Decision::Execute, "its own claim, sent again");
    assert_eq!(claim_decision(&*store, &order("first")).await, Decision::Wait, "its own key, asked again");

    let second = order("second");
    let answer = store.claim(&second).await.expect("the store takes claims");
    assert_eq!((answer.decision, answer.record), (Decision::Duplicate, None));
    let holder = answer.holder.expect("the holder is named");
    assert_eq!((holder.operation_id, &holder.principal), (first.operation_id, first.scope.principal()));
    let nothing = store.get(&sample::id(&second)).await.expect("the store reads").record;
    assert_eq!(nothing, None, "the key is not used up");

    let elsewhere = [
        sample::scope_of("globex", "alice", "payments.create", "k"),
        sample::scope_of("acme", "alice", "refunds.create", "k"),
    ];
    for scope in elsewhere {
        let claim = sample::with_reference(sample::claim_on(scope), "order-7");
        assert_eq!(
            claim_decision(&*store, &claim).await,
            Decision::Execute,
            "unique per tenant and operation"
        );
    }
    let colleague = sample::claim_on(sample::scope_of("acme", "bob", "payments.create", "k"));
    let decision = claim_decision(&*store, &sample::with_reference(colleague, "order-7")).await;
    assert_eq!(decision, Decision::Duplicate, "over all callers of the tenant");
}

pub(super) async fn one_of_racing_commands_gets_the_reference(subject: &dyn Subject) {
    if !subject.capabilities().references {
        return;
    }
    let store = subject.store();
    let decisions = race(32, |number| {
        let store = store.clone();
        async move { claim_decision(&*store, &order(&format!("key-{number}"))).await }
    })
    .await;
    assert_eq!(decisions.iter().filter(|d| **d == Decision::Execute).count(), 1);
    assert_eq!(decisions.iter().filter(|d| **d == Decision::Duplicate).count(), 31);
}

/// Returns the decision for another key for the order, after the first one ended like this.
async fn next_after(
    store: &dyn Records,
    key: &str,
    end: impl FnOnce(semel_core::Fence) -> Change,
) -> Decision {
    let with = |key: &str, order: &str| sample::with_reference(sample::claim(key), order);
    let record = acquire(store, &with(key, key)).await;
    applied(store, &record.id, end(record.head.fence())).await;
    claim_decision(store, &with(&format!("{key}-again"), key)).await
}

pub(super) async fn a_reference_is_given_back_only_if_nothing_came_of_its_command(subject: &dyn Subject) {
    if !subject.capabilities().references {
        return;
    }
    let store = subject.store();
    let failed = |status| sample::result(&sample::response(status, "no"));
    let release = next_after(&*store, "released", |fence| Change::release(fence, Reason::NotExecuted)).await;
    assert_eq!(release, Decision::Execute);
    let refused =
        next_after(&*store, "refused", |fence| Change::fail(fence, Reason::Answered, failed(402))).await;
    assert_eq!(refused, Decision::Execute, "a stored 4xx");

    let done = next_after(&*store, "done", |fence| Change::complete(fence, sample::created("ok"))).await;
    assert_eq!(done, Decision::Duplicate);
    let broken =
        next_after(&*store, "broken", |fence| Change::fail(fence, Reason::ServerError, failed(500))).await;
    assert_eq!(broken, Decision::Duplicate, "a stored 5xx proves nothing");
    let lost = next_after(&*store, "lost", |fence| Change::abandon(fence, Reason::TimedOut)).await;
    assert_eq!(lost, Decision::Duplicate);
    let id = sample::id(&sample::claim("lost"));
    applied(&*store, &id, Change::resolve_not_executed(Proof::ProviderTombstone)).await;
    let again = sample::with_reference(sample::claim("lost-again"), "lost");
    assert_eq!(claim_decision(&*store, &again).await, Decision::Execute, "a verdict gives it back");
}

pub(super) async fn a_reference_outlives_its_record(subject: &dyn Subject) {
    if !subject.capabilities().references {
        return;
    }
    let store = subject.store();
    let record = acquire(&*store, &order("first")).await;
    applied(&*store, &record.id, Change::complete(record.head.fence(), sample::created("ok"))).await;
    subject.advance(A_DAY);
    assert_eq!(claim_decision(&*store, &order("first")).await, Decision::Duplicate, "even for its own key");
    store.reap(10).await.expect("the store reaps");
    assert_eq!(claim_decision(&*store, &order("first")).await, Decision::Duplicate);

    let purged = sample::with_reference(sample::claim("purged"), "order-8");
    let record = acquire(&*store, &purged).await;
    applied(&*store, &record.id, Change::complete(record.head.fence(), sample::created("ok"))).await;
    applied(&*store, &record.id, Change::purge()).await;
    subject.advance(PURGE_GRACE);
    let again = sample::with_reference(sample::claim("purged"), "order-8");
    assert_eq!(claim_decision(&*store, &again).await, Decision::Duplicate);
}

pub(super) async fn a_reference_that_was_given_back_may_be_gone(subject: &dyn Subject) {
    if !subject.capabilities().references {
        return;
    }
    let store = subject.store();
    let first = acquire(&*store, &order("first")).await;
    applied(&*store, &first.id, Change::release(first.head.fence(), Reason::NotExecuted)).await;
    let second = acquire(&*store, &order("second")).await;
    assert_eq!(
        claim_decision(&*store, &order("first")).await,
        Decision::Duplicate,
        "somebody else has it now"
    );
    applied(&*store, &second.id, Change::release(second.head.fence(), Reason::NotExecuted)).await;
    assert_eq!(apply(&*store, &second.id, Change::free()).await.decision, Decision::Applied);
    assert_eq!(claim_decision(&*store, &order("first")).await, Decision::Execute);
}

pub(super) async fn a_reference_that_another_command_holds_is_not_taken_back_silently(subject: &dyn Subject) {
    if !subject.capabilities().references {
        return;
    }
    let store = subject.store();
    let first = acquire(&*store, &order("first")).await;
    applied(&*store, &first.id, Change::abandon(first.head.fence(), Reason::TimedOut)).await;
    applied(&*store, &first.id, Change::resolve_not_executed(Proof::ProviderTombstone)).await;
    // Two others had the reference since: the first of them gave it back, the second holds it.
    let second = acquire(&*store, &order("second")).await;
    applied(&*store, &second.id, Change::release(second.head.fence(), Reason::NotExecuted)).await;
    let third = acquire(&*store, &order("third")).await;
    applied(&*store, &first.id, Change::complete(first.head.fence(), sample::created("it did happen"))).await;
    let notes = store.notes(first.operation_id).await.expect("the store reads");
    let told = notes.iter().find(|taken| taken.note.action == "contradiction").expect("somebody is told");
    assert!(told.note.why.contains(&third.operation_id.to_string()), "{}", told.note.why);
    let holder = store.claim(&order("fourth")).await.expect("the store takes claims").holder;
    assert_eq!(holder.expect("it is held").operation_id, third.operation_id, "it keeps what it has");

    // Once no other command holds it, it goes back to the executed command.
    let first = sample::with_reference(sample::claim("early"), "order-8");
    let first = acquire(&*store, &first).await;
    applied(&*store, &first.id, Change::abandon(first.head.fence(), Reason::TimedOut)).await;
    applied(&*store, &first.id, Change::resolve_not_executed(Proof::ProviderTombstone)).await;
    let second = sample::with_reference(sample::claim("late"), "order-8");
    let second = acquire(&*store, &second).await;
    applied(&*store, &second.id, Change::release(second.head.fence(), Reason::NotExecuted)).await;
    applied(&*store, &first.id, Change::complete(first.head.fence(), sample::created("it did happen"))).await;
    assert_eq!(store.notes(first.operation_id).await.expect("the store reads"), []);
    let next = sample::with_reference(sample::claim("next"), "order-8");
    let holder = store.claim(&next).await.expect("the store takes claims").holder;
    assert_eq!(holder.expect("it is held").operation_id, first.operation_id);
}

pub(super) async fn a_late_completion_takes_its_reference_back(subject: &dyn Subject) {
    if !subject.capabilities().references {
        return;
    }
    let store = subject.store();
    let first = acquire(&*store, &order("first")).await;
    applied(&*store, &first.id, Change::abandon(first.head.fence(), Reason::TimedOut)).await;
    applied(&*store, &first.id, Change::resolve_not_executed(Proof::ProviderTombstone)).await;
    applied(&*store, &first.id, Change::complete(first.head.fence(), sample::created("it did happen"))).await;
    let duplicate = claim_decision(&*store, &order("second")).await;
    assert_eq!(duplicate, Decision::Duplicate, "the order was carried out after all");

    let other = |key: &str| sample::with_reference(sample::claim(key), "order-8");
    let third = acquire(&*store, &other("third")).await;
    applied(&*store, &third.id, Change::release(third.head.fence(), Reason::NotExecuted)).await;
    let fourth = acquire(&*store, &other("fourth")).await;
    applied(&*store, &third.id, Change::complete(third.head.fence(), sample::created("late"))).await;
    let holder = store.claim(&other("fifth")).await.expect("the store takes claims").holder;
    let holder = holder.map(|holder| holder.operation_id);
    assert_eq!(holder, Some(fourth.operation_id), "what somebody else has by now is theirs");
}

pub(super) async fn a_reference_is_kept_while_an_earlier_attempt_may_have_run(subject: &dyn Subject) {
    if !subject.capabilities().references {
        return;
    }
    let store = subject.store();
    let under = |key: &str, order: &str| {
        let claim = sample::under(sample::claim(key), sample::terms_with_rerun());
        sample::with_reference(claim, order)
    };
    let declined = || sample::result(&sample::response(402, "no"));
    type End = fn(semel_core::Fence, semel_core::StoredResult) -> Change;
    let ends: [(&str, End); 2] = [
        ("released", |fence, _| Change::release(fence, Reason::NotExecuted)),
        ("declined", |fence, result| Change::fail(fence, Reason::Answered, result)),
    ];
    for (name, end) in ends {
        for rerun in [false, true] {
            let key = format!("{name}-{rerun}");
            let other = || under(&format!("{key}-other"), &key);
            let first = acquire(&*store, &under(&key, &key)).await;
            if rerun {
                subject.advance(first.head.terms.lease);
            } else {
                applied(&*store, &first.id, Change::abandon(first.head.fence(), Reason::TimedOut)).await;
                let deduplicated = Change::resolve_not_executed(Proof::ProviderDeduplicates);
                applied(&*store, &first.id, deduplicated).await;
            }
            let again = acquire(&*store, &under(&key, &key)).await;
            applied(&*store, &again.id, end(again.head.fence(), declined())).await;
            let decision = claim_decision(&*store, &other()).await;
            assert_eq!(decision, Decision::Duplicate, "{key}: a call of the first attempt may land");
            subject.advance(A_DAY);
            store.reap(10).await.expect("the store reaps");
            let decision = claim_decision(&*store, &other()).await;
            assert_eq!(decision, Decision::Duplicate, "{key}: or has landed, for all that anybody knows");
        }
    }
    // It is looked up in the end, and does not exist.
    let first = acquire(&*store, &under("known", "known")).await;
    subject.advance(first.head.terms.lease);
    let again = acquire(&*store, &under("known", "known")).await;
    applied(&*store, &again.id, Change::abandon(again.head.fence(), Reason::TimedOut)).await;
    subject.advance(again.head.terms.quarantine);
    applied(&*store, &again.id, Change::resolve_not_executed(Proof::Quarantine)).await;
    assert_eq!(claim_decision(&*store, &under("known-other", "known")).await, Decision::Execute);
}

pub(super) async fn a_claim_that_is_taken_back_after_its_lease_gives_its_reference_back(
    subject: &dyn Subject,
) {
    if !subject.capabilities().references {
        return;
    }
    let store = subject.store();
    let under = |key: &str| sample::under(order(key), sample::terms_with_rerun());
    for swept in [false, true] {
        let key = format!("first-{swept}");
        let first = acquire(&*store, &under(&key)).await;
        subject.advance(first.head.terms.lease);
        if swept {
            store.sweep(10).await.expect("the store sweeps");
        }
        let decision = claim_decision(&*store, &order("another")).await;
        assert_eq!(decision, Decision::Duplicate, "nobody has said that nothing ran");
        applied(&*store, &first.id, Change::release(first.head.fence(), Reason::ClaimUnconfirmed)).await;
        let other = acquire(&*store, &order(&format!("second-{swept}"))).await;
        applied(&*store, &other.id, Change::release(other.head.fence(), Reason::NotExecuted)).await;
    }
}

pub(super) async fn a_former_name_of_an_operation_still_counts(subject: &dyn Subject) {
    if !subject.capabilities().references {
        return;
    }
    let store = subject.store();
    let former = OperationName::new("payments.make").expect("it is a name");
    let old = |key: &str| sample::claim_on(sample::scope_of("acme", "alice", "payments.make", key));
    let new = |key: &str| Claim { former: vec![former.clone()], ..sample::claim(key) };

    let record = acquire(&*store, &sample::with_reference(old("done"), "order-7")).await;
    assert_eq!(claim_decision(&*store, &new("done")).await, Decision::Wait);
    applied(&*store, &record.id, Change::complete(record.head.fence(), sample::created("ok"))).await;
    let answer = store.claim(&new("done")).await.expect("the store takes claims");
    assert_eq!(answer.decision, Decision::Replay);
    assert_eq!(answer.record.map(|record| record.operation_id), Some(record.operation_id));
    let mismatch = sample::for_body(new("done"), "another body");
    assert_eq!(claim_decision(&*store, &mismatch).await, Decision::Mismatch);
    let reference = sample::with_reference(new("another-key"), "order-7");
    assert_eq!(claim_decision(&*store, &reference).await, Decision::Duplicate, "and so do its references");

    let record = acquire(&*store, &new("fresh")).await;
    assert_eq!(record.operation.as_str(), "payments.create", "new commands have the new name");
    subject.advance(A_DAY);
    let record = acquire(&*store, &new("done")).await;
    assert_eq!(record.operation.as_str(), "payments.create", "what has expired does not count");
}

pub(super) async fn commands_are_found_by_their_business_reference(subject: &dyn Subject) {
    if !subject.capabilities().references {
        return;
    }
    let store = subject.store();
    let with = |key| sample::with_reference(sample::claim(key), "order-7");
    let given_back = acquire(&*store, &with("first")).await;
    applied(&*store, &given_back.id, Change::release(given_back.head.fence(), Reason::NotExecuted)).await;
    let holder = acquire(&*store, &with("second")).await;
    let (tenant, operation) = (holder.principal.tenant(), &holder.operation);
    let find = async |tenant: &str, reference: &str| {
        store.find_by_reference(tenant, operation, reference).await.expect("the store reads")
    };
    let entry = |record: &Record, is_held| ReferenceEntry { operation_id: record.operation_id, is_held };
    assert_eq!(find(tenant, "order-7").await, [entry(&holder, true), entry(&given_back, false)]);
    let change = Change::complete(holder.head.fence(), sample::created("ok"));
    applied(&*store, &holder.id, change).await;
    assert_eq!(find(tenant, "order-7").await[0], entry(&holder, true), "its effect keeps it");
    assert_eq!(find(tenant, "order-8").await, []);
    assert_eq!(find("somebody else", "order-7").await, []);
}
