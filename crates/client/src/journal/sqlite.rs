//! A journal in an SQLite database, which processes can share. Its table is the one of the Python client.

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, Row, params};

use super::file::open_private;
use super::{IntentJournal, JournalEntry, JournalError};
use crate::key::CommandKey;

/// Longest wait for a change of another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const CREATE: &str = "
CREATE TABLE IF NOT EXISTS semel_journal (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    intent TEXT NOT NULL UNIQUE,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    origin TEXT NOT NULL,
    caller TEXT NOT NULL,
    at INTEGER NOT NULL
)";
const INSERT: &str = "
INSERT INTO semel_journal (intent, key, digest, origin, caller, at) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (intent) DO NOTHING";
const DELETE: &str = "DELETE FROM semel_journal WHERE intent = ? AND key = ?";
const SELECT: &str = "SELECT intent, key, digest, origin, caller, at FROM semel_journal ORDER BY sequence";

/// Journal in a table `semel_journal` of an SQLite database. The file holds keys: only its owner may read it.
pub struct SqliteJournal {
    path: PathBuf,
    connection: Mutex<Option<Connection>>,
}

impl SqliteJournal {
    /// Makes a journal on this file, which is opened or made by the first call.
    pub fn new(path: impl Into<PathBuf>) -> SqliteJournal {
        SqliteJournal { path: path.into(), connection: Mutex::new(None) }
    }

    /// Lends the connection, whose statements are transactions of their own.
    fn with<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, JournalError> {
        let mut place = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = match place.take() {
            Some(connection) => connection,
            None => open(&self.path)?,
        };
        work(place.insert(connection)).map_err(JournalError::unavailable)
    }
}

fn open(path: &Path) -> Result<Connection, JournalError> {
    create_private(path).map_err(JournalError::unavailable)?;
    let prepared = Connection::open(path).and_then(|connection| {
        connection.busy_timeout(BUSY_TIMEOUT)?;
        // EXTRA: the end of a transaction is on the disk, the folder included, before the statement returns.
        connection.pragma_update(None, "synchronous", "EXTRA")?;
        connection.pragma_update(None, "journal_mode", "DELETE")?;
        connection.execute(CREATE, [])?;
        Ok(connection)
    });
    prepared.map_err(JournalError::unavailable)
}

/// Makes the file, with a mode that SQLite gives to its other files as well.
///
/// A file that is there is not opened: closing it would end the locks that this process may have on it.
fn create_private(path: &Path) -> io::Result<()> {
    match open_private(OpenOptions::new().create_new(true), path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map(|_| ()),
    }
}

fn entry(row: &Row<'_>) -> rusqlite::Result<JournalEntry> {
    let at: i64 = row.get(5)?;
    Ok(JournalEntry {
        intent: row.get(0)?,
        key: CommandKey::new(row.get::<_, String>(1)?),
        digest: row.get(2)?,
        origin: row.get(3)?,
        caller: row.get(4)?,
        at: u64::try_from(at).unwrap_or(0),
    })
}

impl IntentJournal for SqliteJournal {
    fn begin(&self, entry: &JournalEntry) -> Result<(), JournalError> {
        let at = i64::try_from(entry.at).unwrap_or(i64::MAX);
        let row = params![entry.intent, entry.key.as_str(), entry.digest, entry.origin, entry.caller, at];
        let inserted = self.with(|connection| connection.execute(INSERT, row))?;
        if inserted == 1 { Ok(()) } else { Err(JournalError::IntentPending) }
    }

    fn clear(&self, intent: &str, key: &CommandKey) -> Result<(), JournalError> {
        self.with(|connection| connection.execute(DELETE, [intent, key.as_str()])).map(|_| ())
    }

    fn pending(&self) -> Result<Vec<JournalEntry>, JournalError> {
        self.with(|connection| connection.prepare(SELECT)?.query_map([], entry)?.collect())
    }
}

impl fmt::Debug for SqliteJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteJournal").field("path", &self.path).finish_non_exhaustive()
    }
}
