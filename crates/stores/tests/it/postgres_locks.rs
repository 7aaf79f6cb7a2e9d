//! A record that another transaction keeps locked waits for its turn, and delays no other record.

use std::sync::Arc;
use std::time::Duration;

use semel_core::{Change, Decision, Record, RecordId, Store, StoreError, Upkeep, WaitingFilter};
use semel_stores::PostgresStore;
use semel_stores::encryption::{AesVault, Rotated, Rotation, RotationStep};
use semel_stores::postgres::PostgresOptions;
use semel_testkit::postgres::Database;
use semel_testkit::proxy::{FaultProxy, Matching};
use semel_testkit::sample;
use tokio_postgres::Client;

use crate::postgres::{client, database, open, patience, through_pgbouncer, until};
use crate::postgres_faults::{bed, one_lane};

/// Times just after the lease of these records, and just after their expiry.
const LEASE_OVER: Duration = Duration::from_secs(3600);
const LONG_EXPIRED: Duration = Duration::from_secs(400 * 24 * 3600);

const WAITS_FOR_A_LOCK: &str = "SELECT count(*) > 0 FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND datname = current_database()";

async fn acquired(store: &PostgresStore, key: &str) -> Record {
    let answer = store.claim(&sample::claim(key)).await.expect("it is decided");
    assert_eq!(answer.decision, Decision::Execute, "{key}");
    answer.record.expect("an acquired command has a record")
}

/// Returns a client whose open transaction has run this statement on the record.
async fn locker(database: &Database, statement: &str, id: &RecordId) -> Client {
    let client = client(&database.url()).await;
    client.batch_execute("BEGIN").await.expect("it begins");
    client.execute(statement, &[&&id.as_bytes()[..]]).await.expect("nobody else holds it");
    client
}

const LOCK: &str = "SELECT FROM semel_records WHERE id = $1 FOR UPDATE";
const DELETE: &str = "DELETE FROM semel_records WHERE id = $1";

