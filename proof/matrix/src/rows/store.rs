//! Store faults: breaks the store of a cell, and mends it.

use std::time::Duration;

use semel_faults::Lever;

use crate::lab::Place;
use crate::process::Process;
use crate::table::Fault;

/// Write lock on a SQLite file, held by another connection.
pub(crate) struct Lock(rusqlite::Connection);

impl Lock {
    pub(crate) fn take(place: &Place) -> Result<Lock, String> {
        let file = place.file().ok_or("only a file is locked")?;
        let lock = || {
            let file = rusqlite::Connection::open(file)?;
            file.busy_timeout(Duration::from_secs(5))?;
            file.execute_batch("BEGIN IMMEDIATE")?;
            Ok(Lock(file))
        };
        lock().map_err(|error: rusqlite::Error| format!("the file cannot be locked: {error}"))
    }

    pub(crate) fn release(self) -> Result<(), String> {
        self.0.execute_batch("ROLLBACK").map_err(|error| error.to_string())
    }
}

/// Breaks the store. The returned value mends it.
pub(crate) async fn break_store(
    place: &Place,
    processes: &[&Process],
    fault: Fault,
) -> Result<Option<Lock>, String> {
    match (fault, place.server()) {
        (Fault::DatabaseKilled, Some((cluster, _))) => {
            tokio::task::block_in_place(|| cluster.kill9()).map_err(|error| error.to_string())?;
        }
        (Fault::DiskFull, Some((cluster, _))) => {
            // A server that cannot write its log ends, and cannot recover before there is room again.
            tokio::task::block_in_place(|| cluster.limit_files(Some(0)))
                .map_err(|error| error.to_string())?;
        }
        (Fault::DiskFull, None) => {
            for process in processes {
                process.limit_files(Some(0))?;
            }
        }
        (Fault::PoolExhausted, Some(_)) => place.limit_connections(Some(0))?,
        (Fault::PoolExhausted | Fault::Slow, None) => return Lock::take(place).map(Some),
        (Fault::ReadOnly, Some(_)) => place.read_only(true)?,
        (Fault::ReadOnly, None) => {
            for process in processes {
                process.pull(Lever::ReadOnly(true)).await?;
            }
        }
        (Fault::Slow, Some((_, proxies))) => proxies[0].blackhole(),
        (fault, _) => return Err(format!("{fault:?} does not break this store")),
    }
    Ok(None)
}

/// Mends the store, for the processes that have not ended.
pub(crate) async fn mend_store(
    place: &Place,
    processes: &[&Process],
    fault: Fault,
    lock: Option<Lock>,
) -> Result<(), String> {
    if let Some(lock) = lock {
        return lock.release();
    }
    match (fault, place.server()) {
        (Fault::DatabaseKilled | Fault::DiskFull, Some((cluster, _))) => tokio::task::block_in_place(|| {
            cluster.kill9()?;
            cluster.restart()?;
            cluster.wait_until_ready()
        })
        .map_err(|error| error.to_string()),
        (Fault::DiskFull, None) => processes.iter().try_for_each(|process| process.limit_files(None)),
        (Fault::PoolExhausted, _) => place.limit_connections(None),
        (Fault::ReadOnly, Some(_)) => place.read_only(false),
        (Fault::ReadOnly, None) => {
            for process in processes {
                process.pull(Lever::ReadOnly(false)).await?;
            }
            Ok(())
        }
        (Fault::Slow, Some((_, proxies))) => proxies[0].heal().await.map_err(|error| error.to_string()),
        (fault, _) => Err(format!("{fault:?} is not mended so")),
    }
}
