//! One transaction on a connection of the service's pool, from BEGIN to its end.
//!
//! Work may send anything over the connection, also COMMIT. A savepoint that BEGIN sets tells whether the transaction is
//! still the one that was begun: it is gone with it. And work may change the session: a connection goes back to the
//! pool only as it came from there.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use semel_core::{Clock, Ids, RandomIds, SystemClock};
use semel_stores::postgres::{self as store, DbError};
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgTransactionManager;
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres, SqlSafeStr};
use sqlx_core::transaction::TransactionManager;

use super::joined::{Joined, db_error};

/// How long a connection is looked at before it goes back to the pool.
const PATIENCE: Duration = Duration::from_secs(10);

/// A transaction that is open.
pub(crate) struct OpenTransaction {
    connection: PoolConnection<Postgres>,
    savepoint: String,
    /// Work of the service had the connection.
    is_lent: bool,
    is_open: bool,
    /// Its COMMIT waits for standbys.
    waits: bool,
}

/// What became of a transaction that was to be rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RolledBack {
    /// Nothing of it is committed.
    Certainly,
    /// Its session was lost. The server rolls back what was open.
    Lost,
    /// It had been ended before, by whoever had the connection: anything may be committed.
    EndedBefore,
}

impl OpenTransaction {
    /// Begins a transaction with this statement.
    pub(crate) async fn begin(pool: &PgPool, begin: &str) -> Result<OpenTransaction, DbError> {
        let connection = pool.acquire().await.map_err(|error| db_error(&error))?;
        // A name that nobody else draws.
        let savepoint = format!("\"semel {}\"", RandomIds.operation_id(SystemClock.now()));
        let begin = format!("{begin}; SAVEPOINT {savepoint}");
        // Until it is begun, dropping it closes the connection.
        let mut begun =
            OpenTransaction { connection, savepoint, is_lent: false, is_open: true, waits: false };
        PgTransactionManager::begin(&mut begun.connection, Some(AssertSqlSafe(begin).into_sql_str()))
            .await
            .map_err(|error| db_error(&error))?;
        Ok(begun)
    }

    /// Notes that work of the service gets the connection.
    pub(crate) fn lend(&mut self) {
        self.is_lent = true;
    }

    /// The store's statements in this transaction.
    pub(crate) fn joined(&mut self) -> Joined<'_> {
        Joined::new(&mut self.connection).telling(&mut self.waits)
    }

    /// Whether its COMMIT waits for standbys, once the store's last statement was sent.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// Commits.
    pub(crate) async fn commit(mut self) -> Result<(), DbError> {
        if self.depth() != 1 {
            let message = "the work left a transaction within its own open".to_owned();
            return Err(DbError::Refused { code: "25000".to_owned(), message });
        }
        match PgTransactionManager::commit(&mut self.connection).await.map_err(|error| db_error(&error)) {
            Ok(()) => {
                self.is_open = false;
                self.put_back(true);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Takes everything back, and finds out whether that is all there was.
    pub(crate) async fn roll_back(mut self) -> RolledBack {
        let back = format!("ROLLBACK TO SAVEPOINT {}", self.savepoint);
        let back = sqlx::raw_sql(AssertSqlSafe(back)).execute(&mut *self.connection).await;
        if let Err(error) = back {
            return match error.as_database_error().and_then(|said| said.code()).as_deref() {
                Some("3B001" | "25P01") => RolledBack::EndedBefore,
                _ => RolledBack::Lost,
            };
        }
        if self.depth() != 1 {
            // Nothing of it is left, and the server takes the rest back with the connection.
            return RolledBack::Certainly;
        }
        if PgTransactionManager::rollback(&mut self.connection).await.is_ok() {
            self.is_open = false;
            self.put_back(false);
        }
        RolledBack::Certainly
    }

    /// How many transactions are open within one another, as sqlx counts them for work that uses its own.
    fn depth(&self) -> usize {
        PgTransactionManager::get_transaction_depth(&self.connection)
    }

    /// Gives the connection back to the pool, after a look at it if work had it.
    fn put_back(mut self, committed: bool) {
        if !self.is_lent {
            return;
        }
        // Nobody waits for this but the pool.
        tokio::spawn(async move {
            let looking = is_as_it_was(&mut self.connection, committed);
            if !matches!(tokio::time::timeout(PATIENCE, looking).await, Ok(Ok(true))) {
                tracing::warn!("the work left a changed session behind: its connection is closed");
                self.connection.close_on_drop();
            }
        });
    }
}

impl Drop for OpenTransaction {
    /// What was not ended ends with its connection.
    fn drop(&mut self) {
        if self.is_open {
            self.connection.close_on_drop();
        }
    }
}

impl Deref for OpenTransaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for OpenTransaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

/// Whether the session is as it was when its transaction began. What a ROLLBACK takes back needs no look.
async fn is_as_it_was(connection: &mut PgConnection, committed: bool) -> Result<bool, sqlx::Error> {
    if committed {
        return sqlx::query_scalar(store::IS_SESSION_UNCHANGED).fetch_one(connection).await;
    }
    sqlx::raw_sql(store::GIVE_LOCKS_BACK).execute(connection).await.map(|_| true)
}
