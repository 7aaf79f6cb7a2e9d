//! Migrations of tables by several processes at once, of newer tables, or without permission: all or nothing.

use semel_core::{Decision, Store};
use semel_stores::PostgresStore;
use semel_stores::access::Access;
use semel_stores::postgres::{
    DatabaseAddress, PostgresOpenError, PostgresOptions, SCHEMA_VERSION, migrate_database,
};
use semel_testkit::postgres::{self, Database};
use semel_testkit::sample;

use crate::postgres::{client, database};

fn address(url: &str) -> DatabaseAddress {
    url.parse().expect("it is an address")
}

async fn refuse(url: &str) -> PostgresOpenError {
    PostgresStore::open(&address(url)).await.err().expect("it is refused")
}

fn empty() -> Database {
    postgres::shared().and_then(|server| server.create_database()).expect("a database can be made")
}

const TABLES: &str = "SELECT count(*) FROM pg_class WHERE relname LIKE 'semel%'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_stores_open_an_empty_database_at_once() {
    // Also if a transaction does not see changes of others since it began.
    for parameters in ["", "?options=-c%20default_transaction_isolation%3Dserializable"] {
        for _ in 0..2 {
            let database = empty();
            let address = address(&format!("{}{parameters}", database.url()));
            let opening: Vec<_> = (0..8)
                .map(|_| {
                    let address = address.clone();
                    tokio::spawn(async move { PostgresStore::open(&address).await })
                })
                .collect();
            let claim = sample::claim("k");
            for opened in opening {
                let store =
                    opened.await.expect("it does not panic").expect("it is migrated, by whoever was first");
                assert_eq!(store.claim(&claim).await.expect("it is decided").decision, Decision::Execute);
            }
            let versions = database.sql("SELECT version FROM semel_schema").expect("it is there");
            assert_eq!(versions, SCHEMA_VERSION.to_string());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_schema_is_refused_and_left_alone() {
    let database = database().await;
    database.sql("UPDATE semel_schema SET version = 99, readable_from = 98").expect("it is there");
    for error in [
        refuse(&database.url()).await,
        migrate_database(&address(&database.url())).await.expect_err("it is refused"),
    ] {
        assert!(
            matches!(error, PostgresOpenError::NewerSchema { found: 99, readable_from: 98, .. }),
            "{error}"
        );
        assert!(error.to_string().contains("run the version of Semel that wrote it"), "{error}");
    }
    assert_eq!(database.sql("SELECT version FROM semel_schema").expect("it is there"), "99");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_refuses_an_older_schema() {
    let database = database().await;
    database.sql("UPDATE semel_schema SET version = 0").expect("it is there");
    let options = PostgresOptions { access: Access::Read, ..PostgresOptions::default() };
    let opened = PostgresStore::open_with(&address(&database.url()), &options).await;
    let error = opened.err().expect("it is refused");
    assert!(matches!(error, PostgresOpenError::OlderSchema { found: 0, .. }), "{error}");
    assert!(error.to_string().contains("`semel migrate`"), "{error}");
    // An impossible migration leaves everything unchanged.
    let error = refuse(&database.url()).await;
    assert!(matches!(error, PostgresOpenError::NotMigrated { .. }), "{error}");
    assert_eq!(database.sql("SELECT version FROM semel_schema").expect("it is there"), "0");
}

/// A role that may log in, and nothing else. Roles belong to the server, so it is dropped with this.
struct Role<'a>(&'a Database, String);

impl<'a> Role<'a> {
    fn new(database: &'a Database) -> Role<'a> {
        let role = Role(database, database.name().replace("test_", "role_"));
        let statement = format!("CREATE ROLE {} LOGIN PASSWORD 'weak'", role.1);
        database.sql(&statement).expect("its owner may");
        role
    }

    fn url(&self) -> String {
        let address = self.0.server().address();
        format!("postgres://{}:weak@{address}/{}", self.1, self.0.name())
    }

    fn grant(&self, what: &str) {
        self.0.sql(&format!("GRANT {what} TO {}", self.1)).expect("its owner may");
    }
}

impl Drop for Role<'_> {
    fn drop(&mut self) {
        let _ = self.0.sql(&format!("DROP OWNED BY {0}; DROP ROLE {0}", self.1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_without_create_is_refused_with_advice_until_another_migrates() {
    let database = empty();
    database.sql("REVOKE CREATE ON SCHEMA public FROM public").expect("its owner may");
    let role = Role::new(&database);
    let error = refuse(&role.url()).await;
    assert!(matches!(error, PostgresOpenError::NotMigrated { .. }), "{error}");
    assert!(error.to_string().contains("run `semel migrate` with a role"), "{error}");
    assert!(!error.to_string().contains("weak"), "{error}");
    assert_eq!(database.sql(TABLES).expect("it can be read"), "0");

    // The owner migrates; then the role needs no more than to read and write.
    migrate_database(&address(&database.url())).await.expect("its owner may");
    role.grant("SELECT ON semel_schema");
    role.grant("SELECT, UPDATE ON semel_store");
    role.grant("SELECT ON semel_holds");
    role.grant("SELECT, INSERT, UPDATE, DELETE ON semel_records, semel_references, semel_audit");
    let store = PostgresStore::open(&address(&role.url())).await.expect("there is nothing to migrate");
    let claim = sample::with_reference(sample::claim("k"), "order 7");
    assert_eq!(store.claim(&claim).await.expect("it is decided").decision, Decision::Execute);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_that_others_keep_waiting_gives_up_and_changes_nothing() {
    let database = empty();
    database
        .sql("CREATE TABLE semel_schema (version bigint NOT NULL, readable_from bigint NOT NULL)")
        .expect("its owner may");
    let other = client(&database.url()).await;
    other.batch_execute("BEGIN; LOCK TABLE semel_schema IN SHARE MODE").await.expect("nobody else has it");
    let error = refuse(&database.url()).await;
    assert!(matches!(error, PostgresOpenError::NotMigrated { .. }), "{error}");
    assert!(error.to_string().contains("lock timeout"), "{error}");
    assert_eq!(database.sql(TABLES).expect("it can be read"), "1");
    other.batch_execute("ROLLBACK").await.expect("it gives the lock back");
    migrate_database(&address(&database.url())).await.expect("nobody is in the way");
}
