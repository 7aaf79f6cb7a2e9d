//! A command, from the reading of its request to its claim. `http` makes one for each admitted request, `flow` one for each
//! item of a bulk request; both claim it with the methods here.

use std::sync::Arc;
use std::time::Duration;

use crate::fingerprint::Fingerprint;
use crate::ids::{AttemptToken, OperationId};
use crate::operation::OperationName;
use crate::policy::{KeepRequest, OnLeaseExpired, Policy};
use crate::record::Claim;
use crate::request::StoredRequest;
use crate::scope::{RecordId, Scope};
use crate::trace::TraceContext;
use crate::transition::{Attempt, ClaimFence, Reference, Start};

/// A command: the operation that an admitted request asks for.
#[derive(Clone, Debug)]
pub struct Command {
    /// The tenant, the caller, the operation and the key.
    pub scope: Scope,
    /// The digest of the request.
    pub fingerprint: Fingerprint,
    /// The business reference in the request, if the operation reads one.
    pub business_reference: Option<String>,
    /// Former names of the operation.
    pub former: Arc<[OperationName]>,
    /// The policy of the operation.
    pub policy: Arc<Policy>,
    /// The trace of the request, if it is traced.
    pub trace: Option<TraceContext>,
}

impl Command {
    /// Returns the ids of the records that the command may have: those of former names first, its own last.
    pub fn record_ids(&self) -> Vec<RecordId> {
        let under = |name: &OperationName| self.scope.record_id_under(name);
        self.former.iter().map(under).chain([self.scope.record_id()]).collect()
    }

    /// Returns the claim of an attempt that the claimer executes at once.
    pub fn claim(&self, operation_id: OperationId, token: AttemptToken) -> Claim {
        self.claim_as(operation_id, token, Start::Now, None)
    }

    /// Returns the claim of an attempt that the claimer executes at once, and whose request is kept as long as the policy's
    /// `keep_request` says.
    pub fn claim_keeping(
        &self,
        operation_id: OperationId,
        token: AttemptToken,
        request: impl FnOnce() -> StoredRequest,
    ) -> Claim {
        match self.policy.keep_request {
            KeepRequest::Off => self.claim(operation_id, token),
            KeepRequest::WhileUnknown => {
                self.claim_as(operation_id, token, Start::Now, Some(request())).kept_while_unknown()
            }
        }
    }

    /// Returns the claim of an attempt that a worker starts within `start_within`. Its request is kept until it is carried out,
    /// and after that as long as the policy's `keep_request` says.
    pub fn claim_for_later(
        &self,
        operation_id: OperationId,
        token: AttemptToken,
        request: StoredRequest,
    ) -> Claim {
        let start = Start::Within(self.policy.start_within);
        let claim = self.claim_as(operation_id, token, start, Some(request));
        match self.policy.keep_request {
            KeepRequest::Off => claim,
            KeepRequest::WhileUnknown => claim.kept_while_unknown(),
        }
    }

    /// Returns the claim of an attempt in phases, which the claimer executes at once. If the claimer dies, a worker resumes the
    /// attempt from `input`, within `resume_for`.
    pub fn claim_in_phases(
        &self,
        operation_id: OperationId,
        token: AttemptToken,
        input: StoredRequest,
        resume_for: Duration,
    ) -> Claim {
        let mut claim = self.claim_as(operation_id, token, Start::Resumable(resume_for), Some(input));
        claim.attempt.terms.on_lease_expired = OnLeaseExpired::Resume;
        claim
    }

    fn claim_as(
        &self,
        operation_id: OperationId,
        token: AttemptToken,
        start: Start,
        request: Option<StoredRequest>,
    ) -> Claim {
        Claim {
            scope: self.scope.clone(),
            operation_id,
            attempt: Attempt {
                fingerprint: self.fingerprint,
                token,
                terms: self.policy.terms(),
                start,
                reference: match self.business_reference {
                    Some(_) => Reference::Free,
                    None => Reference::None,
                },
                fence: ClaimFence::Open,
            },
            business_reference: self.business_reference.clone(),
            former: self.former.to_vec(),
            request,
            trace: self.trace,
        }
    }
}
