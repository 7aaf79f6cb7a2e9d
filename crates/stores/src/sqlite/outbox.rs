//! Messages in a SQLite file: all SQL about their delivery. `push_message` inserts them.
//!
//! The writing thread makes every change here in an exclusive transaction, so two workers never take the same
//! message; concurrent writes of several workers share one flush to disk.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};
use semel_core::outbox::{
    Depth, Intervention, Message, MessageFence, MessageFilter, MessageState, MessageWrite, Next, Outbox,
    Take, discarded, given_up, sent_after_all,
};
use semel_core::{AttemptToken, Note, OperationId, StoreError, Timestamp};

use super::SqliteStore;
use super::change::tell_command;
use super::errors::{store_error, stored};
use super::job::{Task, WriteTransaction};
use super::rows::damaged_column;
use super::savepoint::all_or_nothing;
use super::{holds, queries};

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

/// Number of messages that one take looks at: some may have to wait for others, and are marked.
const WINDOW: usize = 256;

/// Maximum number of takes per call, while it meets messages that have to wait.
const ROUNDS: usize = 4;

macro_rules! has_earlier {
    () => {
        "EXISTS (SELECT 1 FROM semel_outbox AS earlier WHERE earlier.operation_id = own.operation_id
             AND earlier.position < own.position AND earlier.state <> 'delivered')"
    };
}

/// Selects due messages, the longest due first, with a mark for those that have to wait for an earlier one of
/// their command.
const DUE: &str = concat!(
    "SELECT event_id, ",
    has_earlier!(),
    " FROM semel_outbox AS own WHERE state = 'pending' AND blocked = 0 AND due_at <= ?1
          AND instr(?3, char(10) || kind || char(10)) = 0
      ORDER BY due_at, event_id LIMIT ?2"
);

/// Takes only the first undelivered message of each command.
const TAKE: &str = concat!(
    "UPDATE semel_outbox AS own SET token = ?2, epoch = epoch + 1, attempts = attempts + 1, due_at = ?1 + ?3
     WHERE event_id = ?4 AND state = 'pending' AND due_at <= ?1 AND NOT ",
    has_earlier!(),
    " RETURNING ",
    columns!("payload")
);

const BLOCK: &str = concat!(
    "UPDATE semel_outbox AS own SET blocked = 1 WHERE event_id = ?1 AND state = 'pending' AND ",
    has_earlier!()
);

/// Unblocks the next message of a command behind `?1`. One that still has to wait for another is marked
/// again.
const UNBLOCK: &str = "
    UPDATE semel_outbox SET blocked = 0 WHERE blocked = 1 AND event_id = (
        SELECT next.event_id FROM semel_outbox AS own JOIN semel_outbox AS next
            ON next.operation_id = own.operation_id AND next.position > own.position
        WHERE own.event_id = ?1 AND next.state <> 'delivered' ORDER BY next.position LIMIT 1)";

const ACCEPT: &str = "
    UPDATE semel_outbox SET provider_reference = ?4
    WHERE event_id = ?1 AND epoch = ?2 AND token = ?3 AND state = 'pending'";

/// Settles a message. A retried one is released; a finished one keeps the token of its worker.
const SETTLE: &str = "
    UPDATE semel_outbox SET state = ?4, due_at = ?5, token = CASE ?4 WHEN 'pending' THEN NULL ELSE token END,
        last_error = coalesce(?6, last_error), done_at = ?7
    WHERE event_id = ?1 AND epoch = ?2 AND token = ?3 AND state = 'pending'";

/// Condition for a message that is dead, or pending and held by no worker.
macro_rules! is_free {
    () => {
        "event_id = ?1 AND (state = 'dead' OR (state = 'pending' AND (token IS NULL OR due_at <= ?2)))"
    };
}

/// Retries a message. The epoch rises, which fences the last worker.
const RETRY: &str = concat!(
    "UPDATE semel_outbox SET state = 'pending', due_at = ?2, attempts = 0, epoch = epoch + 1, token = NULL,
         done_at = NULL WHERE ",
    is_free!()
);

