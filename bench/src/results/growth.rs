//! Growth of the store: claims, replays, sweeps and reaps with ten thousand to ten million records.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use semel_core::{Change, Records};
use semel_stores::postgres::DatabaseAddress;
use semel_stores::{PostgresStore, SqliteStore};
use semel_testkit::postgres::{Cluster, Database};
use semel_testkit::sample;

use super::finding::{self, LookUpTimes, PROCESSING, UNKNOWN};
use super::report::{Aim, Section};
use super::{Figures, Form, Result, drive};
use crate::chart::{Line, Lines, figure};

/// Number of concurrent commands.
const AT_ONCE: usize = 64;
/// Number of records for one sweep or reap.
const BATCH: usize = 1_000;
/// Number of records that one statement inserts.
const FILL: u64 = 100_000;
/// Measured actions, in this order.
const ACTIONS: [&str; 4] = ["claim and complete", "replay", "sweep", "reap"];

/// Columns copied from the template record, in both stores.
const COPIED: &str = "tenant, caller, operation, key_hash_prefix, fingerprint_version, fingerprint, epoch, token, lease_ms, \
                      ttl_ms, tombstone_ttl_ms, on_lease_expired, quarantine_ms, created_at, updated_at, state_since, history";
const SETTLED: &str = "state, reason, settled_by, status, resource, response_format, response";

/// SQL for operation ids that rise with `i` and with the time, like generated ones.
const FILE_ID: &str = "unhex(printf('%012x%020x', CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER), i))";
const SERVER_ID: &str =
    "(lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint), 12, '0') || lpad(to_hex(i), 20, '0'))::uuid";

/// A store, with direct SQL access to its tables.
enum Place {
    File { folder: tempfile::TempDir },
    Server { database: Database, _cluster: Box<Cluster> },
}

impl Place {
    fn path(&self) -> Option<PathBuf> {
        match self {
            Place::File { folder } => Some(folder.path().join("semel.db")),
            Place::Server { .. } => None,
        }
    }

    fn sql(&self, statement: &str) -> Result<()> {
        match self {
            Place::File { folder } => {
                let file = Connection::open(folder.path().join("semel.db"))?;
                file.busy_timeout(Duration::from_secs(60))?;
                file.execute_batch(&format!(
                    "PRAGMA synchronous = OFF; PRAGMA cache_size = -2000000; {statement}"
                ))?;
            }
            Place::Server { database, .. } => drop(database.sql(statement)?),
        }
        Ok(())
    }

