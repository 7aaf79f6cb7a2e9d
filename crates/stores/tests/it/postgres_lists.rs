//! Lists and counts in a large table: each call reads a bounded part of it, and open records are found wherever they are.

use std::collections::BTreeMap;

use semel_core::{
    Census, CensusGroup, Filter, OperationId, RecordPage, Records, StateName, Timestamp, Upkeep,
};
use semel_stores::PostgresStore;
use semel_stores::postgres::PostgresOptions;
use semel_testkit::postgres::Database;

use crate::postgres::{database, open, until};

/// Number of records: 2.5 scans.
const RECORDS: u64 = 25_000;

/// Number of records that one page reads.
const SCAN: u64 = 10_000;

/// Number of executions: more than the server plans with custom values; after those it has a generic plan.
const TIMES: usize = 12;

/// Inserts settled records with the operation ids 1 to $COUNT. Most are of one operation.
const FILL: &str = "
    INSERT INTO semel_records (
        id, operation_id, tenant, caller, operation, key_hash_prefix, fingerprint_version, fingerprint, state, reason,
        epoch, token, revision, lease_ms, ttl_ms, on_lease_expired, quarantine_ms, expires_at, settled_by, created_at,
        updated_at, state_since, history, status, response_format, response)
    SELECT sha256(n::text::bytea), ('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 'acme', 'alice',
        CASE WHEN n % 5 = 0 THEN 'refunds.create' ELSE 'payments.create' END, 'abcd1234', 1, sha256('body'), 'succeeded',
        'answered', 1, substring(sha256(n::text::bytea) FOR 16), 1, 30000, 86400000, 'unknown', 90000, 1099511627776,
        'executor', n, n, n, '1 1 processing claimed', 201, 1, repeat('x', 400)::bytea
    FROM generate_series(1, $COUNT) AS n";

/// Makes the 20 newest records unknown, and the 20 before them processing.
const OPEN: &str = "
    UPDATE semel_records SET state = 'unknown', reason = 'timed_out', expires_at = NULL, settled_by = NULL,
        reconcile_after = 1099511627776, attempts = 0, quarantine_until = 1, status = NULL, response_format = NULL,
        response = NULL
    WHERE created_at > $COUNT - 20;
    UPDATE semel_records SET state = 'processing', reason = 'claimed', expires_at = NULL, settled_by = NULL,
        due_at = 1099511627776, status = NULL, response_format = NULL, response = NULL
    WHERE created_at > $COUNT - 40 AND state = 'succeeded'";

/// Counts rows that were read, by any access path.
const READ: &str =
    "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'semel_records'";

async fn filled(statements: &[&str]) -> Database {
    let database = database().await;
    for statement in statements {
        database.sql(&statement.replace("$COUNT", &RECORDS.to_string())).expect("there is room");
    }
    database.sql("VACUUM ANALYZE semel_records").expect("its owner may");
    database
}

/// Returns the operation id with this number.
fn id(number: u64) -> OperationId {
    OperationId::from_bytes((0x4000_8000_0000_0000_0000_u128 | u128::from(number)).to_be_bytes())
}

fn ids(page: &RecordPage) -> Vec<OperationId> {
    page.records.iter().map(|record| record.operation_id).collect()
}

async fn list(store: &PostgresStore, filter: &Filter) -> RecordPage {
    store.list(filter).await.expect("it reads")
}

/// Returns the number of rows that `work` reads. A connection's reads are counted at its end at the latest.
async fn rows_read(database: &Database, work: impl AsyncFnOnce(&PostgresStore)) -> u64 {
    let connected = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'semel'";
    let read = || database.sql(READ).expect("it can be read").parse::<u64>().expect("it is a number");
    let before = read();
    let store = open(&database.url(), &PostgresOptions { lanes: 1, ..PostgresOptions::default() }).await;
    work(&store).await;
    drop(store);
    until(database.server(), database.name(), connected, "0").await;
    read() - before
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_without_a_match_ends_at_its_bound_and_leads_on() {
    let rare = "UPDATE semel_records SET tenant = 'rare' WHERE created_at IN (1, 10000, 10001, $COUNT)";
    let database = filled(&[FILL, rare]).await;
    let store = open(&database.url(), &PostgresOptions::default()).await;
    let filter = Filter { tenant: Some("rare".into()), limit: 10, ..Filter::default() };
    let (mut after, mut pages) = (None, Vec::new());
    for _ in 0..4 {
        let page = list(&store, &Filter { after, ..filter.clone() }).await;
        after = page.next;
        pages.push((ids(&page), page.next));
        if after.is_none() {
            break;
        }
    }
    let expected = [
        (vec![id(1), id(SCAN)], Some(id(SCAN))),
        (vec![id(SCAN + 1)], Some(id(2 * SCAN))),
        (vec![id(RECORDS)], None),
    ];
    assert_eq!(pages, expected);
    // As many matches as one page holds, and no other in reach of the scan.
    let page = list(&store, &Filter { limit: 2, ..filter.clone() }).await;
    assert_eq!((ids(&page), page.next), (vec![id(1), id(SCAN)], Some(id(SCAN))));
    let page = list(&store, &Filter { limit: 1, after: Some(id(2 * SCAN)), ..filter.clone() }).await;
    assert_eq!((ids(&page), page.next), (vec![id(RECORDS)], None), "the last record ends the list");
    let page = list(&store, &Filter { after: Some(id(RECORDS)), ..filter }).await;
    assert_eq!((ids(&page), page.next), (vec![], None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_condition_of_a_filter_counts() {
    let others = "UPDATE semel_records SET caller = 'bob' WHERE created_at = 7";
    let database = filled(&[FILL, others]).await;
    let store = open(&database.url(), &PostgresOptions::default()).await;
    let at = |number| Some(Timestamp::from_millis(number));
    for (filter, expected) in [
        (Filter { caller: Some("bob".into()), ..Filter::default() }, vec![7]),
        (Filter { since: at(3), until: at(6), ..Filter::default() }, vec![3, 4, 5]),
        (
            Filter { operation: Some("refunds.create".into()), until: at(11), ..Filter::default() },
            vec![5, 10],
        ),
        (Filter { state: Some(StateName::Succeeded), until: at(3), ..Filter::default() }, vec![1, 2]),
        (Filter { state: Some(StateName::FailedFinal), ..Filter::default() }, vec![]),
        (Filter { after: Some(id(8)), limit: 2, ..Filter::default() }, vec![9, 10]),
    ] {
        assert_eq!(
            ids(&list(&store, &filter).await),
            expected.into_iter().map(id).collect::<Vec<_>>(),
            "{filter:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_records_are_on_the_page_where_they_belong() {
    let damage = "UPDATE semel_records SET reason = 'nonsense' WHERE created_at IN (2, 5)";
    let database = filled(&[FILL, damage]).await;
    let store = open(&database.url(), &PostgresOptions::default()).await;
    let page = list(&store, &Filter { limit: 4, ..Filter::default() }).await;
    assert_eq!(ids(&page), [id(1), id(3), id(4)]);
    let [unreadable] = &page.unreadable[..] else { panic!("{:?}", page.unreadable) };
    assert_eq!(unreadable.operation_id, id(2));
    assert!(unreadable.why.contains("semel_records.reason"), "{}", unreadable.why);
    assert_eq!(page.next, Some(id(4)));
    let page = list(&store, &Filter { limit: 1, after: page.next, ..Filter::default() }).await;
    assert_eq!((ids(&page), page.next), (vec![], Some(id(5))), "an unreadable record may end a page");
    assert_eq!(page.unreadable[0].operation_id, id(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_open_records_reads_no_others() {
    let database = filled(&[FILL, OPEN]).await;
    let read = rows_read(&database, async |store| {
        for _ in 0..TIMES {
            for (state, first) in [(StateName::Unknown, RECORDS - 19), (StateName::Processing, RECORDS - 39)]
            {
                let filter = Filter { state: Some(state), limit: 15, ..Filter::default() };
                let page = list(store, &filter).await;
                assert_eq!(ids(&page), (first..first + 15).map(id).collect::<Vec<_>>());
                let rest = list(store, &Filter { after: page.next, ..filter.clone() }).await;
                assert_eq!(ids(&rest), (first + 15..first + 20).map(id).collect::<Vec<_>>());
                assert_eq!(rest.next, None);
                let refunds = Filter { operation: Some("refunds.create".into()), ..filter.clone() };
                assert_eq!(list(store, &refunds).await.records.len(), 4);
                let nobody = Filter { tenant: Some("nobody".into()), ..filter };
                assert!(list(store, &nobody).await.records.is_empty());
            }
            assert!(
                list(store, &Filter { state: Some(StateName::Claimed), ..Filter::default() })
                    .await
                    .records
                    .is_empty()
            );
        }
    })
    .await;
    // Each of the 108 lists reads the open records of its index, and once more those that it shows.
    assert!(read < 9 * TIMES as u64 * 60, "{read} rows were read");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_any_state_reads_no_more_than_it_shows() {
    let database = filled(&[FILL]).await;
    let read = rows_read(&database, async |store| {
        for _ in 0..TIMES {
            let page = list(store, &Filter { limit: 10, after: Some(id(12_345)), ..Filter::default() }).await;
            assert_eq!(ids(&page), (12_346..12_356).map(id).collect::<Vec<_>>());
        }
    })
    .await;
    assert!(read < 100 * TIMES as u64, "{read} rows were read");
}

/// Returns the groups by operation and state.
fn by_name(census: Census) -> BTreeMap<(String, &'static str), CensusGroup> {
    let name = |group: &CensusGroup| (group.operation.clone(), group.state.as_str());
    census.groups.into_iter().map(|group| (name(&group), group)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_census_of_many_records_counts_open_ones_and_estimates_the_others() {
    let database = filled(&[FILL, OPEN]).await;
    let pages = database.sql("SELECT pg_relation_size('semel_records') / 8192").expect("it can be read");
    assert!(pages.parse::<u64>().is_ok_and(|pages| pages > 2_000), "{pages} pages are counted one by one");
    let mut census = None;
    let read = rows_read(&database, async |store| {
        census = Some(store.census().await.expect("it counts"));
    })
    .await;
    let groups = by_name(census.expect("it was counted"));
    assert_eq!(groups.len(), 6, "{groups:#?}");
    for ((operation, state), group) in &groups {
        let share = if operation == "refunds.create" { 5 } else { 1 };
        let payments = share != 5;
        match *state {
            "succeeded" => {
                let all = (RECORDS - 40) / 5 * if payments { 4 } else { 1 };
                assert!(group.is_estimate && group.oldest.is_none(), "{group:?}");
                assert!(group.count > all * 3 / 4 && group.count < all * 5 / 4, "{group:?} of {all}");
            }
            _ => {
                let first = RECORDS - if *state == "unknown" { 19 } else { 39 };
                // Of 20 in a row, each fifth is a refund; the last one is.
                let oldest = if payments { first } else { first + 4 };
                assert_eq!(
                    (group.count, group.is_estimate),
                    (if payments { 16 } else { 4 }, false),
                    "{group:?}"
                );
                assert_eq!(group.oldest, i64::try_from(oldest).ok().map(Timestamp::from_millis), "{group:?}");
            }
        }
    }
    assert!(read < RECORDS / 2, "{read} rows were read");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_census_measures_the_tables_of_its_own_schema() {
    let database = filled(&[FILL]).await;
    let store = open(&database.url(), &PostgresOptions::default()).await;
    let before = store.census().await.expect("it counts").bytes.expect("it is known");
    let size = |table: &str| {
        let size =
            database.sql(&format!("SELECT pg_total_relation_size('{table}')")).expect("it can be read");
        size.parse::<u64>().expect("it is a number")
    };
    assert!(before > size("semel_records") && before < 2 * size("semel_records"), "{before}");
    database.sql("CREATE SCHEMA other").expect("its owner may");
    database.sql("CREATE TABLE other.semel_records AS TABLE semel_records").expect("there is room");
    database.sql("CREATE TABLE more AS TABLE semel_records").expect("there is room");
    assert_eq!(store.census().await.expect("it counts").bytes, Some(before), "they are others'");
    database.sql("INSERT INTO semel_evidence SELECT n::text, 'e', gen_random_uuid(), NULL, '', 'succeeded', NULL, '', 1
                  FROM generate_series(1, 1000) AS n").expect("there is room");
    assert!(store.census().await.expect("it counts").bytes.is_some_and(|after| after > before));
}
