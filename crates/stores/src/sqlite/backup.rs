//! Backups of a SQLite store, taken beside its running gateways, and put back under a fence. Called by `semel backup` and
//! `semel restore`.
//!
//! Invariant: no file is overwritten; a backup that is named is whole and was checked; a restored store is fenced before it is in
//! its place.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use semel_core::{HoldTarget, Note};

use super::connection::damage;
use super::place::beside;
use super::{SqliteOpenError, SqliteOptions, SqliteStore, clock, holds, queries, schema};
use crate::store_schema::SchemaAge;

/// Number of steps of SQLite's virtual machine between two reports of progress.
const STEPS: i32 = 200_000;
/// Time between two reports of progress.
const REPORT_EVERY: Duration = Duration::from_secs(2);

/// Reason why a backup cannot be taken or put back, with advice. No store and no earlier backup was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The backup would be the store itself.
    #[error("{} is the store itself: name another file for the backup", .0.display())]
    Itself(PathBuf),
    /// There is a file already.
    #[error("{} is there already, and is not overwritten: name another file, or move it away", .0.display())]
    Exists(PathBuf),
    /// There is a store in the place of the restored one.
    #[error(
        "{} is there already: stop every process that uses it, and say --replace to put the backup in its place; the old store is \
         kept beside it",
        .0.display()
    )]
    StoreExists(PathBuf),
    /// Another process has the store open.
    #[error("{} is in use: stop every gateway, service and tool that has it open, and try again", .0.display())]
    InUse(PathBuf),
    /// The file is not an intact store.
    #[error("{} is no intact store of Semel: {why}", path.display())]
    NoStore {
        /// The file.
        path: PathBuf,
        /// Description of the fault.
        why: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Message of the system.
        why: String,
    },
    /// The restored store cannot be opened.
    #[error(transparent)]
    Open(#[from] SqliteOpenError),
}

/// A backup, as it was checked after it was taken, or before it was put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupContent {
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Number of records.
    pub records: u64,
    /// Schema version.
    pub schema: u32,
}

/// Copies the store to a new file, as it is at one moment, while others read and write it. `progress` is told the number of bytes
/// that were copied so far.
///
/// # Errors
/// If the file exists, or the copy is not whole.
pub fn back_up(
    store: &Path,
    to: &Path,
    mut progress: impl FnMut(u64) + Send + 'static,
) -> Result<BackupContent, BackupError> {
    refuse_same(store, to)?;
    if fs::symlink_metadata(to).is_ok() {
        return Err(BackupError::Exists(to.to_owned()));
    }
    open_readable(store)?;
    let unfinished = beside(to, ".unfinished");
    let _ = fs::remove_file(&unfinished);
    let target = unfinished.clone();
    let copied = copy(store, &unfinished, move || {
        progress(fs::metadata(&target).map_or(0, |file| file.len()));
    })
    .and_then(|()| check(&unfinished))
    .and_then(|content| {
        put(&unfinished, to)?;
        Ok(content)
    });
    if copied.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    copied
}

/// Puts a backup into the place of a store, fenced, with a note of who restored it and why. With `replaces`, a store that is there
/// is moved aside; nothing is deleted. Returns what was restored, and the file of the old store.
///
/// # Errors
/// If the backup is not whole, or the place is taken or in use.
pub fn restore(
    backup: &Path,
    store: &Path,
    replaces: bool,
    note: &Note,
) -> Result<(BackupContent, Option<PathBuf>), BackupError> {
    refuse_same(backup, store)?;
    let content = check(backup)?;
    let is_there = fs::symlink_metadata(store).is_ok();
    if is_there && !replaces {
        return Err(BackupError::StoreExists(store.to_owned()));
    }
    if is_there {
        refuse_used(store)?;
    }
    let unfinished = beside(store, ".restoring");
    let _ = fs::remove_file(&unfinished);
    copy(backup, &unfinished, || {})?;
    fence(&unfinished, note).map_err(|error| failed(&unfinished, &error))?;
    let aside = is_there.then(|| move_aside(store)).transpose()?;
    put(&unfinished, store)?;
    // Its marker names the store that is here now.
    drop(SqliteStore::open_with(store, &SqliteOptions { create: true, ..SqliteOptions::default() })?);
    Ok((content, aside))
}

fn refuse_same(one: &Path, other: &Path) -> Result<(), BackupError> {
    let same = fs::canonicalize(one).ok().zip(fs::canonicalize(other).ok());
    match same {
        Some((one, other)) if one == other => Err(BackupError::Itself(other)),
        Some(_) | None => Ok(()),
    }
}

