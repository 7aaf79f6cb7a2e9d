//! Interrupts statements of work that holds the file for too long.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::InterruptHandle;
use tokio::task::JoinHandle;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Bell {
    Set,
    Rang,
    Stopped,
}

/// An armed timer; once it is stopped or dropped, it interrupts nothing.
pub(super) struct Alarm {
    set: Instant,
    after: Duration,
    bell: Arc<Mutex<Bell>>,
    waiting: JoinHandle<()>,
}

impl Alarm {
    /// Arms the timer; must be called from within a runtime.
    pub(super) fn set(interrupt: InterruptHandle, after: Duration) -> Alarm {
        let bell = Arc::new(Mutex::new(Bell::Set));
        let ringing = bell.clone();
        let waiting = tokio::runtime::Handle::current().spawn(async move {
            tokio::time::sleep(after).await;
            // Held during the interrupt, so that it cannot hit the next command's statement.
            let mut bell = ringing.lock().unwrap_or_else(PoisonError::into_inner);
            if *bell == Bell::Set {
                *bell = Bell::Rang;
                interrupt.interrupt();
            }
        });
        Alarm { set: Instant::now(), after, bell, waiting }
    }

    /// Stops the timer. Returns true if the work ended in time.
    pub(super) fn stop(self) -> bool {
        let mut bell = self.bell.lock().unwrap_or_else(PoisonError::into_inner);
        let is_silent = std::mem::replace(&mut *bell, Bell::Stopped) == Bell::Set;
        is_silent && self.set.elapsed() < self.after
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        *self.bell.lock().unwrap_or_else(PoisonError::into_inner) = Bell::Stopped;
        self.waiting.abort();
    }
}
