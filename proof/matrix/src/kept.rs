//! Content of the service's database: rows, records and messages in one snapshot, read past Semel's code.

use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use crate::lab::Place;

const IN_FILE: &str = "SELECT json_object(
    'rows', (SELECT json_group_array(json_object('id', operation_id, 'effect', effect)) FROM matrix_payments),
    'records', (SELECT json_group_array(json_object('id', lower(hex(operation_id)), 'state', state)) FROM semel_records),
    'messages', (SELECT json_group_array(json_object('id', event_id, 'state', state, 'attempts', attempts,
        'epoch', epoch, 'reference', provider_reference)) FROM semel_outbox))";

const ON_SERVER: &str = "SELECT json_build_object(
    'rows', (SELECT coalesce(json_agg(json_build_object('id', operation_id, 'effect', effect)), '[]') FROM matrix_payments),
    'records', (SELECT coalesce(json_agg(json_build_object('id', operation_id, 'state', state)), '[]') FROM semel_records),
    'messages', (SELECT coalesce(json_agg(json_build_object('id', event_id, 'state', state, 'attempts', attempts,
        'epoch', epoch, 'reference', provider_reference)), '[]') FROM semel_outbox))";

/// Content of the database in one snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) rows: Vec<Row>,
    pub(crate) records: Vec<Settled>,
    pub(crate) messages: Vec<Message>,
}

/// A row of the service's own table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) operation_id: String,
    pub(crate) effect: String,
}

/// State of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) operation_id: String,
    pub(crate) state: String,
}

/// A message of the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) event_id: String,
    pub(crate) state: String,
    pub(crate) attempts: u64,
    pub(crate) epoch: u64,
    pub(crate) reference: Option<String>,
}

impl Message {
    /// Returns true if the message is of this command.
    pub(crate) fn is_of(&self, operation_id: &str) -> bool {
        plain(&self.event_id).starts_with(&plain(operation_id))
    }
}

impl Kept {
    /// Reads the snapshot. Blocks for a moment.
    pub(crate) fn read(place: &Place) -> Result<Kept, String> {
        let text = match place.file() {
            None => place.sql(ON_SERVER)?,
            Some(file) => {
                let read = || {
                    let file = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
                    file.busy_timeout(Duration::from_secs(5))?;
                    file.query_row(IN_FILE, [], |row| row.get::<_, String>(0))
                };
                read().map_err(|error: rusqlite::Error| error.to_string())?
            }
        };
        let found: Value = serde_json::from_str(&text).map_err(|error| format!("{text:?}: {error}"))?;
        let list = |name: &str| found[name].as_array().cloned().unwrap_or_default();
        let text = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
        Ok(Kept {
            rows: list("rows")
                .iter()
                .map(|row| Row { operation_id: plain(&text(row, "id")), effect: text(row, "effect") })
                .collect(),
            records: list("records")
                .iter()
                .map(|row| Settled { operation_id: plain(&text(row, "id")), state: text(row, "state") })
                .collect(),
            messages: list("messages")
                .iter()
                .map(|row| Message {
                    event_id: text(row, "id"),
                    state: text(row, "state"),
                    attempts: row["attempts"].as_u64().unwrap_or(0),
                    epoch: row["epoch"].as_u64().unwrap_or(0),
                    reference: row["reference"].as_str().map(str::to_owned),
                })
                .collect(),
        })
    }

    /// Returns the number of complete commands: a row, a settled record, and a message each. `None` if there is a part
    /// of one.
    pub(crate) fn whole(&self) -> Option<usize> {
        let count = self.rows.len();
        let is_settled = |id: &str| {
            self.records.iter().any(|record| record.operation_id == id && record.state == "succeeded")
        };
        let is_whole = |row: &Row| {
            let messages = self.messages.iter().filter(|message| message.is_of(&row.operation_id)).count();
            is_settled(&row.operation_id) && messages == 1
        };
        let is_all = self.records.len() == count && self.messages.len() == count;
        (is_all && self.rows.iter().all(is_whole)).then_some(count)
    }

    /// Describes the content in a few words.
    pub(crate) fn tell(&self) -> String {
        let messages: Vec<String> = self
            .messages
            .iter()
            .map(|message| {
                let Message { state, attempts, epoch, .. } = message;
                let known = if message.reference.is_some() { ", named" } else { "" };
                format!("{state}, {attempts} tries, epoch {epoch}{known}")
            })
            .collect();
        format!(
            "{} rows, {} records, messages [{}]",
            self.rows.len(),
            self.records.len(),
            messages.join("; ")
        )
    }
}

/// Returns an id without hyphens, which only some databases write.
fn plain(id: &str) -> String {
    id.replace('-', "")
}
