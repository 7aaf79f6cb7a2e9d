//! Events about charges in the ledger, and their receiver. All SQL about them except their tables is here;
//! `webhooks.rs` sends them.
//!
//! An event is written together with its charge, and only if there is a receiver. It is `unsent` until all its copies
//! have arrived; it is `given up` after the last try, and `lost` if a switch drops it.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Transaction};
use serde::Serialize;

use super::endpoint::Endpoint;
use super::ledger::{Broken, Charge, Ledger, PAGE};

/// Delay of an event that is to be overtaken by another one.
const HELD_BACK_MS: i64 = 5000;

const NOW_MS: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

const SUBSCRIBE: &str = "INSERT INTO endpoint (only, url, secret) VALUES (1, ?1, ?2)
    ON CONFLICT (only) DO UPDATE SET url = excluded.url, secret = excluded.secret";
const READ_ENDPOINT: &str = "SELECT url, secret FROM endpoint";
const DRAW_ID: &str = "SELECT 'evt_' || lower(hex(randomblob(12)))";
const IS_ONE_HELD_BACK: &str =
    "SELECT EXISTS (SELECT 1 FROM events WHERE held_back = 1 AND state = 'unsent')";
const READ_EVENTS: &str = "SELECT id, type, charge, state, tries, last_error, position FROM events
    WHERE position > ?1 ORDER BY position LIMIT ?2";

/// Faults in the delivery of the event about a charge.
#[derive(Clone, Copy, Default)]
pub(super) struct Fate {
    pub(super) is_lost: bool,
    pub(super) is_doubled: bool,
    pub(super) is_late: bool,
}

/// An event that is due.
pub(super) struct Due {
    pub(super) endpoint: Endpoint,
    pub(super) id: String,
    pub(super) body: String,
    /// Number of failed tries.
    pub(super) tries: u32,
    /// The ledger's clock.
    pub(super) seconds: i64,
}

/// Next task of the sender.
pub(super) enum Agenda {
    Send(Due),
    /// Nothing is due before this time has passed.
    Wait(Duration),
    /// Nothing is due.
    Idle,
}

/// An event, as `GET /events` shows it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event {
    id: String,
    r#type: String,
    charge: String,
    state: String,
    /// Number of failed tries.
    tries: u32,
    last_error: Option<String>,
    #[serde(skip)]
    pub(super) position: i64,
}

/// JSON body of an event.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    id: &'a str,
    r#type: &'a str,
    created_at: &'a str,
    data: &'a Charge,
}

/// Writes the event about a charge, if there is a receiver.
pub(super) fn insert(tx: &Transaction<'_>, charge: &Charge, fate: Fate) -> rusqlite::Result<()> {
    if endpoint(tx)?.is_none() {
        return Ok(());
    }
    let id: String = tx.query_row(DRAW_ID, [], |row| row.get(0))?;
    let kind = format!("charge.{}", charge.status.name());
    let told = Told { id: &id, r#type: &kind, created_at: &charge.created_at, data: charge };
    let body = serde_json::to_string(&told)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let state = if fate.is_lost { "lost" } else { "unsent" };
    // Only one at a time is delayed: if all were, they would arrive in order.
    let is_late = fate.is_late && !tx.query_row(IS_ONE_HELD_BACK, [], |row| row.get::<_, bool>(0))?;
    let sql = format!(
        "INSERT INTO events (id, type, charge, body, state, copies, held_back, due_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, {NOW_MS} + ?8)"
    );
    let wait = if is_late { HELD_BACK_MS } else { 0 };
    let copies = if fate.is_doubled { 2 } else { 1 };
    tx.prepare_cached(&sql)?.execute((id, kind, &charge.id, body, state, copies, is_late, wait))?;
    Ok(())
}

fn endpoint(connection: &Connection) -> rusqlite::Result<Option<Endpoint>> {
    let read = |row: &rusqlite::Row<'_>| Ok(Endpoint { url: row.get(0)?, secret: row.get(1)? });
    connection.query_row(READ_ENDPOINT, [], read).optional()
}

impl Ledger {
    /// Sets the receiver from now on, also of unsent events.
    pub(super) async fn subscribe(&self, to: Endpoint) -> Result<(), Broken> {
        let subscribe = move |connection: &mut Connection| connection.execute(SUBSCRIBE, (to.url, to.secret));
        self.with(subscribe).await?;
        self.has_news();
        Ok(())
    }

    /// Returns the oldest due event, or the time until the next one.
    pub(super) async fn agenda(&self) -> Result<Agenda, Broken> {
        let due = format!(
            "SELECT id, body, tries, unixepoch() FROM events
             WHERE state = 'unsent' AND due_ms <= {NOW_MS} ORDER BY position LIMIT 1"
        );
        let next = format!("SELECT min(due_ms) - {NOW_MS} FROM events WHERE state = 'unsent'");
        self.with(move |connection| {
            let Some(endpoint) = endpoint(connection)? else { return Ok(Agenda::Idle) };
            let found = connection.prepare_cached(&due)?.query_row([], |row| {
                let (id, body) = (row.get(0)?, row.get(1)?);
                Ok(Due { endpoint, id, body, tries: row.get(2)?, seconds: row.get(3)? })
            });
            if let Some(due) = found.optional()? {
                return Ok(Agenda::Send(due));
            }
            let next: Option<i64> = connection.query_row(&next, [], |row| row.get(0))?;
            Ok(next.map_or(Agenda::Idle, |ms| {
                Agenda::Wait(Duration::from_millis(u64::try_from(ms).unwrap_or_default()))
            }))
        })
        .await
    }

    /// Notes that one copy has arrived, and releases the events that waited to be overtaken by it.
    pub(super) async fn sent(&self, id: String) -> Result<(), Broken> {
        self.with(move |connection| {
            let tx = connection.transaction()?;
            tx.execute(
                "UPDATE events SET copies = copies - 1, held_back = 0,
                 state = CASE WHEN copies = 1 THEN 'sent' ELSE state END WHERE id = ?1 AND state = 'unsent'",
                [&id],
            )?;
            tx.execute(
                "UPDATE events SET held_back = 0, due_ms = 0 WHERE held_back = 1 AND state = 'unsent'
                 AND position < (SELECT position FROM events WHERE id = ?1)",
                [&id],
            )?;
            tx.commit()
        })
        .await
    }

    /// Notes that an event did not arrive; it is retried after this time, or given up.
    pub(super) async fn failed(
        &self,
        id: String,
        why: String,
        again: Option<Duration>,
    ) -> Result<(), Broken> {
        let sql = format!(
            "UPDATE events SET tries = tries + 1, held_back = 0, last_error = ?2, due_ms = {NOW_MS} + ?3, state = ?4
             WHERE id = ?1 AND state = 'unsent'"
        );
        let state = if again.is_some() { "unsent" } else { "given up" };
        let wait = i64::try_from(again.unwrap_or_default().as_millis()).unwrap_or(i64::MAX);
        self.with(move |connection| connection.execute(&sql, (id, why, wait, state))).await.map(drop)
    }

    /// Returns the events after this position.
    pub(super) async fn events(&self, after: i64) -> Result<Vec<Event>, Broken> {
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Event {
                id: row.get(0)?,
                r#type: row.get(1)?,
                charge: row.get(2)?,
                state: row.get(3)?,
                tries: row.get(4)?,
                last_error: row.get(5)?,
                position: row.get(6)?,
            })
        };
        self.with(move |connection| {
            connection.prepare_cached(READ_EVENTS)?.query_map((after, PAGE), read)?.collect()
        })
        .await
    }
}
