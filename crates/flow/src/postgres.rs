//! Commands in one transaction of PostgreSQL, with sqlx.
//!
//! Round trips besides the work's own: BEGIN, the claim, the completion, COMMIT; one more if the pool tests each
//! connection before it hands it out, as sqlx's pools do by default; and one more if commits wait for standbys. The
//! check of a connection that work has used delays only the pool.

mod joined;
mod phases;
mod transaction;

use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use semel_core::{
    Change, Claim, Command, Decision, Note, OperationId, Reason, Record, RecordId, StoreAnswer, StoreId,
    Timestamp, Transacted, Vault, VaultError,
};
use semel_faults::{Point, reached};
use semel_stores::postgres::{self as store, DatabaseAddress, DbError, Executor, Standbys, StoreClock};
use sqlx::{ConnectOptions, PgConnection, PgPool};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::gate::CommandGate;
use crate::outbox::{EventId, InvalidKind};
use crate::reply::{Answered, FailedReply, Failure, IntoReply, Reply};
use crate::seals::Seals;
use crate::settle::{
    Settled, SettlingAuthority, attempt, executed, failed, found_committed, in_progress, not_claimed,
    rolled_back, written,
};
use crate::unknown;
use joined::{Joined, LentConnection};
pub use phases::{PgRun, PostgresPhases};
use transaction::{OpenTransaction, RolledBack};

/// Maximum number of tries of a claim that conflicts with other claims.
const MAX_TRIES: usize = 8;

/// Limits for resolving a COMMIT whose answer was lost: number of questions, the wait of each question for a COMMIT
/// that is still in flight, and the time after which no further question is asked.
const MAX_QUESTIONS: u32 = 8;
const QUESTION_WAIT: Duration = Duration::from_secs(2);
const MAX_DOUBT: Duration = Duration::from_secs(30);

/// Executes commands in transactions of one PostgreSQL database, which holds Semel's tables beside the service's own.
#[derive(Clone)]
pub struct PostgresTransactions {
    pool: PgPool,
    gate: CommandGate,
    seals: Seals,
    clock: StoreClock,
    standbys: Arc<OnceLock<Standbys>>,
}

impl PostgresTransactions {
    /// Creates transactions on the connections of this pool. `PostgresStore::open` on the same database, or `semel
    /// migrate`, creates the tables.
    pub fn new(pool: PgPool) -> PostgresTransactions {
        PostgresTransactions {
            pool,
            gate: CommandGate::default(),
            seals: Seals::default(),
            clock: StoreClock::default(),
            standbys: Arc::default(),
        }
    }

    /// Seals stored responses and opens them for replays. The layer's own store must be a `SealedStore` with the same
    /// keys.
    pub fn vault(mut self, vault: Arc<dyn Vault>) -> PostgresTransactions {
        self.seals = Seals::new(vault);
        self
    }

    /// Sets the address for checking the replication of commits, if `synchronous_standby_names` is set. The default is
    /// the pool's address as far as its options tell; they do not tell client certificates, for instance.
    pub fn standbys_at(self, address: DatabaseAddress) -> PostgresTransactions {
        PostgresTransactions { standbys: Arc::new(OnceLock::from(Standbys::new(address))), ..self }
    }

    /// Reads the id of the store in the pool's database.
    ///
    /// # Errors
    /// If the database has no store, or cannot be asked.
    pub async fn store_id(&self) -> Result<StoreId, DbError> {
        let mut connection = self.pool.acquire().await.map_err(|error| joined::db_error(&error))?;
        store::store_id(&mut LentConnection(Joined::new(&mut connection))).await
    }

