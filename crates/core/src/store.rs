//! The contract of a store, split by caller: [`Store`] serves requests, [`Upkeep`] background tasks,
//! [`Records`] operators; [`Backend`] is a complete store. An implementation of the first three on which
//! `semel_testkit::conformance` passes is a store that Semel can run on.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::audit::AuditLog;
use crate::change::{Change, Note, NoteTaken};
use crate::identity::StoreId;
use crate::ids::OperationId;
use crate::outbox::Outbox;
use crate::progress::{Item, Progress};
use crate::quota::Usage;
use crate::reconcile::Evidence;
use crate::record::{Claim, Holder, Record};
use crate::request::StoredRequest;
use crate::reseal::Reseal;
use crate::scope::{Principal, RecordId};
use crate::state::StateName;
use crate::store_error::StoreError;
use crate::tier::Tier;
use crate::time::Timestamp;
use crate::transition::Decision;
use crate::vault::Vault;
use crate::waiting::{WaitingFilter, WaitingPage};

/// Deadline of one store call. After it, the caller counts the answer as lost: [`StoreError::Ambiguous`].
pub const CALL_DEADLINE: Duration = Duration::from_secs(5);

/// Keeps one record per scope, and changes it only as [`transition`](crate::transition::transition) decides.
///
/// # Required behaviour
/// Every change of a record takes these four steps:
///
/// 1. Read the record and the store's own time, *now*. Never use the caller's clock.
/// 2. Call [`transition`](crate::transition::transition) with the record's head, the event and *now*.
/// 3. Carry out the returned [`Write`](crate::transition::Write) atomically, and only if the record still has
///    exactly the head that step 1 read (one row changed, or none). If the head has changed, start again at
///    step 1. The number of retries is bounded; after the last one, return [`StoreError::Unavailable`].
/// 4. Once the write is durable, and not before, return the decision and the record as it is now.
///
/// A unique constraint or an exclusive transaction decides the first claim: of any number of concurrent
/// claims on one scope, exactly one creates the record. This trait exists to prevent a read followed by an
/// unguarded insert.
///
/// # Forbidden behaviour
/// - A store makes no decision: it contains no rule about states, leases, fences or expiry.
/// - A store never returns [`StoreError::Unavailable`] for a write that may have been made. If the result of
///   a write is unknown, the store sends the same write again, provided that
///   [`Event::is_repeatable`](crate::transition::Event::is_repeatable) allows it: the event's token makes the
///   repetition harmless. If the result is still unknown, the store returns [`StoreError::Ambiguous`].
/// - A failure of one record never fails another, even if one transaction writes several.
/// - A write is never visible before it is durable, and an acknowledged write is never lost.
///
/// # Errors
/// Each [`StoreError`] tells the caller what to do next. `Busy`, `Rejected` and `Corrupt` concern one record;
/// `Damaged` concerns the whole store.
///
/// # Cancellation
/// Dropping a future of this trait does not undo its write: the write may still happen.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Applies [`Event::Claim`](crate::transition::Event::Claim) and returns the decision `Execute`, `Replay`,
    /// `Wait`, `Mismatch`, `Reconcile`, `Expired`, `Vacant` or `Duplicate`, or `Refused` for a fingerprint
    /// that cannot be compared.
    ///
    /// [`Write::Create`](crate::transition::Write::Create) takes every value from the claim, even if an
    /// expired row still has the record's id. [`Write::Update`](crate::transition::Write::Update) keeps the
    /// record's operation id.
    ///
    /// One transaction covers the record and these parts of the claim:
    ///
    /// - Business reference: if another command of the same tenant and operation holds it, the store sets the
    ///   event's [`Reference`](crate::transition::Reference) to `Taken`, and the answer names the holder. The
    ///   store carries out [`ReferenceWrite`](crate::transition::ReferenceWrite) with the record. References
    ///   outlive their records.
    /// - Request: the store carries out [`RequestWrite`](crate::transition::RequestWrite) on the claim's
    ///   request. Every later change of the record does so, too.
    /// - Former names: if a record under one of the operation's [`former`](Claim::former) names is still
    ///   live, the claim is decided on that record.
    async fn claim(&self, claim: &Claim) -> Result<StoreAnswer, StoreError>;

    /// Applies a change, which is any event other than a claim, to the record `id`. Returns the decision and
    /// the record after it. A record that enters a terminal state gets the change's result. A record that
    /// leaves one, or becomes a tombstone, loses its result.
    async fn apply(&self, id: &RecordId, change: &Change) -> Result<StoreAnswer, StoreError>;

    /// Returns the record `id` and the store's time. Reads the last acknowledged write, never a lagging
    /// replica.
    async fn get(&self, id: &RecordId) -> Result<Snapshot, StoreError>;

    /// Returns the record of this operation id if it belongs to this principal; another principal's record
    /// counts as absent. A store should read no more of such a record than the comparison needs, so that the
    /// response time reveals neither its size nor its key.
    async fn find_own(
        &self,
        operation_id: OperationId,
        principal: &Principal,
    ) -> Result<Snapshot, StoreError>;

    /// Returns a page of the commands that wait for a worker and are ready to start, with their requests. The
    /// page goes tenant by tenant, takes at most a share of each tenant, and lists the longest ready first.
    /// Several workers may read the same command, so a worker must [`start`](Change::start) it before it
    /// executes it.
    async fn waiting(&self, filter: &WaitingFilter) -> Result<WaitingPage, StoreError>;

    /// Records the items of a bulk request in their order, so that [`progress`](Store::progress) lists them.
    /// Items that are already recorded stay unchanged.
    async fn announce(&self, operation_id: OperationId, items: &[Item]) -> Result<(), StoreError>;

    /// Returns the steps of the command with this operation id, if it has several. They are deleted with its
    /// record.
    async fn progress(&self, operation_id: OperationId) -> Result<Vec<Progress>, StoreError>;

    /// Returns the store's time. A successful call means that the store is reachable.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    /// Returns the tier that the store promises now, as far as it knows. Every command calls this method, so
    /// it must not block.
    fn tier(&self) -> Tier;
}

