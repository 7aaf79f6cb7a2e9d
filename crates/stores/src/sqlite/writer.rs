//! The one thread that writes. It commits the changes of concurrent requests in groups: one transaction and
//! one flush to disk carry whatever was waiting, and a lone request waits for nobody.
//!
//! Invariant: a change is answered only after its group's COMMIT, and with `Unavailable` only if the change
//! was certainly not made.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use semel_core::{
    Answer, Change, Claim, Decision, Event, Record, RecordId, StoreError, StoredResult, Timestamp, Write,
    transition,
};
use tokio::sync::{mpsc, oneshot};

use super::queries;

/// The most changes that share one transaction.
const MAX_GROUP: usize = 256;

/// One change, and who waits for it.
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) reply: oneshot::Sender<Result<Done, StoreError>>,
}

/// What to do. It can be done again: its attempt token makes a second time harmless.
pub(super) enum Work {
    Claim(Claim),
    Apply(RecordId, Change),
    Sweep(usize),
    Reap(usize),
}

/// What was done.
pub(super) enum Done {
    Answer(Box<Answer>),
    Aged(usize),
}

/// What tests may do to the writer.
#[derive(Clone, Default)]
pub(super) struct Levers {
    /// Milliseconds added to the database's now.
    pub(super) clock_offset: Arc<AtomicI64>,
    /// The next COMMIT is made and then reported as failed, as a failing disk may do.
    pub(super) lose_commit: Arc<AtomicBool>,
}

/// The writing thread's state.
pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) jobs: mpsc::Receiver<Job>,
    pub(super) levers: Levers,
    pub(super) counters: Arc<Counters>,
}

/// What was written so far.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) commits: AtomicU64,
    pub(super) changes: AtomicU64,
}

/// Why a group failed as a whole.
enum GroupError {
    /// Nothing of it was written.
    NotWritten(StoreError),
    /// It may have been written.
    Ambiguous(String),
}

type Results = Vec<Result<Done, StoreError>>;

impl Writer {
    /// Works until the store is dropped.
    pub(super) fn run(mut self) {
        while let Some(first) = self.jobs.blocking_recv() {
            let mut group = vec![first];
            while group.len() < MAX_GROUP
                && let Ok(next) = self.jobs.try_recv()
            {
                group.push(next);
            }
            let (work, replies): (Vec<Work>, Vec<_>) =
                group.into_iter().map(|job| (job.work, job.reply)).unzip();
            for (reply, result) in replies.into_iter().zip(self.settle(&work)) {
                // A requester that went away does not need its answer; the change stands all the same.
                let _ = reply.send(result);
            }
        }
    }

    /// Commits the group; if it fails as a whole, commits each of its changes alone, so that one change's
    /// trouble is not its neighbours', and so that what may have been written is found out by its token.
    fn settle(&mut self, group: &[Work]) -> Results {
        match self.commit(group) {
            Ok(results) => results,
            Err(GroupError::NotWritten(error)) if group.len() == 1 => vec![Err(error)],
            Err(GroupError::NotWritten(_)) => group.iter().map(|work| self.settle_alone(work)).collect(),
            Err(GroupError::Ambiguous(why)) => {
                tracing::warn!(changes = group.len(), why, "a commit failed: sending its changes again");
                let again = |work| self.settle_alone(work).map_err(|error| still_ambiguous(&why, error));
                group.iter().map(again).collect()
            }
        }
    }

    fn settle_alone(&mut self, work: &Work) -> Result<Done, StoreError> {
        match self.commit(std::slice::from_ref(work)) {
            Ok(mut results) => results.pop().unwrap_or_else(|| Err(ambiguous("no result"))),
            Err(GroupError::NotWritten(error)) => Err(error),
            Err(GroupError::Ambiguous(why)) => Err(ambiguous(why)),
        }
    }

    /// One transaction for the whole group.
    fn commit(&mut self, group: &[Work]) -> Result<Results, GroupError> {
        let not_written = |error| GroupError::NotWritten(store_error(&error));
        let offset = self.levers.clock_offset.load(Ordering::SeqCst);
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(not_written)?;
        let now =
            Timestamp::from_millis(queries::now(&transaction).map_err(not_written)?.saturating_add(offset));
        let mut results = Vec::with_capacity(group.len());
        for work in group {
            let result = perform(&transaction, work, now);
            // Some errors (a full disk, failed I/O) make SQLite roll the whole transaction back.
            if transaction.is_autocommit() {
                let error = result.err().unwrap_or_else(|| unavailable("the transaction was rolled back"));
                return Err(GroupError::NotWritten(error));
            }
            results.push(result);
        }
        if results.iter().all(Result::is_err) {
            // Nothing was written, so there is no commit whose outcome could be in doubt.
            return transaction.rollback().map(|()| results).map_err(not_written);
        }
        match transaction.commit() {
            Ok(()) if self.levers.lose_commit.swap(false, Ordering::SeqCst) => {
                Err(GroupError::Ambiguous("the answer to COMMIT was lost".into()))
            }
            Ok(()) => {
                self.counters.commits.fetch_add(1, Ordering::Relaxed);
                self.counters.changes.fetch_add(group.len() as u64, Ordering::Relaxed);
                Ok(results)
            }
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                Err(not_written(error))
            }
            Err(error) => Err(GroupError::Ambiguous(error.to_string())),
        }
    }
}

