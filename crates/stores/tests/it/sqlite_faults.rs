//! Behaviour with a bad file, disk or neighbour: a clear error, and no loss.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::Connection;
use semel_core::{
    Change, Claim, Decision, Ids, Principal, RandomIds, Reason, Records, StateName, Store, StoreError,
    StoredRequest, Upkeep,
};
use semel_stores::SqliteStore;
use semel_stores::access::Access;
use semel_stores::sqlite::{SqliteOpenError, SqliteOptions};
use semel_testkit::sample;
use tempfile::TempDir;

fn folder() -> TempDir {
    TempDir::new().expect("there is room for a test")
}

fn open(folder: &Path) -> SqliteStore {
    SqliteStore::open(folder.join("semel.db")).expect("the file opens")
}

fn refuse(path: &Path) -> SqliteOpenError {
    SqliteStore::open(path).err().expect("it is refused")
}

async fn acquire(store: &SqliteStore, key: &str) -> Claim {
    let claim = sample::claim(key);
    assert_eq!(store.claim(&claim).await.expect("it is claimed").decision, Decision::Execute);
    claim
}

async fn complete(store: &SqliteStore, claim: &Claim, body: Vec<u8>) -> Result<Decision, StoreError> {
    let record = store.get(&sample::id(claim)).await?.record.expect("it was claimed");
    let result = sample::result(&sample::response(201, body));
    Ok(store.apply(&record.id, &Change::complete(record.head.fence(), result)).await?.decision)
}

/// Returns a connection that holds the write lock, like another process.
fn lock(folder: &Path) -> Connection {
    let other = Connection::open(folder.join("semel.db")).expect("the file opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("nobody else writes");
    other
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let folder = folder();
    let path = folder.path().join("semel.db");
    let letter = "Dear diary, this is not a database. ".repeat(100);
    std::fs::write(&path, &letter).expect("it can be written");
    let error = refuse(&path);
    assert!(matches!(error, SqliteOpenError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("restore it from a backup"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).expect("it is there"), letter);
}

#[tokio::test]
async fn a_file_that_is_damaged_inside_fails_closed() {
    let folder = folder();
    let path = folder.path().join("semel.db");
    let store = open(folder.path());
    for number in 0..50 {
        let claim = acquire(&store, &format!("key-{number}")).await;
        complete(&store, &claim, vec![b'x'; 4000]).await.expect("it is completed");
    }
    drop(store);
    let mut bytes = std::fs::read(&path).expect("it is there");
    for byte in bytes.iter_mut().skip(4096 * 6) {
        *byte = 0xa5;
    }
    std::fs::write(&path, bytes).expect("it can be written");
    let error = refuse(&path);
    assert!(matches!(error, SqliteOpenError::Damaged { .. }), "{error}");
}

#[test]
fn a_newer_schema_is_refused_and_left_alone() {
    let folder = folder();
    let path = folder.path().join("semel.db");
    drop(open(folder.path()));
    let file = Connection::open(&path).expect("the file opens");
    file.execute("UPDATE semel_schema SET version = 99, readable_from = 98", []).expect("the table is there");
    let error = refuse(&path);
    assert!(matches!(error, SqliteOpenError::NewerSchema { found: 99, readable_from: 98, .. }), "{error}");
    assert!(error.to_string().contains("run the version of Semel that wrote it"), "{error}");
    let version: u32 =
        file.query_row("SELECT version FROM semel_schema", [], |row| row.get(0)).expect("still there");
    assert_eq!(version, 99);
}

#[test]
fn a_reader_refuses_an_older_schema() {
    let folder = folder();
    let path = folder.path().join("semel.db");
    drop(open(folder.path()));
    let file = Connection::open(&path).expect("the file opens");
    file.execute("UPDATE semel_schema SET version = 0", []).expect("the table is there");
    let options = SqliteOptions { access: Access::Read, ..SqliteOptions::default() };
    let error = SqliteStore::open_with(&path, &options).err().expect("it is refused");
    assert!(matches!(error, SqliteOpenError::OlderSchema { found: 0, .. }), "{error}");
    assert!(error.to_string().contains("run `semel migrate`"), "{error}");
    // An impossible migration leaves everything unchanged.
    refuse(&path);
    let version: u32 =
        file.query_row("SELECT version FROM semel_schema", [], |row| row.get(0)).expect("still there");
    assert_eq!(version, 0);
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let folder = folder();
    let path = folder.path().join("nowhere").join("semel.db");
    let error = refuse(&path);
    assert!(matches!(error, SqliteOpenError::Inaccessible { .. }), "{error}");
    assert!(error.to_string().contains("nowhere"), "{error}");
}

/// Variable that makes this test binary open a file as a user without write access.
const READ_ONLY: &str = "SEMEL_TEST_READ_ONLY";

#[test]
fn user_without_write_access_is_refused() {
    let Ok(path) = std::env::var(READ_ONLY) else { return };
    let error = refuse(Path::new(&path));
    assert!(matches!(error, SqliteOpenError::Inaccessible { .. }), "{error}");
    println!("refused: {error}");
}

/// The administrator may write everywhere, so a process of an unprivileged user opens the file.
#[cfg(target_os = "linux")]
#[test]
fn a_read_only_folder_is_refused_and_left_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let set_mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    let store = folder.path().join("store");
    std::fs::create_dir(&store).expect("there is room");
    drop(open(&store));
    let program = folder.path().join("program");
    std::fs::copy(std::env::current_exe().expect("tests run from a file"), &program).expect("there is room");
    set_mode(folder.path(), 0o755);
    set_mode(&store.join("semel.db"), 0o444);
    set_mode(&store, 0o555);
    for path in [store.join("semel.db"), store.join("new.db")] {
        let arguments = ["--exact", "sqlite_faults::user_without_write_access_is_refused", "--nocapture"];
        let is_root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout == b"0\n");
        let mut child = if is_root {
            let mut child = Command::new("setpriv");
            child.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&program);
            child
        } else {
            Command::new(&program)
        };
        let output = child.args(arguments).env(READ_ONLY, &path).output().expect("a process can be started");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("refused: cannot open"), "{output:?}");
    }
    set_mode(&store, 0o755);
    assert!(!store.join("new.db").exists());
}

