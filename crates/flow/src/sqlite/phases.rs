//! Phases on SQLite: each is one exclusive transaction of the file, on the connection that writes.

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use semel_core::{Mark, Upkeep, VaultError};
use semel_stores::sqlite as store;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedMutexGuard;

use super::{Alarm, AtWork, File, MAX_QUEUED, SqliteTransactions, SqliteTx};
use crate::phases::output::encode;
use crate::phases::run::Local;
use crate::phases::steps::{HeldCommand, LocalEnded, NotWritten, Steps};
use crate::phases::{Phases, Run, Stopped};
use crate::reply::Failure;

/// Maximum number of tries of a write about a phase.
const MAX_TRIES: u32 = 6;

/// Commands in phases on SQLite.
pub type SqlitePhases = Phases<SqliteTransactions>;

/// One attempt at a command on SQLite.
pub type SqliteRun = Run<SqliteTransactions>;

impl Phases<SqliteTransactions> {
    /// Creates phases in these transactions. The store must be on the same file.
    pub fn new(transactions: SqliteTransactions, store: Arc<dyn Upkeep>) -> SqlitePhases {
        let steps = Arc::new(transactions.clone());
        Phases::on(transactions, steps, store)
    }
}

impl Run<SqliteTransactions> {
    /// Runs one transaction: the writes of `work`, its output and the recovery point commit together, or not at all.
    ///
    /// `work` gets a transaction as in `transact`, under the same rules: it may block, it must not call other services,
    /// and it is rolled back if it holds the file for too long. If it fails temporarily, or panics, it is rolled back
    /// and retried later; if it fails permanently, it is rolled back and the command ends with that reply. The output
    /// is stored as JSON, of at most 64 KiB.
    ///
    /// # Errors
    /// If there is no output: return the error with `?`.
    pub async fn local<T, F>(&mut self, name: &str, work: F) -> Result<T, Stopped>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        F: FnOnce(&SqliteTx<'_>) -> Result<T, Failure> + Send + 'static,
    {
        let local = match self.local_phase(name)? {
            Ok(output) => return Ok(output),
            Err(local) => local,
        };
        let transactions = self.database.clone();
        // In a task of its own, so that it ends properly even if the caller stops waiting.
        let done = tokio::spawn(async move {
            let Some(mut connection) = transactions.turn().await else {
                return Err(LocalEnded::NotCommitted("too many commands wait for the file".to_owned()));
            };
            let working = move || transactions.carry_out_phase(&mut connection, &local, work);
            tokio::task::spawn_blocking(working).await.unwrap_or_else(|_| Err(left_open()))
        });
        let done = done.await;
        self.local_done(name, done.ok())
    }
}

/// Returns the result for a thread that ended early, which only a bug in this crate can cause.
fn left_open() -> LocalEnded {
    LocalEnded::InDoubt("its thread ended early".to_owned())
}

/// Reason why a transaction was not committed.
enum PhaseTransactionEnd {
    Local(LocalEnded),
    /// The COMMIT failed, and its result is not known.
    Lost(String),
}

impl From<rusqlite::Error> for PhaseTransactionEnd {
    fn from(error: rusqlite::Error) -> PhaseTransactionEnd {
        PhaseTransactionEnd::Local(LocalEnded::NotCommitted(error.to_string()))
    }
}

impl SqliteTransactions {
    /// Waits for the connection that writes, behind earlier commands. Returns `None` on timeout.
    async fn turn(&self) -> Option<OwnedMutexGuard<Connection>> {
        tokio::time::timeout(MAX_QUEUED, self.connection.clone().lock_owned()).await.ok()
    }

