//! The place of a store: its file, the log beside it, and the marker with the store's id.
//!
//! A process can go on writing to a file that was deleted or replaced, and the data is gone after a restart.
//! So the writer compares device and inode after every commit, before it answers, and a difference closes the
//! store for good. By the marker, an empty file or another store is not taken for the one that was there.

use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rusqlite::Connection;
use semel_core::{Ids, RandomIds, StoreError};

use super::errors::ambiguous;
use super::{SqliteOptions, Trouble, schema};
use crate::access::Access;
use crate::store_schema::{SchemaAge, StoreSchema};
use semel_core::identity::StoreId;

/// Suffixes of the files that SQLite has beside one that is in use, or that a crash left behind.
const LOG: &str = "-wal";
const INDEX_OF_LOG: &str = "-shm";

/// Largest part of a marker that is read, in bytes.
const MAX_MARKER_BYTES: u64 = 4096;

/// Returns the path of a file beside the store's own.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Returns the path of the marker.
pub(super) fn marker_path(path: &Path) -> PathBuf {
    beside(path, ".id")
}

/// Refuses a path where a store was and only an empty file, or none, is left.
///
/// SQLite would take such a file for a new database and delete the log beside it. The log is checked first: a
/// process that creates a store at this moment writes the file before the log.
pub(super) fn refuse_remains(path: &Path, options: &SqliteOptions) -> Result<(), Trouble> {
    // SQLite keeps the log beside the file itself, not beside a link to it.
    let target = fs::canonicalize(path);
    let target = target.as_deref().unwrap_or(path);
    let left =
        [LOG, INDEX_OF_LOG].map(|suffix| beside(target, suffix)).into_iter().find(|file| file.exists());
    let marker = marker_path(path);
    let was_there = marker.exists() && !options.create;
    match fs::metadata(path) {
        Ok(metadata) if metadata.len() > 0 => return Ok(()),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        // Opening it reports the reason.
        Err(_) => return Ok(()),
    }
    match left {
        Some(left) => Err(Trouble::Remains(left)),
        None if was_there => Err(Trouble::Gone(marker)),
        None => Ok(()),
    }
}

/// Migrates the file to this version's schema and leaves the marker beside it. Refuses another store than the
/// one that was at this path. Returns the schema that the file has now.
pub(super) fn adopt(
    connection: &mut Connection,
    path: &Path,
    options: &SqliteOptions,
) -> Result<StoreSchema, Trouble> {
    // Checked before anything is written to a file that is not ours to change.
    expect_store(connection, path, options)?;
    if options.access == Access::Read {
        let found = schema::found(connection)?;
        return match found.age(schema::known_version()) {
            SchemaAge::Current | SchemaAge::Ahead => Ok(found),
            SchemaAge::Unreadable => Err(Trouble::NewerSchema(found)),
            SchemaAge::Older => Err(Trouble::OlderSchema(found.version)),
        };
    }
    let now = schema::migrate(connection)?;
    let marker = marker_path(path);
    let expected = read_marker(&marker)?.filter(|_| !options.create);
    let found =
        schema::store_id(connection)?.ok_or_else(|| Trouble::Damaged("semel_store has no row".into()))?;
    match expected {
        Some(expected) if expected == found => Ok(now),
        // Another process made a store here at the same time.
        Some(_) => Err(Trouble::Other(marker)),
        None => write_marker(&marker, found)
            .map(|()| now)
            .map_err(|error| Trouble::Marker(marker.clone(), error.to_string())),
    }
}

/// Refuses another store than the one that the marker names. Changes nothing.
pub(super) fn expect_store(
    connection: &Connection,
    path: &Path,
    options: &SqliteOptions,
) -> Result<(), Trouble> {
    let marker = marker_path(path);
    let Some(expected) = read_marker(&marker)?.filter(|_| !options.create) else { return Ok(()) };
    let Some(_) = schema::version(connection)? else { return Err(Trouble::Gone(marker)) };
    match schema::found(connection)?.age(schema::known_version()) {
        // Refused elsewhere, as unreadable.
        SchemaAge::Unreadable => Ok(()),
        SchemaAge::Current | SchemaAge::Older | SchemaAge::Ahead
            if schema::store_id(connection)? == Some(expected) =>
        {
            Ok(())
        }
        SchemaAge::Current | SchemaAge::Older | SchemaAge::Ahead => Err(Trouble::Other(marker)),
    }
}

