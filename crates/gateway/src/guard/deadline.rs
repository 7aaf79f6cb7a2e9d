//! Timeout for one wait after another. The timer moves only if it would fire too late, so that a wait that
//! ends in time costs no work in the timer wheel.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Deadline of the current wait, if there is one.
#[derive(Debug, Default)]
pub(super) struct Deadline {
    due: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    /// Becomes ready once the current wait has lasted for `limit`. The first call starts the wait. A limit
    /// beyond the clock's range is none.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, limit: Duration) -> Poll<()> {
        self.due = self.due.or_else(|| Instant::now().checked_add(limit));
        let Some(due) = self.due else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if timer.deadline() > due {
            timer.as_mut().reset(due);
        }
        loop {
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= due {
                return Poll::Ready(());
            }
            timer.as_mut().reset(due);
        }
    }

    /// Ends the wait.
    pub(super) fn clear(&mut self) {
        self.due = None;
    }
}
