//! Usage in PostgreSQL: the use of each tenant and caller, and the size of their records.

use std::time::Duration;

use async_trait::async_trait;
use semel_core::quota::{Level, StoredAmount, Subject, Usage, UsageEntry, UsageFilter, UsageReport, Used};
use semel_core::{StoreError, Timestamp};

use super::PostgresStore;
use super::clock::now;
use super::errors::DbError;
use super::executor::{Executor, SqlRow, SqlValue};
use super::link::{Dialer, Link};
use super::outbox::in_transaction;
use super::side_link::LentLink;

/// Creates the index for counts, only if they are needed: every command would pay for it. It blocks no
/// writes.
const PREPARE: &str =
    "CREATE INDEX CONCURRENTLY IF NOT EXISTS semel_records_usage ON semel_records (tenant, caller)";

/// Checks for an index whose creation was begun and is not running.
const IS_BROKEN: &str = "
    SELECT count(*) FROM pg_index
    WHERE indexrelid = to_regclass('semel_records_usage') AND NOT indisvalid
        AND NOT EXISTS (SELECT FROM pg_stat_progress_create_index AS making WHERE making.index_relid = indexrelid)";

/// Timeout of the creation of the index.
const LONGEST_PREPARATION: Duration = Duration::from_secs(3600);

/// Maximum number of retries of a report because the clock was not steady.
const MAX_TURNS: usize = 3;

/// Inserts missing entries in the order of the key, so that nodes never deadlock. A tenant with all its
/// callers has an empty caller's name; no caller's name is empty.
const BEGIN: &str = "
    INSERT INTO semel_usage (tenant, caller, new_keys, lookups, used_at)
    SELECT u.tenant, u.caller, 0, 0, 0 FROM unnest($1::text[], $2::text[]) AS u (tenant, caller)
    ORDER BY u.tenant, u.caller ON CONFLICT DO NOTHING";

macro_rules! entry {
    () => {
        "n.now, tenant, caller, new_keys, lookups, used_at, new_keys_whole_at, lookups_whole_at"
    };
}

/// Locks entries in the same order.
const LOCK: &str = concat!(
    "SELECT ",
    entry!(),
    " FROM semel_usage, ",
    now!(),
    " WHERE (tenant, caller) IN (SELECT u.tenant, u.caller FROM unnest($2::text[], $3::text[]) AS u (tenant, caller))
     ORDER BY tenant, caller FOR UPDATE OF semel_usage"
);

const CHARGE: &str = "
    UPDATE semel_usage AS total SET new_keys = u.new_keys, lookups = u.lookups, used_at = u.used_at,
        new_keys_whole_at = u.new_keys_whole_at, lookups_whole_at = u.lookups_whole_at
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
        AS u (tenant, caller, new_keys, lookups, used_at, new_keys_whole_at, lookups_whole_at)
    WHERE total.tenant = u.tenant AND total.caller = u.caller RETURNING 1::bigint";

/// Selects an entry, and the time in any case.
const GET: &str =
    concat!("SELECT ", entry!(), " FROM ", now!(), " LEFT JOIN semel_usage ON tenant = $2 AND caller = $3");

const LIST: &str = concat!(
    "SELECT ",
    entry!(),
    " FROM ",
    now!(),
    " LEFT JOIN LATERAL (
         SELECT * FROM semel_usage WHERE (tenant, caller) > ($2, $3) ORDER BY tenant, caller LIMIT $4) AS page ON true
     ORDER BY tenant, caller"
);

const LIST_OF_TENANT: &str = concat!(
    "SELECT ",
    entry!(),
    " FROM ",
    now!(),
    " LEFT JOIN LATERAL (
         SELECT * FROM semel_usage WHERE tenant = $5 AND (tenant, caller) > ($2, $3)
         ORDER BY tenant, caller LIMIT $4) AS page ON true
     ORDER BY tenant, caller"
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
    "    WHERE used_at <= n.now - $2 AND new_keys_whole_at <= n.now AND lookups_whole_at <= n.now
         LIMIT $3 FOR UPDATE OF semel_usage SKIP LOCKED),
     gone AS (
         DELETE FROM semel_usage USING idle
         WHERE semel_usage.tenant = idle.tenant AND semel_usage.caller = idle.caller RETURNING 1)
     SELECT count(*) FROM gone"
);

