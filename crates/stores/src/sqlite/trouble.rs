//! Trouble with a file while it is opened.

use std::path::PathBuf;

/// An [`SqliteOpenError`](super::SqliteOpenError) without its path.
pub(super) enum Trouble {
    Sqlite(rusqlite::Error),
    Damaged(String),
    NewerSchema(u32),
    OlderSchema(u32),
    NotDurable(String),
    Remains(PathBuf),
    Gone(PathBuf),
    Other(PathBuf),
    Marker(PathBuf, String),
    Moved(String),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Trouble {
        Trouble::Sqlite(error)
    }
}
