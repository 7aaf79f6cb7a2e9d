//! Store for tests whose lists and counts wait until a test lets them go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use semel_core::{
    AgedRecord, Census, Change, Claim, Filter, Formats, Item, Note, NoteTaken, OperationId, OperationName,
    Principal, Progress, Record, RecordId, RecordPage, Records, ReferenceEntry, Snapshot, Store, StoreAnswer,
    StoreError, StoredRequest, Tier, Timestamp, Upkeep, WaitingFilter, WaitingPage,
};
use semel_stores::MemoryStore;
use tokio::sync::Semaphore;

/// Empty store whose pages find nothing and are followed by others. Each waits for a permit of the gate.
pub(crate) struct SlowStore {
    inner: Arc<MemoryStore>,
    /// A permit for each read that has begun.
    pub(crate) begun: Semaphore,
    /// A permit for each read that may end.
    pub(crate) gate: Semaphore,
    reads: AtomicUsize,
}

impl SlowStore {
    pub(crate) fn new(inner: Arc<MemoryStore>) -> SlowStore {
        SlowStore { inner, begun: Semaphore::new(0), gate: Semaphore::new(0), reads: AtomicUsize::new(0) }
    }

    /// Waits until a further read has begun.
    pub(crate) async fn begun(&self) {
        self.begun.acquire().await.expect("it is never closed").forget();
    }

    /// Returns the number of reads that have begun.
    pub(crate) fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    async fn wait(&self) {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.begun.add_permits(1);
        self.gate.acquire().await.expect("it is never closed").forget();
    }
}

#[async_trait]
impl Store for SlowStore {
    async fn claim(&self, claim: &Claim) -> Result<StoreAnswer, StoreError> {
        self.inner.claim(claim).await
    }

    async fn apply(&self, id: &RecordId, change: &Change) -> Result<StoreAnswer, StoreError> {
        self.inner.apply(id, change).await
    }

    async fn get(&self, id: &RecordId) -> Result<Snapshot, StoreError> {
        self.inner.get(id).await
    }

    async fn find_own(&self, id: OperationId, principal: &Principal) -> Result<Snapshot, StoreError> {
        self.inner.find_own(id, principal).await
    }

    async fn waiting(&self, filter: &WaitingFilter) -> Result<WaitingPage, StoreError> {
        self.inner.waiting(filter).await
    }

    async fn announce(&self, id: OperationId, items: &[Item]) -> Result<(), StoreError> {
        self.inner.announce(id, items).await
    }

    async fn progress(&self, id: OperationId) -> Result<Vec<Progress>, StoreError> {
        self.inner.progress(id).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.inner.now().await
    }

    fn tier(&self) -> Tier {
        self.inner.tier()
    }

    fn formats(&self) -> Formats {
        self.inner.formats()
    }
}

#[async_trait]
impl Upkeep for SlowStore {
    async fn sweep(&self, limit: usize) -> Result<Vec<AgedRecord>, StoreError> {
        self.inner.sweep(limit).await
    }

    async fn reap(&self, limit: usize) -> Result<Vec<AgedRecord>, StoreError> {
        self.inner.reap(limit).await
    }

    async fn census(&self) -> Result<Census, StoreError> {
        self.wait().await;
        self.inner.census().await
    }

    async fn due_to_reconcile(&self, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.inner.due_to_reconcile(limit).await
    }

    async fn try_commit(&self) -> Result<(), StoreError> {
        self.inner.try_commit().await
    }
}

#[async_trait]
impl Records for SlowStore {
    async fn find(&self, id: OperationId) -> Result<Snapshot, StoreError> {
        self.inner.find(id).await
    }

    async fn notes(&self, id: OperationId) -> Result<Vec<NoteTaken>, StoreError> {
        self.inner.notes(id).await
    }

    async fn read_request(&self, id: OperationId, note: &Note) -> Result<Option<StoredRequest>, StoreError> {
        self.inner.read_request(id, note).await
    }

    async fn list(&self, _: &Filter) -> Result<RecordPage, StoreError> {
        self.wait().await;
        Ok(RecordPage { next: Some(OperationId::from_bytes([7; 16])), ..RecordPage::default() })
    }

    async fn find_by_reference(
        &self,
        tenant: &str,
        operation: &OperationName,
        reference: &str,
    ) -> Result<Vec<ReferenceEntry>, StoreError> {
        self.inner.find_by_reference(tenant, operation, reference).await
    }

    async fn operations(&self) -> Result<Vec<String>, StoreError> {
        self.inner.operations().await
    }
}
