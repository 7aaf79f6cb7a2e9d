//! Cost of the outbox: commands with a message against commands without, delivery rate, and latency from commit to
//! receiver, each also beside a backlog of messages blocked by dead ones. On SQLite and on PostgreSQL (`fsync` on),
//! without HTTP.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use semel_core::outbox::{Message, Outbox, Tried};
use semel_core::{Command, Policy, Transacted};
use semel_flow::outbox::{Drained, OutboxWorker, OutboxWorkerOptions, Sink, StopHandle, Wake};
use semel_flow::{Answered, PostgresTransactions, Reply, SqliteTransactions};
use semel_stores::postgres::DatabaseAddress;
use semel_stores::{PostgresStore, SqliteStore};
use semel_testkit::postgres::Cluster;
use semel_testkit::sample;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::report::{Aim, Section};
use super::{Figures, Form, Result};
use crate::chart::{Bar, Bars, Kind, count};

/// Number of concurrent commands.
const AT_ONCE: usize = 16;
/// Number of workers, and the receiver's reference, if any, which is a second write for each message.
const DELIVERIES: [(usize, Option<&str>); 4] = [(1, None), (1, Some("ref")), (4, None), (4, Some("ref"))];
/// Timeout of the delivery of all messages of a turn.
const PATIENCE: Duration = Duration::from_secs(120);
/// Milliseconds between commands whose latency is measured: never in step with a worker, which polls every 200 ms.
const STEP: u64 = 61;

/// Returns the number of messages of a turn, and of latencies.
const fn sizes(form: Form) -> (usize, u64) {
    match form {
        Form::Quick => (500, 20),
        Form::Whole => (3_000, 50),
    }
}

/// Returns the number of commands in the backlog: the first message of each is dead, and the second waits for it.
const fn backlog(form: Form) -> usize {
    match form {
        Form::Quick => 20_000,
        Form::Whole => 100_000,
    }
}

/// Measures both databases, in turn.
pub async fn run(form: Form) -> Result<Section> {
    let folder = tempfile::TempDir::new()?;
    let path = folder.path().join("semel.db");
    let mut outboxes: Vec<Arc<dyn Outbox>> = Vec::new();
    for _ in 0..4 {
        outboxes.push(Arc::new(SqliteStore::open(&path)?));
    }
    let commands = Commands::Sqlite(SqliteTransactions::open(&path)?);
    let place = Place::Sqlite(path.clone());
    let sqlite = Database { name: "SQLite", place, commands, outboxes, backlog: 0, seen: Seen::default() };

    let cluster = tokio::task::block_in_place(Cluster::start)?;
    let database = cluster.create_database()?;
    let address: DatabaseAddress = database.url().parse()?;
    let mut outboxes: Vec<Arc<dyn Outbox>> = Vec::new();
    for _ in 0..4 {
        outboxes.push(Arc::new(PostgresStore::open(&address).await?));
    }
    let pool = PgPoolOptions::new().max_connections(AT_ONCE as u32).connect(&database.url()).await?;
    let place = Place::Postgres(pool.clone());
    let commands = Commands::Postgres(PostgresTransactions::new(pool));
    let postgres =
        Database { name: "PostgreSQL", place, commands, outboxes, backlog: 0, seen: Seen::default() };

    let mut databases = [sqlite, postgres];
    for round in 0..form.rounds() {
        println!("   round {} of {}", round + 1, form.rounds());
        for database in &mut databases {
            database.turn(form, round).await?;
        }
    }
    println!("   beside a backlog");
    for database in &mut databases {
        database.fill(backlog(form)).await?;
        for round in 0..form.rounds() {
            database.turn_beside_backlog(form, round).await?;
        }
    }
    Ok(section(&databases.map(|database| (database.name, database.seen)), form))
}

/// Figures of all rounds.
#[derive(Default)]
struct Seen {
    plain: Figures,
    with_message: Figures,
    delivered: [Figures; 4],
    /// Rates beside a backlog: commands with a message, and deliveries by one worker.
    beside_backlog: [Figures; 2],
    /// Milliseconds from commit to receiver, of a worker that polls, and of one that is woken.
    latencies: [Latency; 2],
    sent: u64,
    received: u64,
}

#[derive(Default)]
struct Latency {
    median: Figures,
    p99: Figures,
}

impl Latency {
    fn add(&mut self, mut milliseconds: Vec<f64>) {
        milliseconds.sort_by(f64::total_cmp);
        let last = milliseconds.len().saturating_sub(1);
        let at = |part: f64| milliseconds.get((last as f64 * part).round() as usize).copied().unwrap_or(0.0);
        self.median.push(at(0.5));
        self.p99.push(at(0.99));
    }
}