/// Maintains records in the background, outside of any request: applies the passage of time, counts records,
/// and lists those that need evidence.
#[async_trait]
pub trait Upkeep: Store {
    /// Applies [`Event::Age`](crate::transition::Event::Age) to at most `limit` records whose lease or start
    /// deadline has passed. Returns the number of changed records. Safe beside live traffic and other
    /// sweepers.
    async fn sweep(&self, limit: usize) -> Result<usize, StoreError>;

    /// Applies [`Event::Age`](crate::transition::Event::Age) to at most `limit` records whose time to live is
    /// over. Returns the number of changed records. Safe beside live traffic and other reapers.
    async fn reap(&self, limit: usize) -> Result<usize, StoreError>;

    /// Returns the number of records of each operation in each state, and the oldest change among them. For
    /// metrics: the call may be slow, and its result slightly out of date.
    async fn census(&self) -> Result<Vec<Census>, StoreError>;

    /// Returns at most `limit` commands in state `Unknown` that are due for a look-up of evidence, the
    /// longest due first. A store may leave out [`Record::result`], which such commands do not have.
    async fn due_to_reconcile(&self, limit: usize) -> Result<Vec<Record>, StoreError>;
}

/// Shows records, their notes and their stored requests to operators and to the reconciler.
#[async_trait]
pub trait Records: Upkeep {
    /// Returns the record of this operation id. The caller checks that its user may see it.
    async fn find(&self, operation_id: OperationId) -> Result<Snapshot, StoreError>;

    /// Returns the notes about the command of this operation id, the oldest first. Notes outlive the record.
    async fn notes(&self, operation_id: OperationId) -> Result<Vec<NoteTaken>, StoreError>;

    /// Writes `note`, and returns the stored request of this command: no request is read without a note.
    /// Without a stored request, it returns `None` and writes no note.
    async fn read_request(
        &self,
        operation_id: OperationId,
        note: &Note,
    ) -> Result<Option<StoredRequest>, StoreError>;

    /// Returns the records that match `filter`, ordered by operation id, which is roughly by age. A store may
    /// leave out [`Record::result`]: lists do not show responses.
    async fn list(&self, filter: &Filter) -> Result<Vec<Record>, StoreError>;

    /// Returns the unreadable records that [`list`](Records::list) leaves out for this filter. Both methods
    /// look at the same rows, at most `limit` of them. A store without unreadable records returns none.
    async fn unreadable(&self, _filter: &Filter) -> Result<Vec<UnreadableRecord>, StoreError> {
        Ok(Vec::new())
    }
}

/// A complete store: records, evidence, usage, audit log and resealing. `Arc<dyn Backend>` coerces to an
/// `Arc` of each part, for callers that need only one.
#[async_trait]
pub trait Backend: Records + Evidence + Usage + AuditLog + Reseal {
    /// Returns the id of the store, which distinguishes it from every other; `None` if it is lost with its process.
    async fn store_id(&self) -> Result<Option<StoreId>, StoreError>;

    /// Returns the vault that seals the store's data; `None` if it is not encrypted.
    fn vault(&self) -> Option<Arc<dyn Vault>> {
        None
    }

    /// Returns the store's outbox; `None` if the store keeps no messages.
    fn outbox(self: Arc<Self>) -> Option<Arc<dyn Outbox>>;
}

/// The store's answer to an event.
#[derive(Clone, Debug)]
pub struct StoreAnswer {
    /// The next action of the event's sender.
    pub decision: Decision,
    /// The record after the event; `None` if there is none.
    pub record: Option<Record>,
    /// The store's time when it decided.
    pub now: Timestamp,
    /// The command that holds the business reference, if the decision is `Duplicate`.
    pub holder: Option<Holder>,
}

/// A record at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The record; `None` if there is none.
    pub record: Option<Record>,
    /// The store's time when it was read.
    pub now: Timestamp,
}

/// Selects the records of a list. Each `None` matches every record.
#[derive(Clone, Debug)]
pub struct Filter {
    /// State of the records.
    pub state: Option<StateName>,
    /// Operation of the records.
    pub operation: Option<String>,
    /// Tenant of the records.
    pub tenant: Option<String>,
    /// Upper limit of the records' last change, exclusive.
    pub updated_before: Option<Timestamp>,
    /// Last record of the previous page: only records after it.
    pub after: Option<OperationId>,
    /// Maximum number of records.
    pub limit: usize,
}

impl Default for Filter {
    fn default() -> Filter {
        Filter { state: None, operation: None, tenant: None, updated_before: None, after: None, limit: 100 }
    }
}

/// A record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableRecord {
    /// Operation id of the record.
    pub operation_id: OperationId,
    /// Reason why the record cannot be read.
    pub why: String,
}

/// Count of the records of one operation in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Census {
    /// Name of the operation.
    pub operation: String,
    /// State of the records.
    pub state: StateName,
    /// Number of records.
    pub count: u64,
    /// Time of the last change of the record that has been unchanged for longest.
    pub oldest: Timestamp,
}
