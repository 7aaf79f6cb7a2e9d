//! A store that was set back is noticed by its witness, and runs no command that it may have forgotten.

use semel_core::transition::Refusal;
use semel_core::{
    Beat, Decision, HoldChange, HoldTarget, Holds, Note, Store, StoreError, StorePoint, Witness, WitnessId,
    Witnessed,
};
use semel_stores::encryption::SealedStore;
use semel_stores::{MemoryStore, PostgresStore, SqliteStore};
use semel_testkit::postgres::Database;
use semel_testkit::sample;

use crate::postgres::{database, open, patience};
use crate::sealed::vault;

const REFUSED: Decision = Decision::Refused(Refusal::StoreFenced);

fn witness(number: u8) -> Witness {
    Witness { id: WitnessId::from_bytes([number; 16]), seen: StorePoint::NONE }
}

fn note() -> Note {
    Note { who: "erin".to_owned(), action: "a test".to_owned(), why: "compared with the provider".to_owned() }
}

async fn kept<S: Witnessed>(store: &S, witness: Witness) -> Witness {
    match store.beat(witness).await.expect("it writes") {
        Beat::Kept(seen) => Witness { seen, ..witness },
        Beat::Behind(point) => panic!("it is behind {witness:?}: {point:?}"),
    }
}

async fn decide<S: Store>(store: &S, key: &str) -> Decision {
    store.claim(&sample::claim(key)).await.expect("it is decided").decision
}

async fn lift<S: Holds>(store: &S) {
    assert_eq!(store.lift(&HoldTarget::Store, &note()).await.expect("it writes"), HoldChange::Done);
}

async fn beats<S: Witnessed + Holds>(store: &S) {
    let first = kept(store, witness(1)).await;
    let tenant = HoldTarget::Tenant("acme".to_owned());
    assert_eq!(store.hold(&tenant, &note()).await.expect("it writes"), HoldChange::Done);
    let second = kept(store, first).await;
    assert!(first.seen < second.seen && first.seen.generation == second.seen.generation);
    let other = kept(store, witness(2)).await;
    assert_eq!(other.seen.beat, 1, "each witness has its own beat");
    assert!(kept(store, first).await.seen > second.seen, "an older memory is no harm");
    let ahead = Witness { seen: StorePoint { beat: 99, ..second.seen }, ..second };
    for _ in 0..2 {
        let behind = store.beat(ahead).await.expect("it reads");
        assert_eq!(behind, Beat::Behind(StorePoint { beat: 3, ..second.seen }), "and nothing is written");
    }
    assert_eq!(store.hold(&HoldTarget::Store, &note()).await.expect("it writes"), HoldChange::Done);
    assert!(matches!(store.beat(ahead).await, Ok(Beat::Behind(_))), "a fence alone accepts nothing");
    lift(store).await;
    let accepted = kept(store, ahead).await;
    assert!(accepted.seen.generation > second.seen.generation);
    let unknown = Witness { seen: accepted.seen, ..witness(3) };
    assert!(matches!(store.beat(unknown).await, Ok(Beat::Behind(_))), "its beats are gone");
}

#[tokio::test]
async fn beats_rise_in_memory_until_an_operator_accepts_a_loss() {
    beats(&MemoryStore::new()).await;
    beats(&SealedStore::new(std::sync::Arc::new(MemoryStore::new()), vault(&["a"]))).await;
}

#[tokio::test]
async fn beats_rise_in_sqlite_until_an_operator_accepts_a_loss() {
    let folder = tempfile::tempdir().expect("there is room");
    beats(&SqliteStore::open(folder.path().join("semel.db")).expect("it opens")).await;
}

#[tokio::test]
async fn beats_rise_in_postgres_until_an_operator_accepts_a_loss() {
    let database = database().await;
    beats(&*open(&database.url(), &patience(5_000)).await).await;
}

#[tokio::test]
async fn a_restored_file_is_behind_its_witness() {
    let folder = tempfile::tempdir().expect("there is room");
    let (path, backup) = (folder.path().join("semel.db"), folder.path().join("backup.db"));
    let store = SqliteStore::open(&path).expect("it opens");
    let seen = kept(&store, witness(1)).await;
    assert_eq!(decide(&store, "before").await, Decision::Execute);
    let connection = rusqlite::Connection::open(&path).expect("it opens");
    connection.execute("VACUUM INTO ?1", [backup.to_str().expect("it is text")]).expect("it is copied");
    drop(connection);
    assert_eq!(decide(&store, "forgotten").await, Decision::Execute);
    let seen = kept(&store, seen).await;
    drop(store);
    std::fs::rename(&backup, &path).expect("it is put back");
    let store = SqliteStore::open(&path).expect("it opens");
    assert!(matches!(store.beat(seen).await, Ok(Beat::Behind(_))));
    assert!(matches!(store.beat(witness(9)).await, Ok(Beat::Kept(_))), "a new witness cannot tell");
}

/// Puts a copy of the database into its place, as a restore of a backup does.
fn restore(database: &Database, backup: &str) {
    database.terminate_backends().expect("the server ends them");
    let rename = |from: &str, to: &str| {
        let sql = format!("ALTER DATABASE \"{from}\" RENAME TO \"{to}\"");
        database.server().sql("postgres", &sql).expect("it is renamed");
    };
    rename(database.name(), &format!("{}_lost", database.name()));
    rename(backup, database.name());
}

fn back_up(database: &Database) -> String {
    let backup = format!("{}_backup", database.name());
    database.terminate_backends().expect("the server ends them");
    let sql = format!("CREATE DATABASE \"{backup}\" TEMPLATE \"{}\"", database.name());
    database.server().sql("postgres", &sql).expect("it is copied");
    backup
}

async fn refused(store: &PostgresStore, key: &str) {
    // A connection of before may be found dead first.
    for _ in 0..5 {
        match store.claim(&sample::claim(key)).await {
            Ok(answer) => return assert_eq!((answer.decision, answer.record), (REFUSED, None), "{key}"),
            Err(StoreError::Unavailable(_)) => {}
            Err(error) => panic!("{key}: {error}"),
        }
    }
    panic!("{key}: it is not decided");
}

#[tokio::test]
async fn a_restored_database_is_fenced_before_the_first_connection_to_it_is_used() {
    let database = database().await;
    let store = open(&database.url(), &patience(5_000)).await;
    let seen = kept(&*store, witness(1)).await;
    assert_eq!(decide(&*store, "before").await, Decision::Execute);
    let backup = back_up(&database);
    assert_eq!(decide(&*store, "forgotten").await, Decision::Execute);
    let seen = kept(&*store, seen).await;
    restore(&database, &backup);
    refused(&store, "forgotten").await;
    refused(&store, "never-seen").await;
    assert_eq!(decide(&*store, "before").await, Decision::Reconcile, "what the backup has is answered");
    let holds = store.holds().await.expect("it reads");
    assert_eq!(holds.iter().map(|hold| hold.target.kind()).collect::<Vec<_>>(), ["store"]);
    let noted = database.sql("SELECT who || '|' || action FROM semel_audit").expect("it reads");
    assert_eq!(noted, "semel|hold store", "once, whichever connection came first");
    assert!(matches!(store.beat(seen).await, Ok(Beat::Behind(_))));
    let fresh = open(&database.url(), &patience(5_000)).await;
    refused(&fresh, "forgotten").await;
    lift(&*store).await;
    kept(&*store, seen).await;
    assert_eq!(decide(&*store, "forgotten").await, Decision::Execute, "an operator accepted it");
}
