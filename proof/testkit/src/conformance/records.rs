//! Records come back as they were written, and can be found.

use std::time::Duration;

use bytes::Bytes;
use semel_core::fingerprint::FingerprintVersion;
use semel_core::{Change, Claim, Filter, Ids, Note, Reason, StateName, Step, Timestamp, TraceContext};

use super::{Subject, acquire, applied, apply, complete, read};
use crate::sample;

pub(super) async fn large_and_binary_bodies_come_back_byte_for_byte(subject: &dyn Subject) {
    let store = subject.store();
    let every_byte: Vec<u8> = (0..=u8::MAX).collect();
    let bodies: [Bytes; 4] = [
        Bytes::new(),
        every_byte.into(),
        "tschüß \u{1f600} \u{0}".into(),
        (0..2_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect::<Vec<u8>>().into(),
    ];
    for (number, body) in bodies.into_iter().enumerate() {
        let record = acquire(&*store, &sample::claim(&format!("body-{number}"))).await;
        let response = sample::response(200, body);
        let change = Change::complete(record.head.fence(), sample::result(&response));
        applied(&*store, &record.id, change).await;
        let stored = read(&*store, &record.id).await.result.expect("it is settled");
        assert_eq!(stored.response.decode(), Ok(response), "body {number}");
    }
}

pub(super) async fn repeated_headers_come_back_line_for_line(subject: &dyn Subject) {
    let store = subject.store();
    let (claim, _) = complete(&*store, "k", "ok").await;
    let stored = read(&*store, &sample::id(&claim)).await.result.expect("it is settled");
    let headers = stored.response.decode().expect("it is readable").headers;
    let links: Vec<&[u8]> = headers.get_all("link").iter().map(|value| value.as_bytes()).collect();
    assert_eq!(links, [&b"</a>; rel=\"x, y\", </b>"[..], b"</c>"]);
}

pub(super) async fn a_record_says_why_and_what_it_made(subject: &dyn Subject) {
    let store = subject.store();
    let claim = sample::claim("k");
    let before = store.now().await.expect("the store tells the time");
    let claimed = acquire(&*store, &claim).await;
    assert_eq!(claimed.id, sample::id(&claim));
    assert_eq!(claimed.operation_id, claim.operation_id);
    assert_eq!(&claimed.principal, claim.scope.principal());
    assert_eq!(&claimed.operation, claim.scope.operation());
    assert_eq!(claimed.key_hash_prefix, claim.scope.key().hash_prefix());
    assert_eq!(claimed.head.reason, Reason::Claimed);
    assert_eq!(claimed.head.terms, claim.attempt.terms);
    assert_eq!(claimed.head.fingerprint, claim.attempt.fingerprint);
    assert_eq!(claimed.head.fingerprint.version(), FingerprintVersion::V1);
    assert!(claimed.created_at >= before && claimed.updated_at == claimed.created_at);
    subject.advance(Duration::from_secs(5));
    let settled =
        applied(&*store, &claimed.id, Change::complete(claimed.head.fence(), sample::created("ok"))).await;
    assert_eq!(settled.head.reason, Reason::Answered);
    assert_eq!(settled.created_at, claimed.created_at);
    assert!(settled.updated_at.since(settled.created_at) >= Duration::from_secs(5));
    let mut result = settled.result.clone().expect("it is settled");
    assert_eq!((result.status, result.resource.as_deref()), (201, Some("/payments/7")));
    assert_eq!(read(&*store, &claimed.id).await, settled, "a reader sees what the writer was told");

    // A key id comes back unchanged: there is room for encryption, which leaves the address inside.
    result.response.encryption_key_id = Some("key-7".into());
    result.resource = None;
    let other = acquire(&*store, &sample::claim("encrypted")).await;
    applied(&*store, &other.id, Change::complete(other.head.fence(), result.clone())).await;
    assert_eq!(read(&*store, &other.id).await.result, Some(result));
}

pub(super) async fn a_record_remembers_how_it_came_there(subject: &dyn Subject) {
    let store = subject.store();
    let claim = sample::claim("k");
    let fence = acquire(&*store, &claim).await.head.fence();
    let id = sample::id(&claim);
    for _ in 0..2 {
        subject.advance(Duration::from_secs(1));
        applied(&*store, &id, Change::renew(fence)).await;
    }
    subject.advance(claim.attempt.terms.lease + Duration::from_secs(1));
    assert_eq!(store.sweep(10).await.expect("the store sweeps").len(), 1);
    applied(&*store, &id, Change::resolve_executed(sample::created("found in the ledger"))).await;
    let steps: Vec<Step> = read(&*store, &id).await.history.steps().collect();
    let told: Vec<_> = steps.iter().map(|step| (step.epoch, step.state, step.reason)).collect();
    assert_eq!(
        told,
        [
            (1, StateName::Processing, Reason::Claimed),
            (1, StateName::Unknown, Reason::LeaseExpired),
            (1, StateName::Succeeded, Reason::VerdictExecuted),
        ]
    );
    assert_eq!(steps[0].again.map(|(times, _)| times), Some(2), "two renewals");
    assert!(steps.is_sorted_by_key(|step| step.at) && steps[0].at < steps[1].at, "by the store's clock");

    // An executor's observation of an abandoned call stays, however often evidence is sought.
    let given_up = acquire(&*store, &sample::claim("given-up")).await;
    let seen = "POST /payments: connection reset | 'by' peer";
    let abandon = Change::abandon(given_up.head.fence(), Reason::BrokeOff).observing(seen);
    for _ in 0..2 {
        applied(&*store, &given_up.id, abandon.clone()).await;
    }
    let unknown = read(&*store, &given_up.id).await;
    assert_eq!(unknown.history.observation(), Some(seen));
    applied(&*store, &given_up.id, Change::postpone(unknown.updated_at, 0)).await;
    let looked = read(&*store, &given_up.id).await.history;
    assert_eq!((looked.observation(), looked.steps().count()), (Some(seen), 2));
}

pub(super) async fn a_record_is_found_by_its_operation_id(subject: &dyn Subject) {
    let store = subject.store();
    let (claim, _) = complete(&*store, "k", "ok").await;
    let found = store.find(claim.operation_id).await.expect("the store reads").record;
    assert_eq!(found, Some(read(&*store, &sample::id(&claim)).await));
    let stranger = semel_core::RandomIds.operation_id(Timestamp::from_millis(0));
    assert_eq!(store.find(stranger).await.expect("the store reads").record, None);
    // A principal finds its own records only.
    let own = async |id, tenant: &str, caller: &str| {
        let principal = semel_core::Principal::new(tenant, caller).expect("these are names");
        store.find_own(id, &principal).await.expect("the store reads").record
    };
    let principal = claim.scope.principal();
    assert_eq!(own(claim.operation_id, principal.tenant(), principal.caller()).await, found);
    assert_eq!(own(claim.operation_id, principal.tenant(), "somebody else").await, None);
    assert_eq!(own(claim.operation_id, "somebody else", principal.caller()).await, None);
    assert_eq!(own(stranger, principal.tenant(), principal.caller()).await, None);
}

pub(super) async fn records_are_listed_by_what_describes_them(subject: &dyn Subject) {
    let store = subject.store();
    for number in 0..5 {
        complete(&*store, &format!("done-{number}"), "ok").await;
    }
    subject.advance(Duration::from_secs(10));
    let refund = sample::claim_on(sample::scope_of("globex", "bob", "refunds.create", "k"));
    let refund = acquire(&*store, &refund).await;

    let ids = async |filter: Filter| {
        let page = store.list(&filter).await.expect("the store lists");
        assert!(page.unreadable.is_empty() && page.next.is_none(), "everything fits on one page");
        page.records.iter().map(|record| record.operation_id).collect::<Vec<_>>()
    };
    let all = ids(Filter::default()).await;
    assert_eq!(all.len(), 6);
    assert!(all.is_sorted(), "in the order of their operation ids");
    let running = Filter { state: Some(StateName::Processing), ..Filter::default() };
    assert_eq!(ids(running.clone()).await, [refund.operation_id]);
    let done = Filter { state: Some(StateName::Succeeded), ..Filter::default() };
    assert_eq!(ids(done).await.len(), 5);
    let tenant = Filter { tenant: Some("globex".into()), ..Filter::default() };
    assert_eq!(ids(tenant).await, [refund.operation_id]);
    let caller = |name: &str| Filter { caller: Some(name.into()), ..Filter::default() };
    assert_eq!(ids(caller("bob")).await, [refund.operation_id]);
    assert!(ids(Filter { caller: Some("alice".into()), ..running }).await.is_empty());
    let operation = Filter { operation: Some("payments.create".into()), ..Filter::default() };
    assert_eq!(ids(operation).await.len(), 5);
    let old = Filter { until: Some(refund.state_since), ..Filter::default() };
    assert_eq!(ids(old).await.len(), 5);
    let new = Filter { since: Some(refund.state_since), ..Filter::default() };
    assert_eq!(ids(new).await, [refund.operation_id]);
    let nobody = Filter { tenant: Some("nobody".into()), ..Filter::default() };
    assert!(ids(nobody).await.is_empty());

    for state in [None, Some(StateName::Processing), Some(StateName::Unknown)] {
        for number in 0..7 {
            let record = acquire(
                &*store,
                &sample::claim(&format!("{}-{number}", state.map_or("any", StateName::as_str))),
            )
            .await;
            if state == Some(StateName::Unknown) {
                applied(&*store, &record.id, Change::abandon(record.head.fence(), Reason::TimedOut)).await;
            }
        }
        let filter = Filter { state, ..Filter::default() };
        let (mut paged, mut after) = (Vec::new(), None);
        loop {
            let page =
                store.list(&Filter { after, limit: 3, ..filter.clone() }).await.expect("the store lists");
            assert!(page.records.len() <= 3, "a page keeps to its limit");
            paged.extend(page.records.into_iter().map(|record| record.operation_id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert!(paged.len() >= 7, "{state:?}");
        assert_eq!(paged, ids(filter).await, "{state:?}");
    }
}

pub(super) async fn a_record_keeps_the_trace_of_its_first_attempt(subject: &dyn Subject) {
    let store = subject.store();
    let trace = |number| TraceContext::new([number; 16], [number; 8], number % 2 == 0);
    let traced = |number| Claim { trace: trace(number), ..sample::claim("k") };
    let first = acquire(&*store, &traced(1)).await;
    assert_eq!(first.trace, trace(1));
    applied(&*store, &first.id, Change::release(first.head.fence(), Reason::NotExecuted)).await;
    let second = acquire(&*store, &traced(2)).await;
    assert_eq!(second.trace, trace(1), "a later attempt links to the first");
    assert_eq!(read(&*store, &second.id).await.trace, trace(1));
    applied(&*store, &second.id, Change::complete(second.head.fence(), sample::created("ok"))).await;
    let found = store.find(second.operation_id).await.expect("the store reads").record;
    assert_eq!(found.and_then(|record| record.trace), trace(1));
    let untraced = acquire(&*store, &sample::claim("untraced")).await;
    assert_eq!(read(&*store, &untraced.id).await.trace, None);
}

pub(super) async fn a_census_counts_records_by_operation_and_state(subject: &dyn Subject) {
    let store = subject.store();
    assert_eq!(store.census().await.expect("the store counts").groups, []);
    assert_eq!(store.operations().await.expect("the store reads"), [""; 0]);
    complete(&*store, "done", "ok").await;
    complete(&*store, "done-too", "ok").await;
    let refund = |key| sample::claim_on(sample::scope_of("t", "c", "refunds.create", key));
    let first = acquire(&*store, &refund("first")).await;
    subject.advance(Duration::from_secs(10));
    acquire(&*store, &refund("second")).await;
    applied(&*store, &first.id, Change::renew(first.head.fence())).await;
    let mut census = store.census().await.expect("the store counts").groups;
    census.sort_by(|one, other| one.operation.cmp(&other.operation));
    let told: Vec<_> = census
        .iter()
        .map(|group| (group.operation.as_str(), group.state, group.count, group.is_estimate))
        .collect();
    let expected = [
        ("payments.create", StateName::Succeeded, 2, false),
        ("refunds.create", StateName::Processing, 2, false),
    ];
    assert_eq!(told, expected);
    assert_eq!(census[1].oldest, Some(first.state_since), "a renewal makes it no younger");
    assert_eq!(store.operations().await.expect("the store reads"), ["payments.create", "refunds.create"]);
}

pub(super) async fn operator_changes_are_noted_for_good(subject: &dyn Subject) {
    if !subject.capabilities().references {
        return;
    }
    let store = subject.store();
    let claim = sample::claim("k");
    let record = acquire(&*store, &claim).await;
    let note = |action: &str| Note { who: "ops".into(), action: action.into(), why: "ticket 7".into() };
    let verdict = || Change::resolve_executed(sample::created("found")).noted(note("resolve"));
    apply(&*store, &record.id, verdict()).await;
    assert_eq!(store.notes(claim.operation_id).await.expect("the store reads"), [], "it was refused");
    applied(&*store, &record.id, Change::abandon(record.head.fence(), Reason::TimedOut)).await;
    applied(&*store, &record.id, verdict()).await;
    applied(&*store, &record.id, Change::purge().noted(note("purge"))).await;
    subject.advance(Duration::from_secs(400 * 24 * 60 * 60));
    store.reap(10).await.expect("the store reaps");
    let notes = store.notes(claim.operation_id).await.expect("the store reads");
    let taken: Vec<Note> = notes.into_iter().map(|taken| taken.note).collect();
    assert_eq!(taken, [note("resolve executed"), note("purge")], "notes outlive their record");
}