    /// Executes a command: its claim, the writes of `work` and the response commit together, or nothing happened.
    ///
    /// The command runs to its end even if the caller stops waiting. If `work` fails or panics, its writes are rolled
    /// back.
    ///
    /// `work` gets an sqlx transaction in READ COMMITTED. It must not call other services, since a rollback would not
    /// undo the call; [`PgTx::push`] sends messages instead. It may use savepoints, but must not end the transaction or
    /// keep it after its own end: this is detected, and the command is *unknown* from then on. `SET LOCAL` ends with
    /// the transaction. If `work` changes the session in any other way, its connection is closed.
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
    pub async fn transact<F, R, T>(&self, command: &Command, work: F) -> Answered
    where
        F: FnOnce(PgTx) -> R + Send + 'static,
        R: Future<Output = Result<T, Failure>> + Send + 'static,
        T: IntoReply,
    {
        let (own, command, work) = (self.clone(), command.clone(), replying(work));
        // In a task of its own: a transaction that has begun is always ended, and never left in the pool.
        let running = tokio::spawn(async move { own.carry_out(&command, work).await });
        // Only a bug in this crate ends this task early, at an unknown point.
        Answered::new(running.await.unwrap_or(Transacted::InDoubt))
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
        let Begun { tx, record, now, is_first } = match self.begin(&claim, command.policy.wait).await {
            Ok(begun) => begun,
            Err(told) => return *told,
        };
        match run(tx, record.operation_id, self.seals.clone(), work).await {
            WorkResult::Done { tx, reply, pushed } => {
                let begun = Begun { tx, record, now, is_first };
                self.complete(command, &claim, begun, &reply, pushed).await
            }
            WorkResult::Failed { why: FailedReply { reply, is_final: false }, back } => {
                self.taken_back(command, &claim, back, rolled_back(&reply)).await
            }
            // Roll back the writes of the work, but store the permanent failure.
            WorkResult::Failed { why: FailedReply { reply, is_final: true }, back } => {
                let nothing = self.taken_back(command, &claim, back, failed()).await;
                if !matches!(nothing, Transacted::RolledBack { .. }) {
                    return nothing;
                }
                match self.begin(&claim, command.policy.wait).await {
                    Ok(begun) => self.complete(command, &claim, begun, &reply, 0).await,
                    // Another process may have executed the command, and the database cannot be asked.
                    Err(told) if back == RolledBack::Lost && matches!(*told, Transacted::Unavailable) => {
                        Transacted::InDoubt
                    }
                    // Another process claimed the command first.
                    Err(told) => *told,
                }
            }
        }
    }

    /// Settles a deferred command once the sink of its message knows the outcome: the final response, which retries get
    /// from now on, commits with the writes of `work`.
    ///
    /// Safe to call again: if the command is settled, `work` does not run. The rules for `work` are those of
    /// [`transact`](PostgresTransactions::transact); a [`Failure::Final`] settles the command, too.
    pub async fn settle<F, R, T>(&self, operation_id: OperationId, work: F) -> Settled
    where
        F: FnOnce(PgTx) -> R + Send + 'static,
        R: Future<Output = Result<T, Failure>> + Send + 'static,
        T: IntoReply,
    {
        self.settle_by(operation_id, SettlingAuthority::Message, replying(work)).await
    }

    /// Settles an unknown or deferred command by outside evidence, such as a webhook of the provider. The evidence
    /// stays with the record permanently.
    pub async fn resolve<F, R, T>(&self, operation_id: OperationId, evidence: Note, work: F) -> Settled
    where
        F: FnOnce(PgTx) -> R + Send + 'static,
        R: Future<Output = Result<T, Failure>> + Send + 'static,
        T: IntoReply,
    {
        self.settle_by(operation_id, SettlingAuthority::Evidence(evidence), replying(work)).await
    }

    async fn settle_by<F, R>(&self, id: OperationId, word: SettlingAuthority, work: F) -> Settled
    where
        F: FnOnce(PgTx) -> R + Send + 'static,
        R: Future<Output = Result<Reply, Failure>> + Send + 'static,
    {
        let own = self.clone();
        let running = tokio::spawn(async move {
            let (tx, record) = match own.open(id, &word).await {
                Ok(open) => open,
                Err(settled) => return settled,
            };
            let (tx, record, reply) = match run(tx, id, own.seals.clone(), work).await {
                WorkResult::Done { tx, reply, .. } => (tx, record, reply),
                WorkResult::Failed { back: RolledBack::EndedBefore, .. } => {
                    return own.settled_by_work(&record).await;
                }
                WorkResult::Failed { why: FailedReply { is_final: false, .. }, .. } => {
                    return Settled::RolledBack;
                }
                WorkResult::Failed { why: FailedReply { reply, is_final: true }, .. } => {
                    match own.open(id, &word).await {
                        Ok((tx, record)) => (tx, record, reply),
                        Err(settled) => return settled,
                    }
                }
            };
            own.conclude(tx, record, &word, &reply).await
        });
        running.await.unwrap_or(Settled::InDoubt)
    }

