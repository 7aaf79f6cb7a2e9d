//! Uses and stored amounts are counted the same in every store.

use std::sync::Arc;
use std::time::Duration;

use semel_core::policy::Mode;
use semel_core::quota::{
    Charge, Level, StoredAmount, Subject, Usage, UsageEntry, UsageFilter, UsageReport, Used,
};
use semel_core::{Change, Policy, Principal, Start, Store, StoredRequest, Timestamp};
use semel_stores::{MemoryStore, SqliteStore};
use semel_testkit::{ManualClock, sample};

use crate::postgres::{database, open, patience, postgres};

fn principal(tenant: &str, caller: &str) -> Principal {
    Principal::new(tenant, caller).expect("these are names")
}

fn used(new_keys: u64, lookups: u64) -> Used {
    Used { new_keys, lookups }
}

/// Reports uses of unlimited rates. Returns all uses ever reported.
async fn add(usage: &dyn Usage, what: &[(Subject, Used)]) -> Vec<Used> {
    let charge = |count| Charge { count, ..Charge::default() };
    let report = |used: &Used| UsageReport { new_keys: charge(used.new_keys), lookups: charge(used.lookups) };
    let reports: Vec<_> = what.iter().map(|(subject, used)| (subject.clone(), report(used))).collect();
    let levels = usage.report(&reports).await.expect("it is counted");
    assert_eq!(levels, vec![Level::default(); what.len()]);
    let mut totals = Vec::new();
    for (subject, _) in what {
        let tenant = Some(subject.tenant().to_owned());
        let (listed, _) = list(usage, &UsageFilter { tenant, after: None, limit: 100 }).await;
        let entry = listed.into_iter().find(|(other, _)| other == subject).expect("it is listed").1;
        totals.push(entry.used);
    }
    totals
}

async fn list(usage: &dyn Usage, filter: &UsageFilter) -> (Vec<(Subject, UsageEntry)>, Timestamp) {
    usage.list_usage(filter).await.expect("it is listed")
}

/// Checks that a level outlives its node, falls with the store's time, and adds up over all nodes.
async fn levels_outlast_their_node(nodes: &[Arc<dyn Usage>], advance: impl Fn(Duration)) {
    const HOUR: Duration = Duration::from_secs(3600);
    let (first, last) = (&nodes[0], &nodes[nodes.len() - 1]);
    let alice = Subject::caller_of(&principal("levels", "alice"));
    assert_eq!(first.level(&alice).await.expect("it is read"), Level::default());
    let half = Charge { count: 5, cost: HOUR / 2, own: HOUR / 2, longest: 16 * HOUR };
    let report = UsageReport { new_keys: half, lookups: Charge { own: Duration::ZERO, ..half } };
    // About a second is forgiven to each node, and passes while the level is read.
    let is_about = |level: Duration, expected: Duration| {
        assert!(level <= expected && level + Duration::from_secs(60) > expected, "{level:?} of {expected:?}");
    };
    let told = first.report(&[(alice.clone(), report)]).await.expect("it is written");
    is_about(told[0].new_keys, HOUR / 2);
    let read = last.level(&alice).await.expect("it is read");
    is_about(read.new_keys, HOUR / 2);
    is_about(read.lookups, HOUR / 2);
    let told = last.report(&[(alice.clone(), report)]).await.expect("it is written");
    is_about(told[0].new_keys, HOUR);
    for node in nodes {
        is_about(node.level(&alice).await.expect("it is read").new_keys, HOUR);
    }
    // While a rate is not whole again its level is kept, however long it was unused.
    advance(HOUR / 2);
    first.forget(Duration::ZERO, 100).await.expect("it is written");
    is_about(first.level(&alice).await.expect("it is read").new_keys, HOUR / 2);
    let (listed, now) =
        list(&**first, &UsageFilter { tenant: Some("levels".into()), after: None, limit: 9 }).await;
    is_about(listed[0].1.level(now).new_keys, HOUR / 2);
    advance(HOUR / 2 + Duration::from_secs(60));
    assert_eq!(last.level(&alice).await.expect("it is read"), Level::default());
    assert!(first.forget(Duration::ZERO, 100).await.expect("it is written") > 0);
    let (listed, _) =
        list(&**first, &UsageFilter { tenant: Some("levels".into()), after: None, limit: 9 }).await;
    assert_eq!(listed, []);
}

