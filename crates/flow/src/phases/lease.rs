//! An executor's lease, measured by the time since the machine booted, read before the lease was requested. This clock
//! also runs while the machine is suspended, so the lease ends here no later than in the store.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use semel_core::BootTime;

#[derive(Clone, Debug)]
pub(super) struct PhaseLease(Arc<Mutex<Option<BootTime>>>);

impl PhaseLease {
    /// Creates a lease of this length, requested at `asked`.
    pub(super) fn new(asked: BootTime, length: Duration) -> PhaseLease {
        PhaseLease(Arc::new(Mutex::new(Some(asked.plus(length)))))
    }

    /// Renews the lease for this length, by a request sent at `asked`.
    pub(super) fn renewed(&self, asked: BootTime, length: Duration) {
        let mut end = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *end = end.map(|end| end.max(asked.plus(length)));
    }

    /// Ends the lease, whatever the clock says.
    pub(super) fn lost(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns true if the lease still holds.
    pub(super) fn is_held(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|end| BootTime::now() < end)
    }
}
