//! Holds are kept the same in every store, each with its note.

use std::sync::Arc;

use semel_core::hold::MAX_HOLDS;
use semel_core::{AuditLog, Hold, HoldChange, HoldTarget, Holds, Note, Store};
use semel_stores::encryption::SealedStore;
use semel_stores::{MemoryStore, SqliteStore};

use crate::postgres::postgres;
use crate::sealed::vault;

fn note(action: &str, why: &str) -> Note {
    Note { who: "token:alice".to_owned(), action: action.to_owned(), why: why.to_owned() }
}

fn target(kind: &str, name: &str) -> HoldTarget {
    HoldTarget::new(kind, name).expect("it is a target")
}

async fn held<S: Store + Holds + AuditLog>(store: &S) {
    assert_eq!(store.holds().await.expect("it reads"), []);
    let before = store.now().await.expect("the store tells the time");
    let targets =
        [("tenant", "acme"), ("operation", "payments.create"), ("sink", "receipt"), ("reconciler", "")];
    for (kind, name) in targets {
        let target = target(kind, name);
        let note = note(&format!("hold {target}"), "provider is down");
        assert_eq!(store.hold(&target, &note).await.expect("it writes"), HoldChange::Done);
        assert_eq!(store.hold(&target, &note).await.expect("it writes"), HoldChange::AlreadySo);
    }
    let holds = store.holds().await.expect("it reads");
    let names: Vec<_> = holds.iter().map(|hold| hold.target.kind()).collect();
    assert_eq!(names.len(), 4);
    for Hold { since, who, why, target } in &holds {
        assert!(*since >= before, "{target}");
        assert_eq!((who.as_str(), why.as_str()), ("token:alice", "provider is down"));
    }
    let tenant = target("tenant", "acme");
    let lift = note("lift tenant acme", "it is back");
    assert_eq!(store.lift(&tenant, &lift).await.expect("it writes"), HoldChange::Done);
    assert_eq!(store.lift(&tenant, &lift).await.expect("it writes"), HoldChange::AlreadySo);
    let left = store.holds().await.expect("it reads");
    assert!(left.len() == 3 && left.iter().all(|hold| hold.target != tenant), "{left:?}");
    let log = store.audit(None, 100).await.expect("it reads");
    let actions: Vec<_> = log.iter().rev().map(|entry| entry.taken.note.action.as_str()).collect();
    let expected = [
        "hold tenant acme",
        "hold operation payments.create",
        "hold sink receipt",
        "hold reconciler",
        "lift tenant acme",
    ];
    assert_eq!(actions, expected, "one note for each change, none for what was so already");
    assert!(log.iter().all(|entry| entry.operation_id.is_none()), "they are about no command");
}

async fn bounded<S: Holds>(store: &S) {
    for number in 0..MAX_HOLDS {
        let target = target("tenant", &format!("tenant-{number}"));
        let change = store.hold(&target, &note("hold", "a test")).await.expect("it writes");
        assert_eq!(change, HoldChange::Done);
    }
    let more = target("tenant", "one more");
    let change = store.hold(&more, &note("hold", "a test")).await.expect("it answers");
    assert_eq!(change, HoldChange::TooMany);
    assert_eq!(store.holds().await.expect("it reads").len(), MAX_HOLDS);
}

/// Sends the same hold twenty times at once: one writes.
async fn raced<S: Holds + AuditLog>(store: Arc<S>) {
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let note = note("hold", &format!("operator {number}"));
                store.hold(&target("operation", "payments.create"), &note).await.expect("it answers")
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += usize::from(task.await.expect("it ends") == HoldChange::Done);
    }
    assert_eq!(done, 1);
    assert_eq!(store.holds().await.expect("it reads").len(), 1);
    assert_eq!(store.audit(None, 100).await.expect("it reads").len(), 1, "one note");
}

#[tokio::test]
async fn memory_keeps_holds_with_their_notes() {
    held(&MemoryStore::new()).await;
    bounded(&MemoryStore::new()).await;
    raced(Arc::new(MemoryStore::new())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_keeps_holds_with_their_notes() {
    let folder = tempfile::TempDir::new().expect("there is room for a test");
    let open = |name: &str| SqliteStore::open(folder.path().join(name)).expect("a new file can be opened");
    held(&open("one.db")).await;
    bounded(&open("two.db")).await;
    raced(Arc::new(open("three.db"))).await;
    assert_eq!(open("one.db").holds().await.expect("it reads").len(), 3, "they outlive the process");
    let file = rusqlite::Connection::open(folder.path().join("one.db")).expect("the file opens");
    let later = "INSERT INTO semel_holds (kind, name, since, who, why) VALUES ('caller', 'x', 1, 'a', 'b')";
    assert_eq!(file.execute(later, []).expect("it runs"), 1);
    let known = open("one.db").holds().await.expect("it reads");
    assert_eq!(known.len(), 3, "a kind of a later version hides no other hold");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgresql_keeps_holds_with_their_notes() {
    let bed = postgres("").await;
    held(&*bed.store).await;
    let later = "INSERT INTO semel_holds (kind, name, since, who, why) VALUES ('caller', 'x', 1, 'a', 'b')";
    bed.database.sql(later).expect("its owner may");
    assert_eq!(bed.store.holds().await.expect("it reads").len(), 3, "a later kind hides no other hold");
    bounded(&*postgres("").await.store).await;
    raced(postgres("").await.store.clone()).await;
}

#[tokio::test]
async fn a_sealed_store_keeps_holds_with_their_notes() {
    held(&SealedStore::new(Arc::new(MemoryStore::new()), vault(&["key-1"]))).await;
}
