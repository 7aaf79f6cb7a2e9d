//! Shows records, their notes and their stored requests.

use std::time::Duration;

use async_trait::async_trait;
use semel_core::{
    AuditEntry, AuditId, AuditLog, Filter, Note, NoteTaken, OperationId, OperationName, Principal,
    RecordPage, Records, ReferenceEntry, Snapshot, StoreError, StoredRequest,
};

use super::clock::now;
use super::errors::DbError;
use super::executor::{Executor, SqlRow, SqlValue};
use super::queries::{self, snapshot};
use super::rows::record_columns;
use super::side_link::LentLink;
use super::{PostgresStore, lists, schema};

const FIND: &str = concat!(
    "SELECT n.now, ",
    record_columns!(),
    " FROM ",
    now!(),
    " LEFT JOIN semel_records ON operation_id = $2"
);

/// Sends nothing of another principal's row, and fetches none of its large values.
const FIND_OWN: &str = concat!(
    "SELECT n.now, ",
    record_columns!(),
    " FROM ",
    now!(),
    " LEFT JOIN semel_records ON operation_id = $2 AND tenant = $3 AND caller = $4"
);

/// Returns the one row with the record and the time.
fn found(rows: Vec<SqlRow>) -> Result<Snapshot, DbError> {
    let row = rows.into_iter().next().ok_or_else(|| DbError::unreadable("now", "there is no time"))?;
    let (found, now) = snapshot(row)?;
    Ok(Snapshot { record: found.map(|found| found.record), now })
}

/// Finds the record of an operation id if it belongs to this principal.
pub(super) async fn find_own(
    lent: &mut LentLink,
    id: OperationId,
    principal: &Principal,
) -> Result<Snapshot, DbError> {
    let values = [
        SqlValue::Int(Some(lent.offset)),
        SqlValue::Uuid(*id.as_bytes()),
        SqlValue::Text(Some(principal.tenant())),
        SqlValue::Text(Some(principal.caller())),
    ];
    found(lent.link()?.query(FIND_OWN, &values).await?)
}

#[async_trait]
impl Records for PostgresStore {
    async fn find(&self, operation_id: OperationId) -> Result<Snapshot, StoreError> {
        self.polls
            .with(move |mut lent| async move {
                let values = [SqlValue::Int(Some(lent.offset)), SqlValue::Uuid(*operation_id.as_bytes())];
                found(lent.link()?.query(FIND, &values).await?)
            })
            .await
    }

    async fn notes(&self, operation_id: OperationId) -> Result<Vec<NoteTaken>, StoreError> {
        self.polls.with(move |mut lent| async move { queries::notes(lent.link()?, operation_id).await }).await
    }

    async fn read_request(
        &self,
        operation_id: OperationId,
        note: &Note,
    ) -> Result<Option<StoredRequest>, StoreError> {
        let note = note.clone();
        self.polls
            .with(move |mut lent| async move {
                let offset = Duration::from_millis(u64::try_from(lent.offset).unwrap_or(0));
                let now = schema::now(lent.link()?).await?.plus(offset);
                queries::read_request(lent.link()?, operation_id, &note, now).await
            })
            .await
    }

    async fn list(&self, filter: &Filter) -> Result<RecordPage, StoreError> {
        let filter = filter.clone();
        self.reports.with(move |mut lent| async move { lists::list(lent.link()?, &filter).await }).await
    }

    async fn find_by_reference(
        &self,
        tenant: &str,
        operation: &OperationName,
        reference: &str,
    ) -> Result<Vec<ReferenceEntry>, StoreError> {
        let (tenant, operation, reference) = (tenant.to_owned(), operation.clone(), reference.to_owned());
        self.polls
            .with(move |mut lent| async move {
                lists::find_by_reference(lent.link()?, &tenant, &operation, &reference).await
            })
            .await
    }

    async fn operations(&self) -> Result<Vec<String>, StoreError> {
        self.reports.with(|mut lent| async move { lists::operations(lent.link()?).await }).await
    }
}

#[async_trait]
impl AuditLog for PostgresStore {
    async fn audit(&self, before: Option<AuditId>, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        self.reports
            .with(move |mut lent| async move { queries::audit(lent.link()?, before, limit).await })
            .await
    }

    async fn take_note(&self, operation_id: OperationId, note: &Note) -> Result<(), StoreError> {
        let note = note.clone();
        self.polls
            .with(move |mut lent| async move {
                let offset = Duration::from_millis(u64::try_from(lent.offset).unwrap_or(0));
                let now = schema::now(lent.link()?).await?.plus(offset);
                queries::take_note(lent.link()?, operation_id, &note, now).await
            })
            .await
    }
}
