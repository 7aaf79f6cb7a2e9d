//! Executors in processes of their own that are killed with SIGKILL between any two steps of a command, or stopped with
//! SIGSTOP until others have continued without them. The provider is a server in the test's own process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use semel_core::StateName;
use semel_flow::phases::{Deduplication, Phases};
use semel_flow::{PostgresPhases, PostgresTransactions, SqlitePhases, SqliteTransactions};
use semel_testkit::proxy::{FaultProxy, Matching};

use crate::killed::{PLACE, Process, TASK, say, stand};
use crate::lab::{Kept, Lab, Postgres, Sqlite, command, command_with, pool, saw, stored};
use crate::rides::{Act, PLACES, Phased, Provider, Ride, resumed, ride, written};

const TEST: &str = "phases_killed::a_process_that_rides";
const HOUR: Duration = Duration::from_secs(3600);

/// Prints that it is here, and continues only when a file is gone: the test stops this process in between.
fn rest() {
    let path = std::env::var(BAR).expect("it is told what to wait for");
    say("here");
    while std::fs::exists(&path).expect("it can be looked for") {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Environment variable with the path of that file.
const BAR: &str = "SEMEL_TEST_BAR";

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_process_that_rides() {
    let (Ok(place), Ok(task)) = (std::env::var(PLACE), std::env::var(TASK)) else { return };
    let mut task = task.split('/');
    let (how, deduplicates) = (task.next().expect("how"), task.next() == Some("deduplicates"));
    let provider: SocketAddr = task.next().and_then(|text| text.parse().ok()).expect("an address");
    let at = task.next().expect("where").to_owned();
    let act: fn() = if how == "stand" { stand } else { rest };
    let what = Ride {
        provider,
        deduplication: if deduplicates { Deduplication::ByKey } else { Deduplication::None },
        script: Arc::new(move |place, _| if place == at { Act::Call(act) } else { Act::Go }),
    };
    let kept = Kept::at(direct(&place)).await;
    say("\nready");
    let place = place.split('|').next().unwrap_or_default();
    if place.starts_with("postgres://") {
        let transactions = PostgresTransactions::new(pool(place, 2).await);
        let phases = PostgresPhases::new(transactions, kept.store());
        run(phases.operation("payments.create", move |run, input| ride(run, input, what.clone()))).await;
    } else {
        let transactions = SqliteTransactions::open(place).expect("the file opens").hold(HOUR);
        let phases = SqlitePhases::new(transactions, kept.store());
        run(phases.operation("payments.create", move |run, input| ride(run, input, what.clone()))).await;
    }
}

/// Returns the address of the store: beside a proxy, if there is one.
fn direct(place: &str) -> &str {
    place.split('|').next_back().unwrap_or_default()
}

async fn run<D: Clone + Send + Sync + 'static>(phases: Phases<D>) {
    // A process that is stopped in a transaction on PostgreSQL loses it after this time.
    let command = command_with("key", |policy| policy.timeout = Duration::from_secs(3));
    let saw = saw(&phases.start(&command, "ride 7").await);
    say(&format!("saw {saw:?}"));
}

fn task(how: &str, provider: &Provider, at: &str) -> String {
    let deduplicates = provider.ledger().deduplicates;
    let word = if deduplicates { "deduplicates" } else { "does not" };
    format!("{how}/{word}/{}/{at}", provider.address)
}

/// Starts a process in a thread that may block.
async fn started(place: String, task: String) -> Process {
    let starting = move || {
        let mut process = Process::running(TEST, &place, &task);
        process.until("here");
        process
    };
    tokio::task::spawn_blocking(starting).await.expect("it starts")
}

/// Checks the state after a kill at this place: the provider's charges, and the rows once other executors have
/// continued.
async fn recovered(lab: &impl Phased, provider: &Provider, at: &str) {
    let kept = lab.kept().await;
    kept.shift_clock(HOUR);
    let rides = lab.rides(kept.store(), Ride::new(provider));
    let record = resumed(&[&rides], &kept, &command("key").scope.record_id()).await;
    let deduplicates = provider.ledger().deduplicates;
    let charges = provider.counts().1;
    let inside = ["before sending", "after sending"].contains(&at);
    if deduplicates || !inside {
        assert_eq!(record.head.state.name(), StateName::Succeeded, "{at}");
        assert_eq!((written(lab).await, charges), ((1, 1, 1), 1), "{at}: exactly one effect");
        let retry = saw(&rides.start(&command("key"), "ride 7").await);
        assert!(retry.replayed(), "{at}: {retry:?}");
    } else {
        assert_eq!(record.head.state.name(), StateName::Unknown, "{at}");
        let charged = usize::from(at == "after sending");
        assert_eq!((written(lab).await, charges), ((1, 0, 0), charged), "{at}: never a second call");
    }
}

async fn killed_everywhere<L: Phased>(new: impl AsyncFn() -> L, deduplicates: bool) {
    for at in PLACES {
        let (lab, provider) = (new().await, Provider::start(deduplicates).await);
        let process = started(lab.place(), task("stand", &provider, at)).await;
        process.kill();
        recovered(&lab, &provider, at).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_executor_killed_anywhere_on_postgres_leaves_one_effect_with_deduplication() {
    killed_everywhere(Postgres::new, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_executor_killed_anywhere_on_postgres_leaves_at_most_one_effect_without_deduplication() {
    killed_everywhere(Postgres::new, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_executor_killed_anywhere_on_sqlite_leaves_one_effect_with_deduplication() {
    killed_everywhere(async || Sqlite::new(), true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_executor_killed_anywhere_on_sqlite_leaves_at_most_one_effect_without_deduplication() {
    killed_everywhere(async || Sqlite::new(), false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_executor_killed_around_any_phase_commit_charges_once() {
    // The commits: the ride, the call that begins, its answer, the receipt.
    for (number, at) in ["in the ride", "", "after sending", "in the receipt"].into_iter().enumerate() {
        for is_sent in [false, true] {
            let (lab, provider) = (Postgres::new().await, Provider::start(true).await);
            let proxy = FaultProxy::before(&lab.database.url()).await.expect("a port is free");
            let commit = Matching::commit().skipping(number);
            let held = if is_sent { proxy.hold_answer(commit) } else { proxy.hold_statement(commit) };
            let place = format!("{}|{}", proxy.url(&lab.database.url()), lab.place());
            let task = task("stand", &provider, "nowhere");
            let process = tokio::task::spawn_blocking(move || Process::running(TEST, &place, &task));
            let process = process.await.expect("it starts");
            held.reached().await;
            process.kill();
            proxy.cut_all().await;
            drop(held);
            recovered(&lab, &provider, at).await;
            let calls = if (number, is_sent) == (2, false) { 2 } else { 1 };
            assert_eq!(provider.counts(), (calls, 1), "commit {number}, sent: {is_sent}");
        }
    }
}

/// Stops a process at this place, lets others continue, and then resumes it, too.
async fn stopped_at(lab: impl Phased, at: &str, deduplicates: bool) {
    let provider = Provider::start(deduplicates).await;
    let folder = tempfile::TempDir::new().expect("there is room for a test");
    let bar = folder.path().join("bar");
    std::fs::write(&bar, "").expect("a file can be made");
    let (place, task, path) = (lab.place(), task("rest", &provider, at), bar.clone());
    let starting = move || {
        let mut process = Process::with(TEST, &place, &task, &[(BAR, path.to_str().expect("it is text"))]);
        process.until("here");
        process.stop();
        process
    };
    let mut process = tokio::task::spawn_blocking(starting).await.expect("it starts");
    std::fs::remove_file(&bar).expect("the file can be removed");
    let kept = lab.kept().await;
    kept.shift_clock(HOUR);
    let rides = lab.rides(kept.store(), Ride::new(&provider));
    let record = resumed(&[&rides], &kept, &command("key").scope.record_id()).await;
    let expected = if record.head.state.is_terminal() {
        let (status, body) = stored(&record);
        format!("saw Replayed({status}, {:?})", String::from_utf8_lossy(&body))
    } else {
        "saw Decided(Reconcile)".to_owned()
    };
    assert_eq!(record.head.state.is_terminal(), deduplicates || !at.ends_with("sending"), "{at}");
    let ending = move || {
        process.signal("CONT");
        process.until(&expected);
    };
    tokio::task::spawn_blocking(ending).await.expect("it is told the record's truth");
    let charges = provider.counts().1;
    if record.head.state.is_terminal() {
        assert_eq!((written(&lab).await, charges), ((1, 1, 1), 1), "{at}");
    } else {
        assert_eq!((written(&lab).await, charges), ((1, 0, 0), 1), "{at}");
    }
    let after = resumed(&[&rides], &kept, &command("key").scope.record_id()).await;
    assert_eq!((after.head, after.result), (record.head, record.result), "{at}: it changed nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_executor_that_resumes_charges_once_on_postgres() {
    for at in PLACES {
        stopped_at(Postgres::new().await, at, true).await;
    }
    for at in ["before sending", "after sending"] {
        stopped_at(Postgres::new().await, at, false).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_executor_that_resumes_charges_once_on_sqlite() {
    // Not in a local phase: there it holds the file, and no other executor can continue.
    for at in PLACES.into_iter().filter(|at| !at.starts_with("in ")) {
        stopped_at(Sqlite::new(), at, true).await;
    }
    for at in ["before sending", "after sending"] {
        stopped_at(Sqlite::new(), at, false).await;
    }
}