    /// Begins a transaction in which this word, and no other, can settle the command.
    async fn open(
        &self,
        id: OperationId,
        word: &SettlingAuthority,
    ) -> Result<(OpenTransaction, Record), Settled> {
        let unavailable = |error: &DbError| {
            tracing::warn!(operation_id = %id, %error, "a command cannot be settled now");
            Settled::Unavailable
        };
        let begun = OpenTransaction::begin(&self.pool, &store::begin(QUESTION_WAIT)).await;
        let mut tx = begun.map_err(|error| unavailable(&error))?;
        let mut joined = tx.joined();
        let locked = store::lock_command(&mut joined, id, 0).await.map_err(|error| unavailable(&error))?;
        let Some((record, now)) = locked else { return Err(Settled::Absent) };
        if !word.counts(&record.head, now) {
            return Err(Settled::Before(Box::new(self.seals.opened(record))));
        }
        joined.run(store::RESET_LOCK_TIMEOUT).await.map_err(|error| unavailable(&error))?;
        Ok((tx, record))
    }

    /// Begins a transaction in which this claim executes the command. Otherwise returns the command's outcome.
    async fn begin(&self, claim: &Claim, wait: Duration) -> Result<Begun, Box<Transacted>> {
        let claimed = self.claim(claim, wait).await.map_err(|error| Box::new(not_begun(&error)))?;
        let ClaimedTransaction { tx, answer, is_first } = claimed;
        match answer {
            StoreAnswer { decision: Decision::Execute, record: Some(record), now, .. } => {
                Ok(Begun { tx, record, now, is_first })
            }
            answer => Err(Box::new(match tx.commit().await {
                Ok(()) => not_claimed(claim, self.seals.answer(answer)),
                Err(error) => not_begun(&error),
            })),
        }
    }

    /// Begins a transaction with a claim in it. Waits for a duplicate in another process, at most for `wait`.
    async fn claim(&self, claim: &Claim, wait: Duration) -> Result<ClaimedTransaction, DbError> {
        let begin = store::begin(wait);
        let mut last = DbError::Conflict("others kept changing the record".to_owned());
        for _ in 0..MAX_TRIES {
            let asked = self.clock.ask();
            let mut tx = match OpenTransaction::begin(&self.pool, &begin).await {
                Ok(tx) => tx,
                // The connection may have died in the pool long ago: try another one.
                Err(error @ DbError::Lost(_)) => {
                    last = error.not_committed();
                    continue;
                }
                Err(error) => return Err(error),
            };
            match claim_within(&mut tx, claim).await.map_err(DbError::not_committed) {
                // A first claim expires nothing, so the clock does not matter.
                Ok(Some((answer, is_first))) if self.clock.is_steady(asked, answer.now) || is_first => {
                    return Ok(ClaimedTransaction { tx, answer, is_first });
                }
                Ok(Some(_)) => {
                    // A jump of the clock must not expire anything: the store checks the clock first.
                    tx.roll_back().await;
                    let acquired = self.pool.acquire().await;
                    let mut connection = acquired.map_err(|error| joined::db_error(&error))?;
                    self.clock.look(&mut LentConnection(Joined::new(&mut connection))).await?;
                    continue;
                }
                Ok(None) => {}
                Err(error @ DbError::Conflict(_)) => last = error,
                Err(error) => return Err(error),
            }
            tx.roll_back().await;
        }
        Err(last)
    }

