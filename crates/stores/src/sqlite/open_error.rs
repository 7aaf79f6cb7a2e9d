//! Reasons why a file cannot be used.

use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use super::schema::known_version;
use super::trouble::Trouble;
use crate::store_schema::finish_advice;

/// Reason why a file cannot be used, with advice. None has changed the file.
#[derive(Debug, thiserror::Error)]
pub enum SqliteOpenError {
    /// The file or its folder cannot be read or written.
    #[error("cannot open {path}: {why}; the folder must exist, and both must be writable")]
    Inaccessible {
        /// The file.
        path: PathBuf,
        /// Message of the system.
        why: String,
    },
    /// The file is not a database, or a damaged one.
    #[error("{path} is not an intact SQLite database: {why}; restore it from a backup, do not delete it")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Message of SQLite.
        why: String,
    },
    /// The file was written by a newer version, and this one cannot read it.
    #[error(
        "{path} has schema version {found}, readable from version {readable_from} on, and this version of Semel knows versions up to \
         {}; run the version of Semel that wrote it, or a newer one",
        known_version()
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Schema version of the file.
        found: u32,
        /// Oldest version that can read the file.
        readable_from: u32,
    },
    /// Programs that this version's schema leaves behind may still open the file.
    #[error(
        "{path} has schema version {found}, readable from version {readable_from} on, and the schema of this version of Semel is \
         readable from version {needed} on. Nothing was changed: upgrade every gateway to a version of Semel with schema version \
         {needed}, run `semel migrate --finish` of that version, and then upgrade to this one"
    )]
    NotFinished {
        /// The file.
        path: PathBuf,
        /// Schema version of the file.
        found: u32,
        /// Oldest version that can read the file.
        readable_from: u32,
        /// Oldest version that can read the schema of this version.
        needed: u32,
    },
    /// The file has another schema version than the program that is to finish its upgrade.
    #[error(
        "{path} has schema version {found}, and that of this version of Semel is {}. Nothing was changed: {}",
        known_version(),
        finish_advice(*found, known_version())
    )]
    NotFinishable {
        /// The file.
        path: PathBuf,
        /// Schema version of the file; 0 if it has no records yet.
        found: u32,
    },
    /// The file was written by an older version, and may only be read.
    #[error(
        "{path} has schema version {found}, and this version of Semel reads version {}. Nothing was \
         changed: run `semel migrate`, or start the gateway, to migrate it; or read it with the version of \
         Semel that wrote it",
        known_version()
    )]
    OlderSchema {
        /// The file.
        path: PathBuf,
        /// Schema version of the file; 0 if it has no records yet.
        found: u32,
    },
    /// The file system lacks what durability needs.
    #[error("{path} cannot be put into WAL mode (it stays in {mode:?}); use a local disk")]
    NotDurable {
        /// The file.
        path: PathBuf,
        /// Journal mode of the file.
        mode: String,
    },
    /// A store was here: its log exists, and its file is missing or empty.
    #[error(
        "{path} is missing or empty, and its log {left} is there: a store was here. Put its file back beside the log, or restore \
         both from a backup; without its records, retries run again. To begin anew, move the log away"
    )]
    Remains {
        /// The file.
        path: PathBuf,
        /// The log, or the log's index.
        left: PathBuf,
    },
    /// A store was here: its marker exists, and its file is missing, empty, or has no records.
    #[error(
        "{path} is missing or has no records, and {marker} says that a store was here. Put the file back, or restore it from a backup; \
         without its records, retries run again. To begin anew, run `semel migrate --create`, or delete the marker"
    )]
    Gone {
        /// The file.
        path: PathBuf,
        /// The file with the store's id.
        marker: PathBuf,
    },
    /// Another store was here.
    #[error(
        "{path} is not the store that was here: {marker} names another one. Put the right file back; without its records, \
         retries run again. To use this one in its place, run `semel migrate --create`, or delete the marker"
    )]
    Other {
        /// The file.
        path: PathBuf,
        /// The file with the store's id.
        marker: PathBuf,
    },
    /// The marker cannot be read or written.
    #[error(
        "cannot use {marker}, the file with the id of the store at {path}: {why}; it must be readable, and \
         its folder writable"
    )]
    Marker {
        /// The store's file.
        path: PathBuf,
        /// The file with the store's id.
        marker: PathBuf,
        /// Message of the system.
        why: String,
    },
    /// The file was deleted or replaced while it was opened.
    #[error("{path} was deleted or replaced while it was opened: {why}; find the program that does that")]
    Moved {
        /// The file.
        path: PathBuf,
        /// Message of the system.
        why: String,
    },
    /// Another process held the file for too long, the disk is full, or the like.
    #[error("cannot prepare {path}: {why}")]
    Failed {
        /// The file.
        path: PathBuf,
        /// Message of SQLite.
        why: String,
    },
}

impl Trouble {
    /// Adds the path, and separates the cases that need different remedies.
    pub(super) fn at(self, path: &Path) -> SqliteOpenError {
        let path = path.to_owned();
        let error = match self {
            Trouble::NewerSchema(schema) => {
                let (found, readable_from) = (schema.version, schema.readable_from);
                return SqliteOpenError::NewerSchema { path, found, readable_from };
            }
            Trouble::NotFinished { found: schema, needed } => {
                let (found, readable_from) = (schema.version, schema.readable_from);
                return SqliteOpenError::NotFinished { path, found, readable_from, needed };
            }
            Trouble::NotFinishable(schema) => {
                return SqliteOpenError::NotFinishable { path, found: schema.version };
            }
            Trouble::OlderSchema(found) => return SqliteOpenError::OlderSchema { path, found },
            Trouble::NotDurable(mode) => return SqliteOpenError::NotDurable { path, mode },
            Trouble::Damaged(why) => return SqliteOpenError::Damaged { path, why },
            Trouble::Remains(left) => return SqliteOpenError::Remains { path, left },
            Trouble::Gone(marker) => return SqliteOpenError::Gone { path, marker },
            Trouble::Other(marker) => return SqliteOpenError::Other { path, marker },
            Trouble::Marker(marker, why) => return SqliteOpenError::Marker { path, marker, why },
            Trouble::Moved(why) => return SqliteOpenError::Moved { path, why },
            Trouble::Sqlite(error) => error,
        };
        let why = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
                SqliteOpenError::Inaccessible { path, why }
            }
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                SqliteOpenError::Damaged { path, why }
            }
            _ => SqliteOpenError::Failed { path, why },
        }
    }
}
