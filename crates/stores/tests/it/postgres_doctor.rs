//! The examination of a database reports its findings, and changes nothing.

use std::time::Duration;

use semel_core::{Principal, Tier};
use semel_stores::doctor::{Check, Examination, Health, UpkeepIntervals};
use semel_stores::postgres::{PostgresKeys, PostgresOptions, SCHEMA_VERSION, doctor};
use semel_testkit::postgres::{Cluster, Database, shared};

use crate::postgres::{database, postgres};

const UPKEEP: UpkeepIntervals =
    UpkeepIntervals { sweep_interval: Duration::from_secs(5), reap_interval: Duration::from_secs(60) };

async fn examine(url: &str) -> Examination {
    let address = url.parse().expect("it is an address");
    doctor::examine(&address, &PostgresOptions::default(), &UPKEEP).await
}

fn check<'a>(examination: &'a Examination, name: &str) -> &'a Check {
    let check = examination.checks.iter().find(|check| check.name == name);
    check.unwrap_or_else(|| panic!("{name} was looked at: {:#?}", examination.checks))
}

fn warned(examination: &Examination, name: &str) -> bool {
    matches!(check(examination, name).health, Health::Warn(_))
}

fn failed(examination: &Examination, name: &str) -> bool {
    matches!(check(examination, name).health, Health::Fail(_))
}

