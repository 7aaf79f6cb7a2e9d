//! Stores alone, without HTTP: a command's claim and completion against the limits of disk and database.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use semel_core::{Change, Policy, Store, Transacted};
use semel_flow::{PostgresTransactions, Reply};
use semel_stores::{PostgresStore, SqliteStore};
use semel_testkit::postgres::{Binaries, Cluster};
use semel_testkit::sample;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tempfile::TempDir;

use super::report::{Aim, Section};
use super::{Figures, Form, Result, drive};
use crate::chart::{Bar, Bars, Kind};

/// Number of connections of `transact` and of the INSERT alone.
const CLIENTS: u32 = 32;
/// Bytes of one write, and number of such pages in the file.
const PAGE: usize = 4096;
const PAGES: usize = 1024;
/// Numbers of concurrent commands.
const AT_ONCE: [usize; 3] = [1, 32, 256];

/// Lifecycle of a command as plain SQL: the same table, the same columns, one statement for each step.
pub const LIFECYCLE: &str = "
\\set n random(1, 9000000000000000000)
INSERT INTO semel_records (id, operation_id, tenant, caller, operation, key_hash_prefix, fingerprint_version, fingerprint, state, reason, epoch, token, revision, lease_ms, ttl_ms, on_lease_expired, quarantine_ms, due_at, created_at, updated_at, state_since, history) VALUES (sha256(int8send(:n)), gen_random_uuid(), 'acme', 'alice', 'payments.create', '01234567', 1, sha256(int8send(:n)), 'processing', 'claimed', 1, uuid_send(gen_random_uuid()), 1, 30000, 86400000, 'unknown', 60000, (extract(epoch FROM now()) * 1000)::bigint + 30000, (extract(epoch FROM now()) * 1000)::bigint, (extract(epoch FROM now()) * 1000)::bigint, (extract(epoch FROM now()) * 1000)::bigint, '1763207245123 1 processing claimed') ON CONFLICT DO NOTHING;
UPDATE semel_records SET state = 'succeeded', reason = 'answered', revision = 2, due_at = NULL, expires_at = (extract(epoch FROM now()) * 1000)::bigint + 86400000, settled_by = 'executor', updated_at = (extract(epoch FROM now()) * 1000)::bigint, state_since = (extract(epoch FROM now()) * 1000)::bigint, history = history || E'\\n1763207245223 1 succeeded answered', status = 201, resource = '/payments/7', response_format = 1, response = decode(repeat('ab', 160), 'hex') WHERE id = sha256(int8send(:n)) AND epoch = 1 AND state = 'processing';
";

/// Figures of one row of the table.
struct Row {
    name: String,
    kind: Kind,
    rate: Figures,
    /// Index of the row it is compared with.
    floor: Option<usize>,
}

/// Measures both stores.
pub async fn run(form: Form) -> Result<Section> {
    println!("── stores");
    let folder = TempDir::new()?;
    let cluster = tokio::task::block_in_place(|| Cluster::start_with(&[("max_connections", "400")]))?;
    let database = cluster.create_database()?;
    let postgres: Arc<dyn Store> = Arc::new(PostgresStore::open(&database.url().parse()?).await?);
    let sqlite: Arc<dyn Store> = Arc::new(SqliteStore::open(folder.path().join("semel.db"))?);
    database.sql("CREATE TABLE payments (id bigserial PRIMARY KEY, amount bigint NOT NULL)")?;
    let pool = PgPoolOptions::new().max_connections(CLIENTS).connect(&database.url()).await?;

    let mut rows = rows();
    for round in 0..form.rounds() {
        println!("   round {} of {}", round + 1, form.rounds());
        let time = form.turn();
        let mut rates = vec![sync_rate(folder.path(), time / 3)?, plain(folder.path(), round, time)?];
        for at_once in AT_ONCE {
            rates.push(through(&sqlite, at_once, time).await?);
        }
        for clients in [CLIENTS, 256] {
            rates.push(tokio::task::block_in_place(|| pgbench(&database.url(), LIFECYCLE, clients, time))?);
        }
        for at_once in AT_ONCE {
            rates.push(through(&postgres, at_once, time).await?);
        }
        rates.push(alone(&pool, time).await?);
        rates.push(tokio::task::block_in_place(|| {
            pgbench(&database.url(), &in_one_transaction(), CLIENTS, time)
        })?);
        rates.push(transact(&pool, time).await?);
        rates.push(tokio::task::block_in_place(|| pgbench(&database.url(), &notifying(), CLIENTS, time))?);
        for (row, rate) in rows.iter_mut().zip(rates) {
            row.rate.push(rate);
        }
        database.sql("TRUNCATE semel_records, payments")?;
        database.sql("CHECKPOINT")?;
    }
    Ok(section(&rows))
}