#[tokio::test]
async fn a_full_disk_fails_closed_and_loses_nothing() {
    let folder = folder();
    let path = folder.path().join("semel.db");
    let small = SqliteOptions { max_file_bytes: Some(256 << 10), ..SqliteOptions::default() };
    let store = SqliteStore::open_with(&path, &small).expect("there is room at first");
    let settled = acquire(&store, "settled").await;
    assert_eq!(complete(&store, &settled, vec![7; 1000]).await.expect("there is room"), Decision::Applied);
    let running = acquire(&store, "running").await;
    let mut refused = 0;
    for number in 0..500 {
        match store.claim(&sample::claim(&format!("filling-{number}"))).await {
            Ok(answer) => {
                let fence = answer.record.expect("it was claimed").head.fence();
                let result = sample::result(&sample::response(201, vec![7; 4000]));
                let change = Change::complete(fence, result);
                let id = sample::id(&sample::claim(&format!("filling-{number}")));
                if let Err(error) = store.apply(&id, &change).await {
                    assert!(matches!(error, StoreError::Unavailable(_)), "nothing was written: {error}");
                    refused += 1;
                }
            }
            Err(error) => {
                assert!(matches!(error, StoreError::Unavailable(_)), "nothing was written: {error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 100, "the disk did fill up");
    assert_eq!(store.claim(&sample::claim("settled")).await.expect("it is read").decision, Decision::Replay);
    drop(store);
    // An operator made room.
    let store = open(folder.path());
    assert_eq!(complete(&store, &running, vec![7; 100_000]).await.expect("there is room"), Decision::Applied);
    assert_eq!(store.claim(&sample::claim("new")).await.expect("there is room").decision, Decision::Execute);
}

#[tokio::test]
async fn one_poisoned_record_does_not_fail_its_neighbours() {
    let folder = folder();
    let options = SqliteOptions { max_record_bytes: 100_000, ..SqliteOptions::default() };
    let store = SqliteStore::open_with(folder.path().join("semel.db"), &options).expect("the file opens");
    let store = Arc::new(store);
    let mut claims = Vec::new();
    for number in 0..20 {
        claims.push(acquire(&store, &format!("key-{number}")).await);
    }
    let before = store.written();
    let other = lock(folder.path());
    let tasks: Vec<_> = claims
        .iter()
        .enumerate()
        .map(|(number, claim)| {
            let (store, claim) = (store.clone(), claim.clone());
            let size = if number == 7 { 200_000 } else { 100 };
            tokio::spawn(async move { complete(&store, &claim, vec![b'x'; size]).await })
        })
        .collect();
    // They all wait for the lock, so they share transactions once it is released.
    tokio::time::sleep(Duration::from_millis(200)).await;
    other.execute_batch("ROLLBACK").expect("it gives the lock back");
    for (number, task) in tasks.into_iter().enumerate() {
        match task.await.expect("it does not panic") {
            Ok(decision) => assert_eq!((decision, number != 7), (Decision::Applied, true)),
            Err(error) => {
                assert!(number == 7 && matches!(error, StoreError::Rejected(_)), "{number}: {error}");
            }
        }
    }
    let after = store.written();
    assert!(after.commits - before.commits < 20, "they were written in groups");
    // A command whose result could not be stored is settled without its body, as the layer does.
    assert_eq!(complete(&store, &claims[7], vec![]).await.expect("it fits"), Decision::Applied);
}

#[tokio::test]
async fn many_changes_share_a_commit() {
    let folder = folder();
    let store = Arc::new(open(folder.path()));
    let before = store.written();
    let tasks: Vec<_> = (0..500)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move { acquire(&store, &format!("key-{number}")).await })
        })
        .collect();
    for task in tasks {
        task.await.expect("each key is acquired");
    }
    let after = store.written();
    assert_eq!(after.changes - before.changes, 500);
    assert!(
        after.commits - before.commits <= 250,
        "{} commits for 500 claims",
        after.commits - before.commits
    );
}

#[tokio::test]
async fn a_file_that_others_hold_for_too_long_fails_closed() {
    let folder = folder();
    let options = SqliteOptions { busy_timeout: Duration::from_millis(50), ..SqliteOptions::default() };
    let store = SqliteStore::open_with(folder.path().join("semel.db"), &options).expect("the file opens");
    let other = lock(folder.path());
    let claim = sample::claim("k");
    let error = store.claim(&claim).await.expect_err("the file is held");
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    other.execute_batch("ROLLBACK").expect("it gives the lock back");
    assert_eq!(store.get(&sample::id(&claim)).await.expect("it reads").record, None, "nothing was written");
    assert_eq!(store.claim(&claim).await.expect("the file is free").decision, Decision::Execute);
}

#[tokio::test]
async fn more_changes_than_may_wait_are_refused_at_once() {
    let folder = folder();
    let options = SqliteOptions { queue: 4, ..SqliteOptions::default() };
    let store = SqliteStore::open_with(folder.path().join("semel.db"), &options).expect("the file opens");
    let store = Arc::new(store);
    let other = lock(folder.path());
    let tasks: Vec<_> = (0..50)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move { store.claim(&sample::claim(&format!("key-{number}"))).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    other.execute_batch("ROLLBACK").expect("it gives the lock back");
    let mut refused = 0;
    for task in tasks {
        match task.await.expect("it does not panic") {
            Ok(answer) => assert_eq!(answer.decision, Decision::Execute),
            Err(error) => {
                assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
                refused += 1;
            }
        }
    }
    assert!((1..50).contains(&refused), "{refused} were refused");
}

#[tokio::test]
async fn a_reader_that_is_dropped_gives_its_connection_back() {
    let folder = folder();
    let options = SqliteOptions { readers: 1, ..SqliteOptions::default() };
    let store = SqliteStore::open_with(folder.path().join("semel.db"), &options).expect("the file opens");
    for _ in 0..100 {
        tokio::select! {
            biased;
            _ = store.now() => {}
            () = tokio::task::yield_now() => {}
        }
        store.now().await.expect("the one connection is there, now or soon");
    }
}

#[tokio::test]
async fn a_damaged_file_is_refused_before_it_can_hide_a_record() {
    let folder = folder();
    let path = folder.path().join("semel.db");
    let store = open(folder.path());
    for number in 0..60 {
        acquire(&store, &format!("key-{number}")).await;
    }
    drop(store);
    // An index that points nowhere: the rows exist, and no look-up would find them.
    let file = Connection::open(&path).expect("the file opens");
    file.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("the log is written back");
    let page: u32 = file
        .query_row(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_semel_records_1'",
            [],
            |row| row.get(0),
        )
        .expect("the index is there");
    drop(file);
    let mut bytes = std::fs::read(&path).expect("it is there");
    let start = (page as usize - 1) * 4096;
    for byte in &mut bytes[start + 600..start + 3000] {
        *byte ^= 0x5a;
    }
    std::fs::write(&path, &bytes).expect("it can be written");
    let error = refuse(&path);
    assert!(matches!(error, SqliteOpenError::Damaged { .. }), "{error}");
    assert_eq!(std::fs::read(&path).expect("it is there"), bytes, "it is left alone");

    // Unchecked, it is opened; but once damage was found, nothing more is decided on the file.
    let unchecked = SqliteOptions { check_up_to_bytes: 0, ..SqliteOptions::default() };
    let store = SqliteStore::open_with(&path, &unchecked).expect("it is not checked");
    let mut met = false;
    for number in 0..200 {
        match store.claim(&sample::claim(&format!("key-{number}"))).await {
            Err(StoreError::Damaged(_)) => met = true,
            other => assert!(!met, "after damage was met: {other:?}"),
        }
    }
    assert!(met, "the damage was met");
}

#[tokio::test]
async fn a_group_that_others_keep_waiting_waits_once() {
    let folder = folder();
    let options = SqliteOptions { busy_timeout: Duration::from_millis(100), ..SqliteOptions::default() };
    let store = SqliteStore::open_with(folder.path().join("semel.db"), &options).expect("the file opens");
    let store = Arc::new(store);
    let other = lock(folder.path());
    let tasks: Vec<_> = (0..100)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move { store.claim(&sample::claim(&format!("key-{number}"))).await })
        })
        .collect();
    for task in tasks {
        let error = task.await.expect("it does not panic").expect_err("the file is held");
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    }
    let written = store.written();
    assert_eq!(written.commits, 0);
    assert!(written.tried < 20, "100 claims waited for the file {} times", written.tried);
    drop(other);
}

