//! Holds in PostgreSQL, which several processes change at a time.

use semel_core::hold::MAX_HOLDS;
use semel_core::{AuditLog, Hold, HoldChange, HoldTarget, Holds, Note, Store};
use semel_stores::PostgresStore;
use semel_stores::postgres::PostgresOptions;

use crate::postgres::{client, database, open, postgres, until};

fn note(action: &str, why: &str) -> Note {
    Note { who: "token:olga".to_owned(), action: action.to_owned(), why: why.to_owned() }
}

async fn hold(store: &PostgresStore, target: &HoldTarget, note: &Note) -> HoldChange {
    store.hold(target, note).await.expect("it is written")
}

async fn lift(store: &PostgresStore, target: &HoldTarget, note: &Note) -> HoldChange {
    store.lift(target, note).await.expect("it is written")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_change_of_a_hold_leaves_one_note_about_no_command() {
    let bed = postgres("").await;
    let store = &*bed.store;
    let (tenant, operation) = (HoldTarget::Tenant("acme".into()), HoldTarget::Operation("a.b".into()));
    let targets = [&tenant, &HoldTarget::Reconciler, &operation];
    let before = store.now().await.expect("it has a clock");
    for target in targets {
        assert_eq!(hold(store, target, &note("hold", "incident 7")).await, HoldChange::Done);
    }
    assert_eq!(hold(store, &tenant, &note("hold", "again")).await, HoldChange::AlreadySo);
    let unheld = HoldTarget::Sink("acme".into());
    assert_eq!(lift(store, &unheld, &note("lift", "in vain")).await, HoldChange::AlreadySo);
    let holds = store.holds().await.expect("it reads");
    let held: Vec<_> = holds.iter().map(|hold| &hold.target).collect();
    assert_eq!(held, [&operation, &HoldTarget::Reconciler, &tenant], "by kind and name");
    for Hold { since, who, why, .. } in &holds {
        assert_eq!((&**who, &**why), ("token:olga", "incident 7"));
        assert!(*since >= before && *since <= store.now().await.expect("it has a clock"));
    }
    assert_eq!(lift(store, &tenant, &note("lift", "it is over")).await, HoldChange::Done);
    assert_eq!(store.holds().await.expect("it reads").len(), 2);
    let log = store.audit(None, 10).await.expect("it reads");
    assert!(log.iter().all(|entry| entry.operation_id.is_none()), "{log:?}");
    let mut told: Vec<_> =
        log.iter().map(|entry| (&*entry.taken.note.action, &*entry.taken.note.why)).collect();
    told.sort_unstable();
    let expected =
        [("hold", "incident 7"), ("hold", "incident 7"), ("hold", "incident 7"), ("lift", "it is over")];
    assert_eq!(told, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_processes_one_holds_a_target_and_one_lifts_it() {
    let database = database().await;
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(open(&database.url(), &PostgresOptions::default()).await);
    }
    let target = HoldTarget::Operation("payments.create".into());
    let note = note("hold", "incident 7");
    let held = futures_util::future::join_all(stores.iter().map(|store| hold(store, &target, &note))).await;
    let done = |changes: &[HoldChange]| changes.iter().filter(|change| **change == HoldChange::Done).count();
    assert_eq!(done(&held), 1, "{held:?}");
    let lifted = futures_util::future::join_all(stores.iter().map(|store| lift(store, &target, &note))).await;
    assert_eq!(done(&lifted), 1, "{lifted:?}");
    assert_eq!(stores[0].audit(None, 10).await.expect("it reads").len(), 2, "one note for each change");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_holds_are_in_force_than_may_be() {
    let database = database().await;
    let fill = format!(
        "INSERT INTO semel_holds SELECT 'tenant', n, 1, '', '' FROM generate_series(2, {MAX_HOLDS}) AS n"
    );
    database.sql(&fill).expect("there is room");
    let mut stores = Vec::new();
    for _ in 0..4 {
        stores.push(open(&database.url(), &PostgresOptions::default()).await);
    }
    // All of them wait for this transaction, and then come together.
    let locker = client(&database.url()).await;
    locker.batch_execute("BEGIN; LOCK TABLE semel_holds IN SHARE MODE").await.expect("it is locked");
    let adding: Vec<_> = stores
        .iter()
        .enumerate()
        .map(|(number, store)| {
            let store = store.clone();
            tokio::spawn(async move {
                hold(&store, &HoldTarget::Sink(number.to_string()), &note("hold", "incident 7")).await
            })
        })
        .collect();
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'semel_holds'::regclass";
    until(database.server(), database.name(), waiting, "4").await;
    locker.batch_execute("ROLLBACK").await.expect("it lets go");
    let mut changes = Vec::new();
    for task in adding {
        changes.push(task.await.expect("it does not panic"));
    }
    changes.sort_by_key(|change| *change == HoldChange::TooMany);
    assert_eq!(changes, [HoldChange::Done, HoldChange::TooMany, HoldChange::TooMany, HoldChange::TooMany]);
    let held = stores[0].holds().await.expect("it reads");
    assert_eq!(held.len(), MAX_HOLDS);
    assert_eq!(hold(&stores[0], &held[0].target, &note("hold", "again")).await, HoldChange::AlreadySo);
}
