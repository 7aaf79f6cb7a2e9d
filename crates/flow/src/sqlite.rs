//! Commands in one transaction of a SQLite file.
//!
//! One connection writes, one command at a time, as SQLite wants it: `BEGIN IMMEDIATE` before the claim, so that
//! nothing that was read can have changed by the COMMIT. The work holds up every other writer of the file, so it is
//! bounded in time.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use rusqlite::{Connection, ErrorCode, InterruptHandle, TransactionBehavior};
use semel_core::{Answer, Claim, Command, Decision, OperationId, Record, StoreError, Timestamp, Transacted};
use semel_stores::sqlite::{self as store, OpenError};

use crate::gate::Gate;
use crate::outbox::{EventId, InvalidKind};
use crate::reply::{Answered, Failure, Reply};
use crate::settle::{attempt, completion, decided, in_progress};

/// How long the work of one command may hold the file.
const DEFAULT_HOLD: Duration = Duration::from_secs(5);

/// Carries out commands in transactions of one file, which has Semel's tables beside the service's own.
#[derive(Clone)]
pub struct SqliteTransactions {
    path: Arc<PathBuf>,
    connection: Arc<Mutex<Connection>>,
    gate: Gate,
    hold: Duration,
}

impl SqliteTransactions {
    /// Opens the file, creating it or bringing it to this version's schema where needed. The service's own tables
    /// are its own affair.
    pub fn open(path: impl AsRef<Path>) -> Result<SqliteTransactions, OpenError> {
        let path = path.as_ref().to_owned();
        let connection = Arc::new(Mutex::new(store::open_connection(&path)?));
        Ok(SqliteTransactions { path: Arc::new(path), connection, gate: Gate::default(), hold: DEFAULT_HOLD })
    }

    /// How long the statements of one command may hold the file before they are interrupted; 5 s by default.
    pub fn hold(mut self, hold: Duration) -> SqliteTransactions {
        self.hold = hold;
        self
    }

