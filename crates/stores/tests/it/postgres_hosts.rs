//! An address with several hosts: one that stands still or refuses hides none behind it, the last good one comes
//! first, and an error has the reason of each.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use semel_core::{Decision, Records, Store, StoreError, Upkeep};
use semel_stores::PostgresStore;
use semel_stores::doctor::UpkeepIntervals;
use semel_stores::postgres::{DatabaseAddress, PostgresOptions, Standbys, doctor};
use semel_testkit::proxy::FaultProxy;
use semel_testkit::sample;
use std::time::Duration;
use tokio::net::TcpListener;

use crate::postgres::{database, eventually, open};

/// A host whose kernel accepts connections for a process that stands still.
struct SilentHost {
    address: String,
    accepted: Arc<AtomicUsize>,
}

impl SilentHost {
    async fn start() -> SilentHost {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        let accepted = Arc::new(AtomicUsize::new(0));
        let count = accepted.clone();
        tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                kept.push(stream);
            }
        });
        SilentHost { address, accepted }
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

/// Returns the URL with these hosts instead of its own; `own` stands for that.
fn with_hosts(url: &str, hosts: &[&str]) -> String {
    let (login, rest) = url.split_once('@').expect("it has a login");
    let (own, database) = rest.split_once('/').expect("it has a database");
    let hosts: Vec<&str> = hosts.iter().map(|host| if *host == "own" { own } else { host }).collect();
    format!("{login}@{}/{database}?connect_timeout=1", hosts.join(","))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_stands_still_hides_none_behind_it() {
    let (database, silent) = (database().await, SilentHost::start().await);
    let url = with_hosts(&database.url(), &[&silent.address, "own"]);
    let store = open(&url, &PostgresOptions::default()).await;
    assert_eq!(silent.accepted(), 1, "it is asked, and given up");
    // New connections of every kind: for changes, sweeps, lists and messages.
    let answer = store.claim(&sample::claim("k")).await.expect("the second host answers");
    assert_eq!(answer.decision, Decision::Execute);
    store.sweep(10).await.expect("the second host answers");
    store.find(answer.record.expect("it is there").operation_id).await.expect("the second host answers");
    store.census().await.expect("the second host answers");
    assert_eq!(silent.accepted(), 1, "the host that answered last is asked first");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_and_waits_for_standbys_pass_a_host_that_stands_still() {
    let (database, silent) = (database().await, SilentHost::start().await);
    let address: DatabaseAddress =
        with_hosts(&database.url(), &[&silent.address, "own"]).parse().expect("it is an address");
    Standbys::new(address.clone()).wait().await.expect("the second host answers");
    assert_eq!(silent.accepted(), 1);
    let intervals =
        UpkeepIntervals { sweep_interval: Duration::from_secs(60), reap_interval: Duration::from_secs(60) };
    let told = doctor::examine(&address, &PostgresOptions::default(), &intervals).await;
    let store = told.checks.iter().find(|check| check.name == "store").expect("it is checked");
    assert!(store.found.contains("PostgreSQL"), "{}", store.found);
    assert_eq!(silent.accepted(), 2);
}

/// A primary stops answering while the store is open, and another server has taken over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_falls_silent_is_asked_last() {
    let database = database().await;
    let former = FaultProxy::before(&database.url()).await.expect("a proxy can be started");
    let url = with_hosts(&database.url(), &[&former.address().to_string(), "own"]);
    let options = PostgresOptions { lanes: 1, ..PostgresOptions::default() };
    let store = open(&url, &options).await;
    store.claim(&sample::claim("before")).await.expect("the first host answers");
    former.blackhole();
    former.cut_all().await;
    let claim = sample::claim("after");
    let answer = eventually(|| store.claim(&claim)).await;
    assert_eq!(answer.decision, Decision::Execute);
    former.heal().await.expect("it was never closed");
    let held = former.hold_statement(semel_testkit::proxy::Matching::any());
    store.sweep(10).await.expect("the host that answered last is asked, not the first");
    held.release();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_has_every_host_with_its_own_reason() {
    let (database, silent) = (database().await, SilentHost::start().await);
    database
        .sql(&format!("ALTER DATABASE {} SET default_transaction_read_only = on", database.name()))
        .expect("its owner may");
    let url = with_hosts(&database.url(), &["127.0.0.1:1", &silent.address, "own"]);
    let address: DatabaseAddress = url.parse().expect("it is an address");
    let error = PostgresStore::open(&address).await.err().expect("no host can be used").to_string();
    for part in [
        "127.0.0.1:1: error connecting to server: Connection refused",
        &format!("{}: no answer in time", silent.address),
        "database does not allow writes",
    ] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    let places = [error.find("Connection refused"), error.find("no answer"), error.find("allow writes")];
    assert!(places.is_sorted(), "the order is that of the address: {error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_no_host_takes_tells_why() {
    let database = database().await;
    let former = FaultProxy::before(&database.url()).await.expect("a proxy can be started");
    let url = with_hosts(&database.url(), &[&former.address().to_string(), "127.0.0.1:1"]);
    let store = open(&url, &PostgresOptions { lanes: 1, ..PostgresOptions::default() }).await;
    former.refuse().await;
    former.cut_all().await;
    let error = store.claim(&sample::claim("k")).await.expect_err("there is no server");
    let told = error.to_string();
    assert!(matches!(error, StoreError::Unavailable(_)), "{told}");
    assert!(told.contains(&former.address().to_string()) && told.contains("127.0.0.1:1: "), "{told}");
}
