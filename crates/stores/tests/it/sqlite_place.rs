//! A store's file that is deleted, replaced, moved or emptied is noticed: no claim is answered that a restart
//! would lose, and no empty file is taken for the earlier store.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use semel_core::{Change, Claim, Decision, Store, StoreError};
use semel_stores::SqliteStore;
use semel_stores::sqlite::{ApiKeys, SqliteOpenError, SqliteOptions};
use semel_testkit::sample;
use tempfile::TempDir;

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

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn open(&self) -> SqliteStore {
        SqliteStore::open(self.path()).expect("the file opens")
    }

    fn refuse(&self) -> SqliteOpenError {
        SqliteStore::open(self.path()).err().expect("it is refused")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).expect("the folder is there");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

/// Leaves the store as a killed process does: with its log.
fn kill(store: SqliteStore, path: &Path) {
    let reader = Connection::open(path).expect("the file opens");
    let count = "SELECT count(*) FROM semel_records";
    reader.query_row(count, [], |_| Ok(())).expect("it reads");
    let copy = |suffix: &str| {
        let file = PathBuf::from(format!("{}{suffix}", path.display()));
        (file.clone(), fs::read(&file).expect("it is there"))
    };
    let files = ["", "-wal", "-shm"].map(copy);
    drop((store, reader));
    for (file, bytes) in files {
        fs::write(file, bytes).expect("it can be written");
    }
}

async fn claim(store: &SqliteStore, key: &str) -> Result<(Claim, Decision), StoreError> {
    let claim = sample::claim(key);
    store.claim(&claim).await.map(|answer| (claim, answer.decision))
}

type Harm = fn(&Bed);

const HARMS: [(&str, Harm); 6] = [
    ("deleted", |bed| fs::remove_file(bed.path()).expect("it is there")),
    ("deleted with its log", |bed| {
        for name in ["semel.db", "semel.db-wal", "semel.db-shm"] {
            fs::remove_file(bed.file(name)).expect("it is there");
        }
    }),
    ("moved", |bed| fs::rename(bed.path(), bed.file("elsewhere.db")).expect("it is there")),
    ("replaced", |bed| {
        fs::copy(bed.path(), bed.file("copy.db")).expect("there is room");
        fs::rename(bed.file("copy.db"), bed.path()).expect("it is there");
    }),
    ("its log deleted", |bed| fs::remove_file(bed.file("semel.db-wal")).expect("it is there")),
    ("its log replaced", |bed| {
        fs::remove_file(bed.file("semel.db-wal")).expect("it is there");
        fs::write(bed.file("semel.db-wal"), b"").expect("there is room");
    }),
];

#[tokio::test]
async fn a_file_that_is_gone_takes_no_claim_and_no_outcome() {
    for (name, harm) in HARMS {
        let bed = Bed::new();
        let store = bed.open();
        let (running, decision) = claim(&store, "before").await.expect("it is claimed");
        assert_eq!(decision, Decision::Execute);
        let record = store.get(&sample::id(&running)).await.expect("it is read").record.expect("it is there");
        harm(&bed);
        let late = claim(&store, "after").await;
        assert!(matches!(late, Err(StoreError::Damaged(_) | StoreError::Ambiguous(_))), "{name}: {late:?}");
        let change = Change::complete(record.head.fence(), sample::created("mine"));
        let outcome = store.apply(&record.id, &change).await;
        assert!(matches!(outcome, Err(StoreError::Damaged(_))), "{name}: {outcome:?}");
        assert!(store.now().await.is_err(), "{name}: nobody takes it for ready");
        let why = outcome.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(why.contains("semel.db") && why.contains("restore a backup"), "{name}: {why}");
    }
}

#[tokio::test]
async fn a_file_that_goes_during_the_commit_is_noticed_before_the_claim_is_answered() {
    let bed = Bed::new();
    let store = bed.open();
    claim(&store, "before").await.expect("it is claimed");
    // Another writer delays the claim's transaction until the file is gone, and until after the check before
    // it.
    let other = Connection::open(bed.path()).expect("the file opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
    let mut late = Box::pin(claim(&store, "after"));
    let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(late.as_mut().poll(cx))).await;
    assert!(polled.is_pending(), "it waits for the other writer");
    fs::remove_file(bed.path()).expect("it is there");
    other.execute_batch("ROLLBACK").expect("it can be given up");
    let late = late.await;
    assert!(matches!(late, Err(StoreError::Ambiguous(_) | StoreError::Damaged(_))), "{late:?}");
}

