//! Commands in one transaction of a SQLite file.
//!
//! One connection writes, one command at a time, as SQLite requires: `BEGIN IMMEDIATE` before the claim, so that no
//! value that was read can change before the COMMIT. The work blocks every other writer of the file, so its time is
//! bounded. While it runs, the connection can commit nothing.

mod alarm;
mod phases;

use std::cell::Cell;
use std::ops::Deref;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, InterruptHandle, TransactionBehavior};
use semel_core::{
    Claim, Command, Decision, Note, OperationId, Record, StoreAnswer, StoreError, StoreId, Timestamp,
    Transacted, Vault, VaultError,
};
use semel_faults::{Lever, Point, reached_by_thread};
use semel_stores::sqlite::{self as store, SqliteOpenError, SqliteOptions, StoreFiles};
use tokio::sync::Mutex;

use crate::gate::CommandGate;
use crate::outbox::{EventId, InvalidKind};
use crate::reply::{Answered, FailedReply, Failure, IntoReply, Reply};
use crate::seals::Seals;
use crate::settle::{
    Settled, SettlingAuthority, attempt, executed, failed, found_committed, in_progress, not_claimed,
    rolled_back, written,
};
use alarm::Alarm;
pub use phases::{SqlitePhases, SqliteRun};

/// Default time for which the work of one command may hold the file: shorter than the busy timeout of other writers.
const DEFAULT_HOLD: Duration = Duration::from_secs(1);

/// Maximum wait of a command for the commands before it on this connection.
const MAX_QUEUED: Duration = Duration::from_secs(10);

/// Executes commands in transactions of one SQLite file, which holds Semel's tables beside the service's own.
#[derive(Clone)]
pub struct SqliteTransactions {
    file: Arc<File>,
    connection: Arc<Mutex<Connection>>,
    gate: CommandGate,
    hold: Duration,
    seals: Seals,
}

/// Settings for a connection to the file.
struct File {
    path: PathBuf,
    options: SqliteOptions,
    /// True while work runs: the commit hook refuses every COMMIT.
    at_work: Arc<AtomicBool>,
    /// For tests: the next COMMIT succeeds and is reported as failed, as on a failing disk.
    lose_commit: Arc<AtomicBool>,
    /// Place of the file when it was first opened.
    place: OnceLock<StoreFiles>,
}

impl File {
    fn connect(&self) -> Result<Connection, SqliteOpenError> {
        let connection = store::open_connection(&self.path, &self.options)?;
        let at_work = self.at_work.clone();
        connection
            .commit_hook(Some(move || at_work.load(Ordering::SeqCst)))
            .map_err(|error| SqliteOpenError::Failed { path: self.path.clone(), why: error.to_string() })?;
        if self.place.get().is_none() {
            let _ = self.place.set(store::place_of(&connection, &self.path)?);
        }
        self.check()
            .map_err(|error| SqliteOpenError::Moved { path: self.path.clone(), why: error.to_string() })?;
        Ok(connection)
    }

    /// Checks that the file is in its place. A COMMIT to a deleted or replaced file is lost.
    fn check(&self) -> Result<(), StoreError> {
        self.place.get().map_or(Ok(()), StoreFiles::check)
    }

    /// Lets a test in another process trigger `lose_commit`, in a build with fault points.
    fn obey(&self) {
        let lose_commit = self.lose_commit.clone();
        semel_faults::levers(move |lever| {
            let is_own = matches!(lever, Lever::LoseCommit);
            if is_own {
                lose_commit.store(true, Ordering::SeqCst);
            }
            is_own
        });
    }
}

impl SqliteTransactions {
    /// Opens the file, and creates it or migrates it to this version's schema if needed. The service creates its own
    /// tables.
    pub fn open(path: impl AsRef<Path>) -> Result<SqliteTransactions, SqliteOpenError> {
        SqliteTransactions::open_with(path, &SqliteOptions::default())
    }

    /// Opens the file with options; only those of a single connection apply.
    pub fn open_with(
        path: impl AsRef<Path>,
        options: &SqliteOptions,
    ) -> Result<SqliteTransactions, SqliteOpenError> {
        let (path, options) = (path.as_ref().to_owned(), options.clone());
        let file = File {
            path,
            options,
            at_work: Arc::default(),
            lose_commit: Arc::default(),
            place: OnceLock::new(),
        };
        file.obey();
        let connection = Arc::new(Mutex::new(file.connect()?));
        let (file, gate, seals) = (Arc::new(file), CommandGate::default(), Seals::default());
        Ok(SqliteTransactions { file, connection, gate, hold: DEFAULT_HOLD, seals })
    }

