//! Lists of records for operators. A list of open records reads only these; any other reads a bounded part of the table
//! for each page.

use semel_core::{
    Filter, OperationId, OperationName, Record, RecordPage, ReferenceEntry, StateName, Timestamp,
    UnreadableRecord,
};

use super::errors::DbError;
use super::executor::{Executor, SqlRow, SqlValue};
use super::rows::{record, record_columns_without_response};

/// Maximum number of records that one page of a list reads.
const MAX_SCAN: i64 = 10_000;

/// Maximum number of commands with one business reference that are returned.
const MAX_ENTRIES: i64 = 1_000;

/// Highest operation id: the end of a scan that reads to the last record.
const LAST_ID: [u8; 16] = [u8::MAX; 16];

/// Condition of a list on the columns of a record. `$8` is the number of wanted records.
macro_rules! matches_filter {
    () => {
        "($1::text IS NULL OR state = $1) AND ($2::text IS NULL OR operation = $2)
         AND ($3::text IS NULL OR tenant = $3) AND ($4::text IS NULL OR caller = $4)
         AND ($5::bigint IS NULL OR state_since >= $5) AND ($6::bigint IS NULL OR state_since < $6)
         AND operation_id > $7"
    };
}

/// Lists the records with this condition, up to the end of the scan, `$9`.
macro_rules! list {
    ($condition:literal) => {
        concat!(
            "SELECT ",
            record_columns_without_response!(),
            " FROM semel_records WHERE ",
            $condition,
            " AND ",
            matches_filter!(),
            " AND operation_id <= $9 ORDER BY operation_id LIMIT $8"
        )
    };
}

/// Selects the end of a scan: the last of the next `$2` operation ids after `$1` with this condition.
macro_rules! end_of_scan {
    ($condition:literal) => {
        concat!(
            "SELECT operation_id FROM semel_records WHERE ",
            $condition,
            " AND operation_id > $1 ORDER BY operation_id LIMIT 1 OFFSET $2 - 1"
        )
    };
}

/// Lists records in any state.
const LIST: &str = list!("true");

/// Selects the end of the scan of [`LIST`].
const LIST_END: &str = end_of_scan!("true");

/// Lists records in state `Unknown`, in the order of their partial index.
pub(super) const LIST_UNKNOWN: &str = list!("reconcile_after IS NOT NULL");

/// Selects the end of the scan of [`LIST_UNKNOWN`].
const LIST_UNKNOWN_END: &str = end_of_scan!("reconcile_after IS NOT NULL");

/// Lists records with a deadline: claimed and processing ones. They have a partial index in another order, so all of
/// them are read first. Without that, the server could go through the much larger index of all operation ids, at whose
/// end the newest records are.
pub(super) const LIST_DUE: &str = concat!(
    "WITH due AS MATERIALIZED (
         SELECT operation_id FROM semel_records WHERE due_at IS NOT NULL AND ",
    matches_filter!(),
    ") SELECT ",
    record_columns_without_response!(),
    " FROM semel_records
      WHERE operation_id = ANY (ARRAY(SELECT operation_id FROM due ORDER BY operation_id LIMIT $8))
      ORDER BY operation_id"
);

/// Lists the commands that have, or had, a business reference, the holder first.
const FIND_BY_REFERENCE: &str = "
    SELECT operation_id, given_back::int::bigint FROM semel_references WHERE tenant = $1 AND operation = $2 AND reference = $3
    ORDER BY given_back, operation_id LIMIT $4";

/// Lists the operations that have records. Reads the whole table: no index has the name.
const OPERATIONS: &str = "SELECT DISTINCT operation FROM semel_records ORDER BY operation";

/// Returns a page of the records that match the filter, without their responses.
pub(super) async fn list(db: &mut impl Executor, filter: &Filter) -> Result<RecordPage, DbError> {
    let limit = filter.limit.max(1);
    let after = filter.after.map_or([0; 16], |id| *id.as_bytes());
    let (list, end) = match filter.state {
        Some(StateName::Claimed | StateName::Processing) => (LIST_DUE, None),
        Some(StateName::Unknown) => (LIST_UNKNOWN, Some(LIST_UNKNOWN_END)),
        None
        | Some(
            StateName::Succeeded | StateName::FailedFinal | StateName::FailedRetryable | StateName::Expired,
        ) => (LIST, Some(LIST_END)),
    };
    let mut values = vec![
        SqlValue::Text(filter.state.map(StateName::as_str)),
        SqlValue::Text(filter.operation.as_deref()),
        SqlValue::Text(filter.tenant.as_deref()),
        SqlValue::Text(filter.caller.as_deref()),
        SqlValue::Int(filter.since.map(Timestamp::as_millis)),
        SqlValue::Int(filter.until.map(Timestamp::as_millis)),
        SqlValue::Uuid(after),
        // One more than wanted tells that there is another page.
        SqlValue::Int(Some(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1))),
    ];
    // Read first: records that are inserted or deleted in between do not move the end of this scan.
    let end = match end {
        Some(end) => {
            let end = db.query(end, &[SqlValue::Uuid(after), SqlValue::Int(Some(MAX_SCAN))]).await?;
            let end = end.first().and_then(|row| row.uuid(0));
            values.push(SqlValue::Uuid(end.unwrap_or(LAST_ID)));
            end
        }
        None => None,
    };
    let mut rows = db.query(list, &values).await?;
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let mut page = RecordPage {
        next: if has_more { rows.last().and_then(|row| row.uuid(1)) } else { end }
            .map(OperationId::from_bytes),
        ..RecordPage::default()
    };
    for row in rows {
        match read(row) {
            Ok(found) => page.records.push(found),
            Err(unreadable) => page.unreadable.push(unreadable),
        }
    }
    Ok(page)
}

/// Returns the record of a row, or the reason why it is unreadable.
fn read(row: SqlRow) -> Result<Record, UnreadableRecord> {
    let operation_id = OperationId::from_bytes(row.uuid(1).unwrap_or_default());
    let read = record(row, 0).map(|found| found.record);
    read.map_err(|why| UnreadableRecord { operation_id, why: why.to_string() })
}

/// Returns the commands with this business reference, the holder first.
pub(super) async fn find_by_reference(
    db: &mut impl Executor,
    tenant: &str,
    operation: &OperationName,
    reference: &str,
) -> Result<Vec<ReferenceEntry>, DbError> {
    let values = [
        SqlValue::Text(Some(tenant)),
        SqlValue::Text(Some(operation.as_str())),
        SqlValue::Text(Some(reference)),
        SqlValue::Int(Some(MAX_ENTRIES)),
    ];
    let rows = db.query(FIND_BY_REFERENCE, &values).await?;
    let entry = |row: &SqlRow| {
        let operation_id = OperationId::from_bytes(row.uuid(0)?);
        Some(ReferenceEntry { operation_id, is_held: row.int(1) == Some(0) })
    };
    Ok(rows.iter().filter_map(entry).collect())
}

/// Returns the names of the operations that have records.
pub(super) async fn operations(db: &mut impl Executor) -> Result<Vec<String>, DbError> {
    let rows = db.query(OPERATIONS, &[]).await?;
    Ok(rows.iter().filter_map(|row| row.text(0)).map(str::to_owned).collect())
}