#[tokio::test]
async fn a_store_that_lost_its_file_stays_closed_when_the_file_is_back() {
    let bed = Bed::new();
    let store = bed.open();
    fs::rename(bed.path(), bed.file("elsewhere.db")).expect("it is there");
    assert!(claim(&store, "away").await.is_err());
    fs::rename(bed.file("elsewhere.db"), bed.path()).expect("it is there");
    assert!(matches!(claim(&store, "back").await, Err(StoreError::Damaged(_))));
    drop(store);
    let (_, decision) = claim(&bed.open(), "back").await.expect("a restart opens it");
    assert_eq!(decision, Decision::Execute);
}

#[tokio::test]
async fn an_empty_file_beside_a_log_is_no_new_store() {
    for emptied in [true, false] {
        let bed = Bed::new();
        let store = bed.open();
        claim(&store, "acknowledged").await.expect("it is claimed");
        kill(store, &bed.path());
        let log = fs::read(bed.file("semel.db-wal")).expect("a crash leaves the log");
        match emptied {
            true => fs::write(bed.path(), b"").expect("it can be written"),
            false => fs::remove_file(bed.path()).expect("it is there"),
        }
        let error = bed.refuse();
        assert!(matches!(error, SqliteOpenError::Remains { .. }), "{error}");
        assert!(error.to_string().contains("Put its file back"), "{error}");
        assert!(ApiKeys::open(bed.path()).is_err(), "nor for keys");
        assert_eq!(fs::read(bed.file("semel.db-wal")).expect("it is there"), log, "the log is left alone");
        assert_eq!(bed.path().exists(), emptied, "nothing was made");
    }
}

#[test]
fn an_empty_file_where_a_store_was_is_refused_unless_one_is_to_be_made() {
    for emptied in [true, false] {
        let bed = Bed::new();
        drop(bed.open());
        assert_eq!(bed.names(), ["semel.db", "semel.db.id"]);
        match emptied {
            true => fs::write(bed.path(), b"").expect("it can be written"),
            false => fs::remove_file(bed.path()).expect("it is there"),
        }
        let error = bed.refuse();
        assert!(matches!(error, SqliteOpenError::Gone { .. }), "{error}");
        assert!(error.to_string().contains("semel migrate --create"), "{error}");
        assert_eq!(bed.path().exists(), emptied, "nothing was made");
        let create = SqliteOptions { create: true, ..SqliteOptions::default() };
        drop(SqliteStore::open_with(bed.path(), &create).expect("it is told to"));
        drop(bed.open());
        assert_eq!(bed.names(), ["semel.db", "semel.db.id"], "nothing unfinished is left");
    }
}

#[test]
fn another_store_in_the_place_of_one_is_refused_and_left_alone() {
    let (bed, other) = (Bed::new(), Bed::new());
    drop((bed.open(), other.open()));
    let foreign = fs::read(other.path()).expect("it is there");
    fs::write(bed.path(), &foreign).expect("it can be written");
    let error = bed.refuse();
    assert!(matches!(error, SqliteOpenError::Other { .. }), "{error}");
    assert_eq!(fs::read(bed.path()).expect("it is there"), foreign);
    fs::write(bed.path(), b"").expect("it can be written");
    let empty = Connection::open(bed.path()).expect("it opens");
    empty.execute_batch("CREATE TABLE payments (amount INTEGER)").expect("it can be written");
    drop(empty);
    let error = bed.refuse();
    assert!(matches!(error, SqliteOpenError::Gone { .. }), "a database without records: {error}");
}

#[tokio::test]
async fn a_store_that_came_without_its_marker_gets_one() {
    let bed = Bed::new();
    let store = bed.open();
    let marker = fs::read_to_string(bed.file("semel.db.id")).expect("it is there");
    claim(&store, "kept").await.expect("it is claimed");
    drop(store);
    fs::remove_file(bed.file("semel.db.id")).expect("it is there");
    let store = bed.open();
    assert_eq!(fs::read_to_string(bed.file("semel.db.id")).expect("it is back"), marker);
    assert_eq!(claim(&store, "kept").await.expect("it is decided").1, Decision::Wait);
    fs::write(bed.file("semel.db.id"), b"not an id").expect("it can be written");
    let error = bed.refuse();
    assert!(matches!(error, SqliteOpenError::Marker { .. }), "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_that_leads_elsewhere_is_noticed() {
    let bed = Bed::new();
    fs::create_dir(bed.file("disk")).expect("there is room");
    std::os::unix::fs::symlink(bed.file("disk/real.db"), bed.path()).expect("it can be made");
    fs::write(bed.file("disk/real.db"), b"").expect("there is room");
    let store = bed.open();
    claim(&store, "before").await.expect("the log is beside the file, not beside the link");
    fs::remove_file(bed.path()).expect("it is there");
    fs::write(bed.file("disk/other.db"), b"").expect("there is room");
    std::os::unix::fs::symlink(bed.file("disk/other.db"), bed.path()).expect("it can be made");
    assert!(claim(&store, "after").await.is_err());
}
