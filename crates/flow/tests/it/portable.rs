//! Every statement of transactions, phases and messages keeps to the portable SQL subset, or has an exception with its
//! reason. `stores` has the same test for all others.
//!
//! This program runs its own tests once more against a server that logs every statement.

mod exceptions;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use semel_testkit::portable::{self, Names, SENT_BY_FLOW, SqlLiteral};
use semel_testkit::postgres::{Cluster, SHARED_URL};

use exceptions::EXCEPTIONS;

/// Tests that together send every statement, by parts of their names.
const SENDERS: [&str; 11] = [
    "deferred::on_postgres::a_deferred_command_is_settled",
    "deferred::on_postgres::a_message_that_is_given_up",
    "late_evidence::on_postgres::evidence_about_a_reaped",
    "lost_commits::a_commit_that",
    "lost_commits::lost_commits_of_failures_and_references",
    "outbox::on_postgres",
    "phase_verdicts::on_postgres",
    "phases::on_postgres",
    "phases_postgres::a_lost_commit",
    "postgres::a_request_that_lost_its_session_gets",
    "sealed::on_postgres",
];

/// Number of concurrent senders: most of them wait.
const AT_ONCE: &str = "6";

/// Name of the store's own connections.
const STORE: &str = "semel";
/// Name of connections of a service's pool, which has none.
const POOL: &str = "[unknown]";

#[test]
#[ignore = "runs a part of this program again: `cargo xtask portable`, and every night"]
fn every_statement_keeps_to_the_portable_subset() {
    let cluster = Cluster::start_with(&portable::SETTINGS).expect("there is a server");
    let program = std::env::current_exe().expect("this program has a path");
    let ended = Command::new(program)
        .args(SENDERS)
        // Waits long, and sends nothing of its own.
        .args(["--skip", "stands_still"])
        .args(["--test-threads", AT_ONCE])
        .env(SHARED_URL, cluster.url("postgres"))
        .output()
        .expect("this program can be run");
    // Whether each of them passes is told where it runs by itself; here only its statements count.
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(said.contains("test result:"), "the tests end: {said}");

    let by_store = portable::statements_of(&cluster, STORE).expect("the server has a log");
    let mut statements = by_store.clone();
    statements.extend(portable::statements_of(&cluster, POOL).expect("the server has a log"));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = ["src/postgres.rs", "src/postgres", "../stores/src/postgres"];
    let literals = portable::literals(&places.map(|place| folder.join(place))).expect("it is Rust");
    let is_own = |literal: &SqlLiteral| SENT_BY_FLOW.iter().any(|name| literal.place.starts_with(name));
    let (literals, others): (Vec<SqlLiteral>, Vec<SqlLiteral>) = literals.into_iter().partition(is_own);
    assert!(literals.len() > 30, "only {} statements were found in the source", literals.len());

    // The work of a service sends other statements over the same pool, and `stores` judges the others of the store.
    let own = portable::sent_by(&literals, &others, &statements);
    let mut own: BTreeSet<String> = own.into_iter().cloned().collect();
    // The store's statements in a service's transaction restore its settings.
    own.extend(statements.iter().filter(|sql| sql.contains("'semel.")).cloned());
    own.extend(by_store.into_iter().filter(|sql| sql.contains("semel_outbox")));
    let verdict = portable::judge(&own, &names(&cluster), EXCEPTIONS);
    let unsent = portable::unsent(&literals, &statements);
    let unsent: Vec<&str> = unsent.iter().map(|literal| literal.place.as_str()).collect();
    assert!(
        verdict.refused.is_empty() && verdict.unused.is_empty() && unsent.is_empty(),
        "outside of the subset:\n{}\nexceptions for nothing:\n{}\nstatements that no test sends: {unsent:?}",
        verdict.refused.join("\n"),
        verdict.unused.join("\n")
    );
}

/// Returns the names of the tables and columns of the schema.
fn names(cluster: &Cluster) -> Names {
    let database = cluster.create_database().expect("there is room");
    let runtime = tokio::runtime::Runtime::new().expect("it can be made");
    let address = database.url().parse().expect("it is an address");
    runtime.block_on(semel_stores::postgres::migrate_database(&address)).expect("it is empty");
    Names::in_database(&database).expect("it can be read")
}
