//! The contract of a store. Whoever implements [`Store`] so that `semel_testkit::conformance` passes has a
//! store that Semel can run on; this page and that suite are all there is to know.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::ids::OperationId;
use crate::progress::{InvalidOutput, Item, OpenCall, Progress};
use crate::record::{Claim, Holder, Record, StoredResult};
use crate::request::StoredRequest;
use crate::scope::{Principal, RecordId};
use crate::state::{Epoch, Fence, Reason, StateName};
use crate::tier::Tier;
use crate::time::Timestamp;
use crate::transition::{About, Decision, Event, PhaseVerdict, Proof, Recorded, Verdict};
use crate::waiting::{WaitingFilter, WaitingPage};

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
///   [`Event::is_repeatable`] says so), and if it still cannot know, it answers [`StoreError::Ambiguous`].
/// - It never lets one record's trouble fail another's, even where it writes several in one transaction.
/// - It never makes a write visible before it is durable, nor drops one that it answered for.
///
/// Dropping a future of this trait does not take the write back: it may still happen.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Applies [`Event::Claim`] and answers `Execute`, `Replay`, `Wait`, `Mismatch`, `Reconcile`, `Expired`
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
    async fn claim(&self, claim: &Claim) -> Result<Answer, StoreError>;

    /// Applies one of the other events to the record `id` and answers with the decision and the record as it
    /// is afterwards. A record that enters a terminal state takes the change's result with it; one that
    /// leaves it, or becomes a tombstone, loses it.
    async fn apply(&self, id: &RecordId, change: &Change) -> Result<Answer, StoreError>;

    /// The record `id` as it is, and the store's time. Reads what was last written, never a lagging replica.
    async fn get(&self, id: &RecordId) -> Result<Snapshot, StoreError>;

    /// The record of this operation id. The caller checks whose it is.
    async fn find(&self, operation_id: OperationId) -> Result<Snapshot, StoreError>;

    /// The record of this operation id, if it is this principal's; another's is not there. A store should not read more of
    /// another's record than it needs to tell so: neither its size nor its key may show in the time that this takes.
    async fn find_own(
        &self,
        operation_id: OperationId,
        principal: &Principal,
    ) -> Result<Snapshot, StoreError> {
        let found = self.find(operation_id).await?;
        Ok(Snapshot { record: found.record.filter(|record| record.principal == *principal), ..found })
    }

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

    /// The records that [`list`](Store::list) leaves out for the same filter, since they cannot be read: both look at the same
    /// rows, at most `limit` of them. A store whose records can always be read has none.
    async fn unreadable(&self, _filter: &Filter) -> Result<Vec<Unreadable>, StoreError> {
        Ok(Vec::new())
    }

    /// A page of the commands that wait for a worker and may be started now, with their requests: tenant by tenant, of each
    /// tenant at most a share, the longest ready first. A worker must [`start`](Change::start) a command before it carries
    /// it out: others may see it, too.
    async fn waiting(&self, filter: &WaitingFilter) -> Result<WaitingPage, StoreError>;

    /// At most `limit` commands whose outcome is unknown and for which evidence is to be sought now, the longest due
    /// first. A store may leave out [`Record::result`], which they do not have.
    async fn due_to_reconcile(&self, limit: usize) -> Result<Vec<Record>, StoreError>;

    /// Writes down which items a bulk request has, in their order, so that [`progress`](Store::progress) shows them. Those
    /// that are written down already stay as they are.
    async fn announce(&self, operation_id: OperationId, items: &[Item]) -> Result<(), StoreError>;

    /// How far the command of this operation id has come, if it has several steps. Forgotten with its record.
    async fn progress(&self, operation_id: OperationId) -> Result<Vec<Progress>, StoreError>;

    /// Applies [`Event::Age`] to at most `limit` records whose lease, or time to start, has ended. Says how
    /// many it changed. Safe beside live traffic and beside other sweepers.
    async fn sweep(&self, limit: usize) -> Result<usize, StoreError>;

    /// Applies [`Event::Age`] to at most `limit` records whose time to live has ended. Says how many it
    /// changed. Safe beside live traffic and beside other reapers.
    async fn reap(&self, limit: usize) -> Result<usize, StoreError>;

    /// How many records there are of each operation in each state, and since when the oldest has been in it. For
    /// metrics: it may be slow, and a moment old.
    async fn census(&self) -> Result<Vec<Census>, StoreError>;

    /// The store's time: an answer means that the store can be reached.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    /// What the store promises at this moment, as far as it knows. Called for every command: it must not wait for anything.
    fn tier(&self) -> Tier;
}

