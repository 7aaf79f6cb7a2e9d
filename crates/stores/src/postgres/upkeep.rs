//! What nobody's request waits for: sweeps, reaps, lists. It has a connection of its own, so that a slow count holds up
//! no command.

use std::sync::Arc;
use std::time::Duration;

use semel_core::{
    AuditEntry, AuditId, Census, Decision, Event, Filter, Item, Note, NoteTaken, OperationId, Principal,
    Progress, Record, RecordId, Snapshot, StateName, StoreError, StoredRequest, Tier, Timestamp, Transition,
    Unreadable, WaitingFilter, WaitingPage, Write, transition,
    transition::{ReferenceWrite, RequestWrite},
};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::clock::StoreClock;
use super::clock::now;
use super::errors::DbError;
use super::executor::{Executor, Row, Value};
use super::group::{Side, SideWrite, Update, Writes};
use super::link::{Dialer, Link};
use super::queries::{self, lock_command, snapshot, tell};
use super::rows::{Versioned, record, record_columns, record_columns_without_response};
use super::{schema, steps, waiting};

const FIND: &str = concat!(
    "SELECT n.now, ",
    record_columns!(),
    " FROM ",
    now!(),
    " LEFT JOIN semel_records ON operation_id = $2"
);

/// Of another's row nothing is sent, nor fetched from where large values are kept.
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

const CENSUS: &str =
    "SELECT operation, state, count(*), min(updated_at) FROM semel_records GROUP BY operation, state";

/// Records whose lease, or time to start, has ended, the oldest first, without those that another transaction holds.
/// The time comes with each.
pub(super) const DUE_TO_SWEEP: &str = concat!(
    "SELECT n.now, due_at, ",
    record_columns_without_response!(),
    " FROM ",
    now!(),
    ", semel_records WHERE due_at IS NOT NULL AND due_at <= n.now AND (due_at, id) > ($2, $3)
      ORDER BY due_at, id LIMIT $4 FOR UPDATE OF semel_records SKIP LOCKED"
);

/// Records whose time to live has ended, the oldest first, without those that another transaction holds. The time
/// comes with each.
pub(super) const DUE_TO_REAP: &str = concat!(
    "SELECT n.now, expires_at, ",
    record_columns_without_response!(),
    " FROM ",
    now!(),
    ", semel_records WHERE expires_at IS NOT NULL AND expires_at <= n.now AND (expires_at, id) > ($2, $3)
      ORDER BY expires_at, id LIMIT $4 FOR UPDATE OF semel_records SKIP LOCKED"
);

/// Commands whose outcome is unknown and for which evidence is to be sought now.
pub(super) const DUE_TO_RECONCILE: &str = concat!(
    "SELECT ",
    record_columns_without_response!(),
    " FROM ",
    now!(),
    ", semel_records WHERE reconcile_after IS NOT NULL AND reconcile_after <= n.now AND state = 'unknown'
      ORDER BY reconcile_after, id LIMIT $2"
);

const ANNOUNCE: &str = concat!(
    "INSERT INTO semel_phases (operation_id, position, name, kind, item_id, began_at)
     SELECT $2, i.position, i.name, 'item', i.id, n.now
     FROM unnest($3::bigint[], $4::text[], $5::bytea[]) AS i (position, name, id), ",
    now!(),
    " ON CONFLICT DO NOTHING"
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
    clock: StoreClock,
}

/// The one row that says what was found and when.
fn found(rows: Vec<Row>) -> Result<Snapshot, DbError> {
    let row = rows.into_iter().next().ok_or_else(|| DbError::unreadable("now", "there is no time"))?;
    let (found, now) = snapshot(row)?;
    Ok(Snapshot { record: found.map(|found| found.record), now })
}

impl Upkeep {
    /// Without a connection, one is made when it is needed.
    pub(super) fn new(dialer: Dialer, link: Option<Link>, clock: StoreClock) -> Upkeep {
        Upkeep { dialer, link: Arc::new(Mutex::new(link)), clock }
    }

