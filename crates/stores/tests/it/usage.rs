//! What is used and what is kept is counted alike in every store.

use std::sync::Arc;
use std::time::Duration;

use semel_core::policy::Mode;
use semel_core::quota::{Kept, Subject, Usage, Used};
use semel_core::{Change, Policy, Principal, Start, Store, StoredRequest};
use semel_stores::{MemoryStore, SqliteStore};
use semel_testkit::{ManualClock, sample};

use crate::postgres::{database, open, patience, postgres};

fn principal(tenant: &str, caller: &str) -> Principal {
    Principal::new(tenant, caller).expect("these are names")
}

fn used(new_keys: u64, lookups: u64) -> Used {
    Used { new_keys, lookups }
}

async fn add(usage: &dyn Usage, what: &[(Subject, Used)]) -> Vec<Used> {
    usage.add(what).await.expect("it is counted")
}

async fn what_is_used_adds_up(usage: &dyn Usage) {
    let alice = principal("adding", "alice");
    let (tenant, caller) = (Subject::tenant_of(&alice), Subject::caller_of(&alice));
    let other = Subject::tenant_of(&principal("adding up", "alice"));
    assert_eq!(add(usage, &[(tenant.clone(), used(1, 2))]).await, [used(1, 2)]);
    let told = [(caller.clone(), used(5, 5)), (other.clone(), used(0, 7)), (tenant.clone(), used(10, 20))];
    assert_eq!(add(usage, &told).await, [used(5, 5), used(0, 7), used(11, 22)], "each for itself, in order");
    assert_eq!(add(usage, &[(caller, used(0, 0)), (other, used(1, 0))]).await, [used(5, 5), used(1, 7)]);
    assert_eq!(add(usage, &[]).await, []);
}

async fn what_is_kept_is_counted<S: Store + Usage>(store: &S) {
    store.prepare().await.expect("it is made ready");
    store.prepare().await.expect("a second time is none the worse");
    let nothing = Kept { keys: 0, bytes: 0 };
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
    assert_eq!((of_alice.keys, of_all), (2, Kept { keys: 3, bytes }));
    assert!(of_alice.bytes > 0 && of_alice.bytes < bytes, "{of_alice:?} of {bytes}");

    let policy = Policy { mode: Mode::Async, ..Policy::default() };
    let mut later = sample::claim_on(sample::scope_of("keeping", "carol", "payments.create", "later"));
    later.attempt.start = Start::Within(policy.start_within);
    later.request = Some(StoredRequest::input(bytes::Bytes::from_static(b"a body that waits")));
    let waiting = later.request.as_ref().map_or(0, |request| request.bytes.len() as u64);
    store.claim(&later).await.expect("it is claimed");
    let carol = Subject::caller_of(&principal("keeping", "carol"));
    assert_eq!(store.kept(&carol).await.expect("it is counted"), Kept { keys: 1, bytes: waiting });
    let nobody = Subject::caller_of(&principal("keep", "ingalice"));
    assert_eq!(store.kept(&nobody).await.expect("it is counted"), nothing);
}

async fn who_uses_nothing_is_forgotten(usage: &dyn Usage, advance: impl Fn(Duration)) {
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

/// Nobody's use is lost, however many tell of it at once.
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
    what_is_used_adds_up(&*store).await;
    what_is_kept_is_counted(&*store).await;
    who_uses_nothing_is_forgotten(&*store, |by| clock.advance(by)).await;
    all_are_counted_at_once(vec![store]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_is_counted_in_sqlite_by_several_processes() {
    let folder = tempfile::TempDir::new().expect("there is room for a test");
    let open =
        || Arc::new(SqliteStore::open(folder.path().join("semel.db")).expect("the file can be opened"));
    let (store, other) = (open(), open());
    what_is_used_adds_up(&*store).await;
    what_is_kept_is_counted(&*store).await;
    who_uses_nothing_is_forgotten(&*store, |by| store.shift_clock(by)).await;
    all_are_counted_at_once(vec![store, other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_is_counted_in_postgresql_by_several_processes() {
    let bed = postgres("").await;
    what_is_used_adds_up(&*bed.store).await;
    who_uses_nothing_is_forgotten(&*bed.store, |by| bed.store.shift_clock(by)).await;
    let database = database().await;
    let (first, second) =
        (open(&database.url(), &patience(10_000)).await, open(&database.url(), &patience(10_000)).await);
    what_is_kept_is_counted(&*first).await;
    all_are_counted_at_once(vec![first, second]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_was_not_finished_is_told_of() {
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
