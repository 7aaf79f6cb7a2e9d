//! Counts of what records and commands cost: bytes of log and of disk, rows, flushes, sessions. The program `capacity`
//! calls it. Counts only: nothing here depends on the speed of the machine.

mod commands;
mod records;
mod server;
mod sqlite;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use semel_core::{Change, Ids, RandomIds, Records};
use semel_testkit::sample;
use tokio::task::JoinSet;

use crate::Result;

/// Extent of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A minute: a test of the program, with a tenth of the records.
    Quick,
    /// The figures of the page.
    Whole,
}

impl Extent {
    /// Returns a number of records, or a tenth of it.
    const fn of(self, records: u64) -> u64 {
        match self {
            Extent::Quick => records / 10,
            Extent::Whole => records,
        }
    }
}

/// Parts of the measurement, by their names.
pub const PARTS: [&str; 4] = ["records", "commands", "sessions", "sqlite"];

/// Measures these parts, and prints tables.
///
/// # Errors
/// If a server, a store or a file cannot be used.
pub async fn run(extent: Extent, parts: &[&str]) -> Result<()> {
    for part in parts {
        match *part {
            "records" => records::run(extent).await?,
            "commands" => commands::run(extent).await?,
            "sessions" => commands::sessions().await?,
            _ => sqlite::run(extent).await?,
        }
    }
    Ok(())
}

/// Prints a table in Markdown.
fn print(title: &str, heading: &[&str], rows: &[Vec<String>]) {
    println!("\n### {title}\n\n| {} |\n|---|{}", heading.join(" | "), "---:|".repeat(heading.len() - 1));
    for row in rows {
        println!("| {} |", row.join(" | "));
    }
}

/// Returns a number with one digit behind the point, or none if it is large.
fn rounded(number: f64) -> String {
    if number >= 100.0 { crate::chart::count(number.round() as u64) } else { format!("{number:.2}") }
}

/// Returns a body of this length that cannot be compressed to a quarter, as JSON of a service is.
fn body(length: usize) -> String {
    let mut text = String::with_capacity(length + 32);
    while text.len() < length {
        RandomIds.attempt_token().as_bytes().iter().for_each(|byte| text.push_str(&format!("{byte:02x}")));
    }
    text.truncate(length);
    text
}

/// Number of the next command, so that no key is used twice.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Claims and completes this many new commands, `at_once` at a time, each with a body of this length.
async fn send(store: &Arc<dyn Records>, count: u64, at_once: u64, length: usize) -> Result<()> {
    let mut tasks: JoinSet<Result<()>> = JoinSet::new();
    for part in 0..at_once {
        let store = store.clone();
        tasks.spawn(async move {
            for _ in (part..count).step_by(usize::try_from(at_once)?) {
                let key = format!("capacity-{}", NEXT.fetch_add(1, Ordering::Relaxed));
                let claimed = store.claim(&sample::claim(&key)).await?.record.ok_or("it is claimed")?;
                let change = Change::complete(claimed.head.fence(), sample::created(&body(length)));
                store.apply(&claimed.id, &change).await?;
            }
            Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}
