//! Commands in one transaction of PostgreSQL, with sqlx.
//!
//! Round trips besides the work's own: BEGIN, the claim, the completion, COMMIT.

mod joined;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use semel_core::{Answer, Claim, Command, Decision, OperationId, Transacted};
use semel_stores::postgres::{self as store, DbError};
use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::gate::Gate;
use crate::outbox::{EventId, InvalidKind};
use crate::reply::{Answered, Failure, Reply};
use crate::settle::{attempt, completion, decided, in_progress};
use joined::{Joined, db_error};

/// How often a claim is tried against others that are faster.
const MAX_TRIES: usize = 8;

/// How often a COMMIT whose answer was lost is asked about.
const MAX_QUESTIONS: u32 = 8;

/// Carries out commands in transactions of one database, which has Semel's tables beside the service's own.
#[derive(Clone)]
pub struct PostgresTransactions {
    pool: PgPool,
    gate: Gate,
}

impl PostgresTransactions {
    /// On the connections of this pool. The tables are made by `PostgresStore::open` on the same database, or by
    /// `semel migrate`.
    pub fn new(pool: PgPool) -> PostgresTransactions {
        PostgresTransactions { pool, gate: Gate::default() }
    }

    /// Carries out a command: its claim, what `work` writes, and the response commit together, or nothing happened.
    ///
    /// It runs to its end also if nobody waits for it any more. If `work` fails or panics, its writes are rolled
    /// back.
    ///
    /// ```no_run
    /// # use semel_core::Command;
    /// # use semel_flow::{Answered, PostgresTransactions, Reply};
    /// # async fn example(semel: PostgresTransactions, command: Command) -> Answered {
    /// semel
    ///     .transact(&command, |mut tx| async move {
    ///         sqlx::query("INSERT INTO payments (amount) VALUES ($1)").bind(5_i64).execute(&mut *tx).await?;
    ///         tx.push("payment.created", br#"{"amount": 5}"#).await?;
    ///         Ok(Reply::new(http::StatusCode::CREATED))
    ///     })
    ///     .await
    /// # }
    /// ```
    pub async fn transact<F, R>(&self, command: &Command, work: F) -> Answered
    where
        F: FnOnce(PgTx) -> R + Send + 'static,
        R: Future<Output = Result<Reply, Failure>> + Send + 'static,
    {
        let (own, command) = (self.clone(), command.clone());
        // In a task of its own: a transaction that is begun is always ended, and never left in the pool.
        let running = tokio::spawn(async move { own.carry_out(&command, work).await });
        Answered::new(running.await.unwrap_or_else(|_| {
            tracing::error!("the work of a command panicked and was rolled back");
            rolled_back(&Reply::new(StatusCode::INTERNAL_SERVER_ERROR))
        }))
    }

    async fn carry_out<F, R>(&self, command: &Command, work: F) -> Transacted
    where
        F: FnOnce(PgTx) -> R + Send + 'static,
        R: Future<Output = Result<Reply, Failure>> + Send + 'static,
    {
        let Some(_turn) = self.gate.enter(command.scope.record_id(), command.policy.wait).await else {
            return in_progress();
        };
        let claim = attempt(command);
        let (tx, claimed) = match self.claim(&claim, command.policy.wait).await {
            Ok(claimed) => claimed,
            Err(error) => return not_begun(&error),
        };
        if claimed.decision != Decision::Execute {
            return match tx.commit().await {
                Ok(()) => decided(claimed),
                Err(error) => not_begun(&db_error(&error)),
            };
        }
        let Some(id) = claimed.record.as_ref().map(|record| record.operation_id) else {
            return Transacted::Unavailable;
        };
        let shared = Arc::new(Mutex::new(tx));
        let lent = PgTx { connection: shared.clone().lock_owned().await, command: id };
        let done = work(lent).await;
        let Ok(tx) = Arc::try_unwrap(shared).map(Mutex::into_inner) else {
            tracing::error!(operation_id = %id, "the work kept its transaction after it ended: rolled back");
            return rolled_back(&Reply::new(StatusCode::INTERNAL_SERVER_ERROR));
        };
        match done {
            Ok(reply) => self.complete(command, &claim, tx, claimed, &reply).await,
            Err(Failure::Retryable(reply)) => {
                let _ = tx.rollback().await;
                rolled_back(&reply)
            }
            Err(Failure::Final(reply)) => {
                // What it wrote goes; that it failed for good, stays.
                let _ = tx.rollback().await;
                match self.claim(&claim, command.policy.wait).await {
                    Ok((tx, claimed)) if claimed.decision == Decision::Execute => {
                        self.complete(command, &claim, tx, claimed, &reply).await
                    }
                    Ok((tx, claimed)) => {
                        let _ = tx.commit().await;
                        decided(claimed)
                    }
                    Err(error) => not_begun(&error),
                }
            }
        }
    }

