//! The reference store: one map behind one lock, the contract with nothing around it.
//!
//! It loses everything with its process (tier 3): for tests, and to read before the other stores.

mod reseal;
mod usage;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use semel_core::hold::MAX_HOLDS;
use semel_core::policy::OnLeaseExpired;
use semel_core::quota::{Subject, UsageEntry};
use semel_core::reconcile::{Heard, LastHeard, OpenStatements, StatementOutcome};
use semel_core::store_fence::decide;
use semel_core::transition::{ReferenceWrite, RequestWrite, age};
use semel_core::{
    AgedRecord, AuditEntry, AuditId, AuditLog, Backend, Beat, Census, Change, Claim, Clock, Decision, Event,
    Evidence, Filter, Formats, Hold, HoldChange, HoldTarget, Holder, Holds, Item, Note, NoteTaken,
    OperationId, OperationName, Outbox, Principal, Progress, Record, RecordId, RecordPage, Records,
    Reference, ReferenceEntry, Snapshot, State, Statement, SteadyClock, StepKind, Store, StoreAnswer,
    StoreError, StoreFence, StoreId, StorePoint, StoredRequest, StoredResult, Tier, Timestamp, Upkeep,
    Waiting, WaitingFilter, WaitingPage, Witness, WitnessId, Witnessed,
};

use crate::contested::contested;

/// Keeps records in memory.
pub struct MemoryStore {
    clock: Box<dyn Clock>,
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    records: HashMap<RecordId, Record>,
    /// Business references, by tenant, operation and reference.
    references: References,
    /// Notes, the oldest first, with their commands. A hold's note has none.
    notes: Vec<(Option<OperationId>, NoteTaken)>,
    /// Holds in force.
    holds: BTreeMap<HoldTarget, Hold>,
    /// Beats of witnesses, and the number of the store's generation.
    beats: HashMap<WitnessId, u64>,
    generation: i64,
    /// Requests and inputs of commands that a worker may have to start.
    requests: HashMap<OperationId, StoredRequest>,
    /// The items of bulk requests.
    items: HashMap<OperationId, Vec<Item>>,
    /// Statements about commands, by source and event id.
    evidence: HashMap<(String, String), StoredStatement>,
    /// The use of each tenant and caller.
    usage: BTreeMap<Subject, UsageEntry>,
}

/// Commands that hold a business reference, or gave it back. At most one of each list holds it.
type References = HashMap<(String, String, String), Vec<Reserved>>;

/// One command's hold on a business reference.
struct Reserved {
    holder: Holder,
    given_back: bool,
}

/// Returns the command that holds a reference.
fn holder_of(reserved: &[Reserved]) -> Option<&Holder> {
    reserved.iter().find(|reserved| !reserved.given_back).map(|reserved| &reserved.holder)
}

/// A statement and its outcome.
struct StoredStatement {
    statement: Statement,
    received_at: Timestamp,
    outcome: Option<StatementOutcome>,
}

impl MemoryStore {
    /// Returns an empty store on the machine's present clock; it does not follow when that is set.
    pub fn new() -> MemoryStore {
        MemoryStore::with_clock(SteadyClock::new())
    }

    /// Returns an empty store on this clock.
    pub fn with_clock(clock: impl Clock) -> MemoryStore {
        MemoryStore { clock: Box::new(clock), tables: Mutex::default() }
    }