    /// Stores the reply, and commits.
    async fn complete(
        &self,
        command: &Command,
        claim: &Claim,
        begun: Begun,
        reply: &Reply,
        pushed: usize,
    ) -> Transacted {
        let Begun { mut tx, record, now, is_first } = begun;
        let id = record.operation_id;
        let change = match self.written(&mut tx, command, &record, reply, pushed).await {
            Ok(change) => change,
            Err(why) => {
                tracing::error!(operation_id = %id, "{why}: rolled back");
                let back = tx.roll_back().await;
                return self.taken_back(command, claim, back, failed()).await;
            }
        };
        let mut joined = tx.joined();
        let settled = if is_first {
            store::settle_first(&mut joined, record, &change, now).await
        } else {
            store::apply(&mut joined, &record.id, &change, 0).await
        };
        let (record, now) = match settled {
            Ok(Some(StoreAnswer { decision: Decision::Applied, record: Some(settled), now, .. })) => {
                (settled, now)
            }
            // Without our COMMIT nothing is committed, unless the work has ended the transaction itself.
            other => {
                tracing::error!(operation_id = %id, ?other, "a command could not be completed");
                let back = tx.roll_back().await;
                return self.taken_back(command, claim, back, failed()).await;
            }
        };
        reached(Point::WorkDone).await;
        match self.commit(tx).await {
            Ok(()) => {
                reached(Point::WorkCommitted).await;
                executed(self.seals.opened(record), now, reply)
            }
            Err(error) if error.is_ambiguous() => self.find_out(command, claim, reply).await,
            Err(error) => {
                tracing::error!(operation_id = %id, %error, "a command could not be committed: rolled back");
                failed()
            }
        }
    }

    /// Returns the change to write for finished work. If the work defers its outcome, its message must exist.
    async fn written(
        &self,
        tx: &mut OpenTransaction,
        command: &Command,
        record: &Record,
        reply: &Reply,
        pushed: usize,
    ) -> Result<Change, String> {
        let change = written(&command.policy, record.head.fence(), reply, pushed)?;
        if reply.deferral().is_some() {
            // A rollback to a savepoint may have removed the message.
            let found = store::has_message(&mut tx.joined(), record.operation_id).await;
            if !found.map_err(|error| error.to_string())? {
                return Err("the work left its outcome to a message and took it back".to_owned());
            }
        }
        self.seals.change(record, change).map_err(|why| why.to_string())
    }

    /// Commits, and waits for the replication that the session asks for.
    async fn commit(&self, tx: OpenTransaction) -> Result<(), DbError> {
        let waits = tx.waits();
        tx.commit().await?;
        // A cancelled wait for standbys looks like a successful one: sqlx passes no warnings on.
        match waits {
            true => self.standbys()?.wait().await,
            false => Ok(()),
        }
    }

    fn standbys(&self) -> Result<&Standbys, DbError> {
        if self.standbys.get().is_none() {
            let url = self.pool.connect_options().to_url_lossy();
            let address = address_of(url.as_str()).map_err(|why| {
                DbError::Lost(format!("commits wait for standbys, which cannot be asked about: {why}"))
            })?;
            let _ = self.standbys.set(Standbys::new(address));
        }
        self.standbys.get().ok_or_else(|| DbError::Lost("there is no address of standbys".to_owned()))
    }

