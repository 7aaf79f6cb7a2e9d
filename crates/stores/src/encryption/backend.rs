//! A complete sealed store: its messages are sealed as well, and data that is never sealed passes through.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use semel_core::quota::{Level, StoredAmount, Subject, Usage, UsageEntry, UsageFilter, UsageReport};
use semel_core::reseal::{KeptPage, KeyUse, Resealed, ResealedBatch, SealedPlace};
use semel_core::vault::SealedKind;
use semel_core::{
    AuditEntry, AuditId, AuditLog, Backend, Beat, Hold, HoldChange, HoldTarget, Holds, Note, OperationId,
    Outbox, Reseal, StoreError, StoreId, Timestamp, Vault, Witness, Witnessed,
};

use super::store::SealedStore;

#[async_trait]
impl<S: Backend + ?Sized> Backend for SealedStore<S> {
    async fn store_id(&self) -> Result<Option<StoreId>, StoreError> {
        self.inner.store_id().await
    }

    fn vault(&self) -> Option<Arc<dyn Vault>> {
        Some(self.vault.clone())
    }

    fn outbox(self: Arc<Self>) -> Option<Arc<dyn Outbox>> {
        let inner = self.inner.clone().outbox()?;
        Some(Arc::new(SealedStore::new(inner, self.vault.clone())))
    }
}

#[async_trait]
impl<S: Usage + ?Sized> Usage for SealedStore<S> {
    async fn prepare(&self) -> Result<(), StoreError> {
        self.inner.prepare().await
    }

    async fn report(&self, reports: &[(Subject, UsageReport)]) -> Result<Vec<Level>, StoreError> {
        self.inner.report(reports).await
    }

    async fn level(&self, subject: &Subject) -> Result<Level, StoreError> {
        self.inner.level(subject).await
    }

    async fn list_usage(
        &self,
        filter: &UsageFilter,
    ) -> Result<(Vec<(Subject, UsageEntry)>, Timestamp), StoreError> {
        self.inner.list_usage(filter).await
    }

    async fn kept(&self, subject: &Subject) -> Result<StoredAmount, StoreError> {
        self.inner.kept(subject).await
    }

    async fn forget(&self, idle: Duration, limit: usize) -> Result<usize, StoreError> {
        self.inner.forget(idle, limit).await
    }
}

#[async_trait]
impl<S: AuditLog + ?Sized> AuditLog for SealedStore<S> {
    async fn audit(&self, before: Option<AuditId>, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        self.inner.audit(before, limit).await
    }

    async fn take_note(&self, operation_id: OperationId, note: &Note) -> Result<(), StoreError> {
        self.inner.take_note(operation_id, note).await
    }
}

#[async_trait]
impl<S: Holds + ?Sized> Holds for SealedStore<S> {
    async fn holds(&self) -> Result<Vec<Hold>, StoreError> {
        self.inner.holds().await
    }

    async fn hold(&self, target: &HoldTarget, note: &Note) -> Result<HoldChange, StoreError> {
        self.inner.hold(target, note).await
    }

    async fn lift(&self, target: &HoldTarget, note: &Note) -> Result<HoldChange, StoreError> {
        self.inner.lift(target, note).await
    }
}

#[async_trait]
impl<S: Witnessed + ?Sized> Witnessed for SealedStore<S> {
    async fn beat(&self, witness: Witness) -> Result<Beat, StoreError> {
        self.inner.beat(witness).await
    }
}

#[async_trait]
impl<S: Reseal + ?Sized> Reseal for SealedStore<S> {
    async fn key_uses(&self) -> Result<Vec<KeyUse>, StoreError> {
        self.inner.key_uses().await
    }

    async fn kept_otherwise(
        &self,
        kind: SealedKind,
        current: &str,
        after: Option<&SealedPlace>,
        limit: usize,
    ) -> Result<KeptPage, StoreError> {
        self.inner.kept_otherwise(kind, current, after, limit).await
    }

    async fn reseal(&self, resealed: &[Resealed]) -> Result<ResealedBatch, StoreError> {
        self.inner.reseal(resealed).await
    }
}
