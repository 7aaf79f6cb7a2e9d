//! The contract of a store, split by who uses it: [`Store`] for requests, [`Upkeep`] for work in the background, [`Records`] for
//! operators, and [`Backend`] for all that a store keeps. Whoever implements the first three so that
//! `semel_testkit::conformance` passes has a store that Semel can run on.

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
use crate::waiting::{WaitingFilter, WaitingPage};

/// How long a caller waits for one call of a store. After that, the answer counts as lost: [`StoreError::Ambiguous`].
pub const CALL_DEADLINE: Duration = Duration::from_secs(5);

/// Keeps one record for each scope, and changes it only as
/// [`transition`](crate::transition::transition) decides.
///
/// # What every implementation does
/// A change, whatever it is, goes like this, and nothing in it is left out:
///
/// 1. Read the record and the store's own present time, *now*. Never use the caller's clock.
/// 2. Ask [`transition`](crate::transition::transition) what the event means for the record's head.
/// 3. Carry out its [`Write`](crate::transition::Write), atomically and only if the record still has exactly
///    the head that was read (one row changed, or none). If it has not, begin again at 1, a bounded number of
///    times; after that, the answer is [`StoreError::Unavailable`].
/// 4. Only when the write is durable, answer with the decision and the record as it is now.
///
/// A first claim must be decided by a unique constraint, or within an exclusive transaction: of any number of
/// concurrent claims on one scope, exactly one may create the record. Looking first and inserting later is
/// the mistake this trait exists to prevent.
///
/// # What it never does
/// - It never decides: it holds no rule about states, leases, fences or expiry.
/// - It never answers [`StoreError::Unavailable`] for a write that may have been made. If it cannot know, it
///   sends the same write again (the token in the event makes that harmless, if
///   [`Event::is_repeatable`](crate::transition::Event::is_repeatable) says so), and if it still cannot know, it answers [`StoreError::Ambiguous`].
/// - It never lets one record's trouble fail another's, even where it writes several in one transaction.
/// - It never makes a write visible before it is durable, nor drops one that it answered for.
///
/// Dropping a future of this trait does not take the write back: it may still happen.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Applies [`Event::Claim`](crate::transition::Event::Claim) and answers `Execute`, `Replay`, `Wait`, `Mismatch`, `Reconcile`, `Expired`
    /// or `Vacant`.
    ///
    /// [`Write::Create`](crate::transition::Write::Create) takes everything from the claim, also where an
    /// expired row is still in its place; [`Write::Update`](crate::transition::Write::Update) keeps the
    /// record's operation id.
    ///
    /// A claim with a business reference is decided together with it, in one transaction: if another command of
    /// the same tenant and operation holds the reference, the event's
    /// [`Reference`](crate::transition::Reference) becomes `Taken`, and the answer names the holder. What
    /// [`ReferenceWrite`](crate::transition::ReferenceWrite) says is written with the record. References outlive
    /// their records. In the same transaction, what [`RequestWrite`](crate::transition::RequestWrite) says is done with
    /// the claim's request, as it is by every later change. If a record under one of the
    /// [`former`](Claim::former) names of the operation is still live, the claim is decided on that record.
    async fn claim(&self, claim: &Claim) -> Result<StoreAnswer, StoreError>;

    /// Applies one of the other events to the record `id` and answers with the decision and the record as it
    /// is afterwards. A record that enters a terminal state takes the change's result with it; one that
    /// leaves it, or becomes a tombstone, loses it.
    async fn apply(&self, id: &RecordId, change: &Change) -> Result<StoreAnswer, StoreError>;

    /// The record `id` as it is, and the store's time. Reads what was last written, never a lagging replica.
    async fn get(&self, id: &RecordId) -> Result<Snapshot, StoreError>;

    /// The record of this operation id, if it is this principal's; another's is not there. A store should not read more of
    /// another's record than it needs to tell so: neither its size nor its key may show in the time that this takes.
    async fn find_own(
        &self,
        operation_id: OperationId,
        principal: &Principal,
    ) -> Result<Snapshot, StoreError>;

    /// A page of the commands that wait for a worker and may be started now, with their requests: tenant by tenant, of each
    /// tenant at most a share, the longest ready first. A worker must [`start`](Change::start) a command before it carries
    /// it out: others may see it, too.
    async fn waiting(&self, filter: &WaitingFilter) -> Result<WaitingPage, StoreError>;

    /// Writes down which items a bulk request has, in their order, so that [`progress`](Store::progress) shows them. Those
    /// that are written down already stay as they are.
    async fn announce(&self, operation_id: OperationId, items: &[Item]) -> Result<(), StoreError>;

    /// How far the command of this operation id has come, if it has several steps. Forgotten with its record.
    async fn progress(&self, operation_id: OperationId) -> Result<Vec<Progress>, StoreError>;

    /// The store's time: an answer means that the store can be reached.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    /// What the store promises at this moment, as far as it knows. Called for every command: it must not wait for anything.
    fn tier(&self) -> Tier;
}

