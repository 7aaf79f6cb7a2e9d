//! An executor's lease, by the time since the machine was booted, read before it was asked for: by this clock, which goes on while
//! the machine is suspended, it ends no later than by the store's.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use semel_core::BootTime;

#[derive(Clone, Debug)]
pub(super) struct Lease(Arc<Mutex<Option<BootTime>>>);

impl Lease {
    /// A lease of this length, asked for at `asked`.
    pub(super) fn new(asked: BootTime, length: Duration) -> Lease {
        Lease(Arc::new(Mutex::new(Some(asked.plus(length)))))
    }

    /// It was renewed for this length by a request sent at `asked`.
    pub(super) fn renewed(&self, asked: BootTime, length: Duration) {
        let mut end = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *end = end.map(|end| end.max(asked.plus(length)));
    }

    /// It is over, whatever the clock says.
    pub(super) fn lost(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether it still holds.
    pub(super) fn is_held(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|end| BootTime::now() < end)
    }
}