    /// Runs it on the connection, in a task of its own: nobody who loses patience leaves it half done.
    pub(super) async fn with<T, F, R>(&self, task: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(Lent) -> R + Send + 'static,
        R: Future<Output = Result<T, DbError>> + Send + 'static,
    {
        let (dialer, link) = (self.dialer.clone(), self.link.clone());
        let (offset, clock) = (self.clock.ask().offset, self.clock.clone());
        let running = tokio::spawn(async move {
            let mut link = link.lock_owned().await;
            if link.as_ref().is_none_or(|link| !link.is_usable()) {
                *link = None;
                *link = Some(dialer.connect().await?);
            }
            task(Lent { link, offset, clock }).await
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
            found(lent.link()?.query(FIND, &values).await?)
        })
        .await
    }

    pub(super) async fn find_own(
        &self,
        id: OperationId,
        principal: &Principal,
    ) -> Result<Snapshot, StoreError> {
        let principal = principal.clone();
        self.with(move |mut lent| async move {
            let values = [
                Value::Int(Some(lent.offset)),
                Value::Uuid(*id.as_bytes()),
                Value::Text(Some(principal.tenant())),
                Value::Text(Some(principal.caller())),
            ];
            found(lent.link()?.query(FIND_OWN, &values).await?)
        })
        .await
    }

    pub(super) async fn notes(&self, id: OperationId) -> Result<Vec<NoteTaken>, StoreError> {
        self.with(move |mut lent| async move { queries::notes(lent.link()?, id).await }).await
    }

    pub(super) async fn read_request(
        &self,
        id: OperationId,
        note: &Note,
    ) -> Result<Option<StoredRequest>, StoreError> {
        let note = note.clone();
        self.with(move |mut lent| async move {
            let offset = Duration::from_millis(u64::try_from(lent.offset).unwrap_or(0));
            let now = schema::now(lent.link()?).await?.plus(offset);
            queries::read_request(lent.link()?, id, &note, now).await
        })
        .await
    }

    pub(super) async fn audit(
        &self,
        before: Option<AuditId>,
        limit: usize,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        self.with(move |mut lent| async move { queries::audit(lent.link()?, before, limit).await }).await
    }

    /// The records that the filter describes, without those that cannot be read.
    pub(super) async fn list(&self, filter: &Filter) -> Result<Vec<Record>, StoreError> {
        Ok(self.listed(filter).await?.into_iter().filter_map(Result::ok).collect())
    }

    /// The records among them that cannot be read.
    pub(super) async fn unreadable(&self, filter: &Filter) -> Result<Vec<Unreadable>, StoreError> {
        Ok(self.listed(filter).await?.into_iter().filter_map(Result::err).collect())
    }

    async fn listed(&self, filter: &Filter) -> Result<Vec<Result<Record, Unreadable>>, StoreError> {
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
            let read = |row: Row| {
                let operation_id = OperationId::from_bytes(row.uuid(1).unwrap_or_default());
                let read = record(row, 0).map(|found| found.record);
                read.map_err(|why| Unreadable { operation_id, why: why.to_string() })
            };
            Ok(rows.into_iter().map(read).collect())
        })
        .await
    }

    /// A page of the commands that wait for a worker, without those that cannot be read.
    pub(super) async fn waiting(&self, filter: &WaitingFilter) -> Result<WaitingPage, StoreError> {
        let filter = filter.clone();
        self.with(move |mut lent| async move {
            let offset = lent.offset;
            waiting::page(lent.link()?, &filter, offset).await
        })
        .await
    }

    /// Commands whose outcome is unknown, without those that cannot be read.
    pub(super) async fn due_to_reconcile(&self, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.with(move |mut lent| async move {
            let values = [Value::Int(Some(lent.offset)), Value::Int(i64::try_from(limit).ok())];
            let rows = lent.link()?.query(DUE_TO_RECONCILE, &values).await?;
            Ok(rows.into_iter().filter_map(|row| record(row, 0).ok()).map(|found| found.record).collect())
        })
        .await
    }

    pub(super) async fn announce(&self, id: OperationId, items: &[Item]) -> Result<(), StoreError> {
        let items = items.to_vec();
        self.with(move |mut lent| async move {
            let positions = 0..i64::try_from(items.len()).unwrap_or(0);
            let values = [
                Value::Int(Some(lent.offset)),
                Value::Uuid(*id.as_bytes()),
                Value::IntList(positions.map(Some).collect()),
                Value::TextList(items.iter().map(|item| Some(item.name.as_str())).collect()),
                Value::BytesList(items.iter().map(|item| Some(&item.record.as_bytes()[..])).collect()),
            ];
            let offset = lent.offset;
            announce(lent.link()?, id, &values, offset).await
        })
        .await
    }

    pub(super) async fn progress(&self, id: OperationId) -> Result<Vec<Progress>, StoreError> {
        self.with(move |mut lent| async move { steps::progress(lent.link()?, id).await }).await
    }

    pub(super) async fn census(&self) -> Result<Vec<Census>, StoreError> {
        self.with(move |mut lent| async move { census(lent.link()?).await }).await
    }

    pub(super) async fn tier(&self) -> Result<Tier, StoreError> {
        self.with(move |mut lent| async move { tier(lent.link()?).await }).await
    }

    pub(super) async fn sweep(&self, limit: usize) -> Result<usize, StoreError> {
        self.with(move |mut lent| async move { age(&mut lent, DUE_TO_SWEEP, limit).await }).await
    }

    pub(super) async fn reap(&self, limit: usize) -> Result<usize, StoreError> {
        self.with(move |mut lent| async move { age(&mut lent, DUE_TO_REAP, limit).await }).await
    }
}

