//! No statement on the path of a request, nor a sweep or a reap, reads a whole table: the server counts
//! scans.

use std::time::Duration;

use semel_core::outbox::{Depth, Intervention, MessageFilter, MessageState, Next, Take};
use semel_core::{
    Change, Claim, Decision, Filter, Ids, Item, Note, Outbox, RandomIds, Record, Records, Store, Timestamp,
    Upkeep, WaitingFilter,
};
use semel_stores::PostgresStore;
use semel_stores::postgres::PostgresOptions;
use semel_testkit::postgres::Database;
use semel_testkit::sample;

use crate::postgres::{database, open, until};

const RECORDS: usize = 50_000;

/// Number of executions: more than the server plans with custom values; after those it has a generic plan.
const TIMES: usize = 12;

/// Maximum number of changes in a group.
const GROUP: usize = 256;

/// Inserts settled records, running ones, and some whose time is over.
const FILL: &str = "
    INSERT INTO semel_records (
        id, operation_id, tenant, caller, operation, key_hash_prefix, fingerprint_version, fingerprint, state, reason,
        epoch, token, revision, lease_ms, ttl_ms, on_lease_expired, quarantine_ms, due_at, expires_at, settled_by,
        created_at, updated_at, state_since, history, status, response_format, response)
    SELECT sha256(n::text::bytea), gen_random_uuid(), 'acme', 'alice', 'payments.create', 'abcd1234', 1,
        sha256('body'), CASE WHEN n % 10 = 0 THEN 'processing' ELSE 'succeeded' END, 'answered', 1,
        substring(sha256(n::text::bytea) FOR 16), 1, 30000, 86400000, 'unknown', 90000,
        CASE WHEN n % 10 = 0 THEN now.ms + n END, CASE WHEN n % 10 > 0 THEN now.ms + n * 1000 END,
        CASE WHEN n % 10 > 0 THEN 'executor' END, now.ms, now.ms, now.ms, now.ms || ' 1 processing claimed',
        CASE WHEN n % 10 > 0 THEN 201 END, CASE WHEN n % 10 > 0 THEN 1 END,
        CASE WHEN n % 10 > 0 THEN repeat('x', 300)::bytea END
    FROM generate_series(1, $COUNT) AS n, (SELECT (extract(epoch FROM now()) * 1000)::bigint AS ms) AS now";

const SCANS: &str =
    "SELECT string_agg(relname || ' ' || seq_scan, ', ' ORDER BY relname) FROM pg_stat_user_tables
    WHERE relname IN (
        'semel_records', 'semel_references', 'semel_audit', 'semel_outbox', 'semel_requests', 'semel_phases')";

async fn filled() -> Database {
    let database = database().await;
    database.sql(&FILL.replace("$COUNT", &RECORDS.to_string())).expect("there is room");
    database
        .sql(
            "INSERT INTO semel_references SELECT tenant, operation, operation_id::text, operation_id, caller, created_at
             FROM semel_records",
        )
        .expect("there is room");
    database
        .sql("INSERT INTO semel_audit SELECT gen_random_uuid(), 1, operation_id, 'a', 'b', 'c' FROM semel_records")
        .expect("there is room");
    database
        .sql("INSERT INTO semel_phases SELECT operation_id, 0, 'a', 'item', 0, NULL, id, 1, NULL FROM semel_records")
        .expect("there is room");
    database.sql("ANALYZE").expect("its owner may");
    database
}

/// Runs `work`, and returns the numbers of scans of whole tables. A connection's scans are counted at its end
/// at the latest.
async fn scans(database: &Database, work: impl AsyncFnOnce(&PostgresStore)) -> (String, String) {
    let connected = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'semel'";
    until(database.server(), database.name(), connected, "0").await;
    let before = database.sql(SCANS).expect("it can be read");
    let store = open(&database.url(), &PostgresOptions { lanes: 1, ..PostgresOptions::default() }).await;
    work(&store).await;
    drop(store);
    until(database.server(), database.name(), connected, "0").await;
    (before, database.sql(SCANS).expect("it can be read"))
}

