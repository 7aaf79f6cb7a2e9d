//! A job on its way over a lane: its work, its caller, and the state of its write.

use std::time::Duration;

use semel_core::{Change, Claim, RecordId, Snapshot, Start, StoreAnswer, StoreError};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::errors::DbError;

/// Time for which a change in doubt is pursued, from when its answer was lost.
const PURSUIT: Duration = Duration::from_secs(4);

/// Work and the channel to its caller.
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) reply: oneshot::Sender<Result<JobResult, StoreError>>,
}

/// The work of a job.
pub(super) enum Work {
    Claim(Box<Claim>),
    Apply(RecordId, Box<Change>),
    Get(RecordId),
    Now,
}

/// Result of a job.
pub(super) enum JobResult {
    Answer(Box<StoreAnswer>),
    Snapshot(Box<Snapshot>),
}

/// A job on its way.
pub(super) struct Pending {
    pub(super) job: Job,
    /// Time at which the job came into the queue of the lanes.
    pub(super) queued_at: Instant,
    /// Set if it is unknown whether the write was made.
    pub(super) doubt: Option<Doubt>,
    /// True if a record must be read first, such as after a lost race for a first claim.
    pub(super) must_read: bool,
    /// Set once another transaction was found to hold the record. The job is then sent alone.
    pub(super) lock: Option<LockWait>,
}

/// A job whose record another transaction holds.
#[derive(Clone, Copy)]
pub(super) struct LockWait {
    /// Time at which the lock was first met.
    pub(super) since: Instant,
    /// True if the last try has met the lock again.
    pub(super) is_held: bool,
}

impl Default for LockWait {
    fn default() -> LockWait {
        LockWait { since: Instant::now(), is_held: false }
    }
}

/// Reason why the result of a write is unknown, and the end of its pursuit.
pub(super) struct Doubt {
    pub(super) why: String,
    pub(super) until: Instant,
}

impl Work {
    /// Returns the id of the record.
    pub(super) fn record_id(&self) -> Option<RecordId> {
        match self {
            Work::Claim(claim) => Some(claim.scope.record_id()),
            Work::Apply(id, _) | Work::Get(id) => Some(*id),
            Work::Now => None,
        }
    }

    /// Returns the size of the response in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Work::Apply(_, change) => change.result().map_or(0, |result| result.response.bytes.len()),
            Work::Claim(_) | Work::Get(_) | Work::Now => 0,
        }
    }

    /// Returns true if the work takes several dependent statements.
    pub(super) fn needs_a_transaction(&self) -> bool {
        match self {
            Work::Claim(claim) => {
                claim.business_reference.is_some()
                    || !claim.former.is_empty()
                    || claim.attempt.start != Start::Now
                    || claim.request.is_some()
            }
            Work::Apply(_, change) => change.call().is_some(),
            Work::Get(_) | Work::Now => false,
        }
    }

    /// Returns true if the work may be done twice.
    pub(super) fn is_repeatable(&self) -> bool {
        match self {
            Work::Claim(_) | Work::Get(_) | Work::Now => true,
            Work::Apply(_, change) => change.event().is_repeatable(),
        }
    }
}

impl Pending {
    /// Returns a job that was not tried yet.
    pub(super) fn new(work: Work, reply: oneshot::Sender<Result<JobResult, StoreError>>) -> Pending {
        let job = Job { work, reply };
        Pending { job, queued_at: Instant::now(), doubt: None, must_read: false, lock: None }
    }

    /// Marks the record as held by another transaction.
    pub(super) fn locked(mut self) -> Pending {
        self.lock = Some(LockWait { is_held: true, ..self.lock.unwrap_or_default() });
        self
    }

