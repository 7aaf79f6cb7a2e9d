//! Writers on two stores and one server, while its connections are cut and its processes killed. A ledger
//! records every answer to a writer; in the end the ledger and the table must agree.
//!
//! `cargo xtask store-chaos` runs it for longer, or with another seed.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use semel_core::{AttemptToken, Change, Claim, Decision, Fence, Reason, StateName, Store, StoreError, Terms};
use semel_stores::PostgresStore;
use semel_stores::postgres::{DatabaseAddress, PostgresOptions, migrate_database};
use semel_testkit::postgres::{Cluster, Database};
use semel_testkit::proxy::FaultProxy;
use semel_testkit::sample;

/// Seed of all random numbers. Tasks and processes still interleave freely.
const SEED: &str = "SEMEL_CHAOS_SEED";
/// Minimum duration.
const MINUTES: &str = "SEMEL_CHAOS_MINUTES";

const WRITERS: u64 = 32;
const KILLS: u64 = 200;
const CUTS: u64 = 1_000;
/// Average number of statements per cut.
const CUT_ONE_IN: u32 = 8;
/// Average number of kills per kill of the whole server, and of a process that takes the others with it.
const SERVER_ONE_IN: u64 = 40;
const CRASH_ONE_IN: u64 = 30;
/// Duration of the first outage: longer than a store pursues a change in doubt.
const LONG_OUTAGE: Duration = Duration::from_secs(5);
/// Number of writers per key.
const RIVALS: u64 = 4;
/// Number of immediate retries of an unsettled call.
const RETRIES: usize = 3;

/// Pseudo-random numbers, the same for the same seed.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.next().is_multiple_of(count)
    }
}

/// Answers to writers, and their actions.
#[derive(Default)]
struct Ledger {
    keys: Mutex<HashMap<u64, Entry>>,
    problems: Mutex<Vec<String>>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    executed: AtomicU64,
    completed: AtomicU64,
    released: AtomicU64,
    waited: AtomicU64,
    replayed: AtomicU64,
    unavailable: AtomicU64,
    ambiguous: AtomicU64,
    sent_again: AtomicU64,
}

/// Everything about one key.
#[derive(Default)]
struct Entry {
    /// Token that was told to run the command, in each epoch.
    granted: HashMap<u32, AttemptToken>,
    /// Claims that, by the store's answer, wrote nothing.
    refused: HashSet<AttemptToken>,
    effects: u64,
    /// Knowledge of the last executor.
    last: Option<Last>,
}

#[derive(Clone)]
struct Last {
    fence: Fence,
    /// States that the record may be in, by the answers to its owner.
    states: Vec<StateName>,
    /// Body of the completion, made or attempted.
    body: String,
}

impl Ledger {
    fn with<T>(&self, key: u64, work: impl FnOnce(&mut Entry) -> T) -> T {
        work(self.keys.lock().unwrap_or_else(PoisonError::into_inner).entry(key).or_default())
    }

    fn problem(&self, what: String) {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    fn check(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.problem(what());
        }
    }

    fn add(&self, count: impl Fn(&Counts) -> &AtomicU64) {
        count(&self.counts).fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self, count: impl Fn(&Counts) -> &AtomicU64) -> u64 {
        count(&self.counts).load(Ordering::Relaxed)
    }
}

/// A call that the store could not settle, to be repeated once the faults are over.
enum Unsettled {
    Claim(u64, Claim),
    Change(u64, Claim, Box<Change>, StateName),
}

/// A user of the store.
struct Writer {
    store: Arc<PostgresStore>,
    ledger: Arc<Ledger>,
    chance: Chance,
    unsettled: Vec<Unsettled>,
}

impl Writer {
    /// Processes one key after the other, each together with its rivals, until it is stopped.
    async fn run(mut self, number: u64, stop: Arc<AtomicBool>) -> Vec<Unsettled> {
        let mut round = 0;
        while !stop.load(Ordering::Relaxed) {
            let key = round * (WRITERS / RIVALS) + number % (WRITERS / RIVALS);
            self.command(key).await;
            round += 1;
        }
        self.unsettled
    }