async fn acquire(store: &PostgresStore, claim: &Claim) -> Record {
    let answer = store.claim(claim).await.expect("it is decided");
    assert_eq!(answer.decision, Decision::Execute);
    answer.record.expect("it is there")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_reads_a_whole_table() {
    let database = filled().await;
    let (before, after) = scans(&database, async |store| {
        for round in 0..TIMES {
            // Alone, with a reference, repeated, completed, read, replayed.
            let claim = sample::claim(&format!("alone-{round}"));
            let record = acquire(store, &claim).await;
            let reference =
                sample::with_reference(sample::claim(&format!("ref-{round}")), &format!("order-{round}"));
            let referring = acquire(store, &reference).await;
            let other =
                sample::with_reference(sample::claim(&format!("dup-{round}")), &format!("order-{round}"));
            let other = store.claim(&other).await.expect("it is decided");
            assert_eq!(other.decision, Decision::Duplicate);
            for record in [&record, &referring] {
                let complete = Change::complete(record.head.fence(), sample::created("done"));
                let answer = store.apply(&record.id, &complete).await.expect("it is decided");
                assert_eq!(answer.decision, Decision::Applied);
            }
            let replay = store.claim(&sample::claim(&format!("alone-{round}"))).await.expect("it is decided");
            assert_eq!(replay.decision, Decision::Replay);
            assert!(store.get(&record.id).await.expect("it reads").record.is_some());
            assert!(store.find(record.operation_id).await.expect("it reads").record.is_some());
            let own = store.find_own(record.operation_id, &record.principal).await.expect("it reads");
            assert!(own.record.is_some());
            assert!(store.notes(record.operation_id).await.expect("it reads").is_empty());
            let page = store.list(&Filter { limit: 10, ..Filter::default() }).await.expect("it reads");
            assert_eq!(page.records.len(), 10);
            let note = Note { who: "op".into(), action: "purge".into(), why: "asked for".into() };
            let purge = Change::purge().noted(note);
            assert_eq!(
                store.apply(&referring.id, &purge).await.expect("it is decided").decision,
                Decision::Applied
            );
        }
    })
    .await;
    assert_eq!(before, after);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_group_reads_a_whole_table() {
    let database = filled().await;
    let (before, after) = scans(&database, async |store| {
        for round in 0..TIMES {
            let claims: Vec<Claim> =
                (0..GROUP).map(|number| sample::claim(&format!("group-{round}-{number}"))).collect();
            let claimed =
                futures_util::future::join_all(claims.iter().map(|claim| acquire(store, claim))).await;
            let completed = claimed.iter().map(|record| async move {
                let change = Change::complete(record.head.fence(), sample::created("done"));
                store.apply(&record.id, &change).await.expect("it is decided").decision
            });
            let completed = futures_util::future::join_all(completed).await;
            assert!(completed.iter().all(|decision| *decision == Decision::Applied));
        }
        let sent = store.sent();
        assert!(sent.writes * 4 < sent.changes, "they travelled together: {sent:?}");
    })
    .await;
    assert_eq!(before, after);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_sweep_or_reap_reads_a_whole_table() {
    let database = filled().await;
    let (before, after) = scans(&database, async |store| {
        for _ in 0..TIMES {
            // Moves on, a few hundred records at a time.
            store.shift_clock(Duration::from_secs(3_600));
            assert!(!store.sweep(300).await.expect("it sweeps").is_empty());
            assert!(!store.reap(300).await.expect("it reaps").is_empty());
        }
    })
    .await;
    assert_eq!(before, after);
}

/// Inserts commands that wait for a worker, some in state `Unknown`, and items.
const FILL_WAITING: &str = "
    UPDATE semel_records SET state = 'claimed', ready_at = created_at, due_at = created_at + 3600000
    WHERE get_byte(id, 0) < 8;
    UPDATE semel_records SET state = 'unknown', due_at = NULL, expires_at = NULL, reconcile_after = created_at, attempts = 0, quarantine_until = created_at
    WHERE get_byte(id, 0) BETWEEN 8 AND 15;
    INSERT INTO semel_requests SELECT operation_id, 2, NULL, 1, 'input' FROM semel_records";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_worker_or_reconciler_reads_all_records() {
    let database = filled().await;
    database.sql(FILL_WAITING).expect("there is room");
    database.sql("VACUUM ANALYZE").expect("its owner may");
    let (before, after) = scans(&database, async |store| {
        for round in 0..TIMES {
            for operations in [None, Some(vec!["payments.create".to_owned()])] {
                let filter = WaitingFilter { operations, limit: 20, ..WaitingFilter::default() };
                let waiting = store.waiting(&filter).await.expect("it reads").found;
                assert_eq!(waiting.len(), 20);
                let record = &waiting[round % 20].record;
                let start = Change::start(record.head.fence(), RandomIds.attempt_token());
                let started = store.apply(&record.id, &start).await.expect("it is decided");
                assert_eq!(started.decision, Decision::Execute);
                let fence = started.record.expect("it is there").head.fence();
                let complete = Change::complete(fence, sample::created("done"));
                let done = store.apply(&record.id, &complete).await.expect("it is decided");
                assert_eq!(done.decision, Decision::Applied);
            }
            let due = store.due_to_reconcile(20).await.expect("it reads");
            assert_eq!(due.len(), 20);
            let id = due[0].operation_id;
            store.announce(id, &[Item { name: "b".into(), record: due[0].id }]).await.expect("it writes");
            assert_eq!(store.progress(id).await.expect("it reads").len(), 2);
            let later = due[0].updated_at.plus(Duration::from_secs(3600));
            let postpone = Change::postpone(later, 0);
            assert_eq!(
                store.apply(&due[0].id, &postpone).await.expect("it is decided").decision,
                Decision::Applied
            );
        }
    })
    .await;
    assert_eq!(before, after);
}

/// Inserts delivered messages, due ones, and waiting ones.
const FILL_OUTBOX: &str = "
    INSERT INTO semel_outbox (event_id, operation_id, position, kind, payload, state, created_at, due_at, done_at)
    SELECT operation_id || ':made', operation_id, 0, 'made', '{}',
        CASE WHEN n % 10 > 0 THEN 'delivered' ELSE 'pending' END, 1, CASE WHEN n % 20 = 0 THEN 1 ELSE 1125899906842624 END,
        CASE WHEN n % 10 > 0 THEN n END
    FROM (SELECT gen_random_uuid() AS operation_id, n FROM generate_series(1, $COUNT) AS n) AS made";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_worker_reads_all_messages() {
    let database = filled().await;
    database.sql(&FILL_OUTBOX.replace("$COUNT", &RECORDS.to_string())).expect("there is room");
    database.sql("ANALYZE").expect("its owner may");
    let (before, after) = scans(&database, async |store| {
        for _ in 0..TIMES {
            let take = Take {
                token: RandomIds.attempt_token(),
                lease: Duration::from_secs(60),
                limit: 20,
                except: Vec::new(),
            };
            let taken = store.take(&take).await.expect("they can be taken");
            assert_eq!(taken.len(), 20);
            for message in &taken {
                let fence = message.fence().expect("it was taken");
                assert!(store.accept(&fence, "ref").await.expect("it writes"));
                assert!(store.settle(&fence, Next::Dead, Some("why")).await.expect("it writes").is_written());
            }
            let id = &taken[0].event_id;
            assert!(store.message(id).await.expect("it reads").0.is_some());
            let note = Note { who: "olga".into(), action: "outbox retry".into(), why: "a test".into() };
            assert!(store.intervene(id, Intervention::Retry, &note).await.expect("it writes"));
            assert_eq!(store.reap_messages(Duration::ZERO, 100).await.expect("it writes"), 100);
        }
    })
    .await;
    assert_eq!(before, after);
}

/// Inserts commands whose first message is dead and whose second waits for it.
const FILL_BLOCKED: &str = "
    INSERT INTO semel_outbox (event_id, operation_id, position, kind, payload, state, created_at, done_at)
    SELECT operation_id || ':first', operation_id, 0, 'first', '{}', 'dead', 1, 1 FROM (
        SELECT ('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS operation_id
        FROM generate_series(1, 20000) AS n) AS made;
    INSERT INTO semel_outbox (event_id, operation_id, position, kind, payload, state, created_at)
    SELECT operation_id || ':second', operation_id, 1, 'second', '{}', 'pending', 1 FROM semel_outbox";

/// Counts rows that were read, by any access path.
const READ: &str =
    "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'semel_outbox'";

/// Counts other connections to the database. One that is gone has reported what it read.
const OTHERS: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_does_not_visit_messages_that_have_to_wait() {
    let database = database().await;
    database.sql(FILL_BLOCKED).expect("there is room");
    database.sql("ANALYZE").expect("its owner may");
    let take = || Take {
        token: RandomIds.attempt_token(),
        lease: Duration::from_secs(60),
        limit: 16,
        except: Vec::new(),
    };
    scans(&database, async |store| {
        // Each message is met once.
        for _ in 0..20_000 / (4 * 64) + 1 {
            assert!(store.take(&take()).await.expect("they can be taken").is_empty());
        }
    })
    .await;
    let blocked =
        database.sql("SELECT count(*) FROM semel_outbox WHERE blocked = 1").expect("it can be read");
    assert_eq!(blocked, "20000");
    let read = || database.sql(READ).expect("it can be read").parse::<u64>().expect("it is a number");
    until(database.server(), database.name(), OTHERS, "0").await;
    let before = read();
    scans(&database, async |store| {
        for _ in 0..TIMES {
            assert!(store.take(&take()).await.expect("they can be taken").is_empty());
        }
    })
    .await;
    assert!(read() - before < 100, "{} rows were read for nothing", read() - before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_dead_messages_reads_no_others() {
    let database = database().await;
    database.sql(&FILL_OUTBOX.replace("$COUNT", &RECORDS.to_string())).expect("there is room");
    let dead = "UPDATE semel_outbox SET state = 'dead' WHERE event_id IN (SELECT event_id FROM semel_outbox LIMIT 20)";
    database.sql(dead).expect("it is written");
    database.sql("VACUUM ANALYZE semel_outbox").expect("its owner may");
    let read = || database.sql(READ).expect("it can be read").parse::<u64>().expect("it is a number");
    until(database.server(), database.name(), OTHERS, "0").await;
    let before = read();
    scans(&database, async |store| {
        let state = Some(MessageState::Dead);
        let filter = MessageFilter { state, kind: None, created_before: None, after: None, limit: 500 };
        for _ in 0..TIMES {
            assert_eq!(store.messages(&filter).await.expect("they are listed").len(), 20);
        }
    })
    .await;
    let rows = read() - before;
    assert!(rows < 1000, "{rows} rows were read for {} that were listed", 20 * TIMES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_depth_of_the_outbox_is_counted_without_its_delivered_messages() {
    let database = database().await;
    database.sql(&FILL_OUTBOX.replace("$COUNT", &RECORDS.to_string())).expect("there is room");
    // Of all pending messages, 5 due ones and 5 later ones stay; 1 waits for another.
    for statement in [
        "UPDATE semel_outbox SET state = 'delivered', done_at = 1 WHERE state = 'pending' AND event_id NOT IN (
             (SELECT event_id FROM semel_outbox WHERE state = 'pending' AND due_at = 1 LIMIT 5)
             UNION ALL (SELECT event_id FROM semel_outbox WHERE state = 'pending' AND due_at > 1 LIMIT 5))",
        "UPDATE semel_outbox SET created_at = 100 + due_at % 2 WHERE state = 'pending'",
        "UPDATE semel_outbox SET blocked = 1, created_at = 70 WHERE event_id = (
             SELECT min(event_id) FROM semel_outbox WHERE state = 'pending')",
        "UPDATE semel_outbox SET state = 'dead' WHERE event_id IN (
             SELECT event_id FROM semel_outbox WHERE state = 'delivered' LIMIT 3)",
        "VACUUM ANALYZE semel_outbox",
    ] {
        database.sql(statement).expect("it is written");
    }
    let read = || database.sql(READ).expect("it can be read").parse::<u64>().expect("it is a number");
    until(database.server(), database.name(), OTHERS, "0").await;
    let before = read();
    scans(&database, async |store| {
        for _ in 0..TIMES {
            let oldest_pending = Some(Timestamp::from_millis(70));
            let depth = store.depth().await.expect("it is counted");
            assert_eq!(depth, Depth { pending: 10, dead: 3, oldest_pending });
        }
    })
    .await;
    let rows = read() - before;
    assert!(rows < 1000, "{rows} rows were read for {} that were counted", 13 * TIMES);
    database.sql("DELETE FROM semel_outbox WHERE state = 'pending'").expect("it is written");
    scans(&database, async |store| {
        assert_eq!(store.depth().await.expect("it is counted").oldest_pending, None);
    })
    .await;
}
