//! The address of a stored response whose body is not stored. `fetch.rs` fetches the body.

use std::sync::Arc;

use semel_core::policy::{Policy, StoreResponse};
use semel_core::{OperationId, Principal, Record, Response};

/// The mark, in the extensions of a GET, of a fetch that answers a retry, with the caller it is sent for.
#[derive(Clone, Debug)]
pub struct Refetch {
    pub(crate) operation_id: OperationId,
    pub(crate) principal: Principal,
}

impl Refetch {
    /// Returns the id of the command whose result is fetched.
    pub fn operation_id(&self) -> OperationId {
        self.operation_id
    }

    /// Returns the caller that the result is fetched for.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }
}

/// The address of the body of a replay.
pub(crate) struct Elsewhere {
    pub(crate) address: String,
    pub(crate) refetch: Refetch,
    pub(crate) policy: Arc<Policy>,
}

impl Elsewhere {
    /// Returns the address of the body of a stored response, if its operation stores references.
    pub(crate) fn of(record: &Record, stored: &Response, policy: &Policy) -> Option<Elsewhere> {
        let wanted = policy.store_response == StoreResponse::Reference && stored.status.is_success();
        let address = stored.resource().filter(|_| wanted && stored.body.is_none())?.to_owned();
        let refetch = Refetch { operation_id: record.operation_id, principal: record.principal.clone() };
        Some(Elsewhere { address, refetch, policy: Arc::new(policy.clone()) })
    }
}
