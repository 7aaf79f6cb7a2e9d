//! Journals of drivers as they are on the disk, read without any client's code: files with lines of JSON, and SQLite.
//!
//! The run reads the journal after its driver has ended, so nothing that a client only remembers counts.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

/// Begin of every SQLite file.
const SQLITE: &[u8] = b"SQLite format 3\0";

/// Returns the intents that the journal still has, in the order of their begin.
///
/// # Errors
/// Says what cannot be read. A journal that is not there is one, too: no driver may send without it.
pub(crate) fn pending(file: &Path) -> Result<Vec<String>, String> {
    let bytes = std::fs::read(file).map_err(|error| format!("the journal {}: {error}", file.display()))?;
    if bytes.starts_with(SQLITE) {
        return in_sqlite(file).map_err(|error| format!("the journal {}: {error}", file.display()));
    }
    in_lines(&bytes)
}

fn in_sqlite(file: &Path) -> rusqlite::Result<Vec<String>> {
    // Not read-only: a log that was not written back is part of the journal.
    let journal = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let mut rows = journal.prepare("SELECT intent FROM semel_journal ORDER BY sequence")?;
    let intents = rows.query_map([], |row| row.get(0))?;
    intents.collect()
}

fn in_lines(bytes: &[u8]) -> Result<Vec<String>, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("the journal is no text: {error}"))?;
    let mut pending: Vec<String> = Vec::new();
    for line in text.lines() {
        let entry: Value = serde_json::from_str(line)
            .map_err(|error| format!("a line of the journal: {error}: {line:?}"))?;
        if let Some(intent) = entry["begin"]["intent"].as_str() {
            pending.push(intent.to_owned());
        } else if let Some(intent) = entry["clear"].as_str() {
            pending.retain(|other| other != intent);
        } else {
            return Err(format!("a line of the journal: {line:?}"));
        }
    }
    Ok(pending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_what_was_begun_and_not_cleared() {
        let text = "{\"begin\":{\"intent\":\"a\",\"key\":\"k\"}}\n{\"begin\":{\"intent\":\"b\"}}\n{\"clear\":\"a\"}\n";
        assert_eq!(in_lines(text.as_bytes()), Ok(vec!["b".to_owned()]));
        assert!(in_lines(b"{}\n").is_err());
        assert!(pending(Path::new("/nowhere/at/all")).is_err());
    }

    #[test]
    fn a_table_has_what_was_begun_and_not_cleared() {
        let folder = tempfile::tempdir().expect("there is a temporary folder");
        let file = folder.path().join("journal.db");
        let journal = Connection::open(&file).expect("it can be made");
        let rows = "CREATE TABLE semel_journal (sequence INTEGER PRIMARY KEY, intent TEXT);
                    INSERT INTO semel_journal VALUES (1, 'a'), (2, 'b')";
        journal.execute_batch(rows).expect("it can be written");
        assert_eq!(pending(&file), Ok(vec!["a".to_owned(), "b".to_owned()]));
    }
}
