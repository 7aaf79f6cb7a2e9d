//! What messages cost, on SQLite and on PostgreSQL (`fsync` on), in one run:
//!
//! - how many commands with one message commit in a second, 16 at a time;
//! - how many messages are delivered in a second to a receiver that takes no time, by 1 and by 4 workers, without and with
//!   a reference of the receiver, which is a second write;
//! - how long it takes from a command's commit to the receiver, with workers that have nothing else to do.
//!
//! The first argument is the number of messages in each round.
#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use semel_core::outbox::{Message, Outbox, Tried};
use semel_core::{Command, Policy, Transacted};
use semel_flow::outbox::{Sink, Worker, WorkerOptions};
use semel_flow::{Answered, PostgresTransactions, Reply, SqliteTransactions};
use semel_stores::postgres::Address;
use semel_stores::{PostgresStore, SqliteStore};
use semel_testkit::postgres::Cluster;
use semel_testkit::sample;
use sqlx::postgres::PgPoolOptions;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const AT_ONCE: usize = 16;
const SAMPLES: usize = 100;

/// A receiver that takes no time, and notes when each message came.
struct Notes {
    reference: Option<&'static str>,
    came: Mutex<HashMap<String, Instant>>,
}

impl Notes {
    fn new(reference: Option<&'static str>) -> Arc<Notes> {
        Arc::new(Notes { reference, came: Mutex::default() })
    }

    fn count(&self) -> usize {
        self.came.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

#[async_trait]
impl Sink for Notes {
    async fn deliver(&self, message: &Message) -> Tried {
        let mut came = self.came.lock().unwrap_or_else(PoisonError::into_inner);
        came.insert(message.event_id.clone(), Instant::now());
        Tried::Accepted { reference: self.reference.map(str::to_owned) }
    }
}

/// Who carries out commands.
#[derive(Clone)]
enum Commands {
    Sqlite(SqliteTransactions),
    Postgres(PostgresTransactions),
}

impl Commands {
    async fn send(&self, key: &str) -> Answered {
        let command = Command {
            scope: sample::scope(key),
            fingerprint: sample::fingerprint("{}"),
            business_reference: None,
            former: Arc::from([]),
            policy: Arc::new(Policy { wait: Duration::from_secs(20), ..Policy::default() }),
        };
        match self {
            Commands::Sqlite(transactions) => {
                transactions
                    .transact(&command, |tx| {
                        tx.push("bench", b"{}")?;
                        Ok(Reply::new(http::StatusCode::CREATED))
                    })
                    .await
            }
            Commands::Postgres(transactions) => {
                transactions
                    .transact(&command, |mut tx| async move {
                        tx.push("bench", b"{}").await?;
                        Ok(Reply::new(http::StatusCode::CREATED))
                    })
                    .await
            }
        }
    }
}

/// A database: who carries out commands there, and its outbox, once for each worker.
struct Database {
    name: &'static str,
    commands: Commands,
    outboxes: Vec<Arc<dyn Outbox>>,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let messages: usize = std::env::args().nth(1).map_or(Ok(1000), |text| text.parse())?;
    let folder = tempfile::TempDir::new()?;
    let path = folder.path().join("bench.db");
    let mut outboxes: Vec<Arc<dyn Outbox>> = Vec::new();
    for _ in 0..4 {
        outboxes.push(Arc::new(SqliteStore::open(&path)?));
    }
    let commands = Commands::Sqlite(SqliteTransactions::open(&path)?);
    measure(&Database { name: "SQLite", commands, outboxes }, messages).await?;

    let cluster = Cluster::start()?;
    let database = cluster.create_database()?;
    let address: Address = database.url().parse()?;
    let mut outboxes: Vec<Arc<dyn Outbox>> = Vec::new();
    for _ in 0..4 {
        outboxes.push(Arc::new(PostgresStore::open(&address).await?));
    }
    let pool = PgPoolOptions::new().max_connections(16).connect(&database.url()).await?;
    let commands = Commands::Postgres(PostgresTransactions::new(pool));
    measure(&Database { name: "PostgreSQL", commands, outboxes }, messages).await
}

async fn measure(database: &Database, messages: usize) -> Result<()> {
    let name = database.name;
    for workers in [1, 4] {
        for reference in [None, Some("ref")] {
            let round = format!("{workers}-{}", reference.unwrap_or("none"));
            let begun = Instant::now();
            enqueue(&database.commands, &round, messages).await?;
            let enqueued = messages as f64 / begun.elapsed().as_secs_f64();
            let notes = Notes::new(reference);
            let begun = Instant::now();
            let working = Working::begin(database, workers, &notes);
            while database.outboxes[0].depth().await?.pending > 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            let delivered = messages as f64 / begun.elapsed().as_secs_f64();
            working.end().await?;
            let with = if reference.is_some() { "with a reference" } else { "without" };
            println!(
                "{name:10}  {enqueued:7.0} commands/s  {delivered:7.0} delivered/s  {workers} workers, {with}"
            );
        }
        let (median, most) = latency(database, workers).await?;
        println!("{name:10}  commit to receiver: median {median:?}, 99% {most:?}  {workers} workers");
    }
    Ok(())
}

/// Commands with one message each.
async fn enqueue(commands: &Commands, round: &str, messages: usize) -> Result<()> {
    let mut running = tokio::task::JoinSet::new();
    for part in 0..AT_ONCE {
        let (commands, round) = (commands.clone(), round.to_owned());
        running.spawn(async move {
            for number in (part..messages).step_by(AT_ONCE) {
                let answered = commands.send(&format!("{round}-{number}")).await;
                assert!(
                    matches!(answered.outcome(), Transacted::Executed { .. }),
                    "{:?}",
                    answered.outcome()
                );
            }
        });
    }
    while let Some(ended) = running.join_next().await {
        ended?;
    }
    Ok(())
}

/// From commit to receiver, one message at a time: the median, and what 99 of 100 do not exceed.
async fn latency(database: &Database, workers: usize) -> Result<(Duration, Duration)> {
    let notes = Notes::new(None);
    let working = Working::begin(database, workers, &notes);
    let mut times = Vec::new();
    for number in 0..SAMPLES {
        database.commands.send(&format!("latency-{workers}-{number}")).await;
        let committed = Instant::now();
        while notes.count() <= number {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let came = notes.came.lock().unwrap_or_else(PoisonError::into_inner);
        let last = came.values().max().copied().unwrap_or(committed);
        times.push(last.saturating_duration_since(committed));
    }
    working.end().await?;
    times.sort();
    Ok((times[SAMPLES / 2], times[SAMPLES * 99 / 100]))
}

/// Workers that work.
struct Working {
    stops: Vec<semel_flow::outbox::Stop>,
    tasks: tokio::task::JoinSet<semel_flow::outbox::Drained>,
}

impl Working {
    fn begin(database: &Database, workers: usize, notes: &Arc<Notes>) -> Working {
        let mut working = Working { stops: Vec::new(), tasks: tokio::task::JoinSet::new() };
        for outbox in &database.outboxes[..workers] {
            let worker = Worker::new(outbox.clone(), notes.clone(), WorkerOptions::default());
            working.stops.push(worker.stopper());
            working.tasks.spawn(worker.run());
        }
        working
    }

    async fn end(mut self) -> Result<()> {
        self.stops.iter().for_each(semel_flow::outbox::Stop::stop);
        while let Some(ended) = self.tasks.join_next().await {
            ended?;
        }
        Ok(())
    }
}
