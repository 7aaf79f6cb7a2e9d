//! The contract of a store, split by caller: [`Store`] serves requests, [`Upkeep`] background tasks,
//! [`Records`] operators; [`Backend`] is a complete store. An implementation of the first three on which
//! `semel_testkit::conformance` passes is a store that Semel can run on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::audit::AuditLog;
use crate::change::{Change, Note, NoteTaken};
use crate::formats::Formats;
use crate::hold::Holds;
use crate::identity::StoreId;
use crate::ids::OperationId;
use crate::operation::OperationName;
use crate::outbox::Outbox;
use crate::progress::{Item, Progress};
use crate::quota::Usage;
use crate::reconcile::Evidence;
use crate::record::{Claim, Holder, Record};
use crate::request::StoredRequest;
use crate::reseal::Reseal;
use crate::scope::{Principal, RecordId};
use crate::state::{Reason, StateName};
use crate::store_error::StoreError;
use crate::tier::Tier;
use crate::time::Timestamp;
use crate::transition::{Decision, Event, Lapse};
use crate::vault::Vault;
use crate::waiting::{WaitingFilter, WaitingPage};
use crate::witness::Witnessed;

/// Deadline of one store call. After it, the caller counts the answer as lost: [`StoreError::Ambiguous`].
pub const CALL_DEADLINE: Duration = Duration::from_secs(5);

/// Keeps one record per scope, and changes it only as [`transition`](crate::transition::transition) decides.
///
/// # Required behaviour
/// Every change of a record takes these four steps:
///
/// 1. Read the record and the store's own time, *now*. Never use the caller's clock.
/// 2. Call [`decide`](crate::store_fence::decide) with the store's fence, which its holds make, the record, the event and *now*.
///    Without a fence, this is [`transition`](crate::transition::transition). Before it, set the effect of the
///    [fence](crate::StoreFence::on) on a claim.
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
    /// Applies [`Event::Claim`] and returns the decision `Execute`, `Replay`,
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
    /// page goes tenant by tenant, takes at most a share of each tenant, and lists the longest ready first. A fenced store
    /// lists none.
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

    /// Returns the formats that may be written to the store now, as far as it knows: an older value is safe. Every command calls
    /// this method, so it must not block. A store around another one passes the other one's on.
    fn formats(&self) -> Formats {
        Formats::OLDEST
    }
}

/// Maintains records in the background, outside of any request: applies the passage of time, counts records,
/// and lists those that need evidence.
#[async_trait]
pub trait Upkeep: Store {
    /// Applies [`Event::Age`] to at most `limit` records whose lease or start
    /// deadline has passed. Returns the changed records. Safe beside live traffic and other sweepers.
    async fn sweep(&self, limit: usize) -> Result<Vec<AgedRecord>, StoreError>;

    /// Applies [`Event::Age`] to at most `limit` records whose time to live is
    /// over. Returns the changed records. Safe beside live traffic and other reapers.
    async fn reap(&self, limit: usize) -> Result<Vec<AgedRecord>, StoreError>;

    /// Returns the number of records of each operation in each state, and the size of the store. Records whose
    /// outcome is open are counted; the number of the others may be an estimate, so that the call takes
    /// milliseconds however many there are.
    async fn census(&self) -> Result<Census, StoreError>;

    /// Returns at most `limit` commands in state `Unknown` that are due for a look-up of evidence, the
    /// longest due first. A fenced store returns none, unless it looks missing keys up first. A store may leave out [`Record::result`], which such commands do not have.
    async fn due_to_reconcile(&self, limit: usize) -> Result<Vec<Record>, StoreError>;

    /// Makes a durable write that leaves nothing behind, if the store has one. A successful call means that the
    /// store takes changes; by default, that it is reachable.
    async fn try_commit(&self) -> Result<(), StoreError> {
        self.now().await.map(|_| ())
    }
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

    /// Returns a page of the records that match `filter`, ordered by operation id, which is roughly by age. A
    /// store may leave out [`Record::result`]: lists do not show responses. A page may have fewer records than
    /// `limit`, even none, and be followed by others: a store looks at a bounded number of records for each.
    async fn list(&self, filter: &Filter) -> Result<RecordPage, StoreError>;

    /// Returns the commands that hold this business reference, or gave it back and still have a record, the
    /// holder first. A store may leave out commands that gave it back beyond the first thousand.
    async fn find_by_reference(
        &self,
        tenant: &str,
        operation: &OperationName,
        reference: &str,
    ) -> Result<Vec<ReferenceEntry>, StoreError>;

    /// Returns the names of the operations that have records. Reads every record: for the start of a program,
    /// not for regular use.
    async fn operations(&self) -> Result<Vec<String>, StoreError>;
}

/// A complete store: records, evidence, usage, audit log, holds, witnesses and resealing. `Arc<dyn Backend>` coerces to an
/// `Arc` of each part, for callers that need only one.
#[async_trait]
pub trait Backend: Records + Evidence + Usage + AuditLog + Holds + Witnessed + Reseal {
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
    /// Part of the record that had lapsed before the event, if this call carried that out.
    pub lapse: Option<Lapse>,
}