    /// Resolves a COMMIT whose answer was lost. Sends the same claim again: it waits for the transaction that may still
    /// be in flight, and then either finds its own record or takes its place, which proves that there is none.
    async fn find_out(&self, command: &Command, claim: &Claim, reply: &Reply) -> Transacted {
        let lost = Instant::now();
        for question in (0..MAX_QUESTIONS).take_while(|_| lost.elapsed() < MAX_DOUBT) {
            if let Ok(ClaimedTransaction { tx, answer, .. }) = self.claim(claim, QUESTION_WAIT).await {
                let own = answer.record.as_ref().filter(|record| record.head.token == claim.attempt.token);
                match (answer.decision, own) {
                    (Decision::Execute, _) => {
                        tx.roll_back().await;
                        tracing::warn!("a lost COMMIT turned out not to have been made: nothing happened");
                        return Transacted::Unavailable;
                    }
                    (Decision::Replay | Decision::Wait, Some(record)) => {
                        // Write the record once more, so that this commit waits for all standbys that the lost one
                        // should have waited for.
                        let (record, now) = (record.clone(), answer.now);
                        if self.confirm(tx, &record).await {
                            return found_committed(self.seals.opened(record), now, reply);
                        }
                    }
                    _ => {
                        let _ = tx.commit().await;
                        return not_claimed(claim, self.seals.answer(answer));
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(20 << question)).await;
        }
        tracing::error!(operation = %command.scope.operation(), "the connection was lost during a COMMIT, whose outcome is unknown");
        Transacted::InDoubt
    }

    /// Returns the outcome of a command whose transaction was rolled back: not executed. The outcome is in doubt, and
    /// the command *unknown* from now on, if the work had ended the transaction itself. If the session was lost,
    /// another process may have executed the command since.
    async fn taken_back(
        &self,
        command: &Command,
        claim: &Claim,
        back: RolledBack,
        nothing: Transacted,
    ) -> Transacted {
        match back {
            RolledBack::Certainly => nothing,
            RolledBack::Lost => self.lost(command, claim, nothing).await,
            RolledBack::EndedBefore => {
                tracing::error!(operation = %command.scope.operation(), "the work ended its transaction itself");
                self.record_unknown(claim).await;
                Transacted::InDoubt
            }
        }
    }

    /// Records the command as unknown: the work of this claim may have committed anything.
    async fn record_unknown(&self, claim: &Claim) {
        let recording = async {
            let ClaimedTransaction { mut tx, answer, .. } = self.claim(claim, QUESTION_WAIT).await?;
            let own = answer.record.filter(|record| record.head.token == claim.attempt.token);
            let Some(record) = own else { return Ok::<(), DbError>(()) };
            let abandon = Change::abandon(record.head.fence(), Reason::HandlerUnsure);
            let answer = store::apply(&mut tx.joined(), &record.id, &abandon, 0).await?;
            self.commit(tx).await?;
            if let Some(answer) = answer {
                unknown::observe(&record.operation, &answer, Some(&abandon));
            }
            Ok(())
        };
        if let Err(error) = recording.await {
            // If the work committed the claim, its lease expires later.
            tracing::error!(%error, "a command whose work ended its transaction cannot be recorded as unknown yet");
        }
    }

    /// Returns the outcome of a command whose session was lost: not executed, unless another process has executed it
    /// since or is executing it. The server may have ended the session long ago. In doubt, if the database does not
    /// answer.
    async fn lost(&self, command: &Command, claim: &Claim, nothing: Transacted) -> Transacted {
        let lost = Instant::now();
        for question in (0..MAX_QUESTIONS).take_while(|_| lost.elapsed() < MAX_DOUBT) {
            match self.ask_since(command, claim).await {
                Since::Nothing => return nothing,
                Since::Told(told) => return *told,
                Since::NoAnswer => tokio::time::sleep(Duration::from_millis(20 << question)).await,
            }
        }
        tracing::error!(
            operation = %command.scope.operation(),
            "a session was lost; whether another one has executed its command since is unknown"
        );
        Transacted::InDoubt
    }

    /// Asks the database once for the outcome of a command whose session was lost.
    async fn ask_since(&self, command: &Command, claim: &Claim) -> Since {
        // Shorter than the whole question, so that a command that is in progress elsewhere is detected.
        let (own, claim, wait) = (self.clone(), claim.clone(), command.policy.wait.min(QUESTION_WAIT / 2));
        // In a task of its own: on timeout, its transaction is still ended.
        let asking = tokio::spawn(async move {
            let begun = match own.begin(&claim, wait).await {
                Ok(begun) => begun,
                Err(told) if matches!(*told, Transacted::Unavailable) => return Since::NoAnswer,
                Err(told) => return Since::Told(told),
            };
            begun.tx.roll_back().await;
            match own.is_committed(&claim).await {
                Ok(false) => Since::Nothing,
                // The work had ended the transaction before its session was lost.
                Ok(true) => {
                    own.record_unknown(&claim).await;
                    Since::Told(Box::new(Transacted::InDoubt))
                }
                Err(_) => Since::NoAnswer,
            }
        });
        match tokio::time::timeout(QUESTION_WAIT, asking).await {
            Ok(Ok(since)) => since,
            Ok(Err(_)) | Err(_) => Since::NoAnswer,
        }
    }

    /// Returns true if this claim is committed.
    async fn is_committed(&self, claim: &Claim) -> Result<bool, DbError> {
        let mut connection = self.pool.acquire().await.map_err(|error| joined::db_error(&error))?;
        let mut joined = Joined::new(&mut connection);
        store::is_claimed_by(&mut joined, claim.record_ids(), claim.attempt.token).await
    }

    /// Returns the result of a settlement whose work ended the transaction itself. The work must not run again for the
    /// same word.
    async fn settled_by_work(&self, record: &Record) -> Settled {
        tracing::error!(operation_id = %record.operation_id, "the work ended its transaction itself");
        let recording = async {
            let mut tx = OpenTransaction::begin(&self.pool, &store::begin(QUESTION_WAIT)).await?;
            let unknown = Change::abandon(record.head.fence(), Reason::HandlerUnsure);
            store::apply(&mut tx.joined(), &record.id, &unknown, 0).await?;
            self.commit(tx).await
        };
        if let Err(error) = recording.await {
            tracing::error!(operation_id = %record.operation_id, %error, "it cannot be recorded as unknown yet");
        }
        Settled::InDoubt
    }

    async fn confirm(&self, mut tx: OpenTransaction, record: &Record) -> bool {
        let confirmed = store::confirm(&mut tx.joined(), record).await;
        matches!(confirmed, Ok(true)) && self.commit(tx).await.is_ok()
    }

    /// Stores the reply of a command after its own transaction has ended, and commits.
    async fn conclude(
        &self,
        mut tx: OpenTransaction,
        record: Record,
        word: &SettlingAuthority,
        reply: &Reply,
    ) -> Settled {
        let change = match self.seals.change(&record, word.change(&record.head, reply)) {
            Ok(change) => change,
            Err(why) => {
                tracing::error!(operation_id = %record.operation_id, %why, "a command could not be settled");
                return match tx.roll_back().await {
                    RolledBack::EndedBefore => self.settled_by_work(&record).await,
                    RolledBack::Certainly | RolledBack::Lost => Settled::Unavailable,
                };
            }
        };
        let applied = store::apply(&mut tx.joined(), &record.id, &change, 0).await;
        let settled = match applied {
            Ok(Some(StoreAnswer { decision: Decision::Applied, record: Some(settled), .. })) => settled,
            other => {
                // No other process can change the record: the work has ended the transaction itself, or lost its
                // connection.
                tracing::error!(operation_id = %record.operation_id, ?other, "a command could not be settled");
                return match tx.roll_back().await {
                    RolledBack::Certainly => Settled::RolledBack,
                    RolledBack::EndedBefore => self.settled_by_work(&record).await,
                    RolledBack::Lost => Settled::InDoubt,
                };
            }
        };
        match self.commit(tx).await {
            Ok(()) => Settled::Now(Box::new(self.seals.opened(settled))),
            Err(error) if error.is_ambiguous() => Settled::InDoubt,
            Err(error) => {
                tracing::warn!(operation_id = %record.operation_id, %error, "a settlement could not be committed");
                Settled::Unavailable
            }
        }
    }
}

/// Returns the address of a pool in the form that a connection of the store parses.
fn address_of(url: &str) -> Result<DatabaseAddress, String> {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let value = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    // `allow` prefers no TLS, which is weaker than `prefer`.
    let mode = value("sslmode").map(|mode| if mode == "allow" { "prefer" } else { mode });
    // A pool checks no certificate unless its mode verifies, even if it has a root certificate.
    let root = value("sslrootcert").filter(|_| mode.is_some_and(|mode| mode.starts_with("verify-")));
    let tls: Vec<String> = [("sslmode", mode), ("sslrootcert", root)]
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| format!("{name}={value}")))
        .collect();
    format!("{base}?{}", tls.join("&")).parse().map_err(|error| format!("{error}"))
}

