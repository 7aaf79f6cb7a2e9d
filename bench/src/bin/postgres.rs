//! What a durable command costs on PostgreSQL, four ways on one private server (`fsync` on), in alternating rounds, in
//! one run:
//!
//! - (a) the handler's business INSERT alone, unprotected;
//! - (b) `transact`: claim, the same INSERT and the response in one commit;
//! - (c) claim and completion as plain prepared statements, each a transaction, from pgbench with 32 clients;
//! - (d) claim and completion through the store, at several numbers of commands at a time;
//! - (e) as (c), with a NOTIFY at each completion: what it would cost to wake waiters on other machines that way.
//!
//! Figures are commands a second; ratios are what to read.
#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use semel_core::{Change, Policy, Store, Transacted};
use semel_flow::{PostgresTransactions, Reply};
use semel_stores::PostgresStore;
use semel_stores::postgres::{Address, PostgresOptions};
use semel_testkit::postgres::{Binaries, Cluster};
use semel_testkit::sample;
use sqlx::postgres::PgPoolOptions;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 5;
const CLIENTS: u32 = 32;

const HOT: &str =
    "SELECT n_tup_upd || ', ' || n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'semel_records'";

/// One command as anybody would write it: the same table, the same columns, one statement for each step.
const LIFECYCLE: &str = "
\\set n random(1, 9000000000000000000)
INSERT INTO semel_records (id, operation_id, tenant, caller, operation, key_hash_prefix, fingerprint_version, fingerprint, state, reason, epoch, token, revision, lease_ms, ttl_ms, on_lease_expired, quarantine_ms, due_at, created_at, updated_at, history) VALUES (sha256(int8send(:n)), gen_random_uuid(), 'acme', 'alice', 'payments.create', '01234567', 1, sha256(int8send(:n)), 'processing', 'claimed', 1, uuid_send(gen_random_uuid()), 1, 30000, 86400000, 'unknown', 60000, (extract(epoch FROM now()) * 1000)::bigint + 30000, (extract(epoch FROM now()) * 1000)::bigint, (extract(epoch FROM now()) * 1000)::bigint, '1763207245123 1 processing claimed') ON CONFLICT DO NOTHING;
UPDATE semel_records SET state = 'succeeded', reason = 'answered', revision = 2, due_at = NULL, expires_at = (extract(epoch FROM now()) * 1000)::bigint + 86400000, settled_by = 'executor', updated_at = (extract(epoch FROM now()) * 1000)::bigint, history = history || E'\\n1763207245223 1 succeeded answered', status = 201, resource = '/payments/7', response_format = 1, response = decode(repeat('ab', 160), 'hex') WHERE id = sha256(int8send(:n)) AND epoch = 1 AND state = 'processing'";

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let seconds = Duration::from_secs(std::env::args().nth(1).map_or(Ok(4), |text| text.parse())?);
    let cluster = Cluster::start()?;
    let database = cluster.create_database()?;
    let address: Address = database.url().parse()?;
    let lanes = std::env::args().nth(2).map_or(Ok(PostgresOptions::default().lanes), |text| text.parse())?;
    let options = PostgresOptions { lanes, ..PostgresOptions::default() };
    let store = Arc::new(PostgresStore::open_with(&address, &options).await?);
    database.sql("CREATE TABLE payments (id bigserial PRIMARY KEY, amount bigint NOT NULL)")?;
    let pool = PgPoolOptions::new().max_connections(CLIENTS).connect(&database.url()).await?;

    let mut rates: [Vec<f64>; 7] = Default::default();
    let mut together = Vec::new();
    let mut hot = String::new();
    for _ in 0..ROUNDS {
        rates[0].push(alone(&pool, seconds).await?);
        rates[1].push(transact(&pool, seconds).await?);
        rates[2].push(pgbench(&database.url(), LIFECYCLE, seconds)?);
        rates[6].push(pgbench(&database.url(), &notifying(), seconds)?);
        for (number, at_once) in [1, 32, 256].into_iter().enumerate() {
            let before = store.sent();
            rates[3 + number].push(through_store(&store, at_once, seconds).await?);
            let after = store.sent();
            together.push((
                at_once,
                (after.changes - before.changes) as f64 / (after.writes - before.writes) as f64,
            ));
        }
        hot = database.sql(HOT)?;
        database.sql("TRUNCATE semel_records, payments")?;
        database.sql("CHECKPOINT")?;
    }
    let spread = |rates: &[f64]| {
        let (low, high) = (rates[0], rates[rates.len() - 1]);
        format!("{low:.0} to {high:.0}")
    };
    let medians = rates.each_mut().map(|rates| median(rates));
    let [alone, transact, pgbench, ..] = medians;
    println!("each round {} s, {ROUNDS} rounds, {lanes} lanes", seconds.as_secs());
    println!("(a) business INSERT alone, {CLIENTS} at a time: {alone:7.0}/s  ({})", spread(&rates[0]));
    let ratio = transact / alone;
    println!(
        "(b) transact, {CLIENTS} at a time:              {transact:7.0}/s  ({})  {ratio:.2} of (a)",
        spread(&rates[1])
    );
    println!("(c) pgbench, {CLIENTS} clients:                 {pgbench:7.0}/s  ({})", spread(&rates[2]));
    for (number, at_once) in [1, 32, 256].into_iter().enumerate() {
        let rate = medians[3 + number];
        let sizes: Vec<f64> =
            together.iter().filter(|(of, _)| *of == at_once).map(|(_, size)| *size).collect();
        let size = sizes.iter().sum::<f64>() / sizes.len() as f64;
        println!(
            "(d) the store, {at_once:3} at a time:             {rate:7.0}/s  ({})  {:.2} of (c), {size:.1} changes a statement",
            spread(&rates[3 + number]),
            rate / pgbench
        );
    }
    println!("updates of records, and how many of them were HOT: {}", hot.trim());
    let notifying = medians[6];
    let ratio = notifying / pgbench;
    println!(
        "(e) pgbench with NOTIFY, {CLIENTS} clients:     {notifying:7.0}/s  ({})  {ratio:.2} of (c)",
        spread(&rates[6])
    );
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs `step` again and again in `at_once` tasks for so long. Says how many a second.
async fn drive<F, R>(at_once: usize, time: Duration, step: F) -> Result<f64>
where
    F: Fn() -> R + Clone + Send + 'static,
    R: Future<Output = ()> + Send,
{
    let begun = Instant::now();
    let tasks: Vec<_> = (0..at_once)
        .map(|_| {
            let step = step.clone();
            tokio::spawn(async move {
                let mut done = 0_u32;
                while begun.elapsed() < time {
                    step().await;
                    done += 1;
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += task.await?;
    }
    Ok(f64::from(done) / begun.elapsed().as_secs_f64())
}

async fn alone(pool: &sqlx::PgPool, time: Duration) -> Result<f64> {
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

async fn transact(pool: &sqlx::PgPool, time: Duration) -> Result<f64> {
    let semel = PostgresTransactions::new(pool.clone());
    drive(CLIENTS as usize, time, move || {
        let semel = semel.clone();
        async move {
            let command = command();
            let answered = semel.transact(&command, |mut tx| async move {
                sqlx::query("INSERT INTO payments (amount) VALUES ($1)")
                    .bind(5_i64)
                    .execute(&mut *tx)
                    .await?;
                Ok(Reply::new(http::StatusCode::CREATED).body("{\"paid\":true}"))
            });
            let answered = answered.await;
            assert!(matches!(answered.outcome(), Transacted::Executed { .. }), "{answered:?}");
        }
    })
    .await
}

/// A command that nobody has asked for before.
fn command() -> semel_core::Command {
    let claim = fresh();
    semel_core::Command {
        scope: claim.scope,
        fingerprint: claim.attempt.fingerprint,
        business_reference: None,
        former: Arc::from([]),
        policy: Arc::new(Policy::default()),
    }
}

fn fresh() -> semel_core::Claim {
    let key: String = semel_core::ids::secret()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    sample::claim(&format!("key-{key}"))
}

async fn through_store(store: &Arc<PostgresStore>, at_once: usize, time: Duration) -> Result<f64> {
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

/// The lifecycle, with a NOTIFY at each completion.
fn notifying() -> String {
    let telling = LIFECYCLE.replace("UPDATE semel_records SET", "WITH done AS (UPDATE semel_records SET");
    format!("{telling} RETURNING id) SELECT pg_notify('semel', encode(id, 'hex')) FROM done")
}

fn pgbench(url: &str, lifecycle: &str, time: Duration) -> Result<f64> {
    let script = tempfile::NamedTempFile::new()?;
    std::fs::write(script.path(), format!("{lifecycle};\n"))?;
    let output = Command::new(Binaries::find()?.folder().join("pgbench"))
        .args(["--no-vacuum", "--protocol=prepared", "--jobs=2", "--client", &CLIENTS.to_string()])
        .args(["--time", &time.as_secs().to_string(), "--file"])
        .arg(script.path())
        .arg(url)
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let rate = said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    rate.ok_or_else(|| format!("pgbench said: {said}{}", String::from_utf8_lossy(&output.stderr)).into())
}