#[tokio::test]
async fn a_claim_whose_caller_left_creates_no_record() {
    let folder = folder();
    let store = Arc::new(open(folder.path()));
    let other = lock(folder.path());
    let claims: Vec<Claim> = (0..10).map(|number| sample::claim(&format!("key-{number}"))).collect();
    let tasks: Vec<_> = claims
        .iter()
        .map(|claim| {
            let (store, claim) = (store.clone(), claim.clone());
            tokio::spawn(async move { store.claim(&claim).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    for task in &tasks {
        task.abort();
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    other.execute_batch("ROLLBACK").expect("it gives the lock back");
    // Waiting changes are done once this one is: the writer goes in order.
    acquire(&store, "another").await;
    let mut made = 0;
    for claim in &claims {
        made += usize::from(store.get(&sample::id(claim)).await.expect("it reads").record.is_some());
    }
    assert_eq!(made, 0);
}

#[tokio::test]
async fn a_poisoned_row_does_not_stop_sweeping_reaping_and_listing() {
    let folder = folder();
    let store = open(folder.path());
    for number in 0..6 {
        acquire(&store, &format!("running-{number}")).await;
        let done = acquire(&store, &format!("done-{number}")).await;
        complete(&store, &done, vec![]).await.expect("it is completed");
    }
    let file = Connection::open(folder.path().join("semel.db")).expect("the file opens");
    let poison = "UPDATE semel_records SET reason = 'nonsense' WHERE rowid IN (1, 2, 5, 6)";
    assert_eq!(file.execute(poison, []).expect("it runs"), 4, "two of each, the oldest but one");
    store.shift_clock(Duration::from_secs(25 * 60 * 60));
    assert_eq!(
        store.sweep(2).await.expect("it sweeps").len(),
        2,
        "a batch is filled from behind the bad rows"
    );
    assert_eq!(store.sweep(100).await.expect("it sweeps").len(), 2);
    assert_eq!(store.reap(2).await.expect("it reaps").len(), 2);
    assert_eq!(store.reap(100).await.expect("it reaps").len(), 2);
    let listed = store.list(&semel_core::Filter::default()).await.expect("it lists");
    assert_eq!(listed.records.len(), 4, "those that can be read");
    assert_eq!(listed.unreadable.len(), 4, "and those that cannot");
    let unreadable = listed.unreadable;
    assert!(unreadable.iter().all(|bad| bad.why.contains("reason")), "{unreadable:?}");
    let error = store.claim(&sample::claim("running-0")).await.expect_err("its row is bad");
    assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
    assert_eq!(store.claim(&sample::claim("new")).await.expect("others work").decision, Decision::Execute);
}

#[tokio::test]
async fn record_of_another_caller_is_not_read() {
    let folder = folder();
    let store = open(folder.path());
    let claim = acquire(&store, "k").await;
    complete(&store, &claim, vec![7; 1 << 20]).await.expect("it is completed");
    let file = Connection::open(folder.path().join("semel.db")).expect("the file opens");
    let poison = "UPDATE semel_records SET reason = 'nonsense'";
    assert_eq!(file.execute(poison, []).expect("it runs"), 1);
    let own = store.find_own(claim.operation_id, claim.scope.principal()).await;
    assert!(matches!(own, Err(StoreError::Corrupt(_))), "whoever reads it notices");
    let stranger = Principal::new("globex", "mallory").expect("these are names");
    let foreign = store.find_own(claim.operation_id, &stranger).await.expect("nobody looks into it");
    assert_eq!(foreign.record, None);
}

#[test]
fn several_stores_may_open_a_new_file_at_once() {
    for _ in 0..10 {
        let folder = folder();
        let threads: Vec<_> = (0..6)
            .map(|_| {
                let path = folder.path().join("semel.db");
                std::thread::spawn(move || {
                    SqliteStore::open(path).map(drop).map_err(|error| error.to_string())
                })
            })
            .collect();
        for thread in threads {
            assert_eq!(thread.join().expect("it does not panic"), Ok(()));
        }
    }
}

#[tokio::test]
async fn an_operator_change_whose_commit_answer_was_lost_is_applied_once() {
    let folder = folder();
    let store = open(folder.path());
    let claim = acquire(&store, "k").await;
    let fence =
        store.get(&sample::id(&claim)).await.expect("it reads").record.expect("it is there").head.fence();
    let id = sample::id(&claim);
    let abandon = Change::abandon(fence, semel_core::Reason::TimedOut);
    store.apply(&id, &abandon).await.expect("it is abandoned");
    store.lose_next_commit_answer();
    let until = semel_core::Timestamp::from_millis(1_900_000_000_000);
    let error = store.apply(&id, &Change::postpone(until, 0)).await.expect_err("the answer is lost");
    assert!(matches!(error, StoreError::Ambiguous(_)), "{error}");
    let state = store.get(&id).await.expect("it reads").record.expect("it is there").head.state;
    assert!(matches!(state, semel_core::State::Unknown { attempts: 1, .. }), "counted once: {state:?}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_new_file_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let store = open(folder.path());
    acquire(&store, "k").await;
    for name in ["semel.db", "semel.db-wal", "semel.db-shm"] {
        let mode = std::fs::metadata(folder.path().join(name)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name}: {mode:o}");
    }
}

#[tokio::test]
async fn a_change_of_several_statements_is_made_whole_or_not_at_all() {
    let folder = folder();
    let store = open(folder.path());
    let file = Connection::open(folder.path().join("semel.db")).expect("the file opens");
    acquire(&store, "running").await;
    let request = Some(StoredRequest::input(Bytes::from_static(b"{}")));
    let claim = sample::for_worker(sample::claim("started"), Duration::from_secs(60));
    let claim = Claim { request, ..claim };
    let waiting = store.claim(&claim).await.expect("it is claimed").record.expect("it waits");
    let start = Change::start(waiting.head.fence(), RandomIds.attempt_token());
    store.apply(&waiting.id, &start).await.expect("it is started");
    let trigger =
        "CREATE TRIGGER kept BEFORE DELETE ON semel_requests BEGIN SELECT RAISE(ABORT, 'kept'); END";
    file.execute_batch(trigger).expect("it is made");
    store.shift_clock(Duration::from_secs(120));
    assert_eq!(
        store.sweep(10).await.expect("it sweeps").len(),
        1,
        "in the transaction of the one that cannot"
    );
    let left = store.get(&waiting.id).await.expect("it is read").record.expect("it is there");
    assert_eq!(left.head.state.name(), StateName::Processing, "without its second statement");
    file.execute_batch("DROP TRIGGER kept").expect("it is gone");
    assert_eq!(store.sweep(10).await.expect("it sweeps").len(), 1);
    let left = store.get(&waiting.id).await.expect("it is read").record.expect("it is there");
    assert_eq!(left.head.state.name(), StateName::Unknown);
}

#[tokio::test]
async fn a_failed_change_in_a_group_does_not_roll_back_the_others() {
    let folder = folder();
    let store = open(folder.path());
    let claim = sample::with_reference(sample::claim("referring"), "order-1");
    let before = store.claim(&claim).await.expect("it is claimed").record.expect("it runs");
    let trigger =
        "CREATE TRIGGER held BEFORE UPDATE ON semel_references BEGIN SELECT RAISE(ABORT, 'held'); END";
    Connection::open(folder.path().join("semel.db"))
        .and_then(|file| file.execute_batch(trigger))
        .expect("it is made");
    let other = lock(folder.path());
    let release = Change::release(before.head.fence(), Reason::NotExecuted);
    let claims = ["one", "two"].map(sample::claim);
    // While the file is locked, all three wait, and at least two of them for the same transaction.
    let (one, released, two, ()) = tokio::join!(
        store.claim(&claims[0]),
        store.apply(&before.id, &release),
        store.claim(&claims[1]),
        async { other.execute_batch("COMMIT").expect("it is unlocked") }
    );
    assert!(matches!(released, Err(StoreError::Rejected(_))), "{released:?}");
    for claimed in [one, two] {
        assert_eq!(claimed.expect("it is claimed").decision, Decision::Execute);
    }
    let after = store.get(&before.id).await.expect("it is read").record;
    assert_eq!(after, Some(before), "neither statement is made");
}
