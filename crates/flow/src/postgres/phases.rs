//! Phases on PostgreSQL.
//!
//! A local phase first does its work, and then checks that it still holds the command: it locks the record's row only
//! from there to the COMMIT, so that long work does not block the renewal of its own lease.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use semel_core::{Mark, Upkeep};
use semel_stores::postgres::{self as store, CommandLock, DbError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::transaction::{OpenTransaction, RolledBack};
use super::{MAX_DOUBT, MAX_QUESTIONS, MAX_TRIES, PgTx, PostgresTransactions};
use crate::deadline::{CANCEL_DEADLINE, DATABASE_DEADLINE};
use crate::phases::output::encode;
use crate::phases::run::Local;
use crate::phases::steps::{HeldCommand, LocalEnded, NotWritten, Steps};
use crate::phases::{Phases, Run, Stopped};
use crate::reply::Failure;

/// Commands in phases on PostgreSQL.
pub type PostgresPhases = Phases<PostgresTransactions>;

/// One attempt at a command on PostgreSQL.
pub type PgRun = Run<PostgresTransactions>;

impl Phases<PostgresTransactions> {
    /// Creates phases in these transactions. The store must be on the same database.
    pub fn new(transactions: PostgresTransactions, store: Arc<dyn Upkeep>) -> PostgresPhases {
        let steps = Arc::new(transactions.clone());
        Phases::on(transactions, steps, store)
    }
}

impl Run<PostgresTransactions> {
    /// Runs one transaction: the writes of `work`, its output and the recovery point commit together, or not at all.
    ///
    /// `work` gets a transaction as in `transact`, under the same rules: it must not call other services, and must not
    /// end or keep the transaction. It runs within the operation's `timeout`. If it fails temporarily, or panics, it is
    /// rolled back and retried later; if it fails permanently, it is rolled back and the command ends with that reply.
    /// The output is stored as JSON, of at most 64 KiB.
    ///
    /// # Errors
    /// If there is no output: return the error with `?`.
    pub async fn local<T, F, R>(&mut self, name: &str, work: F) -> Result<T, Stopped>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        F: FnOnce(PgTx) -> R + Send + 'static,
        R: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let local = match self.local_phase(name)? {
            Ok(output) => return Ok(output),
            Err(local) => local,
        };
        let transactions = self.database.clone();
        // In a task of its own: a transaction that has begun is always ended, and never left in the pool.
        let done = tokio::spawn(async move { transactions.local_phase(&local, work).await }).await;
        self.local_done(name, done.ok())
    }
}

