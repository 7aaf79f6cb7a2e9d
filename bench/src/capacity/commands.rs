//! Log, flushes and rows that a command costs on PostgreSQL, and those of a reaped record; sessions of a store.

use std::sync::Arc;

use semel_core::Records;

use super::server::{Counters, Server};
use super::{Extent, print, rounded, send};
use crate::Result;

/// Concurrent commands, and number of commands that are measured.
const AT_ONCE: [(u64, u64); 3] = [(1, 1_000), (32, 8_000), (256, 16_000)];
/// Number of records that a reap deletes at most.
const REAPED: usize = 1_000;

/// Measures commands in a table of many records, and reaps.
pub(super) async fn run(extent: Extent) -> Result<()> {
    let mut rows = Vec::new();
    for records in [100_000, 1_000_000].map(|records| extent.of(records)) {
        for (name, length) in [("1 KiB", 1024), ("empty", 0)] {
            if length == 0 && records > extent.of(100_000) {
                continue;
            }
            let server = Server::start().await?;
            let store = server.open().await?;
            send(&store, 1, 1, length).await?;
            drop(store);
            server.fill(records, 86_400_000)?;
            server.database.sql("VACUUM ANALYZE semel_records")?;
            for (at_once, count) in AT_ONCE {
                let count = extent.of(count).max(at_once);
                for mode in [Mode::AfterCheckpoint, Mode::WithoutImages] {
                    mode.begin(&server)?;
                    let counted = server.counted(count, async |store: &Arc<dyn Records>| {
                        send(store, count, at_once, length).await
                    });
                    let label =
                        format!("{} records, {name}, {at_once} at once, {}", short(records), mode.name());
                    add(&mut rows, label, &counted.await?);
                }
            }
            reap(&server, &mut rows, records, name, extent).await?;
        }
    }
    let heading = [
        "what",
        "WAL bytes",
        "WAL records",
        "page images",
        "flushes",
        "transactions",
        "row updates",
        "of these HOT",
    ];
    print("Each command, claimed and completed; each reaped record", &heading, &rows);
    Ok(())
}

/// State of the pages before a measurement.
#[derive(Clone, Copy)]
enum Mode {
    /// Every page that changes is logged whole once.
    AfterCheckpoint,
    /// As long after a checkpoint, when every page has been logged: no page is logged whole.
    WithoutImages,
}

impl Mode {
    const fn name(self) -> &'static str {
        match self {
            Mode::AfterCheckpoint => "after a checkpoint",
            Mode::WithoutImages => "without page images",
        }
    }

    fn begin(self, server: &Server) -> Result<()> {
        let images = if matches!(self, Mode::AfterCheckpoint) { "on" } else { "off" };
        server.database.sql(&format!("ALTER SYSTEM SET full_page_writes = {images}"))?;
        server.database.sql("SELECT pg_reload_conf()")?;
        // The checkpointer tells the setting to the others.
        server.database.sql("CHECKPOINT")?;
        server.database.sql("CHECKPOINT")?;
        Ok(())
    }
}

async fn reap(
    server: &Server,
    rows: &mut Vec<Vec<String>>,
    records: u64,
    name: &str,
    extent: Extent,
) -> Result<()> {
    for mode in [Mode::AfterCheckpoint, Mode::WithoutImages] {
        let count = extent.of(20_000);
        // Their time was over long ago.
        server.fill(count, -1_000_000_000)?;
        mode.begin(server)?;
        let counted = server.counted(count, async |store: &Arc<dyn Records>| {
            let mut left = count;
            while left > 0 {
                let reaped = store.reap(REAPED).await?.len() as u64;
                left =
                    left.checked_sub(reaped).filter(|_| reaped > 0).ok_or("a reap deletes another number")?;
            }
            Ok(())
        });
        let label = format!("{} records, {name}, a reaped record, {}", short(records), mode.name());
        add(rows, label, &counted.await?);
        let before = server.counters()?;
        server.database.sql("VACUUM semel_records")?;
        let bytes = (server.counters()?.bytes - before.bytes) / count as f64;
        add(rows, format!("– and its vacuum, {}", mode.name()), &Counters { bytes, ..Counters::default() });
    }
    Ok(())
}

/// Counts the sessions of a store whose every kind of work is used.
pub(super) async fn sessions() -> Result<()> {
    let server = Server::start().await?;
    let store = server.open().await?;
    send(&store, 2_000, 256, 0).await?;
    let commands = server.sessions()?;
    store.reap(1).await?;
    store.sweep(1).await?;
    store.census().await?;
    let all = server.sessions()?;
    let rows = [
        vec!["commands alone".to_owned(), rounded(commands)],
        vec!["with sweeps and counts".into(), rounded(all)],
    ];
    print("Sessions of a store", &["work", "sessions"], &rows);
    Ok(())
}

fn short(records: u64) -> String {
    crate::chart::count(records)
}

fn add(rows: &mut Vec<Vec<String>>, label: String, counted: &Counters) {
    let Counters { bytes, records, pages, flushes, updates, updates_in_place, transactions } = *counted;
    let mut row = vec![label];
    row.extend([bytes, records, pages, flushes, transactions, updates, updates_in_place].map(rounded));
    println!("   {}", row.join(", "));
    rows.push(row);
}
