//! Usage in PostgreSQL: what each tenant and caller has used, and what is kept for them.

use std::time::Duration;

use async_trait::async_trait;
use semel_core::StoreError;
use semel_core::quota::{Kept, Subject, Usage, Used};

use super::PostgresStore;
use super::errors::DbError;
use super::executor::{Executor, Row, Value};
use super::link::Dialer;
use super::queries::now;

/// Made only where what is kept is counted: every command would pay for it. Nobody's writes wait for it.
const PREPARE: &str =
    "CREATE INDEX CONCURRENTLY IF NOT EXISTS semel_records_usage ON semel_records (tenant, caller)";

/// Whether there is an index that was begun, and is not being made.
const IS_BROKEN: &str = "
    SELECT count(*) FROM pg_index
    WHERE indexrelid = to_regclass('semel_records_usage') AND NOT indisvalid
        AND NOT EXISTS (SELECT FROM pg_stat_progress_create_index AS making WHERE making.index_relid = indexrelid)";

/// How long the index may take.
const LONGEST_PREPARATION: Duration = Duration::from_secs(3600);

/// In the order of the key, so that nodes do not wait for each other in a circle. A tenant with all its callers has no
/// caller's name: no caller's name is empty.
const ADD: &str = concat!(
    "INSERT INTO semel_usage AS total (tenant, caller, new_keys, lookups, used_at)
     SELECT u.tenant, u.caller, u.new_keys, u.lookups, n.now
     FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[]) AS u (tenant, caller, new_keys, lookups), ",
    now!(),
    " ORDER BY u.tenant, u.caller
     ON CONFLICT (tenant, caller) DO UPDATE SET new_keys = total.new_keys + excluded.new_keys,
         lookups = total.lookups + excluded.lookups, used_at = excluded.used_at
     RETURNING tenant, caller, new_keys, lookups"
);

const KEPT: &str = "
    SELECT count(*), coalesce(sum(octet_length(response)), 0)::bigint + coalesce((
        SELECT sum(octet_length(request))::bigint FROM semel_requests JOIN semel_records USING (operation_id)
        WHERE tenant = $1 AND ($2 = '' OR caller = $2)), 0)
    FROM semel_records WHERE tenant = $1 AND ($2 = '' OR caller = $2)";

const FORGET: &str = concat!(
    "WITH idle AS MATERIALIZED (
         SELECT tenant, caller FROM semel_usage, ",
    now!(),
    "    WHERE used_at <= n.now - $2 LIMIT $3 FOR UPDATE OF semel_usage SKIP LOCKED),
     gone AS (
         DELETE FROM semel_usage USING idle
         WHERE semel_usage.tenant = idle.tenant AND semel_usage.caller = idle.caller RETURNING 1)
     SELECT count(*) FROM gone"
);

fn number(row: &Row, column: usize) -> u64 {
    row.int(column).and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
}

fn column(number: u64) -> Option<i64> {
    Some(i64::try_from(number).unwrap_or(i64::MAX))
}

#[async_trait]
impl Usage for PostgresStore {
    async fn prepare(&self) -> Result<(), StoreError> {
        let unavailable = |error: DbError| StoreError::Unavailable(error.to_string());
        let dialer = Dialer {
            patience: LONGEST_PREPARATION,
            lock_wait: LONGEST_PREPARATION * 2 / 5,
            ..self.dialer.clone()
        };
        let mut link = dialer.connect().await.map_err(unavailable)?;
        let broken = link.query(IS_BROKEN, &[]).await.map_err(unavailable)?;
        if broken.first().is_some_and(|row| number(row, 0) > 0) {
            let why = "the index semel_records_usage was begun and not finished: `DROP INDEX semel_records_usage`, and \
                       start again";
            return Err(StoreError::Unavailable(why.into()));
        }
        link.run(PREPARE).await.map_err(unavailable)
    }

    async fn add(&self, used: &[(Subject, Used)]) -> Result<Vec<Used>, StoreError> {
        let used = used.to_vec();
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let callers = used.iter().map(|(subject, _)| Some(subject.caller().unwrap_or_default()));
                let values = [
                    Value::Int(Some(lent.offset)),
                    Value::TextList(used.iter().map(|(subject, _)| Some(subject.tenant())).collect()),
                    Value::TextList(callers.collect()),
                    Value::IntList(used.iter().map(|(_, used)| column(used.new_keys)).collect()),
                    Value::IntList(used.iter().map(|(_, used)| column(used.lookups)).collect()),
                ];
                let rows = lent.link()?.query(ADD, &values).await?;
                let total = |(subject, _): &(Subject, Used)| {
                    let is_its = |row: &&Row| {
                        row.text(0) == Some(subject.tenant())
                            && row.text(1) == Some(subject.caller().unwrap_or_default())
                    };
                    let row = rows.iter().find(is_its);
                    let row =
                        row.ok_or_else(|| DbError::unreadable("semel_usage", "a subject is missing"))?;
                    Ok(Used { new_keys: number(row, 2), lookups: number(row, 3) })
                };
                used.iter().map(total).collect()
            })
            .await
    }

    async fn kept(&self, subject: &Subject) -> Result<Kept, StoreError> {
        let subject = subject.clone();
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let caller = subject.caller().unwrap_or_default();
                let whose = [Value::Text(Some(subject.tenant())), Value::Text(Some(caller))];
                let rows = lent.link()?.query(KEPT, &whose).await?;
                let row = rows.first().ok_or_else(|| DbError::unreadable("count", "there is none"))?;
                Ok(Kept { keys: number(row, 0), bytes: number(row, 1) })
            })
            .await
    }

    async fn forget(&self, idle: Duration, limit: usize) -> Result<usize, StoreError> {
        let idle = i64::try_from(idle.as_millis()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let limit = i64::try_from(limit).unwrap_or(i64::MAX);
                let values = [Value::Int(Some(lent.offset)), Value::Int(Some(idle)), Value::Int(Some(limit))];
                let rows = lent.link()?.query(FORGET, &values).await?;
                Ok(rows.first().map_or(0, |row| usize::try_from(number(row, 0)).unwrap_or(0)))
            })
            .await
    }
}
