//! The execution of a command, as its handler sees it, and the handler's error that proves that nothing ran.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use semel_core::{Epoch, OperationId, OperationName, Principal, RecordId, time};
use tokio::time::Instant;

use crate::delivery::Delivery;

/// The moment at which a store was asked, by the clock of this process's timers, which stands still while the machine is suspended;
/// with the time that it had been suspended by then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedAt {
    pub(crate) at: Instant,
    suspended: Duration,
}

impl AskedAt {
    pub(crate) fn now() -> AskedAt {
        AskedAt { at: Instant::now(), suspended: time::suspended() }
    }

    fn plus(self, length: Duration) -> AskedAt {
        AskedAt { at: self.at + length, ..self }
    }

    /// Returns true if this moment is still to come, after the machine was suspended for this time in all.
    fn is_ahead(self, suspended: Duration) -> bool {
        let suspended = suspended.saturating_sub(self.suspended);
        // The two clocks are not read at the same moment.
        let counted = if suspended < SHORTEST_SUSPENSION { Duration::ZERO } else { suspended };
        Instant::now() + counted < self.at
    }
}

/// The shortest suspension that counts: less may be the time between the readings of two clocks.
const SHORTEST_SUSPENSION: Duration = Duration::from_millis(100);

/// An executor's lease, on a monotonic clock that was read before the claim was sent: on it the lease ends no later than on the
/// store's clock.
#[derive(Clone, Debug)]
pub(crate) struct Lease(Arc<Mutex<Option<AskedAt>>>);

impl Lease {
    /// Makes a lease of this length, asked for at `asked`.
    pub(crate) fn new(asked: AskedAt, length: Duration) -> Lease {
        Lease(Arc::new(Mutex::new(Some(asked.plus(length)))))
    }

    /// Renews the lease for this length, from the moment at which the renewal was sent.
    pub(crate) fn renewed(&self, asked: AskedAt, length: Duration) {
        let mut end = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let renewed = asked.plus(length);
        *end = end.map(|end| if end.at < renewed.at { renewed } else { end });
    }

    /// Ends the lease: the store fenced a renewal.
    pub(crate) fn lost(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns true while the lease holds.
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
    /// Returns the id of the command, the same in every attempt.
    pub fn operation_id(&self) -> OperationId {
        self.operation_id
    }

    /// Returns the digest of the scope: the same for the same key of the same caller, also if the record was forgotten and is made
    /// anew under another operation id.
    pub fn record_id(&self) -> RecordId {
        self.record_id
    }

    /// Returns the operation of the command.
    pub fn operation(&self) -> &OperationName {
        &self.operation
    }

    /// Returns the operation's name for metrics and logs: `unmatched` if no rule names it.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the tenant and the caller of the command.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Returns the number of the attempt, from 1. There is a second one only if the first provably did nothing.
    pub fn attempt(&self) -> Epoch {
        self.attempt
    }

    /// Returns the key to send to a provider for one step of this command, the same in every attempt: a provider that
    /// deduplicates on it executes the step once.
    pub fn downstream_key(&self, step: &str) -> String {
        format!("{}:{step}", self.operation_id)
    }

    /// Returns the delivery of the request to another process, for a proxy, which records when the request was sent whole. A
    /// handler that executes the command itself does not use it, and ends with its timeout.
    pub fn delivery(&self) -> &Delivery {
        &self.delivery
    }

    /// Checks that this executor still holds the command. Call it right before an effect: on `Err`, do nothing and return the
    /// error (or a response with [`Outcome::NotExecuted`](semel_core::Outcome::NotExecuted)).
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

/// The mark, in the extensions of a response, of a body that only the end of its connection ended, as HTTP/1 allows without a
/// length and without chunks. A sender that died looks the same, so the body is passed on and not stored.
#[derive(Clone, Copy, Debug)]
pub struct CloseDelimited;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_while_the_machine_is_suspended() {
        let (length, asked) = (Duration::from_secs(60), AskedAt::now());
        let end = asked.plus(length);
        assert!(end.is_ahead(asked.suspended));
        assert!(end.is_ahead(asked.suspended + length / 2));
        assert!(!end.is_ahead(asked.suspended + length), "it was suspended for longer than the lease");
        assert!(!asked.is_ahead(asked.suspended));
        let lease = Lease::new(asked, length);
        assert!(lease.is_held());
        lease.lost();
        lease.renewed(AskedAt::now(), length);
        assert!(!lease.is_held());
    }
}
