//! The checks of a file, one function each.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rusqlite::Connection;
use semel_core::Timestamp;

use super::super::clock;
use super::super::connection::{damage, make_durable};
use super::super::lists;
use super::super::queries;
use super::super::schema::{self, SchemaPart};
use super::{OpenedFile, beside};
use crate::doctor::{Check, in_bytes, telling};

/// Maximum number of faulty parts of the schema that are named.
const MAX_NAMED: usize = 5;

/// Checks that the file exists and is readable.
pub(super) fn file(look: &OpenedFile<'_>) -> Check {
    let log = std::fs::metadata(beside(look.path, "-wal")).map_or(0, |log| log.len());
    let log = if log > 0 { format!(", and {} in its log", in_bytes(log)) } else { String::new() };
    Check::ok("store", format!("{}, {}{log}", look.path.display(), in_bytes(look.size)))
}

/// Checks the way of a commit to the disk. The journal mode is the file's; every connection of ours sets the
/// rest.
pub(super) fn durability(path: &Path) -> Check {
    let name = "durability";
    match (is_wal(path), settings()) {
        (_, Err(error)) => {
            let found = format!("SQLite does not take the settings that durability needs: {error}");
            Check::fail(name, found, "use a build of Semel with the SQLite that it brings")
        }
        (Some(false), Ok(_)) => Check::warn(
            name,
            "the file is in a rollback journal mode, and not in WAL mode: another program changed that",
            "the gateway changes it back when it starts; find the program that did it, and keep it away",
        ),
        (None, Ok(settings)) => {
            Check::ok(name, format!("nothing is written yet; each commit will be flushed ({settings})"))
        }
        (Some(true), Ok(settings)) => {
            Check::ok(name, format!("WAL mode, each commit is flushed ({settings})"))
        }
    }
}

/// Returns true if the file's header names a write-ahead log; `None` if there is no header yet.
fn is_wal(path: &Path) -> Option<bool> {
    // Bytes 18 and 19 are the versions of the format for writing and for reading: 2 is WAL, 1 a rollback
    // journal.
    let mut header = [0; 20];
    File::open(path).ok()?.read_exact(&mut header).ok()?;
    Some(header[18..] == [2, 2])
}

/// Returns the settings of our connections, as SQLite reports them.
fn settings() -> rusqlite::Result<String> {
    let connection = Connection::open_in_memory()?;
    make_durable(&connection)?;
    let read = |name: &str| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
    let (synchronous, fullfsync) = (read("synchronous")?, read("fullfsync")?);
    let synchronous =
        ["OFF", "NORMAL", "FULL", "EXTRA"].get(usize::try_from(synchronous).unwrap_or(usize::MAX));
    let fullfsync = if fullfsync == 1 { "on" } else { "off" };
    Ok(format!("synchronous={}, fullfsync={fullfsync}", synchronous.unwrap_or(&"unknown")))
}

/// Checks the access of other users to its responses and records.
#[cfg(unix)]
pub(super) fn permissions(path: &Path) -> Check {
    use std::os::unix::fs::PermissionsExt;
    let name = "permissions";
    let mode =
        |path: &Path| std::fs::metadata(path).ok().map(|metadata| metadata.permissions().mode() & 0o7777);
    let files = ["", "-wal", "-shm"].map(|suffix| beside(path, suffix));
    let modes: Vec<(&Path, u32)> =
        files.iter().filter_map(|file| Some((file.as_path(), mode(file)?))).collect();
    let close = || {
        let files: Vec<String> = modes.iter().map(|(file, _)| file.display().to_string()).collect();
        format!("chmod 600 {}", files.join(" "))
    };
    let first = |bits: u32| modes.iter().find(|(_, mode)| mode & bits != 0);
    let tell = |file: &Path, mode: u32, who: &str| format!("{} has mode {mode:04o}: {who}", file.display());
    if let Some((file, mode)) = first(0o022) {
        return Check::fail(name, tell(file, *mode, "others may change records"), close());
    }
    if let Some((file, mode)) = first(0o055) {
        let found = tell(file, *mode, "others may read the responses that it holds");
        return Check::warn(name, found, close());
    }
    if let Some((file, mode)) = modes.iter().find(|(_, mode)| mode & 0o200 == 0) {
        return Check::fail(name, tell(file, *mode, "not even its owner may write"), close());
    }
    let folder = super::folder(path);
    match mode(folder) {
        // With the sticky bit, only the owner of a file may replace it.
        Some(mode) if mode & 0o022 != 0 && mode & 0o1000 == 0 => {
            let found = tell(folder, mode, "others may put another file in its place");
            Check::warn(name, found, format!("chmod go-w {}", folder.display()))
        }
        _ => Check::ok(name, "for the owner of the file only"),
    }
}