/// What a store answers to an event.
#[derive(Clone, Debug)]
pub struct Answer {
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

/// An event other than a claim, with what it carries. Made only by its constructors, so that a settlement
/// without a result cannot be built.
#[derive(Clone, Debug)]
pub struct Change {
    event: Event,
    result: Option<StoredResult>,
    note: Option<Note>,
    call: Option<OpenCall>,
    seen: Option<String>,
}

/// How long a worker may take to resume a command in phases after a verdict on its open call.
const RESUMED_WITHIN: Duration = Duration::from_secs(24 * 3600);

/// Who did something to a record by hand, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The person, or the tool, that did it.
    pub who: String,
    /// What was done.
    pub action: String,
    /// Why.
    pub why: String,
}

impl Note {
    /// Whether the note says that its command took place; `None` if it says nothing about that.
    pub fn says_executed(&self) -> Option<bool> {
        let said = |verdict: Verdict| self.action.split(' ').nth(1) == Some(verdict.as_str());
        match self.action.split(' ').next() {
            Some("resolve") if said(Verdict::Succeeded) => Some(true),
            Some("resolve") if self.action.contains(' ') => Some(false),
            // What was given up had not run.
            Some("release") => Some(false),
            Some(_) | None => None,
        }
    }
}

/// A note as it was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteTaken {
    /// When, by the store's clock.
    pub at: Timestamp,
    /// The note.
    pub note: Note,
}

impl Change {
    /// A worker takes up a `Claimed` command under a token of its own.
    pub fn start(fence: Fence, token: crate::ids::AttemptToken) -> Change {
        Change::of(Event::Start { fence, token })
    }

    /// The executor is still at it.
    pub fn renew(fence: Fence) -> Change {
        Change::of(Event::Renew { fence })
    }

    /// The executor has a final success.
    pub fn complete(fence: Fence, result: StoredResult) -> Change {
        Change { result: Some(result), ..Change::of(Event::Complete { fence }) }
    }

    /// The executor has a final failure.
    pub fn fail(fence: Fence, reason: Reason, result: StoredResult) -> Change {
        Change { result: Some(result), ..Change::of(Event::Fail { fence, reason }) }
    }

    /// The executor proves that nothing ran.
    pub fn release(fence: Fence, reason: Reason) -> Change {
        Change::of(Event::Release { fence, reason })
    }

    /// The executor proves that nothing more has happened than its phases say, and leaves the rest to a worker.
    pub fn requeue(fence: Fence, reason: Reason, after: Duration) -> Change {
        Change::of(Event::Requeue { fence, reason, after })
    }

    /// The executor has committed its part, and leaves the outcome to the message that it sends with it.
    pub fn defer(fence: Fence, time: Duration) -> Change {
        Change::of(Event::Defer { fence, time })
    }

    /// The executor cannot know what happened.
    pub fn abandon(fence: Fence, reason: Reason) -> Change {
        Change::of(Event::Abandon { fence, reason })
    }

    /// Evidence that the command was carried out, with the response that retries are to get. A status of 400
    /// or more is a stable failure.
    pub fn resolve_executed(result: StoredResult) -> Change {
        let verdict = if result.status < 400 { Verdict::Succeeded } else { Verdict::FailedFinal };
        Change { result: Some(result), ..Change::of(Event::resolve(verdict)) }
    }

    /// Evidence that the command was not carried out.
    pub fn resolve_not_executed(proof: Proof) -> Change {
        Change::of(Event::resolve(Verdict::NotExecuted(proof)))
    }

    /// Evidence that the call which the attempt `epoch` of a command in phases left open took place. The command is resumed
    /// after it.
    ///
    /// # Errors
    /// If no run could read the output.
    pub fn resolve_call_executed(epoch: Epoch, phase: &str, output: Bytes) -> Result<Change, InvalidOutput> {
        let call = OpenCall::executed(phase, output)?;
        Ok(Change::on_call(epoch, PhaseVerdict::Executed, call))
    }

    /// Evidence that the call which the attempt `epoch` of a command in phases left open did not take place. The command is
    /// resumed, and makes it anew.
    pub fn resolve_call_not_executed(epoch: Epoch, phase: &str, proof: Proof) -> Change {
        let call = OpenCall::NotExecuted { phase: phase.to_owned() };
        Change::on_call(epoch, PhaseVerdict::NotExecuted(proof), call)
    }

    /// A command in phases that was given up in the attempt `epoch`, with no call open, is resumed.
    pub fn resume(epoch: Epoch) -> Change {
        Change::on_call(epoch, PhaseVerdict::NothingOpen, OpenCall::None)
    }

    fn on_call(epoch: Epoch, verdict: PhaseVerdict, call: OpenCall) -> Change {
        let (within, recorded) = (RESUMED_WITHIN, Recorded::default());
        let event = Event::ResolvePhase { epoch, verdict, seen: None, within, recorded };
        Change { call: Some(call), ..Change::of(event) }
    }