/// A database: its executor of commands, and its outbox, once for each worker.
struct Database {
    name: &'static str,
    place: Place,
    commands: Commands,
    outboxes: Vec<Arc<dyn Outbox>>,
    /// Number of messages that are never delivered.
    backlog: u64,
    seen: Seen,
}

/// Direct access to the database, past the outbox.
enum Place {
    Sqlite(PathBuf),
    Postgres(PgPool),
}

impl Database {
    /// Adds commands whose first message is dead and whose second waits for it, and lets a worker meet them.
    async fn fill(&mut self, commands: usize) -> Result<()> {
        let insert = |id: &str, text: &str, empty: &str| {
            let message = "INSERT INTO semel_outbox (event_id, operation_id, position, kind, payload, state, created_at)";
            [
                format!(
                    "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {commands}) {message}
                     SELECT {text} || ':first', operation_id, 0, 'first', {empty}, 'dead', 0
                     FROM (SELECT {id} AS operation_id FROM n) AS made"
                ),
                format!(
                    "{message} SELECT {text} || ':second', operation_id, 1, 'second', {empty}, 'pending', 0
                     FROM semel_outbox WHERE kind = 'first'"
                ),
            ]
        };
        match &self.place {
            Place::Sqlite(path) => {
                let file = rusqlite::Connection::open(path)?;
                file.busy_timeout(PATIENCE)?;
                for sql in insert("CAST(printf('%016d', x) AS BLOB)", "lower(hex(operation_id))", "x''") {
                    file.execute(&sql, [])?;
                }
            }
            Place::Postgres(pool) => {
                let id = "('00000000-0000-4000-8000-' || lpad(to_hex(x), 12, '0'))::uuid";
                for sql in insert(id, "operation_id::text", "''::bytea") {
                    sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(pool).await?;
                }
            }
        }
        self.backlog = commands as u64;
        self.commands.send("behind-the-backlog", true).await?;
        self.deliver(1, 1, None).await.map(drop)
    }

    async fn turn_beside_backlog(&mut self, form: Form, round: usize) -> Result<()> {
        let (messages, _) = sizes(form);
        let rate = self.commands.send_all(&format!("beside-{round}"), messages, true).await?;
        self.seen.beside_backlog[0].push(rate);
        let rate = self.deliver(messages, 1, None).await?;
        self.seen.beside_backlog[1].push(rate);
        Ok(())
    }

    async fn turn(&mut self, form: Form, round: usize) -> Result<()> {
        let (messages, samples) = sizes(form);
        for (number, (workers, reference)) in DELIVERIES.into_iter().enumerate() {
            let name = format!("{round}-{number}");
            self.seen.plain.push(self.commands.send_all(&format!("plain-{name}"), messages, false).await?);
            let rate = self.commands.send_all(&format!("message-{name}"), messages, true).await?;
            self.seen.with_message.push(rate);
            let rate = self.deliver(messages, workers, reference).await?;
            self.seen.delivered[number].push(rate);
        }
        for (number, woken) in [false, true].into_iter().enumerate() {
            let milliseconds = self.latencies(&format!("{round}-{woken}"), samples, woken).await?;
            self.seen.latencies[number].add(milliseconds);
        }
        Ok(())
    }