impl PostgresTransactions {
    async fn local_phase<T, F, R>(&self, local: &Local, work: F) -> Result<Bytes, LocalEnded>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        F: FnOnce(PgTx) -> R + Send + 'static,
        R: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let not_committed = |error: DbError| LocalEnded::NotCommitted(error.to_string());
        let mut tx = self.begin_phase(local.timeout).await.map_err(not_committed)?;
        tx.lend();
        let shared = Arc::new(Mutex::new(tx));
        let (connection, command) = (shared.clone().lock_owned().await, local.held.command);
        let lent = PgTx { connection, command, pushed: Arc::default(), seals: self.seals.clone() };
        let mut task = JoinSet::new();
        task.spawn(async move { work(lent).await });
        let done = tokio::time::timeout(local.timeout, task.join_next()).await;
        // Work that timed out gives its transaction back, too.
        let _ = tokio::time::timeout(CANCEL_DEADLINE, task.shutdown()).await;
        let Ok(mut tx) = Arc::try_unwrap(shared).map(Mutex::into_inner) else {
            if let Ok(Some(Ok(Err(failure)))) = done {
                failure.logged(command);
            }
            return Err(LocalEnded::Broken("the work kept its transaction after it ended".to_owned()));
        };
        let failed = match done {
            Ok(Some(Ok(Ok(value)))) => {
                let written = match encode(&value) {
                    Ok(output) => self.write_local(&mut tx, local, output).await,
                    Err(why) => Err(LocalEnded::NotCommitted(why)),
                };
                match written {
                    Ok(output) => return self.commit_local(tx, local, output).await,
                    Err(failed) => failed,
                }
            }
            Ok(Some(Ok(Err(failure)))) => LocalEnded::Failed(failure),
            Ok(Some(Err(_)) | None) => LocalEnded::Panicked,
            Err(_) => LocalEnded::TimedOut,
        };
        match tx.roll_back().await {
            RolledBack::EndedBefore => {
                if let LocalEnded::Failed(failure) = failed {
                    failure.logged(command);
                }
                Err(LocalEnded::Broken("the work ended its transaction itself".to_owned()))
            }
            RolledBack::Certainly | RolledBack::Lost => Err(failed),
        }
    }

    /// Writes the recovery point into the transaction of the work. From here to its end, no other executor can take the
    /// command.
    async fn write_local(
        &self,
        tx: &mut OpenTransaction,
        local: &Local,
        output: Bytes,
    ) -> Result<Bytes, LocalEnded> {
        let Local { held, position, name, .. } = local;
        let local = Mark::Local { position: *position, name: name.clone(), output: output.clone() };
        let sealed = self.seals.mark(held.command, local);
        let local = sealed.map_err(|why| LocalEnded::NotCommitted(why.to_string()))?;
        let writing = async {
            let mut joined = tx.joined();
            let hold = store::lock_fenced(&mut joined, &held.record, held.fence).await?;
            if let CommandLock::Held { partly_done } = hold {
                store::mark(&mut joined, &held.record, held.command, &local, partly_done).await?;
            }
            Ok::<CommandLock, DbError>(hold)
        };
        match tokio::time::timeout(DATABASE_DEADLINE, writing).await {
            Ok(Ok(CommandLock::Held { .. })) => Ok(output),
            Ok(Ok(CommandLock::Fenced)) => Err(LocalEnded::Fenced),
            Ok(Ok(CommandLock::Ended)) => {
                Err(LocalEnded::Broken("the work ended its transaction itself".to_owned()))
            }
            Ok(Err(error)) => Err(LocalEnded::NotCommitted(error.to_string())),
            Err(_) => Err(LocalEnded::NotCommitted("the record could not be held in time".to_owned())),
        }
    }

    async fn commit_local(
        &self,
        tx: OpenTransaction,
        local: &Local,
        output: Bytes,
    ) -> Result<Bytes, LocalEnded> {
        let lost = match tokio::time::timeout(DATABASE_DEADLINE, self.commit(tx)).await {
            Ok(Ok(())) => return Ok(output),
            Ok(Err(error)) if error.is_ambiguous() => error.to_string(),
            Ok(Err(error)) => return Err(LocalEnded::NotCommitted(error.to_string())),
            Err(_) => "no answer to a COMMIT in time".to_owned(),
        };
        tracing::warn!(operation_id = %local.held.command, why = lost, "the answer to a COMMIT was lost");
        self.find_out_phase(local, output).await
    }

    /// Resolves a COMMIT whose answer was lost. The transaction that may still be in flight locks the record's row:
    /// once this row can be locked here, that transaction has ended, and its writes exist or never will.
    async fn find_out_phase(&self, local: &Local, output: Bytes) -> Result<Bytes, LocalEnded> {
        let lost = Instant::now();
        for question in (0..MAX_QUESTIONS).take_while(|_| lost.elapsed() < MAX_DOUBT) {
            match tokio::time::timeout(DATABASE_DEADLINE, self.ask_about(&local.held, &local.name)).await {
                Ok(Ok(Some(true))) => return Ok(output),
                Ok(Ok(Some(false))) => {
                    return Err(LocalEnded::NotCommitted("a lost COMMIT was not made".to_owned()));
                }
                Ok(Ok(None)) => return Err(LocalEnded::Fenced),
                Ok(Err(error)) => tracing::debug!(%error, "a lost COMMIT cannot be asked about yet"),
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(20 << question)).await;
        }
        Err(LocalEnded::InDoubt(
            "the connection was lost during a COMMIT, whose outcome is unknown".to_owned(),
        ))
    }

    /// Returns true if a local phase is durably written; `None` if another executor has the command.
    async fn ask_about(&self, held: &HeldCommand, name: &str) -> Result<Option<bool>, DbError> {
        let mut tx = self.begin_phase(DATABASE_DEADLINE).await?;
        let mut joined = tx.joined();
        let CommandLock::Held { .. } = store::lock_fenced(&mut joined, &held.record, held.fence).await?
        else {
            return Ok(None);
        };
        let is_there = store::confirm_phase(&mut joined, held.command, name).await?;
        self.commit(tx).await?;
        Ok(Some(is_there))
    }

    async fn begin_phase(&self, idle: Duration) -> Result<OpenTransaction, DbError> {
        let begin = store::begin_phase(idle);
        let mut last = DbError::Unconnected("no connection".to_owned());
        for _ in 0..MAX_TRIES {
            match OpenTransaction::begin(&self.pool, &begin).await {
                Ok(tx) => return Ok(tx),
                // The connection may have died in the pool long ago: try another one.
                Err(error @ DbError::Lost(_)) => last = error.not_committed(),
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Returns true if the mark was written; false if another executor has the command.
    async fn try_to_write(&self, held: &HeldCommand, mark: &Mark) -> Result<bool, DbError> {
        let mut tx = self.begin_phase(DATABASE_DEADLINE).await?;
        let mut joined = tx.joined();
        let hold = store::lock_fenced(&mut joined, &held.record, held.fence).await;
        let CommandLock::Held { partly_done } = hold.map_err(DbError::not_committed)? else {
            return Ok(false);
        };
        let written = store::mark(&mut joined, &held.record, held.command, mark, partly_done).await;
        let written = written.map_err(DbError::not_committed)?;
        if !written {
            let message = "the phase is not there that was to be written about".to_owned();
            return Err(DbError::Refused { code: "P0002".to_owned(), message });
        }
        self.commit(tx).await.map(|()| true)
    }
}

#[async_trait]
impl Steps for PostgresTransactions {
    async fn write(&self, held: &HeldCommand, mark: &Mark) -> Result<(), NotWritten> {
        // Seal once: every retry writes the same bytes.
        let sealed = self.seals.mark(held.command, mark.clone());
        let mark = &sealed.map_err(|why| NotWritten::NotCommitted(why.to_string()))?;
        let begun = Instant::now();
        let (mut in_doubt, mut last) = (false, String::new());
        // A repeated write changes nothing, and waits for one that may still be in flight: both lock the record.
        for question in (0..MAX_QUESTIONS).take_while(|_| begun.elapsed() < MAX_DOUBT) {
            match tokio::time::timeout(DATABASE_DEADLINE, self.try_to_write(held, mark)).await {
                Ok(Ok(true)) => return Ok(()),
                Ok(Ok(false)) => return Err(NotWritten::Fenced),
                Ok(Err(error @ DbError::Refused { .. })) if !in_doubt => {
                    return Err(NotWritten::NotCommitted(error.to_string()));
                }
                Ok(Err(error)) => {
                    in_doubt |= error.is_ambiguous();
                    last = error.to_string();
                }
                Err(_) => (in_doubt, last) = (true, "no answer in time".to_owned()),
            }
            tokio::time::sleep(Duration::from_millis(20 << question)).await;
        }
        Err(if in_doubt { NotWritten::InDoubt(last) } else { NotWritten::NotCommitted(last) })
    }
}
