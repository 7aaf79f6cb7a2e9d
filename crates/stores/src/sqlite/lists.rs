//! Lists and counts of records for operators, in milliseconds however many there are: records whose outcome is open come
//! from the small partial indexes, and of the others a call reads a bounded number.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, Row, named_params, params};
use semel_core::{
    Census, CensusGroup, Filter, OperationId, OperationName, Record, RecordPage, ReferenceEntry, StateName,
    Timestamp, UnreadableRecord,
};

use super::errors::is_unreadable;
use super::rows::{WITHOUT_RESPONSE, damaged_column, record};

/// Maximum number of records that one page of a list reads, if no small index has the state.
const MAX_SCAN: usize = 2_000;

/// Largest span of row numbers in which settled records are counted one by one.
const MAX_COUNTED: i64 = 20_000;

/// Number of row numbers that the estimate of a larger span looks at.
const PROBES: i64 = 2_000;

/// Maximum number of commands with one business reference that are returned.
const MAX_ENTRIES: i64 = 1_000;

/// Tables and conditions of a list, for states with a small index and for all others.
const WAITING: &str = "semel_records INDEXED BY semel_records_due WHERE due_at IS NOT NULL";
const UNKNOWN: &str = "semel_records INDEXED BY semel_records_unknown WHERE reconcile_after IS NOT NULL";
const ALL: &str = "semel_records WHERE true";

/// Returns a page of the records that match the filter, without their responses.
pub(super) fn list(connection: &Connection, filter: &Filter) -> rusqlite::Result<RecordPage> {
    let (source, end) = match filter.state {
        Some(StateName::Claimed | StateName::Processing) => (WAITING, None),
        Some(StateName::Unknown) => (UNKNOWN, None),
        None
        | Some(
            StateName::Succeeded | StateName::FailedFinal | StateName::FailedRetryable | StateName::Expired,
        ) => (ALL, end_of_scan(connection, filter.after)?),
    };
    let sql = format!(
        "SELECT {WITHOUT_RESPONSE} FROM {source}
           AND (:state IS NULL OR state = :state)
           AND (:operation IS NULL OR operation = :operation)
           AND (:tenant IS NULL OR tenant = :tenant)
           AND (:caller IS NULL OR caller = :caller)
           AND (:since IS NULL OR state_since >= :since)
           AND (:until IS NULL OR state_since < :until)
           AND operation_id > :after AND (:end IS NULL OR operation_id <= :end)
         ORDER BY operation_id LIMIT :limit"
    );
    let limit = filter.limit.max(1);
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(named_params! {
        ":state": filter.state.map(StateName::as_str),
        ":operation": filter.operation,
        ":tenant": filter.tenant,
        ":caller": filter.caller,
        ":since": filter.since.map(Timestamp::as_millis),
        ":until": filter.until.map(Timestamp::as_millis),
        ":after": after(filter.after),
        ":end": end.as_ref().map(OperationId::as_bytes),
        // One more than wanted tells that there is another page.
        ":limit": i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1),
    })?;
    let (mut page, mut last) = (RecordPage::default(), None);
    while let Some(row) = rows.next()? {
        if page.records.len() + page.unreadable.len() == limit {
            page.next = last;
            return Ok(page);
        }
        match read(row)? {
            Ok(found) => {
                last = Some(found.operation_id);
                page.records.push(found);
            }
            Err(unreadable) => {
                last = Some(unreadable.operation_id);
                page.unreadable.push(unreadable);
            }
        }
    }
    page.next = end;
    Ok(page)
}

/// Returns the record of a row, or the reason why it is unreadable.
fn read(row: &Row<'_>) -> rusqlite::Result<Result<Record, UnreadableRecord>> {
    match record(row) {
        Err(why) if is_unreadable(&why) => {
            let operation_id = OperationId::from_bytes(row.get("operation_id").unwrap_or_default());
            Ok(Err(UnreadableRecord { operation_id, why: why.to_string() }))
        }
        read => read.map(Ok),
    }
}

/// Returns the last operation id that a page reads; `None` if it reads to the end.
fn end_of_scan(connection: &Connection, last: Option<OperationId>) -> rusqlite::Result<Option<OperationId>> {
    let skipped = i64::try_from(MAX_SCAN - 1).unwrap_or(i64::MAX);
    connection
        .prepare_cached(
            "SELECT operation_id FROM semel_records WHERE operation_id > ?1 ORDER BY operation_id LIMIT 1 OFFSET ?2",
        )?
        .query_row(params![after(last), skipped], |row| row.get(0).map(OperationId::from_bytes))
        .optional()
}

/// Returns the operation id after which a page begins.
fn after(last: Option<OperationId>) -> [u8; 16] {
    last.map_or([0; 16], |id| *id.as_bytes())
}

