//! Messages in a SQLite file: all SQL about delivering them. They come into it by `push_message`.
//!
//! The writing thread makes every change here in an exclusive transaction, so two workers never take the same message;
//! what several workers write at the same time shares one flush to disk.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};
use semel_core::outbox::{
    Depth, Intervention, Message, MessageFence, MessageFilter, MessageState, Next, Outbox, Take, discarded,
    given_up, sent_after_all,
};
use semel_core::{AttemptToken, Note, OperationId, StoreError, Timestamp};

use super::SqliteStore;
use super::change::{all_or_nothing, tell_command};
use super::errors::store_error;
use super::queries;
use super::rows::damaged_column;
use super::writer::{Done, Work};

macro_rules! columns {
    ($payload:literal) => {
        concat!(
            "event_id, operation_id, position, kind, ",
            $payload,
            " AS payload, length(payload) AS payload_bytes, state, created_at, due_at, attempts, epoch, token,
             provider_reference, last_error, done_at"
        )
    };
}

/// Of one command only the first message that is not delivered.
const TAKE: &str = concat!(
    "UPDATE semel_outbox SET token = ?2, epoch = epoch + 1, attempts = attempts + 1, due_at = ?1 + ?3
     WHERE event_id IN (
         SELECT event_id FROM semel_outbox AS own WHERE state = 'pending' AND due_at <= ?1
             AND NOT EXISTS (
                 SELECT 1 FROM semel_outbox AS earlier WHERE earlier.operation_id = own.operation_id
                     AND earlier.position < own.position AND earlier.state <> 'delivered')
         ORDER BY due_at, event_id LIMIT ?4)
     RETURNING ",
    columns!("payload")
);

const ACCEPT: &str = "
    UPDATE semel_outbox SET provider_reference = ?4
    WHERE event_id = ?1 AND epoch = ?2 AND token = ?3 AND state = 'pending'";

/// One that is tried again is in nobody's hand any more; of one that is done it stays known who did it.
const SETTLE: &str = "
    UPDATE semel_outbox SET state = ?4, due_at = ?5, token = CASE ?4 WHEN 'pending' THEN NULL ELSE token END,
        last_error = coalesce(?6, last_error), done_at = ?7
    WHERE event_id = ?1 AND epoch = ?2 AND token = ?3 AND state = 'pending'";

/// Dead, or pending and in nobody's hand.
macro_rules! is_free {
    () => {
        "event_id = ?1 AND (state = 'dead' OR (state = 'pending' AND (token IS NULL OR due_at <= ?2)))"
    };
}

/// The epoch rises, so that whoever had it cannot write about it any more.
const RETRY: &str = concat!(
    "UPDATE semel_outbox SET state = 'pending', due_at = ?2, attempts = 0, epoch = epoch + 1, token = NULL,
         done_at = NULL WHERE ",
    is_free!()
);

const DISCARD: &str = concat!("DELETE FROM semel_outbox WHERE ", is_free!());

/// Whether the command has others that are not delivered.
const OTHERS: &str =
    "SELECT 1 FROM semel_outbox WHERE operation_id = ?1 AND event_id <> ?2 AND state <> 'delivered'";

const GET: &str = concat!("SELECT ", columns!("payload"), " FROM semel_outbox WHERE event_id = ?1");

const LIST: &str = concat!(
    "SELECT ",
    columns!("x''"),
    " FROM semel_outbox
      WHERE (?1 IS NULL OR state = ?1) AND (?2 IS NULL OR kind = ?2) AND (?3 IS NULL OR created_at < ?3)
          AND event_id > ?4
      ORDER BY event_id LIMIT ?5"
);

const REAP: &str = "
    DELETE FROM semel_outbox WHERE event_id IN (
        SELECT event_id FROM semel_outbox WHERE state = 'delivered' AND done_at <= ?1
        ORDER BY done_at, event_id LIMIT ?2)";

const DEPTH: &str = "
    SELECT (SELECT count(*) FROM semel_outbox WHERE state = 'pending'),
        (SELECT count(*) FROM semel_outbox WHERE state = 'dead')";

/// A change to messages.
pub(super) enum OutboxWork {
    Take(Take),
    Accept(MessageFence, String),
    Settle(MessageFence, Next, Option<String>),
    Intervene(String, Intervention, Note),
    Reap(Duration, usize),
}

/// What was changed.
pub(super) enum OutboxDone {
    Taken(Vec<Message>),
    Changed(usize),
}

impl OutboxWork {
    /// Whether doing it twice is as good as once. A second take would take others, and leave the first ones to the end
    /// of their lease; a second intervention would be noted twice.
    pub(super) fn is_repeatable(&self) -> bool {
        match self {
            OutboxWork::Accept(..) | OutboxWork::Settle(..) | OutboxWork::Reap(..) => true,
            OutboxWork::Take(_) | OutboxWork::Intervene(..) => false,
        }
    }