/// Reads the marker; `None` if there is none.
fn read_marker(path: &Path) -> Result<Option<StoreId>, Trouble> {
    let unreadable = |why: String| Trouble::Marker(path.to_owned(), why);
    let mut text = String::new();
    match File::open(path) {
        Ok(file) => {
            let mut file = std::io::Read::take(file, MAX_MARKER_BYTES);
            std::io::Read::read_to_string(&mut file, &mut text)
                .map_err(|error| unreadable(error.to_string()))?;
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error.to_string())),
    }
    let id = text.split_whitespace().next().unwrap_or_default();
    id.parse().map(Some).map_err(|_| unreadable("it has no store's id".to_owned()))
}

/// Writes the marker and flushes it to disk. Several processes may do so at once: the last one replaces an
/// equal file.
fn write_marker(path: &Path, id: StoreId) -> std::io::Result<()> {
    let text = format!(
        "{id}\n\n\
         The id of the Semel store beside this file. It keeps an empty or a different file from being taken for that\n\
         store, which would run its commands again. Move it together with the store.\n"
    );
    let own = u128::from_be_bytes(*RandomIds.attempt_token().as_bytes());
    let unfinished = beside(path, &format!(".{own:032x}"));
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&unfinished)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// A store's file and its log, as they were when opened.
#[derive(Clone)]
pub struct StoreFiles {
    files: Arc<[(PathBuf, Inode); 2]>,
    /// Description of the missing file, once noticed. It is never reset: commits may have gone elsewhere.
    lost: Arc<OnceLock<String>>,
}

impl StoreFiles {
    /// Returns the place of the file that the connection has open, and of its log.
    pub(super) fn of(connection: &Connection, path: &Path) -> Result<StoreFiles, Trouble> {
        // A log exists from the first transaction on, and as long as any process has the file open.
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        let target = fs::canonicalize(path).map_err(|error| Trouble::Moved(error.to_string()))?;
        let seen = |file: PathBuf| match fs::metadata(&file) {
            Ok(metadata) => Ok((file, Inode::of(&metadata))),
            Err(error) => Err(Trouble::Moved(format!("{}: {error}", file.display()))),
        };
        let files = [seen(path.to_owned())?, seen(beside(&target, LOG))?];
        Ok(StoreFiles { files: Arc::new(files), lost: Arc::default() })
    }

    /// Checks that both files are in their place.
    ///
    /// # Errors
    /// Names the missing file. From then on every check fails.
    pub fn check(&self) -> Result<(), StoreError> {
        if let Some(why) = self.lost.get() {
            return Err(StoreError::Damaged(why.clone()));
        }
        let Some(changed) = self.files.iter().find_map(|(file, seen)| difference(file, *seen)) else {
            return Ok(());
        };
        let why = format!(
            "{changed}. Nothing is decided on it any more. Stop every process that uses it, put the file and its log back \
             where they were, and start again; if they are lost, restore a backup: without its records, retries run again"
        );
        if self.lost.set(why.clone()).is_ok() {
            tracing::error!(why, "the store's file is gone: all commands are refused until a restart");
        }
        Err(StoreError::Damaged(why))
    }

    /// Checks after a commit: its data may be in a file that no process will read.
    ///
    /// # Errors
    /// The commit may not last.
    pub fn check_commit(&self) -> Result<(), StoreError> {
        self.check().map_err(|error| ambiguous(error.to_string()))
    }
}

fn difference(file: &Path, seen: Inode) -> Option<String> {
    match fs::metadata(file) {
        Ok(metadata) if Inode::of(&metadata) == seen => None,
        Ok(_) => Some(format!("{} was replaced by another file", file.display())),
        Err(error) => Some(format!("{} is not there any more ({error})", file.display())),
    }
}

/// Identity of an open file: unique while any process has the file open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Inode {
    device: u64,
    number: u64,
}

impl Inode {
    #[cfg(unix)]
    fn of(metadata: &Metadata) -> Inode {
        use std::os::unix::fs::MetadataExt;
        Inode { device: metadata.dev(), number: metadata.ino() }
    }

    /// Returns a constant: on other systems an open file cannot be deleted or replaced.
    #[cfg(not(unix))]
    fn of(_: &Metadata) -> Inode {
        Inode { device: 0, number: 0 }
    }
}