    /// Carries out a command: its claim, what `work` writes, and the response commit together, or nothing happened.
    ///
    /// `work` may block: it runs where that holds up nobody but the file's other writers. It runs to its end also if
    /// nobody waits for it any more. If it fails or panics, its writes are rolled back.
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
    pub async fn transact<F>(&self, command: &Command, work: F) -> Answered
    where
        F: FnOnce(&SqliteTx<'_>) -> Result<Reply, Failure> + Send + 'static,
    {
        let (own, command) = (self.clone(), command.clone());
        let running = tokio::spawn(async move {
            let Some(turn) = own.gate.enter(command.scope.record_id(), command.policy.wait).await else {
                return in_progress();
            };
            let working = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                own.carry_out(&command, work)
            });
            working.await.unwrap_or_else(|_| {
                tracing::error!("the work of a command panicked and was rolled back");
                rolled_back(&Reply::new(StatusCode::INTERNAL_SERVER_ERROR))
            })
        });
        Answered::new(running.await.unwrap_or(Transacted::InDoubt))
    }

    fn carry_out<F>(&self, command: &Command, work: F) -> Transacted
    where
        F: FnOnce(&SqliteTx<'_>) -> Result<Reply, Failure>,
    {
        let claim = attempt(command);
        // A panic of earlier work has rolled its transaction back: the connection is as good as before.
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = self.try_to_carry_out(&mut connection, command, &claim, work);
        match ended {
            Ok(transacted) => transacted,
            Err(Ended::NotCommitted(error)) => {
                tracing::warn!(%error, "a command could not be carried out: nothing happened");
                Transacted::Unavailable
            }
            Err(Ended::InDoubt(error, reply)) => {
                tracing::error!(%error, "the answer to a COMMIT is in doubt");
                self.find_out(&mut connection, &claim, &reply)
            }
        }
    }

    fn try_to_carry_out<F>(
        &self,
        connection: &mut Connection,
        command: &Command,
        claim: &Claim,
        work: F,
    ) -> Result<Transacted, Ended>
    where
        F: FnOnce(&SqliteTx<'_>) -> Result<Reply, Failure>,
    {
        let alarm = Alarm::new(connection.get_interrupt_handle());
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let now = store::now(&transaction)?;
        let claimed = store::claim_within(&transaction, claim, now)?;
        let Answer { decision: Decision::Execute, record: Some(record), .. } = &claimed else {
            transaction.commit()?;
            return Ok(decided(claimed));
        };
        transaction.execute_batch("SAVEPOINT semel_work")?;
        let done = {
            let _ringing = alarm.set(self.hold);
            work(&SqliteTx { connection: &transaction, command: record.operation_id, now })
        };
        if transaction.is_autocommit() {
            // It ended the transaction itself, and may have committed anything, but not the record of it.
            tracing::error!(operation_id = %record.operation_id, "the work ended its transaction itself");
            return Ok(Transacted::InDoubt);
        }
        let reply = match done {
            Ok(reply) => reply,
            Err(Failure::Retryable(reply)) => {
                transaction.rollback()?;
                return Ok(rolled_back(&reply));
            }
            Err(Failure::Final(reply)) => {
                // What it wrote goes; that it failed for good, stays.
                transaction.execute_batch("ROLLBACK TO semel_work")?;
                reply
            }
        };
        let change = completion(&command.policy, record.head.fence(), &reply);
        let settled = store::apply_within(&transaction, &record.id, &change, now)?;
        let Answer { decision: Decision::Applied, record: Some(settled), .. } = settled else {
            return Err(Ended::NotCommitted("the record did not take the completion".to_owned()));
        };
        match transaction.commit() {
            Ok(()) => Ok(executed(settled, now, &reply)),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Err(error.into()),
            Err(error) => Err(Ended::InDoubt(error.to_string(), reply)),
        }
    }

    /// What a COMMIT that failed came to: a new connection sees what is in the file.
    fn find_out(&self, connection: &mut Connection, claim: &Claim, reply: &Reply) -> Transacted {
        let mut look = || -> Result<(Option<Record>, Timestamp), String> {
            let fresh = store::open_connection(&*self.path).map_err(|error| error.to_string())?;
            let now = store::now(&fresh).map_err(|error| error.to_string())?;
            let found =
                store::find_within(&fresh, &claim.scope.record_id()).map_err(|error| error.to_string())?;
            *connection = fresh;
            Ok((found, now))
        };
        match look() {
            Ok((Some(record), now)) if record.head.token == claim.attempt.token => {
                executed(record, now, reply)
            }
            Ok(_) => Transacted::Unavailable,
            Err(error) => {
                tracing::error!(%error, "nobody can say what became of a COMMIT");
                Transacted::InDoubt
            }
        }
    }
}

/// Why a transaction ended without an outcome.
enum Ended {
    NotCommitted(String),
    InDoubt(String, Reply),
}

impl From<rusqlite::Error> for Ended {
    fn from(error: rusqlite::Error) -> Ended {
        Ended::NotCommitted(error.to_string())
    }
}

impl From<StoreError> for Ended {
    fn from(error: StoreError) -> Ended {
        Ended::NotCommitted(error.to_string())
    }
}

fn executed(record: Record, now: Timestamp, reply: &Reply) -> Transacted {
    Transacted::Executed { record: Box::new(record), response: Box::new(reply.whole()), now }
}

fn rolled_back(reply: &Reply) -> Transacted {
    Transacted::RolledBack { response: Box::new(reply.whole()) }
}

/// Interrupts statements that hold the file for too long.
struct Alarm(Arc<InterruptHandle>);

/// An alarm that is set; dropping it means that it never rings.
struct Ringing(Arc<Mutex<bool>>);

impl Alarm {
    fn new(handle: InterruptHandle) -> Alarm {
        Alarm(Arc::new(handle))
    }

    fn set(&self, after: Duration) -> Ringing {
        let set = Arc::new(Mutex::new(true));
        let (handle, still_set) = (self.0.clone(), set.clone());
        tokio::runtime::Handle::current().spawn(async move {
            tokio::time::sleep(after).await;
            // Held while it rings, so that it cannot ring in the next one's ear.
            let set = still_set.lock().unwrap_or_else(PoisonError::into_inner);
            if *set {
                tracing::warn!("the work of a command held the file for too long, and was interrupted");
                handle.interrupt();
            }
        });
        Ringing(set)
    }
}

impl Drop for Ringing {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }
}

/// The transaction, for as long as the work runs: a rusqlite connection in every other respect.
pub struct SqliteTx<'a> {
    connection: &'a Connection,
    command: OperationId,
    now: Timestamp,
}

impl SqliteTx<'_> {
    /// The command's id, which its clients see.
    pub fn operation_id(&self) -> OperationId {
        self.command
    }

    /// Adds a message to the outbox: it is delivered if, and only if, the command commits.
    pub fn push(&self, kind: &str, payload: &[u8]) -> Result<EventId, PushError> {
        let event = EventId::new(self.command, kind)?;
        store::push_message(self.connection, self.command, event.as_str(), event.kind(), payload, self.now)?;
        Ok(event)
    }
}

impl Deref for SqliteTx<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
    }
}

/// Why a message cannot be added.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// Its kind cannot be one.
    #[error(transparent)]
    Kind(#[from] InvalidKind),
    /// The database refused; among others, if the command has sent one of this kind already.
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
}
