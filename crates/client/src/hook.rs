//! Observation of attempts: the hook of a client, and the events of `tracing`. Neither has a key, a path or a body.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use http::Method;

use crate::outcome::AttemptReason;

/// Function that a client calls before each attempt.
pub(crate) type AttemptHook = Arc<dyn Fn(&AttemptEvent) + Send + Sync>;

/// Beginning of an attempt.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AttemptEvent {
    /// The method.
    pub method: Method,
    /// The origin: scheme, host and port.
    pub origin: String,
    /// Number of the attempt: 1 for the first.
    pub number: u32,
    /// Wait before it.
    pub wait: Duration,
    /// End of the attempt before; `None` for the first.
    pub previous: Option<AttemptReason>,
}

impl AttemptEvent {
    /// Returns the reason of this attempt in logs and in the shared cases: `first`, or the end of the one before.
    pub fn reason(&self) -> &'static str {
        self.previous.map_or("first", AttemptReason::as_str)
    }
}

/// Tells of an attempt. A hook that panics must not lose the outcome of a command that may have run.
pub(crate) fn tell(hook: &AttemptHook, event: &AttemptEvent) {
    let wait = u64::try_from(event.wait.as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(number = event.number, wait_ms = wait, reason = event.reason(), "attempt");
    if catch_unwind(AssertUnwindSafe(|| hook(event))).is_err() {
        tracing::warn!("the attempt hook panicked");
    }
}
