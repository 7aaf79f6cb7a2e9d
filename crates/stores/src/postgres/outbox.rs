//! Messages in PostgreSQL: all SQL about their delivery. `push_message` inserts them.
//!
//! Workers skip messages that another one is taking (`SKIP LOCKED`), and every write carries the epoch and
//! the token of its take. Each statement is a transaction of its own, unless the message's command changes
//! with it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use semel_core::outbox::{
    Depth, Intervention, Message, MessageFence, MessageFilter, MessageState, MessageWrite, Next, Outbox,
    Take, discarded, given_up, sent_after_all,
};
use semel_core::{AttemptToken, Event, Head, Ids, Note, OperationId, RandomIds, StoreError, Timestamp};

use super::PostgresStore;
use super::clock::StoreClock;
use super::clock::now;
use super::errors::DbError;
use super::executor::{Executor, SqlRow, SqlValue};
use super::fence::not_fenced;
use super::link::{Dialer, Link};
use super::queries::{lock_command, tell};
use super::schema;
use super::side_link::SideLink;

/// Number of connections for messages: some deliveries end while others are recorded.
const CONNECTIONS: usize = 4;

macro_rules! columns {
    ($table:literal, $payload:literal) => {
        concat!(
            $table,
            "event_id, ",
            $table,
            "operation_id, ",
            $table,
            "position, ",
            $table,
            "kind, ",
            $payload,
            ", length(",
            $table,
            "payload)::bigint, ",
            $table,
            "state, ",
            $table,
            "created_at, ",
            $table,
            "due_at, ",
            $table,
            "attempts, ",
            $table,
            "epoch, ",
            $table,
            "token, ",
            $table,
            "provider_reference, ",
            $table,
            "last_error, ",
            $table,
            "done_at"
        )
    };
}

/// Number of messages that one take looks at: some may have to wait for others, and are marked.
const WINDOW: usize = 64;

/// Maximum number of takes per call, while it meets messages that have to wait.
const ROUNDS: usize = 4;

/// Selects due messages of other kinds than those of the list, the longest due first.
macro_rules! due {
    ($limit:literal, $except:literal) => {
        concat!(
            "due AS MATERIALIZED (
                 SELECT own.event_id, own.operation_id, own.position, own.due_at, n.now FROM semel_outbox AS own, ",
            now!(),
            "    WHERE own.state = 'pending' AND own.blocked = 0 AND own.due_at <= n.now AND own.kind <> ALL(",
            $except,
            ") AND ",
            not_fenced!(),
            "    ORDER BY own.due_at, own.event_id LIMIT ",
            $limit,
            ")"
        )
    };
}

/// Takes only the first undelivered message of each command. Each row carries the number of messages that
/// were looked at.
pub(super) const TAKE: &str = concat!(
    "WITH ",
    due!("$5", "$6::text[]"),
    ", free AS MATERIALIZED (
         SELECT own.event_id, due.now FROM due JOIN semel_outbox AS own ON own.event_id = due.event_id
         WHERE own.state = 'pending' AND own.due_at <= due.now
             AND NOT EXISTS (
                 SELECT 1 FROM semel_outbox AS earlier WHERE earlier.operation_id = due.operation_id
                     AND earlier.position < due.position AND earlier.state <> 'delivered')
         ORDER BY due.due_at, own.event_id LIMIT $4 FOR UPDATE OF own SKIP LOCKED),
     taken AS (
         UPDATE semel_outbox AS o
         SET token = $2, epoch = o.epoch + 1, attempts = o.attempts + 1, due_at = free.now + $3
         FROM free WHERE o.event_id = free.event_id RETURNING ",
    columns!("o.", "o.payload"),
    ") SELECT taken.*, counted.number FROM (SELECT count(*) AS number FROM due) AS counted LEFT JOIN taken ON true"
);

