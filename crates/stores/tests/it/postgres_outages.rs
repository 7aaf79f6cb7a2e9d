//! A server that is killed, stopped or paused: nothing runs meanwhile, no caller gets a false answer, and the
//! same store continues once the server does.

use std::sync::Arc;

use semel_core::{Change, Claim, Decision, Record, Records, Store, StoreError, Upkeep};
use semel_stores::PostgresStore;
use semel_stores::postgres::PostgresOptions;
use semel_testkit::postgres::{Cluster, Database, Error};
use semel_testkit::proxy::FaultProxy;
use semel_testkit::sample;

use crate::postgres::{database, eventually, open, patience};

fn cluster() -> (Cluster, Database) {
    let cluster = Cluster::start().expect("a server can be started");
    let database = cluster.create_database().expect("a database can be made");
    (cluster, database)
}

async fn acquire(store: &PostgresStore, claim: &Claim) -> Record {
    let answer = eventually(|| store.claim(claim)).await;
    assert_eq!(answer.decision, Decision::Execute);
    answer.record.expect("an acquired command has a record")
}

async fn complete(store: &PostgresStore, record: &Record) {
    let change = Change::complete(record.head.fence(), sample::created("done"));
    let answer = eventually(|| store.apply(&record.id, &change)).await;
    assert_eq!(answer.decision, Decision::Applied);
}

/// Checks that no call succeeds that only the server can answer.
async fn assert_fails_closed(store: &PostgresStore, record: &Record) {
    for error in [
        store.get(&record.id).await.map(|_| ()),
        store.find(record.operation_id).await.map(|_| ()),
        store.sweep(10).await.map(|_| ()),
        store.reap(10).await.map(|_| ()),
        store.now().await.map(|_| ()),
    ] {
        let error = error.expect_err("the server does not answer");
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    }
}

async fn assert_survives(end: fn(&Cluster) -> Result<(), Error>) {
    let (cluster, database) = cluster();
    let store = open(&database.url(), &patience(2_000)).await;
    for round in 0..2 {
        let settled = acquire(&store, &sample::claim(&format!("settled-{round}"))).await;
        complete(&store, &settled).await;
        let running = acquire(&store, &sample::claim(&format!("running-{round}"))).await;

        end(&cluster).expect("the server can be ended");
        let during = sample::claim(&format!("during-{round}"));
        let error = store.claim(&during).await.expect_err("the server does not answer");
        // The store knows if its statement was in flight before the end was noticed.
        assert!(matches!(error, StoreError::Unavailable(_) | StoreError::Ambiguous(_)), "{error}");
        assert_fails_closed(&store, &running).await;
        let fresh = sample::claim(&format!("fresh-{round}"));
        let error = store.claim(&fresh).await.expect_err("the server does not answer");
        assert!(matches!(error, StoreError::Unavailable(_)), "nothing was sent: {error}");

        cluster.restart().expect("the server starts again");
        let retry = sample::claim(&format!("settled-{round}"));
        let replayed = eventually(|| store.claim(&retry)).await;
        assert_eq!(replayed.decision, Decision::Replay);
        assert_eq!(replayed.record.and_then(|record| record.result), Some(sample::created("done")));
        complete(&store, &running).await;
        assert_eq!(store.get(&sample::id(&fresh)).await.expect("it reads").record, None);
        acquire(&store, &during).await;
        eventually(|| store.sweep(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_is_found_again() {
    assert_survives(Cluster::kill9).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_is_found_again() {
    assert_survives(Cluster::stop_fast).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_the_server_ends_are_made_again() {
    let (cluster, database) = cluster();
    let store = open(&database.url(), &patience(5_000)).await;
    for round in 0..10 {
        let record = acquire(&store, &sample::claim(&format!("key-{round}"))).await;
        assert!(cluster.terminate_backends().expect("the server does as it is told") > 0);
        // The change is in doubt at worst, and is then pursued: its caller does not notice.
        let change = Change::complete(record.head.fence(), sample::created("done"));
        let answer = store.apply(&record.id, &change).await.expect("it is decided");
        assert_eq!(answer.decision, Decision::Applied);
    }
}

/// Calls while no answer comes, then resumes. The store has one open connection for changes.
async fn assert_patience_ends(store: Arc<PostgresStore>, pause: impl FnOnce(), resume: impl AsyncFnOnce()) {
    let running = acquire(&store, &sample::claim("running")).await;
    let other = acquire(&store, &sample::claim("other")).await;
    pause();
    let (claim, fence) = (sample::claim("during"), running.head.fence());
    let complete_other = Change::complete(other.head.fence(), sample::created("done"));
    let error = store.claim(&claim).await.expect_err("nobody answers");
    assert!(matches!(error, StoreError::Ambiguous(_)), "it was sent: {error}");
    let error = store.apply(&other.id, &complete_other).await.expect_err("nobody answers");
    assert!(matches!(error, StoreError::Unavailable(_)), "there is no connection to send it over: {error}");
    assert_fails_closed(&store, &running).await;

    resume().await;
    acquire(&store, &claim).await;
    let rival = sample::claim("during");
    let rival = eventually(|| store.claim(&rival)).await;
    assert_eq!(rival.decision, Decision::Wait);
    complete(&store, &running).await;
    let again = eventually(|| store.apply(&other.id, &complete_other)).await;
    assert_eq!(again.decision, Decision::Applied);
    let found = store.get(&running.id).await.expect("it reads").record.expect("it is there");
    assert_eq!(found.head.fence(), fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_is_not_waited_for_and_is_found_again() {
    let (cluster, database) = cluster();
    let store = open(&database.url(), &PostgresOptions { lanes: 1, ..patience(1_000) }).await;
    let (pause, resume) = (|| cluster.pause(), || cluster.resume());
    assert_patience_ends(
        store,
        || pause().expect("the server can be paused"),
        async || resume().expect("the server can go on"),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_swallows_everything_is_not_waited_for() {
    let database = database().await;
    let proxy = FaultProxy::before(&database.url()).await.expect("a proxy can be started");
    let store = open(&proxy.url(&database.url()), &PostgresOptions { lanes: 1, ..patience(1_000) }).await;
    // Swallowed statements arrive late, after their repetitions.
    assert_patience_ends(
        store,
        || proxy.blackhole(),
        async || proxy.heal().await.expect("it was never closed"),
    )
    .await;
}
