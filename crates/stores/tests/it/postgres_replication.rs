//! The durability of a commit: a server that answers before its standby has it, and one that gives up waiting
//! for it.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use semel_core::{
    Change, Claim, Decision, Record, RecordId, State, Store, StoreAnswer, StoreError, Tier, Upkeep,
};
use semel_stores::PostgresStore;
use semel_stores::doctor::{Examination, Health, UpkeepIntervals};
use semel_stores::postgres::{DatabaseAddress, PostgresOptions, doctor};
use semel_testkit::postgres::{Binaries, Cluster, Database};
use semel_testkit::sample;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::postgres::{eventually, open, patience, until};

/// Counts commits that wait for a standby that never answers.
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

/// Cancels their wait, as an operator or a pooler might: the server then reports them as committed.
const CANCEL: &str =
    "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

struct Bed {
    cluster: Cluster,
    database: Database,
    store: Arc<PostgresStore>,
    record: Record,
}

/// Returns a server whose commits wait for a standby that does not exist, and a command that was claimed
/// before that.
async fn bed(options: &PostgresOptions) -> Bed {
    bed_at("", options).await
}

async fn bed_at(parameters: &str, options: &PostgresOptions) -> Bed {
    let cluster = Cluster::start().expect("a server can be started");
    let database = cluster.create_database().expect("a database can be made");
    let store = open(&format!("{}{parameters}", database.url()), options).await;
    let claimed = store.claim(&sample::claim("running")).await.expect("it is decided");
    assert_eq!(claimed.decision, Decision::Execute);
    let record = claimed.record.expect("it is there");
    let bed = Bed { cluster, database, store, record };
    bed.set("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    // A probing commit shows when the setting is in force.
    let probe = "CREATE TABLE IF NOT EXISTS probe (); SELECT pg_reload_conf()";
    let server = bed.cluster.server().clone();
    let waits = tokio::task::spawn_blocking(move || {
        while server.sql("postgres", WAITING).expect("it can be read") == "0" {
            let server = server.clone();
            std::thread::spawn(move || server.sql("postgres", probe));
            std::thread::sleep(Duration::from_millis(50));
        }
        while server.sql("postgres", WAITING).expect("it can be read") != "0" {
            server.sql("postgres", CANCEL).expect("its owner may");
        }
    });
    waits.await.expect("it does not panic");
    bed
}

impl Bed {
    fn set(&self, statement: &str) {
        let server = self.cluster.server();
        server.sql("postgres", statement).expect("it can be set");
        server.sql("postgres", "SELECT pg_reload_conf()").expect("it is heard");
    }

    fn cancel(&self) {
        self.cluster.server().sql("postgres", CANCEL).expect("its owner may");
    }

    /// Waits until a commit waits; returns `false` if the write was answered instead.
    async fn waits<T>(&self, writing: &JoinHandle<T>) -> bool {
        for _ in 0..1_000 {
            if writing.is_finished() {
                return false;
            }
            if self.cluster.server().sql("postgres", WAITING).expect("it can be read") != "0" {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("nothing waits, and nothing is answered");
    }

    /// Writes, and cancels the commit more than once: it must not count as made. Then the standby is no
    /// longer required, and it counts.
    async fn assert_not_taken_for_made<F>(&self, write: impl Fn(Arc<PostgresStore>) -> F) -> Decision
    where
        F: Future<Output = Result<StoreAnswer, StoreError>> + Send + 'static,
    {
        let writing = tokio::spawn(write(self.store.clone()));
        let mut waits = self.waits(&writing).await;
        for _ in 0..2 {
            if waits {
                self.cancel();
                waits = self.waits(&writing).await;
            }
        }
        self.set("ALTER SYSTEM RESET synchronous_standby_names");
        match writing.await.expect("it does not panic") {
            Ok(answer) => {
                assert!(waits, "it is where a failover would not find it: {:?}", answer.decision);
                answer.decision
            }
            // The store pursued it for as long as it does.
            Err(StoreError::Ambiguous(_)) => eventually(|| write(self.store.clone())).await.decision,
            Err(other) => panic!("{other}"),
        }
    }

    async fn assert_claim_not_taken_for_made(&self, claim: Claim) -> Decision {
        self.assert_not_taken_for_made(|store| {
            let claim = claim.clone();
            async move { store.claim(&claim).await }
        })
        .await
    }

    async fn assert_change_not_taken_for_made(&self, id: RecordId, change: Change) -> Decision {
        self.assert_not_taken_for_made(|store| {
            let change = change.clone();
            async move { store.apply(&id, &change).await }
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_wait_for_a_standby_is_cancelled_is_not_acquired_yet() {
    let bed = bed(&patience(60_000)).await;
    let claim = sample::claim("k");
    assert_eq!(bed.assert_claim_not_taken_for_made(claim).await, Decision::Execute);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_for_a_worker_whose_wait_is_cancelled_is_not_accepted_yet() {
    let bed = bed(&patience(60_000)).await;
    let claim = sample::for_worker(sample::claim("k"), Duration::from_secs(60));
    assert_eq!(bed.assert_claim_not_taken_for_made(claim).await, Decision::Wait);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_with_a_reference_whose_wait_is_cancelled_is_not_acquired_yet() {
    let bed = bed(&patience(60_000)).await;
    let claim = sample::with_reference(sample::claim("k"), "order 7");
    assert_eq!(bed.assert_claim_not_taken_for_made(claim).await, Decision::Execute);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_whose_wait_for_a_standby_is_cancelled_is_not_made_yet() {
    let bed = bed(&patience(60_000)).await;
    let (id, change) = (bed.record.id, Change::complete(bed.record.head.fence(), sample::created("done")));
    assert_eq!(bed.assert_change_not_taken_for_made(id, change).await, Decision::Applied);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_change_whose_wait_is_cancelled_is_ambiguous() {
    let bed = bed(&patience(60_000)).await;
    let abandoned = Change::abandon(bed.record.head.fence(), semel_core::Reason::TimedOut);
    let id = bed.record.id;
    assert_eq!(bed.assert_change_not_taken_for_made(id, abandoned).await, Decision::Applied);
    bed.set("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    // The setting takes effect at some moment: commits before that are made.
    let mut doubts = 0;
    for _ in 0..100 {
        let sought =
            match bed.store.get(&id).await.expect("it can be read").record.expect("it is there").head.state {
                State::Unknown { attempts, .. } => attempts,
                other => panic!("{other:?}"),
            };
        let (store, postpone) = (bed.store.clone(), Change::postpone(bed.record.updated_at, sought));
        let writing = tokio::spawn(async move { store.apply(&id, &postpone).await });
        while !writing.is_finished() {
            if bed.cluster.server().sql("postgres", WAITING).expect("it can be read") != "0" {
                bed.cancel();
            }
        }
        match writing.await.expect("it does not panic") {
            Ok(answer) => assert_eq!(answer.decision, Decision::Applied),
            Err(StoreError::Ambiguous(_)) => doubts += 1,
            Err(other) => panic!("{other}"),
        }
        if doubts == 3 {
            return;
        }
    }
    panic!("{doubts} of 3 were in doubt");
}

/// Every dropped connection leaves a waiting process on the server; their number must be bounded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_waits_for_ever_is_pursued_within_bounds() {
    let bed = bed(&PostgresOptions { lanes: 1, ..patience(3_000) }).await;
    let claim = sample::claim("k");
    let error = bed.store.claim(&claim).await.expect_err("the commit is not answered");
    assert!(matches!(error, StoreError::Ambiguous(_)), "{error}");
    let clients = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'semel'";
    let clients = bed.database.sql(clients).expect("it can be read");
    let clients: usize = clients.parse().expect("it is a number");
    assert!(clients <= 6, "{clients} connections for one claim");
    bed.set("ALTER SYSTEM RESET synchronous_standby_names");
    let answer = eventually(|| bed.store.claim(&claim)).await;
    assert_eq!(answer.decision, Decision::Execute);
}

/// Receives the server's log, as a standby does.
struct Standby {
    process: Child,
    _folder: TempDir,
}

impl Standby {
    fn start(cluster: &Cluster) -> Standby {
        let folder = TempDir::new().expect("there is room for a test");
        let program = Binaries::find().expect("there is a server").folder().join("pg_receivewal");
        let process = Command::new(&program)
            .args(["--synchronous", "--no-loop", "--directory"])
            .arg(folder.path())
            .arg(format!("--dbname={}?application_name=standby", cluster.url("postgres")))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{} cannot be run: {error}", program.display()));
        Standby { process, _folder: folder }
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_that_is_not_synchronous_lowers_the_store_to_tier_two() {
    let cluster = Cluster::start().expect("a server can be started");
    let database = cluster.create_database().expect("a database can be made");
    let tier = async || open(&database.url(), &PostgresOptions::default()).await.tier();
    assert_eq!(tier().await, Tier::One, "nobody else has the data");
    let set = |statement: &str| {
        cluster.server().sql("postgres", statement).expect("it can be set");
        cluster.server().sql("postgres", "SELECT pg_reload_conf()").expect("it is heard");
    };
    let _standby = Standby::start(&cluster);
    let states = "SELECT string_agg(sync_state, ',') FROM pg_stat_replication WHERE state = 'streaming'";
    until(cluster.server(), "postgres", states, "async").await;
    assert_eq!(tier().await, Tier::Two, "a failover may find less than was acknowledged");
    set("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
    until(cluster.server(), "postgres", states, "sync").await;
    assert_eq!(tier().await, Tier::One);
    let store = open(&database.url(), &PostgresOptions::default()).await;
    let answer = store.claim(&sample::claim("k")).await.expect("the standby answers");
    assert_eq!(answer.decision, Decision::Execute);
    for (setting, value) in [
        ("synchronous_commit", "local"),
        ("synchronous_commit", "remote_write"),
        ("synchronous_commit", "off"),
    ] {
        set(&format!("ALTER SYSTEM SET {setting} = '{value}'"));
        until(cluster.server(), "postgres", &format!("SHOW {setting}"), value).await;
        assert_eq!(tier().await, Tier::Two, "{setting} = {value}");
    }
}

/// Settings change while a gateway runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_promise_is_read_again_while_the_store_is_open() {
    let cluster = Cluster::start().expect("a server can be started");
    let database = cluster.create_database().expect("a database can be made");
    let store = open(&database.url(), &PostgresOptions::default()).await;
    assert_eq!(store.tier(), Tier::One);
    for (value, promise) in [("off", Tier::Two), ("on", Tier::One)] {
        let set = format!("ALTER SYSTEM SET synchronous_commit = '{value}'");
        cluster.server().sql("postgres", &set).expect("it can be set");
        cluster.server().sql("postgres", "SELECT pg_reload_conf()").expect("it is heard");
        for _ in 0..1_000 {
            store.read_tier_again(Duration::ZERO).await;
            if store.tier() == promise {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(store.tier(), promise);
    }
}

/// A server that sends no warnings would hide that it gave up waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_keeps_warnings_to_itself_is_told_not_to() {
    let quiet = "-c%20client_min_messages%3Derror";
    let bed = bed_at(&format!("?options={quiet}"), &patience(60_000)).await;
    let claim = sample::claim("k");
    assert_eq!(bed.assert_claim_not_taken_for_made(claim).await, Decision::Execute);
}

/// A server may send unrelated warnings at login, such as about a changed collation after an update of the
/// system. They raise no doubt about a commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_warning_at_login_is_not_taken_for_a_doubt_about_a_commit() {
    let cluster = Cluster::start().expect("a server can be started");
    let database = cluster.create_database().expect("a database can be made");
    drop(open(&database.url(), &PostgresOptions::default()).await);
    let statement =
        format!("UPDATE pg_database SET datcollversion = '0' WHERE datname = '{}'", database.name());
    cluster.server().sql("postgres", &statement).expect("its owner may");
    let store = open(&database.url(), &PostgresOptions::default()).await;
    let answer = store.claim(&sample::claim("k")).await.expect("it is decided");
    assert_eq!(answer.decision, Decision::Execute);
}

/// A database whose commits hang is read as well as any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_reads_and_does_not_commit_is_found_by_a_commit() {
    let bed = bed(&PostgresOptions::default()).await;
    let address: DatabaseAddress = bed.database.url().parse().expect("it is an address");
    let intervals =
        UpkeepIntervals { sweep_interval: Duration::from_secs(60), reap_interval: Duration::from_secs(60) };
    let examine = async || doctor::examine(&address, &PostgresOptions::default(), &intervals).await;
    let health = |told: &Examination, name: &str| {
        let check = told.checks.iter().find(|check| check.name == name);
        check.map(|check| (check.found.clone(), check.health.clone()))
    };
    let told = examine().await;
    for name in ["commits", "standbys"] {
        let (found, health) = health(&told, name).expect("it is checked");
        assert!(matches!(health, Health::Fail(_)), "{name}: {found}");
    }
    bed.store.now().await.expect("it reads");
    let committing = tokio::spawn({
        let store = bed.store.clone();
        async move { store.try_commit().await }
    });
    assert!(bed.waits(&committing).await, "nobody takes it for ready");
    bed.set("ALTER SYSTEM RESET synchronous_standby_names");
    eventually(|| bed.store.try_commit()).await;
    let _ = committing.await.expect("it does not panic");
    let told = examine().await;
    assert_eq!(health(&told, "commits").expect("it is checked").1, Health::Ok);
    assert_eq!(health(&told, "standbys"), None, "there is none, and none is demanded");
    let tables = "SELECT count(*) FROM semel_records";
    assert_eq!(bed.database.sql(tables).expect("it reads"), "1", "nothing is left behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn standbys_are_shown_with_their_lag_and_counted_for_every_role() {
    let cluster = Cluster::start().expect("a server can be started");
    let database = cluster.create_database().expect("a database can be made");
    drop(open(&database.url(), &PostgresOptions::default()).await);
    let intervals =
        UpkeepIntervals { sweep_interval: Duration::from_secs(60), reap_interval: Duration::from_secs(60) };
    let examine = async |url: &str| {
        let address = url.parse().expect("it is an address");
        let told = doctor::examine(&address, &PostgresOptions::default(), &intervals).await;
        let check = told.checks.iter().find(|check| check.name == "standbys").cloned();
        (told.tier, check.expect("there are standbys"))
    };
    let slot = "SELECT pg_create_physical_replication_slot('away', true)";
    cluster.server().sql("postgres", slot).expect("it is made");
    let (tier, check) = examine(&database.url()).await;
    assert_eq!(tier, Some(Tier::Two), "a standby that is away may still take over");
    assert!(check.found.contains("1 away") && matches!(check.health, Health::Warn(_)), "{check:?}");
    let drop_slot = "SELECT pg_drop_replication_slot('away')";
    cluster.server().sql("postgres", drop_slot).expect("it is dropped");

    let _standby = Standby::start(&cluster);
    let states = "SELECT string_agg(sync_state, ',') FROM pg_stat_replication WHERE state = 'streaming'";
    until(cluster.server(), "postgres", states, "async").await;
    let (_, check) = examine(&database.url()).await;
    assert!(check.found.starts_with("standby streaming, async, "), "{check:?}");
    for statement in [
        "CREATE ROLE plain LOGIN PASSWORD 'plain-secret'",
        "GRANT USAGE ON SCHEMA public TO plain",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO plain",
    ] {
        database.sql(statement).expect("its owner may");
    }
    let (_, host) = database
        .url()
        .split_once('@')
        .map(|(login, rest)| (login.to_owned(), rest.to_owned()))
        .expect("it has a login");
    let (tier, check) = examine(&format!("postgres://plain:plain-secret@{host}")).await;
    assert_eq!(tier, Some(Tier::Two), "its number is no secret");
    assert!(matches!(&check.health, Health::Warn(advice) if advice.contains("pg_monitor")), "{check:?}");
}
