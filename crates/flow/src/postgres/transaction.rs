//! One transaction on a connection of the service's pool, from BEGIN to its end.
//!
//! Work may send anything over the connection, even COMMIT. A savepoint set at BEGIN detects that: it disappears with
//! the transaction. Work may also change the session: a connection returns to the pool only if its session is
//! unchanged.

use std::ops::{Deref, DerefMut};

use semel_core::{Clock, Ids, RandomIds, SystemClock};
use semel_stores::postgres::{self as store, DbError};
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgTransactionManager;
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres, SqlSafeStr};
use sqlx_core::transaction::TransactionManager;

use super::joined::{Joined, db_error};
use crate::deadline::DATABASE_DEADLINE;

/// An open transaction.
pub(crate) struct OpenTransaction {
    connection: PoolConnection<Postgres>,
    savepoint: String,
    /// True if the service's work had the connection.
    is_lent: bool,
    is_open: bool,
    /// True if the COMMIT waits for standbys.
    waits: bool,
}

/// Result of a rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RolledBack {
    /// Nothing of the transaction is committed.
    Certainly,
    /// The session was lost. The server rolls back the open transaction.
    Lost,
    /// The work had ended the transaction before: anything may be committed.
    EndedBefore,
}

impl OpenTransaction {
    /// Begins a transaction with this statement.
    pub(crate) async fn begin(pool: &PgPool, begin: &str) -> Result<OpenTransaction, DbError> {
        let connection = pool.acquire().await.map_err(|error| db_error(&error))?;
        // A random name, so that the work cannot guess or reuse it.
        let savepoint = format!("\"semel {}\"", RandomIds.operation_id(SystemClock.now()));
        let begin = format!("{begin}; SAVEPOINT {savepoint}");
        // Until it has begun, dropping it closes the connection.
        let mut begun =
            OpenTransaction { connection, savepoint, is_lent: false, is_open: true, waits: false };
        PgTransactionManager::begin(&mut begun.connection, Some(AssertSqlSafe(begin).into_sql_str()))
            .await
            .map_err(|error| db_error(&error))?;
        Ok(begun)
    }

    /// Notes that the service's work gets the connection.
    pub(crate) fn lend(&mut self) {
        self.is_lent = true;
    }

    /// Returns the adapter for the store's statements in this transaction.
    pub(crate) fn joined(&mut self) -> Joined<'_> {
        Joined::new(&mut self.connection).telling(&mut self.waits)
    }

    /// Returns true if the COMMIT waits for standbys; known once the store's last statement was sent.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// Commits the transaction.
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

    /// Rolls the transaction back, and detects whether the work had ended it before.
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
            // Its writes are rolled back, and closing the connection ends the nested transactions.
            return RolledBack::Certainly;
        }
        if PgTransactionManager::rollback(&mut self.connection).await.is_ok() {
            self.is_open = false;
            self.put_back(false);
        }
        RolledBack::Certainly
    }

    /// Returns the depth of nested transactions, as sqlx counts them for work that uses its own.
    fn depth(&self) -> usize {
        PgTransactionManager::get_transaction_depth(&self.connection)
    }

    /// Returns the connection to the pool, after a check if work had it.
    fn put_back(mut self, committed: bool) {
        if !self.is_lent {
            return;
        }
        // Only the pool waits for this.
        tokio::spawn(async move {
            let looking = is_as_it_was(&mut self.connection, committed);
            if !matches!(tokio::time::timeout(DATABASE_DEADLINE, looking).await, Ok(Ok(true))) {
                tracing::warn!("the work left a changed session behind: its connection is closed");
                self.connection.close_on_drop();
            }
        });
    }
}

impl Drop for OpenTransaction {
    /// Closes the connection of a transaction that was not ended, which rolls it back.
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

/// Returns true if the session is as it was when its transaction began. A ROLLBACK restores settings, so it needs no
/// check.
async fn is_as_it_was(connection: &mut PgConnection, committed: bool) -> Result<bool, sqlx::Error> {
    if committed {
        return sqlx::query_scalar(store::IS_SESSION_UNCHANGED).fetch_one(connection).await;
    }
    sqlx::raw_sql(store::GIVE_LOCKS_BACK).execute(connection).await.map(|_| true)
}
