//! What a commit is worth: a server that answers before its standby has it, and one that gives up waiting for it.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use semel_core::{Answer, Change, Decision, Record, Store, StoreError, Tier};
use semel_stores::PostgresStore;
use semel_stores::postgres::PostgresOptions;
use semel_testkit::postgres::{Binaries, Cluster, Database};
use semel_testkit::sample;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::postgres::{eventually, open, patience, until};

/// Commits that wait for a standby which never answers.
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

/// Gives them up, as an operator might, or a pooler: the server then answers that they are made.
const CANCEL: &str =
    "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

struct Bed {
    cluster: Cluster,
    database: Database,
    store: Arc<PostgresStore>,
    record: Record,
}

/// A server whose commits wait for a standby that does not exist, and a command that was claimed before that.
async fn bed(options: &PostgresOptions) -> Bed {
    let cluster = Cluster::start().expect("a server can be started");
    let database = cluster.create_database().expect("a database can be made");
    let store = open(&database.url(), options).await;
    let claimed = store.claim(&sample::claim("running")).await.expect("it is decided");
    assert_eq!(claimed.decision, Decision::Execute);
    let record = claimed.record.expect("it is there");
    let bed = Bed { cluster, database, store, record };
    bed.set("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    // A commit of somebody else tells when the server waits for it.
    let probe = "CREATE TABLE IF NOT EXISTS probe (); SELECT pg_reload_conf()";
    let server = bed.cluster.server().clone();
    let waits = tokio::task::spawn_blocking(move || {
        while server.sql("postgres", WAITING).expect("it can be read") == "0" {
            let server = server.clone();
            std::thread::spawn(move || server.sql("postgres", probe));
            std::thread::sleep(std::time::Duration::from_millis(50));
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

    async fn until_waiting(&self, count: &str) {
        until(self.cluster.server(), "postgres", WAITING, count).await;
    }

    fn cancel(&self) {
        self.cluster.server().sql("postgres", CANCEL).expect("its owner may");
    }

    /// Cancels the commit as often as it is tried; it must not be taken for made. Then there is no standby to wait for.
    async fn assert_not_taken_for_made(
        &self,
        writing: JoinHandle<Result<Answer, StoreError>>,
    ) -> Result<Answer, StoreError> {
        for _ in 0..4 {
            self.until_waiting("1").await;
            assert!(!writing.is_finished(), "it is where a failover would not find it");
            self.cancel();
        }
        self.until_waiting("1").await;
        assert!(!writing.is_finished(), "it is where a failover would not find it");
        self.set("ALTER SYSTEM RESET synchronous_standby_names");
        writing.await.expect("it does not panic")
    }

    fn spawn<F>(&self, write: impl FnOnce(Arc<PostgresStore>) -> F) -> JoinHandle<Result<Answer, StoreError>>
    where
        F: Future<Output = Result<Answer, StoreError>> + Send + 'static,
    {
        tokio::spawn(write(self.store.clone()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_wait_for_a_standby_is_cancelled_is_not_acquired_yet() {
    let bed = bed(&patience(60_000)).await;
    let claim = sample::claim("k");
    let writing = bed.spawn(|store| async move { store.claim(&claim).await });
    let answer = bed.assert_not_taken_for_made(writing).await.expect("it is settled");
    assert_eq!(answer.decision, Decision::Execute);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_for_a_worker_whose_wait_is_cancelled_is_not_accepted_yet() {
    let bed = bed(&patience(60_000)).await;
    let claim = sample::for_worker(sample::claim("k"), std::time::Duration::from_secs(60));
    let writing = bed.spawn(|store| async move { store.claim(&claim).await });
    let answer = bed.assert_not_taken_for_made(writing).await.expect("it is settled");
    assert_eq!(answer.decision, Decision::Wait);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_with_a_reference_whose_wait_is_cancelled_is_not_acquired_yet() {
    let bed = bed(&patience(60_000)).await;
    let claim = sample::with_reference(sample::claim("k"), "order 7");
    let writing = bed.spawn(|store| async move { store.claim(&claim).await });
    let answer = bed.assert_not_taken_for_made(writing).await.expect("it is settled");
    assert_eq!(answer.decision, Decision::Execute);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_whose_wait_for_a_standby_is_cancelled_is_not_made_yet() {
    let bed = bed(&patience(60_000)).await;
    let (id, change) = (bed.record.id, Change::complete(bed.record.head.fence(), sample::created("done")));
    let writing = bed.spawn(|store| async move { store.apply(&id, &change).await });
    let answer = bed.assert_not_taken_for_made(writing).await.expect("it is settled");
    assert_eq!(answer.decision, Decision::Applied);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_whose_wait_for_a_standby_is_cancelled_is_in_doubt() {
    let bed = bed(&patience(60_000)).await;
    let abandoned = Change::abandon(bed.record.head.fence(), semel_core::Reason::TimedOut);
    let id = bed.record.id;
    let writing = bed.spawn(|store| async move { store.apply(&id, &abandoned).await });
    bed.assert_not_taken_for_made(writing).await.expect("it is settled");
    bed.set("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    // The setting is heard at some moment: whatever is made before that is made.
    let mut doubts = 0;
    for _ in 0..100 {
        let postpone = Change::postpone(bed.record.updated_at);
        let writing = bed.spawn(|store| async move { store.apply(&id, &postpone).await });
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

/// Every connection that is given up leaves a process that waits; there must be an end of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_waits_for_ever_is_pursued_within_bounds() {
    let bed = bed(&patience(500)).await;
    let claim = sample::claim("k");
    let error = bed.store.claim(&claim).await.expect_err("the commit is not answered");
    assert!(matches!(error, StoreError::Ambiguous(_)), "{error}");
    let clients = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'semel'";
    let clients = bed.database.sql(clients).expect("it can be read");
    let clients: usize = clients.parse().expect("it is a number");
    assert!(clients <= 20, "{clients} connections for one claim");
    bed.set("ALTER SYSTEM RESET synchronous_standby_names");
    let answer = eventually(|| bed.store.claim(&claim)).await;
    assert_eq!(answer.decision, Decision::Execute);
}

/// Receives what the server writes, as a standby does.
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
async fn only_a_standby_that_is_waited_for_keeps_the_promise() {
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

/// A server says all kinds of things when somebody logs in: after an update of the system, that texts may be in
/// another order. That is no doubt about a commit.
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
