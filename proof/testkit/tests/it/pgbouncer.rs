//! PgBouncer in front of a shared server.

use std::time::Duration;

use semel_testkit::postgres::{self, PgBouncer};
use sqlx::{Connection, PgConnection, Row};

use crate::connect;

/// Returns the server process that a client has for this statement. Not prepared under a name: the next
/// statement may get another process.
async fn backend(connection: &mut PgConnection) -> i32 {
    let row = sqlx::query("SELECT pg_backend_pid()").persistent(false).fetch_one(connection).await;
    row.expect("it answers").get(0)
}

#[tokio::test]
async fn clients_share_a_connection_to_the_server_from_transaction_to_transaction() {
    let server = postgres::shared().expect("there is a server");
    let database = server.create_database().expect("it is made");
    let bouncer = PgBouncer::start_with(&server, &[("default_pool_size", "1")]).expect("it starts");
    let url = bouncer.url(database.name());
    let (mut first, mut second) = (connect(&url).await, connect(&url).await);
    assert_eq!(backend(&mut first).await, backend(&mut second).await);

    let mut transaction = first.begin().await.expect("it begins");
    backend(&mut transaction).await;
    let mut waiting = tokio::spawn(async move { backend(&mut second).await });
    let answer = tokio::time::timeout(Duration::from_millis(200), &mut waiting).await;
    assert!(answer.is_err(), "the only connection is in a transaction");
    transaction.commit().await.expect("it ends");
    waiting.await.expect("it has its turn");
}

#[test]
fn a_wrong_setting_is_named() {
    let server = postgres::shared().expect("there is a server");
    let error = PgBouncer::start_with(&server, &[("pool_mode", "sometimes")]).err().expect("it is refused");
    assert!(error.to_string().contains("pool_mode"), "{error}");
}