    fn carry_out_phase<T, F>(
        &self,
        connection: &mut Connection,
        local: &Local,
        work: F,
    ) -> Result<Bytes, LocalEnded>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce(&SqliteTx<'_>) -> Result<T, Failure>,
    {
        let mut output = Bytes::new();
        match self.try_phase(connection, local, work, &mut output) {
            Ok(()) => Ok(output),
            Err(PhaseTransactionEnd::Local(ended)) => Err(ended),
            Err(PhaseTransactionEnd::Lost(error)) => {
                tracing::error!(%error, operation_id = %local.held.command, "the answer to a COMMIT is in doubt");
                match self.is_written(connection, &local.held, &local.name) {
                    Ok(true) => Ok(output),
                    Ok(false) => Err(LocalEnded::NotCommitted(error)),
                    Err(why) => Err(LocalEnded::InDoubt(why)),
                }
            }
        }
    }

    fn try_phase<T, F>(
        &self,
        connection: &mut Connection,
        local: &Local,
        work: F,
        output: &mut Bytes,
    ) -> Result<(), PhaseTransactionEnd>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce(&SqliteTx<'_>) -> Result<T, Failure>,
    {
        let Local { held, position, name, timeout } = local;
        let interrupt = connection.get_interrupt_handle();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let now = store::now(&transaction)?;
        if !store::is_held(&transaction, &held.record, held.fence)? {
            return Err(PhaseTransactionEnd::Local(LocalEnded::Fenced));
        }
        transaction.execute_batch("SAVEPOINT semel_phase")?;
        let alarm = Alarm::set(interrupt, self.hold.min(*timeout));
        let done = {
            let _at_work = AtWork::new(&self.file.at_work);
            let (command, seals) = (held.command, self.seals.clone());
            let tx = SqliteTx { connection: &transaction, command, now, pushed: Cell::default(), seals };
            // Every change that it leaves behind is rolled back.
            std::panic::catch_unwind(AssertUnwindSafe(|| work(&tx)))
        };
        let in_time = alarm.stop();
        let value = match done {
            Err(_) => return Err(PhaseTransactionEnd::Local(LocalEnded::Panicked)),
            Ok(Err(failure @ (Failure::Retryable(_) | Failure::Unexpected(_)))) => {
                return Err(PhaseTransactionEnd::Local(LocalEnded::Failed(failure)));
            }
            Ok(_) if !in_time => return Err(PhaseTransactionEnd::Local(LocalEnded::TimedOut)),
            Ok(Err(failure)) => return Err(PhaseTransactionEnd::Local(LocalEnded::Failed(failure))),
            Ok(Ok(value)) => value,
        };
        // The savepoint is gone if the work's transaction has ended: by the work's own statement, or by an error such
        // as a full disk. Nothing was committed.
        transaction.execute_batch("RELEASE semel_phase")?;
        *output = encode(&value).map_err(|why| PhaseTransactionEnd::Local(LocalEnded::NotCommitted(why)))?;
        let mark = Mark::Local { position: *position, name: name.clone(), output: output.clone() };
        let mark = self.sealed(held, mark)?;
        store::mark(&transaction, held.command, &mark, now)
            .map_err(|error| PhaseTransactionEnd::Local(LocalEnded::NotCommitted(error.to_string())))?;
        self.file.commit(transaction)
    }

    /// Resolves a failed COMMIT: a new connection reads the file, and a phase that is absent now cannot appear later.
    fn is_written(
        &self,
        connection: &mut Connection,
        held: &HeldCommand,
        name: &str,
    ) -> Result<bool, String> {
        let mut fresh = self.file.connect().map_err(|error| error.to_string())?;
        let mut look = || {
            let transaction = fresh.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let is_there = store::has_phase(&transaction, held.command, name)?;
            store::write_anew(&transaction)?;
            transaction.commit()?;
            Ok(is_there)
        };
        let is_there = look().map_err(|error: rusqlite::Error| error.to_string())?;
        *connection = fresh;
        Ok(is_there)
    }

    /// Returns the mark to write, with its output sealed.
    fn sealed(&self, held: &HeldCommand, mark: Mark) -> Result<Mark, PhaseTransactionEnd> {
        let not_committed =
            |why: VaultError| PhaseTransactionEnd::Local(LocalEnded::NotCommitted(why.to_string()));
        self.seals.mark(held.command, mark).map_err(not_committed)
    }

    /// Returns true if the mark was written; false if another executor has the command.
    fn try_to_write(
        &self,
        connection: &mut Connection,
        held: &HeldCommand,
        mark: &Mark,
    ) -> Result<bool, PhaseTransactionEnd> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let now = store::now(&transaction)?;
        if !store::is_held(&transaction, &held.record, held.fence)? {
            return Ok(false);
        }
        let written = store::mark(&transaction, held.command, mark, now)
            .map_err(|error| PhaseTransactionEnd::Local(LocalEnded::NotCommitted(error.to_string())))?;
        if !written {
            let why = "the phase is not there that was to be written about".to_owned();
            return Err(PhaseTransactionEnd::Local(LocalEnded::NotCommitted(why)));
        }
        store::write_anew(&transaction)?;
        self.file.commit(transaction).map(|()| true)
    }
}

impl File {
    /// Commits, and checks that the file is the one that was opened.
    fn commit(&self, transaction: rusqlite::Transaction<'_>) -> Result<(), PhaseTransactionEnd> {
        match transaction.commit() {
            Ok(()) => self.check().map_err(|error| PhaseTransactionEnd::Lost(error.to_string())),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Err(error.into()),
            Err(error) => Err(PhaseTransactionEnd::Lost(error.to_string())),
        }
    }
}

#[async_trait]
impl Steps for SqliteTransactions {
    async fn write(&self, held: &HeldCommand, mark: &Mark) -> Result<(), NotWritten> {
        // Seal once: every retry writes the same bytes.
        let sealed = self.seals.mark(held.command, mark.clone());
        let mark = &sealed.map_err(|why| NotWritten::NotCommitted(why.to_string()))?;
        let (mut in_doubt, mut last) = (false, "the file is busy".to_owned());
        for tries in 0..MAX_TRIES {
            let Some(mut connection) = self.turn().await else { break };
            let (own, held, mark) = (self.clone(), *held, mark.clone());
            let writing = tokio::task::spawn_blocking(move || {
                let written = own.try_to_write(&mut connection, &held, &mark);
                if let Err(PhaseTransactionEnd::Lost(_)) = written
                    && let Ok(fresh) = own.file.connect()
                {
                    // A repeated write changes nothing, and replaces the lost one.
                    *connection = fresh;
                }
                written
            });
            match writing.await {
                Ok(Ok(true)) => return Ok(()),
                Ok(Ok(false)) => return Err(NotWritten::Fenced),
                Ok(Err(PhaseTransactionEnd::Lost(why))) => (in_doubt, last) = (true, why),
                Ok(Err(PhaseTransactionEnd::Local(ended))) => last = format!("{ended:?}"),
                Err(error) => (in_doubt, last) = (true, error.to_string()),
            }
            tokio::time::sleep(Duration::from_millis(20 << tries)).await;
        }
        Err(if in_doubt { NotWritten::InDoubt(last) } else { NotWritten::NotCommitted(last) })
    }
}
