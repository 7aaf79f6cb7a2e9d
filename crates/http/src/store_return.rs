//! The signal that the store takes changes again. `shared.rs` gives it, and writes in the background wait for it.
//!
//! Invariant: however many writes wait, at most one in `TURN` tries the store for all of them, beside the tries of their own
//! pauses. The first that succeeds wakes the others.

use std::time::Duration;

use tokio::sync::{Mutex, Notify, futures::Notified};

/// The time between two writes that try the store for all that wait.
const TURN: Duration = Duration::from_millis(500);

/// The signal that the store takes changes again.
#[derive(Default)]
pub(crate) struct StoreReturn {
    written: Notify,
    turns: Mutex<()>,
}

impl StoreReturn {
    /// Wakes all waiting writes: the store took a change.
    pub(crate) fn took(&self) {
        self.written.notify_waiters();
    }

    /// Returns the signal of the next change that the store takes, after a call of `enable`.
    pub(crate) fn written(&self) -> Notified<'_> {
        self.written.notified()
    }

    /// Waits for a turn to try the store, in the order in which the writes came.
    pub(crate) async fn turn(&self) {
        let _turn = self.turns.lock().await;
        tokio::time::sleep(TURN).await;
    }
}
