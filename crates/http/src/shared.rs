//! The state that all clones of a layer share, and that every stage of a request gets: the store, the settings, the memory and
//! the counters of this process.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::uri::Authority;
use semel_core::{
    Change, Claim, Clock, Decision, Evidence, Fingerprint, FingerprintInput, Formats, Ids, OperationId,
    OperationName, Principal, Problem, Record, RecordId, Store, StoreAnswer, StoreError, Tracer,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::answer::problems;
use crate::ask::Ask;
use crate::body::BodyRoom;
use crate::cache::ReplayCache;
use crate::deadline;
use crate::holds::{HoldBoard, HoldState};
use crate::identity::{Authorize, Identify};
use crate::observe::{self, Observer, steps};
use crate::operations::{CommandRule, Operations};
use crate::quotas::Quotas;
use crate::running::Running;
use crate::shares::Shares;
use crate::store_return::StoreReturn;

/// Removes from a request's header the fields that must not be stored.
pub(crate) type BeforeKeeping = dyn Fn(&mut HeaderMap) + Send + Sync;

/// Computes the fingerprint of a request, for a store with these formats.
pub(crate) type ComputeFingerprint = fn(&FingerprintInput<'_>, Formats) -> Fingerprint;

/// The state that all clones of a layer share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) identify: Box<Identify>,
    pub(crate) authorize: Box<Authorize>,
    pub(crate) before_keeping: Box<BeforeKeeping>,
    /// Wakes a worker of this process after a claim for one.
    pub(crate) wake: Notify,
    /// Asks the service for the result of a command.
    pub(crate) ask: Option<Box<Ask>>,
    /// Names of the service in its addresses, beside the host of a request.
    pub(crate) origins: Vec<Authority>,
    pub(crate) operations: Operations,
    pub(crate) fingerprint: ComputeFingerprint,
    pub(crate) cache: ReplayCache,
    pub(crate) running: Arc<Running>,
    /// The signal that the store takes changes again.
    pub(crate) back: StoreReturn,
    /// Places for answers that are read after their timeout.
    pub(crate) listeners: Shares,
    pub(crate) evidence: Option<Arc<dyn Evidence>>,
    /// The memory for the bodies of commands.
    pub(crate) room: BodyRoom,
    /// The memory for answers that are read to be stored.
    pub(crate) answers: BodyRoom,
    pub(crate) clock: Box<dyn Clock>,
    pub(crate) ids: Box<dyn Ids>,
    /// The timeout of one store call.
    pub(crate) store_timeout: Duration,
    /// The timeout for the body of a request to arrive.
    pub(crate) body_timeout: Duration,
    pub(crate) observer: Observer,
    /// Takes the spans of commands.
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
    /// The targets that operators hold.
    pub(crate) holds: Option<Arc<HoldBoard>>,
    pub(crate) quotas: Option<Arc<Quotas>>,
}

impl Shared {
    /// Takes one look-up of the principal's quota.
    pub(crate) async fn look_up(&self, principal: &Principal) -> Result<(), Problem> {
        let Some(quotas) = &self.quotas else { return Ok(()) };
        match quotas.look_up(principal).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(used_up)) => {
                self.observer.quota_exceeded(principal, used_up.whose, used_up.exceeded.limit);
                Err(used_up.problem())
            }
            Err(error) => {
                tracing::warn!(%error, "a quota could not be checked: nothing is looked up");
                Err(problems::store_unavailable_problem())
            }
        }
    }

    /// Returns whether requests of this rule and caller may begin. A caller that is not known has no tenant.
    pub(crate) async fn hold_on(&self, rule: &CommandRule, principal: Option<&Principal>) -> HoldState {
        let Some(board) = &self.holds else { return HoldState::Free };
        if !board.ready().await {
            return HoldState::NotKnown;
        }
        let tenant = principal.map(Principal::tenant).unwrap_or_default();
        match board.holds_command(tenant, rule.names().map(OperationName::as_str)) {
            true => HoldState::Held,
            false => HoldState::Free,
        }
    }

    /// Adds `bytes` to the stored size of the record's principal.
    pub(crate) fn stored(&self, record: &Record, bytes: usize) {
        if let Some(quotas) = &self.quotas {
            quotas.stored(&record.principal, bytes);
        }
    }

    /// Sends a claim, bounded in time.
    pub(crate) async fn claim(&self, claim: &Claim) -> Result<StoreAnswer, StoreError> {
        let (result, time) = self.timed("claim", Some(claim.operation_id), self.store.claim(claim)).await;
        if let Ok(answer) = &result {
            steps::store_answered(self.operations.labels(), "claim", answer, time);
        }
        result
    }

    /// Applies a change to a record, bounded in time, and counts a command that this makes unknown. `operation_id` is for the
    /// log, if it is known.
    pub(crate) async fn apply(
        &self,
        id: &RecordId,
        operation_id: Option<OperationId>,
        change: &Change,
    ) -> Result<StoreAnswer, StoreError> {
        let (result, time) = self.timed("apply", operation_id, self.store.apply(id, change)).await;
        if let Ok(answer) = &result {
            steps::store_answered(self.operations.labels(), "apply", answer, time);
            self.applied(answer, change);
            if answer.decision == Decision::Applied {
                self.back.took();
            }
        }
        result
    }

    /// Counts the command of an answer to this change, if the change made it unknown.
    pub(crate) fn applied(&self, answer: &StoreAnswer, change: &Change) {
        let name =
            || answer.record.as_ref().map_or(OperationName::UNMATCHED, |record| record.operation.as_str());
        observe::became_unknown(|| self.operations.labels().of(name()), answer, Some(change));
    }

    /// Bounds a store call in time, and counts it.
    pub(crate) async fn within<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.timed(name, None, call).await.0
    }

    /// Bounds a store call in time, and counts it. Returns its time with its result.
    async fn timed<T>(
        &self,
        name: &'static str,
        operation_id: Option<OperationId>,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> (Result<T, StoreError>, Duration) {
        let begun = Instant::now();
        let result = deadline::within(self.store_timeout, call).await;
        let time = begun.elapsed();
        observe::store_call(name, time, result.as_ref().err());
        if let Err(error) = &result {
            steps::store_failed(name, operation_id, error, time);
        }
        (result, time)
    }
}
