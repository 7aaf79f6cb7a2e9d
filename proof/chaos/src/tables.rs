//! Tables of the service beside the records: rows, messages and phases, read without code of Semel.

use std::path::Path;

use rusqlite::types::FromSql;
use semel_checker::event::{Committed, PhaseProgress};
use serde_json::Value;

use semel_chaos::record::hyphenated;

use crate::place::{Place, query};

/// Message in the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) event_id: String,
    pub(crate) operation_id: String,
    pub(crate) state: String,
}

/// Phase of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) operation_id: String,
    pub(crate) phase: String,
    pub(crate) progress: PhaseProgress,
}

impl Place {
    /// Returns the rows of the service. Blocks.
    pub(crate) fn rows(&self) -> Result<Vec<Committed>, String> {
        let columns = ["operation_id", "part", "effect", "canary", "reference", "event_id"];
        let rows = self.table("chaos_rows", columns, columns)?;
        let rows = rows.into_iter().map(|[operation_id, part, effect, canary, reference, message]| {
            let (operation_id, effect) = (operation_id.unwrap_or_default(), effect.unwrap_or_default());
            let canary = canary.unwrap_or_default();
            Committed { at: 0, operation_id, effect, part, canary, reference, message }
        });
        Ok(rows.collect())
    }

    /// Returns all messages. Blocks.
    pub(crate) fn messages(&self) -> Result<Vec<Sent>, String> {
        let in_file = ["event_id", "lower(hex(operation_id))", "state"];
        let rows = self.table("semel_outbox", in_file, ["event_id", "operation_id", "state"])?;
        let rows = rows.into_iter().map(|[event_id, operation_id, state]| Sent {
            event_id: event_id.unwrap_or_default(),
            operation_id: hyphenated(&operation_id.unwrap_or_default()),
            state: state.unwrap_or_default(),
        });
        Ok(rows.collect())
    }

    /// Returns all phases. Blocks.
    pub(crate) fn phases(&self) -> Result<Vec<Found>, String> {
        const OUTPUT: &str = "CASE WHEN output IS NULL THEN NULL ELSE 'done' END";
        let table = "semel_phases WHERE kind <> 'item'";
        let in_file = ["lower(hex(operation_id))", "name", OUTPUT];
        let rows = self.table(table, in_file, ["operation_id", "name", OUTPUT])?;
        let rows = rows.into_iter().map(|[operation_id, phase, done]| Found {
            operation_id: hyphenated(&operation_id.unwrap_or_default()),
            phase: phase.unwrap_or_default(),
            progress: if done.is_some() { PhaseProgress::Done } else { PhaseProgress::Begun },
        });
        Ok(rows.collect())
    }

    /// Returns columns of a table as text: those of a file, or those of a server.
    fn table<const N: usize>(
        &self,
        table: &str,
        in_file: [&str; N],
        on_server: [&str; N],
    ) -> Result<Vec<[Option<String>; N]>, String> {
        match self {
            Place::File(path) => from_file(path, &format!("SELECT {} FROM {table}", in_file.join(", "))),
            Place::Server { database, .. } => {
                let array = format!("SELECT json_build_array({}) FROM {table}", on_server.join(", "));
                let rows = database.sql(&array).map_err(|error| error.to_string())?;
                rows.lines().map(from_json).collect()
            }
        }
    }
}

fn from_file<const N: usize>(path: &Path, statement: &str) -> Result<Vec<[Option<String>; N]>, String> {
    query(path, statement, |row| {
        let mut read = [const { None }; N];
        for (column, value) in read.iter_mut().enumerate() {
            *value = Option::<String>::column_result(row.get_ref(column)?)?;
        }
        Ok(read)
    })
}

fn from_json<const N: usize>(line: &str) -> Result<[Option<String>; N], String> {
    let row: Vec<Value> = serde_json::from_str(line).map_err(|error| format!("{line:?}: {error}"))?;
    Ok(std::array::from_fn(|column| row.get(column).and_then(Value::as_str).map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_row_is_read_with_null_columns() {
        assert_eq!(from_json::<2>(r#"["a", null]"#), Ok([Some("a".to_owned()), None]));
        assert!(from_json::<1>("nonsense").is_err());
    }
}