    /// Returns true if a caller waits for the job, or if its write is in doubt. A claim without a caller
    /// would be acquired in vain, and end as unknown; even in doubt it is dropped, and its sender takes it
    /// back.
    pub(super) fn is_wanted(&self) -> bool {
        let waited_for = !self.job.reply.is_closed();
        match self.job.work {
            Work::Claim(_) => waited_for,
            Work::Apply(..) | Work::Get(_) | Work::Now => waited_for || self.doubt.is_some(),
        }
    }

    pub(super) fn reply(self, result: Result<JobResult, StoreError>) {
        // A caller that has left needs no answer.
        let _ = self.job.reply.send(result);
    }

    /// Answers, or returns the job for a retry.
    pub(super) fn end(self, result: Result<Option<JobResult>, DbError>) -> Option<Pending> {
        match result {
            Ok(Some(done)) => {
                self.reply(Ok(done));
                None
            }
            Ok(None) => Some(self),
            Err(error) => self.failed(&error),
        }
    }

    /// Answers with the error, or returns the job for a retry.
    pub(super) fn failed(mut self, error: &DbError) -> Option<Pending> {
        match error {
            DbError::Conflict(_) => Some(self),
            // Nothing was written this time, because of the connection.
            DbError::Unconnected(_) | DbError::Tls(_) => Some(self),
            DbError::Lost(why) => {
                if !self.job.work.is_repeatable() {
                    self.reply(Err(StoreError::Ambiguous(why.clone())));
                    return None;
                }
                self.doubt.get_or_insert_with(|| Doubt { why: why.clone(), until: Instant::now() + PURSUIT });
                self.must_read = true;
                Some(self)
            }
            DbError::Busy(_) => Some(self.locked()),
            DbError::Refused { .. } | DbError::Unreadable { .. } => {
                self.give_up(error);
                None
            }
        }
    }

    /// Answers that nothing was written or, if the write is in doubt, that it may have been.
    pub(super) fn give_up(self, error: &DbError) {
        let error = match (&self.doubt, error.store_error()) {
            (None, StoreError::Ambiguous(why)) => StoreError::Unavailable(why),
            (None, error) => error,
            (Some(_), rejected @ StoreError::Rejected(_)) => rejected,
            (Some(first), error) => StoreError::Ambiguous(format!("{}; then: {error}", first.why)),
        };
        self.reply(Err(error));
    }
}

/// Fails the `concerned` jobs with the error. Returns the jobs to retry.
pub(super) fn settle_failed(
    pending: Vec<Pending>,
    error: &DbError,
    concerned: impl Fn(&Pending) -> bool,
) -> Vec<Pending> {
    pending
        .into_iter()
        .filter_map(|pending| if concerned(&pending) { pending.failed(error) } else { Some(pending) })
        .collect()
}

/// Answers the `hopeless` jobs with the error. Returns the others.
pub(super) fn give_up(
    pending: Vec<Pending>,
    error: &DbError,
    hopeless: impl Fn(&Pending) -> bool,
) -> Vec<Pending> {
    let (hopeless, rest): (Vec<Pending>, Vec<Pending>) = pending.into_iter().partition(|p| hopeless(p));
    hopeless.into_iter().for_each(|pending| pending.give_up(error));
    rest
}

#[cfg(test)]
mod tests {
    use semel_core::{AttemptToken, Fence};
    use semel_testkit::sample;

    use super::*;

    #[test]
    fn only_a_response_counts_towards_the_size_of_a_group() {
        let fence = Fence { epoch: 1, token: AttemptToken::from_bytes([1; 16]) };
        let id = RecordId::from_bytes([1; 32]);
        let result = sample::result(&sample::response(201, vec![7; 5000]));
        let bytes = result.response.bytes.len();
        assert!(bytes > 5000, "{bytes}");
        assert_eq!(Work::Apply(id, Change::complete(fence, result).into()).bytes(), bytes);
        for small in [Work::Apply(id, Change::renew(fence).into()), Work::Get(id), Work::Now] {
            assert_eq!(small.bytes(), 0);
        }
    }
}