    /// Returns a command with a stored request that should be absent, or an absent one that should be stored,
    /// for tests. Commands in phases may be claimed without their input, and are skipped.
    pub fn misplaced_request(&self) -> Option<OperationId> {
        let tables = self.tables();
        let misplaced = |record: &&Record| {
            let kept = tables.requests.contains_key(&record.operation_id);
            kept != record.head.keeps_request() && !record.head.is_phased()
        };
        let known = |id: &&OperationId| tables.records.values().any(|record| record.operation_id == **id);
        let of_record = tables.records.values().find(misplaced).map(|record| record.operation_id);
        of_record.or_else(|| tables.requests.keys().find(|id| !known(id)).copied())
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // No operation under the lock can panic half-way.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the passage of time to at most `limit` of the records that are `due`.
    fn age(&self, limit: usize, due: impl Fn(&State, Timestamp) -> bool) -> Vec<AgedRecord> {
        let (mut tables, now) = (self.tables(), self.clock.now());
        let due = tables.records.values().filter(|record| due(&record.head.state, now)).take(limit);
        let due: Vec<Record> = due.cloned().collect();
        let age = |before: Record| {
            let aged = tables.change(before.id, &Event::Age, None, None, None, now);
            (aged.decision == Decision::Applied).then(|| AgedRecord::new(&before, aged.record.as_ref()))
        };
        due.into_iter().filter_map(age).collect()
    }
}

impl Tables {
    fn claim(&mut self, claim: &Claim, now: Timestamp) -> StoreAnswer {
        let live = |id: &RecordId| self.records.get(id).filter(|record| age(record.head, now).is_some());
        let own = claim.record_ids().find_map(|id| live(&id));
        let id = own.map_or_else(|| claim.scope.record_id(), |record| record.id);
        let held = |name: &OperationName| holder_of(self.references.get(&reference(claim, name)?)?);
        let is_other = |holder: &&Holder| own.map(|record| record.operation_id) != Some(holder.operation_id);
        let other = claim.reference_operations().find_map(held).filter(is_other).cloned();
        let mut attempt = claim.attempt;
        if other.is_some() {
            attempt.reference = Reference::Taken;
        }
        if let Some(fence) = self.fence() {
            attempt.fence = fence.on(claim, own, now);
        }
        let answer = self.change(id, &Event::Claim(attempt), Some(claim), None, None, now);
        StoreAnswer { holder: other.filter(|_| answer.decision == Decision::Duplicate), ..answer }
    }

    /// Returns the fence of the store; `None` if it is not fenced.
    fn fence(&self) -> Option<StoreFence> {
        StoreFence::of(self.holds.values().map(|hold| (&hold.target, hold.since)))
    }

