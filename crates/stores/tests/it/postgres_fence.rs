//! A tenant that was moved to another store is fenced by a constraint of the database, which no gateway can miss. See
//! "Move a tenant" in `docs/src/explanation/capacity.md`, which gives operators this statement.

use semel_core::{Change, Decision, Records, Store, StoreError};
use semel_stores::postgres::PostgresOptions;
use semel_testkit::sample;

use crate::postgres::{database, open};

/// Statement of the page, for tenant `acme`.
const FENCE: &str = "ALTER TABLE semel_records ADD CONSTRAINT moved_acme CHECK (tenant <> 'acme') NOT VALID";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_tenant_gets_no_command_and_others_go_on() {
    let database = database().await;
    let store = open(&database.url(), &PostgresOptions::default()).await;
    let claim_of =
        |tenant: &str, key: &str| sample::claim_on(sample::scope_of(tenant, "alice", "payments.create", key));
    let settled = store.claim(&claim_of("acme", "settled")).await.expect("it is decided");
    let settled = settled.record.expect("it is acquired");
    let change = Change::complete(settled.head.fence(), sample::created("done"));
    assert_eq!(store.apply(&settled.id, &change).await.expect("it is decided").decision, Decision::Applied);
    let running = store.claim(&claim_of("acme", "running")).await.expect("it is decided");
    let running = running.record.expect("it is acquired");

    database.sql(FENCE).expect("its owner may");

    // Side by side, as in one group: one is refused, the other is not.
    let (refused, taken) = (claim_of("acme", "new"), claim_of("globex", "new"));
    let (refused, taken) = tokio::join!(store.claim(&refused), store.claim(&taken));
    assert!(matches!(refused, Err(StoreError::Rejected(_))), "nothing runs: {refused:?}");
    assert_eq!(taken.expect("it is decided").decision, Decision::Execute);

    // A held tenant's retries are looked up, which is no write. A claim is one, even of a key that is known.
    let known = store.get(&settled.id).await.expect("it reads").record.expect("it is there");
    assert!(known.result.is_some(), "its response is there");
    let again = store.claim(&claim_of("acme", "settled")).await;
    assert!(matches!(again, Err(StoreError::Rejected(_))), "{again:?}");

    // What runs cannot be settled here any more.
    let change = Change::complete(running.head.fence(), sample::created("late"));
    assert!(store.apply(&running.id, &change).await.is_err(), "an update is a write, too");
    let kept = store.find(running.operation_id).await.expect("it reads").record.expect("it is there");
    assert_eq!(kept.head.state.name().as_str(), "processing");
}