    /// Delivers all messages, and returns the rate per second.
    async fn deliver(
        &mut self,
        messages: usize,
        workers: usize,
        reference: Option<&'static str>,
    ) -> Result<f64> {
        let receiver = Receiver::new(reference);
        let begun = Instant::now();
        let working = Working::begin(&self.outboxes[..workers], &receiver);
        let all = async {
            receiver.got(messages as u64).await?;
            // The receiver has all messages; the delivery of the last ones is not written yet.
            while self.outboxes[0].depth().await?.pending > self.backlog {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            Ok(begun.elapsed())
        };
        let all: Result<Duration> = tokio::time::timeout(PATIENCE, all).await?;
        working.end().await?;
        self.seen.sent += messages as u64;
        self.seen.received += receiver.count();
        Ok(messages as f64 / all?.as_secs_f64())
    }

    /// Measures milliseconds from commit to receiver, one message at a time, with one worker.
    async fn latencies(&mut self, name: &str, samples: u64, woken: bool) -> Result<Vec<f64>> {
        let receiver = Receiver::new(None);
        let working = Working::begin(&self.outboxes[..1], &receiver);
        let mut milliseconds = Vec::new();
        for number in 1..=samples {
            tokio::time::sleep(Duration::from_millis(number * STEP % 200)).await;
            self.commands.send(&format!("latency-{name}-{number}"), true).await?;
            let committed = Instant::now();
            if woken {
                working.wakes.iter().for_each(Wake::wake);
            }
            let came = tokio::time::timeout(PATIENCE, receiver.got(number)).await??;
            milliseconds.push(came.saturating_duration_since(committed).as_secs_f64() * 1e3);
        }
        working.end().await?;
        self.seen.sent += samples;
        self.seen.received += receiver.count();
        Ok(milliseconds)
    }
}

/// Executor of commands.
#[derive(Clone)]
enum Commands {
    Sqlite(SqliteTransactions),
    Postgres(PostgresTransactions),
}

impl Commands {
    /// Executes this many commands, several at a time. Returns the rate per second.
    async fn send_all(&self, name: &str, commands: usize, with_message: bool) -> Result<f64> {
        let begun = Instant::now();
        let mut tasks: JoinSet<Result<()>> = JoinSet::new();
        for part in 0..AT_ONCE {
            let (this, name) = (self.clone(), name.to_owned());
            tasks.spawn(async move {
                for number in (part..commands).step_by(AT_ONCE) {
                    this.send(&format!("{name}-{number}"), with_message).await?;
                }
                Ok(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(commands as f64 / begun.elapsed().as_secs_f64())
    }

    async fn send(&self, key: &str, with_message: bool) -> Result<()> {
        let command = Command {
            scope: sample::scope(key),
            fingerprint: sample::fingerprint("{}"),
            business_reference: None,
            former: Arc::from([]),
            policy: Arc::new(Policy { wait: Duration::from_secs(20), ..Policy::default() }),
            trace: None,
        };
        let answered: Answered = match self {
            Commands::Sqlite(transactions) => {
                transactions
                    .transact(&command, move |tx| {
                        if with_message {
                            tx.push("bench", b"{}")?;
                        }
                        Ok(Reply::new(http::StatusCode::CREATED))
                    })
                    .await
            }
            Commands::Postgres(transactions) => {
                transactions
                    .transact(&command, move |mut tx| async move {
                        if with_message {
                            tx.push("bench", b"{}").await?;
                        }
                        Ok(Reply::new(http::StatusCode::CREATED))
                    })
                    .await
            }
        };
        match answered.outcome() {
            Transacted::Executed { .. } => Ok(()),
            other => Err(format!("a command was not executed: {other:?}").into()),
        }
    }
}

/// Receiver that accepts at once, and notes the number of messages and the time of the last one.
struct Receiver {
    reference: Option<&'static str>,
    came: watch::Sender<(u64, Instant)>,
}

impl Receiver {
    fn new(reference: Option<&'static str>) -> Arc<Receiver> {
        Arc::new(Receiver { reference, came: watch::Sender::new((0, Instant::now())) })
    }

    fn count(&self) -> u64 {
        self.came.borrow().0
    }

    /// Waits until this many messages have come, and returns the time of the last one.
    async fn got(&self, messages: u64) -> Result<Instant> {
        Ok(self.came.subscribe().wait_for(|(count, _)| *count >= messages).await?.1)
    }
}

#[async_trait]
impl Sink for Receiver {
    async fn deliver(&self, _: &Message) -> Tried {
        self.came.send_modify(|(count, last)| (*count, *last) = (*count + 1, Instant::now()));
        Tried::Accepted { reference: self.reference.map(str::to_owned) }
    }
}

/// Running workers.
struct Working {
    stops: Vec<StopHandle>,
    wakes: Vec<Wake>,
    tasks: JoinSet<Drained>,
}

impl Working {
    fn begin(outboxes: &[Arc<dyn Outbox>], receiver: &Arc<Receiver>) -> Working {
        let mut working = Working { stops: Vec::new(), wakes: Vec::new(), tasks: JoinSet::new() };
        for outbox in outboxes {
            let worker = OutboxWorker::new(outbox.clone(), receiver.clone(), OutboxWorkerOptions::default());
            working.stops.push(worker.stopper());
            working.wakes.push(worker.waker());
            working.tasks.spawn(worker.run());
        }
        working
    }

    async fn end(mut self) -> Result<()> {
        self.stops.iter().for_each(StopHandle::stop);
        while let Some(ended) = self.tasks.join_next().await {
            ended?;
        }
        Ok(())
    }
}

fn section(databases: &[(&str, Seen)], form: Form) -> Section {
    let mut table = vec![vec!["what".to_owned()]];
    table[0].extend(databases.iter().map(|(name, _)| (*name).to_owned()));
    let mut row = |what: &str, cell: &dyn Fn(&Seen) -> String| {
        table.push(
            [what.to_owned()].into_iter().chain(databases.iter().map(|(_, seen)| cell(seen))).collect(),
        );
    };
    let of_plain = |seen: &Seen| seen.with_message.median() / seen.plain.median().max(f64::MIN_POSITIVE);
    row("commands with a message, of those without", &|seen| format!("{:.2}", of_plain(seen)));
    let deliveries = DELIVERIES.map(|(workers, reference)| {
        let workers = if workers == 1 { "1 worker".to_owned() } else { format!("{workers} workers") };
        let reference = if reference.is_some() { ", with a reference" } else { "" };
        format!("delivered by {workers}{reference}")
    });
    for (number, delivery) in deliveries.iter().enumerate() {
        let of_commands =
            |seen: &Seen| seen.delivered[number].median() / seen.with_message.median().max(f64::MIN_POSITIVE);
        row(&format!("{delivery}, of commands with a message"), &|seen| format!("{:.2}", of_commands(seen)));
    }
    let beside = |seen: &Seen, number: usize, alone: &Figures| {
        format!("{:.2}", seen.beside_backlog[number].median() / alone.median().max(f64::MIN_POSITIVE))
    };
    let waiting = count(backlog(form) as u64);
    row(
        &format!(
            "commands with a message beside {waiting} that wait for dead ones, of those without a backlog"
        ),
        &|seen| beside(seen, 0, &seen.with_message),
    );
    row(
        &format!(
            "delivered by 1 worker beside {waiting} that wait for dead ones, of those without a backlog"
        ),
        &|seen| beside(seen, 1, &seen.delivered[0]),
    );
    row("commands without a message, a second", &|seen| seen.plain.words());
    row("commands with a message, a second", &|seen| seen.with_message.words());
    for (number, delivery) in deliveries.iter().enumerate() {
        row(&format!("{delivery}, a second"), &|seen| seen.delivered[number].words());
    }
    for (number, worker) in ["a worker that looks every 200 ms", "a worker that is woken"].iter().enumerate()
    {
        row(&format!("commit to receiver, {worker}: p50, ms"), &|seen| seen.latencies[number].median.words());
        row(&format!("commit to receiver, {worker}: p99, ms"), &|seen| seen.latencies[number].p99.words());
    }
    let mut bars = Vec::new();
    for (name, seen) in databases {
        let mut bar = |label: &str, figures: &Figures, kind| {
            let label = format!("{name}: {label}");
            let (value, spread) = (figures.median(), figures.spread());
            bars.push(Bar { label, value, spread, kind, note: String::new() });
        };
        bar("without a message", &seen.plain, Kind::Floor);
        bar("with a message", &seen.with_message, Kind::Ours);
        bar(&deliveries[0], &seen.delivered[0], Kind::Ours);
        bar(&deliveries[2], &seen.delivered[2], Kind::Ours);
    }
    let (sent, received) = databases
        .iter()
        .fold((0, 0), |(sent, received), (_, seen)| (sent + seen.sent, received + seen.received));
    let (messages, samples) = sizes(form);
    Section {
        title: "Outbox".into(),
        what: format!(
            "Commands in one transaction, {AT_ONCE} at a time, without HTTP: with one message each, beside the same without. Then \
             workers deliver the {} messages to a receiver that takes no time; with a reference of the receiver, each is a second \
             write. From commit to receiver, {samples} messages are sent one at a time to an idle worker. In the end, commands and \
             deliveries beside {} commands whose first message is dead and whose second waits for it.",
            count(messages as u64),
            count(backlog(form) as u64)
        ),
        charts: vec![(
            "outbox.svg".into(),
            Bars {
                title: "Outbox".into(),
                unit: "commands, and messages delivered, in a second".into(),
                bars,
            }
            .svg(),
        )],
        table,
        aims: vec![Aim {
            what: "every message is delivered once, where nothing fails".into(),
            seen: format!("{} messages, {} deliveries", count(sent), count(received)),
            is_met: sent == received,
        }],
        why: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_adds_its_median_and_99th_percentile() {
        let mut latency = Latency::default();
        latency.add((1..=101).rev().map(f64::from).collect());
        assert_eq!((latency.median.median(), latency.p99.median()), (51.0, 100.0));
    }

    #[test]
    fn ratios_come_first_and_duplicate_message_misses_the_aim() {
        let figures = |figure: f64| [figure].into_iter().collect::<Figures>();
        let mut seen = Seen {
            plain: figures(200.0),
            with_message: figures(150.0),
            sent: 10,
            received: 11,
            ..Seen::default()
        };
        seen.delivered[0] = figures(300.0);
        let section = section(&[("SQLite", seen)], Form::Quick);
        assert_eq!(section.table[1], ["commands with a message, of those without", "0.75"]);
        assert_eq!(section.table[2], ["delivered by 1 worker, of commands with a message", "2.00"]);
        assert!(!section.aims[0].is_met);
    }
}
