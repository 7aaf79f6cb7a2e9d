//! The private servers and the fault proxy, tried with the driver that the PostgreSQL store uses.

mod cluster;
mod databases;
mod pgbouncer;
mod proxy;

use sqlx::{Connection, PgConnection};

/// A connection to this URL.
async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.expect("the server takes connections")
}

/// Runs a statement the way applications do, prepared.
async fn execute(connection: &mut PgConnection, sql: &'static str) -> Result<(), sqlx::Error> {
    sqlx::query(sql).execute(connection).await.map(drop)
}