    /// Runs one command like a gateway: claim, run, settle.
    async fn command(&mut self, key: u64) {
        let terms = Terms { lease: Duration::from_secs(24 * 3600), ..sample::terms() };
        for _ in 0..RETRIES {
            let claim = sample::under(sample::claim(&format!("key-{key}")), terms);
            match self.claim(key, &claim).await {
                // Nothing was written: the client retries, as another attempt.
                Err(StoreError::Unavailable(_)) => {
                    self.ledger.with(key, |entry| entry.refused.insert(claim.attempt.token));
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(_) => return self.unsettled.push(Unsettled::Claim(key, claim)),
                Ok(Some(fence)) => return self.execute(key, &claim, fence).await,
                Ok(None) => return,
            }
        }
    }

    /// Claims, and repeats the claim while its result is unknown, within bounds.
    async fn claim(&mut self, key: u64, claim: &Claim) -> Result<Option<Fence>, StoreError> {
        let mut doubt = None;
        for _ in 0..RETRIES {
            match self.store.claim(claim).await {
                Ok(answer) => return Ok(granted(&self.ledger, key, claim, &answer)),
                Err(error @ StoreError::Ambiguous(_)) => {
                    self.ledger.add(|counts| &counts.ambiguous);
                    doubt = Some(error);
                }
                Err(error @ StoreError::Unavailable(_)) => {
                    self.ledger.add(|counts| &counts.unavailable);
                    if doubt.is_none() {
                        return Err(error);
                    }
                }
                Err(other) => {
                    self.ledger.problem(format!("key {key}: {other}"));
                    return Err(other);
                }
            }
        }
        Err(doubt.unwrap_or_else(|| StoreError::Ambiguous("never answered".into())))
    }

    /// Makes the effect, or proves that there was none, and settles the command; or dies on the way.
    async fn execute(&mut self, key: u64, claim: &Claim, fence: Fence) {
        if self.chance.one_in(10) {
            let release = Change::release(fence, Reason::NotExecuted);
            return self.settle(key, claim, release, StateName::FailedRetryable).await;
        }
        let body = body(key, fence);
        self.ledger.with(key, |entry| entry.effects += 1);
        if self.chance.one_in(20) {
            return;
        }
        let complete = Change::complete(fence, sample::created(&body));
        self.settle(key, claim, complete, StateName::Succeeded).await;
    }

    async fn settle(&mut self, key: u64, claim: &Claim, change: Change, to: StateName) {
        let mut sent_in_vain = false;
        for _ in 0..RETRIES {
            match self.store.apply(&sample::id(claim), &change).await {
                Ok(answer) => return settled(&self.ledger, key, claim, to, answer.decision),
                Err(StoreError::Ambiguous(_)) => {
                    self.ledger.add(|counts| &counts.ambiguous);
                    sent_in_vain = true;
                    self.may_be(key, claim, &[StateName::Processing, to]);
                    if self.chance.one_in(4) {
                        return;
                    }
                }
                Err(StoreError::Unavailable(_)) => {
                    self.ledger.add(|counts| &counts.unavailable);
                    // A writer that dies here has written nothing: the record must be unchanged.
                    if !sent_in_vain && self.chance.one_in(8) {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(other) => return self.ledger.problem(format!("key {key}: {other}")),
            }
        }
        self.unsettled.push(Unsettled::Change(key, claim.clone(), Box::new(change), to));
    }

    fn may_be(&self, key: u64, claim: &Claim, states: &[StateName]) {
        self.ledger.with(key, |entry| {
            if let Some(last) = entry.last.as_mut().filter(|last| last.fence.token == claim.attempt.token) {
                last.states = states.to_vec();
            }
        });
    }
}

fn body(key: u64, fence: Fence) -> String {
    format!("key {key} in epoch {} by {:?}", fence.epoch, fence.token.as_bytes())
}

/// Records the answer to a claim. Returns the fence if the claimer acquired the command.
fn granted(ledger: &Ledger, key: u64, claim: &Claim, answer: &semel_core::StoreAnswer) -> Option<Fence> {
    let Some(record) = &answer.record else {
        ledger.problem(format!("key {key}: {:?} without a record", answer.decision));
        return None;
    };
    match answer.decision {
        Decision::Execute => {
            ledger.add(|counts| &counts.executed);
            let fence = record.head.fence();
            ledger.check(fence.token == claim.attempt.token, || format!("key {key}: somebody else's token"));
            ledger.with(key, |entry| {
                let before = entry.granted.insert(fence.epoch, fence.token);
                ledger.check(before.is_none(), || {
                    format!("key {key}: epoch {} was granted twice", fence.epoch)
                });
                let newest = entry.granted.keys().max() == Some(&fence.epoch);
                ledger.check(newest, || format!("key {key}: epoch {} came late", fence.epoch));
                entry.last =
                    Some(Last { fence, states: vec![StateName::Processing], body: body(key, fence) });
            });
            Some(fence)
        }
        Decision::Wait => {
            ledger.add(|counts| &counts.waited);
            None
        }
        Decision::Replay => {
            ledger.add(|counts| &counts.replayed);
            let expected = sample::created(&body(key, record.head.fence()));
            ledger.check(record.result == Some(expected), || {
                format!("key {key}: another response is replayed")
            });
            None
        }
        // Released by a writer that died before the answer to this repeated claim.
        Decision::Vacant => None,
        other => {
            ledger.problem(format!("key {key}: a claim was answered {other:?}"));
            None
        }
    }
}

/// Records the answer to a settlement.
fn settled(ledger: &Ledger, key: u64, claim: &Claim, to: StateName, decision: Decision) {
    if to == StateName::FailedRetryable && decision == Decision::Fenced {
        // Made before, with its answer lost, and the released command acquired by another since: the end
        // shows its owner.
        return ledger.with(key, |entry| {
            if let Some(last) = entry.last.as_mut().filter(|last| last.fence.token == claim.attempt.token) {
                last.states.clear();
            }
        });
    }
    ledger.check(decision == Decision::Applied, || format!("key {key}: its owner is told {decision:?}"));
    match to {
        StateName::Succeeded => ledger.add(|counts| &counts.completed),
        _ => ledger.add(|counts| &counts.released),
    }
    ledger.with(key, |entry| match entry.last.as_mut() {
        Some(last) if last.fence.token == claim.attempt.token => last.states = vec![to],
        // Another writer acquired the released command before this answer arrived.
        _ => ledger.check(to == StateName::FailedRetryable, || format!("key {key}: a success was overtaken")),
    });
}

/// Kills processes of the server until the quota is reached. Returns the numbers.
async fn kill(
    cluster: Arc<Cluster>,
    proxy: Arc<FaultProxy>,
    database: String,
    mut chance: Chance,
    until: Option<Instant>,
) -> Kills {
    let (mut kills, mut number) = (Kills::default(), 0_u64);
    let goes_on = |kills: &Kills| {
        kills.total() < KILLS || proxy.cuts() < CUTS || until.is_some_and(|until| Instant::now() < until)
    };
    while goes_on(&kills) {
        // Strikes at another point of the work each time.
        tokio::time::sleep(Duration::from_millis(chance.next() % 100)).await;
        number += 1;
        let cluster = cluster.clone();
        let outage = if kills.servers == 0 { LONG_OUTAGE } else { Duration::ZERO };
        let killed = match number {
            number if number.is_multiple_of(SERVER_ONE_IN) => Kill::Server,
            number if number.is_multiple_of(CRASH_ONE_IN) => Kill::Crash,
            _ => Kill::Connections(1 + chance.next() % 3),
        };
        let statement = format!(
            "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity WHERE datname = '{database}' \
             ORDER BY random() LIMIT {}) AS chosen",
            if let Kill::Connections(count) = killed { count } else { 0 }
        );
        let done = tokio::task::spawn_blocking(move || match killed {
            Kill::Server => {
                cluster.kill9()?;
                std::thread::sleep(outage);
                cluster.restart()?;
                Ok(1)
            }
            Kill::Crash => {
                let killed = cluster.kill_one_backend()?;
                cluster.wait_until_ready()?;
                Ok(u64::from(killed))
            }
            Kill::Connections(_) => {
                cluster.server().sql("postgres", &statement).map(|count| count.parse().unwrap_or(0))
            }
        });
        let done: Result<u64, semel_testkit::postgres::Error> = done.await.expect("it does not panic");
        let count = done.expect("the server does as it is told");
        match killed {
            Kill::Server => kills.servers += count,
            Kill::Crash => kills.crashes += count,
            Kill::Connections(_) => kills.connections += count,
        }
    }
    kills
}

#[derive(Clone, Copy)]
enum Kill {
    Server,
    Crash,
    Connections(u64),
}

#[derive(Default)]
struct Kills {
    /// Number of kill -9 of every process of the server.
    servers: u64,
    /// Number of kill -9 of one process, after which the server ends all others and recovers.
    crashes: u64,
    /// Number of connection processes ended by the server.
    connections: u64,
}

impl Kills {
    fn total(&self) -> u64 {
        self.servers + self.crashes + self.connections
    }
}

async fn store(url: &str) -> PostgresStore {
    let address: DatabaseAddress = url.parse().expect("it is an address");
    let options = PostgresOptions { patience: Duration::from_secs(5), ..PostgresOptions::default() };
    PostgresStore::open_with(&address, &options).await.expect("the database can be used")
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, which is no number")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashes_and_cuts_lose_no_acknowledged_write_and_rerun_no_command() {
    let begun = Instant::now();
    let seed = number(SEED).unwrap_or_else(|| {
        let [a, b, c, d, ..] = semel_core::ids::secret();
        u64::from(u32::from_be_bytes([a, b, c, d]))
    });
    println!("seed {seed}: {SEED}={seed} draws the same numbers again");
    let until = number(MINUTES).map(|minutes| begun + Duration::from_secs(60 * minutes));

    let cluster = Arc::new(
        Cluster::start_with(&[("recovery_init_sync_method", "syncfs")]).expect("a server can be started"),
    );
    let database = cluster.create_database().expect("a database can be made");
    migrate_database(&database.url().parse().expect("it is an address")).await.expect("it can be migrated");
    let proxy = Arc::new(FaultProxy::before(&database.url()).await.expect("a proxy can be started"));
    let stores =
        [store(&proxy.url(&database.url())).await, store(&proxy.url(&database.url())).await].map(Arc::new);

    let (ledger, stop) = (Arc::new(Ledger::default()), Arc::new(AtomicBool::new(false)));
    let chance =
        |number: u64| Chance((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number) | 1);
    proxy.cut_randomly(seed, CUT_ONE_IN);
    let writers: Vec<_> = (0..WRITERS)
        .map(|number| {
            let writer = Writer {
                store: stores[(number / (WRITERS / RIVALS)) as usize % 2].clone(),
                ledger: ledger.clone(),
                chance: chance(number),
                unsettled: Vec::new(),
            };
            tokio::spawn(writer.run(number, stop.clone()))
        })
        .collect();
    let kills =
        kill(cluster.clone(), proxy.clone(), database.name().to_owned(), chance(WRITERS), until).await;
    stop.store(true, Ordering::Relaxed);
    let mut unsettled = Vec::new();
    for writer in writers {
        unsettled.extend(writer.await.expect("a writer does not panic"));
    }

    // The faults are over: every unsettled call is repeated once, and settles.
    proxy.heal().await.expect("its port is free");
    for (number, one) in unsettled.into_iter().enumerate() {
        settle(&stores[number % 2], &ledger, one).await;
    }
    verify(&stores[0], &ledger, &database).await;

    let cuts = proxy.cuts_by_kind();
    println!(
        "{} kills: {} of the server, {} of a process by SIGKILL, {} of a connection's; {} cuts: {} before a statement \
         was sent, {} after, {} after it was answered; in {} s",
        kills.total(),
        kills.servers,
        kills.crashes,
        kills.connections,
        cuts.total(),
        cuts.before_sent,
        cuts.after_sent,
        cuts.after_server_answered,
        begun.elapsed().as_secs(),
    );
    println!(
        "{} commands run, {} completed, {} released; {} claims waited, {} were replayed; {} times unavailable, {} \
         ambiguous; {} sent again in the end, and all settled",
        ledger.count(|counts| &counts.executed),
        ledger.count(|counts| &counts.completed),
        ledger.count(|counts| &counts.released),
        ledger.count(|counts| &counts.waited),
        ledger.count(|counts| &counts.replayed),
        ledger.count(|counts| &counts.unavailable),
        ledger.count(|counts| &counts.ambiguous),
        ledger.count(|counts| &counts.sent_again),
    );
    let problems = ledger.problems.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(
        problems.is_empty(),
        "seed {seed}: {} problems: {:#?}",
        problems.len(),
        &problems[..problems.len().min(20)]
    );
    assert!(kills.total() >= KILLS && cuts.total() >= CUTS, "there was enough to survive");
    assert!(ledger.count(|counts| &counts.completed) > 0, "somebody got something done");
}

/// Repeats a call in doubt.
async fn settle(store: &PostgresStore, ledger: &Ledger, one: Unsettled) {
    ledger.add(|counts| &counts.sent_again);
    match one {
        Unsettled::Claim(key, claim) => match store.claim(&claim).await {
            Ok(answer) => {
                if let Some(fence) = granted(ledger, key, &claim, &answer) {
                    ledger.with(key, |entry| entry.effects += 1);
                    let change = Change::complete(fence, sample::created(&body(key, fence)));
                    match store.apply(&sample::id(&claim), &change).await {
                        Ok(answer) => settled(ledger, key, &claim, StateName::Succeeded, answer.decision),
                        Err(error) => ledger.problem(format!("key {key}: {error}")),
                    }
                }
            }
            Err(error) => ledger.problem(format!("key {key}: a claim cannot be settled: {error}")),
        },
        Unsettled::Change(key, claim, change, to) => match store.apply(&sample::id(&claim), &change).await {
            Ok(answer) => settled(ledger, key, &claim, to, answer.decision),
            Err(error) => ledger.problem(format!("key {key}: a change cannot be settled: {error}")),
        },
    }
}

/// Checks that the table matches the ledger exactly.
async fn verify(store: &PostgresStore, ledger: &Ledger, database: &Database) {
    let keys = std::mem::take(&mut *ledger.keys.lock().unwrap_or_else(PoisonError::into_inner));
    let mut records = 0;
    for (key, entry) in &keys {
        ledger.check(entry.effects <= 1, || format!("key {key}: {} effects", entry.effects));
        let id = sample::id(&sample::claim(&format!("key-{key}")));
        let found = store.get(&id).await.expect("it reads").record;
        records += usize::from(found.is_some());
        let Some(record) = found else {
            ledger.check(entry.granted.is_empty(), || format!("key {key}: an acknowledged claim is lost"));
            continue;
        };
        let head = record.head;
        ledger.check(!entry.refused.contains(&head.token), || {
            format!("key {key}: a claim that had written nothing is there: {head:?}")
        });
        let Some(last) = &entry.last else {
            ledger.problem(format!("key {key}: nobody was told of {head:?}"));
            continue;
        };
        let state = head.state.name();
        ledger.check(head.fence() == last.fence, || format!("key {key}: {head:?}, not {:?}", last.fence));
        ledger.check(last.states.contains(&state), || format!("key {key}: {state}, not {:?}", last.states));
        let expected = (state == StateName::Succeeded).then(|| sample::created(&last.body));
        ledger.check(record.result == expected, || format!("key {key}: another response is stored"));
    }
    let count = database.sql("SELECT count(*) FROM semel_records").expect("it can be read");
    ledger.check(count == records.to_string(), || format!("{count} records, of which {records} are known"));
}
