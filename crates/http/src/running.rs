//! The running commands of this process: their waiters, and a shutdown that loses none of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use semel_core::{Fence, Record, RecordId, Timestamp};
use tokio::sync::{broadcast, watch};

/// A record as its executor left it, and the store's time then.
pub(crate) type TimedRecord = Arc<(Record, Timestamp)>;

/// The signal that the executor is done, with the record if it knows it. Waiters get it once, in the order in which they came.
pub(crate) type Signal = broadcast::Receiver<Option<TimedRecord>>;

/// The running commands of this process.
pub(crate) struct Running {
    closing: watch::Sender<bool>,
    active: watch::Sender<usize>,
    executing: Mutex<HashMap<RecordId, Executing>>,
}

struct Executing {
    fence: Fence,
    signal: broadcast::Sender<Option<TimedRecord>>,
}

impl Running {
    pub(crate) fn new() -> Running {
        Running {
            closing: watch::Sender::new(false),
            active: watch::Sender::new(0),
            executing: Mutex::default(),
        }
    }

    fn executing(&self) -> MutexGuard<'_, HashMap<RecordId, Executing>> {
        self.executing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a command in, before it is claimed. `None` once the process is closing.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Active> {
        self.active.send_modify(|count| *count += 1);
        let active = Active(self.clone());
        // Counted before the check: a shutdown that begins now either is seen here or sees the count.
        (!self.is_closing()).then_some(active)
    }

    /// Counts in background work that a drain must wait for.
    pub(crate) fn hold(self: &Arc<Self>) -> Active {
        self.active.send_modify(|count| *count += 1);
        Active(self.clone())
    }

    /// Returns true once no command may begin any more.
    pub(crate) fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Registers an execution, whose end is signalled to duplicates in this process.
    pub(crate) fn execute(self: &Arc<Self>, id: RecordId, fence: Fence) -> Registered {
        let signal = broadcast::Sender::new(1);
        self.executing().insert(id, Executing { fence, signal });
        Registered { running: self.clone(), id, fence }
    }

    /// Returns the signal of this command's execution in this process; `None` if there is none.
    pub(crate) fn subscribe(&self, id: &RecordId) -> Option<Signal> {
        self.executing().get(id).map(|executing| executing.signal.subscribe())
    }

    /// Closes the process to new commands.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Waits until no command may begin any more.
    pub(crate) async fn closed(&self) {
        // The sender is in `self`, so waiting cannot fail.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// Waits until every command that was counted in is done.
    pub(crate) async fn drained(&self) {
        let mut active = self.active.subscribe();
        // The sender is in `self`, so waiting cannot fail.
        let _ = active.wait_for(|count| *count == 0).await;
    }

    /// Returns the commands that are still being executed, always in the same order.
    pub(crate) fn left(&self) -> Vec<(RecordId, Fence)> {
        let mut left: Vec<_> =
            self.executing().iter().map(|(id, executing)| (*id, executing.fence)).collect();
        left.sort_unstable_by_key(|(id, _)| *id);
        left
    }
}

/// One command that is counted in; counts it out when dropped.
pub(crate) struct Active(Arc<Running>);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.send_modify(|count| *count -= 1);
    }
}

/// One registered execution; tells its waiters when dropped.
pub(crate) struct Registered {
    running: Arc<Running>,
    id: RecordId,
    fence: Fence,
}

impl Registered {
    /// Signals the end of the execution, with the settled record if it is known.
    pub(crate) fn done(self, settled: Option<TimedRecord>) {
        self.tell(settled);
    }

    fn tell(&self, settled: Option<TimedRecord>) {
        let mut executing = self.running.executing();
        // A later execution of the same command may have taken the place.
        if executing.get(&self.id).is_some_and(|current| current.fence == self.fence)
            && let Some(done) = executing.remove(&self.id)
        {
            // There may be no waiter.
            let _ = done.signal.send(settled);
        }
    }
}

impl Drop for Registered {
    /// Signals the end after a panic, too: no waiter waits for an executor that is gone. After `done` it
    /// signals nothing.
    fn drop(&mut self) {
        self.tell(None);
    }
}