/// Does what no request waits for: lets time act on records, counts them, and says which need evidence. For whoever works in
/// the background.
#[async_trait]
pub trait Upkeep: Store {
    /// Applies [`Event::Age`](crate::transition::Event::Age) to at most `limit` records whose lease, or time to start, has ended. Says how
    /// many it changed. Safe beside live traffic and beside other sweepers.
    async fn sweep(&self, limit: usize) -> Result<usize, StoreError>;

    /// Applies [`Event::Age`](crate::transition::Event::Age) to at most `limit` records whose time to live has ended. Says how many it
    /// changed. Safe beside live traffic and beside other reapers.
    async fn reap(&self, limit: usize) -> Result<usize, StoreError>;

    /// How many records there are of each operation in each state, and since when the oldest has been in it. For
    /// metrics: it may be slow, and a moment old.
    async fn census(&self) -> Result<Vec<Census>, StoreError>;

    /// At most `limit` commands whose outcome is unknown and for which evidence is to be sought now, the longest due
    /// first. A store may leave out [`Record::result`], which they do not have.
    async fn due_to_reconcile(&self, limit: usize) -> Result<Vec<Record>, StoreError>;
}

/// Shows records, their notes and their kept requests. For operators, and for whoever settles unknown commands.
#[async_trait]
pub trait Records: Upkeep {
    /// The record of this operation id. The caller checks whose it is.
    async fn find(&self, operation_id: OperationId) -> Result<Snapshot, StoreError>;

    /// The notes that were taken about the command of this operation id, the oldest first. They outlive its record.
    async fn notes(&self, operation_id: OperationId) -> Result<Vec<NoteTaken>, StoreError>;

    /// The request that is kept of the command of this operation id, if one is, and takes the note that somebody reads it: nobody
    /// reads it without a note. Where none is kept, nothing is noted.
    async fn read_request(
        &self,
        operation_id: OperationId,
        note: &Note,
    ) -> Result<Option<StoredRequest>, StoreError>;

    /// The records that `filter` describes, in the order of their operation ids, which is roughly by age. A
    /// store may leave out [`Record::result`] here: lists do not show responses.
    async fn list(&self, filter: &Filter) -> Result<Vec<Record>, StoreError>;

    /// The records that [`list`](Records::list) leaves out for the same filter, since they cannot be read: both look at the same
    /// rows, at most `limit` of them. A store whose records can always be read has none.
    async fn unreadable(&self, _filter: &Filter) -> Result<Vec<UnreadableRecord>, StoreError> {
        Ok(Vec::new())
    }
}

/// A store with all that it keeps. `Arc<dyn Backend>` is also an `Arc` of each of its parts, for whoever needs no more.
#[async_trait]
pub trait Backend: Records + Evidence + Usage + AuditLog + Reseal {
    /// Returns the id of the store, which tells it from every other; `None` if it is gone with its process.
    async fn store_id(&self) -> Result<Option<StoreId>, StoreError>;

    /// Its messages; `None` if it keeps none.
    fn outbox(self: Arc<Self>) -> Option<Arc<dyn Outbox>>;
}

/// What a store answers to an event.
#[derive(Clone, Debug)]
pub struct StoreAnswer {
    /// What the sender is to do.
    pub decision: Decision,
    /// The record after the event; `None` if there is none.
    pub record: Option<Record>,
    /// The store's time when it decided.
    pub now: Timestamp,
    /// Who holds the business reference, if the decision is `Duplicate`.
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

/// Which records to list.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Only those in this state.
    pub state: Option<StateName>,
    /// Only those of this operation.
    pub operation: Option<String>,
    /// Only those of this tenant.
    pub tenant: Option<String>,
    /// Only those that last changed before this moment.
    pub updated_before: Option<Timestamp>,
    /// Only those that come after this one: the next page.
    pub after: Option<OperationId>,
    /// At most so many.
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
    /// Its command.
    pub operation_id: OperationId,
    /// Why it cannot.
    pub why: String,
}

/// The records of one operation in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Census {
    /// The operation.
    pub operation: String,
    /// The state.
    pub state: StateName,
    /// How many there are.
    pub count: u64,
    /// When the one that changed longest ago last changed.
    pub oldest: Timestamp,
}