/// Selects due messages that have to wait, with the one before them in their command. That one is locked: it
/// cannot end until both are marked. Messages that another transaction is changing are skipped.
const WAITING_FOR: &str = concat!(
    "WITH ",
    due!("$2", "$3::text[]"),
    ", pairs AS MATERIALIZED (
         SELECT due.event_id, before.event_id AS holder FROM due CROSS JOIN LATERAL (
             SELECT earlier.event_id FROM semel_outbox AS earlier
             WHERE earlier.operation_id = due.operation_id AND earlier.position < due.position
                 AND earlier.state <> 'delivered' ORDER BY earlier.position DESC LIMIT 1) AS before)
     SELECT pairs.event_id, pairs.holder FROM pairs JOIN semel_outbox AS o ON o.event_id = pairs.holder
     WHERE o.state <> 'delivered' FOR UPDATE OF o SKIP LOCKED"
);

const HOLD: &str = "UPDATE semel_outbox SET holds = 1 WHERE event_id = ANY($1) AND holds = 0";

const BLOCK: &str = "UPDATE semel_outbox SET blocked = 1 WHERE event_id = ANY($1) AND state = 'pending'";

/// Unblocks the next message of a command after the one at this position. A message that still has to wait
/// for another is marked again. Sent after that one has ended and in its transaction, so that it sees every
/// earlier mark.
const UNBLOCK: &str = "
    UPDATE semel_outbox SET blocked = 0 WHERE event_id = (
        SELECT event_id FROM semel_outbox WHERE operation_id = $1 AND position > $2 AND state <> 'delivered'
        ORDER BY position LIMIT 1)";

const ACCEPT: &str = "
    UPDATE semel_outbox SET provider_reference = $4
    WHERE event_id = $1 AND epoch = $2 AND token = $3 AND state = 'pending' RETURNING epoch";

/// Settles a message. A retried one is released; a finished one keeps the token of its worker.
const SETTLE: &str = concat!(
    "UPDATE semel_outbox SET state = $5, due_at = n.now + $6,
         token = CASE $5 WHEN 'pending' THEN NULL ELSE token END, last_error = coalesce($7, last_error),
         done_at = CASE $5 WHEN 'pending' THEN NULL ELSE n.now END
     FROM ",
    now!(),
    " WHERE event_id = $2 AND epoch = $3 AND token = $4 AND state = 'pending' AND (holds = 0 OR $5 <> 'delivered')
      RETURNING epoch"
);

/// Settles a message that blocks the one behind it, which the same transaction unblocks after this.
const SETTLE_HOLDER: &str = concat!(
    "UPDATE semel_outbox SET state = 'delivered', due_at = n.now, last_error = coalesce($5, last_error), done_at = n.now
     FROM ",
    now!(),
    " WHERE event_id = $2 AND epoch = $3 AND token = $4 AND state = 'pending' RETURNING operation_id, position"
);

/// Changes a message that is dead, or pending and held by no worker, and writes the note: the action, the
/// message's kind and the reason.
macro_rules! intervene {
    ($statement:literal) => {
        concat!(
            "WITH changed AS (",
            $statement,
            " WHERE event_id = $1 AND (state = 'dead' OR (state = 'pending' AND (token IS NULL OR due_at <= $2)))
               RETURNING operation_id, kind, position),
             noted AS (INSERT INTO semel_audit (id, at, operation_id, who, action, why)
                       SELECT $3, $2, operation_id, $4, $5 || ' ' || kind, $6 FROM changed)
             SELECT operation_id, position FROM changed"
        )
    };
}

/// Retries a message. The epoch rises, which fences the last worker.
const RETRY: &str = intervene!(
    "UPDATE semel_outbox SET state = 'pending', due_at = $2, attempts = 0, epoch = epoch + 1, token = NULL,
         done_at = NULL"
);

const DISCARD: &str = intervene!("DELETE FROM semel_outbox");

