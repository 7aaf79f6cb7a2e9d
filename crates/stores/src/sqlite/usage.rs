//! Usage in a SQLite file: what each tenant and caller has used, and what is kept for them.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, params};
use semel_core::quota::{Kept, Subject, Usage, Used};
use semel_core::{StoreError, Timestamp};

use super::SqliteStore;
use super::errors::store_error;
use super::writer::{Done, Work};

/// Made only where what is kept is counted: every command would pay for it.
const PREPARE: &str = "CREATE INDEX IF NOT EXISTS semel_records_usage ON semel_records (tenant, caller)";

/// A tenant with all its callers has no caller's name: no caller's name is empty.
const ADD: &str = "
    INSERT INTO semel_usage (tenant, caller, new_keys, lookups, used_at) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (tenant, caller) DO UPDATE SET new_keys = new_keys + ?3, lookups = lookups + ?4, used_at = ?5
    RETURNING new_keys, lookups";

const RECORDS: &str = "
    SELECT count(*), coalesce(sum(length(response)), 0) FROM semel_records
    WHERE tenant = ?1 AND (?2 = '' OR caller = ?2)";

/// There are few of them, so they come first.
const REQUESTS: &str = "
    SELECT coalesce(sum(length(request)), 0) FROM semel_requests CROSS JOIN semel_records USING (operation_id)
    WHERE tenant = ?1 AND (?2 = '' OR caller = ?2)";

const FORGET: &str = "
    DELETE FROM semel_usage WHERE (tenant, caller) IN (
        SELECT tenant, caller FROM semel_usage WHERE used_at <= ?1 LIMIT ?2)";

/// A change to what is counted.
pub(super) enum UsageWork {
    Prepare,
    Add(Vec<(Subject, Used)>),
    Forget(Duration, usize),
}

impl UsageWork {
    /// Makes the change within the transaction that is open.
    pub(super) fn perform(&self, connection: &Connection, now: Timestamp) -> Result<Done, StoreError> {
        let done = match self {
            UsageWork::Prepare => connection.execute(PREPARE, []).map(Done::Aged),
            UsageWork::Add(used) => add(connection, used, now).map(Done::Used),
            UsageWork::Forget(idle, limit) => {
                let idle = i64::try_from(idle.as_millis()).unwrap_or(i64::MAX);
                let values =
                    params![now.as_millis().saturating_sub(idle), i64::try_from(*limit).unwrap_or(i64::MAX)];
                connection.execute(FORGET, values).map(Done::Aged)
            }
        };
        done.map_err(|error| store_error(&error))
    }
}

fn add(connection: &Connection, used: &[(Subject, Used)], now: Timestamp) -> rusqlite::Result<Vec<Used>> {
    let mut add = connection.prepare_cached(ADD)?;
    let mut add = |(subject, used): &(Subject, Used)| {
        let (new_keys, lookups) = (column(used.new_keys), column(used.lookups));
        let (tenant, caller) = (subject.tenant(), subject.caller().unwrap_or_default());
        add.query_row(params![tenant, caller, new_keys, lookups, now.as_millis()], |row| {
            Ok(Used { new_keys: number(row.get(0)?), lookups: number(row.get(1)?) })
        })
    };
    used.iter().map(&mut add).collect()
}

fn kept(connection: &Connection, subject: &Subject) -> rusqlite::Result<Kept> {
    let whose = params![subject.tenant(), subject.caller().unwrap_or_default()];
    let (keys, responses): (i64, i64) =
        connection.prepare_cached(RECORDS)?.query_row(whose, |row| Ok((row.get(0)?, row.get(1)?)))?;
    let requests: i64 = connection.prepare_cached(REQUESTS)?.query_row(whose, |row| row.get(0))?;
    Ok(Kept { keys: number(keys), bytes: number(responses).saturating_add(number(requests)) })
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
        self.age(Work::Usage(UsageWork::Prepare)).await.map(drop)
    }

    async fn add(&self, used: &[(Subject, Used)]) -> Result<Vec<Used>, StoreError> {
        match self.write(Work::Usage(UsageWork::Add(used.to_vec()))).await? {
            Done::Used(used) => Ok(used),
            Done::Answer(_) | Done::Aged(_) | Done::Outbox(_) => {
                Err(StoreError::Ambiguous("the writer answered something else".into()))
            }
        }
    }

    async fn kept(&self, subject: &Subject) -> Result<Kept, StoreError> {
        let subject = subject.clone();
        self.read(move |connection, _| kept(connection, &subject)).await
    }

    async fn forget(&self, idle: Duration, limit: usize) -> Result<usize, StoreError> {
        self.age(Work::Usage(UsageWork::Forget(idle, limit))).await
    }
}