/// Result of the work.
enum WorkResult {
    /// The work is done, and not committed.
    Done { tx: OpenTransaction, reply: Reply, pushed: usize },
    /// The work failed, and its transaction was rolled back as `back` says.
    Failed { why: FailedReply, back: RolledBack },
}

/// Converts the response of the work into a reply.
fn replying<F, R, T>(work: F) -> impl FnOnce(PgTx) -> ReplyFuture + Send + 'static
where
    F: FnOnce(PgTx) -> R + Send + 'static,
    R: Future<Output = Result<T, Failure>> + Send + 'static,
    T: IntoReply,
{
    |tx| {
        let working = work(tx);
        Box::pin(async move { working.await?.into_reply() })
    }
}

type ReplyFuture = Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send>>;

/// Runs the work in a task of its own, so that a panic ends only this task.
async fn run<F, R>(mut tx: OpenTransaction, id: OperationId, seals: Seals, work: F) -> WorkResult
where
    F: FnOnce(PgTx) -> R + Send + 'static,
    R: Future<Output = Result<Reply, Failure>> + Send + 'static,
{
    let fault =
        |back| WorkResult::Failed { why: FailedReply { reply: Reply::rolled_back(), is_final: false }, back };
    tx.lend();
    let (shared, pushed) = (Arc::new(Mutex::new(tx)), Arc::new(AtomicUsize::new(0)));
    let connection = shared.clone().lock_owned().await;
    let lent = PgTx { connection, command: id, pushed: pushed.clone(), seals };
    let done = tokio::spawn(async move { work(lent).await }).await;
    let Ok(tx) = Arc::try_unwrap(shared).map(Mutex::into_inner) else {
        tracing::error!(operation_id = %id, "the work kept its transaction after it ended");
        if let Ok(Err(failure)) = done {
            failure.logged(id);
        }
        // The work may still commit it.
        return fault(RolledBack::EndedBefore);
    };
    match done {
        Ok(Ok(reply)) => WorkResult::Done { tx, reply, pushed: pushed.load(Ordering::SeqCst) },
        Ok(Err(why)) => WorkResult::Failed { why: why.logged(id), back: tx.roll_back().await },
        Err(_) => {
            tracing::error!(operation_id = %id, "the work of a command panicked");
            fault(tx.roll_back().await)
        }
    }
}