/// Writes down the items of a command, and with them that parts of it may be done from now on.
async fn announce(
    link: &mut Link,
    id: OperationId,
    values: &[Value<'_>],
    offset: i64,
) -> Result<(), DbError> {
    link.run("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
    let announced = async {
        if let Some((record, _)) = lock_command(link, id, offset).await?
            && !record.head.partly_done
        {
            tell(link, &record.id, &Event::Advance, offset).await?;
        }
        link.query(ANNOUNCE, values).await.map(|_| ())
    }
    .await;
    link.run(if announced.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
    announced
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
    pub(super) clock: StoreClock,
}

impl Lent {
    pub(super) fn link(&mut self) -> Result<&mut Link, DbError> {
        self.link.as_mut().ok_or_else(|| DbError::Unconnected("there is no connection".to_owned()))
    }
}

/// Lets time act on at most `limit` records that are due, the oldest first. A record that cannot be read, or that a
/// constraint of the service's own does not let go, is left to its operator. A record that another transaction holds is
/// left for the next time. None keeps the others waiting.
async fn age(lent: &mut Lent, due: &'static str, limit: usize) -> Result<usize, DbError> {
    let (mut aged, mut passed) = (0, 0);
    let clock = lent.clock.clone();
    clock.look(lent.link()?).await?;
    let mut after = (i64::MIN, RecordId::from_bytes([0; 32]));
    let mut batch = BATCH;
    while aged < limit && passed < MAX_PAGES {
        let wanted = (limit - aged).min(batch);
        let offset = lent.offset;
        let page = match age_page(lent.link()?, due, &clock, after, wanted).await {
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
                let found = lent.link()?.query(due, &page_values(offset, &after, 1)).await?;
                let Some(last) = found.first().and_then(place) else { break };
                match error {
                    DbError::Busy(_) => tracing::debug!(record = %last.1, "a record is in use"),
                    error => tracing::error!(why = %error, record = %last.1, "a record cannot be changed"),
                }
                Page { changed: 0, last, is_full: true }
            }
            Err(error) => return Err(error),
            Ok(None) => break,
            Ok(Some(page)) => page,
        };
        after = page.last;
        aged += page.changed;
        passed += usize::from(page.changed < wanted);
        if !page.is_full {
            break;
        }
    }
    Ok(aged)
}

/// Records that were due, in the order in which they became so.
struct Page {
    changed: usize,
    last: (i64, RecordId),
    is_full: bool,
}

fn page_values(offset: i64, after: &(i64, RecordId), wanted: usize) -> [Value<'_>; 4] {
    [
        Value::Int(Some(offset)),
        Value::Int(Some(after.0)),
        Value::Bytes(Some(after.1.as_bytes())),
        Value::Int(i64::try_from(wanted).ok()),
    ]
}

/// When a record was due, and its id.
fn place(row: &Row) -> Option<(i64, RecordId)> {
    Some((row.int(1)?, super::group::id(row, 2)?))
}

/// One page in a transaction, which passes over records that another one holds. `None` if nothing is due.
async fn age_page(
    link: &mut Link,
    due: &'static str,
    clock: &StoreClock,
    after: (i64, RecordId),
    wanted: usize,
) -> Result<Option<Page>, DbError> {
    let asked = clock.ask();
    // The locks end with the statement: a process that stands still before its writes holds no record.
    let rows = link.query(due, &page_values(asked.offset, &after, wanted)).await?;
    let now = rows.first().and_then(|row| row.int(0)).map(Timestamp::from_millis);
    let (Some(now), Some(last)) = (now, rows.last().and_then(place)) else { return Ok(None) };
    if !clock.is_steady(asked, now) {
        return Err(DbError::Conflict("the database's clock was set".to_owned()));
    }
    let is_full = rows.len() == wanted;
    Ok(Some(Page { changed: age_rows(link, rows, now).await?, last, is_full }))
}

async fn age_rows(link: &mut Link, rows: Vec<Row>, now: Timestamp) -> Result<usize, DbError> {
    let mut due: Vec<(Versioned, Transition, Option<Record>)> = Vec::with_capacity(rows.len());
    for row in rows {
        match record(row, 2) {
            Ok(before) => {
                let step = transition(Some(&before.record.head), &Event::Age, now);
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
