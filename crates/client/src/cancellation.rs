//! Cancellation: ends calls early, with an outcome. A future that is dropped ends without one.

use std::sync::Arc;

use tokio::sync::watch;

/// Signal from any thread or task that the caller no longer waits for its calls. Clones are one signal.
#[derive(Clone, Debug)]
pub struct Cancellation {
    sender: Arc<watch::Sender<bool>>,
}

impl Default for Cancellation {
    fn default() -> Cancellation {
        Cancellation { sender: Arc::new(watch::Sender::new(false)) }
    }
}

impl Cancellation {
    /// Makes a signal that is not given yet.
    pub fn new() -> Cancellation {
        Cancellation::default()
    }

    /// Cancels every call that has this signal.
    pub fn cancel(&self) {
        self.sender.send_replace(true);
    }

    /// Returns true once `cancel` was called.
    pub fn is_cancelled(&self) -> bool {
        *self.sender.borrow()
    }

    /// Returns once `cancel` was called.
    pub async fn cancelled(&self) {
        let mut receiver = self.sender.subscribe();
        // The sender is alive as long as this borrow of it: the wait cannot fail.
        let _ = receiver.wait_for(|is_cancelled| *is_cancelled).await;
    }
}
