//! Messages in PostgreSQL: all SQL about delivering them. They come into it by `push_message`.
//!
//! Workers pass over what another one is just taking (`SKIP LOCKED`), and every write carries the epoch and the token of
//! its take. Each statement is a transaction of its own, but where the message's command changes with it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use semel_core::outbox::{
    Depth, Intervention, Message, MessageFence, MessageFilter, MessageState, Next, Outbox, Take, discarded,
    given_up, sent_after_all,
};
use semel_core::{AttemptToken, Event, Head, Ids, Note, OperationId, RandomIds, StoreError, Timestamp};

use super::PostgresStore;
use super::clock::StoreClock;
use super::errors::DbError;
use super::executor::{Executor, Row, Value};
use super::link::{Dialer, Link};
use super::queries::{lock_command, now, tell};
use super::schema;
use super::upkeep::Upkeep;

/// How many connections there are for messages: some deliveries end while others are written down.
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

/// Of one command only the first message that is not delivered.
pub(super) const TAKE: &str = concat!(
    "WITH due AS MATERIALIZED (
         SELECT own.event_id, n.now FROM semel_outbox AS own, ",
    now!(),
    "    WHERE own.state = 'pending' AND own.due_at <= n.now
             AND NOT EXISTS (
                 SELECT 1 FROM semel_outbox AS earlier WHERE earlier.operation_id = own.operation_id
                     AND earlier.position < own.position AND earlier.state <> 'delivered')
         ORDER BY own.due_at, own.event_id LIMIT $4 FOR UPDATE OF own SKIP LOCKED)
     UPDATE semel_outbox AS o
     SET token = $2, epoch = o.epoch + 1, attempts = o.attempts + 1, due_at = due.now + $3
     FROM due WHERE o.event_id = due.event_id RETURNING ",
    columns!("o.", "o.payload")
);

const ACCEPT: &str = "
    UPDATE semel_outbox SET provider_reference = $4
    WHERE event_id = $1 AND epoch = $2 AND token = $3 AND state = 'pending' RETURNING epoch";

/// One that is tried again is in nobody's hand any more; of one that is done it stays known who did it.
const SETTLE: &str = concat!(
    "UPDATE semel_outbox SET state = $5, due_at = n.now + $6,
         token = CASE $5 WHEN 'pending' THEN NULL ELSE token END, last_error = coalesce($7, last_error),
         done_at = CASE $5 WHEN 'pending' THEN NULL ELSE n.now END
     FROM ",
    now!(),
    " WHERE event_id = $2 AND epoch = $3 AND token = $4 AND state = 'pending' RETURNING epoch"
);

/// The action, its message's kind and the reason, for a message that is dead, or pending and in nobody's hand.
macro_rules! intervene {
    ($statement:literal) => {
        concat!(
            "WITH changed AS (",
            $statement,
            " WHERE event_id = $1 AND (state = 'dead' OR (state = 'pending' AND (token IS NULL OR due_at <= $2)))
               RETURNING operation_id, kind)
             INSERT INTO semel_audit (id, at, operation_id, who, action, why)
             SELECT $3, $2, operation_id, $4, $5 || ' ' || kind, $6 FROM changed RETURNING at"
        )
    };
}

/// The epoch rises, so that whoever had it cannot write about it any more.
const RETRY: &str = intervene!(
    "UPDATE semel_outbox SET state = 'pending', due_at = $2, attempts = 0, epoch = epoch + 1, token = NULL,
         done_at = NULL"
);

const DISCARD: &str = intervene!("DELETE FROM semel_outbox");

/// How many messages of a command are not delivered.
const UNDELIVERED: &str =
    "SELECT count(*) FROM semel_outbox WHERE operation_id = $1 AND state <> 'delivered'";

const GET: &str = concat!(
    "SELECT ",
    columns!("o.", "o.payload"),
    ", n.now FROM ",
    now!(),
    " LEFT JOIN semel_outbox AS o ON o.event_id = $2"
);

const LIST: &str = concat!(
    "SELECT ",
    columns!("", "''::bytea"),
    " FROM semel_outbox
      WHERE ($1::text IS NULL OR state = $1) AND ($2::text IS NULL OR kind = $2)
          AND ($3::bigint IS NULL OR created_at < $3) AND event_id > $4
      ORDER BY event_id LIMIT $5"
);

const REAP: &str = concat!(
    "WITH old AS MATERIALIZED (
         SELECT event_id FROM semel_outbox, ",
    now!(),
    "    WHERE state = 'delivered' AND done_at <= n.now - $2
         ORDER BY done_at, event_id LIMIT $3 FOR UPDATE OF semel_outbox SKIP LOCKED),
     gone AS (DELETE FROM semel_outbox USING old WHERE semel_outbox.event_id = old.event_id RETURNING 1)
     SELECT count(*) FROM gone"
);

const DEPTH: &str = "
    SELECT (SELECT count(*) FROM semel_outbox WHERE state = 'pending'),
        (SELECT count(*) FROM semel_outbox WHERE state = 'dead')";

/// The connections for messages, made when they are needed.
pub(super) struct Connections {
    all: Vec<Upkeep>,
    turn: AtomicUsize,
}

impl Connections {
    pub(super) fn new(dialer: &Dialer, clock: &StoreClock) -> Connections {
        let connection = || Upkeep::new(dialer.clone(), None, clock.clone());
        Connections { all: (0..CONNECTIONS).map(|_| connection()).collect(), turn: AtomicUsize::new(0) }
    }