impl StoreAnswer {
    /// Returns the reason for which this call made the command unknown: time had ended its lease, or its executor gave it up with
    /// this change. `None` if the command is not unknown, or was so before. Each command that becomes unknown is counted by it.
    pub fn made_unknown(&self, change: Option<&Change>) -> Option<Reason> {
        let head = self.record.as_ref().map(|record| &record.head)?;
        let given_up = match change.map(Change::event) {
            Some(Event::Abandon { reason, .. } | Event::Requeue { reason, .. }) => Some(*reason),
            Some(_) | None => None,
        };
        let is_given_up = self.decision == Decision::Applied && given_up == Some(head.reason);
        let is_new = self.lapse == Some(Lapse::Lease) || is_given_up;
        (is_new && head.state.name() == StateName::Unknown).then_some(head.reason)
    }
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
    /// Caller of the records.
    pub caller: Option<String>,
    /// Lower limit of the time at which the records entered their state, inclusive.
    pub since: Option<Timestamp>,
    /// Upper limit of the time at which the records entered their state, exclusive.
    pub until: Option<Timestamp>,
    /// Last record of the previous page: only records after it.
    pub after: Option<OperationId>,
    /// Maximum number of records.
    pub limit: usize,
}

impl Default for Filter {
    fn default() -> Filter {
        Filter {
            state: None,
            operation: None,
            tenant: None,
            caller: None,
            since: None,
            until: None,
            after: None,
            limit: 100,
        }
    }
}

impl Filter {
    /// Returns true if this record is on the filter's list, on whatever page.
    pub fn matches(&self, record: &Record) -> bool {
        let is = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
        self.state.is_none_or(|state| record.head.state.name() == state)
            && is(&self.operation, record.operation.as_str())
            && is(&self.tenant, record.principal.tenant())
            && is(&self.caller, record.principal.caller())
            && self.since.is_none_or(|since| since <= record.state_since)
            && self.until.is_none_or(|until| record.state_since < until)
    }
}

/// Command that holds a business reference, or gave it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReferenceEntry {
    /// Id of the command.
    pub operation_id: OperationId,
    /// True if the command holds the reference: no other command may take it.
    pub is_held: bool,
}

/// A page of a list of records.
#[derive(Clone, Debug, Default)]
pub struct RecordPage {
    /// The records, ordered by operation id.
    pub records: Vec<Record>,
    /// The records that match and cannot be read, ordered by operation id.
    pub unreadable: Vec<UnreadableRecord>,
    /// The value of [`Filter::after`] for the next page; `None` if this page is the last.
    pub next: Option<OperationId>,
}

/// A record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableRecord {
    /// Operation id of the record.
    pub operation_id: OperationId,
    /// Reason why the record cannot be read.
    pub why: String,
}

/// Count of a store's records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Records by operation and state.
    pub groups: Vec<CensusGroup>,
    /// Size of the store's data in bytes, if it is known.
    pub bytes: Option<u64>,
    /// True if settled records were estimated from a sample, which may have missed rare ones.
    pub is_estimate: bool,
}

impl Census {
    /// Returns the count of these records, none of it estimated.
    pub fn of<'a>(records: impl Iterator<Item = &'a Record>) -> Census {
        let mut groups: BTreeMap<(String, &str), CensusGroup> = BTreeMap::new();
        for record in records {
            let (operation, state) = (record.operation.to_string(), record.head.state.name());
            let group = groups.entry((operation.clone(), state.as_str())).or_insert(CensusGroup {
                operation,
                state,
                count: 0,
                is_estimate: false,
                oldest: Some(record.state_since),
            });
            group.count += 1;
            group.oldest = group.oldest.min(Some(record.state_since));
        }
        Census { groups: groups.into_values().collect(), bytes: None, is_estimate: false }
    }
}

/// Count of the records of one operation in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CensusGroup {
    /// Name of the operation.
    pub operation: String,
    /// State of the records.
    pub state: StateName,
    /// Number of records.
    pub count: u64,
    /// True if the records were estimated from a sample, not counted.
    pub is_estimate: bool,
    /// Earliest time at which one of the records entered the state; `None` for estimates.
    pub oldest: Option<Timestamp>,
}

/// A record that the passage of time has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgedRecord {
    /// Digest of the command's scope.
    pub id: RecordId,
    /// Id of the command.
    pub operation_id: OperationId,
    /// Principal that sent the command.
    pub principal: Principal,
    /// Operation of the command.
    pub operation: OperationName,
    /// First 8 hex digits of the key's digest.
    pub key_hash_prefix: String,
    /// State and reason of the record before.
    pub was: (StateName, Reason),
    /// State and reason of the record now; `None` if it is deleted.
    pub became: Option<(StateName, Reason)>,
}

impl AgedRecord {
    /// Returns the reason for which the record became unknown, if it did.
    pub fn made_unknown(&self) -> Option<Reason> {
        self.became.filter(|(state, _)| *state == StateName::Unknown).map(|(_, reason)| reason)
    }

    /// Returns the facts about a record that became `after`.
    pub fn new(before: &Record, after: Option<&Record>) -> AgedRecord {
        AgedRecord {
            id: before.id,
            operation_id: before.operation_id,
            principal: before.principal.clone(),
            operation: before.operation.clone(),
            key_hash_prefix: before.key_hash_prefix.clone(),
            was: (before.head.state.name(), before.head.reason),
            became: after.map(|after| (after.head.state.name(), after.head.reason)),
        }
    }
}