    /// Begins a transaction with a claim in it. A duplicate elsewhere is waited for, not longer than `wait`.
    async fn claim(
        &self,
        claim: &Claim,
        wait: Duration,
    ) -> Result<(Transaction<'static, Postgres>, Answer), DbError> {
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '{}ms'",
            wait.as_millis().clamp(1, 86_400_000)
        );
        let mut last = DbError::Conflict("others kept changing the record".to_owned());
        for _ in 0..MAX_TRIES {
            let begun = self.pool.begin_with(sqlx::AssertSqlSafe(begin.clone())).await;
            let mut tx = begun.map_err(|error| unsent(db_error(&error)))?;
            match store::claim(&mut Joined(&mut tx), claim, 0).await {
                Ok(Some(answer)) => {
                    let first = answer.record.as_ref().is_some_and(|record| record.head.epoch == 1);
                    if answer.decision == Decision::Execute && !first {
                        let reset =
                            sqlx::raw_sql("SET LOCAL lock_timeout TO DEFAULT").execute(&mut *tx).await;
                        reset.map_err(|error| unsent(db_error(&error)))?;
                    }
                    return Ok((tx, answer));
                }
                Ok(None) => {
                    let _ = tx.rollback().await;
                }
                Err(error) => {
                    let _ = tx.rollback().await;
                    match unsent(error) {
                        error @ DbError::Conflict(_) => last = error,
                        error => return Err(error),
                    }
                }
            }
        }
        Err(last)
    }

    /// Keeps the reply, and commits.
    async fn complete(
        &self,
        command: &Command,
        claim: &Claim,
        mut tx: Transaction<'static, Postgres>,
        claimed: Answer,
        reply: &Reply,
    ) -> Transacted {
        let Some(record) = claimed.record else { return Transacted::Unavailable };
        let id = record.operation_id;
        let change = completion(&command.policy, record.head.fence(), reply);
        let mut joined = Joined(&mut tx);
        let settled = match record.head.epoch {
            1 => store::settle_first(&mut joined, record, &change, claimed.now).await,
            _ => store::apply(&mut joined, &record.id, &change, 0).await,
        };
        let settled = match settled {
            Ok(Some(Answer { decision: Decision::Applied, record: Some(settled), now, .. })) => {
                (settled, now)
            }
            other => {
                // Nothing is committed, so nothing happened.
                tracing::error!(operation_id = %id, ?other, "a command could not be completed: rolled back");
                let _ = tx.rollback().await;
                return rolled_back(&Reply::new(StatusCode::INTERNAL_SERVER_ERROR));
            }
        };
        let (record, now) = settled;
        match tx.commit().await.map_err(|error| db_error(&error)) {
            Ok(()) => executed(record, now, reply),
            Err(error) if error.is_ambiguous() => self.find_out(command, claim, reply).await,
            Err(error) => {
                tracing::error!(operation_id = %id, %error, "a command could not be committed: rolled back");
                rolled_back(&Reply::new(StatusCode::INTERNAL_SERVER_ERROR))
            }
        }
    }

    /// What a COMMIT whose answer was lost came to. The same claim is sent again: it waits for the transaction that
    /// may still be on its way, and then either finds its own record or takes its place, which proves that there
    /// is none.
    async fn find_out(&self, command: &Command, claim: &Claim, reply: &Reply) -> Transacted {
        for question in 0..MAX_QUESTIONS {
            if let Ok((tx, answer)) = self.claim(claim, Duration::from_secs(2)).await {
                let own = answer.record.as_ref().filter(|record| record.head.token == claim.attempt.token);
                match (answer.decision, own) {
                    (Decision::Execute, _) => {
                        let _ = tx.rollback().await;
                        tracing::warn!("a lost COMMIT turned out not to have been made: nothing happened");
                        return Transacted::Unavailable;
                    }
                    (Decision::Replay, Some(record)) => {
                        // Written once more, so that this commit waits for all that the lost one should have.
                        let (record, now) = (record.clone(), answer.now);
                        if self.confirm(tx, &record).await {
                            return executed(record, now, reply);
                        }
                    }
                    _ => {
                        let _ = tx.commit().await;
                        return decided(answer);
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(20 << question)).await;
        }
        tracing::error!(operation = %command.scope.operation, "a COMMIT was lost, and nobody can say what became of it");
        Transacted::InDoubt
    }

    async fn confirm(&self, mut tx: Transaction<'static, Postgres>, record: &semel_core::Record) -> bool {
        let confirmed = store::confirm(&mut Joined(&mut tx), record).await;
        matches!(confirmed, Ok(true)) && tx.commit().await.is_ok()
    }
}

/// Nothing was committed.
fn not_begun(error: &DbError) -> Transacted {
    match error {
        // Somebody else has it in hand, in a transaction of another process.
        DbError::Busy(_) => in_progress(),
        error => {
            tracing::warn!(%error, "a claim failed: nothing is run");
            Transacted::Unavailable
        }
    }
}

/// The same error, where it is certain that nothing was committed.
fn unsent(error: DbError) -> DbError {
    match error {
        DbError::Lost(why) => DbError::Unconnected(why),
        other => other,
    }
}

fn executed(record: semel_core::Record, now: semel_core::Timestamp, reply: &Reply) -> Transacted {
    Transacted::Executed { record: Box::new(record), response: Box::new(reply.whole()), now }
}

fn rolled_back(reply: &Reply) -> Transacted {
    Transacted::RolledBack { response: Box::new(reply.whole()) }
}

/// The transaction, for as long as the work runs. `&mut *tx` is what sqlx wants.
pub struct PgTx {
    connection: OwnedMutexGuard<Transaction<'static, Postgres>>,
    command: OperationId,
}

impl PgTx {
    /// The command's id, which its clients see.
    pub fn operation_id(&self) -> OperationId {
        self.command
    }

    /// Adds a message to the outbox: it is delivered if, and only if, the command commits.
    pub async fn push(&mut self, kind: &str, payload: &[u8]) -> Result<EventId, PushError> {
        let event = EventId::new(self.command, kind)?;
        let command = self.command;
        let mut joined = Joined(&mut self.connection);
        store::push_message(&mut joined, command, event.as_str(), event.kind(), payload).await?;
        Ok(event)
    }
}

impl Deref for PgTx {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for PgTx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
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
    Database(#[from] DbError),
}
