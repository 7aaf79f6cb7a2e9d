//! Tests of the suite itself: it must reject every broken store, and for the right reason.

use std::sync::Arc;
use std::time::Duration;

use semel_core::{
    AgedRecord, Census, Change, Claim, Filter, Formats, Hold, HoldChange, HoldTarget, Holds, Item, Note,
    NoteTaken, OperationId, OperationName, Principal, Progress, Record, RecordId, RecordPage, Records,
    ReferenceEntry, Snapshot, Store, StoreAnswer, StoreError, StoredRequest, Tier, Timestamp, Upkeep,
    WaitingFilter, WaitingPage,
};
use semel_stores::MemoryStore;
use semel_testkit::ManualClock;
use semel_testkit::broken::{BrokenSubject, Flaw};
use semel_testkit::conformance::{self, Capabilities, Subject};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_suite_rejects_every_broken_store() {
    for (flaw, noticed_by) in Flaw::ALL {
        let failed = conformance::failures(|| BrokenSubject::new(Some(flaw))).await;
        assert!(failed.contains(&noticed_by), "{flaw:?} was not noticed by {noticed_by}, only by {failed:?}");
        println!("{flaw:?} fails {} of {} cases", failed.len(), conformance::CASES.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_conformance_suite_passes_a_store_without_a_flaw() {
    let failed = conformance::failures(|| BrokenSubject::new(None)).await;
    assert!(failed.is_empty(), "{failed:?}");
}

/// A store that keeps everything except business references.
struct WithoutReferences(MemoryStore);

#[async_trait::async_trait]
impl Store for WithoutReferences {
    async fn claim(&self, claim: &Claim) -> Result<StoreAnswer, StoreError> {
        self.0.claim(&Claim { business_reference: None, ..claim.clone() }).await
    }

    async fn apply(&self, id: &RecordId, change: &Change) -> Result<StoreAnswer, StoreError> {
        self.0.apply(id, change).await
    }

    async fn get(&self, id: &RecordId) -> Result<Snapshot, StoreError> {
        self.0.get(id).await
    }

    async fn find_own(
        &self,
        operation_id: OperationId,
        principal: &Principal,
    ) -> Result<Snapshot, StoreError> {
        self.0.find_own(operation_id, principal).await
    }

    async fn waiting(&self, filter: &WaitingFilter) -> Result<WaitingPage, StoreError> {
        self.0.waiting(filter).await
    }

    async fn announce(&self, operation_id: OperationId, items: &[Item]) -> Result<(), StoreError> {
        self.0.announce(operation_id, items).await
    }

    async fn progress(&self, operation_id: OperationId) -> Result<Vec<Progress>, StoreError> {
        self.0.progress(operation_id).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.0.now().await
    }

    fn tier(&self) -> Tier {
        self.0.tier()
    }

    fn formats(&self) -> Formats {
        self.0.formats()
    }
}

#[async_trait::async_trait]
impl Upkeep for WithoutReferences {
    async fn sweep(&self, limit: usize) -> Result<Vec<AgedRecord>, StoreError> {
        self.0.sweep(limit).await
    }

    async fn reap(&self, limit: usize) -> Result<Vec<AgedRecord>, StoreError> {
        self.0.reap(limit).await
    }

    async fn census(&self) -> Result<Census, StoreError> {
        self.0.census().await
    }

    async fn due_to_reconcile(&self, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.0.due_to_reconcile(limit).await
    }

    async fn try_commit(&self) -> Result<(), StoreError> {
        self.0.try_commit().await
    }
}

#[async_trait::async_trait]
impl Records for WithoutReferences {
    async fn find(&self, operation_id: OperationId) -> Result<Snapshot, StoreError> {
        self.0.find(operation_id).await
    }

    async fn notes(&self, operation_id: OperationId) -> Result<Vec<NoteTaken>, StoreError> {
        self.0.notes(operation_id).await
    }

    async fn read_request(
        &self,
        operation_id: OperationId,
        note: &Note,
    ) -> Result<Option<StoredRequest>, StoreError> {
        self.0.read_request(operation_id, note).await
    }

    async fn list(&self, filter: &Filter) -> Result<RecordPage, StoreError> {
        self.0.list(filter).await
    }

    async fn find_by_reference(
        &self,
        tenant: &str,
        operation: &OperationName,
        reference: &str,
    ) -> Result<Vec<ReferenceEntry>, StoreError> {
        self.0.find_by_reference(tenant, operation, reference).await
    }

    async fn operations(&self) -> Result<Vec<String>, StoreError> {
        self.0.operations().await
    }
}

#[async_trait::async_trait]
impl Holds for WithoutReferences {
    async fn holds(&self) -> Result<Vec<Hold>, StoreError> {
        self.0.holds().await
    }

    async fn hold(&self, target: &HoldTarget, note: &Note) -> Result<HoldChange, StoreError> {
        self.0.hold(target, note).await
    }

    async fn lift(&self, target: &HoldTarget, note: &Note) -> Result<HoldChange, StoreError> {
        self.0.lift(target, note).await
    }
}

struct WithoutReferencesSubject(Arc<WithoutReferences>, ManualClock);

#[async_trait::async_trait]
impl Subject for WithoutReferencesSubject {
    fn store(&self) -> Arc<dyn Records> {
        self.0.clone()
    }

    fn holds(&self) -> Arc<dyn Holds> {
        self.0.clone()
    }

    fn advance(&self, by: Duration) {
        self.1.advance(by);
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { durable: false, loses_answers: false, references: true }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_suite_rejects_a_store_that_forgets_references() {
    let failed = conformance::failures(|| {
        let clock = ManualClock::new();
        WithoutReferencesSubject(Arc::new(WithoutReferences(MemoryStore::with_clock(clock.clone()))), clock)
    })
    .await;
    assert!(failed.contains(&"a_business_reference_is_held_by_one_command"), "{failed:?}");
    assert!(failed.iter().all(|name| name.contains("reference") || name.contains("former")), "{failed:?}");
}