    /// Seals stored responses and opens them for replays. The layer's own store must be a `SealedStore` with the same
    /// keys.
    pub fn vault(mut self, vault: Arc<dyn Vault>) -> SqliteTransactions {
        self.seals = Seals::new(vault);
        self
    }

    /// Sets the time for which the work of one command may hold the file before it is interrupted and rolled back; 1 s
    /// by default. Other writers of the file wait 2 s for it, and then their commands are refused with 503.
    pub fn hold(mut self, hold: Duration) -> SqliteTransactions {
        self.hold = hold;
        self
    }

    /// Reads the id of the store in the file.
    ///
    /// # Errors
    /// If the file has no store, or cannot be read.
    pub async fn store_id(&self) -> rusqlite::Result<StoreId> {
        store::store_id(&*self.connection.lock().await)
    }

    /// Executes a command: its claim, the writes of `work` and the response commit together, or nothing happened.
    ///
    /// `work` may block: it delays only the other writers of the file. It runs to its end even if the caller stops
    /// waiting. If it fails or panics, its writes are rolled back. It must not call other services, since a rollback
    /// would not undo the call; [`SqliteTx::push`] sends messages instead.
    ///
    /// ```no_run
    /// # use semel_core::Command;
    /// # use semel_flow::{Answered, Reply, SqliteTransactions};
    /// # async fn example(semel: SqliteTransactions, command: Command) -> Answered {
    /// semel
    ///     .transact(&command, |tx| {
    ///         tx.execute("INSERT INTO payments (amount) VALUES (?1)", [5])?;
    ///         tx.push("payment.created", br#"{"amount": 5}"#)?;
    ///         Ok(Reply::new(http::StatusCode::CREATED))
    ///     })
    ///     .await
    /// # }
    /// ```
    pub async fn transact<F, T>(&self, command: &Command, work: F) -> Answered
    where
        F: FnOnce(&SqliteTx<'_>) -> Result<T, Failure> + Send + 'static,
        T: IntoReply,
    {
        let (own, command) = (self.clone(), command.clone());
        let work = |tx: &SqliteTx<'_>| work(tx)?.into_reply();
        let running = tokio::spawn(async move {
            let Some(turn) = own.gate.enter(command.scope.record_id(), command.policy.wait).await else {
                return in_progress();
            };
            let connection = own.connection.clone().lock_owned();
            let Ok(mut connection) = tokio::time::timeout(MAX_QUEUED, connection).await else {
                tracing::warn!("too many commands wait for the file: nothing is run");
                return Transacted::Unavailable;
            };
            let working = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                own.carry_out(&mut connection, &command, work)
            });
            working.await.unwrap_or(Transacted::InDoubt)
        });
        // Only a bug in this crate ends this task early, at an unknown point.
        Answered::new(running.await.unwrap_or(Transacted::InDoubt))
    }

    fn carry_out<F>(&self, connection: &mut Connection, command: &Command, work: F) -> Transacted
    where
        F: FnOnce(&SqliteTx<'_>) -> Result<Reply, Failure>,
    {
        let claim = attempt(command);
        match self.try_to_carry_out(connection, command, &claim, work) {
            Ok(transacted) => transacted,
            Err(TransactionEnd::NotCommitted(error)) => {
                tracing::warn!(%error, "a command could not be carried out: nothing happened");
                Transacted::Unavailable
            }
            Err(TransactionEnd::InDoubt(error, reply)) => {
                tracing::error!(%error, "the answer to a COMMIT is in doubt");
                self.find_out(connection, &claim, &reply)
            }
        }
    }

    fn try_to_carry_out<F>(
        &self,
        connection: &mut Connection,
        command: &Command,
        claim: &Claim,
        work: F,
    ) -> Result<Transacted, TransactionEnd>
    where
        F: FnOnce(&SqliteTx<'_>) -> Result<Reply, Failure>,
    {
        self.file.check()?;
        let interrupt = connection.get_interrupt_handle();
        reached_by_thread(Point::WorkAhead);
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let now = store::now(&transaction)?;
        let claimed = store::claim_within(&transaction, claim, now)?;
        let StoreAnswer { decision: Decision::Execute, record: Some(record), .. } = &claimed else {
            transaction.commit()?;
            self.file.check()?;
            return Ok(not_claimed(claim, self.seals.answer(claimed)));
        };
        let fault = |why: &str| {
            tracing::error!(operation_id = %record.operation_id, "{why}: rolled back");
            Ok(failed())
        };
        let (reply, pushed) = match self.run(&transaction, interrupt, record.operation_id, now, work)? {
            Ran::Done { reply, pushed } => (reply, pushed),
            Ran::Failed(reply) => return Ok(rolled_back(&reply)),
            Ran::Fault(why) => return fault(why),
        };
        // A rollback to a savepoint may have removed a message.
        let took_back = reply.deferral().is_some() && !store::has_message(&transaction, record.operation_id)?;
        let pushed = if took_back { 0 } else { pushed };
        let change = match written(&command.policy, record.head.fence(), &reply, pushed) {
            Ok(change) => change,
            Err(why) => return fault(why),
        };
        let change = self.seals.change(record, change)?;
        let settled = store::apply_within(&transaction, &record.id, &change, now)?;
        let StoreAnswer { decision: Decision::Applied, record: Some(settled), .. } = settled else {
            return fault("the work has ended its transaction and begun another");
        };
        reached_by_thread(Point::WorkDone);
        match transaction.commit() {
            Ok(()) if self.file.lose_commit.swap(false, Ordering::SeqCst) => {
                Err(TransactionEnd::InDoubt("the answer to COMMIT was lost".to_owned(), reply))
            }
            Ok(()) => {
                reached_by_thread(Point::WorkCommitted);
                if let Err(error) = self.file.check() {
                    return Err(TransactionEnd::InDoubt(error.to_string(), reply));
                }
                Ok(executed(self.seals.opened(settled), now, &reply))
            }
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Err(error.into()),
            Err(error) => Err(TransactionEnd::InDoubt(error.to_string(), reply)),
        }
    }

    /// Runs the work within the open transaction. A permanent failure rolls back the work, but not the claim.
    fn run<F>(
        &self,
        transaction: &Connection,
        interrupt: InterruptHandle,
        id: OperationId,
        now: Timestamp,
        work: F,
    ) -> rusqlite::Result<Ran>
    where
        F: FnOnce(&SqliteTx<'_>) -> Result<Reply, Failure>,
    {
        transaction.execute_batch("SAVEPOINT semel_work")?;
        let alarm = Alarm::set(interrupt, self.hold);
        let tx = SqliteTx {
            connection: transaction,
            command: id,
            now,
            pushed: Cell::new(0),
            seals: self.seals.clone(),
        };
        let done = {
            let _at_work = AtWork::new(&self.file.at_work);
            // Every change that it leaves behind is rolled back.
            std::panic::catch_unwind(AssertUnwindSafe(|| work(&tx)))
        };
        let in_time = alarm.stop();
        let Ok(done) = done else { return Ok(Ran::Fault("the work panicked")) };
        Ok(match done.map_err(|failure| failure.logged(id)) {
            Err(FailedReply { reply, is_final: false }) => Ran::Failed(reply),
            _ if !in_time => Ran::Fault("the work held the file for too long"),
            // The work ended it by its own statement, or an error such as a full disk did. Nothing was committed.
            _ if transaction.is_autocommit() => {
                Ran::Fault("the work's transaction ended before the work did")
            }
            Ok(reply) => Ran::Done { reply, pushed: tx.pushed.get() },
            Err(FailedReply { reply, is_final: true }) => {
                // Roll back the writes of the work, but store the permanent failure.
                transaction.execute_batch("ROLLBACK TO semel_work")?;
                Ran::Done { reply, pushed: 0 }
            }
        })
    }

    /// Settles a deferred command once the sink of its message knows the outcome: the final response, which retries get
    /// from now on, commits with the writes of `work`.
    ///
    /// Safe to call again: if the command is settled, `work` does not run. The rules for `work` are those of
    /// [`transact`](SqliteTransactions::transact); a [`Failure::Final`] settles the command, too.
    pub async fn settle<F, T>(&self, operation_id: OperationId, work: F) -> Settled
    where
        F: FnOnce(&SqliteTx<'_>) -> Result<T, Failure> + Send + 'static,
        T: IntoReply,
    {
        self.settle_by(operation_id, SettlingAuthority::Message, |tx: &SqliteTx<'_>| work(tx)?.into_reply())
            .await
    }

    /// Settles an unknown or deferred command by outside evidence, such as a webhook of the provider. The evidence
    /// stays with the record permanently.
    pub async fn resolve<F, T>(&self, operation_id: OperationId, evidence: Note, work: F) -> Settled
    where
        F: FnOnce(&SqliteTx<'_>) -> Result<T, Failure> + Send + 'static,
        T: IntoReply,
    {
        self.settle_by(operation_id, SettlingAuthority::Evidence(evidence), |tx: &SqliteTx<'_>| {
            work(tx)?.into_reply()
        })
        .await
    }

    async fn settle_by<F>(&self, id: OperationId, word: SettlingAuthority, work: F) -> Settled
    where
        F: FnOnce(&SqliteTx<'_>) -> Result<Reply, Failure> + Send + 'static,
    {
        let own = self.clone();
        let running = tokio::spawn(async move {
            let connection = own.connection.clone().lock_owned();
            let Ok(mut connection) = tokio::time::timeout(MAX_QUEUED, connection).await else {
                return Settled::Unavailable;
            };
            let settling = tokio::task::spawn_blocking(move || {
                match own.try_to_settle(&mut connection, id, &word, work) {
                    Ok(settled) => settled,
                    Err(TransactionEnd::NotCommitted(error)) => {
                        tracing::warn!(operation_id = %id, %error, "a command cannot be settled now");
                        Settled::Unavailable
                    }
                    Err(TransactionEnd::InDoubt(error, _)) => {
                        tracing::error!(operation_id = %id, %error, "the answer to a COMMIT is in doubt");
                        own.reconnect(&mut connection);
                        Settled::InDoubt
                    }
                }
            });
            settling.await.unwrap_or(Settled::InDoubt)
        });
        running.await.unwrap_or(Settled::InDoubt)
    }

    fn try_to_settle<F>(
        &self,
        connection: &mut Connection,
        id: OperationId,
        word: &SettlingAuthority,
        work: F,
    ) -> Result<Settled, TransactionEnd>
    where
        F: FnOnce(&SqliteTx<'_>) -> Result<Reply, Failure>,
    {
        self.file.check()?;
        let interrupt = connection.get_interrupt_handle();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let now = store::now(&transaction)?;
        let Some(record) = store::find_command(&transaction, id)? else { return Ok(Settled::Absent) };
        if !word.counts(&record.head, now) {
            return Ok(Settled::Before(Box::new(self.seals.opened(record))));
        }
        let reply = match self.run(&transaction, interrupt, id, now, work)? {
            Ran::Done { reply, .. } => reply,
            Ran::Failed(_) => return Ok(Settled::RolledBack),
            Ran::Fault(why) => {
                tracing::error!(operation_id = %id, "{why}: rolled back");
                return Ok(Settled::RolledBack);
            }
        };
        let change = self.seals.change(&record, word.change(&record.head, &reply))?;
        let settled = store::apply_within(&transaction, &record.id, &change, now)?;
        let StoreAnswer { decision: Decision::Applied, record: Some(settled), .. } = settled else {
            tracing::error!(operation_id = %id, "the work has ended its transaction and begun another");
            return Ok(Settled::RolledBack);
        };
        match transaction.commit() {
            Ok(()) => match self.file.check() {
                Ok(()) => Ok(Settled::Now(Box::new(self.seals.opened(settled)))),
                Err(error) => Err(TransactionEnd::InDoubt(error.to_string(), reply)),
            },
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Err(error.into()),
            Err(error) => Err(TransactionEnd::InDoubt(error.to_string(), reply)),
        }
    }

    /// Reconnects after a failed COMMIT: the old connection proves nothing about the file.
    fn reconnect(&self, connection: &mut Connection) {
        match self.file.connect() {
            Ok(fresh) => *connection = fresh,
            Err(error) => tracing::error!(%error, "the file cannot be opened anew"),
        }
    }

    /// Resolves a failed COMMIT: a new connection reads the file.
    fn find_out(&self, connection: &mut Connection, claim: &Claim, reply: &Reply) -> Transacted {
        let mut look = || -> Result<(Option<Record>, Timestamp), String> {
            let mut fresh = self.file.connect().map_err(|error| error.to_string())?;
            let found = found_anew(&mut fresh, claim)?;
            *connection = fresh;
            Ok(found)
        };
        match look() {
            Ok((Some(record), now)) if record.head.token == claim.attempt.token => {
                found_committed(self.seals.opened(record), now, reply)
            }
            Ok(_) => Transacted::Unavailable,
            Err(error) => {
                tracing::error!(%error, "the outcome of a COMMIT is unknown");
                Transacted::InDoubt
            }
        }
    }
}

/// Reads the record, if there is one, on a connection that can write. A record that is absent now cannot appear later.
fn found_anew(connection: &mut Connection, claim: &Claim) -> Result<(Option<Record>, Timestamp), String> {
    let sqlite = |error: rusqlite::Error| error.to_string();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(sqlite)?;
    let now = store::now(&transaction).map_err(sqlite)?;
    let mut found = None;
    for id in claim.record_ids() {
        let record = store::find_within(&transaction, &id).map_err(|error| error.to_string())?;
        found = record.filter(|record| record.head.token == claim.attempt.token).or(found);
    }
    store::write_anew(&transaction).map_err(sqlite)?;
    transaction.commit().map_err(sqlite)?;
    Ok((found, now))
}

/// Result of the work.
enum Ran {
    /// The work is done, and not committed.
    Done { reply: Reply, pushed: usize },
    /// The work failed with this reply, and is to be rolled back.
    Failed(Reply),
    /// The work broke a rule, and is to be rolled back.
    Fault(&'static str),
}

/// Guard that blocks every COMMIT while it exists.
struct AtWork<'a>(&'a AtomicBool);

impl<'a> AtWork<'a> {
    fn new(at_work: &'a AtomicBool) -> AtWork<'a> {
        at_work.store(true, Ordering::SeqCst);
        AtWork(at_work)
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Reason why a transaction ended without an outcome.
enum TransactionEnd {
    NotCommitted(String),
    InDoubt(String, Reply),
}

impl From<rusqlite::Error> for TransactionEnd {
    fn from(error: rusqlite::Error) -> TransactionEnd {
        TransactionEnd::NotCommitted(error.to_string())
    }
}

impl From<VaultError> for TransactionEnd {
    fn from(error: VaultError) -> TransactionEnd {
        TransactionEnd::NotCommitted(error.to_string())
    }
}

impl From<StoreError> for TransactionEnd {
    fn from(error: StoreError) -> TransactionEnd {
        TransactionEnd::NotCommitted(error.to_string())
    }
}

/// The transaction, for as long as the work runs: a rusqlite connection in every other respect.
pub struct SqliteTx<'a> {
    connection: &'a Connection,
    command: OperationId,
    now: Timestamp,
    pushed: Cell<usize>,
    seals: Seals,
}

impl SqliteTx<'_> {
    /// Returns the command's id, which its clients see.
    pub fn operation_id(&self) -> OperationId {
        self.command
    }

    /// Adds a message to the outbox: it is delivered if, and only if, the command commits.
    pub fn push(&self, kind: &str, payload: &[u8]) -> Result<EventId, PushError> {
        let event = EventId::new(self.command, kind)?;
        let (command, now) = (self.command, self.now);
        let payload = self.seals.payload(event.as_str(), payload)?;
        if !store::push_message(self.connection, command, event.as_str(), event.kind(), &payload, now)? {
            return Err(PushError::Twice(event.to_string()));
        }
        reached_by_thread(Point::MessagePushed);
        self.pushed.set(self.pushed.get() + 1);
        Ok(event)
    }
}

impl Deref for SqliteTx<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
    }
}

/// Error that rejects a message.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The kind is not valid.
    #[error(transparent)]
    Kind(#[from] InvalidKind),
    /// The command has already sent a message of this kind.
    #[error("there is a message {0} already")]
    Twice(String),
    /// The payload cannot be sealed.
    #[error(transparent)]
    Seal(#[from] VaultError),
    /// The database refused the statement.
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
}
