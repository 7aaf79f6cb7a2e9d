//! What group commit saves: claim and completion of a command through the SQLite store, at several numbers of
//! commands at a time, beside the floor of the same file system: one plain INSERT and one UPDATE, each in a
//! transaction of its own, on one connection. In alternating rounds, in one run.
#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::sync::Arc;
use std::time::Instant;

use rusqlite::Connection;
use semel_core::{Change, Store};
use semel_stores::SqliteStore;
use semel_testkit::sample;
use tempfile::TempDir;

const ROUNDS: usize = 5;
const COMMANDS: usize = 2_000;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut floor = Vec::new();
    let mut semel: Vec<(usize, Vec<f64>, Vec<f64>)> =
        [1, 8, 64, 256].map(|at_once| (at_once, Vec::new(), Vec::new())).to_vec();
    for _ in 0..ROUNDS {
        floor.push(plain(COMMANDS / 4)?);
        for (at_once, rates, sizes) in &mut semel {
            let (rate, size) =
                commands(if *at_once == 1 { COMMANDS / 4 } else { COMMANDS }, *at_once).await?;
            rates.push(rate);
            sizes.push(size);
        }
    }
    let floor = median(&mut floor);
    println!("one transaction each:  {floor:8.0} commands/s");
    for (at_once, rates, sizes) in &mut semel {
        let (rate, size) = (median(rates), median(sizes));
        println!(
            "semel, {at_once:3} at a time: {rate:8.0} commands/s  {:5.2} of the floor  {size:5.1} changes a commit",
            rate / floor
        );
    }
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The floor: a row inserted, then updated, each durable before the next.
fn plain(commands: usize) -> Result<f64, Box<dyn std::error::Error>> {
    let folder = TempDir::new()?;
    let connection = Connection::open(folder.path().join("plain.db"))?;
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection
        .execute_batch("PRAGMA synchronous = FULL; CREATE TABLE t (id BLOB PRIMARY KEY, response BLOB);")?;
    let begun = Instant::now();
    for number in 0..commands {
        let id = sample::id(&sample::claim(&format!("key-{number}")));
        connection.prepare_cached("INSERT INTO t (id) VALUES (?1)")?.execute([id.as_bytes()])?;
        connection
            .prepare_cached("UPDATE t SET response = ?2 WHERE id = ?1")?
            .execute(rusqlite::params![id.as_bytes(), &b"{\"paid\":true}"[..]])?;
    }
    Ok(commands as f64 / begun.elapsed().as_secs_f64())
}

/// Commands a second, and changes a commit.
async fn commands(total: usize, at_once: usize) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let folder = TempDir::new()?;
    let store = Arc::new(SqliteStore::open(folder.path().join("semel.db"))?);
    let begun = Instant::now();
    let tasks: Vec<_> = (0..at_once)
        .map(|worker| {
            let store = store.clone();
            tokio::spawn(async move {
                for number in (worker..total).step_by(at_once) {
                    let claim = sample::claim(&format!("key-{number}"));
                    let record = store.claim(&claim).await.ok().and_then(|answer| answer.record);
                    let record = record.expect("it is claimed");
                    let change = Change::complete(record.head.fence(), sample::created("{\"paid\":true}"));
                    store.apply(&record.id, &change).await.expect("it is completed");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    let rate = total as f64 / begun.elapsed().as_secs_f64();
    let written = store.written();
    Ok((rate, written.changes as f64 / written.commits as f64))
}
