//! Commands that are carried out in one transaction of the service's own database, together with their record: what
//! is asked for, and what became of it. Data only: `flow` carries them out, `http` answers them.

use std::sync::Arc;
use std::time::Duration;

use crate::fingerprint::Fingerprint;
use crate::ids::{AttemptToken, OperationId};
use crate::operation::OperationName;
use crate::policy::{OnLeaseExpired, Policy};
use crate::problem::Problem;
use crate::record::{Claim, Holder, Record};
use crate::request::StoredRequest;
use crate::response::Response;
use crate::scope::{RecordId, Scope};
use crate::time::Timestamp;
use crate::transition::{Attempt, Decision, Reference, Start};

/// What a request asks for, once it has been read and let in.
#[derive(Clone, Debug)]
pub struct Command {
    /// Whose command it is, which, and under which key.
    pub scope: Scope,
    /// What exactly is asked for.
    pub fingerprint: Fingerprint,
    /// The business reference it carries, where the operation asks for one.
    pub business_reference: Option<String>,
    /// Former names of its operation.
    pub former: Arc<[OperationName]>,
    /// What its operation wants.
    pub policy: Arc<Policy>,
}

impl Command {
    /// The ids of the records that it may have, those of former names first, its own last.
    pub fn record_ids(&self) -> Vec<RecordId> {
        let under =
            |name: &OperationName| Scope { operation: name.clone(), ..self.scope.clone() }.record_id();
        self.former.iter().map(under).chain([self.scope.record_id()]).collect()
    }

    /// The claim of one attempt at it, which the claimer carries out at once.
    pub fn claim(&self, operation_id: OperationId, token: AttemptToken) -> Claim {
        self.claim_as(operation_id, token, Start::Now, None)
    }

    /// The claim of one attempt at it that a worker carries out, within `start_within`.
    pub fn claim_for_later(
        &self,
        operation_id: OperationId,
        token: AttemptToken,
        request: StoredRequest,
    ) -> Claim {
        self.claim_as(operation_id, token, Start::Within(self.policy.start_within), Some(request))
    }

    /// The claim of one attempt at it that the claimer carries out at once, in phases, and that a worker resumes from its
    /// input if the claimer does not live, as long as `resume_for` says.
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
            },
            business_reference: self.business_reference.clone(),
            former: self.former.to_vec(),
            request,
        }
    }
}

/// What became of a command that was to be carried out in one transaction.
#[derive(Clone, Debug)]
pub enum Transacted {
    /// It ran, and its effect, its record and its response are committed together.
    Executed {
        /// The record.
        record: Box<Record>,
        /// The response, as the one who asked gets it.
        response: Box<Response>,
        /// The store's time.
        now: Timestamp,
    },
    /// It ran, and is committed, and what it comes to is left to a message that is committed with it.
    Deferred {
        /// The record, which is open.
        record: Box<Record>,
        /// What the one who asked is told for now.
        response: Box<Response>,
    },
    /// It did not run: the record says why, or somebody else has it in hand.
    Decided {
        /// What the protocol decided.
        decision: Decision,
        /// The record, if there is one that can be seen.
        record: Option<Box<Record>>,
        /// Who holds its business reference, if the decision is `Duplicate`.
        holder: Option<Box<Holder>>,
        /// The store's time, if it was asked.
        now: Option<Timestamp>,
    },
    /// It ran and took itself back: nothing happened, and the same key may be sent again.
    RolledBack {
        /// What the one who asked is told.
        response: Box<Response>,
        /// The problem that the response tells, where the work had no answer of its own: the layer writes it in the profile of
        /// the operation.
        problem: Option<Box<Problem>>,
    },
    /// The database could not be used: nothing happened.
    Unavailable,
    /// It was to be committed, and nobody could find out whether it was; or its session was lost, and nobody could find out
    /// whether others have carried it out since. Sending the same request again tells.
    InDoubt,
}
