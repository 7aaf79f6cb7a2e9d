//! The one call of an external phase.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use semel_core::OperationId;

use super::lease::PhaseLease;
use crate::reply::Reply;

/// Guarantee of the called service about the phase's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deduplication {
    /// The called service deduplicates on the key: a second call under the same key has no second effect, however late
    /// it comes and even if the first is still in flight, and it gets the first call's answer. Only then may a call be
    /// repeated.
    ByKey,
    /// The called service does not deduplicate, or it is not known: a call without a certain outcome leaves the command
    /// `Unknown`.
    None,
}

/// Permission for one call to another service.
///
/// It is passed by value, and [`permit`](Call::permit) consumes it: one key for one call.
#[derive(Debug)]
pub struct Call {
    key: String,
    operation_id: OperationId,
    lease: PhaseLease,
    permitted: Arc<AtomicBool>,
}

impl Call {
    pub(super) fn new(operation_id: OperationId, phase: &str, lease: PhaseLease) -> (Call, Permitted) {
        let permitted = Arc::new(AtomicBool::new(false));
        let key = format!("{operation_id}:{phase}");
        (Call { key, operation_id, lease, permitted: permitted.clone() }, Permitted(permitted))
    }

    /// Checks right before sending that this executor still holds the lease, by a clock that started before the claim.
    /// Returns the key to send with the call: `operationId:phase`, the same in every attempt.
    ///
    /// # Errors
    /// If the lease has ended: send nothing, and return the error.
    pub fn permit(self) -> Result<String, CallFailed> {
        if !self.lease.is_held() {
            return Err(CallFailed::NotExecuted("the lease ended before anything was sent".to_owned()));
        }
        self.permitted.store(true, Ordering::SeqCst);
        Ok(self.key)
    }

    /// Returns the command's id, which its clients see.
    pub fn operation_id(&self) -> OperationId {
        self.operation_id
    }
}

/// Flag that is set once the call was permitted.
pub(super) struct Permitted(Arc<AtomicBool>);

impl Permitted {
    pub(super) fn is_given(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Error of a call that has no output.
#[derive(Debug)]
pub enum CallFailed {
    /// The call provably had no effect, such as after a refused connection: it is retried later.
    NotExecuted(String),
    /// The call may have had an effect: it is retried if the called service deduplicates; otherwise the command is
    /// `Unknown`.
    Unsure(String),
    /// The call was refused permanently, without an effect, such as a declined card: the command ends with this reply,
    /// and retries get it. Earlier phases stay committed.
    Final(Reply),
}

/// A plain error says nothing about the effect.
impl<E: std::error::Error> From<E> for CallFailed {
    fn from(error: E) -> CallFailed {
        CallFailed::Unsure(error.to_string())
    }
}