    /// Makes the change within the transaction that is open.
    pub(super) fn perform(&self, connection: &Connection, now: Timestamp) -> Result<OutboxDone, StoreError> {
        let changed = match self {
            OutboxWork::Take(take) => {
                return self::take(connection, take, now)
                    .map(OutboxDone::Taken)
                    .map_err(|error| store_error(&error));
            }
            OutboxWork::Intervene(event_id, intervention, note) => {
                let act = || self::intervene(connection, event_id, *intervention, note, now);
                return all_or_nothing(connection, act).map(OutboxDone::Changed);
            }
            OutboxWork::Accept(fence, reference) => self::accept(connection, fence, reference),
            OutboxWork::Settle(fence, Next::Dead, why) => {
                let die = || {
                    let changed = self::settle(connection, fence, Next::Dead, why.as_deref(), now)
                        .map_err(|error| store_error(&error))?;
                    if let (1, Some(command)) = (changed, fence.operation_id()) {
                        tell_command(connection, command, given_up, now)?;
                    }
                    Ok(changed)
                };
                return all_or_nothing(connection, die).map(OutboxDone::Changed);
            }
            OutboxWork::Settle(fence, next, why) => {
                self::settle(connection, fence, *next, why.as_deref(), now)
            }
            OutboxWork::Reap(retention, limit) => self::reap(connection, *retention, *limit, now),
        };
        changed.map(OutboxDone::Changed).map_err(|error| store_error(&error))
    }
}

fn take(connection: &Connection, take: &Take, now: Timestamp) -> rusqlite::Result<Vec<Message>> {
    let values = params![now.as_millis(), take.token.as_bytes(), millis(take.lease), count(take.limit)];
    connection.prepare_cached(TAKE)?.query_map(values, message)?.collect()
}

fn accept(connection: &Connection, fence: &MessageFence, reference: &str) -> rusqlite::Result<usize> {
    let values = params![fence.event_id, fence.epoch, fence.token.as_bytes(), reference];
    connection.prepare_cached(ACCEPT)?.execute(values)
}

fn settle(
    connection: &Connection,
    fence: &MessageFence,
    next: Next,
    why: Option<&str>,
    now: Timestamp,
) -> rusqlite::Result<usize> {
    let (state, due_at, done_at) = match next {
        Next::Delivered => (MessageState::Delivered, now, Some(now)),
        Next::Retry { after } => (MessageState::Pending, now.plus(after), None),
        Next::Dead => (MessageState::Dead, now, Some(now)),
    };
    connection.prepare_cached(SETTLE)?.execute(params![
        fence.event_id,
        fence.epoch,
        fence.token.as_bytes(),
        state.as_str(),
        due_at.as_millis(),
        why,
        done_at.map(Timestamp::as_millis),
    ])
}

fn intervene(
    connection: &Connection,
    event_id: &str,
    intervention: Intervention,
    note: &Note,
    now: Timestamp,
) -> Result<usize, StoreError> {
    let sqlite = |error: rusqlite::Error| store_error(&error);
    let found =
        connection.prepare_cached(GET).and_then(|mut get| get.query_row([event_id], message).optional());
    let Some(found) = found.map_err(sqlite)? else { return Ok(0) };
    let head = queries::find(connection, found.operation_id).map_err(sqlite)?.map(|record| record.head);
    let (sql, event) = match intervention {
        Intervention::Retry => match head.as_ref().map_or(Ok(None), sent_after_all) {
            Ok(event) => (RETRY, event),
            Err(_) => return Ok(0),
        },
        Intervention::Discard => {
            let others = connection
                .prepare_cached(OTHERS)
                .and_then(|mut others| others.exists(params![found.operation_id.as_bytes(), event_id]))
                .map_err(sqlite)?;
            (DISCARD, head.as_ref().and_then(|head| discarded(head, others)))
        }
    };
    let changed = connection
        .prepare_cached(sql)
        .and_then(|mut change| change.execute(params![event_id, now.as_millis()]))
        .map_err(sqlite)?;
    if changed == 0 {
        return Ok(0);
    }
    tell_command(connection, found.operation_id, |_| event, now)?;
    let note = Note { action: format!("{} {}", note.action, found.kind), ..note.clone() };
    queries::take_note(connection, found.operation_id, &note, now).map_err(sqlite)
}

fn reap(
    connection: &Connection,
    retention: Duration,
    limit: usize,
    now: Timestamp,
) -> rusqlite::Result<usize> {
    let until = now.as_millis().saturating_sub(millis(retention));
    connection.prepare_cached(REAP)?.execute(params![until, count(limit)])
}

