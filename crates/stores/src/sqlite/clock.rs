//! The store's time: the machine's clock minus the skipped time (see `semel_core::jump`).
//!
//! All users of a file are on one machine, so the file stores the last reading of that machine's clock, and
//! the machine's boot id. The first transaction after a jump notices it, in any process. A jump across a
//! reboot cannot be distinguished from time that passed.

use std::sync::OnceLock;

use rusqlite::{Connection, params};
use semel_core::Timestamp;
use semel_core::jump::{ClockReading, ClockWatch, JUMP_TOLERANCE};
use semel_core::time::BootTime;

use super::queries;

/// The clock as stored in the file.
struct StoredClock {
    skipped: i64,
    /// Boot id of the last reading, and how far its clock was ahead of the time since boot.
    seen: Option<(String, i64)>,
}

/// The clock as it is to be stored.
struct ClockWrite {
    skipped: i64,
    offset: i64,
    is_jump: bool,
}

/// Returns the store's time in a transaction that can write, and writes a jump. `jumped` is for tests:
/// milliseconds by which the machine's clock was set forward.
pub(super) fn now(connection: &Connection, jumped: i64) -> rusqlite::Result<Timestamp> {
    let (time, write) = tell(connection, jumped)?;
    if let Some(ClockWrite { skipped, offset, is_jump }) = write {
        if is_jump {
            tracing::error!(
                skipped_ms = skipped,
                "the machine's clock was set: the difference does not count for leases and expiry"
            );
        }
        connection
            .prepare_cached("UPDATE semel_store SET skipped_ms = ?1, clock = ?2, clock_offset_ms = ?3")?
            .execute(params![skipped, boot(), offset])?;
    }
    Ok(time)
}

/// Returns the store's time for a reader. A jump that is not written yet does not count here either.
pub(super) fn peek(connection: &Connection, jumped: i64) -> rusqlite::Result<Timestamp> {
    tell(connection, jumped).map(|(time, _)| time)
}

/// Returns the store's time, and the reading of its clock to store.
fn tell(connection: &Connection, jumped: i64) -> rusqlite::Result<(Timestamp, Option<ClockWrite>)> {
    let kept = read(connection)?;
    let before = BootTime::now();
    let clock = Timestamp::from_millis(queries::now(connection)?.saturating_add(jumped));
    let reading = ClockReading { clock, skipped: kept.skipped, before, after: BootTime::now() };
    let seen = kept.seen.filter(|(clock, _)| clock == boot()).map(|(_, offset)| offset);
    let mut watch = seen.map_or_else(ClockWatch::default, |offset| ClockWatch::seen(offset, kept.skipped));
    let jump = watch.see(&reading);
    let skipped = jump.unwrap_or(kept.skipped);
    if jump.is_some() {
        watch = ClockWatch::default();
        watch.see(&ClockReading { skipped, ..reading });
    }
    let offset = watch.offset().unwrap_or_default();
    // Within the tolerance the stored value stays, so that small steps add up to a jump.
    let is_kept = seen.is_some_and(|seen| seen.abs_diff(offset) <= JUMP_TOLERANCE.as_millis() as u64);
    let write =
        (jump.is_some() || !is_kept).then_some(ClockWrite { skipped, offset, is_jump: jump.is_some() });
    Ok((Timestamp::from_millis(clock.as_millis().saturating_sub(skipped)), write))
}

fn read(connection: &Connection) -> rusqlite::Result<StoredClock> {
    let sql = "SELECT skipped_ms, clock, clock_offset_ms FROM semel_store";
    connection.prepare_cached(sql)?.query_row([], |row| {
        let clock: Option<String> = row.get(1)?;
        let offset: Option<i64> = row.get(2)?;
        Ok(StoredClock { skipped: row.get(0)?, seen: clock.zip(offset) })
    })
}

/// Returns the name of this machine's time since boot: different after every boot, on every machine, and in
/// every container with a time of its own. Outside of Linux each process has its own.
fn boot() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let space = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
        match boot {
            Ok(boot) => format!("{} {}", boot.trim(), space.display()),
            Err(_) => format!("process {} {}", std::process::id(), BootTime::now().as_millis()),
        }
    })
}