async fn subjects_are_listed_in_pages(usage: &dyn Usage) {
    let names = [("page a", "x"), ("page b", "x"), ("page b", "y")];
    let mut expected = Vec::new();
    for (tenant, caller) in names {
        let who = principal(tenant, caller);
        for subject in [Subject::tenant_of(&who), Subject::caller_of(&who)] {
            add(usage, &[(subject.clone(), used(1, 1))]).await;
            expected.push(subject);
        }
    }
    expected.sort();
    expected.dedup();
    let mut seen = Vec::new();
    let mut filter = UsageFilter { tenant: None, after: None, limit: 2 };
    loop {
        let (page, _) = list(usage, &filter).await;
        assert!(page.len() <= 2);
        let Some((last, _)) = page.last() else { break };
        filter.after = Some(last.clone());
        seen.extend(page.into_iter().map(|(subject, _)| subject).filter(|s| s.tenant().starts_with("page ")));
    }
    assert_eq!(seen, expected);
    let of_b = UsageFilter { tenant: Some("page b".into()), after: None, limit: 100 };
    let of_b: Vec<_> = list(usage, &of_b).await.0.into_iter().map(|(subject, _)| subject).collect();
    assert_eq!(of_b, expected[2..]);
}

async fn reported_use_adds_up(usage: &dyn Usage) {
    let alice = principal("adding", "alice");
    let (tenant, caller) = (Subject::tenant_of(&alice), Subject::caller_of(&alice));
    let other = Subject::tenant_of(&principal("adding up", "alice"));
    assert_eq!(add(usage, &[(tenant.clone(), used(1, 2))]).await, [used(1, 2)]);
    let told = [(caller.clone(), used(5, 5)), (other.clone(), used(0, 7)), (tenant.clone(), used(10, 20))];
    assert_eq!(add(usage, &told).await, [used(5, 5), used(0, 7), used(11, 22)], "each for itself, in order");
    assert_eq!(add(usage, &[(caller, used(0, 0)), (other, used(1, 0))]).await, [used(5, 5), used(1, 7)]);
    assert_eq!(add(usage, &[]).await, []);
}

async fn stored_keys_and_bytes_are_counted<S: Store + Usage>(store: &S) {
    store.prepare().await.expect("it is made ready");
    store.prepare().await.expect("a second time is none the worse");
    let nothing = StoredAmount { keys: 0, bytes: 0 };
    let alice = Subject::caller_of(&principal("keeping", "alice"));
    let all = Subject::tenant_of(&principal("keeping", "alice"));
    assert_eq!(store.kept(&all).await.expect("it is counted"), nothing);
    let mut bytes = 0;
    for (caller, key) in [("alice", "first"), ("alice", "second"), ("bob", "first")] {
        let claim = sample::claim_on(sample::scope_of("keeping", caller, "payments.create", key));
        let claimed = store.claim(&claim).await.expect("it is claimed").record.expect("there is a record");
        if key == "first" {
            let result = sample::created(caller);
            bytes += result.response.bytes.len() as u64;
            let change = Change::complete(claimed.head.fence(), result);
            store.apply(&claimed.id, &change).await.expect("it is completed");
        }
    }
    let of_alice = store.kept(&alice).await.expect("it is counted");
    let of_all = store.kept(&all).await.expect("it is counted");
    assert_eq!((of_alice.keys, of_all), (2, StoredAmount { keys: 3, bytes }));
    assert!(of_alice.bytes > 0 && of_alice.bytes < bytes, "{of_alice:?} of {bytes}");

    let policy = Policy { mode: Mode::Async, ..Policy::default() };
    let mut later = sample::claim_on(sample::scope_of("keeping", "carol", "payments.create", "later"));
    later.attempt.start = Start::Within(policy.start_within);
    later.request = Some(StoredRequest::input(bytes::Bytes::from_static(b"a body that waits")));
    let waiting = later.request.as_ref().map_or(0, |request| request.bytes.len() as u64);
    store.claim(&later).await.expect("it is claimed");
    let carol = Subject::caller_of(&principal("keeping", "carol"));
    assert_eq!(store.kept(&carol).await.expect("it is counted"), StoredAmount { keys: 1, bytes: waiting });
    let nobody = Subject::caller_of(&principal("keep", "ingalice"));
    assert_eq!(store.kept(&nobody).await.expect("it is counted"), nothing);
}

