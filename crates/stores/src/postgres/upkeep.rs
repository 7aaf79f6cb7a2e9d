//! What nobody's request waits for: sweeps, reaps, lists. It has a connection of its own, so that a slow count holds up
//! no command.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use semel_core::{
    Census, Decision, Event, Filter, NoteTaken, OperationId, Record, RecordId, Snapshot, StateName,
    StoreError, Tier, Timestamp, Write, transition, transition::ReferenceWrite,
};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::errors::DbError;
use super::executor::{Executor, Row, Value};
use super::group::{Side, SideWrite, Update, Writes};
use super::link::{Dialer, Link};
use super::queries::{self, now, snapshot};
use super::rows::{Versioned, record, record_columns, record_columns_without_response};

const FIND: &str = concat!(
    "SELECT n.now, ",
    record_columns!(),
    " FROM ",
    now!(),
    " LEFT JOIN semel_records ON operation_id = $2"
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

const CENSUS: &str =
    "SELECT operation, state, count(*), min(updated_at) FROM semel_records GROUP BY operation, state";

/// Records whose lease, or time to start, has ended, the oldest first. The time comes with each.
pub(super) const DUE_TO_SWEEP: &str = concat!(
    "SELECT n.now, due_at, ",
    record_columns_without_response!(),
    " FROM ",
    now!(),
    ", semel_records WHERE due_at IS NOT NULL AND due_at <= n.now AND (due_at, id) > ($2, $3)
      ORDER BY due_at, id LIMIT $4"
);

/// Records whose time to live has ended, the oldest first. The time comes with each.
pub(super) const DUE_TO_REAP: &str = concat!(
    "SELECT n.now, expires_at, ",
    record_columns_without_response!(),
    " FROM ",
    now!(),
    ", semel_records WHERE expires_at IS NOT NULL AND expires_at <= n.now AND (expires_at, id) > ($2, $3)
      ORDER BY expires_at, id LIMIT $4"
);

/// What the server does with a commit before it answers, and who else has the data.
pub(super) const DURABILITY: &str = "
    SELECT current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
        current_setting('synchronous_standby_names'), (SELECT count(*) FROM pg_stat_replication)";

/// How many pages of records that cannot be read or written are passed over in one go.
const MAX_PAGES: usize = 16;

/// How many records are written together.
const BATCH: usize = 256;

/// The connection for everything that is not urgent.
pub(super) struct Upkeep {
    dialer: Dialer,
    link: Arc<Mutex<Option<Link>>>,
    clock_offset: Arc<AtomicI64>,
}

impl Upkeep {
    /// Without a connection, one is made when it is needed.
    pub(super) fn new(dialer: Dialer, link: Option<Link>, clock_offset: Arc<AtomicI64>) -> Upkeep {
        Upkeep { dialer, link: Arc::new(Mutex::new(link)), clock_offset }
    }

    /// Runs it on the connection, in a task of its own: nobody who loses patience leaves it half done.
    pub(super) async fn with<T, F, R>(&self, task: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(Lent) -> R + Send + 'static,
        R: Future<Output = Result<T, DbError>> + Send + 'static,
    {
        let (dialer, link) = (self.dialer.clone(), self.link.clone());
        let offset = self.clock_offset.load(Ordering::SeqCst);
        let running = tokio::spawn(async move {
            let mut link = link.lock_owned().await;
            if link.as_ref().is_none_or(|link| !link.is_usable()) {
                *link = None;
                *link = Some(dialer.connect().await?);
            }
            task(Lent { link, offset }).await
        });
        match running.await {
            Ok(Ok(result)) => Ok(result),
            // Nothing here is anybody's outcome: it is simply done again.
            Ok(Err(DbError::Lost(why))) => Err(StoreError::Unavailable(why)),
            Ok(Err(error)) => Err(error.store_error()),
            Err(_) => Err(StoreError::Unavailable("the task ended early".into())),
        }
    }

    pub(super) async fn find(&self, id: OperationId) -> Result<Snapshot, StoreError> {
        self.with(move |mut lent| async move {
            let values = [Value::Int(Some(lent.offset)), Value::Uuid(*id.as_bytes())];
            let rows = lent.link()?.query(FIND, &values).await?;
            let row =
                rows.into_iter().next().ok_or_else(|| DbError::unreadable("now", "there is no time"))?;
            let (found, now) = snapshot(row)?;
            Ok(Snapshot { record: found.map(|found| found.record), now })
        })
        .await
    }

    pub(super) async fn notes(&self, id: OperationId) -> Result<Vec<NoteTaken>, StoreError> {
        self.with(move |mut lent| async move { queries::notes(lent.link()?, id).await }).await
    }

    /// The records that the filter describes, without those that cannot be read.
    pub(super) async fn list(&self, filter: &Filter) -> Result<Vec<Record>, StoreError> {
        let filter = filter.clone();
        self.with(move |mut lent| async move {
            let values = [
                Value::Text(filter.state.map(StateName::as_str)),
                Value::Text(filter.operation.as_deref()),
                Value::Text(filter.tenant.as_deref()),
                Value::Int(filter.updated_before.map(Timestamp::as_millis)),
                Value::Uuid(filter.after.map_or([0; 16], |id| *id.as_bytes())),
                Value::Int(Some(i64::try_from(filter.limit).unwrap_or(i64::MAX))),
            ];
            let rows = lent.link()?.query(LIST, &values).await?;
            Ok(rows.into_iter().filter_map(|row| record(row, 0).ok()).map(|found| found.record).collect())
        })
        .await
    }

    pub(super) async fn census(&self) -> Result<Vec<Census>, StoreError> {
        self.with(move |mut lent| async move { census(lent.link()?).await }).await
    }

    pub(super) async fn sweep(&self, limit: usize) -> Result<usize, StoreError> {
        self.with(move |mut lent| async move { age(&mut lent, DUE_TO_SWEEP, limit).await }).await
    }

    pub(super) async fn reap(&self, limit: usize) -> Result<usize, StoreError> {
        self.with(move |mut lent| async move { age(&mut lent, DUE_TO_REAP, limit).await }).await
    }
}

pub(super) async fn census(db: &mut impl Executor) -> Result<Vec<Census>, DbError> {
    let read = |row: &Row| {
        let state = row.text(1).and_then(StateName::parse);
        Ok(Census {
            operation: row.text(0).unwrap_or_default().to_owned(),
            state: state.ok_or_else(|| DbError::unreadable("state", "it is not a state"))?,
            count: row.int(2).and_then(|count| u64::try_from(count).ok()).unwrap_or(0),
            oldest: Timestamp::from_millis(row.int(3).unwrap_or(0)),
        })
    };
    db.query(CENSUS, &[]).await?.iter().map(read).collect()
}

/// The connection, for as long as one task has it.
pub(super) struct Lent {
    link: OwnedMutexGuard<Option<Link>>,
    pub(super) offset: i64,
}

impl Lent {
    pub(super) fn link(&mut self) -> Result<&mut Link, DbError> {
        self.link.as_mut().ok_or_else(|| DbError::Unconnected("there is no connection".to_owned()))
    }
}

/// Lets time act on at most `limit` records that are due, the oldest first. One that cannot be read, or that a constraint
/// of the service's own does not let go, is left to its operator, and one that somebody else changes meanwhile to them;
/// none keeps the others waiting.
async fn age(lent: &mut Lent, due: &'static str, limit: usize) -> Result<usize, DbError> {
    let (mut aged, mut passed) = (0, 0);
    let (mut last_moment, mut last_id) = (i64::MIN, RecordId::from_bytes([0; 32]));
    let mut batch = BATCH;
    while aged < limit && passed < MAX_PAGES {
        let wanted = (limit - aged).min(batch);
        let values = [
            Value::Int(Some(lent.offset)),
            Value::Int(Some(last_moment)),
            Value::Bytes(Some(last_id.as_bytes())),
            Value::Int(i64::try_from(wanted).ok()),
        ];
        let rows = lent.link()?.query(due, &values).await?;
        let full = rows.len() == wanted;
        let last = rows.last().and_then(|row| Some((row.int(1)?, super::group::id(row, 2)?)));
        let now = rows.first().and_then(|row| row.int(0)).map(Timestamp::from_millis);
        let (Some(now), Some(last)) = (now, last) else { break };
        let counted = match age_page(lent.link()?, rows, now).await {
            // Live traffic was faster: the same page once more.
            Err(DbError::Conflict(_)) => {
                passed += 1;
                continue;
            }
            // One by one, to find out which.
            Err(error) if error.blames_a_record() && wanted > 1 => {
                batch = 1;
                continue;
            }
            Err(error) if error.blames_a_record() => {
                tracing::error!(why = %error, record = %last.1, "a record cannot be changed");
                0
            }
            counted => counted?,
        };
        (last_moment, last_id) = last;
        aged += counted;
        passed += usize::from(counted < wanted);
        if !full {
            break;
        }
    }
    Ok(aged)
}

async fn age_page(link: &mut Link, rows: Vec<Row>, now: Timestamp) -> Result<usize, DbError> {
    let mut due: Vec<(Versioned, Write, ReferenceWrite, Option<Record>)> = Vec::with_capacity(rows.len());
    for row in rows {
        match record(row, 2) {
            Ok(before) => {
                let step = transition(Some(&before.record.head), &Event::Age, now);
                if step.decision == Decision::Applied {
                    let after = Record::after(Some(&before.record), step.write, None, None, now);
                    due.push((before, step.write, step.reference, after));
                }
            }
            Err(why) => tracing::error!(%why, "a record cannot be read"),
        }
    }
    let mut writes = Writes::default();
    for (before, write, reference, after) in &due {
        let side = |what| Side { with: before.record.id, command: before.record.operation_id, what };
        match (write, after) {
            (Write::Delete, _) => {
                writes.deletes.push(before);
                writes.sides.push(side(SideWrite::Forget));
            }
            (_, Some(after)) => writes.updates.push(Update { before, after }),
            (_, None) => {}
        }
        if *reference == ReferenceWrite::GiveBack {
            writes.sides.push(side(SideWrite::GiveBack));
        }
    }
    match writes.is_empty() {
        true => Ok(0),
        false => Ok(writes.write(link, now).await?.len()),
    }
}

/// What the database promises, from its settings. A write that is acknowledged before it is on disk, or before it is
/// where a failover would look for it, may be lost.
pub(super) async fn tier(db: &mut impl Executor) -> Result<Tier, DbError> {
    let rows = db.query(DURABILITY, &[]).await?;
    let Some(row) = rows.first() else { return Ok(Tier::Two) };
    let setting = |column| row.text(column).unwrap_or_default();
    let on_disk = setting(0) == "on" && setting(1) == "on" && !matches!(setting(2), "off" | "");
    let standbys = row.int(4).unwrap_or(0);
    let everywhere =
        standbys == 0 || (!setting(3).is_empty() && !matches!(setting(2), "local" | "remote_write"));
    Ok(if on_disk && everywhere { Tier::One } else { Tier::Two })
}