    /// Inserts settled records, copies of the template record.
    fn fill(&self, count: u64) -> Result<()> {
        let mut left = count;
        while left > 0 {
            let part = left.min(FILL);
            left -= part;
            let one = "(SELECT * FROM semel_records WHERE operation = 'template' LIMIT 1)";
            let statement = match self {
                Place::File { .. } => format!(
                    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {part}) \
                     INSERT INTO semel_records (id, operation_id, expires_at, {COPIED}, {SETTLED}) \
                     SELECT randomblob(32), {FILE_ID}, expires_at + i, {} , {SETTLED} FROM {one}, n;",
                    COPIED.replace("operation,", "'payments.create',")
                ),
                Place::Server { .. } => format!(
                    "INSERT INTO semel_records (id, operation_id, expires_at, revision, {COPIED}, {SETTLED}) \
                     SELECT sha256(uuid_send(gen_random_uuid())), {SERVER_ID}, expires_at + i, 2, {}, {SETTLED} \
                     FROM {one} AS one, generate_series(1, {part}) AS n(i)",
                    COPIED.replace("operation,", "'payments.create',")
                ),
            };
            self.sql(&statement)?;
        }
        Ok(())
    }

    /// Returns the parts of a statement that inserts `count` copies of the template record: its new ids, a further
    /// column of them, the copied columns, and the rows.
    fn copies(&self, count: u64) -> (String, &'static str, String, String) {
        let (random, end) = match self {
            Place::File { .. } => (format!("randomblob(32), {FILE_ID}"), ""),
            Place::Server { .. } => {
                (format!("sha256(uuid_send(gen_random_uuid())), {SERVER_ID}"), ", revision")
            }
        };
        let copied = COPIED.replace("operation,", "'payments.create',");
        let one = "(SELECT * FROM semel_records WHERE operation = 'template' LIMIT 1) AS one";
        let series = match self {
            Place::File { .. } => format!(
                "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) SELECT i FROM n) AS n"
            ),
            Place::Server { .. } => format!("generate_series(1, {count}) AS n(i)"),
        };
        (random, end, copied, format!("{one}, {series}"))
    }

    /// Inserts records whose outcome is open, and stays so.
    fn leave_open(&self) -> Result<()> {
        let (random, end, copied, rows) = self.copies(UNKNOWN);
        self.sql(&format!(
            "INSERT INTO semel_records (id, operation_id{end}, reconcile_after, attempts, quarantine_until, state, reason, \
             {COPIED}) \
             SELECT {random}{end}, 9000000000000, 0, 0, 'unknown', 'timed_out', {copied} FROM {rows}"
        ))?;
        let (random, end, copied, rows) = self.copies(PROCESSING);
        self.sql(&format!(
            "INSERT INTO semel_records (id, operation_id{end}, due_at, state, reason, {COPIED}) \
             SELECT {random}{end}, 9000000000000, 'processing', 'claimed', {copied} FROM {rows}"
        ))
    }

    /// Inserts records whose lease or time to live has ended, for one sweep or reap.
    fn make_due(&self, action: &str) -> Result<()> {
        let (random, end, copied, rows) = self.copies(BATCH as u64);
        let statement = if action == "sweep" {
            format!(
                "INSERT INTO semel_records (id, operation_id{end}, due_at, state, reason, {COPIED}) \
                 SELECT {random}{end}, i, 'processing', 'claimed', {copied} FROM {rows}"
            )
        } else {
            format!(
                "INSERT INTO semel_records (id, operation_id{end}, expires_at, {COPIED}, {SETTLED}) \
                 SELECT {random}{end}, i, {copied}, {SETTLED} FROM {rows}"
            )
        };
        self.sql(&statement)
    }

    /// Returns the bytes written so far: by this process, which contains SQLite, or to the server's log.
    fn written(&self) -> Result<f64> {
        let said = match self {
            Place::File { .. } => {
                let counters = std::fs::read_to_string("/proc/self/io")?;
                let line = counters.lines().find_map(|line| line.strip_prefix("wchar: "));
                line.ok_or("the kernel does not say what was written")?.to_owned()
            }
            Place::Server { database, .. } => database.sql("SELECT pg_current_wal_lsn() - '0/0'")?,
        };
        Ok(said.trim().parse()?)
    }

    fn settle_down(&self) -> Result<()> {
        match self {
            Place::File { .. } => self.sql("PRAGMA wal_checkpoint(TRUNCATE); ANALYZE;"),
            Place::Server { database, .. } => {
                database.sql("VACUUM ANALYZE semel_records")?;
                database.sql("CHECKPOINT")?;
                Ok(())
            }
        }
    }
}

/// Figures of one store at each size.
struct Curve {
    name: &'static str,
    sizes: Vec<(u64, Seen)>,
}

#[derive(Default)]
struct Seen {
    /// Microseconds for each action.
    times: [Figures; 4],
    /// KiB written for a claim with its completion, and for a reaped record.
    written: [Figures; 2],
    /// Milliseconds of operators' look-ups.
    lookups: LookUpTimes,
}

