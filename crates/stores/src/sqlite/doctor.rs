//! Examines a file without changing it.
//!
//! Invariant: nothing is written, created or migrated. A file at rest is read without locks; one that is in
//! use, or that a crash left behind, through a read-only connection.

mod checks;

use std::fs::{self, Metadata};
use std::path::Path;
use std::time::SystemTime;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::place::{self, beside};
use super::schema;
use super::{SqliteOptions, TIER, api_keys, holds, reseal};
use crate::doctor::{Check, Examination, UpkeepIntervals, telling};
use crate::store_schema::{SchemaAge, StoreSchema};

/// Maximum number of tries for a file that other processes begin to use meanwhile.
const MAX_LOOKS: usize = 3;

/// Examines the file. `options` are those it is used with, `upkeep` its configured maintenance intervals.
pub fn examine(path: &Path, options: &SqliteOptions, upkeep: &UpkeepIntervals) -> Examination {
    if let Err(trouble) = place::refuse_remains(path, options) {
        return only(Check::fail("store", trouble.at(path).to_string(), LOST));
    }
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return absent(path, &error),
    };
    if !metadata.is_file() {
        let found = format!("{} is not a file", path.display());
        return only(Check::fail("store", found, "let `store` name a file, such as sqlite:semel.db"));
    }
    // SQLite keeps the log beside the file itself, not beside a link to it.
    let target = fs::read_link(path).and_then(|_| fs::canonicalize(path));
    let path = target.as_deref().unwrap_or(path);
    let mut rest = at_rest(path);
    for _ in 1..MAX_LOOKS {
        let examination = look(path, &metadata, options, upkeep, rest.is_some());
        let now = at_rest(path);
        if rest.is_none() || now == rest {
            return examination;
        }
        // Another process began to use it meanwhile: the reading is not reliable.
        rest = now;
    }
    look(path, &metadata, options, upkeep, false)
}

fn only(check: Check) -> Examination {
    Examination { checks: vec![check], tier: Some(TIER), ..Examination::default() }
}

/// Returns the examination of a missing file.
fn absent(path: &Path, error: &std::io::Error) -> Examination {
    let shown = path.display();
    let folder = folder(path);
    let check = match error.kind() {
        std::io::ErrorKind::NotFound if folder.is_dir() => {
            let found = format!("there is no file at {shown} yet");
            let advice = "the gateway makes it when it first starts. If it ran before, this is not its file: a \
                          relative path begins at the current folder";
            let checks = vec![Check::warn("store", found, advice)];
            return Examination { checks, tier: Some(TIER), api_keys: Some(0), key_uses: None };
        }
        std::io::ErrorKind::NotFound => {
            let found = format!("there is no folder {}, and so no file in it", folder.display());
            Check::fail("store", found, "make the folder, or set `store` to another path")
        }
        _ => Check::fail("store", format!("{shown} cannot be examined: {error}"), OTHER_USER),
    };
    only(check)
}

const LOST: &str = "find the file: without its records, retries run again";

const OTHER_USER: &str = "run this as the user that the gateway runs as";

/// Returns the folder of the file; for a bare name, the current one.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns size and time of a file at rest, which reveal a change: no process has it open, and no crash left
/// it behind.
fn at_rest(path: &Path) -> Option<(u64, SystemTime)> {
    let in_use = ["-wal", "-journal"].iter().any(|suffix| beside(path, suffix).exists());
    let metadata = fs::metadata(path).ok().filter(|_| !in_use)?;
    Some((metadata.len(), metadata.modified().ok()?))
}

/// Returns a read-only connection. For a file at rest, it takes no locks and makes no files beside it.
fn connect(path: &Path, options: &SqliteOptions, at_rest: bool) -> rusqlite::Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI;
    let connection = if at_rest {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        Connection::open_with_flags(format!("file:{}?immutable=1", percent_encoded(&path)), flags)?
    } else {
        Connection::open_with_flags(path, flags & !OpenFlags::SQLITE_OPEN_URI)?
    };
    connection.busy_timeout(options.busy_timeout)?;
    // The last connection to close would otherwise move the log into the file.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

/// Returns a path in the spelling of a URI, so that no character in it begins parameters.
fn percent_encoded(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let bytes = path.as_os_str().as_encoded_bytes().iter();
    bytes
        .map(|byte| if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// An opened file.
struct OpenedFile<'a> {
    path: &'a Path,
    size: u64,
    options: &'a SqliteOptions,
    upkeep: &'a UpkeepIntervals,
    connection: Connection,
    schema: StoreSchema,
}

fn look(
    path: &Path,
    metadata: &Metadata,
    options: &SqliteOptions,
    upkeep: &UpkeepIntervals,
    at_rest: bool,
) -> Examination {
    // Before there is a connection: closing a file releases all locks that this process has on it.
    let durability = checks::durability(path);
    let opened = connect(path, options, at_rest)
        .and_then(|connection| schema::found(&connection).map(|found| (connection, found)));
    let (connection, schema) = match opened {
        Ok(opened) => opened,
        Err(error) => return only(unreadable(path, &error)),
    };
    let look = OpenedFile { path, size: metadata.len(), options, upkeep, connection, schema };
    let mut examination = Examination {
        checks: vec![
            checks::file(&look),
            durability,
            checks::permissions(path),
            telling::schema(schema, schema::known_version()),
            Check::ok("clock", "the store has no clock but this machine's"),
        ],
        tier: Some(TIER),
        api_keys: Some(0),
        key_uses: None,
    };
    let age = schema.age(schema::known_version());
    if age == SchemaAge::Unreadable {
        // This version does not interpret tables that it cannot read.
        return Examination { api_keys: None, ..examination };
    }
    if let Err(trouble) = place::expect_store(&look.connection, path, options) {
        examination.checks.push(Check::fail("identity", trouble.at(path).to_string(), LOST));
    }
    if schema.version > 0 {
        examination.checks.extend(checks::of_tables(&look));
        examination.api_keys = api_keys::count(&look.connection).ok();
    }
    if age != SchemaAge::Older {
        let fence = holds::fence(&look.connection).ok().flatten();
        examination.checks.extend(fence.map(|fence| telling::fence(&fence)));
        examination.key_uses = reseal::key_uses(&look.connection).ok();
    }
    examination
}

/// Returns the check of a file that exists and cannot be read as a database.
fn unreadable(path: &Path, error: &rusqlite::Error) -> Check {
    let advice = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            "restore it from a backup, and do not delete it: without its records, retries run again"
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another program holds an exclusive lock on it: find that program with `fuser` or `lsof`, and \
             end it"
        }
        Some(ErrorCode::ReadOnly) => {
            "a crash left an unfinished change, which must be rolled back before the file can be read: \
             start the gateway, or run `semel migrate`"
        }
        _ => OTHER_USER,
    };
    Check::fail("store", format!("{} cannot be read: {error}", path.display()), advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_of_a_file_path_are_percent_encoded() {
        assert_eq!(percent_encoded(Path::new("/a b/c?d#e%f/ü.db")), "/a%20b/c%3Fd%23e%25f/%C3%BC.db");
    }

    #[test]
    fn the_folder_of_a_bare_name_is_the_current_one() {
        assert_eq!(folder(Path::new("semel.db")), Path::new("."));
        assert_eq!(folder(Path::new("/var/semel.db")), Path::new("/var"));
        assert_eq!(beside(Path::new("/var/semel.db"), "-wal"), Path::new("/var/semel.db-wal"));
    }
}
