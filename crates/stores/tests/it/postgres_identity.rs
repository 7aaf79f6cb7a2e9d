//! Another store behind the opened address is refused before any decision, and the right one is used again as
//! soon as it is back.

use semel_core::{Decision, Store, StoreError, Upkeep};
use semel_stores::PostgresStore;
use semel_stores::postgres::{DatabaseAddress, PostgresKeys};
use semel_testkit::postgres::{Cluster, Database};
use semel_testkit::proxy::FaultProxy;
use semel_testkit::sample;

use crate::postgres::{database, open, patience};

async fn decide(store: &PostgresStore, key: &str) -> Result<Decision, StoreError> {
    store.claim(&sample::claim(key)).await.map(|answer| answer.decision)
}

/// Puts another store in the place of this one, as a DNS name that leads elsewhere does.
fn exchange(one: &Database, other: &Database) {
    let server = one.server();
    let rename = |from: &str, to: &str| {
        server
            .sql("postgres", &format!("ALTER DATABASE \"{from}\" RENAME TO \"{to}\""))
            .expect("it is renamed")
    };
    one.terminate_backends().expect("the server ends them");
    other.terminate_backends().expect("the server ends them");
    let aside = format!("{}_aside", one.name());
    rename(one.name(), &aside);
    rename(other.name(), one.name());
    rename(&aside, other.name());
}

#[tokio::test]
async fn another_store_behind_the_address_is_refused_until_the_right_one_is_back() {
    let (right, wrong) = (database().await, database().await);
    wrong.sql("UPDATE semel_store SET id = gen_random_uuid()").expect("it is another store");
    let store = open(&right.url(), &patience(5_000)).await;
    assert_eq!(decide(&store, "key").await.expect("it is claimed"), Decision::Execute);
    exchange(&right, &wrong);
    let refused = decide(&store, "key").await;
    assert!(
        matches!(&refused, Err(StoreError::Unavailable(why)) if why.contains("another store")),
        "{refused:?}"
    );
    assert!(store.now().await.is_err(), "nobody takes it for ready");
    assert!(store.sweep(10).await.is_err(), "nor is it swept");
    let count = right.sql("SELECT count(*) FROM semel_records").expect("it reads");
    assert_eq!(count, "0", "the wrong store was not written to");
    exchange(&right, &wrong);
    assert_eq!(decide(&store, "key").await.expect("the right store is back"), Decision::Wait);
}

#[tokio::test]
async fn a_database_without_tables_behind_the_address_is_refused() {
    let (right, empty) = (database().await, database().await);
    empty.sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public").expect("it is emptied");
    let store = open(&right.url(), &patience(5_000)).await;
    let address: DatabaseAddress = right.url().parse().expect("it is an address");
    let keys = PostgresKeys::open(&address).await.expect("they open");
    exchange(&right, &empty);
    assert!(matches!(decide(&store, "key").await, Err(StoreError::Unavailable(_))));
    assert!(keys.list().await.is_err(), "nor are keys read there");
    let tables = right.sql("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'semel%'").expect("it reads");
    assert_eq!(tables, "0", "nothing was made there");
}

/// A dump restored on another server has the store's id, but another system identifier.
#[tokio::test]
async fn a_copy_of_the_store_on_another_server_is_refused() {
    let (one, two) = (Cluster::start().expect("a cluster"), Cluster::start().expect("a cluster"));
    let proxy = FaultProxy::start(one.server().address()).await.expect("a proxy can be started");
    for cluster in [&one, &two] {
        let address: DatabaseAddress = cluster.url("postgres").parse().expect("it is an address");
        drop(PostgresStore::open(&address).await.expect("it opens"));
    }
    let id = one.server().sql("postgres", "SELECT id FROM semel_store").expect("it reads");
    let url = one.url("postgres");
    let password = url.split([':', '@']).nth(2).expect("it has a password");
    let copy = format!("UPDATE semel_store SET id = '{id}'; ALTER ROLE CURRENT_USER PASSWORD '{password}'");
    two.server().sql("postgres", &copy).expect("it is written");
    let store = open(&proxy.url(&one.url("postgres")), &patience(5_000)).await;
    assert_eq!(decide(&store, "key").await.expect("it is claimed"), Decision::Execute);
    proxy.lead_to(two.server().address());
    proxy.cut_all().await;
    // A call in flight when its connection is cut is retried, and meets the other server.
    let refused = decide(&store, "key").await;
    assert!(
        matches!(&refused, Err(StoreError::Unavailable(why)) if why.contains("identifier")),
        "{refused:?}"
    );
    proxy.lead_to(one.server().address());
    assert_eq!(decide(&store, "key").await.expect("the right server is back"), Decision::Wait);
}

/// A role without access to the system's identifier still compares the store's id.
#[tokio::test]
async fn without_the_systems_identifier_the_stores_id_is_compared() {
    let (right, wrong) = (database().await, database().await);
    wrong.sql("UPDATE semel_store SET id = gen_random_uuid()").expect("it is another store");
    let role = right.name();
    right.sql(&format!("CREATE ROLE \"{role}\" LOGIN PASSWORD 'pw'")).expect("the server takes it");
    for database in [&right, &wrong] {
        let grants = format!(
            "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC;
             GRANT ALL ON ALL TABLES IN SCHEMA public TO \"{role}\""
        );
        database.sql(&grants).expect("the server takes it");
    }
    let url = right.url();
    let (_, rest) = url.split_once('@').expect("it has a user");
    let store = open(&format!("postgres://{role}:pw@{rest}"), &patience(5_000)).await;
    assert_eq!(decide(&store, "key").await.expect("it is claimed"), Decision::Execute);
    exchange(&right, &wrong);
    let refused = decide(&store, "key").await;
    assert!(
        matches!(&refused, Err(StoreError::Unavailable(why)) if why.contains("it has the id")),
        "{refused:?}"
    );
    drop(store);
    for database in [&right, &wrong] {
        database.sql(&format!("DROP OWNED BY \"{role}\"")).expect("it is taken back");
    }
    right.sql(&format!("DROP ROLE \"{role}\"")).expect("it is dropped");
}
