//! The way of a command's request to another process, as its executor sees it. A proxy tells when the request was sent whole.
//!
//! Invariant: only the answer to a request that was sent whole is read after the timeout. Whatever could still make a call
//! ends with the timeout, since the key may be free once the quarantine is over.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The way of a command's request to another process. Clones are about the same request.
#[derive(Clone, Default)]
pub struct Delivery(Arc<Mutex<DeliveryProgress>>);

#[derive(Default)]
struct DeliveryProgress {
    is_sent: bool,
    is_late: bool,
    when_late: Vec<Box<dyn FnOnce() + Send>>,
}

impl Delivery {
    fn progress(&self) -> MutexGuard<'_, DeliveryProgress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the request was sent whole, and that nothing but its response is read from now on.
    pub fn sent(&self) {
        self.progress().is_sent = true;
    }

    /// Runs `act` once the timeout is over and the response is still read: the client has its answer by then.
    pub fn when_late(&self, act: impl FnOnce() + Send + 'static) {
        self.progress().when_late.push(Box::new(act));
    }

    /// Returns true once the timeout is over and the response is still read.
    pub fn is_late(&self) -> bool {
        self.progress().is_late
    }

    /// Ends the wait of the client. False if the request was not sent whole: nothing may go on then.
    pub(crate) fn outlive(&self) -> bool {
        let acts = {
            let mut progress = self.progress();
            progress.is_late = progress.is_sent;
            if progress.is_late { std::mem::take(&mut progress.when_late) } else { Vec::new() }
        };
        acts.into_iter().for_each(|act| act());
        self.is_late()
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let progress = self.progress();
        f.debug_struct("Delivery")
            .field("is_sent", &progress.is_sent)
            .field("is_late", &progress.is_late)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn only_a_completely_sent_request_outlives_its_timeout() {
        let (delivery, told) = (Delivery::default(), Arc::new(AtomicUsize::new(0)));
        let counter = told.clone();
        delivery.when_late(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        assert!(!delivery.outlive() && !delivery.is_late());
        assert_eq!(told.load(Ordering::SeqCst), 0);
        delivery.clone().sent();
        assert!(!delivery.is_late(), "its time is not over");
        assert!(delivery.outlive() && delivery.is_late());
        assert!(delivery.outlive());
        assert_eq!(told.load(Ordering::SeqCst), 1, "it is told once");
    }
}
