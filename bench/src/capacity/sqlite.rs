//! Bytes of a record in a SQLite file, and bytes that SQLite hands to the kernel for a command and a reaped record.

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use semel_core::Records;
use semel_stores::SqliteStore;
use tempfile::TempDir;

use super::{Extent, print, rounded, send};
use crate::Result;

/// Measures a file of records with small and empty responses.
pub(super) async fn run(extent: Extent) -> Result<()> {
    let (mut sizes, mut written) = (Vec::new(), Vec::new());
    for (name, length) in [("empty", 0), ("1 KiB", 1024)] {
        let folder = TempDir::new()?;
        let path = folder.path().join("semel.db");
        let store: Arc<dyn Records> = Arc::new(SqliteStore::open(&path)?);
        let count = extent.of(100_000);
        send(&store, count, 256, length).await?;
        sizes.push(vec![name.to_owned(), crate::chart::count(count), rounded(size(&path)? / count as f64)]);
        println!("   SQLite: {}", sizes.last().map_or(String::new(), |row| row.join(", ")));
        for (at_once, count) in [(1, 1_000), (32, 8_000), (256, 16_000)] {
            let count = extent.of(count).max(at_once);
            let before = handed_over()?;
            send(&store, count, at_once, length).await?;
            let each = (handed_over()? - before) / count as f64;
            written.push(vec![format!("{name}, {at_once} at once"), rounded(each)]);
        }
    }
    print("Bytes of a record in SQLite's file", &["response", "records", "bytes"], &sizes);
    print("Bytes that SQLite writes for a command, checkpoints included", &["commands", "bytes"], &written);
    Ok(())
}

/// Returns the bytes of the file that hold something, once the log is in it.
fn size(path: &Path) -> Result<f64> {
    let file = Connection::open(path)?;
    file.busy_timeout(std::time::Duration::from_secs(60))?;
    file.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
    let number = |pragma: &str| file.query_row(pragma, [], |row| row.get::<_, f64>(0));
    Ok((number("PRAGMA page_count")? - number("PRAGMA freelist_count")?) * number("PRAGMA page_size")?)
}

/// Returns the bytes that this process has written so far.
fn handed_over() -> Result<f64> {
    let counters = std::fs::read_to_string("/proc/self/io")?;
    let line = counters.lines().find_map(|line| line.strip_prefix("wchar: "));
    Ok(line.ok_or("the kernel does not say what was written")?.parse()?)
}