/// Measures both stores.
pub async fn run(form: Form) -> Result<[Section; 2]> {
    let sizes: &[u64] = match form {
        Form::Quick => &[10_000, 100_000],
        Form::Whole => &[10_000, 100_000, 1_000_000, 10_000_000],
    };
    let folder = tempfile::TempDir::new()?;
    let file = Place::File { folder };
    let path = file.path().ok_or("a file has a path")?;
    let store: Arc<dyn Records> = Arc::new(SqliteStore::open(path)?);
    let sqlite = curve("SQLite", &file, &store, sizes, form).await?;
    drop((store, file));

    let cluster = Box::new(Cluster::start_with(&[("max_wal_size", "2GB"), ("shared_buffers", "1GB")])?);
    let database = cluster.create_database()?;
    let address: DatabaseAddress = database.url().parse()?;
    let store: Arc<dyn Records> = Arc::new(PostgresStore::open(&address).await?);
    let server = Place::Server { database, _cluster: cluster };
    let postgres = curve("PostgreSQL", &server, &store, sizes, form).await?;
    let curves = [sqlite, postgres];
    Ok([section(&curves), lookups(&curves)])
}

/// Makes a folder with a file `semel.db` of this many settled records.
pub(super) async fn folder_with(records: u64) -> Result<tempfile::TempDir> {
    let file = Place::File { folder: tempfile::TempDir::new()? };
    let store: Arc<dyn Records> = Arc::new(SqliteStore::open(file.path().ok_or("a file has a path")?)?);
    complete(&store, template()).await?;
    drop(store);
    file.fill(records)?;
    file.settle_down()?;
    match file {
        Place::File { folder } => Ok(folder),
        Place::Server { .. } => Err("it is a file".into()),
    }
}

/// Returns the claim of the template record.
fn template() -> semel_core::Claim {
    sample::claim_on(sample::scope_of("acme", "alice", "template", "template"))
}

async fn curve(
    name: &'static str,
    place: &Place,
    store: &Arc<dyn Records>,
    sizes: &[u64],
    form: Form,
) -> Result<Curve> {
    complete(store, template()).await?;
    place.leave_open()?;
    let (mut curve, mut there) = (Curve { name, sizes: Vec::new() }, 0);
    for size in sizes {
        println!("   {name}: {} records", figure(*size as f64));
        place.fill(size - there)?;
        there = *size;
        place.settle_down()?;
        curve.sizes.push((*size, measure(place, store, form).await?));
    }
    Ok(curve)
}

async fn complete(store: &Arc<dyn Records>, claim: semel_core::Claim) -> Result<()> {
    let record = store.claim(&claim).await?.record.ok_or("it is claimed")?;
    let change = Change::complete(record.head.fence(), sample::created("{\"paid\":true}"));
    store.apply(&record.id, &change).await?;
    Ok(())
}

/// Number of the next command, so that no key is used twice.
static NEXT: AtomicU64 = AtomicU64::new(0);

async fn measure(place: &Place, store: &Arc<dyn Records>, form: Form) -> Result<Seen> {
    let Seen { times: mut figures, mut written, .. } = Seen::default();
    for number in 0..AT_ONCE {
        let _ = complete(store, sample::claim(&format!("known-{number}"))).await;
    }
    for _ in 0..form.rounds() {
        let new = store.clone();
        let (before, begun) = (place.written()?, Instant::now());
        let claims = drive(AT_ONCE, form.turn(), move || {
            let store = new.clone();
            async move {
                let key = format!("new-{}", NEXT.fetch_add(1, Ordering::Relaxed));
                complete(&store, sample::claim(&key)).await.expect("the store takes it");
            }
        });
        let rate = claims.await?;
        let done = rate * begun.elapsed().as_secs_f64();
        figures[0].push(1e6 / rate);
        written[0].push((place.written()? - before) / 1024.0 / done);
        let known = store.clone();
        let replays = drive(AT_ONCE, form.turn() / 2, move || {
            let store = known.clone();
            async move {
                let key = format!("known-{}", NEXT.fetch_add(1, Ordering::Relaxed) % AT_ONCE as u64);
                let id = sample::id(&sample::claim(&key));
                let found = store.get(&id).await.expect("the store answers");
                assert!(found.record.is_some(), "{key} is known");
            }
        });
        figures[1].push(1e6 / replays.await?);
        for (number, action) in [(2, "sweep"), (3, "reap")] {
            place.make_due(action)?;
            let (before, begun) = (place.written()?, Instant::now());
            let done = if action == "sweep" { store.sweep(BATCH).await? } else { store.reap(BATCH).await? };
            let done = done.len();
            let done = done.max(1) as f64;
            figures[number].push(begun.elapsed().as_secs_f64() * 1e6 / done);
            if action == "reap" {
                written[1].push((place.written()? - before) / 1024.0 / done);
            }
        }
    }
    Ok(Seen { times: figures, written, lookups: finding::measure(store).await? })
}

