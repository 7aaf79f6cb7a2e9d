//! What a handler knows about the execution it is part of, and how it says that nothing ran.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use semel_core::{Epoch, OperationId, OperationName, Principal, RecordId, time};
use tokio::time::Instant;

use crate::delivery::Delivery;

/// The moment at which a store was asked, by the clock of this process's timers, which stands still while the machine is suspended;
/// and how long that had been so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) at: Instant,
    suspended: Duration,
}

impl Asked {
    pub(crate) fn now() -> Asked {
        Asked { at: Instant::now(), suspended: time::suspended() }
    }

    fn plus(self, length: Duration) -> Asked {
        Asked { at: self.at + length, ..self }
    }

    /// Whether this moment is still to come, also if the machine was suspended for so long in all.
    fn is_ahead(self, suspended: Duration) -> bool {
        let suspended = suspended.saturating_sub(self.suspended);
        // The two clocks behind it are not read at one moment.
        let counted = if suspended < SHORTEST_SUSPENSION { Duration::ZERO } else { suspended };
        Instant::now() + counted < self.at
    }
}

/// Less than this is how long it takes to read two clocks.
const SHORTEST_SUSPENSION: Duration = Duration::from_millis(100);

/// An executor's lease, on a clock that was read before the claim was sent and that nobody sets: by it the lease ends no later than
/// by the store's.
#[derive(Clone, Debug)]
pub(crate) struct Lease(Arc<Mutex<Option<Asked>>>);

impl Lease {
    /// A lease of this length, asked for at `asked`.
    pub(crate) fn new(asked: Asked, length: Duration) -> Lease {
        Lease(Arc::new(Mutex::new(Some(asked.plus(length)))))
    }

    /// It was renewed for this length by a request sent at `asked`.
    pub(crate) fn renewed(&self, asked: Asked, length: Duration) {
        let mut end = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let renewed = asked.plus(length);
        *end = end.map(|end| if end.at < renewed.at { renewed } else { end });
    }

    /// It is over, whatever the clock says: the store fenced a renewal.
    pub(crate) fn lost(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether it still holds.
    pub(crate) fn is_held(&self) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some_and(|end| end.is_ahead(time::suspended()))
    }
}

/// The execution that a handler is part of. It is in the request's extensions.
#[derive(Clone, Debug)]
pub struct Execution {
    pub(crate) record_id: RecordId,
    pub(crate) operation_id: OperationId,
    pub(crate) operation: OperationName,
    pub(crate) label: Arc<str>,
    pub(crate) principal: Principal,
    pub(crate) attempt: Epoch,
    pub(crate) lease: Lease,
    pub(crate) delivery: Delivery,
}

impl Execution {
    /// Names the command for good, the same in every attempt.
    pub fn operation_id(&self) -> OperationId {
        self.operation_id
    }

    /// The digest of its scope: the same for the same key of the same caller, also when its record was forgotten and is made
    /// anew under another operation id.
    pub fn record_id(&self) -> RecordId {
        self.record_id
    }

    /// What is asked for.
    pub fn operation(&self) -> &OperationName {
        &self.operation
    }

    /// The operation's name for metrics and logs: `unmatched` if no rule gave it one.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Who is asking.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Which attempt this is, from 1. There is a second one only if the first provably did nothing.
    pub fn attempt(&self) -> Epoch {
        self.attempt
    }

    /// The key to send to a provider for one step of this command, the same in every attempt: a provider that
    /// deduplicates on it carries the step out once.
    pub fn downstream_key(&self, step: &str) -> String {
        format!("{}:{step}", self.operation_id)
    }

    /// The way of its request to another process. For a proxy, which says when the request was sent whole; a handler that
    /// carries the command out itself leaves it alone, and ends with its timeout.
    pub fn delivery(&self) -> &Delivery {
        &self.delivery
    }

    /// Whether this executor still holds the command. Ask right before an effect: if it is `Err`, do nothing
    /// and return the error (or a response with [`Outcome::NotExecuted`](semel_core::Outcome::NotExecuted)).
    pub fn check_lease(&self) -> Result<(), NotExecuted> {
        if self.lease.is_held() {
            Ok(())
        } else {
            Err(NotExecuted("the lease ended before the effect".into()))
        }
    }
}

/// A service's error that proves that nothing ran: the key may be used again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not executed: {0}")]
pub struct NotExecuted(pub String);

/// Says, in the extensions of a response, that only the end of a connection ended its body, as HTTP/1 allows where there is
/// neither a length nor chunks. A sender that died looks alike, so the body is passed on and not stored.
#[derive(Clone, Copy, Debug)]
pub struct CloseDelimited;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_while_the_machine_is_suspended() {
        let (length, asked) = (Duration::from_secs(60), Asked::now());
        let end = asked.plus(length);
        assert!(end.is_ahead(asked.suspended));
        assert!(end.is_ahead(asked.suspended + length / 2));
        assert!(!end.is_ahead(asked.suspended + length), "it was suspended for longer than the lease");
        assert!(!asked.is_ahead(asked.suspended));
        let lease = Lease::new(asked, length);
        assert!(lease.is_held());
        lease.lost();
        lease.renewed(Asked::now(), length);
        assert!(!lease.is_held());
    }
}
