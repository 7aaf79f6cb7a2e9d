//! The one thread that writes. It commits the changes of concurrent requests in groups: one transaction and
//! one flush to disk carry all waiting changes, and a lone request does not wait.
//!
//! Invariant: a change is answered only after its group's COMMIT, and with `Unavailable` only if the change
//! was certainly not made.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use semel_core::{StoreError, Timestamp};
use semel_faults::{Lever, Point, reached_by_thread};
use tokio::sync::mpsc;

use super::clock;
use super::errors::{again, ambiguous, still_ambiguous, store_error, unavailable};
use super::job::{Job, WriteTransaction, committed};
use super::known::ClaimedRecords;
use super::place::StoreFiles;
use crate::queue_metrics;

/// Maximum number of changes that share one transaction.
const MAX_GROUP: usize = 256;

/// Controls for tests.
#[derive(Clone, Default)]
pub(super) struct WriterLevers {
    /// Milliseconds added to the store's time, as if they had passed.
    pub(super) clock_offset: Arc<AtomicI64>,
    /// Milliseconds added to the machine's clock, as if it had been set.
    pub(super) jumped: Arc<AtomicI64>,
    /// True to make the next COMMIT and then report it as failed, as a failing disk may do.
    pub(super) lose_commit: Arc<AtomicBool>,
    /// True to make SQLite refuse every write, as for a file on a read-only medium.
    pub(super) read_only: Arc<AtomicBool>,
}

impl WriterLevers {
    /// Lets a test outside of this process use them, in a build with fault points.
    pub(super) fn obey(&self) {
        let levers = self.clone();
        semel_faults::levers(move |lever| {
            match lever {
                Lever::Clock(millis) => levers.clock_offset.store(millis, Ordering::SeqCst),
                Lever::Jump(millis) => levers.jumped.store(millis, Ordering::SeqCst),
                Lever::LoseAnswer => levers.lose_commit.store(true, Ordering::SeqCst),
                Lever::ReadOnly(is_so) => levers.read_only.store(is_so, Ordering::SeqCst),
                Lever::LoseCommit => return false,
            }
            true
        });
    }
}

impl WriterLevers {
    /// Returns the milliseconds by which the machine's clock was set.
    pub(super) fn jumped(&self) -> i64 {
        self.jumped.load(Ordering::SeqCst)
    }

    /// Returns this time plus the time that passed for tests alone.
    pub(super) fn passed(&self, now: Timestamp) -> Timestamp {
        Timestamp::from_millis(now.as_millis().saturating_add(self.clock_offset.load(Ordering::SeqCst)))
    }
}

/// The writing thread's state.
pub(super) struct Writer {
    pub(super) connection: Connection,
    /// Opens another connection: after a commit that may have failed, this one proves nothing.
    pub(super) connect: Box<dyn Fn() -> Result<Connection, String> + Send>,
    pub(super) jobs: mpsc::Receiver<Box<dyn Job>>,
    pub(super) known: ClaimedRecords,
    pub(super) place: StoreFiles,
    pub(super) levers: WriterLevers,
    pub(super) counters: Arc<WriterCounters>,
    /// Set once the file was found damaged: its content may be wrong, so nothing is decided on it.
    pub(super) damaged: Option<String>,
}

/// Numbers of writes so far.
#[derive(Default)]
pub(super) struct WriterCounters {
    pub(super) tried: AtomicU64,
    pub(super) commits: AtomicU64,
    pub(super) changes: AtomicU64,
}

/// Reason why a group failed as a whole.
enum GroupError {
    /// The transaction did not begin: others hold the file, or it is damaged. A retry alone would be no
    /// better.
    NotBegun(StoreError),
    /// Nothing was written, because of one of the changes.
    NotWritten(StoreError),
    /// The group may have been written.
    Ambiguous(String),
    /// The group was written to a file that is no longer in its place. A retry would find the same.
    Displaced(StoreError),
}

