//! Tests of the private servers and the fault proxy, with the driver sqlx.

mod cluster;
mod databases;
mod pgbouncer;
mod proxy;

use sqlx::{Connection, PgConnection};

/// Returns a connection to this URL.
async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.expect("the server takes connections")
}

/// Runs a prepared statement, as applications do.
async fn execute(connection: &mut PgConnection, sql: &'static str) -> Result<(), sqlx::Error> {
    sqlx::query(sql).execute(connection).await.map(drop)
}
