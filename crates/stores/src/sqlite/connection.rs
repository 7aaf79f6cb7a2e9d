//! Connections with the settings that durability needs, to a file that is not damaged.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::trouble::Trouble;
use super::{SqliteOptions, place};
use crate::access::Access;

/// Size of the log in pages at which it is written to the file itself: 16 MiB. Most pages belong to the
/// latest records, which change twice within a moment: a later checkpoint writes fewer pages.
const LOG_PAGES: u32 = 4096;

/// Returns a connection with the settings that durability needs.
pub(super) fn connect(path: &Path, options: &SqliteOptions) -> Result<Connection, Trouble> {
    place::refuse_remains(path, options)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if options.access == Access::Read {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(options.busy_timeout)?;
        connection.execute_batch("PRAGMA query_only = ON; PRAGMA trusted_schema = OFF")?;
        return Ok(connection);
    }
    make_private(path);
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_CREATE)?;
    connection.busy_timeout(options.busy_timeout)?;
    let max_record = i32::try_from(options.max_record_bytes).unwrap_or(i32::MAX);
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, max_record)?;
    let mode = wal_mode(&connection, options.busy_timeout)?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(Trouble::NotDurable(mode));
    }
    make_durable(&connection)?;
    connection.execute_batch("PRAGMA trusted_schema = OFF")?;
    connection.query_row(&format!("PRAGMA wal_autocheckpoint = {LOG_PAGES}"), [], |_| Ok(()))?;
    if let Some(max) = options.max_file_bytes {
        let page: u32 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
        connection.query_row(
            &format!("PRAGMA max_page_count = {}", max / u64::from(page)),
            [],
            |_| Ok(()),
        )?;
    }
    Ok(connection)
}

/// Makes every commit flush the log to the disk, not merely to the operating system, nor (macOS) to the
/// disk's cache.
pub(super) fn make_durable(connection: &Connection) -> rusqlite::Result<()> {
    connection
        .execute_batch("PRAGMA synchronous = FULL; PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;")
}

/// Creates a new file for its owner only: it will hold plaintext responses. SQLite gives the files beside it
/// the same mode. If it cannot be created, opening it says why.
fn make_private(path: &Path) {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let _ = options.open(path);
}

/// Puts the file into WAL mode. The first process that does so holds the file for a moment, and SQLite does
/// not wait here.
fn wal_mode(connection: &Connection, patience: Duration) -> rusqlite::Result<String> {
    let begun = Instant::now();
    loop {
        match connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && begun.elapsed() < patience =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            mode => return mode,
        }
    }
}

/// Refuses a damaged file: if an index had lost a record, its command would run again.
pub(super) fn check(connection: &Connection, path: &Path, options: &SqliteOptions) -> Result<(), Trouble> {
    let size = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    if size > options.check_up_to_bytes {
        tracing::warn!(size, "the file is too large to be checked for damage at every start");
        return Ok(());
    }
    match damage(connection)? {
        Some(found) => Err(Trouble::Damaged(found)),
        None => Ok(()),
    }
}

/// Returns the damage in our tables and their indexes.
pub(super) fn damage(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let ours = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'semel!_%' ESCAPE '!'";
    let tables: Vec<String> =
        connection.prepare(ours)?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for table in tables {
        let found: String =
            connection.query_row(&format!("PRAGMA integrity_check('{table}')"), [], |row| row.get(0))?;
        if found != "ok" {
            return Ok(Some(format!("{table}: {found}")));
        }
    }
    Ok(None)
}
