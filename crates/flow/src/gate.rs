//! In-process queue of duplicate requests: only the first one of each key takes a database connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use semel_core::RecordId;
use tokio::sync::OwnedMutexGuard;

type GateLine = Arc<tokio::sync::Mutex<()>>;

/// One queue for each command that runs in this process.
#[derive(Clone, Default)]
pub(crate) struct CommandGate(Arc<Mutex<HashMap<RecordId, GateLine>>>);

/// Permission to run as the head of a queue; dropping it admits the next request.
pub(crate) struct GateTurn {
    gate: CommandGate,
    id: RecordId,
    held: Option<OwnedMutexGuard<()>>,
}

impl CommandGate {
    fn lines(&self) -> MutexGuard<'_, HashMap<RecordId, GateLine>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for its turn, at most for `wait`. Returns `None` on timeout.
    pub(crate) async fn enter(&self, id: RecordId, wait: Duration) -> Option<GateTurn> {
        let line = self.lines().entry(id).or_default().clone();
        let held = tokio::time::timeout(wait, line.lock_owned()).await.ok();
        let turn = GateTurn { gate: self.clone(), id, held };
        turn.held.is_some().then_some(turn)
    }
}

impl Drop for GateTurn {
    /// Removes the queue if no other request waits in it.
    fn drop(&mut self) {
        self.held = None;
        let mut lines = self.gate.lines();
        if lines.get(&self.id).is_some_and(|line| Arc::strong_count(line) == 1) {
            lines.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn gate_admits_one_at_a_time_and_keeps_no_empty_queue() {
        let gate = CommandGate::default();
        let id = RecordId::from_bytes([7; 32]);
        let first = gate.enter(id, Duration::from_secs(9)).await.expect("nobody is before it");
        assert!(gate.enter(id, Duration::from_millis(1)).await.is_none(), "the first has not gone yet");
        assert!(gate.enter(RecordId::from_bytes([8; 32]), Duration::ZERO).await.is_some(), "another line");
        let waiting = tokio::spawn({
            let gate = gate.clone();
            async move { gate.enter(id, Duration::from_secs(9)).await.is_some() }
        });
        tokio::task::yield_now().await;
        drop(first);
        assert!(waiting.await.expect("it does not panic"));
        assert!(gate.lines().is_empty());
    }
}
