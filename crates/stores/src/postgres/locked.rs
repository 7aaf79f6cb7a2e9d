//! Changes whose record another transaction holds. They wait here, outside of the lanes, so that a locked
//! record does not delay others; from time to time one of them is tried alone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel_core::RecordId;
use tokio::sync::mpsc::WeakSender;
use tokio::time::Instant;

use super::errors::DbError;
use super::job::{Pending, Work};

/// Shortest and longest pause before a locked record is tried again.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// Number of remembered locked records above which those without recent changes are dropped.
const MANY: usize = 1024;

/// A record that another transaction holds.
struct LockedRecord {
    next_try: Instant,
    pause: Duration,
}

/// Time at which a change of a record may be tried.
enum LockTurn {
    /// At once: the record is not known to be locked.
    Free,
    /// At once and alone: the record was locked.
    Now,
    /// Not yet.
    Later,
}

/// Waiting room for changes of locked records.
#[derive(Clone)]
pub(super) struct WaitingRoom {
    jobs: WeakSender<Pending>,
    held: Arc<Mutex<HashMap<RecordId, LockedRecord>>>,
    waiting: Arc<AtomicUsize>,
    /// Longest total wait of a change.
    patience: Duration,
    /// Maximum number of waiting changes.
    room: usize,
}

impl WaitingRoom {
    /// Returns a waiting room that returns changes to this queue.
    pub(super) fn new(jobs: WeakSender<Pending>, patience: Duration, room: usize) -> WaitingRoom {
        WaitingRoom { jobs, held: Arc::default(), waiting: Arc::default(), patience, room }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<RecordId, LockedRecord>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the change if it may be tried now. One change of a locked record is tried at a time, the
    /// others wait.
    pub(super) fn admit(&self, pending: Pending) -> Option<Pending> {
        let (Work::Claim(_) | Work::Apply(..)) = &pending.job.work else { return Some(pending) };
        let Some(id) = pending.job.work.record_id() else { return Some(pending) };
        match self.take_turn(&id) {
            LockTurn::Free => Some(pending),
            LockTurn::Now => Some(Pending { lock: Some(pending.lock.unwrap_or_default()), ..pending }),
            LockTurn::Later => {
                self.wait(pending);
                None
            }
        }
    }

    fn take_turn(&self, id: &RecordId) -> LockTurn {
        let now = Instant::now();
        match self.held().get_mut(id) {
            None => LockTurn::Free,
            Some(held) if now < held.next_try => LockTurn::Later,
            Some(held) => {
                held.next_try = now + held.pause;
                LockTurn::Now
            }
        }
    }

    /// Remembers that the record of this change is locked, and makes the change wait.
    pub(super) fn locked(&self, pending: Pending) {
        if let Some(id) = pending.job.work.record_id() {
            let now = Instant::now();
            let mut held = self.held();
            if held.len() >= MANY {
                held.retain(|_, held| now < held.next_try + LAST_PAUSE);
            }
            let held = held.entry(id).or_insert(LockedRecord { next_try: now, pause: FIRST_PAUSE / 2 });
            held.pause = (held.pause * 2).min(LAST_PAUSE);
            held.next_try = now + held.pause;
        }
        self.wait(pending);
    }

    /// Forgets that the record was locked: a try of a change met no lock.
    pub(super) fn free(&self, id: &RecordId) {
        self.held().remove(id);
    }

    /// Returns the change to the lanes when it may be tried, or answers it if it has waited long enough.
    fn wait(&self, pending: Pending) {
        let id = pending.job.work.record_id();
        let next = id.and_then(|id| self.held().get(&id).map(|held| held.next_try));
        let lock = pending.lock.unwrap_or_default();
        let next = next.unwrap_or_else(Instant::now);
        let too_many = self.waiting.fetch_add(1, Ordering::SeqCst) >= self.room;
        if too_many || next >= lock.since + self.patience {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            pending.give_up(&DbError::Busy("lock timeout: another transaction holds the record".to_owned()));
            return;
        }
        let room = self.clone();
        let pending = Pending { lock: Some(lock), ..pending };
        tokio::spawn(async move {
            tokio::time::sleep_until(next).await;
            room.waiting.fetch_sub(1, Ordering::SeqCst);
            let closed = match room.jobs.upgrade() {
                Some(jobs) => jobs
                    .send(Pending { queued_at: Instant::now(), ..pending })
                    .await
                    .err()
                    .map(|unsent| unsent.0),
                None => Some(pending),
            };
            if let Some(pending) = closed {
                pending.give_up(&DbError::Busy("the store is closed".to_owned()));
            }
        });
    }
}
