//! Sweeps and reaps records, and asks the server for its tier.

use std::time::Duration;

use async_trait::async_trait;
use semel_core::store_fence::decide;
use semel_core::transition::{ReferenceWrite, RequestWrite};
use semel_core::{
    AgedRecord, Census, Decision, Event, Record, RecordId, Store, StoreError, Tier, Timestamp, Transition,
    Upkeep, Write,
};

use super::PostgresStore;
use super::census::census;
use super::clock::{StoreClock, now};
use super::errors::DbError;
use super::executor::{Executor, SqlRow, SqlValue};
use super::fence::{self, not_fenced};
use super::group::{Side, SideWrite, Update, Writes};
use super::link::Link;
use super::rows::{Versioned, record, record_columns_without_response};
use super::side_link::LentLink;

/// Selects records whose lease or start deadline has passed, the oldest first, without those that another
/// transaction holds. Each row carries the time.
pub(super) const DUE_TO_SWEEP: &str = concat!(
    "SELECT n.now, due_at, ",
    record_columns_without_response!(),
    " FROM ",
    now!(),
    ", semel_records WHERE due_at IS NOT NULL AND due_at <= n.now AND (due_at, id) > ($2, $3)
      ORDER BY due_at, id LIMIT $4 FOR UPDATE OF semel_records SKIP LOCKED"
);

/// Selects records whose time to live is over, the oldest first, without those that another transaction
/// holds. Each row carries the time.
pub(super) const DUE_TO_REAP: &str = concat!(
    "SELECT n.now, expires_at, ",
    record_columns_without_response!(),
    " FROM ",
    now!(),
    ", semel_records WHERE expires_at IS NOT NULL AND expires_at <= n.now AND (expires_at, id) > ($2, $3)
      ORDER BY expires_at, id LIMIT $4 FOR UPDATE OF semel_records SKIP LOCKED"
);

/// Selects commands in state `Unknown` that are due for a look-up of evidence.
pub(super) const DUE_TO_RECONCILE: &str = concat!(
    "SELECT ",
    record_columns_without_response!(),
    " FROM ",
    now!(),
    ", semel_records WHERE reconcile_after IS NOT NULL AND reconcile_after <= n.now AND state = 'unknown'
         AND (",
    not_fenced!(),
    " OR EXISTS (SELECT 1 FROM semel_holds WHERE kind = 'look-up-first'))
      ORDER BY reconcile_after, id LIMIT $2"
);

/// Selects the server's settings about commits, its standbys, and those of them that are away and have a slot.
pub(super) const DURABILITY: &str = "
    SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
        current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication),
        (SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT active)";

/// Maximum number of pages of unreadable or unwritable records that one call skips.
const MAX_PAGES: usize = 16;

/// Interval at which sweeps ask the server for its tier.
const TIER_INTERVAL: Duration = Duration::from_secs(10);

/// Number of records written together.
const BATCH: usize = 256;

#[async_trait]
impl Upkeep for PostgresStore {
    async fn sweep(&self, limit: usize) -> Result<Vec<AgedRecord>, StoreError> {
        self.read_tier_again(TIER_INTERVAL).await;
        self.read_schema_again().await;
        self.sweeps.with(move |mut lent| async move { age(&mut lent, DUE_TO_SWEEP, limit).await }).await
    }

    async fn reap(&self, limit: usize) -> Result<Vec<AgedRecord>, StoreError> {
        self.sweeps.with(move |mut lent| async move { age(&mut lent, DUE_TO_REAP, limit).await }).await
    }

    async fn census(&self) -> Result<Census, StoreError> {
        self.reports.with(move |mut lent| async move { census(lent.link()?).await }).await
    }

    /// Commits a few bytes of the log that no table has.
    async fn try_commit(&self) -> Result<(), StoreError> {
        match self.probe.commit().await {
            Err(error) if error.is_not_offered() => self.now().await.map(|_| ()),
            committed => committed.map_err(|error| error.store_error()),
        }
    }

    /// Returns commands in state `Unknown`, without unreadable ones.
    async fn due_to_reconcile(&self, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.polls
            .with(move |mut lent| async move {
                let values = [SqlValue::Int(Some(lent.offset)), SqlValue::Int(i64::try_from(limit).ok())];
                let rows = lent.link()?.query(DUE_TO_RECONCILE, &values).await?;
                Ok(rows.into_iter().filter_map(|row| record(row, 0).ok()).map(|found| found.record).collect())
            })
            .await
    }
}

