//! The machine's clock is set while a store is in use: no record is deleted or freed, and no command runs
//! again.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::Connection;
use semel_core::transition::{Proof, Refusal};
use semel_core::{Change, Claim, Decision, Reason, Record, StateName, Store, Upkeep};
use semel_stores::SqliteStore;
use semel_testkit::sample;
use tempfile::TempDir;

const HOUR: Duration = Duration::from_secs(3600);

struct Bed {
    folder: TempDir,
}

impl Bed {
    fn new() -> Bed {
        Bed { folder: TempDir::new().expect("there is room for a test") }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("semel.db")
    }

    fn open(&self) -> SqliteStore {
        SqliteStore::open(self.path()).expect("the file opens")
    }

    fn skipped(&self) -> Duration {
        let file = Connection::open(self.path()).expect("the file opens");
        let skipped: i64 =
            file.query_row("SELECT skipped_ms FROM semel_store", [], |row| row.get(0)).expect("it reads");
        Duration::from_millis(skipped.unsigned_abs())
    }
}

/// Returns a claim whose record is kept for an hour.
fn for_an_hour(key: &str) -> Claim {
    let mut claim = sample::claim(key);
    claim.attempt.terms.ttl = HOUR;
    claim.attempt.terms.tombstone_ttl = None;
    claim
}

async fn acquire(store: &SqliteStore, key: &str) -> Record {
    let answer = store.claim(&for_an_hour(key)).await.expect("it is decided");
    assert_eq!(answer.decision, Decision::Execute);
    answer.record.expect("an acquired command has a record")
}

async fn settle(store: &SqliteStore, key: &str) {
    let record = acquire(store, key).await;
    let complete = Change::complete(record.head.fence(), sample::created("mine"));
    assert_eq!(store.apply(&record.id, &complete).await.expect("it is decided").decision, Decision::Applied);
}

async fn decide(store: &SqliteStore, key: &str) -> Decision {
    store.claim(&for_an_hour(key)).await.expect("it is decided").decision
}

#[tokio::test]
async fn a_jump_past_the_ttl_runs_nothing_again() {
    let bed = Bed::new();
    let store = bed.open();
    settle(&store, "settled").await;
    let running = acquire(&store, "running").await;
    store.jump_clock(3 * HOUR);
    assert_eq!(decide(&store, "settled").await, Decision::Replay);
    assert_eq!(store.reap(100).await.expect("it reaps").len(), 0);
    assert_eq!(store.sweep(100).await.expect("it sweeps").len(), 0);
    let complete = Change::complete(running.head.fence(), sample::created("late"));
    let answer = store.apply(&running.id, &complete).await.expect("it is decided");
    assert_eq!(answer.decision, Decision::Applied);
    assert!(bed.skipped() >= 3 * HOUR - Duration::from_secs(1), "{:?}", bed.skipped());
    store.shift_clock(2 * HOUR);
    assert_eq!(decide(&store, "settled").await, Decision::Execute, "time that passes counts as before");
}

#[tokio::test]
async fn a_read_of_the_time_ignores_an_unrecorded_clock_jump() {
    let bed = Bed::new();
    let store = bed.open();
    settle(&store, "settled").await;
    let before = store.now().await.expect("it tells the time");
    store.jump_clock(3 * HOUR);
    let after = store.now().await.expect("it tells the time");
    assert!(after.since(before) < Duration::from_secs(60), "{before} {after}");
}

#[tokio::test]
async fn a_jump_ends_no_quarantine() {
    let bed = Bed::new();
    let store = bed.open();
    let record = acquire(&store, "unknown").await;
    let abandon = Change::abandon(record.head.fence(), Reason::TimedOut);
    store.apply(&record.id, &abandon).await.expect("it is decided");
    store.jump_clock(24 * HOUR);
    let verdict = Change::resolve_not_executed(Proof::Quarantine);
    let answer = store.apply(&record.id, &verdict).await.expect("it is decided");
    assert!(
        matches!(answer.decision, Decision::Refused(Refusal::StillInFlight { .. })),
        "{:?}",
        answer.decision
    );
    let found = store.get(&record.id).await.expect("it is read").record.expect("it is there");
    assert_eq!(found.head.state.name(), StateName::Unknown);
}

#[tokio::test]
async fn a_clock_jump_is_counted_once_across_two_processes() {
    let bed = Bed::new();
    let first = bed.open();
    settle(&first, "settled").await;
    // The first store has not read the clock since.
    let second = bed.open();
    second.jump_clock(3 * HOUR);
    assert_eq!(second.reap(100).await.expect("it reaps").len(), 0);
    assert_eq!(decide(&second, "settled").await, Decision::Replay);
    first.jump_clock(3 * HOUR);
    assert_eq!(decide(&first, "settled").await, Decision::Replay);
    let skipped = bed.skipped();
    assert!(skipped < 4 * HOUR, "it is counted once: {skipped:?}");
}

#[tokio::test]
async fn a_clock_that_is_set_back_again_lets_time_go_on() {
    let bed = Bed::new();
    let store = bed.open();
    settle(&store, "settled").await;
    let before = store.now().await.expect("it tells the time");
    store.jump_clock(3 * HOUR);
    acquire(&store, "during").await;
    store.jump_clock_back(3 * HOUR);
    assert_eq!(decide(&store, "settled").await, Decision::Replay);
    assert!(bed.skipped() <= Duration::from_secs(2), "{:?}", bed.skipped());
    let after = store.now().await.expect("it tells the time");
    assert!(after >= before, "leases do not become longer: {before} {after}");
}

#[tokio::test]
async fn after_a_reboot_the_difference_is_taken_for_time_that_passed() {
    let bed = Bed::new();
    let store = bed.open();
    settle(&store, "settled").await;
    drop(store);
    let file = Connection::open(bed.path()).expect("the file opens");
    let other = "UPDATE semel_store SET clock = 'another boot', clock_offset_ms = clock_offset_ms - 10800000";
    assert_eq!(file.execute(other, []).expect("it is written"), 1);
    drop(file);
    let store = bed.open();
    assert_eq!(decide(&store, "settled").await, Decision::Replay);
    assert_eq!(bed.skipped(), Duration::ZERO, "nobody can tell");
    store.jump_clock(3 * HOUR);
    assert_eq!(decide(&store, "settled").await, Decision::Replay, "from then on it is noticed again");
}