fn section(curves: &[Curve]) -> Section {
    let mut table = vec![vec!["store and records".to_owned()]];
    table[0].extend(ACTIONS.map(|action| format!("{action}, µs each")));
    table[0].extend(["a claim", "a reap"].map(|action| format!("written for {action}, KiB")));
    let (mut charts, mut aims) = (Vec::new(), Vec::new());
    for Curve { name, sizes } in curves {
        for (size, Seen { times, written, .. }) in sizes {
            let mut row = vec![format!("{name}, {}", figure(*size as f64))];
            row.extend(times.iter().map(Figures::words));
            row.extend(written.iter().map(|figures| figure(figures.median())));
            table.push(row);
        }
        let lines = ACTIONS.iter().enumerate().map(|(number, action)| Line {
            label: (*action).to_owned(),
            points: sizes.iter().map(|(size, seen)| (*size as f64, seen.times[number].median())).collect(),
        });
        let chart = Lines {
            title: format!("Growth on {name}"),
            unit: "microseconds for each, over the number of records in the store".into(),
            lines: lines.collect(),
        };
        charts.push((format!("growth-{}.svg", name.to_lowercase()), chart.svg()));
        for (number, action) in ACTIONS.iter().enumerate() {
            let medians: Vec<f64> = sizes.iter().map(|(_, seen)| seen.times[number].median()).collect();
            let (first, last) = (medians[0], medians[medians.len() - 1]);
            let factor = last / first.max(f64::MIN_POSITIVE);
            aims.push(Aim {
                what: format!("{action} on {name} stays within 1.5 times"),
                seen: format!("{factor:.2} from the smallest to the largest"),
                is_met: factor <= 1.5,
            });
        }
    }
    Section {
        title: "Growth".into(),
        what: format!(
            "The stores alone, without HTTP. {AT_ONCE} commands at a time are claimed and completed, or read; a sweep and a reap \
             get {BATCH} records each. Microseconds are the wall time divided by how many were done in it. What is written is what \
             this process, in which SQLite is, hands to the kernel, or what comes into PostgreSQL's log."
        ),
        charts,
        table,
        aims,
        why: "A record's id is a hash, so that every claim and every reap changes a leaf of an index that is nobody else's, once \
              there are many more leaves than commands in a group: with few records a group shares its leaves, and what is \
              written for each is less. That is where a curve bends; from there on, only the tree grows, by a level for \
              each hundredfold."
            .into(),
    }
}

fn lookups(curves: &[Curve]) -> Section {
    let (mut table, mut aims) = (vec![finding::heading()], Vec::new());
    for Curve { name, sizes } in curves {
        table.extend(sizes.iter().map(|(size, seen)| finding::row(name, *size, &seen.lookups)));
        aims.extend(sizes.last().into_iter().flat_map(|(_, seen)| finding::aims(name, &seen.lookups)));
    }
    Section {
        title: "Look-ups of operators".into(),
        what: format!(
            "The same stores, with {UNKNOWN} unknown and {PROCESSING} processing records in each. One look-up at a time, \
             pages of 100 records; the list of settled records is for a tenant that has none, so that a page reads all that \
             it may."
        ),
        table,
        aims,
        why: "Open records have small indexes of their own. Of settled records, a page reads at most 10,000 on PostgreSQL and \
              2,000 on SQLite, and a census a sample."
            .into(),
        ..Section::default()
    }
}
