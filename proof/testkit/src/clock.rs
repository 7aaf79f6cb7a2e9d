//! A clock that stands still until a test moves it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use semel_core::{Clock, Timestamp};

/// A clock that stands still until a test moves it. Clones show the same time.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// Returns a clock that shows a day in 2026.
    pub fn new() -> ManualClock {
        ManualClock(Arc::new(AtomicI64::new(1_790_000_000_000)))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let millis = i64::try_from(by.as_millis()).expect("tests do not move time that far");
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    fn default() -> ManualClock {
        ManualClock::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}