    /// Reads, calls the protocol and writes, under one lock.
    fn change(
        &mut self,
        id: RecordId,
        event: &Event,
        claim: Option<&Claim>,
        result: Option<&StoredResult>,
        seen: Option<&str>,
        now: Timestamp,
    ) -> StoreAnswer {
        let before = self.records.get(&id);
        let step = decide(self.fence().as_ref(), before, event, now);
        let record = Record::after(before, step.write, claim, result, now)
            .map(|record| record.observing(step.write, seen));
        let named = record.as_ref().or(before).map(|record| (record.operation_id, record.principal.clone()));
        let wanted = claim.and_then(|claim| reference(claim, claim.scope.operation()));
        match (step.reference, named, wanted) {
            (ReferenceWrite::Take, Some((operation_id, principal)), Some(reference)) => {
                let holder = Holder { operation_id, principal };
                let reserved = self.references.entry(reference).or_default();
                reserved.retain(|reserved| reserved.holder.operation_id != operation_id);
                reserved.push(Reserved { holder, given_back: false });
            }
            (ReferenceWrite::GiveBack, Some((id, _)), _) => {
                let all = self.references.values_mut().flatten();
                all.filter(|own| own.holder.operation_id == id).for_each(|own| own.given_back = true);
            }
            (ReferenceWrite::TakeBack, Some((id, _)), _) => {
                take_references_back(&mut self.references, &mut self.notes, id, now);
            }
            (
                ReferenceWrite::Keep
                | ReferenceWrite::Take
                | ReferenceWrite::GiveBack
                | ReferenceWrite::TakeBack,
                _,
                _,
            ) => {}
        }
        let of = record.as_ref().or(before).map(|record| record.operation_id);
        match (step.request, of, claim.and_then(|claim| claim.request.clone())) {
            (RequestWrite::Store, Some(id), Some(request)) => {
                self.requests.insert(id, request);
            }
            (RequestWrite::Erase, Some(id), _) => {
                self.requests.remove(&id);
            }
            (RequestWrite::Keep | RequestWrite::Store | RequestWrite::Erase, _, _) => {}
        }
        let gone = before.map(|before| before.operation_id);
        if let Some(gone) = gone.filter(|id| record.as_ref().map(|record| record.operation_id) != Some(*id)) {
            self.items.remove(&gone);
            self.references.retain(|_, reserved| {
                reserved.retain(|own| own.holder.operation_id != gone || !own.given_back);
                !reserved.is_empty()
            });
        }
        match &record {
            Some(record) => self.records.insert(id, record.clone()),
            None => self.records.remove(&id),
        };
        StoreAnswer { decision: step.decision, record, now, holder: None, lapse: step.lapse }
    }
}

/// Takes the business references of a command back, except those that other commands hold since, which are noted.
fn take_references_back(
    references: &mut References,
    notes: &mut Vec<(Option<OperationId>, NoteTaken)>,
    id: OperationId,
    now: Timestamp,
) {
    for reserved in references.values_mut() {
        let holder = holder_of(reserved).map(|holder| holder.operation_id);
        let Some(own) = reserved.iter_mut().find(|own| own.holder.operation_id == id) else { continue };
        match holder.filter(|holder| *holder != id) {
            None => own.given_back = false,
            Some(holder) => {
                let taken = NoteTaken { at: now, note: contested(id, holder) };
                notes.push((Some(id), taken));
            }
        }
    }
}

/// Returns the name of the business reference that a claim asks for under this operation.
fn reference(claim: &Claim, operation: &OperationName) -> Option<(String, String, String)> {
    let reference = claim.business_reference.clone()?;
    Some((claim.scope.principal().tenant().to_owned(), operation.to_string(), reference))
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

#[async_trait]
impl Backend for MemoryStore {
    async fn store_id(&self) -> Result<Option<StoreId>, StoreError> {
        Ok(None)
    }

    fn outbox(self: Arc<Self>) -> Option<Arc<dyn Outbox>> {
        None
    }
}

#[async_trait]
impl AuditLog for MemoryStore {
    async fn audit(&self, before: Option<AuditId>, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        let tables = self.tables();
        let entries = tables.notes.iter().enumerate().map(|(index, (operation_id, taken))| AuditEntry {
            id: AuditId(index as u128),
            operation_id: *operation_id,
            taken: taken.clone(),
        });
        Ok(entries.rev().filter(|entry| before.is_none_or(|id| entry.id < id)).take(limit).collect())
    }

    async fn take_note(&self, operation_id: OperationId, note: &Note) -> Result<(), StoreError> {
        let taken = NoteTaken { at: self.clock.now(), note: note.clone() };
        self.tables().notes.push((Some(operation_id), taken));
        Ok(())
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn claim(&self, claim: &Claim) -> Result<StoreAnswer, StoreError> {
        Ok(self.tables().claim(claim, self.clock.now()))
    }

    async fn apply(&self, id: &RecordId, change: &Change) -> Result<StoreAnswer, StoreError> {
        let (mut tables, now) = (self.tables(), self.clock.now());
        let operation_id = tables.records.get(id).map(|record| record.operation_id);
        // No phase is recorded in this store, so no call is open.
        let has_input = operation_id.is_some_and(|id| tables.requests.contains_key(&id));
        let event = change.event_for(&[], has_input);
        let answer = tables.change(*id, &event, None, change.result(), change.observation(), now);
        if let (Decision::Applied, Some(id), Some(note)) = (answer.decision, operation_id, change.note()) {
            tables.notes.push((Some(id), NoteTaken { at: now, note: note.clone() }));
        }
        Ok(answer)
    }

    async fn get(&self, id: &RecordId) -> Result<Snapshot, StoreError> {
        Ok(Snapshot { record: self.tables().records.get(id).cloned(), now: self.clock.now() })
    }

    async fn find_own(
        &self,
        operation_id: OperationId,
        principal: &Principal,
    ) -> Result<Snapshot, StoreError> {
        let found = self.find(operation_id).await?;
        Ok(Snapshot { record: found.record.filter(|record| record.principal == *principal), ..found })
    }

    async fn waiting(&self, filter: &WaitingFilter) -> Result<WaitingPage, StoreError> {
        let (tables, now) = (self.tables(), self.clock.now());
        let ready = |record: &Record| match record.head.state {
            State::Claimed { ready_at, start_by } => ready_at <= now && start_by > now,
            _ => false,
        };
        let wanted = |record: &&Record| {
            tables.fence().is_none()
                && ready(record)
                && (record.head.terms.on_lease_expired == OnLeaseExpired::Resume) == filter.phased
                && filter
                    .operations
                    .as_ref()
                    .is_none_or(|names| names.iter().any(|name| name == record.operation.as_str()))
        };
        let with_request = |record: &Record| {
            let request = tables.requests.get(&record.operation_id)?.clone();
            Some(Waiting { record: record.clone(), request })
        };
        let found = tables.records.values().filter(wanted).filter_map(with_request).collect();
        Ok(WaitingPage::select(found, filter, now))
    }

    async fn announce(&self, operation_id: OperationId, items: &[Item]) -> Result<(), StoreError> {
        let (mut tables, now) = (self.tables(), self.clock.now());
        let record = tables.records.values().find(|record| record.operation_id == operation_id);
        if let Some(id) = record.map(|record| record.id) {
            tables.change(id, &Event::Advance, None, None, None, now);
        }
        tables.items.entry(operation_id).or_insert_with(|| items.to_vec());
        Ok(())
    }

    /// Returns items only: commands with phases need a database.
    async fn progress(&self, operation_id: OperationId) -> Result<Vec<Progress>, StoreError> {
        let tables = self.tables();
        let parent = tables.records.values().find(|record| record.operation_id == operation_id);
        let began_at = parent.map_or_else(|| self.clock.now(), |parent| parent.created_at);
        let shown = |(position, item): (usize, &Item)| {
            let what = StepKind::item(tables.records.get(&item.record));
            let position = u32::try_from(position).unwrap_or(u32::MAX);
            Progress { position, name: item.name.clone(), what, began_at, done_at: None }
        };
        let items = tables.items.get(&operation_id).map_or(&[][..], Vec::as_slice);
        Ok(items.iter().enumerate().map(shown).collect())
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.clock.now())
    }

    fn tier(&self) -> Tier {
        Tier::Three
    }

    /// Returns the newest formats: no other program reads this process's memory.
    fn formats(&self) -> Formats {
        Formats::CURRENT
    }
}

#[async_trait]
impl Upkeep for MemoryStore {
    async fn sweep(&self, limit: usize) -> Result<Vec<AgedRecord>, StoreError> {
        Ok(self.age(limit, |state, now| state.due_to_sweep().is_some_and(|due| due <= now)))
    }

    async fn reap(&self, limit: usize) -> Result<Vec<AgedRecord>, StoreError> {
        Ok(self.age(limit, |state, now| state.expires_at().is_some_and(|due| due <= now)))
    }

    async fn census(&self) -> Result<Census, StoreError> {
        Ok(Census::of(self.tables().records.values()))
    }

    async fn due_to_reconcile(&self, limit: usize) -> Result<Vec<Record>, StoreError> {
        let now = self.clock.now();
        let due = |record: &Record| match record.head.state {
            State::Unknown { reconcile_after, .. } if reconcile_after <= now => Some(reconcile_after),
            _ => None,
        };
        let tables = self.tables();
        if tables.fence().is_some_and(|fence| !fence.looks_up()) {
            return Ok(Vec::new());
        }
        let mut records: Vec<Record> =
            tables.records.values().filter(|record| due(record).is_some()).cloned().collect();
        records.sort_by_key(|record| (due(record), record.operation_id));
        records.truncate(limit);
        Ok(records)
    }
}

#[async_trait]
impl Records for MemoryStore {
    async fn find(&self, operation_id: OperationId) -> Result<Snapshot, StoreError> {
        let tables = self.tables();
        let record = tables.records.values().find(|record| record.operation_id == operation_id).cloned();
        Ok(Snapshot { record, now: self.clock.now() })
    }

    async fn notes(&self, operation_id: OperationId) -> Result<Vec<NoteTaken>, StoreError> {
        let tables = self.tables();
        let about = tables.notes.iter().filter(|(id, _)| *id == Some(operation_id));
        Ok(about.map(|(_, taken)| taken.clone()).collect())
    }

    async fn read_request(
        &self,
        operation_id: OperationId,
        note: &Note,
    ) -> Result<Option<StoredRequest>, StoreError> {
        let (mut tables, now) = (self.tables(), self.clock.now());
        let request = tables.requests.get(&operation_id).cloned();
        if request.is_some() {
            tables.notes.push((Some(operation_id), NoteTaken { at: now, note: note.clone() }));
        }
        Ok(request)
    }

    async fn list(&self, filter: &Filter) -> Result<RecordPage, StoreError> {
        let wanted = |record: &&Record| {
            filter.matches(record) && filter.after.is_none_or(|last| record.operation_id > last)
        };
        let mut records: Vec<Record> = self.tables().records.values().filter(wanted).cloned().collect();
        records.sort_by_key(|record| record.operation_id);
        let is_last = records.len() <= filter.limit;
        records.truncate(filter.limit);
        let next = records.last().map(|record| record.operation_id).filter(|_| !is_last);
        Ok(RecordPage { records, unreadable: Vec::new(), next })
    }

    async fn find_by_reference(
        &self,
        tenant: &str,
        operation: &OperationName,
        reference: &str,
    ) -> Result<Vec<ReferenceEntry>, StoreError> {
        let name = (tenant.to_owned(), operation.to_string(), reference.to_owned());
        let tables = self.tables();
        let mut reserved: Vec<&Reserved> = tables.references.get(&name).into_iter().flatten().collect();
        reserved.sort_by_key(|reserved| (reserved.given_back, reserved.holder.operation_id));
        let entry = |reserved: &Reserved| ReferenceEntry {
            operation_id: reserved.holder.operation_id,
            is_held: !reserved.given_back,
        };
        Ok(reserved.into_iter().map(entry).collect())
    }

    async fn operations(&self) -> Result<Vec<String>, StoreError> {
        let tables = self.tables();
        let names: BTreeSet<String> =
            tables.records.values().map(|record| record.operation.to_string()).collect();
        Ok(names.into_iter().collect())
    }
}

#[async_trait]
impl Holds for MemoryStore {
    async fn holds(&self) -> Result<Vec<Hold>, StoreError> {
        Ok(self.tables().holds.values().cloned().collect())
    }

    async fn hold(&self, target: &HoldTarget, note: &Note) -> Result<HoldChange, StoreError> {
        let (mut tables, now) = (self.tables(), self.clock.now());
        if tables.holds.contains_key(target) {
            return Ok(HoldChange::AlreadySo);
        }
        // A fence is never refused.
        if tables.holds.len() >= MAX_HOLDS && *target != HoldTarget::Store {
            return Ok(HoldChange::TooMany);
        }
        let hold = Hold { target: target.clone(), since: now, who: note.who.clone(), why: note.why.clone() };
        tables.holds.insert(target.clone(), hold);
        tables.notes.push((None, NoteTaken { at: now, note: note.clone() }));
        Ok(HoldChange::Done)
    }

    async fn lift(&self, target: &HoldTarget, note: &Note) -> Result<HoldChange, StoreError> {
        let (mut tables, now) = (self.tables(), self.clock.now());
        if tables.holds.remove(target).is_none() {
            return Ok(HoldChange::AlreadySo);
        }
        if *target == HoldTarget::Store {
            tables.generation = now.as_millis().max(tables.generation + 1);
        }
        tables.notes.push((None, NoteTaken { at: now, note: note.clone() }));
        Ok(HoldChange::Done)
    }
}

#[async_trait]
impl Witnessed for MemoryStore {
    async fn beat(&self, witness: Witness) -> Result<Beat, StoreError> {
        let mut tables = self.tables();
        let generation = tables.generation;
        let beat = tables.beats.entry(witness.id).or_default();
        let point = StorePoint { generation, beat: *beat };
        if point < witness.seen {
            return Ok(Beat::Behind(point));
        }
        *beat += 1;
        Ok(Beat::Kept(StorePoint { generation, beat: *beat }))
    }
}

#[async_trait]
impl Evidence for MemoryStore {
    async fn take_in(&self, statement: &Statement) -> Result<Heard, StoreError> {
        let (mut tables, received_at) = (self.tables(), self.clock.now());
        let name = (statement.source.clone(), statement.event_id.clone());
        if let Some(kept) = tables.evidence.get(&name) {
            let differs = statement.differs_from(&kept.statement.content);
            return Ok(if differs { Heard::Other } else { Heard::Before });
        }
        let statement = Statement::clone(statement).heard_at(received_at);
        tables.evidence.insert(name, StoredStatement { statement, received_at, outcome: None });
        Ok(Heard::New)
    }

    async fn open_statements(
        &self,
        id: OperationId,
        after: Option<&LastHeard>,
        limit: usize,
    ) -> Result<OpenStatements, StoreError> {
        fn place(kept: &StoredStatement) -> (Timestamp, &str, &str) {
            (kept.received_at, &kept.statement.source, &kept.statement.event_id)
        }
        let tables = self.tables();
        let after = after.map(LastHeard::place);
        let open = |kept: &&StoredStatement| kept.outcome.is_none() && kept.statement.operation_id == id;
        let mut found: Vec<&StoredStatement> = tables.evidence.values().filter(open).collect();
        found.retain(|kept| after.is_none_or(|last| place(kept) > last));
        found.sort_by_key(|kept| place(kept));
        found.truncate(limit);
        let last = found.last().filter(|_| found.len() == limit).map(|kept| LastHeard {
            received_at: kept.received_at,
            source: kept.statement.source.clone(),
            event_id: kept.statement.event_id.clone(),
        });
        let statements = found.into_iter().map(|kept| kept.statement.clone()).collect();
        Ok(OpenStatements { statements, unreadable: 0, last })
    }

    async fn commands_with_evidence(
        &self,
        after: Option<OperationId>,
        limit: usize,
    ) -> Result<Vec<OperationId>, StoreError> {
        let tables = self.tables();
        let open = tables.evidence.values().filter(|kept| kept.outcome.is_none());
        let ids: BTreeSet<OperationId> = open.map(|kept| kept.statement.operation_id).collect();
        Ok(ids.into_iter().filter(|id| after.is_none_or(|last| *id > last)).take(limit).collect())
    }

    async fn close_statement(
        &self,
        source: &str,
        event_id: &str,
        outcome: StatementOutcome,
    ) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let kept = tables.evidence.get_mut(&(source.to_owned(), event_id.to_owned()));
        let Some(kept) = kept.filter(|kept| kept.outcome.is_none()) else { return Ok(false) };
        kept.outcome = Some(outcome);
        Ok(true)
    }

    async fn contradict(
        &self,
        source: &str,
        event_id: &str,
        note: &Note,
        reference: ReferenceWrite,
    ) -> Result<bool, StoreError> {
        let (mut tables, now) = (self.tables(), self.clock.now());
        let kept = tables.evidence.get_mut(&(source.to_owned(), event_id.to_owned()));
        let Some(kept) = kept.filter(|kept| kept.outcome.is_none()) else { return Ok(false) };
        kept.outcome = Some(StatementOutcome::Contradicted);
        let id = kept.statement.operation_id;
        tables.notes.push((Some(id), NoteTaken { at: now, note: note.clone() }));
        if reference == ReferenceWrite::TakeBack {
            let Tables { references, notes, .. } = &mut *tables;
            take_references_back(references, notes, id, now);
        }
        Ok(true)
    }

    async fn reap_statements(&self, retention: Duration, limit: usize) -> Result<usize, StoreError> {
        let (mut tables, now) = (self.tables(), self.clock.now());
        let open: BTreeSet<OperationId> = {
            let open = tables.records.values().filter(|record| record.head.state.is_open());
            open.map(|record| record.operation_id).collect()
        };
        let is_needed =
            |kept: &StoredStatement| kept.outcome.is_none() && open.contains(&kept.statement.operation_id);
        let is_old = |kept: &StoredStatement| kept.received_at.plus(retention) <= now && !is_needed(kept);
        let old: Vec<_> = tables.evidence.iter().filter(|(_, kept)| is_old(kept)).collect();
        let old: Vec<_> = old.into_iter().map(|(name, _)| name.clone()).take(limit).collect();
        old.iter().for_each(|name| drop(tables.evidence.remove(name)));
        Ok(old.len())
    }
}
