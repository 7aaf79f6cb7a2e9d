//! Commits that the database confirmed to the probe.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use semel_chaos::scribe::now;

/// Confirmed commits, on any node.
#[derive(Default)]
pub(crate) struct Commits {
    next: AtomicI64,
    confirmed: Mutex<Vec<Commit>>,
}

/// Confirmed commit: its time, and its number in the table.
#[derive(Clone, Copy)]
pub(crate) struct Commit {
    pub(crate) at: i64,
    pub(crate) number: i64,
}

impl Commits {
    /// Returns the number of the next commit.
    pub(crate) fn next_number(&self) -> i64 {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    /// Notes a confirmed commit.
    pub(crate) fn note(&self, number: i64) {
        // The time is taken under the lock, so that times are in order.
        let mut confirmed = self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
        confirmed.push(Commit { at: now(), number });
    }

    /// Returns all, in order.
    pub(crate) fn confirmed(&self) -> Vec<Commit> {
        self.confirmed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the times of all commits, in order.
    pub(crate) fn times(&self) -> Vec<i64> {
        self.confirmed().iter().map(|commit| commit.at).collect()
    }
}