/// Applies the passage of time to at most `limit` due records, the oldest first. A record that is unreadable,
/// or that a constraint of the service's own keeps, is left to its operator. A record that another
/// transaction holds is left for the next time. None delays the others.
async fn age(lent: &mut LentLink, due: &'static str, limit: usize) -> Result<Vec<AgedRecord>, DbError> {
    let (mut aged, mut passed) = (Vec::new(), 0);
    let clock = lent.clock.clone();
    clock.look(lent.link()?).await?;
    let mut after = (i64::MIN, RecordId::from_bytes([0; 32]));
    let mut batch = BATCH;
    while aged.len() < limit && passed < MAX_PAGES {
        let wanted = (limit - aged.len()).min(batch);
        let offset = lent.offset;
        let page = match age_page(lent.link()?, due, &clock, after, wanted).await {
            // Live traffic was faster: the same page once more.
            Err(DbError::Conflict(_)) => {
                passed += 1;
                continue;
            }
            // One by one, to find the cause.
            Err(error) if error.blames_a_record() && wanted > 1 => {
                batch = 1;
                continue;
            }
            Err(error) if error.blames_a_record() => {
                let found = lent.link()?.query(due, &page_values(offset, &after, 1)).await?;
                let Some(last) = found.first().and_then(place) else { break };
                match error {
                    DbError::Busy(_) => tracing::debug!(record = %last.1, "a record is in use"),
                    error => tracing::error!(why = %error, record = %last.1, "a record cannot be changed"),
                }
                Page { changed: Vec::new(), last, is_full: true }
            }
            // What was changed so far is told; the next call meets the error again.
            Err(error) if !aged.is_empty() => {
                tracing::debug!(%error, "a sweep ends early");
                break;
            }
            Err(error) => return Err(error),
            Ok(None) => break,
            Ok(Some(page)) => page,
        };
        after = page.last;
        passed += usize::from(page.changed.len() < wanted);
        aged.extend(page.changed);
        if !page.is_full {
            break;
        }
    }
    Ok(aged)
}

/// Due records, in the order in which they became due.
struct Page {
    changed: Vec<AgedRecord>,
    last: (i64, RecordId),
    is_full: bool,
}

fn page_values(offset: i64, after: &(i64, RecordId), wanted: usize) -> [SqlValue<'_>; 4] {
    [
        SqlValue::Int(Some(offset)),
        SqlValue::Int(Some(after.0)),
        SqlValue::Bytes(Some(after.1.as_bytes())),
        SqlValue::Int(i64::try_from(wanted).ok()),
    ]
}

/// Returns the due time of a record, and its id.
fn place(row: &SqlRow) -> Option<(i64, RecordId)> {
    Some((row.int(1)?, super::group::id(row, 2)?))
}

/// Processes one page in a transaction, without records that another one holds. Returns `None` if nothing is
/// due.
async fn age_page(
    link: &mut Link,
    due: &'static str,
    clock: &StoreClock,
    after: (i64, RecordId),
    wanted: usize,
) -> Result<Option<Page>, DbError> {
    let asked = clock.ask();
    // The locks end with the statement: a process that hangs before its writes holds no record.
    let rows = link.query(due, &page_values(asked.offset, &after, wanted)).await?;
    let now = rows.first().and_then(|row| row.int(0)).map(Timestamp::from_millis);
    let (Some(now), Some(last)) = (now, rows.last().and_then(place)) else { return Ok(None) };
    if !clock.is_steady(asked, now) {
        return Err(DbError::Conflict("the database's clock was set".to_owned()));
    }
    let is_full = rows.len() == wanted;
    Ok(Some(Page { changed: age_rows(link, rows, now).await?, last, is_full }))
}

async fn age_rows(link: &mut Link, rows: Vec<SqlRow>, now: Timestamp) -> Result<Vec<AgedRecord>, DbError> {
    let fence = fence::found(link).await?;
    let mut due: Vec<(Versioned, Transition, Option<Record>)> = Vec::with_capacity(rows.len());
    for row in rows {
        match record(row, 2) {
            Ok(before) => {
                let step = decide(fence.as_ref(), Some(&before.record), &Event::Age, now);
                if step.decision == Decision::Applied {
                    let after = Record::after(Some(&before.record), step.write, None, None, now);
                    due.push((before, step, after));
                }
            }
            Err(why) => tracing::error!(%why, "a record cannot be read"),
        }
    }
    let mut writes = Writes::default();
    for (before, step, after) in &due {
        let side = |what| Side { with: before.record.id, command: before.record.operation_id, what };
        match (step.write, after) {
            (Write::Delete, _) => {
                writes.deletes.push(before);
                writes.sides.push(side(SideWrite::Forget));
            }
            (_, Some(after)) => writes.updates.push(Update { before, after }),
            (_, None) => {}
        }
        if step.reference == ReferenceWrite::GiveBack {
            writes.sides.push(side(SideWrite::GiveBack));
        }
        if step.request == RequestWrite::Erase {
            writes.sides.push(side(SideWrite::EraseRequest));
        }
    }
    if writes.updates.is_empty() && writes.deletes.is_empty() {
        return Ok(Vec::new());
    }
    let written = writes.write(link, now).await?;
    let changed = due.iter().filter(|(before, ..)| written.contains(&before.record.id));
    Ok(changed.map(|(before, _, after)| AgedRecord::new(&before.record, after.as_ref())).collect())
}

/// Returns the tier of the database, by its settings. A write that is acknowledged before it is on disk, or
/// on the standby that a failover would use, may be lost.
pub(super) async fn tier(db: &mut impl Executor) -> Result<Tier, DbError> {
    let rows = db.query(DURABILITY, &[]).await?;
    let Some(row) = rows.first() else { return Ok(Tier::Two) };
    let setting = |column| row.text(column).unwrap_or_default();
    let on_disk = setting(0) == "on" && setting(1) == "on" && !matches!(setting(2), "off" | "");
    let standbys = row.int(4).unwrap_or(0) + row.int(5).unwrap_or(0);
    let everywhere =
        standbys == 0 || (!setting(3).is_empty() && !matches!(setting(2), "local" | "remote_write"));
    Ok(if on_disk && everywhere { Tier::One } else { Tier::Two })
}