fn rows() -> Vec<Row> {
    let row = |name: &str, kind, floor| Row { name: name.to_owned(), kind, rate: Figures::default(), floor };
    let mut rows = vec![
        row("writes of 4 KiB that reach the disk", Kind::Floor, None),
        row("SQLite, one transaction each", Kind::Floor, None),
    ];
    rows.extend(
        AT_ONCE.map(|at_once| row(&format!("store on SQLite, {at_once} at a time"), Kind::Ours, Some(1))),
    );
    rows.push(row(&format!("pgbench, {CLIENTS} clients"), Kind::Floor, None));
    rows.push(row("pgbench, 256 clients", Kind::Floor, None));
    rows.extend([(1, 5), (32, 5), (256, 6)].map(|(at_once, floor)| {
        row(&format!("store on PostgreSQL, {at_once} at a time"), Kind::Ours, Some(floor))
    }));
    rows.push(row(&format!("business INSERT alone, {CLIENTS} at a time"), Kind::Floor, None));
    rows.push(row(
        &format!("pgbench, the same in one transaction, {CLIENTS} clients"),
        Kind::Floor,
        Some(10),
    ));
    rows.push(row(&format!("transact, {CLIENTS} at a time"), Kind::Ours, Some(11)));
    rows.push(row(&format!("pgbench with a NOTIFY, {CLIENTS} clients"), Kind::Floor, Some(5)));
    rows
}

fn section(rows: &[Row]) -> Section {
    let mut table = vec![["what", "of its floor", "a second"].map(str::to_owned).to_vec()];
    let mut bars = Vec::new();
    let ratio = |row: &Row| {
        let floor = &rows[row.floor?];
        Some((row.rate.beside(&floor.rate).median(), &floor.name))
    };
    for row in rows {
        let note = ratio(row).map_or_else(String::new, |(ratio, floor)| format!("{ratio:.2} of {floor}"));
        table.push(vec![row.name.clone(), note.clone(), row.rate.words()]);
        let note = ratio(row).map_or_else(String::new, |(ratio, _)| format!("· {ratio:.2} of its floor"));
        let (label, value, spread) = (row.name.clone(), row.rate.median(), row.rate.spread());
        bars.push(Bar { label, value, spread, kind: row.kind, note });
    }
    let seen = |number: usize| ratio(&rows[number]).map_or(0.0, |(ratio, _)| ratio);
    let chart = Bars { title: "The stores alone".into(), unit: "commands a second".into(), bars };
    Section {
        title: "The stores alone".into(),
        what: "A command is claimed and completed, each step durable before it is answered: through the stores, and as plain \
               statements, one transaction each, in the same table (pgbench with prepared statements; one connection to SQLite in \
               a table with nothing but a key and an answer). `transact` does claim, INSERT and answer in one commit; its floor is \
               pgbench doing the same statements. Writes that reach the disk are to a file that has its size already, as those to a database's \
               log are. A \
               NOTIFY at each completion would wake waiters on other machines: what it costs is why they ask instead."
            .into(),
        charts: vec![("stores.svg".into(), chart.svg())],
        table,
        aims: vec![
            Aim {
                what: "256 commands at a time are at least 5 times pgbench's statements".into(),
                seen: format!("{:.2}", seen(9)),
                is_met: seen(9) >= 5.0,
            },
            Aim {
                what: "`transact` has at least half of the rate of pgbench's same statements".into(),
                seen: format!("{:.2}", seen(12)),
                is_met: seen(12) >= 0.5,
            },
        ],
        why: format!(
            "One at a time, a command waits for two durable writes, one after the other; whoever is alone shares them with nobody. \
             pgbench is at its best with {CLIENTS} clients: beside that, 256 commands at a time have {:.2} times its rate. \
             `transact` has {:.2} of the rate of the INSERT alone, which is two messages to the server and their answers, one \
             after the other: the pool's question whether the connection still lives, and the statement. `transact` is six: the \
             question, BEGIN, the claim, the INSERT, the answer and COMMIT.",
            rows[9].rate.beside(&rows[5].rate).median(),
            rows[12].rate.beside(&rows[10].rate).median(),
        ),
    }
}

/// Returns the number of synced page writes per second, one after the other, within a file of fixed size: the file
/// system writes no metadata, as with the log of a database that has run for a while.
pub fn sync_rate(folder: &Path, time: Duration) -> Result<f64> {
    let path = folder.join("sync");
    let file = File::create(&path)?;
    file.write_all_at(&vec![0; PAGE * PAGES], 0)?;
    file.sync_all()?;
    let (begun, mut done) = (Instant::now(), 0);
    while begun.elapsed() < time {
        file.write_all_at(&[7; PAGE], (PAGE * (done % PAGES)) as u64)?;
        file.sync_data()?;
        done += 1;
    }
    let rate = done as f64 / begun.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    Ok(rate)
}

