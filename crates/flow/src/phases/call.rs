//! The one call of an external phase.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use semel_core::OperationId;

use super::lease::Lease;
use crate::reply::Reply;

/// Whether the one who is called deduplicates on the phase's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deduplication {
    /// It does: a second call under the same key has no second effect, however much later it comes and even if the first
    /// is still on its way, and it is answered as the first was. Only then may a call be made again.
    ByKey,
    /// It does not, or nobody knows: a call of which nobody can say what came of it leaves the command `Unknown`.
    None,
}

/// The permission to call somebody once.
///
/// It is given by value, and [`permit`](Call::permit) consumes it: there is one key for one call.
#[derive(Debug)]
pub struct Call {
    key: String,
    operation_id: OperationId,
    lease: Lease,
    permitted: Arc<AtomicBool>,
}

impl Call {
    pub(super) fn new(operation_id: OperationId, phase: &str, lease: Lease) -> (Call, Permitted) {
        let permitted = Arc::new(AtomicBool::new(false));
        let key = format!("{operation_id}:{phase}");
        (Call { key, operation_id, lease, permitted: permitted.clone() }, Permitted(permitted))
    }

    /// Ask right before you send: whether the command is still this executor's own, by a clock that was started before
    /// it was claimed. If so, this is the key to send with it: `operationId:phase`, the same in every attempt.
    ///
    /// # Errors
    /// If it is not: send nothing, and return the error.
    pub fn permit(self) -> Result<String, CallFailed> {
        if !self.lease.is_held() {
            return Err(CallFailed::NotExecuted("the lease ended before anything was sent".to_owned()));
        }
        self.permitted.store(true, Ordering::SeqCst);
        Ok(self.key)
    }

    /// The command's id, which its clients see.
    pub fn operation_id(&self) -> OperationId {
        self.operation_id
    }
}

/// Whether a call was permitted.
pub(super) struct Permitted(Arc<AtomicBool>);

impl Permitted {
    pub(super) fn is_given(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// A call without an output.
#[derive(Debug)]
pub enum CallFailed {
    /// Proven that this call had no effect, such as by a refused connection: it is made again later.
    NotExecuted(String),
    /// Nobody can say whether it had one: it is made again if the one who is called deduplicates, and otherwise the
    /// command is `Unknown`.
    Unsure(String),
    /// Refused for good, without an effect, such as a declined card: the command ends with this reply, and retries get
    /// it. What its phases have done before stays.
    Final(Reply),
}

/// An error says nothing about the effect.
impl<E: std::error::Error> From<E> for CallFailed {
    fn from(error: E) -> CallFailed {
        CallFailed::Unsure(error.to_string())
    }
}