    const fn of(event: Event) -> Change {
        Change { event, result: None, note: None, call: None, seen: None }
    }

    /// The same evidence, seen at this moment by the store's clock, and not only now.
    pub fn seen_at(self, seen: Timestamp) -> Change {
        let seen = Some(seen);
        let mut event = self.event;
        if let Event::Resolve { seen: known, .. } | Event::ResolvePhase { seen: known, .. } = &mut event {
            *known = seen;
        }
        Change { event, ..self }
    }

    /// The same evidence, about this attempt.
    pub fn about(self, about: About) -> Change {
        let Event::Resolve { verdict, seen, .. } = self.event else { return self };
        Change { event: Event::Resolve { verdict, seen, about }, ..self }
    }

    /// Evidence is sought for the time after `attempts` others, and if that is in vain, sought again later.
    pub fn postpone(until: Timestamp, attempts: u32) -> Change {
        let event = Event::Postpone { until, attempts, counts: true };
        Change::of(event)
    }

    /// A look that was counted as the `attempts`-th is in vain, and the next one is at another time than was thought.
    pub fn put_off(until: Timestamp, attempts: u32) -> Change {
        let event = Event::Postpone { until, attempts, counts: false };
        Change::of(event)
    }

    /// An operator gives up a command that has not run.
    pub fn free() -> Change {
        Change::of(Event::Free)
    }

    /// An operator forgets a settled command.
    pub fn purge() -> Change {
        Change::of(Event::Purge)
    }

    /// The same, with a note for the record's history. It is kept in the same write, for good, if the change
    /// takes effect. The note of a verdict says which.
    pub fn noted(self, note: Note) -> Change {
        let verdict = self.event.verdict_name().map(|verdict| format!(" {verdict}"));
        let action = note.action + verdict.as_deref().unwrap_or_default();
        Change { note: Some(Note { action, ..note }), ..self }
    }

    /// The same, with another form of its result, if it has one: sealed, for a store.
    pub fn with_result(&self, result: StoredResult) -> Change {
        let result = self.result.is_some().then_some(result);
        Change { result, ..self.clone() }
    }

    /// The same, with another form of the output of its open call, if it has one: sealed, for a store.
    pub(crate) fn with_call_output(&self, sealed: Bytes) -> Change {
        let mut change = self.clone();
        if let Some(OpenCall::Executed { output, .. }) = &mut change.call {
            *output = sealed;
        }
        change
    }

    /// The same, with what the executor saw of a call whose outcome it cannot know. It is part of the record's history.
    pub fn observing(self, seen: impl Into<String>) -> Change {
        Change { seen: Some(seen.into()), ..self }
    }

    /// What the executor saw. A store hands it to [`Record::observing`] with what it writes.
    pub fn observation(&self) -> Option<&str> {
        self.seen.as_deref()
    }

    /// The note that goes with it.
    pub fn note(&self) -> Option<&Note> {
        self.note.as_ref()
    }

    /// The open call that it is a verdict on. A store that has one decides on [`event_for`](Change::event_for), and writes
    /// the call's [mark](OpenCall::mark) with an applied decision.
    pub fn call(&self) -> Option<&OpenCall> {
        self.call.as_ref()
    }

    /// The event, for a command of which the store has these steps, and its input or not.
    pub fn event_for(&self, steps: &[Progress], has_input: bool) -> Event {
        match (self.event, &self.call) {
            (Event::ResolvePhase { epoch, verdict, seen, within, .. }, Some(call)) => {
                let recorded = Recorded { fits: call.fits(steps), has_input };
                Event::ResolvePhase { epoch, verdict, seen, within, recorded }
            }
            (event, _) => event,
        }
    }

    /// The event.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// What the record takes with it into a terminal state.
    pub fn result(&self) -> Option<&StoredResult> {
        self.result.as_ref()
    }
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
pub struct Unreadable {
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

/// Why a store did not answer. The kinds say what the caller must do.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was written. Try later; run nothing now.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// Another transaction holds this one record, and nothing was written. Try later; other records are not affected.
    #[error("another transaction holds the record: {0}")]
    Busy(String),
    /// It may or may not have been written, and the store could not find out. Send the same again.
    #[error("the store cannot tell whether it wrote: {0}")]
    Ambiguous(String),
    /// This one record cannot be written, however often it is tried.
    #[error("the store cannot take this record: {0}")]
    Rejected(String),
    /// This one record is not what was ever written. The others are as good as before.
    #[error("a record is damaged: {0}")]
    Corrupt(String),
    /// The store as a whole cannot be trusted. Nothing was written; run nothing, and call an operator.
    #[error("the store is damaged: {0}")]
    Damaged(String),
}