    pub(super) fn next(&self) -> &Upkeep {
        &self.all[self.turn.fetch_add(1, Ordering::Relaxed) % self.all.len()]
    }
}

/// The command does not allow it.
struct Refused;

/// Changes a message, and with it, in one transaction, the command that sent it, if there is something to say about that.
/// `false` if the message did not change.
async fn with_command(
    link: &mut Link,
    command: OperationId,
    offset: i64,
    sql: &'static str,
    values: &[Value<'_>],
    event: impl Fn(&Head, bool) -> Result<Option<Event>, Refused>,
) -> Result<bool, DbError> {
    link.run("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
    let changed = async {
        let record = lock_command(link, command, offset).await?.map(|(record, _)| record);
        let others = [Value::Uuid(*command.as_bytes())];
        let others = link.query(UNDELIVERED, &others).await?.first().and_then(|row| row.int(0)) > Some(1);
        let Ok(event) = record.as_ref().map_or(Ok(None), |record| event(&record.head, others)) else {
            return Ok(false);
        };
        if link.query(sql, values).await?.is_empty() {
            return Ok(false);
        }
        match (record, event) {
            (Some(record), Some(event)) => tell(link, &record.id, &event, offset).await,
            (_, None) | (None, _) => Ok(true),
        }
    }
    .await;
    let end = if matches!(changed, Ok(true)) { "COMMIT" } else { "ROLLBACK" };
    link.run(end).await?;
    changed
}

fn message(row: &Row) -> Result<Message, DbError> {
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

fn count(limit: usize) -> Value<'static> {
    Value::Int(Some(i64::try_from(limit).unwrap_or(i64::MAX)))
}

#[async_trait]
impl Outbox for PostgresStore {
    async fn take(&self, take: &Take) -> Result<Vec<Message>, StoreError> {
        let take = *take;
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let values = [
                    Value::Int(Some(lent.offset)),
                    Value::Bytes(Some(take.token.as_bytes())),
                    Value::Int(Some(millis(take.lease))),
                    count(take.limit),
                ];
                lent.link()?.query(TAKE, &values).await?.iter().map(message).collect()
            })
            .await
    }

    async fn accept(&self, fence: &MessageFence, reference: &str) -> Result<bool, StoreError> {
        let (fence, reference) = (fence.clone(), reference.to_owned());
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let values = [
                    Value::Text(Some(&fence.event_id)),
                    Value::Int(Some(fence.epoch)),
                    Value::Bytes(Some(fence.token.as_bytes())),
                    Value::Text(Some(&reference)),
                ];
                Ok(lent.link()?.query(ACCEPT, &values).await?.len() == 1)
            })
            .await
    }

    async fn settle(&self, fence: &MessageFence, next: Next, why: Option<&str>) -> Result<bool, StoreError> {
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
                    Value::Int(Some(lent.offset)),
                    Value::Text(Some(&fence.event_id)),
                    Value::Int(Some(fence.epoch)),
                    Value::Bytes(Some(fence.token.as_bytes())),
                    Value::Text(Some(state.as_str())),
                    Value::Int(Some(millis(after))),
                    Value::Text(why.as_deref()),
                ];
                let offset = lent.offset;
                let link = lent.link()?;
                match fence.operation_id().filter(|_| state == MessageState::Dead) {
                    Some(command) => {
                        with_command(link, command, offset, SETTLE, &values, |head, _| Ok(given_up(head)))
                            .await
                    }
                    None => Ok(link.query(SETTLE, &values).await?.len() == 1),
                }
            })
            .await
    }

    async fn message(&self, event_id: &str) -> Result<(Option<Message>, Timestamp), StoreError> {
        let event_id = event_id.to_owned();
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let values = [Value::Int(Some(lent.offset)), Value::Text(Some(&event_id))];
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
                    Value::Text(filter.state.map(MessageState::as_str)),
                    Value::Text(filter.kind.as_deref()),
                    Value::Int(filter.created_before.map(Timestamp::as_millis)),
                    Value::Text(Some(filter.after.as_deref().unwrap_or_default())),
                    count(filter.limit),
                ];
                lent.link()?.query(LIST, &values).await?.iter().map(message).collect()
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
                    Value::Text(Some(&event_id)),
                    Value::Int(Some(now)),
                    Value::Uuid(*RandomIds.operation_id(Timestamp::from_millis(now)).as_bytes()),
                    Value::Text(Some(&note.who)),
                    Value::Text(Some(&note.action)),
                    Value::Text(Some(&note.why)),
                ];
                let Some(command) = event_id.split_once(':').and_then(|(id, _)| id.parse().ok()) else {
                    return Ok(false);
                };
                match intervention {
                    Intervention::Retry => {
                        with_command(link, command, offset, RETRY, &values, |head, _| {
                            sent_after_all(head).map_err(|_| Refused)
                        })
                        .await
                    }
                    Intervention::Discard => {
                        with_command(link, command, offset, DISCARD, &values, |head, others| {
                            Ok(discarded(head, others))
                        })
                        .await
                    }
                }
            })
            .await
    }

    async fn reap_messages(&self, retention: Duration, limit: usize) -> Result<usize, StoreError> {
        self.outbox
            .next()
            .with(move |mut lent| async move {
                let values =
                    [Value::Int(Some(lent.offset)), Value::Int(Some(millis(retention))), count(limit)];
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
                Ok(Depth { pending: count(0), dead: count(1) })
            })
            .await
    }
}
