//! Time of a client, which tests replace.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::options::milliseconds;
use crate::transport::ClientFuture;

/// Source of time, and of waits.
pub trait ClientClock: Send + Sync + 'static {
    /// Returns the time since 1970 in milliseconds, which can jump.
    fn wall(&self) -> u64;

    /// Returns a time that only passes.
    fn monotonic(&self) -> Duration;

    /// Waits between two attempts.
    fn sleep(&self, wait: Duration) -> ClientFuture<'_, ()>;

    /// Returns when the time of an attempt is over.
    fn expire(&self, timeout: Duration) -> ClientFuture<'_, ()>;
}

/// Clock of the machine, and the timer of tokio.
#[derive(Clone, Copy, Debug)]
pub struct MachineClock {
    started: Instant,
}

impl Default for MachineClock {
    fn default() -> MachineClock {
        MachineClock { started: Instant::now() }
    }
}

impl ClientClock for MachineClock {
    #[allow(clippy::disallowed_methods, reason = "the one place of the client that reads the wall clock")]
    fn wall(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, milliseconds)
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    fn sleep(&self, wait: Duration) -> ClientFuture<'_, ()> {
        Box::pin(tokio::time::sleep(wait))
    }

    fn expire(&self, timeout: Duration) -> ClientFuture<'_, ()> {
        Box::pin(tokio::time::sleep(timeout))
    }
}
