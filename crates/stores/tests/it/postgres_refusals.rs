//! A server that refuses, for a while or for one record. Nothing is written for it, other records are
//! written, and the store retries by itself if that helps.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use semel_core::{Change, Claim, Decision, Record, Store, StoreError, StoredResult, Upkeep};
use semel_stores::PostgresStore;
use semel_stores::postgres::PostgresOptions;
use semel_testkit::postgres::Cluster;
use semel_testkit::proxy::FaultProxy;
use semel_testkit::sample;

use crate::postgres::{client, database, eventually, open, patience, until};
use crate::postgres_faults::one_lane;

const WAITS_FOR_A_LOCK: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND application_name = 'semel' AND datname = current_database()";

async fn acquire(store: &PostgresStore, claim: &Claim) -> Record {
    let answer = store.claim(claim).await.expect("it is decided");
    assert_eq!(answer.decision, Decision::Execute);
    answer.record.expect("an acquired command has a record")
}

fn completion(record: &Record, result: StoredResult) -> Change {
    Change::complete(record.head.fence(), result)
}

fn assert_unavailable<T: std::fmt::Debug>(answer: Result<T, StoreError>, why: &str) {
    match answer.expect_err("the server refuses") {
        StoreError::Unavailable(said) | StoreError::Busy(said) => assert!(said.contains(why), "{said}"),
        other => panic!("nothing was written: {other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_that_takes_too_long_has_written_nothing() {
    // On a slow machine the store's own timeout may end first, as a lock timeout.
    for (setting, why) in [("statement_timeout", " timeout"), ("lock_timeout", "lock timeout")] {
        let database = database().await;
        let address = format!("{}?options=-c%20{setting}%3D50", database.url());
        let store = open(&address, &PostgresOptions::default()).await;
        let record = acquire(&store, &sample::claim("running")).await;
        let other = client(&database.url()).await;
        other.batch_execute("BEGIN; LOCK TABLE semel_records IN SHARE MODE").await.expect("nobody writes");
        let claim = sample::claim("k");
        assert_unavailable(store.claim(&claim).await, why);
        let change = completion(&record, sample::created("done"));
        assert_unavailable(store.apply(&record.id, &change).await, why);
        assert_eq!(store.get(&sample::id(&claim)).await.expect("it reads").record, None);
        other.batch_execute("ROLLBACK").await.expect("it gives the lock back");
        acquire(&store, &claim).await;
        let answer = store.apply(&record.id, &change).await.expect("it is decided");
        assert_eq!(answer.decision, Decision::Applied);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_to_a_locked_table_time_out_and_leave_no_waiting_sessions() {
    let database = database().await;
    let store = Arc::new(open(&database.url(), &patience(500)).await);
    let record = acquire(&store, &sample::claim("running")).await;
    let other = client(&database.url()).await;
    other.batch_execute("BEGIN; LOCK TABLE semel_records IN ACCESS EXCLUSIVE MODE").await.expect("it waits");
    for number in 0..12 {
        let claim = sample::claim(&format!("key-{number}"));
        assert_unavailable(store.claim(&claim).await, "lock timeout");
        let _ = store.sweep(10).await;
    }
    let waiting = database.sql(WAITS_FOR_A_LOCK).expect("it reads");
    let waiting: usize = waiting.trim().parse().expect("it is a number");
    assert!(waiting <= 1 + PostgresOptions::default().lanes, "nothing is left waiting behind: {waiting}");
    other.batch_execute("ROLLBACK").await.expect("it gives the lock back");
    let change = completion(&record, sample::created("done"));
    assert_eq!(eventually(|| store.apply(&record.id, &change)).await.decision, Decision::Applied);
    acquire(&store, &sample::claim("key-0")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_was_altered_is_prepared_anew() {
    let database = database().await;
    let store = open(&database.url(), &PostgresOptions::default()).await;
    let claim = sample::claim("k");
    acquire(&store, &claim).await;
    for _ in 0..20 {
        store.get(&sample::id(&claim)).await.expect("it reads");
    }
    let alter = "ALTER TABLE semel_records ALTER COLUMN reason TYPE varchar(200)";
    database.sql(alter).expect("it can be altered");
    for _ in 0..20 {
        let found = store.get(&sample::id(&claim)).await.expect("it reads").record;
        assert!(found.is_some());
        let again = store.claim(&sample::claim("k")).await.expect("it is decided");
        assert_eq!(again.decision, Decision::Wait);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_only_reads_is_left_alone_until_it_writes() {
    let cluster = Cluster::start().expect("a server can be started");
    let database = cluster.create_database().expect("a database can be made");
    let store = open(&database.url(), &PostgresOptions::default()).await;
    let running = acquire(&store, &sample::claim("running")).await;
    let set = |statement: &str| {
        database.sql(statement).and_then(|_| database.sql("SELECT pg_reload_conf()")).expect("it can be set");
    };
    set("ALTER SYSTEM SET default_transaction_read_only = on");
    // Each connection notices the setting at its own time.
    let mut refused = None;
    for number in 0..1_000 {
        let claim = sample::claim(&format!("key-{number}"));
        if let Err(error) = store.claim(&claim).await {
            refused = Some((claim, error));
            break;
        }
    }
    let (claim, error) = refused.expect("it only reads");
    // In the words of the server, or of the driver that looks for a writable one.
    assert!(matches!(error, StoreError::Unavailable(_)), "nothing was written: {error}");
    let change = completion(&running, sample::created("done"));
    set("ALTER SYSTEM RESET default_transaction_read_only");
    assert_eq!(eventually(|| store.apply(&running.id, &change)).await.decision, Decision::Applied);
    assert_eq!(eventually(|| store.claim(&claim)).await.decision, Decision::Execute);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_room_for_a_connection_is_tried_again() {
    let cluster = Cluster::start_with(&[("max_connections", "16")]).expect("a server can be started");
    let database = cluster.create_database().expect("a database can be made");
    let proxy = FaultProxy::before(&database.url()).await.expect("a proxy can be started");
    let store = open(&proxy.url(&database.url()), &patience(5_000)).await;
    let record = acquire(&store, &sample::claim("running")).await;
    // Other clients take every connection that the store loses.
    proxy.cut_all().await;
    let mut others = Vec::new();
    let full = loop {
        match tokio_postgres::connect(&database.url(), tokio_postgres::NoTls).await {
            Ok((other, connection)) => {
                tokio::spawn(connection);
                others.push(other);
            }
            Err(error) => break error,
        }
        assert!(others.len() < 100, "there is no end of it");
    };
    assert!(full.code().is_some_and(|code| code.code() == "53300"), "{full}");
    let claim = sample::claim("k");
    assert_unavailable(store.claim(&claim).await, "too many clients");
    assert_unavailable(store.get(&record.id).await, "too many clients");
    drop(others);
    assert_eq!(eventually(|| store.claim(&claim)).await.decision, Decision::Execute);
    assert!(store.get(&record.id).await.expect("it reads").record.is_some());
}

/// Puts the file of large responses on the kernel's device that is always full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_fails_closed_and_loses_nothing() {
    let cluster = Cluster::start().expect("a server can be started");
    let database = cluster.create_database().expect("a database can be made");
    let store = open(&database.url(), &PostgresOptions::default()).await;
    let small = acquire(&store, &sample::claim("small")).await;
    let large = acquire(&store, &sample::claim("large")).await;
    let file = database
        .sql("SELECT pg_relation_filepath(reltoastrelid) FROM pg_class WHERE relname = 'semel_records'")
        .expect("it can be read");
    let file = cluster.folder().join("data").join(file);
    cluster.stop_fast().expect("the server stops");
    let moved = file.with_extension("moved");
    fs::rename(&file, &moved).expect("it is there");
    symlink("/dev/full", &file).expect("a link can be made");
    cluster.restart().expect("the server starts again");

    // Compression does not make it smaller.
    let body: Vec<u8> = (0..4_000).flat_map(|_| semel_core::ids::secret()).collect();
    let result = sample::result(&sample::response(201, body));
    let store_all = |large: Change, small: Change, ids| {
        let store = store.clone();
        async move {
            let (one, other): (semel_core::RecordId, semel_core::RecordId) = ids;
            tokio::join!(store.apply(&one, &large), store.apply(&other, &small))
        }
    };
    eventually(|| store.now()).await;
    let (refused, stored) = store_all(
        completion(&large, result.clone()),
        completion(&small, sample::created("done")),
        (large.id, small.id),
    )
    .await;
    assert_unavailable(refused, "No space left on device");
    if let Err(error) = stored {
        // They shared a group.
        assert_unavailable::<()>(Err(error), "No space left on device");
        let change = completion(&small, sample::created("done"));
        let answer = store.apply(&small.id, &change).await.expect("it needs no room there");
        assert_eq!(answer.decision, Decision::Applied);
    }
    let found = store.get(&large.id).await.expect("it reads").record;
    assert_eq!(found.as_ref(), Some(&large), "nothing was written");

    // An operator made room.
    cluster.stop_fast().expect("the server stops");
    fs::remove_file(&file).expect("the link is there");
    fs::rename(&moved, &file).expect("it is there");
    cluster.restart().expect("the server starts again");
    let change = completion(&large, result.clone());
    assert_eq!(eventually(|| store.apply(&large.id, &change)).await.decision, Decision::Applied);
    let replay = store.claim(&sample::claim("large")).await.expect("it is decided");
    assert_eq!(replay.record.and_then(|record| record.result), Some(result));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_record_that_cannot_be_written_does_not_fail_its_group() {
    const COUNT: u64 = 40;
    let bed = one_lane().await;
    let store = bed.store.clone();
    let mut records = Vec::new();
    for number in 0..COUNT {
        records.push(acquire(&store, &sample::claim(&format!("key-{number}"))).await);
    }
    let poisoned = |number: usize| number % 20 == 7;
    let completions = records.iter().cloned().enumerate().map(|(number, record)| {
        let store = store.clone();
        let mut result = sample::created("done");
        if poisoned(number) {
            // Text in PostgreSQL has no zero bytes.
            result.resource = Some("/payments/\0".to_owned());
        }
        async move { store.apply(&record.id, &completion(&record, result)).await }
    });
    let before = store.sent();
    let tasks = bed.together(completions).await;
    for (number, task) in tasks.into_iter().enumerate() {
        match task.await.expect("it does not panic") {
            Ok(answer) => assert_eq!((answer.decision, poisoned(number)), (Decision::Applied, false)),
            Err(error) => {
                assert!(poisoned(number) && matches!(error, StoreError::Rejected(_)), "{number}: {error}");
            }
        }
    }
    let after = store.sent();
    assert!(after.changes - before.changes >= 2 * COUNT, "together, then each alone: {before:?} {after:?}");
    // A command whose result could not be stored is settled without it.
    let change = completion(&records[7], sample::created("done"));
    let answer = store.apply(&records[7].id, &change).await.expect("it fits");
    assert_eq!(answer.decision, Decision::Applied);

    let claim = sample::with_reference(sample::claim("other"), "order\0 7");
    let error = store.claim(&claim).await.expect_err("it cannot be written");
    assert!(matches!(error, StoreError::Rejected(_)), "{error}");
    assert_eq!(store.get(&sample::id(&claim)).await.expect("it reads").record, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_is_the_victim_of_a_deadlock_is_tried_again() {
    let bed = one_lane().await;
    let mut claims = [sample::claim("a"), sample::claim("b")];
    // They are locked in this order, whatever the server's plan.
    claims.sort_by_key(|claim| *sample::id(claim).as_bytes());
    let records = [bed.acquire(&claims[0]).await, bed.acquire(&claims[1]).await];
    let other = client(&bed.database.url()).await;
    // The store notices the deadlock first.
    other.batch_execute("SET deadlock_timeout = '100s'; BEGIN").await.expect("its owner may");
    let touch = "UPDATE semel_records SET key_hash_prefix = key_hash_prefix WHERE id = $1";
    other.execute(touch, &[&&records[1].id.as_bytes()[..]]).await.expect("nobody holds it");
    let before = bed.store.sent();
    let completions = records.iter().cloned().map(|record| {
        let store = bed.store.clone();
        async move {
            let change = completion(&record, sample::created("done"));
            store.apply(&record.id, &change).await.expect("it is decided").decision
        }
    });
    let both = bed.together(completions).await;
    until(bed.database.server(), bed.database.name(), WAITS_FOR_A_LOCK, "1").await;
    other.execute(touch, &[&&records[0].id.as_bytes()[..]]).await.expect("the store gives way");
    other.batch_execute("COMMIT").await.expect("it commits");
    for task in both {
        assert_eq!(task.await.expect("it does not panic"), Decision::Applied);
    }
    let after = bed.store.sent();
    assert!(after.writes - before.writes >= 2, "the first time was in vain: {before:?} {after:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_of_two_stores_on_the_same_records_all_get_through() {
    const RECORDS: usize = 40;
    let database = database().await;
    let stores: [Arc<PostgresStore>; 2] = [
        open(&database.url(), &PostgresOptions::default()).await,
        open(&database.url(), &PostgresOptions::default()).await,
    ];
    let mut records = Vec::new();
    for number in 0..RECORDS {
        records.push(acquire(&stores[0], &sample::claim(&format!("key-{number}"))).await);
    }
    let tasks: Vec<_> = (0..RECORDS * 8)
        .map(|number| {
            // From both ends, so that the groups meet in the middle.
            let place = if number % 2 == 0 { number / 2 } else { RECORDS * 8 - number / 2 } % RECORDS;
            let (store, record) = (stores[number % 2].clone(), records[place].clone());
            tokio::spawn(async move {
                let renew = Change::renew(record.head.fence());
                store.apply(&record.id, &renew).await.expect("it is decided").decision
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.expect("it does not panic"), Decision::Applied);
    }
    for record in &records {
        let answer = stores[1].apply(&record.id, &completion(record, sample::created("done"))).await;
        assert_eq!(answer.expect("it is decided").decision, Decision::Applied);
    }
}
