//! A former primary that comes back as it was: it lacks what was written on the higher timeline, and nothing may be
//! sent there by a gateway that has seen that one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use semel_core::{Decision, Store, StoreError, Upkeep};
use semel_stores::PostgresStore;
use semel_stores::postgres::{DatabaseAddress, PostgresOptions};
use semel_testkit::postgres::{Cluster, Database};
use semel_testkit::proxy::FaultProxy;
use semel_testkit::sample;

use crate::postgres::{eventually, open};

/// A server, and a copy of it that has become the primary of a higher timeline.
struct Pair {
    former: Cluster,
    leader: Cluster,
    /// The database, on the former primary.
    database: Database,
}

/// Ends a recovery at once, and so begins a new timeline.
const SETTINGS: &[(&str, &str)] = &[("restore_command", "/bin/false")];

fn data(cluster: &Cluster) -> PathBuf {
    let folder = cluster.folder().to_owned();
    if folder.join("PG_VERSION").exists() { folder } else { folder.join("data") }
}

/// Puts a copy of one stopped server's data in the place of another's.
fn copy(from: &Path, to: &Path) {
    std::fs::remove_dir_all(to).expect("the test may remove it");
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("there is a cp");
    assert!(copied.success());
}

impl Pair {
    /// Makes both, with a store whose tables are in both.
    async fn start() -> Pair {
        let former = Cluster::start_with(SETTINGS).expect("a server can be started");
        let leader = Cluster::start_with(SETTINGS).expect("a server can be started");
        let database = former.create_database().expect("a database can be made");
        drop(open(&database.url(), &PostgresOptions::default()).await);
        // Both have one login, since one address has one password.
        former.stop_fast().expect("it stops");
        leader.stop_fast().expect("it stops");
        copy(&data(&former), &data(&leader));
        std::fs::write(data(&leader).join("recovery.signal"), "").expect("the test may write there");
        former.restart().expect("it starts");
        leader.restart().expect("it recovers, on a new timeline");
        Pair { former, leader, database }
    }
}

fn claims(database: &Database) -> String {
    database.sql("SELECT count(*) FROM semel_records").expect("it reads")
}

async fn refused(store: &PostgresStore, key: &str) {
    let error = store.claim(&sample::claim(key)).await.expect_err("the former primary is refused");
    let told = error.to_string();
    assert!(matches!(error, StoreError::Unavailable(_)), "{told}");
    assert!(told.contains("timeline 1") && told.contains("timeline 2"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_former_primary_is_refused_until_a_restart_accepts_it() {
    let pair = Pair::start().await;
    let proxy = FaultProxy::start(pair.former.server().address()).await.expect("a proxy can be started");
    let url = proxy.url(&pair.database.url());
    let store = open(&url, &PostgresOptions::default()).await;
    store.claim(&sample::claim("on-the-first")).await.expect("it is decided");

    proxy.lead_to(pair.leader.server().address());
    proxy.cut_all().await;
    let claim = sample::claim("on-the-second");
    assert_eq!(eventually(|| store.claim(&claim)).await.decision, Decision::Execute);

    // It takes its manager's lock back.
    proxy.lead_to(pair.former.server().address());
    proxy.cut_all().await;
    for key in ["lost", "lost-too"] {
        refused(&store, key).await;
    }
    assert!(store.now().await.is_err() && store.try_commit().await.is_err(), "nobody takes it for ready");
    assert!(store.sweep(10).await.is_err(), "nor is it swept");
    assert_eq!(claims(&pair.database), "1", "nothing was written there");

    let floor: DatabaseAddress = format!("{url}?lowest_timeline=2").parse().expect("it is an address");
    let error = PostgresStore::open(&floor).await.err().expect("it is too low").to_string();
    assert!(error.contains("timeline 1"), "{error}");
    let restarted = open(&url, &PostgresOptions::default()).await;
    let answer = restarted.claim(&sample::claim("on-purpose")).await.expect("a restart accepts it");
    assert_eq!(answer.decision, Decision::Execute);

    proxy.lead_to(pair.leader.server().address());
    proxy.cut_all().await;
    let answer = eventually(|| store.claim(&claim)).await;
    assert_eq!(answer.decision, Decision::Execute, "the leader still has it");
}

/// A session survives the pause of its server, and a gateway that has seen the new primary still holds it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_survived_its_primary_is_not_used_again() {
    let pair = Pair::start().await;
    let leads_to_former = pair.former.server().address().to_string();
    let leads_to_leader = pair.leader.server().address().to_string();
    let url = pair.database.url().replace(&leads_to_former, &format!("{leads_to_former},{leads_to_leader}"));
    let url = format!("{url}?connect_timeout=1");
    let store: Arc<PostgresStore> =
        open(&url, &PostgresOptions { lanes: 1, ..PostgresOptions::default() }).await;
    store.claim(&sample::claim("before")).await.expect("the first host answers");
    pair.former.pause().expect("it can be paused");
    // A connection for sweeps did not exist yet: it finds the leader.
    store.sweep(10).await.expect("the second host answers");
    pair.former.resume().expect("it goes on");
    let claim = sample::claim("after");
    let answer = eventually(|| store.claim(&claim)).await;
    assert_eq!(answer.decision, Decision::Execute);
    assert_eq!(claims(&pair.database), "1", "the idle session to the former primary was not used");
}
