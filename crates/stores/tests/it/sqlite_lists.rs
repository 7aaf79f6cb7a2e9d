//! Lists and counts of records in a large SQLite file read a bounded number of them.

use rusqlite::Connection;
use semel_core::{Filter, OperationId, Records, StateName, Store, Timestamp, Upkeep};
use semel_stores::SqliteStore;
use semel_testkit::sample;
use tempfile::TempDir;

/// Number of settled records in the file.
const SETTLED: i64 = 60_000;

/// Returns a file with settled records, 30 processing ones among them and 20 unknown ones. Every third settled record is
/// of another operation.
fn large() -> (TempDir, SqliteStore) {
    let folder = TempDir::new().expect("there is room for a test");
    let path = folder.path().join("semel.db");
    let store = SqliteStore::open(&path).expect("a new file can be opened");
    let file = Connection::open(&path).expect("the file opens");
    let fill = "
        WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?1)
        INSERT INTO semel_records (id, operation_id, tenant, caller, operation, key_hash_prefix, fingerprint_version,
            fingerprint, state, reason, epoch, token, lease_ms, ttl_ms, on_lease_expired, quarantine_ms, keep_request,
            due_at, expires_at, settled_by, state_since, reconcile_after, attempts, quarantine_until, created_at,
            updated_at, history)
        SELECT randomblob(32), unhex(printf('%032x', n)), 'acme', 'caller-' || (n % 100),
            iif(n % 3 = 0, 'refunds.create', 'payments.create'), '00000000', 1, randomblob(32),
            CASE WHEN n % 2000 = 7 THEN 'processing' WHEN n % 3000 = 8 THEN 'unknown' ELSE 'succeeded' END,
            'answered', 1, randomblob(16), 30000, 86400000, 'unknown', 60000, 0,
            iif(n % 2000 = 7, 9000000000000, NULL),
            iif(n % 2000 = 7 OR n % 3000 = 8, NULL, 9000000000000),
            iif(n % 2000 = 7 OR n % 3000 = 8, NULL, 'executor'),
            1000 + n,
            iif(n % 3000 = 8, 9000000000000, NULL), iif(n % 3000 = 8, 0, NULL), iif(n % 3000 = 8, 5000, NULL),
            1000, 5000000 + n, ''
        FROM numbers";
    assert_eq!(file.execute(fill, [SETTLED]).expect("it runs"), 60_000);
    (folder, store)
}

async fn all(store: &SqliteStore, filter: Filter) -> (Vec<OperationId>, usize) {
    let (mut found, mut pages, mut after) = (Vec::new(), 0, None);
    loop {
        let page = store.list(&Filter { after, ..filter.clone() }).await.expect("it lists");
        assert_eq!(page.unreadable, []);
        found.extend(page.records.iter().map(|record| record.operation_id));
        pages += 1;
        after = page.next;
        if after.is_none() {
            return (found, pages);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_of_a_large_file_are_complete_and_read_a_bounded_number_for_each_page() {
    let (_folder, store) = large();
    let state = |state| Filter { state: Some(state), limit: 500, ..Filter::default() };
    assert_eq!(all(&store, state(StateName::Processing)).await.0.len(), 30);
    assert_eq!(all(&store, state(StateName::Unknown)).await.0.len(), 20);
    assert_eq!(all(&store, state(StateName::Claimed)).await, (Vec::new(), 1));
    let rare = Filter { caller: Some("caller-42".to_owned()), ..state(StateName::Succeeded) };
    let (found, pages) = all(&store, rare).await;
    assert_eq!(found.len(), 600, "every hundredth");
    assert!(found.is_sorted());
    assert!((30..=32).contains(&pages), "a page reads a bounded number of records, found or not: {pages}");
    let until = Filter { until: Some(Timestamp::from_millis(1000 + 100)), limit: 500, ..Filter::default() };
    assert_eq!(all(&store, until).await.0.len(), 99);
    let since =
        Filter { since: Some(Timestamp::from_millis(1000 + SETTLED)), limit: 500, ..Filter::default() };
    assert_eq!(all(&store, since).await.0.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_census_of_a_large_file_counts_open_records_and_estimates_settled_ones() {
    let (folder, store) = large();
    let census = store.census().await.expect("it counts");
    let size = std::fs::metadata(folder.path().join("semel.db")).expect("it is there").len();
    let bytes = census.bytes.expect("it has a size");
    assert!(bytes > 1_000_000 && bytes >= size, "the file {size}, told {bytes}");
    let of = |state| census.groups.iter().filter(move |group| group.state == state);
    for (state, count, first) in [(StateName::Processing, 30, 1007), (StateName::Unknown, 20, 1008)] {
        assert_eq!(of(state).map(|group| group.count).sum::<u64>(), count, "{state}");
        assert!(of(state).all(|group| !group.is_estimate));
        let oldest = of(state).filter_map(|group| group.oldest).min();
        assert_eq!(oldest, Some(Timestamp::from_millis(first)), "{state}");
    }
    // 2,000 probes of two operations in the ratio of two to one: four deviations are less than 5,000.
    for (operation, about) in [("payments.create", 40_000_u64), ("refunds.create", 20_000)] {
        let group =
            of(StateName::Succeeded).find(|group| group.operation == operation).expect("it is counted");
        assert!(group.is_estimate && group.oldest.is_none());
        assert!(group.count.abs_diff(about) < 5_000, "{operation}: {}", group.count);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_census_of_a_small_file_is_exact() {
    let folder = TempDir::new().expect("there is room for a test");
    let store = SqliteStore::open(folder.path().join("semel.db")).expect("a new file can be opened");
    for number in 0..50 {
        let claim = sample::claim(&format!("key-{number}"));
        store.claim(&claim).await.expect("it claims");
    }
    let census = store.census().await.expect("it counts");
    assert_eq!(
        census.groups.iter().map(|group| (group.count, group.is_estimate)).collect::<Vec<_>>(),
        [(50, false)]
    );
}