fn message(row: &Row<'_>) -> rusqlite::Result<Message> {
    let state: String = row.get("state")?;
    let time = |column: &str| row.get::<_, i64>(column).map(Timestamp::from_millis);
    Ok(Message {
        event_id: row.get("event_id")?,
        operation_id: OperationId::from_bytes(row.get("operation_id")?),
        position: row.get("position")?,
        kind: row.get("kind")?,
        payload: Bytes::from(row.get::<_, Vec<u8>>("payload")?),
        payload_bytes: u64::try_from(row.get::<_, i64>("payload_bytes")?).unwrap_or(0),
        state: MessageState::parse(&state).ok_or_else(|| damaged_column("state", "it is not a state"))?,
        created_at: time("created_at")?,
        due_at: time("due_at")?,
        attempts: u32::try_from(row.get::<_, i64>("attempts")?).unwrap_or(u32::MAX),
        epoch: row.get("epoch")?,
        token: row.get::<_, Option<[u8; 16]>>("token")?.map(AttemptToken::from_bytes),
        provider_reference: row.get("provider_reference")?,
        last_error: row.get("last_error")?,
        done_at: row.get::<_, Option<i64>>("done_at")?.map(Timestamp::from_millis),
    })
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

impl SqliteStore {
    async fn change_messages(&self, work: OutboxWork) -> Result<OutboxDone, StoreError> {
        match self.write(Work::Outbox(work)).await? {
            Done::Outbox(done) => Ok(done),
            Done::Answer(_) | Done::Aged(_) | Done::Used(_) => {
                Err(StoreError::Ambiguous("the writer answered something else".into()))
            }
        }
    }

    async fn changed_messages(&self, work: OutboxWork) -> Result<usize, StoreError> {
        match self.change_messages(work).await? {
            OutboxDone::Changed(count) => Ok(count),
            OutboxDone::Taken(_) => Err(StoreError::Ambiguous("the writer answered something else".into())),
        }
    }
}

#[async_trait]
impl Outbox for SqliteStore {
    async fn take(&self, take: &Take) -> Result<Vec<Message>, StoreError> {
        // Looked at without the lock that writing takes: an idle worker disturbs nobody.
        let any = self.read(move |connection, now| {
            let sql = "SELECT 1 FROM semel_outbox WHERE state = 'pending' AND due_at <= ?1 LIMIT 1";
            connection.prepare_cached(sql)?.exists([now.as_millis()])
        });
        if !any.await? {
            return Ok(Vec::new());
        }
        match self.change_messages(OutboxWork::Take(*take)).await? {
            OutboxDone::Taken(messages) => Ok(messages),
            OutboxDone::Changed(_) => Err(StoreError::Ambiguous("the writer answered something else".into())),
        }
    }

    async fn accept(&self, fence: &MessageFence, reference: &str) -> Result<bool, StoreError> {
        let work = OutboxWork::Accept(fence.clone(), reference.to_owned());
        Ok(self.changed_messages(work).await? == 1)
    }

    async fn settle(&self, fence: &MessageFence, next: Next, why: Option<&str>) -> Result<bool, StoreError> {
        let work = OutboxWork::Settle(fence.clone(), next, why.map(str::to_owned));
        Ok(self.changed_messages(work).await? == 1)
    }

    async fn message(&self, event_id: &str) -> Result<(Option<Message>, Timestamp), StoreError> {
        let event_id = event_id.to_owned();
        self.read(move |connection, now| {
            let found = connection.prepare_cached(GET)?.query_row([event_id], message).optional()?;
            Ok((found, now))
        })
        .await
    }

    async fn messages(&self, filter: &MessageFilter) -> Result<Vec<Message>, StoreError> {
        let filter = filter.clone();
        self.read(move |connection, _| {
            let values = params![
                filter.state.map(MessageState::as_str),
                filter.kind,
                filter.created_before.map(Timestamp::as_millis),
                filter.after.unwrap_or_default(),
                count(filter.limit),
            ];
            connection.prepare_cached(LIST)?.query_map(values, message)?.collect()
        })
        .await
    }

    async fn intervene(
        &self,
        event_id: &str,
        intervention: Intervention,
        note: &Note,
    ) -> Result<bool, StoreError> {
        let work = OutboxWork::Intervene(event_id.to_owned(), intervention, note.clone());
        Ok(self.changed_messages(work).await? == 1)
    }

    async fn reap_messages(&self, retention: Duration, limit: usize) -> Result<usize, StoreError> {
        self.changed_messages(OutboxWork::Reap(retention, limit)).await
    }

    async fn depth(&self) -> Result<Depth, StoreError> {
        self.read(|connection, _| {
            connection.query_row(DEPTH, [], |row| {
                let count = |column| row.get::<_, i64>(column).map(|n| u64::try_from(n).unwrap_or(0));
                Ok(Depth { pending: count(0)?, dead: count(1)? })
            })
        })
        .await
    }
}