/// Counts the undelivered messages of a command.
const UNDELIVERED: &str =
    "SELECT count(*) FROM semel_outbox WHERE operation_id = $1 AND state <> 'delivered'";

const GET: &str = concat!(
    "SELECT ",
    columns!("o.", "o.payload"),
    ", n.now FROM ",
    now!(),
    " LEFT JOIN semel_outbox AS o ON o.event_id = $2"
);

macro_rules! list {
    ($state:literal) => {
        concat!(
            "SELECT ",
            columns!("", "''::bytea"),
            " FROM semel_outbox WHERE ",
            $state,
            " AND ($2::text IS NULL OR kind = $2) AND ($3::bigint IS NULL OR created_at < $3) AND event_id > $4
              ORDER BY event_id LIMIT $5"
        )
    };
}

const LIST: &str = list!("($1::text IS NULL OR state = $1)");

/// Lists dead messages. They are few among many and have a partial index, which only a constant in the query
/// uses.
const LIST_DEAD: &str = list!("state = 'dead' AND $1::text = 'dead'");

const REAP: &str = concat!(
    "WITH old AS MATERIALIZED (
         SELECT event_id FROM semel_outbox, ",
    now!(),
    "    WHERE state = 'delivered' AND done_at <= n.now - $2
         ORDER BY done_at, event_id LIMIT $3 FOR UPDATE OF semel_outbox SKIP LOCKED),
     gone AS (DELETE FROM semel_outbox USING old WHERE semel_outbox.event_id = old.event_id RETURNING 1)
     SELECT count(*) FROM gone"
);

/// Counts pending messages, with the time of the oldest, and dead ones. Each part has the condition of a partial index.
const DEPTH: &str = "
    SELECT sum(number)::bigint, min(oldest), (SELECT count(*) FROM semel_outbox WHERE state = 'dead') FROM (
        SELECT count(*) AS number, min(created_at) AS oldest FROM semel_outbox WHERE state = 'pending' AND blocked = 0
        UNION ALL
        SELECT count(*), min(created_at) FROM semel_outbox WHERE state = 'pending' AND blocked = 1
    ) AS pending";

/// Connections for messages, made when they are needed.
pub(super) struct Connections {
    all: Vec<SideLink>,
    turn: AtomicUsize,
}

impl Connections {
    pub(super) fn new(dialer: &Dialer, clock: &StoreClock) -> Connections {
        let connection = || SideLink::new(dialer.clone(), None, clock.clone());
        Connections { all: (0..CONNECTIONS).map(|_| connection()).collect(), turn: AtomicUsize::new(0) }
    }

    pub(super) fn next(&self) -> &SideLink {
        &self.all[self.turn.fetch_add(1, Ordering::Relaxed) % self.all.len()]
    }
}

