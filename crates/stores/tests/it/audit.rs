//! The audit log reads the same in every store: the newest note first, in pages.

use std::sync::Arc;
use std::time::Duration;

use semel_core::{AuditEntry, AuditLog, Change, Note, Reason, Records, Store};
use semel_stores::encryption::SealedStore;
use semel_stores::{MemoryStore, SqliteStore};
use semel_testkit::{ManualClock, sample};

use crate::postgres::postgres;
use crate::sealed::vault;

fn note(why: &str) -> Note {
    Note { who: "token:alice".to_owned(), action: "resolve".to_owned(), why: why.to_owned() }
}

async fn pages<S: Store + AuditLog>(store: &S, advance: impl Fn(Duration)) {
    let mut noted = Vec::new();
    for number in 0..5 {
        let claim = sample::claim(&format!("audited-{number}"));
        let record = store.claim(&claim).await.expect("it claims").record.expect("there is a record");
        let fence = record.head.fence();
        let why = format!("ticket {number}");
        let verdict = || Change::resolve_executed(sample::created("found")).noted(note(&why));
        // The change is refused, and leaves no note.
        store.apply(&record.id, &verdict()).await.expect("it answers");
        store.apply(&record.id, &Change::abandon(fence, Reason::TimedOut)).await.expect("it is written");
        store.apply(&record.id, &verdict()).await.expect("it is written");
        noted.push((Some(record.operation_id), Note { action: "resolve executed".to_owned(), ..note(&why) }));
        advance(Duration::from_millis(5));
    }
    noted.reverse();
    let mut found: Vec<AuditEntry> = Vec::new();
    loop {
        let page = store.audit(found.last().map(|entry| entry.id), 2).await.expect("it reads");
        assert!(page.len() <= 2, "{page:?}");
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    assert!(found.is_sorted_by(|newer, older| newer.id > older.id && newer.taken.at > older.taken.at));
    let told: Vec<_> = found.into_iter().map(|entry| (entry.operation_id, entry.taken.note)).collect();
    assert_eq!(told, noted, "each once, the newest first");
}

/// Takes notes without a change about a command with a record, and about one without.
async fn without_a_change<S: Records + AuditLog>(store: &S) {
    let claim = sample::claim("looked-at");
    let record = store.claim(&claim).await.expect("it claims").record.expect("there is a record");
    let other = sample::claim("never-claimed").operation_id;
    let looked = Note { action: "response".to_owned(), ..note("the client asks") };
    for id in [record.operation_id, other] {
        store.take_note(id, &looked).await.expect("it is written");
        let taken = store.notes(id).await.expect("it reads");
        assert!(taken.len() == 1 && taken[0].note == looked, "{taken:?}");
    }
    let log = store.audit(None, 10).await.expect("it reads");
    let ids: Vec<_> = log.iter().map(|entry| entry.operation_id).collect();
    assert_eq!(ids, [Some(other), Some(record.operation_id)]);
    let found = store.find(record.operation_id).await.expect("it reads").record.expect("it is there");
    assert_eq!(found.updated_at, record.updated_at, "the record did not change");
}

#[tokio::test]
async fn the_log_is_read_in_memory() {
    let clock = ManualClock::new();
    pages(&MemoryStore::with_clock(clock.clone()), |by| clock.advance(by)).await;
    without_a_change(&MemoryStore::new()).await;
}

#[tokio::test]
async fn the_log_is_read_in_sqlite() {
    let folder = tempfile::TempDir::new().expect("there is room for a test");
    let store = SqliteStore::open(folder.path().join("semel.db")).expect("a new file can be opened");
    pages(&store, |by| store.shift_clock(by)).await;
    let other = SqliteStore::open(folder.path().join("other.db")).expect("a new file can be opened");
    without_a_change(&SealedStore::new(Arc::new(other), vault(&["key-1"]))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_read_in_postgresql() {
    let bed = postgres("").await;
    pages(&*bed.store, |by| bed.store.shift_clock(by)).await;
    without_a_change(&*postgres("").await.store).await;
}
