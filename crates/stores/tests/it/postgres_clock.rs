//! The database's clock is set, or another server has another clock: no record is deleted or freed, and no
//! command runs again, on any number of nodes.

use std::sync::Arc;
use std::time::Duration;

use semel_core::transition::{Proof, Refusal};
use semel_core::{Change, Claim, Decision, Reason, Record, Store, Upkeep};
use semel_stores::PostgresStore;
use semel_stores::postgres::PostgresOptions;
use semel_testkit::postgres::Database;
use semel_testkit::sample;

use crate::postgres::{database, open};

const HOUR: Duration = Duration::from_secs(3600);

/// Returns a claim whose record is kept for an hour.
fn for_an_hour(key: &str) -> Claim {
    let mut claim = sample::claim(key);
    claim.attempt.terms.ttl = HOUR;
    claim.attempt.terms.tombstone_ttl = None;
    claim
}

async fn node(database: &Database, parameters: &str) -> Arc<PostgresStore> {
    open(&format!("{}{parameters}", database.url()), &PostgresOptions::default()).await
}

async fn acquire(store: &PostgresStore, key: &str) -> Record {
    let answer = store.claim(&for_an_hour(key)).await.expect("it is decided");
    assert_eq!(answer.decision, Decision::Execute);
    answer.record.expect("an acquired command has a record")
}

async fn settle(store: &PostgresStore, key: &str) {
    let record = acquire(store, key).await;
    let complete = Change::complete(record.head.fence(), sample::created("mine"));
    assert_eq!(store.apply(&record.id, &complete).await.expect("it is decided").decision, Decision::Applied);
}

async fn decide(store: &PostgresStore, key: &str) -> Decision {
    store.claim(&for_an_hour(key)).await.expect("it is decided").decision
}

/// Makes every new connection meet a server whose clock is `hours` ahead, as after a failover.
fn fail_over(database: &Database, hours: i32) {
    let name = database.name();
    let statements = format!(
        "CREATE OR REPLACE FUNCTION public.now() RETURNS timestamptz LANGUAGE sql STABLE
             AS $$ SELECT pg_catalog.now() + interval '{hours} hours' $$;
         ALTER DATABASE \"{name}\" SET search_path = public, pg_catalog"
    );
    database.sql(&statements).expect("the server takes it");
    database.terminate_backends().expect("the server ends them");
}

fn skipped(database: &Database) -> Duration {
    let skipped = database.sql("SELECT skipped_ms FROM semel_store").expect("it reads");
    Duration::from_millis(skipped.parse().expect("it is a number"))
}

/// Claims until it is answered: a call whose connection ended may have to be repeated.
async fn eventually(store: &PostgresStore, key: &str) -> Decision {
    for _ in 0..20 {
        if let Ok(answer) = store.claim(&for_an_hour(key)).await {
            return answer.decision;
        }
    }
    panic!("the store does not come back");
}

#[tokio::test]
async fn a_failover_to_a_wrong_clock_runs_nothing_again() {
    for parameters in ["", "?prepared_statements=false", "?groups=false"] {
        let database = database().await;
        let store = node(&database, parameters).await;
        settle(&store, "settled").await;
        let unknown = acquire(&store, "unknown").await;
        let abandon = Change::abandon(unknown.head.fence(), Reason::TimedOut);
        store.apply(&unknown.id, &abandon).await.expect("it is decided");
        fail_over(&database, 3);
        assert_eq!(eventually(&store, "settled").await, Decision::Replay, "{parameters}");
        let verdict = Change::resolve_not_executed(Proof::Quarantine);
        let answer = store.apply(&unknown.id, &verdict).await.expect("it is decided");
        assert!(matches!(answer.decision, Decision::Refused(Refusal::StillInFlight { .. })), "{parameters}");
        assert_eq!(store.reap(100).await.expect("it reaps"), [], "{parameters}");
        let skipped = skipped(&database);
        assert!(skipped.abs_diff(3 * HOUR) < Duration::from_secs(30), "{parameters}: {skipped:?}");
        store.shift_clock(2 * HOUR);
        assert_eq!(
            decide(&store, "settled").await,
            Decision::Execute,
            "{parameters}: time that passes counts"
        );
    }
}

#[tokio::test]
async fn of_three_nodes_one_may_be_restarted_after_the_jump() {
    let database = database().await;
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(node(&database, "").await);
    }
    settle(&nodes[0], "settled").await;
    fail_over(&database, 3);
    assert_eq!(eventually(&nodes[2], "settled").await, Decision::Replay);
    nodes[0] = node(&database, "").await;
    for node in &nodes {
        assert_eq!(eventually(node, "settled").await, Decision::Replay);
        for _ in 0..20 {
            if node.reap(100).await.is_ok_and(|reaped| reaped.is_empty()) {
                break;
            }
        }
        assert_eq!(decide(node, "settled").await, Decision::Replay);
    }
    let skipped = skipped(&database);
    assert!(skipped.abs_diff(3 * HOUR) < Duration::from_secs(30), "it is counted once: {skipped:?}");
}

#[tokio::test]
async fn a_clock_that_is_put_right_lets_time_go_on() {
    let database = database().await;
    let nodes = [node(&database, "").await, node(&database, "").await];
    settle(&nodes[0], "settled").await;
    let before = nodes[0].now().await.expect("it tells the time");
    fail_over(&database, 3);
    for node in &nodes {
        assert_eq!(eventually(node, "settled").await, Decision::Replay);
    }
    fail_over(&database, 0);
    for node in &nodes {
        assert_eq!(eventually(node, "settled").await, Decision::Replay);
    }
    assert!(skipped(&database) < Duration::from_secs(30), "{:?}", skipped(&database));
    let after = nodes[1].now().await.expect("it tells the time");
    assert!(after >= before && after.since(before) < Duration::from_secs(600), "{before} {after}");
}

#[tokio::test]
async fn racing_nodes_count_one_jump_once() {
    let database = database().await;
    let mut nodes = Vec::new();
    for _ in 0..4 {
        nodes.push(node(&database, "").await);
    }
    settle(&nodes[0], "settled").await;
    nodes.iter().for_each(|node| node.jump_clock(3 * HOUR));
    let asking = nodes.iter().map(|node| {
        let node = node.clone();
        tokio::spawn(async move { decide(&node, "settled").await })
    });
    for asked in asking.collect::<Vec<_>>() {
        assert_eq!(asked.await.expect("it does not panic"), Decision::Replay);
    }
    let skipped = skipped(&database);
    assert!(skipped.abs_diff(3 * HOUR) < Duration::from_secs(30), "{skipped:?}");
}