/// Changes a message and, in the same transaction, the command that sent it, if the change affects it.
async fn with_command(
    link: &mut Link,
    command: OperationId,
    offset: i64,
    sql: &'static str,
    values: &[SqlValue<'_>],
    event: impl Fn(&Head, bool) -> Option<Event>,
) -> Result<MessageWrite, DbError> {
    let changed = in_transaction(link, async |link: &mut Link| {
        let record = lock_command(link, command, offset).await?.map(|(record, _)| record);
        let others = [SqlValue::Uuid(*command.as_bytes())];
        let others = link.query(UNDELIVERED, &others).await?.first().and_then(|row| row.int(0)) > Some(1);
        let event = record.as_ref().and_then(|record| event(&record.head, others));
        let changed = link.query(sql, values).await?;
        let Some(changed) = changed.first() else { return Ok(None) };
        if sql == DISCARD {
            unblock_after(link, changed).await?;
        }
        let (Some(before), Some(event)) = (record, event) else {
            return Ok(Some(MessageWrite::of_message(true)));
        };
        if !tell(link, &before.id, &event, offset).await? {
            return Ok(None);
        }
        let after = lock_command(link, command, offset).await?.map(|(record, _)| record);
        Ok(Some(MessageWrite::with_command(&before, after.as_ref())))
    });
    Ok(changed.await?.unwrap_or(MessageWrite::Fenced))
}

/// Unblocks the message behind the one that has ended: the row has its command and its position.
async fn unblock_after(link: &mut Link, ended: &SqlRow) -> Result<(), DbError> {
    let (Some(command), Some(place)) = (ended.uuid(0), ended.int(1)) else {
        return Err(DbError::unreadable("position", "there is none"));
    };
    link.query(UNBLOCK, &[SqlValue::Uuid(command), SqlValue::Int(Some(place))]).await.map(|_| ())
}

/// Runs statements as one transaction, committed if `work` reports a change.
pub(super) async fn in_transaction<T>(
    link: &mut Link,
    work: impl AsyncFnOnce(&mut Link) -> Result<Option<T>, DbError>,
) -> Result<Option<T>, DbError> {
    link.run("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
    let changed = work(link).await;
    link.run(if matches!(changed, Ok(Some(_))) { "COMMIT" } else { "ROLLBACK" }).await?;
    changed
}

/// Marks due messages that have to wait, so that no take looks at them before the one in front of them has
/// ended. Returns their number.
async fn block(link: &mut Link, offset: i64, except: SqlValue<'_>) -> Result<usize, DbError> {
    let values = [SqlValue::Int(Some(offset)), count(WINDOW), except];
    let blocked = in_transaction(link, async |link: &mut Link| {
        let pairs = link.query(WAITING_FOR, &values).await?;
        if pairs.is_empty() {
            return Ok(None);
        }
        let list = |column| SqlValue::TextList(pairs.iter().map(|row| row.text(column)).collect());
        link.query(HOLD, &[list(1)]).await?;
        link.query(BLOCK, &[list(0)]).await?;
        Ok(Some(pairs.len()))
    });
    Ok(blocked.await?.unwrap_or(0))
}

/// Settles a delivered message that blocks the one behind it.
async fn settle_holder(
    link: &mut Link,
    fence: &MessageFence,
    why: Option<&str>,
    offset: i64,
) -> Result<bool, DbError> {
    let settled = in_transaction(link, async |link: &mut Link| {
        let values = [
            SqlValue::Int(Some(offset)),
            SqlValue::Text(Some(&fence.event_id)),
            SqlValue::Int(Some(fence.epoch)),
            SqlValue::Bytes(Some(fence.token.as_bytes())),
            SqlValue::Text(why),
        ];
        let settled = link.query(SETTLE_HOLDER, &values).await?;
        let Some(settled) = settled.first() else { return Ok(None) };
        unblock_after(link, settled).await.map(Some)
    });
    Ok(settled.await?.is_some())
}

fn message(row: &SqlRow) -> Result<Message, DbError> {
    let text = |column| row.text(column).unwrap_or_default().to_owned();
    let int = |column| row.int(column).unwrap_or(0);
    let time = |column| Timestamp::from_millis(int(column));
    let id = row.uuid(1).ok_or_else(|| DbError::unreadable("operation_id", "there is none"))?;
    let state = row.text(6).and_then(MessageState::parse);
    let token = match row.bytes(11) {
        Some(bytes) => {
            Some(bytes[..].try_into().map_err(|_| DbError::unreadable("token", "not 16 bytes long"))?)
        }
        None => None,
    };
    Ok(Message {
        event_id: text(0),
        operation_id: OperationId::from_bytes(id),
        position: int(2),
        kind: text(3),
        payload: row.bytes(4).cloned().unwrap_or_default(),
        payload_bytes: u64::try_from(int(5)).unwrap_or(0),
        state: state.ok_or_else(|| DbError::unreadable("state", "it is not a state"))?,
        created_at: time(7),
        due_at: time(8),
        attempts: u32::try_from(int(9)).unwrap_or(u32::MAX),
        epoch: int(10),
        token: token.map(AttemptToken::from_bytes),
        provider_reference: row.text(12).map(str::to_owned),
        last_error: row.text(13).map(str::to_owned),
        done_at: row.int(14).map(Timestamp::from_millis),
    })
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

fn count(limit: usize) -> SqlValue<'static> {
    SqlValue::Int(Some(i64::try_from(limit).unwrap_or(i64::MAX)))
}

#[async_trait]
impl Outbox for PostgresStore {
    async fn take(&self, take: &Take) -> Result<Vec<Message>, StoreError> {
        let take = take.clone();
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let offset = lent.offset;
                let link = lent.link()?;
                let mut taken: Vec<Message> = Vec::new();
                let except = || SqlValue::TextList(take.except.iter().map(|kind| Some(&**kind)).collect());
                for _ in 0..ROUNDS {
                    let values = [
                        SqlValue::Int(Some(offset)),
                        SqlValue::Bytes(Some(take.token.as_bytes())),
                        SqlValue::Int(Some(millis(take.lease))),
                        count(take.limit - taken.len()),
                        count(WINDOW.max(take.limit)),
                        except(),
                    ];
                    let rows = link.query(TAKE, &values).await?;
                    let seen = rows.first().and_then(|row| row.int(15)).unwrap_or(0);
                    let before = taken.len();
                    for row in rows.iter().filter(|row| row.text(0).is_some()) {
                        taken.push(message(row)?);
                    }
                    let all = usize::try_from(seen).is_ok_and(|seen| seen <= taken.len() - before);
                    if all || taken.len() == take.limit {
                        break;
                    }
                    match block(link, offset, except()).await {
                        Ok(1..) => {}
                        // Taken messages are delivered now, and not left to the end of their lease.
                        Err(error) if taken.is_empty() => return Err(error),
                        Ok(0) | Err(_) => break,
                    }
                }
                Ok(taken)
            })
            .await
    }

    async fn accept(&self, fence: &MessageFence, reference: &str) -> Result<bool, StoreError> {
        let (fence, reference) = (fence.clone(), reference.to_owned());
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let values = [
                    SqlValue::Text(Some(&fence.event_id)),
                    SqlValue::Int(Some(fence.epoch)),
                    SqlValue::Bytes(Some(fence.token.as_bytes())),
                    SqlValue::Text(Some(&reference)),
                ];
                Ok(lent.link()?.query(ACCEPT, &values).await?.len() == 1)
            })
            .await
    }

    async fn settle(
        &self,
        fence: &MessageFence,
        next: Next,
        why: Option<&str>,
    ) -> Result<MessageWrite, StoreError> {
        let (fence, why) = (fence.clone(), why.map(str::to_owned));
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let (state, after) = match next {
                    Next::Delivered => (MessageState::Delivered, Duration::ZERO),
                    Next::Retry { after } => (MessageState::Pending, after),
                    Next::Dead => (MessageState::Dead, Duration::ZERO),
                };
                let values = [
                    SqlValue::Int(Some(lent.offset)),
                    SqlValue::Text(Some(&fence.event_id)),
                    SqlValue::Int(Some(fence.epoch)),
                    SqlValue::Bytes(Some(fence.token.as_bytes())),
                    SqlValue::Text(Some(state.as_str())),
                    SqlValue::Int(Some(millis(after))),
                    SqlValue::Text(why.as_deref()),
                ];
                let offset = lent.offset;
                let link = lent.link()?;
                match fence.operation_id().filter(|_| state == MessageState::Dead) {
                    Some(command) => {
                        with_command(link, command, offset, SETTLE, &values, |head, _| given_up(head)).await
                    }
                    None => {
                        let settled = link.query(SETTLE, &values).await?.len() == 1;
                        let settled = match state {
                            // Nothing changed: the message blocks another, or another worker has it.
                            MessageState::Delivered if !settled => {
                                settle_holder(link, &fence, why.as_deref(), offset).await?
                            }
                            _ => settled,
                        };
                        Ok(MessageWrite::of_message(settled))
                    }
                }
            })
            .await
    }

    async fn message(&self, event_id: &str) -> Result<(Option<Message>, Timestamp), StoreError> {
        let event_id = event_id.to_owned();
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let values = [SqlValue::Int(Some(lent.offset)), SqlValue::Text(Some(&event_id))];
                let rows = lent.link()?.query(GET, &values).await?;
                let row = rows.first().ok_or_else(|| DbError::unreadable("now", "there is no time"))?;
                let now = Timestamp::from_millis(row.int(15).unwrap_or(0));
                let found = row.text(0).map(|_| message(row)).transpose()?;
                Ok((found, now))
            })
            .await
    }

    async fn messages(&self, filter: &MessageFilter) -> Result<Vec<Message>, StoreError> {
        let filter = filter.clone();
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let values = [
                    SqlValue::Text(filter.state.map(MessageState::as_str)),
                    SqlValue::Text(filter.kind.as_deref()),
                    SqlValue::Int(filter.created_before.map(Timestamp::as_millis)),
                    SqlValue::Text(Some(filter.after.as_deref().unwrap_or_default())),
                    count(filter.limit),
                ];
                let sql = if filter.state == Some(MessageState::Dead) { LIST_DEAD } else { LIST };
                lent.link()?.query(sql, &values).await?.iter().map(message).collect()
            })
            .await
    }

    async fn intervene(
        &self,
        event_id: &str,
        intervention: Intervention,
        note: &Note,
    ) -> Result<bool, StoreError> {
        let (event_id, note) = (event_id.to_owned(), note.clone());
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let offset = lent.offset;
                let link = lent.link()?;
                let now = schema::now(link).await?.as_millis().saturating_add(offset);
                let values = [
                    SqlValue::Text(Some(&event_id)),
                    SqlValue::Int(Some(now)),
                    SqlValue::Uuid(*RandomIds.operation_id(Timestamp::from_millis(now)).as_bytes()),
                    SqlValue::Text(Some(&note.who)),
                    SqlValue::Text(Some(&note.action)),
                    SqlValue::Text(Some(&note.why)),
                ];
                let Some(command) = event_id.split_once(':').and_then(|(id, _)| id.parse().ok()) else {
                    return Ok(false);
                };
                let written = match intervention {
                    Intervention::Retry => {
                        with_command(link, command, offset, RETRY, &values, |head, _| sent_after_all(head))
                            .await
                    }
                    Intervention::Discard => {
                        with_command(link, command, offset, DISCARD, &values, discarded).await
                    }
                };
                written.map(|written| written.is_written())
            })
            .await
    }

    async fn reap_messages(&self, retention: Duration, limit: usize) -> Result<usize, StoreError> {
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let values =
                    [SqlValue::Int(Some(lent.offset)), SqlValue::Int(Some(millis(retention))), count(limit)];
                let rows = lent.link()?.query(REAP, &values).await?;
                let gone = rows.first().and_then(|row| row.int(0)).unwrap_or(0);
                Ok(usize::try_from(gone).unwrap_or(0))
            })
            .await
    }

    async fn depth(&self) -> Result<Depth, StoreError> {
        self.outbox
            .next()
            .with(|mut lent| async move {
                let rows = lent.link()?.query(DEPTH, &[]).await?;
                let count = |column| {
                    let count = rows.first().and_then(|row| row.int(column)).unwrap_or(0);
                    u64::try_from(count).unwrap_or(0)
                };
                let oldest = rows.first().and_then(|row| row.int(1));
                Ok(Depth {
                    pending: count(0),
                    dead: count(2),
                    oldest_pending: oldest.map(Timestamp::from_millis),
                })
            })
            .await
    }
}
