//! A store that a newer version has migrated, as this version sees it: it works in the formats of this version until the upgrade
//! is finished, and starts no command then.

use std::sync::Arc;

use rusqlite::Connection;
use semel_core::{Backend, Change, Decision, Fence, Formats, Store, StoreError, Upkeep};
use semel_stores::encryption::SealedStore;
use semel_stores::postgres::{
    DatabaseAddress, PostgresOpenError, PostgresOptions, finish_database, migrate_database,
};
use semel_stores::sqlite::{SqliteOpenError, SqliteOptions, finish_file, migrate_file};
use semel_stores::{Access, Breaker, PostgresStore, SqliteStore, StoreSchema};
use semel_testkit::postgres::Database;
use semel_testkit::sample;
use tempfile::TempDir;

use crate::postgres::{Postgres, database, postgres};

const MIGRATED: &str = "UPDATE semel_schema SET version = 2, readable_from = 1";
const FINISHED: &str = "UPDATE semel_schema SET readable_from = 2";
const ADDED: &str = "ALTER TABLE semel_records ADD COLUMN added bigint NOT NULL DEFAULT 0";
const ADDED_TO_A_FILE: &str = "ALTER TABLE semel_records ADD COLUMN added INTEGER NOT NULL DEFAULT 0";

/// Claims, completes and replays, by a program that the store's schema is ahead of.
async fn works(store: &dyn Store, key: &str) {
    let claim = sample::claim(key);
    assert_eq!(store.claim(&claim).await.expect("it is decided").decision, Decision::Execute);
    let done = Change::complete(Fence { epoch: 1, token: claim.attempt.token }, sample::created("done"));
    let done = store.apply(&sample::id(&claim), &done).await.expect("it is decided");
    assert_eq!(done.decision, Decision::Applied);
    assert_eq!(store.claim(&sample::claim(key)).await.expect("it is decided").decision, Decision::Replay);
}

/// A store from its opening by this version on, while another version changes its schema through `sql`.
async fn follows_an_upgrade(store: &dyn Upkeep, sql: impl Fn(&str), added: &str) {
    assert_eq!(store.formats(), Formats::CURRENT);
    works(store, "before").await;
    let running = sample::claim("running");
    assert_eq!(store.claim(&running).await.expect("it is decided").decision, Decision::Execute);
    sql(added);
    sql(MIGRATED);
    store.sweep(10).await.expect("it sweeps");
    works(store, "while-both-versions-run").await;
    sql(FINISHED);
    store.sweep(10).await.expect("it sweeps");
    let refused = store.claim(&sample::claim("afterwards")).await;
    assert!(
        matches!(&refused, Err(StoreError::Damaged(why)) if why.contains("schema version 2")),
        "{refused:?}"
    );
    assert!(store.get(&sample::id(&sample::claim("afterwards"))).await.expect("it reads").record.is_none());
    // What began is settled: older formats are read by everybody.
    let done = Change::complete(Fence { epoch: 1, token: running.attempt.token }, sample::created("done"));
    let done = store.apply(&sample::id(&running), &done).await.expect("it is decided");
    assert_eq!(done.decision, Decision::Applied);
    assert_eq!(store.formats(), Formats::CURRENT, "never more than this program knows");
}

#[tokio::test]
async fn an_open_file_follows_an_upgrade() {
    let folder = TempDir::new().expect("there is room for a test");
    let path = folder.path().join("semel.db");
    let store = SqliteStore::open(&path).expect("the file opens");
    let sql = |statement: &str| {
        Connection::open(&path).and_then(|file| file.execute_batch(statement)).expect("it is changed");
    };
    follows_an_upgrade(&store, sql, ADDED_TO_A_FILE).await;
    let ahead = StoreSchema { version: 2, readable_from: 1 };
    sql(MIGRATED);
    for access in [Access::Read, Access::Write] {
        let options = SqliteOptions { access, ..SqliteOptions::default() };
        drop(SqliteStore::open_with(&path, &options).expect("this version can read it"));
    }
    assert_eq!(migrate_file(&path).expect("there is nothing to do"), ahead);
    let error = finish_file(&path).expect_err("it is another version's");
    assert!(matches!(error, SqliteOpenError::NotFinishable { found: 2, .. }), "{error}");
    sql("UPDATE semel_schema SET version = 0");
    let error = finish_file(&path).expect_err("it is not migrated");
    assert!(matches!(error, SqliteOpenError::NotFinishable { found: 0, .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_database_follows_an_upgrade() {
    let Postgres { store, database, .. } = postgres("").await;
    let sql = |database: &Database, statement: &str| drop(database.sql(statement).expect("it is changed"));
    follows_an_upgrade(&*store, |statement| sql(&database, statement), ADDED).await;
    let address: DatabaseAddress = database.url().parse().expect("it is an address");
    sql(&database, MIGRATED);
    for access in [Access::Read, Access::Write] {
        let options = PostgresOptions { access, ..PostgresOptions::default() };
        let store = PostgresStore::open_with(&address, &options).await.expect("this version can read it");
        assert_eq!(store.formats(), Formats::of_version(1));
    }
    let ahead = StoreSchema { version: 2, readable_from: 1 };
    assert_eq!(migrate_database(&address).await.expect("there is nothing to do"), ahead);
    let error = finish_database(&address).await.expect_err("it is another version's");
    assert!(matches!(error, PostgresOpenError::NotFinishable { found: 2, .. }), "{error}");
    assert_eq!(database.sql("SELECT readable_from FROM semel_schema").expect("it reads"), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_programs_finish_an_upgrade_at_once() {
    let database = database().await;
    database.sql("UPDATE semel_schema SET readable_from = 0").expect("it is changed");
    let address: DatabaseAddress = database.url().parse().expect("it is an address");
    let finishing: Vec<_> = (0..8)
        .map(|_| {
            let address = address.clone();
            tokio::spawn(async move { finish_database(&address).await })
        })
        .collect();
    for finished in finishing {
        let finished = finished.await.expect("it does not panic").expect("it is of this version");
        assert_eq!(finished, StoreSchema { version: 1, readable_from: 1 });
    }
    let rows = database.sql("SELECT version, readable_from FROM semel_schema").expect("it reads");
    assert_eq!(rows, "1|1");
}

#[tokio::test]
async fn a_store_around_another_one_passes_its_formats_on() {
    let folder = TempDir::new().expect("there is room for a test");
    let path = folder.path().join("semel.db");
    drop(SqliteStore::open(&path).expect("the file opens"));
    let file = Connection::open(&path).expect("the file opens");
    file.execute_batch("UPDATE semel_schema SET readable_from = 0").expect("it is changed");
    let store: Arc<dyn Backend> = Arc::new(SqliteStore::open(&path).expect("the file opens"));
    // None that a program knows, and so none that a wrapper invents.
    let none = Formats::of_version(0);
    assert_eq!(store.formats(), none);
    assert_eq!(Breaker::new(store.clone()).formats(), none);
    assert_eq!(SealedStore::new(store, crate::sealed::vault(&["one"])).formats(), none);
}