const DISCARD: &str = concat!("DELETE FROM semel_outbox WHERE ", is_free!());

/// Checks for other undelivered messages of the command.
const OTHERS: &str =
    "SELECT 1 FROM semel_outbox WHERE operation_id = ?1 AND event_id <> ?2 AND state <> 'delivered'";

const GET: &str = concat!("SELECT ", columns!("payload"), " FROM semel_outbox WHERE event_id = ?1");

macro_rules! list {
    ($state:literal) => {
        concat!(
            "SELECT ",
            columns!("x''"),
            " FROM semel_outbox WHERE ",
            $state,
            " AND (?2 IS NULL OR kind = ?2) AND (?3 IS NULL OR created_at < ?3) AND event_id > ?4
              ORDER BY event_id LIMIT ?5"
        )
    };
}

const LIST: &str = list!("(?1 IS NULL OR state = ?1)");

/// Lists dead messages. They are few among many and have a partial index, which only a constant in the query
/// uses.
const LIST_DEAD: &str = list!("state = 'dead' AND ?1 = 'dead'");

const REAP: &str = "
    DELETE FROM semel_outbox WHERE event_id IN (
        SELECT event_id FROM semel_outbox WHERE state = 'delivered' AND done_at <= ?1
        ORDER BY done_at, event_id LIMIT ?2)";

const DEPTH: &str = "
    SELECT (SELECT count(*) FROM semel_outbox WHERE state = 'pending' AND blocked = 0)
            + (SELECT count(*) FROM semel_outbox WHERE state = 'pending' AND blocked = 1),
        (SELECT count(*) FROM semel_outbox WHERE state = 'dead'),
        (SELECT min(created_at) FROM (
            SELECT created_at FROM semel_outbox WHERE state = 'pending' AND blocked = 0
            UNION ALL SELECT created_at FROM semel_outbox WHERE state = 'pending' AND blocked = 1))";

/// Event ids of due messages, found without the write lock.
#[derive(Default)]
struct DueMessages {
    free: Vec<String>,
    blocked: Vec<String>,
}

/// Returns due messages of other kinds than `except`, which has each kind between line breaks. Under a fence there are none.
fn due(connection: &Connection, now: Timestamp, except: &str) -> rusqlite::Result<DueMessages> {
    let mut due = DueMessages::default();
    if holds::is_fenced(connection)? {
        return Ok(due);
    }
    let mut statement = connection.prepare_cached(DUE)?;
    let mut rows = statement.query(params![now.as_millis(), count(WINDOW), except])?;
    while let Some(row) = rows.next()? {
        let list = if row.get(1)? { &mut due.blocked } else { &mut due.free };
        list.push(row.get(0)?);
    }
    Ok(due)
}

