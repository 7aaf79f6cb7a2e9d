//! A limit on one wait after another. The timer is moved only when it would fire too late, so that a wait that
//! ends in time costs no work in the timer wheel.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// The deadline of the current wait, if there is one.
#[derive(Debug, Default)]
pub(super) struct Deadline {
    due: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    /// Ready once the current wait has lasted this long. The first call starts it. A limit beyond what the clock
    /// can count is none.
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

    /// The wait is over.
    pub(super) fn clear(&mut self) {
        self.due = None;
    }
}
