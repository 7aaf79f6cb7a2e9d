//! A request that is stored for a worker is erased as soon as no worker needs it, however that happens.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use semel_core::{Change, Claim, Decision, Fence, Ids, RandomIds, Reason, Record, Records, StoredRequest};
use semel_stores::SqliteStore;
use semel_testkit::sample;
use tempfile::TempDir;

use crate::postgres::postgres;

const HOUR: Duration = Duration::from_secs(3600);

fn for_later(key: &str) -> Claim {
    let request = StoredRequest::input(Bytes::from_static(b"a request"));
    Claim { request: Some(request), ..sample::for_worker(sample::claim(key), HOUR) }
}

/// A way in which a command can stop waiting for a worker, and the state that it leaves behind.
#[derive(Clone, Copy, Debug)]
enum Way {
    Complete,
    Fail,
    Abandon,
    Release,
    RequeuedTooLate,
    LeaseEnds,
    ReleasedUnstarted,
    Deadline,
    Free,
}

const WAYS: [(Way, Option<&str>); 9] = [
    (Way::Complete, Some("succeeded")),
    (Way::Fail, Some("failed_final")),
    (Way::Abandon, Some("unknown")),
    (Way::Release, Some("failed_retryable")),
    (Way::RequeuedTooLate, Some("failed_retryable")),
    (Way::LeaseEnds, Some("unknown")),
    (Way::ReleasedUnstarted, Some("failed_retryable")),
    (Way::Deadline, Some("failed_retryable")),
    (Way::Free, None),
];

async fn apply(store: &dyn Records, record: &Record, change: &Change) {
    let answer = store.apply(&record.id, change).await.expect("the store writes");
    assert_eq!(answer.decision, Decision::Applied, "{change:?}");
}

async fn start(store: &dyn Records, record: &Record) -> Fence {
    let start = Change::start(record.head.fence(), RandomIds.attempt_token());
    let answer = store.apply(&record.id, &start).await.expect("the store writes");
    assert_eq!(answer.decision, Decision::Execute);
    answer.record.expect("it is there").head.fence()
}

async fn go(store: &dyn Records, record: &Record, way: Way, advance: impl Fn(Duration)) {
    let result = || sample::created("done");
    match way {
        Way::Complete => {
            let fence = start(store, record).await;
            apply(store, record, &Change::complete(fence, result())).await;
        }
        Way::Fail => {
            let fence = start(store, record).await;
            apply(store, record, &Change::fail(fence, Reason::Answered, result())).await;
        }
        Way::Abandon => {
            let fence = start(store, record).await;
            apply(store, record, &Change::abandon(fence, Reason::TimedOut)).await;
        }
        Way::Release => {
            let fence = start(store, record).await;
            apply(store, record, &Change::release(fence, Reason::NotExecuted)).await;
        }
        Way::RequeuedTooLate => {
            let fence = start(store, record).await;
            apply(store, record, &Change::requeue(fence, Reason::NotExecuted, HOUR)).await;
        }
        Way::LeaseEnds => {
            start(store, record).await;
            advance(record.head.terms.lease + Duration::from_secs(1));
            store.sweep(100).await.expect("the store sweeps");
        }
        Way::ReleasedUnstarted => {
            let release = Change::release(record.head.fence(), Reason::ClaimUnconfirmed);
            apply(store, record, &release).await;
        }
        Way::Deadline => {
            advance(HOUR + Duration::from_secs(1));
            store.sweep(100).await.expect("the store sweeps");
        }
        Way::Free => apply(store, record, &Change::free()).await,
    }
}

async fn is_erased_on_every_way_out(
    store: Arc<dyn Records>,
    advance: impl Fn(Duration) + Copy,
    kept: impl Fn() -> usize,
) {
    for (way, state) in WAYS {
        let claim = for_later(&format!("{way:?}"));
        let claimed = store.claim(&claim).await.expect("the store writes");
        let record = claimed.record.expect("it is there");
        assert_eq!((claimed.decision, kept()), (Decision::Wait, 1), "{way:?}");
        // A retried command still needs it.
        let fence = start(&*store, &record).await;
        let again = Change::requeue(fence, Reason::NotExecuted, Duration::ZERO);
        let queued = store.apply(&record.id, &again).await.expect("the store writes").record;
        assert_eq!(kept(), 1, "{way:?}");
        go(&*store, &queued.expect("it waits again"), way, advance).await;
        let after = store.get(&record.id).await.expect("the store reads").record;
        assert_eq!(after.map(|record| record.head.state.name().as_str()), state, "{way:?}");
        assert_eq!(kept(), 0, "{way:?}");
    }
}

#[tokio::test]
async fn a_request_in_a_file_is_erased_on_every_way_out() {
    let folder = TempDir::new().expect("there is room for a test");
    let path = folder.path().join("semel.db");
    let store = Arc::new(SqliteStore::open(&path).expect("a new file can be opened"));
    let other = rusqlite::Connection::open(&path).expect("it opens again");
    let kept = || {
        let count = other.query_row("SELECT count(*) FROM semel_requests", [], |row| row.get::<_, i64>(0));
        usize::try_from(count.expect("it reads")).expect("it is a count")
    };
    is_erased_on_every_way_out(store.clone(), |by| store.shift_clock(by), kept).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_in_postgres_is_erased_on_every_way_out() {
    let subject = postgres("").await;
    let kept = || {
        let count = subject.database.sql("SELECT count(*) FROM semel_requests").expect("it reads");
        count.trim().parse().expect("it is a count")
    };
    is_erased_on_every_way_out(subject.store.clone(), |by| subject.store.shift_clock(by), kept).await;
}
