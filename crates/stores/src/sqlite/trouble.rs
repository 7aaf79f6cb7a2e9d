//! Trouble with a file while it is opened.

use std::path::PathBuf;

use crate::store_schema::StoreSchema;

/// An [`SqliteOpenError`](super::SqliteOpenError) without its path.
pub(super) enum Trouble {
    Sqlite(rusqlite::Error),
    Damaged(String),
    NewerSchema(StoreSchema),
    OlderSchema(u32),
    NotFinished { found: StoreSchema, needed: u32 },
    NotFinishable(StoreSchema),
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
