//! Usage in a SQLite file: the use of each tenant and caller, and the size of their records.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};
use semel_core::quota::{Level, StoredAmount, Subject, Usage, UsageEntry, UsageFilter, UsageReport, Used};
use semel_core::{StoreError, Timestamp};

use super::SqliteStore;
use super::errors::stored;
use super::job::{Task, WriteTransaction};
use super::savepoint::all_or_nothing;

/// Creates the index for counts, only if they are needed: every command would pay for it.
const PREPARE: &str = "CREATE INDEX IF NOT EXISTS semel_records_usage ON semel_records (tenant, caller)";

/// Selects an entry. A tenant with all its callers has an empty caller's name; no caller's name is empty.
const GET: &str = "
    SELECT new_keys, lookups, used_at, new_keys_whole_at, lookups_whole_at FROM semel_usage
    WHERE tenant = ?1 AND caller = ?2";

const PUT: &str = "
    INSERT OR REPLACE INTO semel_usage
        (tenant, caller, new_keys, lookups, used_at, new_keys_whole_at, lookups_whole_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

const LIST: &str = "
    SELECT new_keys, lookups, used_at, new_keys_whole_at, lookups_whole_at, tenant, caller FROM semel_usage
    WHERE (tenant, caller) > (?1, ?2) ORDER BY tenant, caller LIMIT ?3";

const LIST_OF_TENANT: &str = "
    SELECT new_keys, lookups, used_at, new_keys_whole_at, lookups_whole_at, tenant, caller FROM semel_usage
    WHERE tenant = ?4 AND (tenant, caller) > (?1, ?2) ORDER BY tenant, caller LIMIT ?3";

const RECORDS: &str = "
    SELECT count(*), coalesce(sum(length(response)), 0) FROM semel_records
    WHERE tenant = ?1 AND (?2 = '' OR caller = ?2)";

/// Sums the bytes of requests. They are few, so their table comes first in the join.
const REQUESTS: &str = "
    SELECT coalesce(sum(length(request)), 0) FROM semel_requests CROSS JOIN semel_records USING (operation_id)
    WHERE tenant = ?1 AND (?2 = '' OR caller = ?2)";

const FORGET: &str = "
    DELETE FROM semel_usage WHERE (tenant, caller) IN (
        SELECT tenant, caller FROM semel_usage
        WHERE used_at <= ?1 AND new_keys_whole_at <= ?3 AND lookups_whole_at <= ?3 LIMIT ?2)";

fn report(
    connection: &Connection,
    reports: &[(Subject, UsageReport)],
    now: Timestamp,
) -> rusqlite::Result<Vec<Level>> {
    let mut put = connection.prepare_cached(PUT)?;
    let mut charge = |(subject, report): &(Subject, UsageReport)| {
        let entry = get(connection, subject)?.charged(report, now);
        put.execute(params![
            subject.tenant(),
            subject.caller().unwrap_or_default(),
            column(entry.used.new_keys),
            column(entry.used.lookups),
            entry.used_at.as_millis(),
            entry.new_keys_whole_at.as_millis(),
            entry.lookups_whole_at.as_millis(),
        ])?;
        Ok(entry.level(now))
    };
    reports.iter().map(&mut charge).collect()
}

fn get(connection: &Connection, subject: &Subject) -> rusqlite::Result<UsageEntry> {
    let whose = params![subject.tenant(), subject.caller().unwrap_or_default()];
    let found = connection.prepare_cached(GET)?.query_row(whose, entry).optional()?;
    Ok(found.unwrap_or(UsageEntry::UNUSED))
}

fn list(connection: &Connection, filter: &UsageFilter) -> rusqlite::Result<Vec<(Subject, UsageEntry)>> {
    let after = filter.after.as_ref();
    let tenant = after.map_or("", Subject::tenant);
    let caller = after.and_then(Subject::caller).unwrap_or_default();
    let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX);
    let named = |row: &Row<'_>| {
        let (tenant, caller): (String, String) = (row.get(5)?, row.get(6)?);
        let unreadable = || rusqlite::Error::InvalidColumnName("semel_usage: a name is none".to_owned());
        Ok((Subject::new(&tenant, &caller).ok_or_else(unreadable)?, entry(row)?))
    };
    match &filter.tenant {
        Some(only) => connection
            .prepare_cached(LIST_OF_TENANT)?
            .query_map(params![tenant, caller, limit, only], named)?
            .collect(),
        None => connection.prepare_cached(LIST)?.query_map(params![tenant, caller, limit], named)?.collect(),
    }
}

fn forget(connection: &Connection, idle: Duration, limit: usize, now: Timestamp) -> rusqlite::Result<usize> {
    let idle = i64::try_from(idle.as_millis()).unwrap_or(i64::MAX);
    let (now, limit) = (now.as_millis(), i64::try_from(limit).unwrap_or(i64::MAX));
    connection.execute(FORGET, params![now.saturating_sub(idle), limit, now])
}

fn entry(row: &Row<'_>) -> rusqlite::Result<UsageEntry> {
    let time = |column| row.get(column).map(Timestamp::from_millis);
    Ok(UsageEntry {
        used: Used { new_keys: number(row.get(0)?), lookups: number(row.get(1)?) },
        used_at: time(2)?,
        new_keys_whole_at: time(3)?,
        lookups_whole_at: time(4)?,
    })
}

fn kept(connection: &Connection, subject: &Subject) -> rusqlite::Result<StoredAmount> {
    let whose = params![subject.tenant(), subject.caller().unwrap_or_default()];
    let (keys, responses): (i64, i64) =
        connection.prepare_cached(RECORDS)?.query_row(whose, |row| Ok((row.get(0)?, row.get(1)?)))?;
    let requests: i64 = connection.prepare_cached(REQUESTS)?.query_row(whose, |row| row.get(0))?;
    Ok(StoredAmount { keys: number(keys), bytes: number(responses).saturating_add(number(requests)) })
}

fn number(column: i64) -> u64 {
    u64::try_from(column).unwrap_or(0)
}

fn column(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[async_trait]
impl Usage for SqliteStore {
    async fn prepare(&self) -> Result<(), StoreError> {
        self.write(Task::new(|turn| stored(turn.connection.execute(PREPARE, [])))).await.map(drop)
    }

    async fn report(&self, reports: &[(Subject, UsageReport)]) -> Result<Vec<Level>, StoreError> {
        let reports = reports.to_vec();
        // A report that is counted twice reaches its limit early.
        let report = move |turn: &mut WriteTransaction<'_>| {
            all_or_nothing(turn.connection, || stored(self::report(turn.connection, &reports, turn.now)))
        };
        self.write(Task::new(report)).await
    }

    async fn level(&self, subject: &Subject) -> Result<Level, StoreError> {
        let subject = subject.clone();
        self.read(move |connection, now| Ok(get(connection, &subject)?.level(now))).await
    }

    async fn list_usage(
        &self,
        filter: &UsageFilter,
    ) -> Result<(Vec<(Subject, UsageEntry)>, Timestamp), StoreError> {
        let filter = filter.clone();
        self.read(move |connection, now| Ok((list(connection, &filter)?, now))).await
    }

    async fn kept(&self, subject: &Subject) -> Result<StoredAmount, StoreError> {
        let subject = subject.clone();
        self.read(move |connection, _| kept(connection, &subject)).await
    }

    async fn forget(&self, idle: Duration, limit: usize) -> Result<usize, StoreError> {
        self.write(Task::new(move |turn| stored(forget(turn.connection, idle, limit, turn.now)))).await
    }
}
