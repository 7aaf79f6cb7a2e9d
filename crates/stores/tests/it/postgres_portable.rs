//! Every statement that the store sends keeps to the portable SQL subset, or has an exception with its reason.
//!
//! This program runs its own tests once more against a server that logs every statement. A statement in the source that
//! none of them sends fails the test too: a new one cannot hide.

mod exceptions;

use std::path::Path;
use std::process::Command;

use semel_core::Backend;
use semel_stores::PostgresStore;
use semel_stores::postgres::{PostgresKeys, migrate_database};
use semel_testkit::portable::{self, Names, SENT_BY_FLOW};
use semel_testkit::postgres::{Cluster, SHARED_URL};
use semel_testkit::sample;

use exceptions::{EXCEPTIONS, UNSENT};

/// Tests that together send every statement, by parts of their names.
const SENDERS: [&str; 20] = [
    "postgres::plain::",
    "postgres::a_claim",
    "postgres::a_business_reference",
    "postgres::a_command_for_later",
    "postgres::each_of_many",
    "postgres::reaping",
    "postgres::the_items",
    "postgres::unknown_commands",
    "postgres::pgbouncer::a_completed",
    "postgres_doctor::a_database_in_use",
    "postgres_lists::a_census_of_many",
    "postgres_lists::each_condition",
    "postgres_clock::racing",
    "postgres_locks::a_locked_record_does_not_fail",
    "postgres_locks::behind_a_pooler",
    "sealed::a_rotation_brings",
    "sealed::evidence_is_sealed",
    "in_postgresql",
    "postgres_holds::each_change",
    "upgrade::many_programs_finish",
];

/// Number of concurrent senders: most of them wait.
const AT_ONCE: &str = "6";

/// Name of the store's own connections, unless an address has another.
const PROGRAM: &str = "semel";

#[test]
#[ignore = "runs a part of this program again: `cargo xtask portable`, and every night"]
fn every_statement_keeps_to_the_portable_subset() {
    let cluster = Cluster::start_with(&portable::SETTINGS).expect("there is a server");
    let program = std::env::current_exe().expect("this program has a path");
    let ended = Command::new(program)
        .args(SENDERS)
        .args(["--test-threads", AT_ONCE])
        .env(SHARED_URL, cluster.url("postgres"))
        .output()
        .expect("this program can be run");
    // Whether each of them passes is told where it runs by itself; here only its statements count.
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(said.contains("test result:"), "the tests end: {said}");

    let names = others_sent(&cluster);
    let statements = portable::statements_of(&cluster, PROGRAM).expect("the server has a log");
    assert!(statements.len() > 100, "only {} statements were logged", statements.len());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/postgres");
    let literals = portable::literals(&[source]).expect("the source can be read");
    assert!(literals.len() > 100, "only {} statements were found in the source", literals.len());
    let unsent = portable::unsent(&literals, &statements);
    let by_flow = |place: &str| SENT_BY_FLOW.iter().any(|name| place.starts_with(name));
    let unsent: Vec<&str> =
        unsent.iter().map(|literal| literal.place.as_str()).filter(|place| !by_flow(place)).collect();
    let expected: Vec<&str> = UNSENT.iter().map(|(place, _)| *place).collect();
    let verdict = portable::judge(&statements, &names, EXCEPTIONS);
    assert!(verdict.refused.is_empty(), "outside of the subset:\n{}", verdict.refused.join("\n"));
    assert!(verdict.unused.is_empty(), "exceptions for nothing:\n{}", verdict.unused.join("\n"));

    assert_eq!(unsent, expected, "statements that no test sends");
}

/// Sends the statements that belong to no store, and returns the names of the schema.
fn others_sent(cluster: &Cluster) -> Names {
    let database = cluster.create_database().expect("there is room");
    let runtime = tokio::runtime::Runtime::new().expect("it can be made");
    runtime.block_on(async {
        let address = database.url().parse().expect("it is an address");
        migrate_database(&address).await.expect("it is empty");
        let keys = PostgresKeys::open(&address).await.expect("the database can be used");
        let (key, _) = keys.create(sample::scope("key").principal()).await.expect("there is room");
        assert_eq!(keys.list().await.expect("it reads").len(), 1);
        assert_eq!(keys.active().await.expect("it reads").len(), 1);
        assert!(keys.revoke(&key.id).await.expect("it is there"));
        let store = PostgresStore::open(&address).await.expect("the database can be used");
        assert!(store.store_id().await.expect("it has one").is_some());
    });
    Names::in_database(&database).expect("it can be read")
}