/// A transaction with a claim in it.
struct ClaimedTransaction {
    tx: OpenTransaction,
    answer: StoreAnswer,
    /// True if one statement of this claim inserted the record.
    is_first: bool,
}

/// Outcome of a command whose session was lost.
enum Since {
    /// Not executed: no process holds the command, and nothing of it is committed.
    Nothing,
    Told(Box<Transacted>),
    /// The database did not answer.
    NoAnswer,
}

/// A transaction in which the work runs.
struct Begun {
    tx: OpenTransaction,
    record: Record,
    now: Timestamp,
    is_first: bool,
}

/// Sends the claim. Returns `None` if another claim was faster: roll back and try again.
async fn claim_within(
    tx: &mut OpenTransaction,
    claim: &Claim,
) -> Result<Option<(StoreAnswer, bool)>, DbError> {
    let mut joined = tx.joined();
    let Some(answer) = store::claim(&mut joined, claim, 0).await? else { return Ok(None) };
    let is_first = joined.statements() == 1;
    if answer.decision == Decision::Execute && !is_first {
        joined.run(store::RESET_LOCK_TIMEOUT).await?;
    }
    Ok(Some((answer, is_first)))
}

/// Applies a change to a record within a transaction of the service's own, in READ COMMITTED, so that the service's
/// rows change with it: for a [`Settle`](crate::reconcile::Settle). Commit only if the decision is `Applied`. `None`
/// means that another process changed the record in between: roll back, and try again.
pub async fn apply_within(
    connection: &mut PgConnection,
    id: &RecordId,
    change: &Change,
) -> Result<Option<StoreAnswer>, DbError> {
    store::apply(&mut LentConnection(Joined::new(connection)), id, change, 0).await
}

/// Returns the outcome of a claim that failed: nothing was committed.
fn not_begun(error: &DbError) -> Transacted {
    match error {
        // Another process is executing the command in its own transaction.
        DbError::Busy(_) => in_progress(),
        error => {
            tracing::warn!(%error, "a claim failed: nothing is run");
            Transacted::Unavailable
        }
    }
}

/// The transaction, for as long as the work runs. Pass `&mut *tx` to sqlx.
pub struct PgTx {
    connection: OwnedMutexGuard<OpenTransaction>,
    command: OperationId,
    pushed: Arc<AtomicUsize>,
    seals: Seals,
}

impl PgTx {
    /// Returns the command's id, which its clients see.
    pub fn operation_id(&self) -> OperationId {
        self.command
    }

    /// Adds a message to the outbox: it is delivered if, and only if, the command commits.
    pub async fn push(&mut self, kind: &str, payload: &[u8]) -> Result<EventId, PushError> {
        let event = EventId::new(self.command, kind)?;
        let command = self.command;
        let payload = self.seals.payload(event.as_str(), payload)?;
        let mut joined = self.connection.joined();
        if !store::push_message(&mut joined, command, event.as_str(), event.kind(), &payload).await? {
            return Err(PushError::Twice(event.to_string()));
        }
        reached(Point::MessagePushed).await;
        self.pushed.fetch_add(1, Ordering::SeqCst);
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
    Database(#[from] DbError),
}