fn number(row: &SqlRow, column: usize) -> u64 {
    row.int(column).and_then(|number| u64::try_from(number).ok()).unwrap_or(0)
}

fn column(number: u64) -> Option<i64> {
    Some(i64::try_from(number).unwrap_or(i64::MAX))
}

fn time(row: &SqlRow, column: usize) -> Timestamp {
    Timestamp::from_millis(row.int(column).unwrap_or(0))
}

/// Returns the subject of a row of [`entry!`], if there is one, and its use.
fn entry(row: &SqlRow) -> Result<Option<(Subject, UsageEntry)>, DbError> {
    let (Some(tenant), Some(caller)) = (row.text(1), row.text(2)) else { return Ok(None) };
    let unreadable = || DbError::unreadable("semel_usage", "a name is none");
    let subject = Subject::new(tenant, caller).ok_or_else(unreadable)?;
    let entry = UsageEntry {
        used: Used { new_keys: number(row, 3), lookups: number(row, 4) },
        used_at: time(row, 5),
        new_keys_whole_at: time(row, 6),
        lookups_whole_at: time(row, 7),
    };
    Ok(Some((subject, entry)))
}

fn names<'a>(subjects: impl Iterator<Item = &'a Subject> + Clone) -> [SqlValue<'a>; 2] {
    [
        SqlValue::TextList(subjects.clone().map(|subject| Some(subject.tenant())).collect()),
        SqlValue::TextList(subjects.map(|subject| Some(subject.caller().unwrap_or_default())).collect()),
    ]
}