async fn idle_subjects_are_forgotten(usage: &dyn Usage, advance: impl Fn(Duration)) {
    let day = Duration::from_secs(24 * 3600);
    while usage.forget(Duration::ZERO, 100).await.expect("it is written") > 0 {}
    let subject = |name: &str| Subject::tenant_of(&principal(name, "alice"));
    add(usage, &[(subject("one"), used(1, 1)), (subject("two"), used(1, 1)), (subject("three"), used(1, 1))])
        .await;
    assert_eq!(usage.forget(day, 100).await.expect("it is written"), 0);
    advance(day);
    add(usage, &[(subject("three"), used(1, 1))]).await;
    assert_eq!(usage.forget(day, 1).await.expect("it is written"), 1, "no more than asked for");
    assert_eq!(usage.forget(day, 100).await.expect("it is written"), 1);
    assert_eq!(add(usage, &[(subject("one"), used(1, 1))]).await, [used(1, 1)], "it begins anew");
    assert_eq!(add(usage, &[(subject("three"), used(1, 1))]).await, [used(3, 3)]);
}

/// Checks that no use is lost in concurrent reports.
async fn all_are_counted_at_once(nodes: Vec<Arc<dyn Usage>>) {
    let subjects: Vec<Subject> =
        ["a", "b", "c", "d"].map(|name| Subject::tenant_of(&principal(name, "x"))).to_vec();
    let before: Vec<_> = subjects.iter().map(|subject| (subject.clone(), used(0, 0))).collect();
    let before = add(&*nodes[0], &before).await;
    let tellers = (0..16).map(|teller: usize| {
        let (node, mut subjects) = (nodes[teller % nodes.len()].clone(), subjects.clone());
        subjects.rotate_left(teller % 4);
        tokio::spawn(async move {
            for _ in 0..5 {
                let told: Vec<_> = subjects.iter().map(|subject| (subject.clone(), used(1, 2))).collect();
                add(&*node, &told).await;
            }
        })
    });
    for teller in tellers.collect::<Vec<_>>() {
        teller.await.expect("it does not panic");
    }
    for (subject, before) in subjects.into_iter().zip(before) {
        let after = add(&*nodes[0], &[(subject, used(0, 0))]).await[0];
        assert_eq!(after, used(before.new_keys + 80, before.lookups + 160));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_is_counted_in_memory() {
    let clock = ManualClock::new();
    let store = Arc::new(MemoryStore::with_clock(clock.clone()));
    reported_use_adds_up(&*store).await;
    stored_keys_and_bytes_are_counted(&*store).await;
    idle_subjects_are_forgotten(&*store, |by| clock.advance(by)).await;
    subjects_are_listed_in_pages(&*store).await;
    levels_outlast_their_node(&[store.clone() as Arc<dyn Usage>], |by| clock.advance(by)).await;
    all_are_counted_at_once(vec![store]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_is_counted_in_sqlite_by_several_processes() {
    let folder = tempfile::TempDir::new().expect("there is room for a test");
    let open =
        || Arc::new(SqliteStore::open(folder.path().join("semel.db")).expect("the file can be opened"));
    let (store, other) = (open(), open());
    reported_use_adds_up(&*store).await;
    stored_keys_and_bytes_are_counted(&*store).await;
    let advance = |by| [&store, &other].into_iter().for_each(|store| store.shift_clock(by));
    idle_subjects_are_forgotten(&*store, advance).await;
    subjects_are_listed_in_pages(&*store).await;
    levels_outlast_their_node(&[store.clone(), other.clone()], advance).await;
    all_are_counted_at_once(vec![store, other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_is_counted_in_postgresql_by_several_processes() {
    let bed = postgres("").await;
    reported_use_adds_up(&*bed.store).await;
    idle_subjects_are_forgotten(&*bed.store, |by| bed.store.shift_clock(by)).await;
    let database = database().await;
    let (first, second) =
        (open(&database.url(), &patience(10_000)).await, open(&database.url(), &patience(10_000)).await);
    stored_keys_and_bytes_are_counted(&*first).await;
    subjects_are_listed_in_pages(&*first).await;
    let advance = |by| [&first, &second].into_iter().for_each(|store| store.shift_clock(by));
    levels_outlast_their_node(&[first.clone(), second.clone()], advance).await;
    all_are_counted_at_once(vec![first, second]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepare_refuses_an_invalid_usage_index_and_names_the_fix() {
    let database = database().await;
    let store = open(&database.url(), &patience(10_000)).await;
    store.prepare().await.expect("it is made");
    let broken = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'semel_records_usage'::regclass";
    database.sql(broken).expect("its owner may");
    let refused = store.prepare().await.expect_err("counting would be slow");
    assert!(refused.to_string().contains("DROP INDEX semel_records_usage"), "{refused}");
    database.sql("DROP INDEX semel_records_usage").expect("it is dropped");
    store.prepare().await.expect("it is made again");
}
