//! Breaks the store of a cell, whichever it is, and mends it.

use std::time::Duration;

use semel_faults::Lever;

use crate::table::{Cell, Fault};
use crate::world::World;

/// A file that somebody else writes.
pub(super) struct Lock(rusqlite::Connection);

impl Lock {
    pub(super) fn take(world: &World<'_>) -> Result<Lock, String> {
        let file = world.place.file().ok_or("only a file is locked")?;
        let lock = || {
            let file = rusqlite::Connection::open(file)?;
            file.busy_timeout(Duration::from_secs(5))?;
            file.execute_batch("BEGIN IMMEDIATE")?;
            Ok(Lock(file))
        };
        lock().map_err(|error: rusqlite::Error| format!("the file cannot be locked: {error}"))
    }

    pub(super) fn release(self) -> Result<(), String> {
        self.0.execute_batch("ROLLBACK").map_err(|error| error.to_string())
    }
}

/// Breaks the store. What it gives mends it.
pub(super) async fn break_store(world: &World<'_>, cell: Cell) -> Result<Option<Lock>, String> {
    let failed = |error: semel_testkit::postgres::Error| error.to_string();
    match (cell.fault, world.place.server()) {
        (Fault::DatabaseKilled, Some((cluster, _))) => {
            tokio::task::block_in_place(|| cluster.kill9()).map_err(failed)?;
        }
        (Fault::DiskFull, Some((cluster, _))) => {
            // A server that cannot write its log ends, and cannot recover before there is room again.
            tokio::task::block_in_place(|| cluster.limit_files(Some(0))).map_err(failed)?;
        }
        (Fault::DiskFull, None) => {
            world.a.limit_files(Some(0))?;
            world.b.limit_files(Some(0))?;
        }
        (Fault::PoolExhausted, Some(_)) => world.place.limit_connections(Some(0))?,
        (Fault::PoolExhausted, None) => return Lock::take(world).map(Some),
        (Fault::ReadOnly, Some(_)) => world.place.read_only(true)?,
        (Fault::ReadOnly, None) => {
            world.a.pull(Lever::ReadOnly(true)).await?;
            world.b.pull(Lever::ReadOnly(true)).await?;
        }
        (fault, _) => return Err(format!("{fault:?} does not break this store")),
    }
    Ok(None)
}

/// What was broken is whole again.
pub(super) async fn mend_store(world: &World<'_>, cell: Cell, lock: Option<Lock>) -> Result<(), String> {
    let failed = |error: semel_testkit::postgres::Error| error.to_string();
    if let Some(lock) = lock {
        return lock.release();
    }
    match (cell.fault, world.place.server()) {
        (Fault::DatabaseKilled | Fault::DiskFull, Some((cluster, _))) => tokio::task::block_in_place(|| {
            cluster.kill9()?;
            cluster.restart()?;
            cluster.wait_until_ready()
        })
        .map_err(failed),
        (Fault::DiskFull, None) => {
            world.a.limit_files(None)?;
            world.b.limit_files(None)
        }
        (Fault::PoolExhausted, _) => world.place.limit_connections(None),
        (Fault::ReadOnly, Some(_)) => world.place.read_only(false),
        (Fault::ReadOnly, None) => {
            world.a.pull(Lever::ReadOnly(false)).await?;
            world.b.pull(Lever::ReadOnly(false)).await
        }
        (fault, _) => Err(format!("{fault:?} is not mended so")),
    }
}