/// Refuses a store that another process has open: in its usual mode, SQLite leaves that only to the last one.
fn refuse_used(store: &Path) -> Result<(), BackupError> {
    let alone = || {
        let connection = Connection::open_with_flags(store, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get::<_, String>(0))
    };
    match alone() {
        Ok(mode) if mode == "delete" => Ok(()),
        // A damaged store is restored, too.
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase) => Ok(()),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseCorrupt) => Ok(()),
        Ok(_) | Err(_) => Err(BackupError::InUse(store.to_owned())),
    }
}

/// Copies a database by one statement, which reads it as it is at one moment.
fn copy(from: &Path, to: &Path, mut progress: impl FnMut() + Send + 'static) -> Result<(), BackupError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(to).map_err(|error| failed(to, &error))?;
    let connection = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .map_err(|error| no_store(from, &error))?;
    connection.busy_timeout(Duration::from_secs(10)).map_err(|error| no_store(from, &error))?;
    let mut last = Instant::now();
    let reporting = move || {
        if last.elapsed() >= REPORT_EVERY {
            last = Instant::now();
            progress();
        }
        false
    };
    connection.progress_handler(STEPS, Some(reporting)).map_err(|error| no_store(from, &error))?;
    let name = to
        .to_str()
        .ok_or_else(|| BackupError::File { path: to.to_owned(), why: "its name is not UTF-8".to_owned() })?;
    connection.execute("VACUUM INTO ?1", [name]).map_err(|error| failed(to, &error))?;
    File::open(to).and_then(|file| file.sync_all()).map_err(|error| failed(to, &error))
}

/// Opens a store that this version reads. Returns its schema version, too.
fn open_readable(path: &Path) -> Result<(Connection, u32), BackupError> {
    let refused = |why: String| BackupError::NoStore { path: path.to_owned(), why };
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .map_err(|error| no_store(path, &error))?;
    let found = schema::found(&connection).map_err(|error| no_store(path, &error))?;
    match found.age(schema::known_version()) {
        SchemaAge::Current | SchemaAge::Ahead => Ok((connection, found.version)),
        SchemaAge::Older if found.version > 0 => Ok((connection, found.version)),
        SchemaAge::Older => Err(refused("it has no tables of Semel".to_owned())),
        SchemaAge::Unreadable => Err(refused(format!(
            "it has schema version {}, which this version of Semel cannot read",
            found.version
        ))),
    }
}

/// Checks that a file is an intact store that this version reads.
fn check(path: &Path) -> Result<BackupContent, BackupError> {
    let refused = |why: String| BackupError::NoStore { path: path.to_owned(), why };
    let (connection, schema) = open_readable(path)?;
    if let Some(damage) = damage(&connection).map_err(|error| no_store(path, &error))? {
        return Err(refused(damage));
    }
    let records = connection
        .query_row("SELECT count(*) FROM semel_records", [], |row| row.get::<_, i64>(0))
        .map_err(|error| no_store(path, &error))?;
    let bytes = fs::metadata(path).map_err(|error| failed(path, &error))?.len();
    Ok(BackupContent { bytes, records: u64::try_from(records).unwrap_or(0), schema })
}

/// Fences the store in this file, with its note.
fn fence(path: &Path, note: &Note) -> rusqlite::Result<()> {
    let mut connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    super::connection::make_durable(&connection)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let now = clock::now(&transaction, 0)?;
    // A fenced store that was backed up stays fenced since then.
    holds::lift(&transaction, &HoldTarget::Store, note, now)?;
    holds::hold(&transaction, &HoldTarget::Store, note, now)?;
    queries::take_note(&transaction, None, note, now)?;
    transaction.commit()
}

/// Moves a store aside, with the files beside it. Returns its new name.
fn move_aside(store: &Path) -> Result<PathBuf, BackupError> {
    let name = (1..)
        .map(|number| beside(store, &format!(".replaced-{number}")))
        .find(|name| fs::symlink_metadata(name).is_err())
        .unwrap_or_else(|| beside(store, ".replaced"));
    for suffix in ["", "-wal", "-shm"] {
        let (from, to) = (beside(store, suffix), beside(&name, suffix));
        if fs::symlink_metadata(&from).is_ok() {
            fs::rename(&from, &to).map_err(|error| failed(&from, &error))?;
        }
    }
    Ok(name)
}

/// Renames a file, durably.
fn put(from: &Path, to: &Path) -> Result<(), BackupError> {
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::rename(from, to).and_then(|()| File::open(folder)?.sync_all()).map_err(|error| failed(to, &error))
}

fn failed(path: &Path, error: &impl ToString) -> BackupError {
    BackupError::File { path: path.to_owned(), why: error.to_string() }
}

fn no_store(path: &Path, error: &rusqlite::Error) -> BackupError {
    BackupError::NoStore { path: path.to_owned(), why: error.to_string() }
}
