//! The reference store: one map behind one lock. It is what the contract means, with nothing around it.
//!
//! It forgets everything with its process (tier 3): for tests, and to read before the others.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use semel_core::{
    Answer, Change, Claim, Clock, Decision, Event, Filter, OperationId, Record, RecordId, Snapshot, State,
    Store, StoreError, StoredResult, SystemClock, Tier, Timestamp, transition,
};

/// Keeps records in memory.
pub struct MemoryStore {
    clock: Box<dyn Clock>,
    records: Mutex<HashMap<RecordId, Record>>,
}

impl MemoryStore {
    /// An empty store on the machine's clock.
    pub fn new() -> MemoryStore {
        MemoryStore::with_clock(SystemClock)
    }

    /// An empty store on this clock.
    pub fn with_clock(clock: impl Clock) -> MemoryStore {
        MemoryStore { clock: Box::new(clock), records: Mutex::default() }
    }

    fn records(&self) -> MutexGuard<'_, HashMap<RecordId, Record>> {
        // Each change is a single insert or remove, so a panic elsewhere leaves the map whole.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads, asks the protocol, writes: under one lock, so that nobody comes between.
    fn change(
        &self,
        id: RecordId,
        event: &Event,
        claim: Option<&Claim>,
        result: Option<&StoredResult>,
    ) -> Answer {
        let mut records = self.records();
        let now = self.clock.now();
        let before = records.get(&id);
        let step = transition(before.map(|record| &record.head), event, now);
        let record = Record::after(before, step.write, claim, result, now);
        match &record {
            Some(record) => records.insert(id, record.clone()),
            None => records.remove(&id),
        };
        Answer { decision: step.decision, record, now }
    }

    /// Lets time act on at most `limit` of the records that are `due`.
    fn age(&self, limit: usize, due: impl Fn(&State, Timestamp) -> bool) -> usize {
        let now = self.clock.now();
        let due: Vec<RecordId> = self
            .records()
            .values()
            .filter(|record| due(&record.head.state, now))
            .map(|record| record.id)
            .take(limit)
            .collect();
        // Somebody else may have come first: only what changed counts.
        let aged = |id: &RecordId| self.change(*id, &Event::Age, None, None).decision == Decision::Applied;
        due.iter().filter(|id| aged(id)).count()
    }
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn claim(&self, claim: &Claim) -> Result<Answer, StoreError> {
        Ok(self.change(claim.scope.record_id(), &Event::Claim(claim.attempt), Some(claim), None))
    }

    async fn apply(&self, id: &RecordId, change: &Change) -> Result<Answer, StoreError> {
        Ok(self.change(*id, change.event(), None, change.result()))
    }

    async fn get(&self, id: &RecordId) -> Result<Snapshot, StoreError> {
        Ok(Snapshot { record: self.records().get(id).cloned(), now: self.clock.now() })
    }

    async fn find(&self, operation_id: OperationId) -> Result<Snapshot, StoreError> {
        let records = self.records();
        let record = records.values().find(|record| record.operation_id == operation_id).cloned();
        Ok(Snapshot { record, now: self.clock.now() })
    }

    async fn list(&self, filter: &Filter) -> Result<Vec<Record>, StoreError> {
        let wanted = |record: &&Record| {
            filter.state.is_none_or(|state| record.head.state.name() == state)
                && filter.operation.as_ref().is_none_or(|name| record.operation.as_str() == name)
                && filter.tenant.as_ref().is_none_or(|tenant| record.principal.tenant() == tenant)
                && filter.updated_before.is_none_or(|moment| record.updated_at < moment)
                && filter.after.is_none_or(|last| record.operation_id > last)
        };
        let mut records: Vec<Record> = self.records().values().filter(wanted).cloned().collect();
        records.sort_by_key(|record| record.operation_id);
        records.truncate(filter.limit);
        Ok(records)
    }

    async fn sweep(&self, limit: usize) -> Result<usize, StoreError> {
        Ok(self.age(limit, |state, now| state.due_to_sweep().is_some_and(|due| due <= now)))
    }

    async fn reap(&self, limit: usize) -> Result<usize, StoreError> {
        Ok(self.age(limit, |state, now| state.expires_at().is_some_and(|due| due <= now)))
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.clock.now())
    }

    fn tier(&self) -> Tier {
        Tier::Three
    }
}