/// Returns the rate of an INSERT and then an UPDATE of a row in SQLite, each durable before the next.
pub fn plain(folder: &Path, round: usize, time: Duration) -> Result<f64> {
    let connection = Connection::open(folder.join(format!("plain-{round}.db")))?;
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection
        .execute_batch("PRAGMA synchronous = FULL; CREATE TABLE t (id BLOB PRIMARY KEY, response BLOB);")?;
    let (begun, mut done) = (Instant::now(), 0_u32);
    while begun.elapsed() < time {
        let id = sample::id(&sample::claim(&format!("key-{done}")));
        connection.prepare_cached("INSERT INTO t (id) VALUES (?1)")?.execute([id.as_bytes()])?;
        connection
            .prepare_cached("UPDATE t SET response = ?2 WHERE id = ?1")?
            .execute(rusqlite::params![id.as_bytes(), &b"{\"paid\":true}"[..]])?;
        done += 1;
    }
    Ok(f64::from(done) / begun.elapsed().as_secs_f64())
}

/// Returns the rate of claims with completions through a store.
async fn through(store: &Arc<dyn Store>, at_once: usize, time: Duration) -> Result<f64> {
    let store = store.clone();
    drive(at_once, time, move || {
        let store = store.clone();
        async move {
            let claimed = store.claim(&fresh()).await.expect("the store takes claims");
            let record = claimed.record.expect("it is claimed");
            let change = Change::complete(record.head.fence(), sample::created("{\"paid\":true}"));
            store.apply(&record.id, &change).await.expect("it is completed");
        }
    })
    .await
}

async fn alone(pool: &PgPool, time: Duration) -> Result<f64> {
    let pool = pool.clone();
    drive(CLIENTS as usize, time, move || {
        let pool = pool.clone();
        async move {
            let insert = sqlx::query("INSERT INTO payments (amount) VALUES ($1)").bind(5_i64);
            insert.execute(&pool).await.expect("the server takes it");
        }
    })
    .await
}

async fn transact(pool: &PgPool, time: Duration) -> Result<f64> {
    let semel = PostgresTransactions::new(pool.clone());
    drive(CLIENTS as usize, time, move || {
        let semel = semel.clone();
        async move {
            let command = command();
            let answered = semel.transact(&command, |mut tx| async move {
                let insert = sqlx::query("INSERT INTO payments (amount) VALUES ($1)").bind(5_i64);
                insert.execute(&mut *tx).await?;
                Ok(Reply::new(http::StatusCode::CREATED).body("{\"paid\":true}"))
            });
            let answered = answered.await;
            assert!(matches!(answered.outcome(), Transacted::Executed { .. }), "{answered:?}");
        }
    })
    .await
}

/// Makes a new command.
fn command() -> semel_core::Command {
    let claim = fresh();
    semel_core::Command {
        scope: claim.scope,
        fingerprint: claim.attempt.fingerprint,
        business_reference: None,
        former: Arc::from([]),
        policy: Arc::new(Policy::default()),
        trace: None,
    }
}

fn fresh() -> semel_core::Claim {
    let key: String = semel_core::ids::secret()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    sample::claim(&format!("key-{key}"))
}

/// Returns the lifecycle in one transaction with the INSERT that it protects.
fn in_one_transaction() -> String {
    let begun = LIFECYCLE.replacen("\nINSERT", "\nBEGIN;\nINSERT", 1);
    let worked = begun.replacen("\nUPDATE", "\nINSERT INTO payments (amount) VALUES (5);\nUPDATE", 1);
    format!("{worked}COMMIT;\n")
}

/// Returns the lifecycle, with a NOTIFY at each completion.
fn notifying() -> String {
    let telling = LIFECYCLE.replace("UPDATE semel_records SET", "WITH done AS (UPDATE semel_records SET");
    let telling = telling.trim_end().trim_end_matches(';');
    format!("{telling} RETURNING id) SELECT pg_notify('semel', encode(id, 'hex')) FROM done;\n")
}

/// Extra time of pgbench: its time begins before its clients have connected, which its rate does not count. 256 clients
/// take a second or two.
const CONNECTING: Duration = Duration::from_secs(3);

/// Returns the rate per second at which pgbench executes these statements.
pub fn pgbench(url: &str, statements: &str, clients: u32, time: Duration) -> Result<f64> {
    let script = tempfile::NamedTempFile::new()?;
    std::fs::write(script.path(), statements)?;
    let output = Command::new(Binaries::find()?.folder().join("pgbench"))
        .args(["--no-vacuum", "--protocol=prepared", "--jobs=2", "--client", &clients.to_string()])
        .args(["--time", &(time + CONNECTING).as_secs().to_string(), "--file"])
        .arg(script.path())
        .arg(url)
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let rate = said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    rate.ok_or_else(|| format!("pgbench said: {said}{}", String::from_utf8_lossy(&output.stderr)).into())
}