/// Carries out one change within the transaction. A failing statement takes back only itself.
fn perform(connection: &Connection, work: &Work, now: Timestamp) -> Result<Done, StoreError> {
    let answer = |answer| Done::Answer(Box::new(answer));
    match work {
        Work::Claim(claim) => self::claim(connection, claim, now).map(answer),
        Work::Apply(id, change) => {
            let before = queries::get(connection, id).map_err(|error| store_error(&error))?;
            self::change(connection, before.as_ref(), change.event(), None, change.result(), now).map(answer)
        }
        Work::Sweep(limit) => age(connection, queries::due_to_sweep(connection, now, *limit), now),
        Work::Reap(limit) => age(connection, queries::due_to_reap(connection, now, *limit), now),
    }
}

/// Claims by inserting: the unique constraint decides, and only its loser reads the record.
fn claim(connection: &Connection, claim: &Claim, now: Timestamp) -> Result<Answer, StoreError> {
    let event = Event::Claim(claim.attempt);
    let first = transition(None, &event, now);
    let record = Record::after(None, first.write, Some(claim), None, now);
    if let Some(fresh) = &record
        && queries::insert(connection, fresh).map_err(|error| store_error(&error))?
    {
        return Ok(Answer { decision: first.decision, record, now });
    }
    let id = claim.scope.record_id();
    let before = queries::get(connection, &id).map_err(|error| store_error(&error))?;
    change(connection, before.as_ref(), &event, Some(claim), None, now)
}

/// Asks the protocol and writes what it decided. Nobody comes between: the transaction is exclusive.
fn change(
    connection: &Connection,
    before: Option<&Record>,
    event: &Event,
    claim: Option<&Claim>,
    result: Option<&StoredResult>,
    now: Timestamp,
) -> Result<Answer, StoreError> {
    let step = transition(before.map(|record| &record.head), event, now);
    let record = Record::after(before, step.write, claim, result, now);
    let written = match (step.write, before, &record) {
        (Write::Keep, _, _) => Ok(true),
        (Write::Update(_), Some(before), Some(after)) => queries::update(connection, &before.head, after),
        (Write::Delete, Some(before), None) => queries::delete(connection, &before.id, &before.head),
        (Write::Create(_), Some(expired), Some(after)) => {
            queries::delete(connection, &expired.id, &expired.head)
                .and_then(|gone| Ok(gone && queries::insert(connection, after)?))
        }
        (Write::Create(_), None, Some(after)) => queries::insert(connection, after),
        (Write::Create(_) | Write::Update(_) | Write::Delete, _, _) => Ok(false),
    };
    match written {
        Ok(true) => Ok(Answer { decision: step.decision, record, now }),
        Ok(false) => Err(StoreError::Rejected("its row did not take the write".into())),
        Err(error) => Err(store_error(&error)),
    }
}

/// Lets time act on the records that are due.
fn age(
    connection: &Connection,
    due: rusqlite::Result<Vec<RecordId>>,
    now: Timestamp,
) -> Result<Done, StoreError> {
    let mut aged = 0;
    for id in due.map_err(|error| store_error(&error))? {
        let before = queries::get_without_response(connection, &id).map_err(|error| store_error(&error))?;
        let answer = change(connection, before.as_ref(), &Event::Age, None, None, now)?;
        aged += usize::from(answer.decision == Decision::Applied);
    }
    Ok(Done::Aged(aged))
}

/// What an error before COMMIT means for the caller: nothing was written.
pub(super) fn store_error(error: &rusqlite::Error) -> StoreError {
    if let rusqlite::Error::FromSqlConversionFailure(..)
    | rusqlite::Error::InvalidColumnType(..)
    | rusqlite::Error::IntegralValueOutOfRange(..) = error
    {
        return StoreError::Corrupt(error.to_string());
    }
    let Some(code) = error.sqlite_error_code() else { return unavailable(error.to_string()) };
    match code {
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => StoreError::Corrupt(error.to_string()),
        ErrorCode::TooBig | ErrorCode::ConstraintViolation => StoreError::Rejected(error.to_string()),
        _ => unavailable(error.to_string()),
    }
}

/// A second try that failed leaves open what the first one did, unless it is clear that it cannot have.
fn still_ambiguous(first: &str, second: StoreError) -> StoreError {
    match second {
        StoreError::Rejected(_) => second,
        StoreError::Unavailable(_) | StoreError::Ambiguous(_) | StoreError::Corrupt(_) => {
            ambiguous(format!("{first}; then: {second}"))
        }
    }
}

fn unavailable(why: impl Into<String>) -> StoreError {
    StoreError::Unavailable(why.into())
}

fn ambiguous(why: impl Into<String>) -> StoreError {
    StoreError::Ambiguous(why.into())
}
