//! Shows records, their notes and their stored requests, without unreadable ones.

use std::time::Duration;

use async_trait::async_trait;
use semel_core::{
    AuditEntry, AuditId, AuditLog, Filter, Note, NoteTaken, OperationId, Principal, Record, Records,
    Snapshot, StateName, StoreError, StoredRequest, Timestamp, UnreadableRecord,
};

use super::clock::now;
use super::errors::DbError;
use super::executor::{Executor, SqlRow, SqlValue};
use super::queries::{self, snapshot};
use super::rows::{record, record_columns, record_columns_without_response};
use super::side_link::LentLink;
use super::{PostgresStore, schema};

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

const LIST: &str = concat!(
    "SELECT ",
    record_columns_without_response!(),
    " FROM semel_records
      WHERE ($1::text IS NULL OR state = $1)
        AND ($2::text IS NULL OR operation = $2)
        AND ($3::text IS NULL OR tenant = $3)
        AND ($4::bigint IS NULL OR updated_at < $4)
        AND operation_id > $5
      ORDER BY operation_id LIMIT $6"
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

/// Returns the records that match the filter, each or the reason why it is unreadable.
async fn listed(
    lent: &mut LentLink,
    filter: &Filter,
) -> Result<Vec<Result<Record, UnreadableRecord>>, DbError> {
    let values = [
        SqlValue::Text(filter.state.map(StateName::as_str)),
        SqlValue::Text(filter.operation.as_deref()),
        SqlValue::Text(filter.tenant.as_deref()),
        SqlValue::Int(filter.updated_before.map(Timestamp::as_millis)),
        SqlValue::Uuid(filter.after.map_or([0; 16], |id| *id.as_bytes())),
        SqlValue::Int(Some(i64::try_from(filter.limit).unwrap_or(i64::MAX))),
    ];
    let rows = lent.link()?.query(LIST, &values).await?;
    let read = |row: SqlRow| {
        let operation_id = OperationId::from_bytes(row.uuid(1).unwrap_or_default());
        let read = record(row, 0).map(|found| found.record);
        read.map_err(|why| UnreadableRecord { operation_id, why: why.to_string() })
    };
    Ok(rows.into_iter().map(read).collect())
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

    async fn list(&self, filter: &Filter) -> Result<Vec<Record>, StoreError> {
        let filter = filter.clone();
        let listed =
            self.reports.with(move |mut lent| async move { listed(&mut lent, &filter).await }).await?;
        Ok(listed.into_iter().filter_map(Result::ok).collect())
    }

    async fn unreadable(&self, filter: &Filter) -> Result<Vec<UnreadableRecord>, StoreError> {
        let filter = filter.clone();
        let listed =
            self.reports.with(move |mut lent| async move { listed(&mut lent, &filter).await }).await?;
        Ok(listed.into_iter().filter_map(Result::err).collect())
    }
}

#[async_trait]
impl AuditLog for PostgresStore {
    async fn audit(&self, before: Option<AuditId>, limit: usize) -> Result<Vec<AuditEntry>, StoreError> {
        self.reports
            .with(move |mut lent| async move { queries::audit(lent.link()?, before, limit).await })
            .await
    }
}