fn completion(record: &Record) -> Change {
    Change::complete(record.head.fence(), sample::created("done"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_record_does_not_fail_completions_that_travel_with_it() {
    let bed = one_lane().await;
    let mut records = Vec::new();
    for number in 0..20 {
        records.push(acquired(&bed.store, &format!("key-{number}")).await);
    }
    let locker = locker(&bed.database, LOCK, &records[7].id).await;
    let tasks = records.iter().cloned().map(|record| {
        let store = bed.store.clone();
        async move { store.apply(&record.id, &completion(&record)).await }
    });
    let running = bed.together(tasks).await;
    for (number, task) in running.into_iter().enumerate() {
        match (number, task.await.expect("it does not panic")) {
            (7, answer) => assert!(matches!(answer, Err(StoreError::Busy(_))), "{answer:?}"),
            (_, answer) => assert_eq!(answer.expect("nobody holds it").decision, Decision::Applied),
        }
    }
    locker.batch_execute("ROLLBACK").await.expect("it lets go");
    let answer = bed.store.apply(&records[7].id, &completion(&records[7])).await;
    assert_eq!(answer.expect("nobody holds it").decision, Decision::Applied);
}

/// A `statement_timeout` shorter than the lock timeout reports 57014 for a lock, for the whole group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_takes_too_long_does_not_fail_completions_that_travel_with_it() {
    let options = PostgresOptions { lanes: 1, ..PostgresOptions::default() };
    let timeouts = "?options=-c%20lock_timeout%3D60s%20-c%20statement_timeout%3D1500ms";
    let bed = bed(timeouts, &options).await;
    let mut records = Vec::new();
    for number in 0..20 {
        records.push(acquired(&bed.store, &format!("key-{number}")).await);
    }
    let locker = locker(&bed.database, LOCK, &records[7].id).await;
    let tasks = records.iter().cloned().map(|record| {
        let store = bed.store.clone();
        async move { store.apply(&record.id, &completion(&record)).await }
    });
    for (number, task) in bed.together(tasks).await.into_iter().enumerate() {
        match (number, task.await.expect("it does not panic")) {
            (7, answer) => assert!(matches!(answer, Err(StoreError::Busy(_))), "{answer:?}"),
            (_, answer) => assert_eq!(answer.expect("nobody holds it").decision, Decision::Applied),
        }
    }
    locker.batch_execute("ROLLBACK").await.expect("it lets go");
}

/// Returns the result of a rotation to the key "new".
async fn rotated(store: &Arc<PostgresStore>) -> Rotated {
    let vault = AesVault::new("new", [("new".to_owned(), [1; 32])]).expect("the key is good");
    let mut rotation = Rotation::new(store.clone(), Arc::new(vault), 100);
    while rotation.step().await.expect("the others can be written") != RotationStep::Done {}
    rotation.so_far().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_record_is_left_out_of_a_rotation_which_says_so() {
    let database = database().await;
    let store = open(&database.url(), &PostgresOptions::default()).await;
    let mut records = Vec::new();
    for number in 0..10 {
        let record = acquired(&store, &format!("key-{number}")).await;
        store.apply(&record.id, &completion(&record)).await.expect("it is decided");
        records.push(record);
    }
    let holder = locker(&database, LOCK, &records[3].id).await;
    let most = rotated(&store).await;
    assert_eq!((most.resealed, most.held, most.overtaken), (9, 1, false), "{most:?}");
    assert!(!most.is_complete());
    holder.batch_execute("ROLLBACK").await.expect("it lets go");
    let rest = rotated(&store).await;
    assert_eq!((rest.resealed, rest.held), (1, 0), "{rest:?}");
    assert!(rest.is_complete());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_record_does_not_fail_claims_that_travel_with_it() {
    let bed = one_lane().await;
    let taken = acquired(&bed.store, "key-7").await;
    // A claim of the key waits for the end of this transaction.
    let locker = locker(&bed.database, DELETE, &taken.id).await;
    let tasks = (0..20).map(|number| {
        let (store, claim) = (bed.store.clone(), sample::claim(&format!("key-{number}")));
        async move { store.claim(&claim).await }
    });
    for (number, task) in bed.together(tasks).await.into_iter().enumerate() {
        match (number, task.await.expect("it does not panic")) {
            (7, answer) => assert!(matches!(answer, Err(StoreError::Busy(_))), "{answer:?}"),
            (_, answer) => assert_eq!(answer.expect("nobody holds it").decision, Decision::Execute),
        }
    }
    locker.batch_execute("COMMIT").await.expect("it is gone");
    acquired(&bed.store, "key-7").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_a_locked_record_is_still_reported_as_busy() {
    let subject = through_pgbouncer().await;
    let (store, database) = (subject.store.clone(), &subject.database);
    let record = acquired(&store, "locked").await;
    let locker = locker(database, LOCK, &record.id).await;
    let answer = store.apply(&record.id, &completion(&record)).await;
    assert!(matches!(answer, Err(StoreError::Busy(_))), "{answer:?}");
    locker.batch_execute("ROLLBACK").await.expect("it lets go");
    let answer = store.apply(&record.id, &completion(&record)).await;
    assert_eq!(answer.expect("nobody holds it").decision, Decision::Applied);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_waits_for_a_lock_that_is_given_back_in_time() {
    let database = database().await;
    let store = open(&database.url(), &patience(60_000)).await;
    let record = acquired(&store, "locked").await;
    let locker = locker(&database, LOCK, &record.id).await;
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let (store, record) = (store.clone(), record.clone());
            tokio::spawn(async move { store.apply(&record.id, &completion(&record)).await })
        })
        .collect();
    until(database.server(), database.name(), WAITS_FOR_A_LOCK, "t").await;
    // Other records proceed meanwhile, on every lane.
    for number in 0..20 {
        acquired(&store, &format!("key-{number}")).await;
    }
    locker.batch_execute("ROLLBACK").await.expect("it lets go");
    for task in waiting {
        let answer = task.await.expect("it does not panic").expect("the lock was given back");
        assert_eq!(answer.decision, Decision::Applied);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_locked_record_is_left_out_of_sweeps_and_reaps() {
    let database = database().await;
    let store = open(&database.url(), &PostgresOptions::default()).await;
    let mut records = Vec::new();
    for number in 0..10 {
        records.push(acquired(&store, &format!("key-{number}")).await);
    }
    store.shift_clock(LEASE_OVER);
    let holder = locker(&database, LOCK, &records[0].id).await;
    assert_eq!(store.sweep(100).await.expect("the others can be swept").len(), 9);
    holder.batch_execute("ROLLBACK").await.expect("it lets go");
    assert_eq!(store.sweep(100).await.expect("nobody holds it").len(), 1);

    for number in 0..10 {
        let record = acquired(&store, &format!("done-{number}")).await;
        store.apply(&record.id, &completion(&record)).await.expect("it is decided");
        records.push(record);
    }
    store.shift_clock(LONG_EXPIRED);
    let holder = locker(&database, LOCK, &records[10].id).await;
    assert_eq!(store.reap(100).await.expect("the others can be reaped").len(), 9);
    holder.batch_execute("ROLLBACK").await.expect("it lets go");
    assert_eq!(store.reap(100).await.expect("nobody holds it").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_count_holds_up_neither_sweeps_nor_polls() {
    let database = database().await;
    let proxy = FaultProxy::before(&database.url()).await.expect("a proxy can be started");
    let store = open(&proxy.url(&database.url()), &PostgresOptions::default()).await;
    let held = proxy.hold_answer(Matching::statement("GROUP BY operation, state"));
    let counting = tokio::spawn({
        let store: Arc<PostgresStore> = store.clone();
        async move { store.census().await }
    });
    held.reached().await;
    assert_eq!(store.sweep(10).await.expect("it has a connection of its own"), []);
    let page = store.waiting(&WaitingFilter::default()).await.expect("it has a connection of its own");
    assert!(page.found.is_empty());
    held.release();
    assert!(counting.await.expect("it does not panic").expect("it is answered").groups.is_empty());
}