/// Returns the commands with this business reference, the holder first.
pub(super) fn find_by_reference(
    connection: &Connection,
    (tenant, operation, reference): (&str, &OperationName, &str),
) -> rusqlite::Result<Vec<ReferenceEntry>> {
    connection
        .prepare_cached(
            "SELECT operation_id, given_back FROM semel_references WHERE tenant = ?1 AND operation = ?2 AND reference = ?3
             ORDER BY given_back, operation_id LIMIT ?4",
        )?
        .query_map(params![tenant, operation.as_str(), reference, MAX_ENTRIES], |row| {
            Ok(ReferenceEntry {
                operation_id: OperationId::from_bytes(row.get(0)?),
                is_held: !row.get::<_, bool>(1)?,
            })
        })?
        .collect()
}

/// Returns the operations that have records. Reads the whole table.
pub(super) fn operations(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    connection
        .prepare_cached("SELECT DISTINCT operation FROM semel_records ORDER BY operation")?
        .query_map([], |row| row.get(0))?
        .collect()
}

/// Returns the number of records of each operation in each state, and the size of the file. Records whose outcome is open
/// are counted, and the others too while there are few; more are estimated.
pub(super) fn census(connection: &Connection) -> rusqlite::Result<Census> {
    let mut groups = Vec::new();
    for source in [WAITING, UNKNOWN] {
        let sql = format!(
            "SELECT operation, state, count(*), min(state_since) FROM {source} GROUP BY operation, state"
        );
        let mut counted = connection.prepare_cached(&sql)?;
        let rows = counted.query_map([], |row| {
            let oldest = row.get::<_, Option<i64>>(3)?.map(Timestamp::from_millis);
            group(row.get(0)?, &row.get::<_, String>(1)?, row.get(2)?, false, oldest)
        })?;
        groups.extend(rows.collect::<rusqlite::Result<Vec<_>>>()?);
    }
    let (settled, is_estimate) = settled(connection)?;
    groups.extend(settled);
    let size = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()";
    let bytes = connection.prepare_cached(size)?.query_row([], |row| row.get::<_, i64>(0))?;
    Ok(Census { groups, bytes: u64::try_from(bytes).ok(), is_estimate })
}

/// Counts settled records, or estimates them from a sample of row numbers: the share of numbers that have such a row is
/// their share of the span.
fn settled(connection: &Connection) -> rusqlite::Result<(Vec<CensusGroup>, bool)> {
    let bounds = "SELECT (SELECT min(rowid) FROM semel_records), (SELECT max(rowid) FROM semel_records)";
    let bounds = connection
        .prepare_cached(bounds)?
        .query_row([], |row| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?)))?;
    let (Some(first), Some(last)) = bounds else { return Ok((Vec::new(), false)) };
    let span = last.saturating_sub(first).saturating_add(1);
    if span <= MAX_COUNTED {
        let sql = "SELECT operation, state, count(*) FROM semel_records
                   WHERE due_at IS NULL AND reconcile_after IS NULL GROUP BY operation, state";
        let counted: rusqlite::Result<_> = connection
            .prepare_cached(sql)?
            .query_map([], |row| group(row.get(0)?, &row.get::<_, String>(1)?, row.get(2)?, false, None))?
            .collect();
        return Ok((counted?, false));
    }
    let mut chance = connection.prepare_cached("SELECT abs(random() % ?1)")?;
    let mut probe = connection.prepare_cached(
        "SELECT operation, state FROM semel_records WHERE rowid = ?1 AND due_at IS NULL AND reconcile_after IS NULL",
    )?;
    let mut found: BTreeMap<(String, String), i64> = BTreeMap::new();
    // One number out of each of equal strata: evener than numbers out of the whole span.
    let begins = |number: i64| {
        first + i64::try_from(i128::from(number) * i128::from(span) / i128::from(PROBES)).unwrap_or(0)
    };
    for number in 0..PROBES {
        let (begin, end) = (begins(number), begins(number + 1));
        let at: i64 = chance.query_row([end - begin], |row| row.get(0))?;
        let row = probe.query_row([begin + at], |row| Ok((row.get(0)?, row.get(1)?)));
        if let Some(name) = row.optional()? {
            *found.entry(name).or_default() += 1;
        }
    }
    let estimate = |((operation, state), hits): ((String, String), i64)| {
        group(operation, &state, hits.saturating_mul(span) / PROBES, true, None)
    };
    Ok((found.into_iter().map(estimate).collect::<rusqlite::Result<_>>()?, true))
}

fn group(
    operation: String,
    state: &str,
    count: i64,
    is_estimate: bool,
    oldest: Option<Timestamp>,
) -> rusqlite::Result<CensusGroup> {
    let state = StateName::parse(state).ok_or_else(|| damaged_column("state", "it is not a state"))?;
    Ok(CensusGroup { operation, state, count: u64::try_from(count).unwrap_or(0), is_estimate, oldest })
}