type Results = Vec<Result<(), StoreError>>;

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
            queue_metrics::length(self.jobs.len());
            group.iter().for_each(|job| queue_metrics::waited(job.waited()));
            let results = self.commit_all(&mut group);
            for (job, result) in group.into_iter().zip(results) {
                job.answer(result);
            }
        }
    }

    /// Commits the group; if it fails as a whole, commits each of its changes alone, so that one failing
    /// change does not fail others, and so that the token reveals a change that may have been written.
    fn commit_all(&mut self, group: &mut [Box<dyn Job>]) -> Results {
        let doubt = match self.commit(group) {
            Ok(results) => return results,
            Err(GroupError::NotBegun(error)) => return group.iter().map(|_| Err(again(&error))).collect(),
            Err(GroupError::Displaced(error)) => {
                return group.iter().map(|_| Err(ambiguous(error.to_string()))).collect();
            }
            Err(GroupError::NotWritten(error)) if group.len() == 1 => return vec![Err(error)],
            Err(GroupError::NotWritten(_)) => None,
            Err(GroupError::Ambiguous(why)) => {
                tracing::warn!(changes = group.len(), why, "a commit failed: sending its changes again");
                Some(why)
            }
        };
        let mut results = Vec::with_capacity(group.len());
        let mut stopped: Option<StoreError> = None;
        for job in group {
            let result = match (&stopped, &doubt) {
                (Some(error), _) => Err(again(error)),
                (None, Some(why)) if !job.is_repeatable() => Err(ambiguous(why.clone())),
                (None, _) => match self.commit(std::slice::from_mut(job)) {
                    Ok(mut results) => results.pop().unwrap_or_else(|| Err(ambiguous("no result"))),
                    Err(GroupError::NotBegun(error)) => Err(again(stopped.insert(error))),
                    Err(GroupError::NotWritten(error) | GroupError::Displaced(error)) => Err(error),
                    Err(GroupError::Ambiguous(why)) => Err(ambiguous(why)),
                },
            };
            results.push(match &doubt {
                Some(why) => result.map_err(|error| still_ambiguous(why, error)),
                None => result,
            });
        }
        results
    }

    /// Commits the whole group in one transaction.
    fn commit(&mut self, group: &mut [Box<dyn Job>]) -> Result<Results, GroupError> {
        let result = self.try_to_commit(group);
        let error = match &result {
            Ok(results) => results.iter().find_map(|result| result.as_ref().err()),
            Err(GroupError::NotBegun(error) | GroupError::NotWritten(error)) => Some(error),
            Err(GroupError::Displaced(_)) => None,
            Err(GroupError::Ambiguous(_)) => {
                match (self.connect)() {
                    Ok(connection) => self.connection = connection,
                    Err(why) => tracing::warn!(why, "the file cannot be opened again yet"),
                }
                None
            }
        };
        if let Some(StoreError::Damaged(why)) = error {
            tracing::error!(why, "the database file is damaged: nothing is decided on it any more");
            self.damaged = Some(why.clone());
        }
        result
    }

    fn try_to_commit(&mut self, group: &mut [Box<dyn Job>]) -> Result<Results, GroupError> {
        if let Some(why) = &self.damaged {
            return Err(GroupError::NotBegun(StoreError::Damaged(why.clone())));
        }
        self.place.check().map_err(GroupError::NotBegun)?;
        self.counters.tried.fetch_add(1, Ordering::Relaxed);
        points(group, |sent| sent);
        let not_begun = |error| GroupError::NotBegun(store_error(&error));
        if semel_faults::BUILT_IN {
            let read_only = self.levers.read_only.load(Ordering::SeqCst);
            self.connection.pragma_update(None, "query_only", read_only).map_err(not_begun)?;
        }
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(not_begun)?;
        let now = self.levers.passed(clock::now(&transaction, self.levers.jumped()).map_err(not_begun)?);
        let mut results = Vec::with_capacity(group.len());
        for job in group.iter_mut() {
            if job.is_orphaned() {
                results.push(Err(unavailable("its caller no longer waits for it")));
                continue;
            }
            let result =
                job.run(&mut WriteTransaction { connection: &transaction, now, known: &mut self.known });
            // Some errors (a full disk, failed I/O) make SQLite roll the whole transaction back.
            if transaction.is_autocommit() {
                let error = result.err().unwrap_or_else(|| unavailable("the transaction was rolled back"));
                return Err(GroupError::NotWritten(error));
            }
            results.push(result);
        }
        let not_written = |error| GroupError::NotWritten(store_error(&error));
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
                points(group, committed);
                self.place.check_commit().map_err(GroupError::Displaced)?;
                Ok(results)
            }
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                Err(not_written(error))
            }
            Err(error) => Err(GroupError::Ambiguous(error.to_string())),
        }
    }
}

/// Pauses at the point at which a test holds one of the group.
fn points(group: &[Box<dyn Job>], point: fn(Point) -> Point) {
    group.iter().filter_map(|job| job.point()).map(point).for_each(reached_by_thread);
}