/// Sends a query whose rows begin with the store's time. Results of a clock that has just been set are
/// discarded.
async fn ask(
    lent: &mut LentLink,
    sql: &'static str,
    values: &[SqlValue<'_>],
) -> Result<Vec<SqlRow>, DbError> {
    let clock = lent.clock.clone();
    for _ in 0..MAX_TURNS {
        let asked = clock.ask();
        let offset = [SqlValue::Int(Some(asked.offset))];
        let values: Vec<SqlValue<'_>> = offset.iter().chain(values).cloned().collect();
        let rows = lent.link()?.query(sql, &values).await?;
        if rows.first().is_none_or(|row| clock.is_steady(asked, time(row, 0))) {
            return Ok(rows);
        }
        clock.look(lent.link()?).await?;
    }
    Err(DbError::Conflict("the database's clock keeps jumping".to_owned()))
}

/// Writes reports in a transaction. Returns `None` if the clock was not steady: then nothing was written.
async fn charge(
    lent: &mut LentLink,
    reports: &[(Subject, UsageReport)],
) -> Result<Option<Vec<(Subject, Level)>>, DbError> {
    let (clock, link) = (lent.clock.clone(), lent.link()?);
    in_transaction(link, async |link: &mut Link| {
        let [tenants, callers] = names(reports.iter().map(|(subject, _)| subject));
        link.query(BEGIN, &[tenants.clone(), callers.clone()]).await?;
        let asked = clock.ask();
        let rows = link.query(LOCK, &[SqlValue::Int(Some(asked.offset)), tenants, callers]).await?;
        let now = rows.first().map_or(Timestamp::from_millis(0), |row| time(row, 0));
        if !rows.is_empty() && !clock.is_steady(asked, now) {
            return Ok(None);
        }
        let mut charged = Vec::with_capacity(rows.len());
        for (subject, entry) in rows.iter().map(entry).collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
            let of_subject = reports.iter().find(|(other, _)| *other == subject);
            let (_, report) = of_subject.ok_or_else(|| {
                DbError::unreadable("semel_usage", "it has a subject that was not asked for")
            })?;
            charged.push((subject, entry.charged(report, now)));
        }
        let ints = |of: fn(&UsageEntry) -> Option<i64>| {
            SqlValue::IntList(charged.iter().map(|(_, entry)| of(entry)).collect())
        };
        let [tenants, callers] = names(charged.iter().map(|(subject, _)| subject));
        let values = [
            tenants,
            callers,
            ints(|entry| column(entry.used.new_keys)),
            ints(|entry| column(entry.used.lookups)),
            ints(|entry| Some(entry.used_at.as_millis())),
            ints(|entry| Some(entry.new_keys_whole_at.as_millis())),
            ints(|entry| Some(entry.lookups_whole_at.as_millis())),
        ];
        let written = link.query(CHARGE, &values).await?.len();
        if written != reports.len() {
            return Err(DbError::Conflict(format!("{written} of {} subjects were found", reports.len())));
        }
        Ok(Some(charged.into_iter().map(|(subject, entry)| (subject, entry.level(now))).collect()))
    })
    .await
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

    async fn report(&self, reports: &[(Subject, UsageReport)]) -> Result<Vec<Level>, StoreError> {
        let reports = reports.to_vec();
        self.outbox
            .next()
            .with(move |mut lent| async move {
                for _ in 0..MAX_TURNS {
                    if let Some(levels) = charge(&mut lent, &reports).await? {
                        let level = |(subject, _): &(Subject, UsageReport)| {
                            let found = levels.iter().find(|(other, _)| other == subject);
                            found.map_or(Level::default(), |(_, level)| *level)
                        };
                        return Ok(reports.iter().map(level).collect());
                    }
                    let clock = lent.clock.clone();
                    clock.look(lent.link()?).await?;
                }
                Err(DbError::Conflict("the database's clock keeps jumping".to_owned()))
            })
            .await
    }

    async fn level(&self, subject: &Subject) -> Result<Level, StoreError> {
        let subject = subject.clone();
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let caller = subject.caller().unwrap_or_default();
                let whose = [SqlValue::Text(Some(subject.tenant())), SqlValue::Text(Some(caller))];
                let rows = ask(&mut lent, GET, &whose).await?;
                let row = rows.first().ok_or_else(|| DbError::unreadable("now", "there is no time"))?;
                Ok(entry(row)?.map_or(Level::default(), |(_, entry)| entry.level(time(row, 0))))
            })
            .await
    }

    async fn list_usage(
        &self,
        filter: &UsageFilter,
    ) -> Result<(Vec<(Subject, UsageEntry)>, Timestamp), StoreError> {
        let filter = filter.clone();
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let after = filter.after.as_ref();
                let mut values = vec![
                    SqlValue::Text(Some(after.map_or("", Subject::tenant))),
                    SqlValue::Text(Some(after.and_then(Subject::caller).unwrap_or_default())),
                    SqlValue::Int(Some(i64::try_from(filter.limit).unwrap_or(i64::MAX))),
                ];
                let sql = match &filter.tenant {
                    Some(tenant) => {
                        values.push(SqlValue::Text(Some(tenant)));
                        LIST_OF_TENANT
                    }
                    None => LIST,
                };
                let rows = ask(&mut lent, sql, &values).await?;
                let now = rows.first().map_or(Timestamp::from_millis(0), |row| time(row, 0));
                let entries = rows.iter().map(entry).collect::<Result<Vec<_>, _>>()?;
                Ok((entries.into_iter().flatten().collect(), now))
            })
            .await
    }

    async fn kept(&self, subject: &Subject) -> Result<StoredAmount, StoreError> {
        let subject = subject.clone();
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let caller = subject.caller().unwrap_or_default();
                let whose = [SqlValue::Text(Some(subject.tenant())), SqlValue::Text(Some(caller))];
                let rows = lent.link()?.query(KEPT, &whose).await?;
                let row = rows.first().ok_or_else(|| DbError::unreadable("count", "there is none"))?;
                Ok(StoredAmount { keys: number(row, 0), bytes: number(row, 1) })
            })
            .await
    }

    async fn forget(&self, idle: Duration, limit: usize) -> Result<usize, StoreError> {
        let idle = i64::try_from(idle.as_millis()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4);
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let limit = i64::try_from(limit).unwrap_or(i64::MAX);
                let values =
                    [SqlValue::Int(Some(lent.offset)), SqlValue::Int(Some(idle)), SqlValue::Int(Some(limit))];
                let rows = lent.link()?.query(FORGET, &values).await?;
                Ok(rows.first().map_or(0, |row| usize::try_from(number(row, 0)).unwrap_or(0)))
            })
            .await
    }
}