#[cfg(not(unix))]
pub(super) fn permissions(_: &Path) -> Check {
    Check::ok("permissions", "not looked at on this system")
}

/// Returns the checks of tables that this version knows.
pub(super) fn of_tables(look: &OpenedFile<'_>) -> Vec<Check> {
    type Checked = fn(&OpenedFile<'_>) -> rusqlite::Result<Check>;
    let checks: [(&'static str, Checked); 5] = [
        ("indexes", parts),
        ("integrity", integrity),
        ("records", records),
        ("leases", leases),
        ("expiry", expiry),
    ];
    let failed = |name, error: rusqlite::Error| {
        let advice = "`schema`, `indexes` and `integrity` say what is wrong with the file";
        Check::fail(name, format!("cannot be read: {error}"), advice)
    };
    checks.map(|(name, check)| check(look).unwrap_or_else(|error| failed(name, error))).into()
}

/// Checks that every table, column, index and trigger exists, unchanged.
fn parts(look: &OpenedFile<'_>) -> rusqlite::Result<Check> {
    let name = "indexes";
    let expected = schema::expected_parts(look.schema.version)?;
    let found = schema::parts(&look.connection)?;
    let wrong: Vec<&SchemaPart> = expected.iter().filter(|part| !found.contains(part)).collect();
    if wrong.is_empty() {
        let count = |kind| expected.iter().filter(|part| part.kind == kind).count();
        let told = format!(
            "all {} tables, {} indexes and {} triggers",
            count("table"),
            count("index"),
            count("trigger")
        );
        return Ok(Check::ok(name, told));
    }
    let is_changed =
        |part: &SchemaPart| found.iter().any(|found| (&found.kind, &found.name) == (&part.kind, &part.name));
    let told: Vec<String> = wrong
        .iter()
        .take(MAX_NAMED)
        .map(|part| {
            format!(
                "{} {} is {}",
                part.kind,
                part.name,
                if is_changed(part) { "not as it was made" } else { "missing" }
            )
        })
        .collect();
    let more = wrong.len() - told.len();
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let indexes: Vec<&&SchemaPart> =
        wrong.iter().filter(|part| !part.sql.is_empty() && !is_changed(part)).collect();
    let advice = if indexes.len() == wrong.len() && wrong.len() <= MAX_NAMED {
        let statements: Vec<&str> = indexes.iter().map(|part| part.sql.as_str()).collect();
        format!("the schema was changed by hand. Make it again, with sqlite3: {};", statements.join("; "))
    } else {
        "the schema was changed by hand: restore a backup".to_owned()
    };
    Ok(Check::fail(name, format!("{}{more}", told.join(", ")), advice))
}

/// Checks for an index that could hide a record: its command would run again.
fn integrity(look: &OpenedFile<'_>) -> rusqlite::Result<Check> {
    let name = "integrity";
    if look.size > look.options.check_up_to_bytes {
        let found =
            format!("not checked: the file has more than {}", in_bytes(look.options.check_up_to_bytes));
        return Ok(Check::warn(name, found, "run `PRAGMA integrity_check` on a copy of it when you can"));
    }
    Ok(match damage(&look.connection)? {
        None => Check::ok(name, "every table and index is intact"),
        Some(damage) => Check::fail(
            name,
            damage,
            "stop the gateway and restore a backup; do not delete the file: without its records, retries run again",
        ),
    })
}

fn records(look: &OpenedFile<'_>) -> rusqlite::Result<Check> {
    let unknown = queries::unknown(&look.connection)?;
    let counted = look.size <= look.options.check_up_to_bytes;
    let census = counted.then(|| lists::census(&look.connection)).transpose()?;
    Ok(telling::records(unknown, now(look)?, census.as_ref()))
}

fn leases(look: &OpenedFile<'_>) -> rusqlite::Result<Check> {
    let now = now(look)?;
    let before = telling::long_ago(now, look.upkeep.sweep_interval);
    Ok(telling::leases(queries::not_swept(&look.connection, before)?, now))
}

fn expiry(look: &OpenedFile<'_>) -> rusqlite::Result<Check> {
    let now = now(look)?;
    let before = telling::long_ago(now, look.upkeep.reap_interval);
    Ok(telling::expiry(queries::not_reaped(&look.connection, before)?, now))
}

/// Returns the store's time.
fn now(look: &OpenedFile<'_>) -> rusqlite::Result<Timestamp> {
    clock::peek(&look.connection, 0)
}