fn sql(database: &Database, statement: &str) -> String {
    database.sql(statement).expect("the statement is right")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_in_use_is_found_healthy() {
    let used = postgres("").await;
    let address = used.database.url().parse().expect("it is an address");
    let keys = PostgresKeys::open(&address).await.expect("the database can be used");
    let alice = Principal::new("acme", "alice").expect("a principal");
    keys.create(&alice).await.expect("it writes");
    let (made, _) = keys.create(&alice).await.expect("it writes");
    keys.revoke(&made.id).await.expect("it writes");
    let examination = examine(&used.database.url()).await;
    assert!(examination.checks.iter().all(|check| check.health == Health::Ok), "{:#?}", examination.checks);
    assert_eq!((examination.tier, examination.api_keys), (Some(Tier::One), Some(1)));
    assert_eq!(check(&examination, "records").found, "none");
    assert!(!format!("{:?}", examination.checks).contains("postgres://"), "no password is told");
    let plain = examine(&format!("{}?prepared_statements=false", used.database.url())).await;
    assert_eq!(plain.api_keys, Some(1), "{:#?}", plain.checks);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_without_tables_gets_none_by_looking() {
    let database = shared().and_then(|server| server.create_database()).expect("there is a server");
    let examination = examine(&database.url()).await;
    assert!(warned(&examination, "schema"), "{:#?}", examination.checks);
    assert_eq!(examination.api_keys, Some(0));
    assert_eq!(sql(&database, "SELECT count(*) FROM pg_class WHERE relname LIKE 'semel%'"), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_schema_is_named_with_both_versions() {
    let database = database().await;
    sql(&database, "UPDATE semel_schema SET version = 99, readable_from = 98");
    let examination = examine(&database.url()).await;
    assert!(failed(&examination, "schema"));
    let expected =
        format!("version 99, newer than this program's version {SCHEMA_VERSION}, readable from 98");
    assert_eq!(
        (check(&examination, "schema").found.as_str(), examination.api_keys),
        (expected.as_str(), None)
    );
    assert_eq!(sql(&database, "SELECT version FROM semel_schema"), "99");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_indexes_and_disabled_triggers_are_named() {
    let database = database().await;
    sql(&database, "DROP INDEX semel_records_due");
    sql(&database, "ALTER TABLE semel_audit DISABLE TRIGGER semel_audit_is_not_rewritten");
    let examination = examine(&database.url()).await;
    assert!(failed(&examination, "indexes"));
    let expected = "missing or not in use: semel_records_due, semel_audit_is_not_rewritten";
    assert_eq!(check(&examination, "indexes").found, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_counts_records_by_state_and_warns_of_unknown_ones() {
    let database = database().await;
    let insert = |number: u32, state: &str, column: &str| {
        sql(
            &database,
            &format!(
                "INSERT INTO semel_records (id, operation_id, tenant, caller, operation, key_hash_prefix,
                     fingerprint_version, fingerprint, state, reason, epoch, token, revision, lease_ms, ttl_ms,
                     on_lease_expired, quarantine_ms, created_at, updated_at, history, state_since, {column})
                 VALUES ('\\x{number:02}', gen_random_uuid(), 't', 'c', 'o', 'k', 1, '', '{state}', 'claimed', 1, '', 1,
                     1, 1, 'unknown', 1, 1, 1, '', 1, 1)"
            ),
        )
    };
    insert(1, "succeeded", "expires_at");
    insert(2, "processing", "due_at");
    let waiting = examine(&database.url()).await;
    assert_eq!(check(&waiting, "records").found, "1 processing, 1 succeeded");
    assert!(warned(&waiting, "leases") && warned(&waiting, "expiry"), "{:#?}", waiting.checks);
    insert(3, "unknown", "reconcile_after");
    let unknown = examine(&database.url()).await;
    assert!(warned(&unknown, "records"));
    assert!(check(&unknown, "records").found.starts_with("1 unknown, the oldest for "));
}

#[tokio::test(flavor = "multi_thread")]
async fn unsafe_commit_settings_lower_the_tier_or_fail_the_check() {
    let database = database().await;
    sql(&database, &format!("ALTER DATABASE {} SET synchronous_commit = off", database.name()));
    let relaxed = examine(&database.url()).await;
    assert!(warned(&relaxed, "durability"), "{:#?}", relaxed.checks);
    assert_eq!(relaxed.tier, Some(Tier::Two));
    let careless = Cluster::start_with(&[("fsync", "off")]).expect("there is a server");
    let database = careless.create_database().expect("there is room");
    let unsafe_one = examine(&database.url()).await;
    assert!(failed(&unsafe_one, "durability"), "{:#?}", unsafe_one.checks);
    assert!(check(&unsafe_one, "durability").found.contains("fsync=off"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_names_the_privileges_that_a_read_only_user_lacks() {
    let database = database().await;
    let user = format!("reader_{}", database.name());
    sql(&database, &format!("CREATE ROLE {user} LOGIN PASSWORD 'known'"));
    sql(&database, &format!("GRANT SELECT ON ALL TABLES IN SCHEMA public TO {user}"));
    let url = format!("postgres://{user}:known@{}/{}", database.server().address(), database.name());
    let examination = examine(&url).await;
    assert!(failed(&examination, "permissions"), "{:#?}", examination.checks);
    let found = &check(&examination, "permissions").found;
    assert!(
        found.contains(&format!("{user} lacks privileges on semel_records (INSERT, UPDATE, DELETE)")),
        "{found}"
    );
    assert!(found.contains("semel_store (UPDATE)"), "{found}");
    assert_eq!(check(&examination, "records").health, Health::Ok, "reading is enough to look");
    sql(&database, &format!("REVOKE SELECT ON semel_records FROM {user}"));
    let blind = examine(&url).await;
    assert!(failed(&blind, "records"), "{:#?}", blind.checks);
    assert_eq!(check(&blind, "indexes").health, Health::Ok, "one refusal does not spoil the rest");
    sql(&database, &format!("DROP OWNED BY {user}; DROP ROLE {user}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_missing_table_privilege_is_reported() {
    let database = database().await;
    let user = format!("writer_{}", database.name());
    sql(&database, &format!("CREATE ROLE {user} LOGIN PASSWORD 'known'"));
    sql(&database, &format!("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {user}"));
    let url = format!("postgres://{user}:known@{}/{}", database.server().address(), database.name());
    assert_eq!(check(&examine(&url).await, "permissions").health, Health::Ok);
    let tables = sql(&database, "SELECT tablename FROM pg_tables WHERE tablename LIKE 'semel%' ORDER BY 1");
    assert!(tables.lines().count() == 14, "{tables}");
    for table in tables.lines() {
        let privilege = match table {
            "semel_audit" | "semel_holds" | "semel_secrets" => "INSERT",
            "semel_api_keys" | "semel_schema" => "SELECT",
            _ => "UPDATE",
        };
        sql(&database, &format!("REVOKE {privilege} ON {table} FROM {user}"));
        let examination = examine(&url).await;
        let told = examination.checks.iter().any(|check| {
            matches!(check.health, Health::Fail(_))
                && (check.found.contains(&format!("{table} ({privilege})")) || check.name == "schema")
        });
        assert!(told, "{table}: {:#?}", examination.checks);
        sql(&database, &format!("GRANT {privilege} ON {table} TO {user}"));
    }
    sql(&database, &format!("DROP OWNED BY {user}; DROP ROLE {user}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_cannot_be_reached_is_told_without_its_password() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let examination = examine(&format!("postgres://semel:hunter2@{address}/pay")).await;
    assert!(failed(&examination, "store"));
    let found = &check(&examination, "store").found;
    assert!(found.contains(&address.to_string()) && !found.contains("hunter2"), "{found}");
    assert_eq!((examination.tier, examination.api_keys), (None, None));
}
