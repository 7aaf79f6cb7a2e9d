//! A job on its way over a lane: what is to be done, who waits for it, and what is known of its write.

use std::time::Duration;

use semel_core::{Change, Claim, RecordId, Snapshot, Start, StoreAnswer, StoreError};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::errors::DbError;

/// How long a change that is in doubt is pursued, from when its answer was lost.
const PURSUIT: Duration = Duration::from_secs(4);

/// Something to be done, and who waits for it.
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) reply: oneshot::Sender<Result<JobResult, StoreError>>,
}

/// What is to be done.
pub(super) enum Work {
    Claim(Box<Claim>),
    Apply(RecordId, Box<Change>),
    Get(RecordId),
    Now,
}

/// What came of it.
pub(super) enum JobResult {
    Answer(Box<StoreAnswer>),
    Snapshot(Box<Snapshot>),
}

/// A job on its way.
pub(super) struct Pending {
    pub(super) job: Job,
    /// Nobody knows whether its write was made.
    pub(super) doubt: Option<Doubt>,
    /// There is a record to be read before anything else: it lost the race for a first claim, say.
    pub(super) must_read: bool,
    /// Another transaction was found to hold its record. It travels alone from then on.
    pub(super) lock: Option<LockWait>,
}

/// A job whose record another transaction holds.
#[derive(Clone, Copy)]
pub(super) struct LockWait {
    /// When the lock was first met.
    pub(super) since: Instant,
    /// The last try has met it again.
    pub(super) is_held: bool,
}

impl Default for LockWait {
    fn default() -> LockWait {
        LockWait { since: Instant::now(), is_held: false }
    }
}

/// Why nobody knows whether a write was made, and how long that is pursued.
pub(super) struct Doubt {
    pub(super) why: String,
    pub(super) until: Instant,
}

impl Work {
    /// The record it is about.
    pub(super) fn record_id(&self) -> Option<RecordId> {
        match self {
            Work::Claim(claim) => Some(claim.scope.record_id()),
            Work::Apply(id, _) | Work::Get(id) => Some(*id),
            Work::Now => None,
        }
    }

    /// How much of a response it carries.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Work::Apply(_, change) => change.result().map_or(0, |result| result.response.bytes.len()),
            Work::Claim(_) | Work::Get(_) | Work::Now => 0,
        }
    }

    /// Whether it takes several statements that depend on one another.
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

    /// Whether doing it twice is as good as once.
    pub(super) fn is_repeatable(&self) -> bool {
        match self {
            Work::Claim(_) | Work::Get(_) | Work::Now => true,
            Work::Apply(_, change) => change.event().is_repeatable(),
        }
    }
}

impl Pending {
    /// A job that was not tried yet.
    pub(super) fn new(work: Work, reply: oneshot::Sender<Result<JobResult, StoreError>>) -> Pending {
        Pending { job: Job { work, reply }, doubt: None, must_read: false, lock: None }
    }

    /// Notes that another transaction holds the record.
    pub(super) fn locked(mut self) -> Pending {
        self.lock = Some(LockWait { is_held: true, ..self.lock.unwrap_or_default() });
        self
    }

    /// Whether somebody waits for it, or nobody can know what becomes of it otherwise. A claim that nobody waits for
    /// would be acquired for nobody, and end as an unknown, even if it is in doubt: who sent it takes it back.
    pub(super) fn is_wanted(&self) -> bool {
        let waited_for = !self.job.reply.is_closed();
        match self.job.work {
            Work::Claim(_) => waited_for,
            Work::Apply(..) | Work::Get(_) | Work::Now => waited_for || self.doubt.is_some(),
        }
    }

    pub(super) fn reply(self, result: Result<JobResult, StoreError>) {
        // Who went away needs no answer.
        let _ = self.job.reply.send(result);
    }

    /// Answers, or gives itself back to be tried again.
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

    /// Answers with the error, or gives itself back to be tried again.
    pub(super) fn failed(mut self, error: &DbError) -> Option<Pending> {
        match error {
            DbError::Conflict(_) => Some(self),
            // Nothing was written this time, and the connection is to blame.
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

    /// Answers with what is known: nothing was written, unless it is in doubt.
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

/// Those that `concerned` says fail with the error; gives back those to be tried again.
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

/// Those that `hopeless` says are answered with the error; gives back the others.
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