fn take(
    connection: &Connection,
    take: &Take,
    due: &DueMessages,
    now: Timestamp,
) -> rusqlite::Result<Vec<Message>> {
    let mut block = connection.prepare_cached(BLOCK)?;
    for event_id in &due.blocked {
        block.execute([event_id])?;
    }
    let mut one = connection.prepare_cached(TAKE)?;
    let mut taken = Vec::new();
    for event_id in &due.free {
        if taken.len() == take.limit {
            break;
        }
        let values = params![now.as_millis(), take.token.as_bytes(), millis(take.lease), event_id];
        taken.extend(one.query_row(values, message).optional()?);
    }
    Ok(taken)
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
    // Unblocks first: after a failure in between, no message waits for a delivered one.
    if next == Next::Delivered {
        connection.prepare_cached(UNBLOCK)?.execute([&fence.event_id])?;
    }
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

/// Gives up a message, and the command whose outcome depends on it.
fn give_up(
    connection: &Connection,
    fence: &MessageFence,
    why: Option<&str>,
    now: Timestamp,
) -> Result<MessageWrite, StoreError> {
    let changed = stored(settle(connection, fence, Next::Dead, why, now))? == 1;
    let Some(command) = fence.operation_id().filter(|_| changed) else {
        return Ok(MessageWrite::of_message(changed));
    };
    let Some(before) = stored(queries::find(connection, command))? else {
        return Ok(MessageWrite::of_message(changed));
    };
    tell_command(connection, command, given_up, now)?;
    let after = stored(queries::find(connection, command))?;
    Ok(MessageWrite::with_command(&before, after.as_ref()))
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
        Intervention::Retry => (RETRY, head.as_ref().and_then(sent_after_all)),
        Intervention::Discard => {
            let others = connection
                .prepare_cached(OTHERS)
                .and_then(|mut others| others.exists(params![found.operation_id.as_bytes(), event_id]))
                .map_err(sqlite)?;
            (DISCARD, head.as_ref().and_then(|head| discarded(head, others)))
        }
    };
    if intervention == Intervention::Discard {
        connection
            .prepare_cached(UNBLOCK)
            .and_then(|mut unblock| unblock.execute([event_id]))
            .map_err(sqlite)?;
    }
    let changed = connection
        .prepare_cached(sql)
        .and_then(|mut change| change.execute(params![event_id, now.as_millis()]))
        .map_err(sqlite)?;
    if changed == 0 {
        return Ok(0);
    }
    tell_command(connection, found.operation_id, |_| event, now)?;
    let note = Note { action: format!("{} {}", note.action, found.kind), ..note.clone() };
    queries::take_note(connection, Some(found.operation_id), &note, now).map_err(sqlite)
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

#[async_trait]
impl Outbox for SqliteStore {
    async fn take(&self, take: &Take) -> Result<Vec<Message>, StoreError> {
        let mut taken = Vec::new();
        // The name of a held sink has no line break.
        let except = format!("\n{}\n", take.except.join("\n"));
        for _ in 0..ROUNDS {
            // Searched without the write lock: an idle worker, or a long search, delays no writer.
            let excepted = except.clone();
            let due = self.read(move |connection, now| due(connection, now, &excepted)).await?;
            let waiting = due.blocked.len();
            if due.free.is_empty() && waiting == 0 {
                break;
            }
            let rest = Take { limit: take.limit - taken.len(), ..take.clone() };
            let some = move |turn: &mut WriteTransaction<'_>| {
                stored(self::take(turn.connection, &rest, &due, turn.now))
            };
            // A second take would take others, and leave the first ones to the end of their lease.
            match self.write(Task::new(some).repeatable(false)).await {
                Ok(messages) => taken.extend(messages),
                // Taken messages are delivered now, and not left to the end of their lease.
                Err(_) if !taken.is_empty() => break,
                Err(error) => return Err(error),
            }
            if waiting == 0 || taken.len() == take.limit {
                break;
            }
        }
        Ok(taken)
    }

    async fn accept(&self, fence: &MessageFence, reference: &str) -> Result<bool, StoreError> {
        let (fence, reference) = (fence.clone(), reference.to_owned());
        let accept =
            move |turn: &mut WriteTransaction<'_>| stored(self::accept(turn.connection, &fence, &reference));
        Ok(self.write(Task::new(accept)).await? == 1)
    }

    async fn settle(
        &self,
        fence: &MessageFence,
        next: Next,
        why: Option<&str>,
    ) -> Result<MessageWrite, StoreError> {
        let (fence, why) = (fence.clone(), why.map(str::to_owned));
        let settle = move |turn: &mut WriteTransaction<'_>| {
            let (connection, now) = (turn.connection, turn.now);
            match next {
                Next::Dead => all_or_nothing(connection, || give_up(connection, &fence, why.as_deref(), now)),
                Next::Delivered | Next::Retry { .. } => {
                    let changed = stored(self::settle(connection, &fence, next, why.as_deref(), now))?;
                    Ok(MessageWrite::of_message(changed == 1))
                }
            }
        };
        self.write(Task::new(settle)).await
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
            let sql = if filter.state == Some(MessageState::Dead) { LIST_DEAD } else { LIST };
            connection.prepare_cached(sql)?.query_map(values, message)?.collect()
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
        let intervene = move |turn: &mut WriteTransaction<'_>| {
            let act = || self::intervene(turn.connection, &event_id, intervention, &note, turn.now);
            all_or_nothing(turn.connection, act)
        };
        // A second intervention would write a second note.
        Ok(self.write(Task::new(intervene).repeatable(false)).await? == 1)
    }

    async fn reap_messages(&self, retention: Duration, limit: usize) -> Result<usize, StoreError> {
        self.write(Task::new(move |turn| stored(reap(turn.connection, retention, limit, turn.now)))).await
    }

    async fn depth(&self) -> Result<Depth, StoreError> {
        self.read(|connection, _| {
            connection.query_row(DEPTH, [], |row| {
                let count = |column| row.get::<_, i64>(column).map(|n| u64::try_from(n).unwrap_or(0));
                let oldest_pending = row.get::<_, Option<i64>>(2)?.map(Timestamp::from_millis);
                Ok(Depth { pending: count(0)?, dead: count(1)?, oldest_pending })
            })
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    #[test]
    fn dead_messages_are_listed_by_their_index() {
        let mut connection = Connection::open_in_memory().expect("memory can be opened");
        assert!(super::super::schema::migrate(&mut connection).is_ok(), "it is new");
        let sql = format!("EXPLAIN QUERY PLAN {LIST_DEAD}");
        let values = params!["dead", None::<String>, None::<i64>, "", 10];
        let plan: String = connection.query_row(&sql, values, |row| row.get(3)).expect("it is planned");
        assert!(plan.contains("semel_outbox_dead"), "{plan}");
    }
    use crate::sqlite::schema;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    /// Returns commands whose first message is dead, and whose second waits for it.
    fn with_blocked(commands: usize) -> Connection {
        let mut connection = Connection::open_in_memory().expect("memory can be opened");
        assert!(schema::migrate(&mut connection).is_ok(), "it is new");
        let sql =
            "INSERT INTO semel_outbox (event_id, operation_id, position, kind, payload, state, created_at)
                   VALUES (?1 || ':' || ?2, CAST(?1 AS BLOB), ?2, 'kind', x'', ?3, 0)";
        for number in 0..commands {
            let command = format!("{number:016}");
            connection.execute(sql, params![command, 0, "dead"]).expect("there is room");
            connection.execute(sql, params![command, 1, "pending"]).expect("there is room");
        }
        connection
    }

    fn taken(connection: &Connection) -> usize {
        let take = Take {
            token: AttemptToken::from_bytes([7; 16]),
            lease: Duration::from_secs(60),
            limit: 16,
            except: Vec::new(),
        };
        let due = due(connection, NOW, "").expect("it reads");
        self::take(connection, &take, &due, NOW).expect("it writes").len()
    }

    /// Returns the number of virtual machine steps of one search.
    fn steps(connection: &Connection) -> i32 {
        let mut statement = connection.prepare(DUE).expect("it is a statement");
        let rows = statement.query_map(params![NOW.as_millis(), count(WINDOW), ""], |_| Ok(()));
        assert_eq!(rows.expect("it runs").count(), 0, "nothing is due");
        statement.get_status(StatementStatus::VmStep)
    }

    #[test]
    fn a_search_takes_as_many_steps_however_many_messages_have_to_wait() {
        let (few, many) = (with_blocked(1), with_blocked(5_000));
        for connection in [&few, &many] {
            for _ in 0..5_000 / WINDOW + 1 {
                assert_eq!(taken(connection), 0);
            }
        }
        assert_eq!(steps(&few), steps(&many));
    }

    #[test]
    fn a_search_takes_no_more_than_its_window_before_messages_are_marked() {
        let connection = with_blocked(1_000);
        let found = due(&connection, NOW, "").expect("it reads");
        assert_eq!((found.free.len(), found.blocked.len()), (0, WINDOW));
    }
}
