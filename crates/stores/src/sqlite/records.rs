//! Sweeps, reaps and counts records, and shows them with their notes and their stored requests.

use async_trait::async_trait;
use semel_core::{
    AgedRecord, AuditEntry, AuditId, AuditLog, Census, Filter, Note, NoteTaken, OperationId, OperationName,
    Record, RecordPage, Records, ReferenceEntry, Snapshot, StoreError, StoredRequest, Upkeep,
};
use semel_faults::Point;

use super::job::{Task, WriteTransaction};
use super::{SqliteStore, change, lists, queries};

#[async_trait]
impl Upkeep for SqliteStore {
    async fn sweep(&self, limit: usize) -> Result<Vec<AgedRecord>, StoreError> {
        self.read_schema_again().await;
        let task = Task::new(move |turn| change::sweep(turn.connection, limit, turn.now));
        self.write(task.held_at(Some(Point::SweepSent))).await
    }

    async fn reap(&self, limit: usize) -> Result<Vec<AgedRecord>, StoreError> {
        let task = Task::new(move |turn| change::reap(turn.connection, limit, turn.now));
        self.write(task.held_at(Some(Point::ReapSent))).await
    }

    async fn census(&self) -> Result<Census, StoreError> {
        self.read(|connection, _| lists::census(connection)).await
    }

    async fn due_to_reconcile(&self, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.read(move |connection, now| queries::due_to_reconcile(connection, limit, now)).await
    }
}

#[async_trait]
impl Records for SqliteStore {
    async fn find(&self, operation_id: OperationId) -> Result<Snapshot, StoreError> {
        self.read(move |connection, now| {
            Ok(Snapshot { record: queries::find(connection, operation_id)?, now })
        })
        .await
    }

    async fn notes(&self, operation_id: OperationId) -> Result<Vec<NoteTaken>, StoreError> {
        self.read(move |connection, _| queries::notes(connection, operation_id)).await
    }

    /// Writes the note first and reads then: no request is read without a note.
    async fn read_request(
        &self,
        operation_id: OperationId,
        note: &Note,
    ) -> Result<Option<StoredRequest>, StoreError> {
        let note = note.clone();
        // A note that is taken twice is about a request that was read at least once.
        let take_note = move |turn: &mut WriteTransaction<'_>| {
            change::note_reading(turn.connection, operation_id, &note, turn.now)
        };
        match self.write(Task::new(take_note)).await? {
            0 => Ok(None),
            _ => self.read(move |connection, _| queries::request(connection, operation_id)).await,
        }
    }

    async fn list(&self, filter: &Filter) -> Result<RecordPage, StoreError> {
        let filter = filter.clone();
        self.read(move |connection, _| lists::list(connection, &filter)).await
    }

    async fn find_by_reference(
        &self,
        tenant: &str,
        operation: &OperationName,
        reference: &str,
    ) -> Result<Vec<ReferenceEntry>, StoreError> {
        let (tenant, operation, reference) = (tenant.to_owned(), operation.clone(), reference.to_owned());
        self.read(move |connection, _| {
            lists::find_by_reference(connection, (&tenant, &operation, &reference))
        })
        .await
    }

    async fn operations(&self) -> Result<Vec<String>, StoreError> {
        self.read(|connection, _| lists::operations(connection)).await
    }
}

#[async_trait]
impl AuditLog for SqliteStore {
    async fn audit(&self, before: Option<AuditId>, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        self.read(move |connection, _| queries::audit(connection, before, limit)).await
    }

    async fn take_note(&self, operation_id: OperationId, note: &Note) -> Result<(), StoreError> {
        let note = note.clone();
        let take_note = move |turn: &mut WriteTransaction<'_>| {
            change::note_alone(turn.connection, operation_id, &note, turn.now)
        };
        self.write(Task::new(take_note)).await.map(drop)
    }
}
