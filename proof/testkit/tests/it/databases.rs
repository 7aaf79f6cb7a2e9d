//! Databases on a shared server.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use semel_testkit::postgres::{self, Database, Server};

use crate::{connect, execute};

fn shared() -> Server {
    postgres::shared().expect("there is a server")
}

/// Returns a template version that no other run of these tests has made.
fn version(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

fn exists(name: &str) -> bool {
    let rows = shared().sql("postgres", &format!("SELECT 1 FROM pg_database WHERE datname = '{name}'"));
    rows.expect("it answers") == "1"
}

/// Removes a template that a test has made, so that a shared server does not collect them.
fn forget(version: &str) {
    shared().sql("postgres", &format!("DROP DATABASE \"template_{version}\"")).expect("it is dropped");
}

fn rows(database: &Database) -> String {
    database.sql("SELECT * FROM marks").expect("it was migrated")
}

#[tokio::test]
async fn each_test_has_a_database_of_its_own_that_goes_with_it() {
    let (first, second) = (shared().create_database(), shared().create_database());
    let (first, second) = (first.expect("it is made"), second.expect("it is made"));
    let mut connection = connect(&first.url()).await;
    execute(&mut connection, "CREATE TABLE marks (mark text)").await.expect("it is made");
    assert!(second.sql("SELECT * FROM marks").is_err(), "the other one does not have it");
    let name = first.name().to_owned();
    assert!(exists(&name));
    drop(first);
    assert!(!exists(&name), "it goes, although somebody is connected");
    execute(&mut connection, "SELECT 1").await.expect_err("its connections go with it");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_makers_of_a_template_all_get_the_whole() {
    let version = version("raced");
    let migrations = Arc::new(AtomicUsize::new(0));
    let racers: Vec<_> = (0..6)
        .map(|_| {
            let (version, migrations) = (version.clone(), Arc::clone(&migrations));
            tokio::spawn(async move {
                let migrate = |url: String| async move {
                    migrations.fetch_add(1, Ordering::SeqCst);
                    let mut connection = connect(&url).await;
                    execute(&mut connection, "CREATE TABLE marks (mark text)").await?;
                    // Left open: it is closed by the server.
                    execute(&mut connection, "INSERT INTO marks VALUES ('once')").await?;
                    std::mem::forget(connection);
                    Ok::<(), sqlx::Error>(())
                };
                shared().database_from(&version, migrate).await.expect("it is made")
            })
        })
        .collect();
    let mut databases = Vec::new();
    for racer in racers {
        databases.push(racer.await.expect("no panic"));
    }
    for database in &databases {
        assert_eq!(rows(database), "once");
        database.sql("INSERT INTO marks VALUES ('mine')").expect("it is theirs alone");
    }
    let made = migrations.load(Ordering::SeqCst);
    let never = |_| async { panic!("it is there") };
    let late = shared().database_from::<_, _, Infallible>(&version, never).await.expect("it is copied");
    assert_eq!(rows(&late), "once");
    assert!((1..=6).contains(&made));
    forget(&version);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_maker_of_a_template_copies_the_first() {
    let version = version("tied");
    let first = shared().create_database().expect("it is made");
    first.sql("CREATE TABLE marks (mark text); INSERT INTO marks VALUES ('first')").expect("it is migrated");
    // The first has taken the name, which is not visible yet.
    let mut publishing = connect(&shared().url("postgres")).await;
    let taken = format!("BEGIN; ALTER DATABASE {} RENAME TO \"template_{version}\"", first.name());
    sqlx::raw_sql(sqlx::AssertSqlSafe(taken)).execute(&mut publishing).await.expect("it is renamed");

    let second = tokio::spawn({
        let version = version.clone();
        async move {
            let migrate = |url: String| async move {
                let mut connection = connect(&url).await;
                execute(&mut connection, "CREATE TABLE marks (mark text)").await
            };
            shared().database_from(&version, migrate).await.expect("it is copied")
        }
    });
    let waiting = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%template_{version}%'"
    );
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while shared().sql("postgres", &waiting).expect("it answers") == "0" {
        assert!(std::time::Instant::now() < deadline, "the second never came");
    }
    execute(&mut publishing, "COMMIT").await.expect("the name is taken");
    assert_eq!(rows(&second.await.expect("no panic")), "first");
    forget(&version);
}

#[tokio::test]
async fn another_version_is_another_template() {
    let (old, new) = (version("old"), version("new"));
    let marked = |mark: &'static str| {
        move |url: String| async move {
            let mut connection = connect(&url).await;
            execute(&mut connection, mark).await
        }
    };
    let first = shared().database_from(&old, marked("CREATE TABLE marks AS SELECT 'old' AS mark")).await;
    let second = shared().database_from(&new, marked("CREATE TABLE marks AS SELECT 'new' AS mark")).await;
    assert_eq!(rows(&first.expect("it is made")), "old");
    assert_eq!(rows(&second.expect("it is made")), "new");
    forget(&old);
    forget(&new);
}

#[tokio::test]
async fn a_migration_that_failed_leaves_no_template() {
    let version = version("failed");
    let failing = |url: String| async move {
        let mut connection = connect(&url).await;
        execute(&mut connection, "CREATE TABLE marks AS SELECT 'half' AS mark").await?;
        execute(&mut connection, "SELECT no_such_column").await
    };
    let error = shared().database_from(&version, failing).await.expect_err("it fails").to_string();
    assert!(error.contains(&version) && error.contains("no_such_column"), "{error}");
    let working = |url: String| async move {
        let mut connection = connect(&url).await;
        execute(&mut connection, "CREATE TABLE marks AS SELECT 'whole' AS mark").await
    };
    let database = shared().database_from(&version, working).await.expect("it is made");
    assert_eq!(rows(&database), "whole");
    forget(&version);
}

#[tokio::test]
async fn a_version_that_cannot_be_part_of_a_name_is_refused() {
    for version in ["", "Seven", "a\"b", &"x".repeat(41)] {
        let never = |_| async { panic!("nothing is made") };
        let refused = shared().database_from::<_, _, Infallible>(version, never).await;
        assert!(refused.expect_err("it is refused").to_string().contains("a-z"));
    }
}
