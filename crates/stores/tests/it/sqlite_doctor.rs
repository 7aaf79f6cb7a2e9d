//! The examination of a file reports its findings, and leaves the file unchanged. The program's tests cover
//! its output.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use semel_stores::SqliteStore;
use semel_stores::doctor::{Check, Examination, Health, UpkeepIntervals};
use semel_stores::sqlite::{SqliteOptions, doctor};
use tempfile::TempDir;

const UPKEEP: UpkeepIntervals =
    UpkeepIntervals { sweep_interval: Duration::from_secs(5), reap_interval: Duration::from_secs(60) };

fn examine(path: &Path, options: &SqliteOptions) -> Examination {
    doctor::examine(path, options, &UPKEEP)
}

fn check<'a>(examination: &'a Examination, name: &str) -> &'a Check {
    examination.checks.iter().find(|check| check.name == name).expect("it was looked at")
}

#[test]
fn a_path_may_have_any_characters() {
    let folder = TempDir::new().expect("there is room");
    let odd = folder.path().join("a b?c=d#e%20f 'ü'");
    std::fs::create_dir(&odd).expect("there is room");
    let path = odd.join("semel.db");
    drop(SqliteStore::open(&path).expect("a new file can be opened"));
    let examination = examine(&path, &SqliteOptions::default());
    assert!(examination.checks.iter().all(|check| check.health == Health::Ok), "{:#?}", examination.checks);
    assert_eq!(examination.api_keys, Some(0));
    assert_eq!(
        std::fs::read_dir(&odd).expect("it is there").count(),
        2,
        "no file was made beside it and its marker"
    );
}

#[test]
fn a_file_that_is_too_large_is_not_read_whole() {
    let folder = TempDir::new().expect("there is room");
    let path = folder.path().join("semel.db");
    drop(SqliteStore::open(&path).expect("a new file can be opened"));
    let options = SqliteOptions { check_up_to_bytes: 4096, ..SqliteOptions::default() };
    let examination = examine(&path, &options);
    let integrity = check(&examination, "integrity");
    assert_eq!(integrity.found, "not checked: the file has more than 4.0 KiB");
    assert!(matches!(&integrity.health, Health::Warn(advice) if advice.contains("integrity_check")));
    assert_eq!(check(&examination, "records").health, Health::Ok);
}

#[test]
fn the_doctor_reports_an_exclusive_lock_of_another_program() {
    let folder = TempDir::new().expect("there is room");
    let path = folder.path().join("semel.db");
    drop(SqliteStore::open(&path).expect("a new file can be opened"));
    let other = Connection::open(&path).expect("the file opens");
    other.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE").expect("nobody else has it");
    let options = SqliteOptions { busy_timeout: Duration::ZERO, ..SqliteOptions::default() };
    let examination = examine(&path, &options);
    let Health::Fail(advice) = &check(&examination, "store").health else {
        panic!("it cannot be read: {:#?}", examination.checks)
    };
    assert!(advice.contains("another program holds an exclusive lock"), "{advice}");
    assert_eq!(examination.api_keys, None);
}

#[test]
fn the_doctor_beside_an_open_store_reads_its_write_ahead_log() {
    let folder = TempDir::new().expect("there is room");
    let path = folder.path().join("semel.db");
    let store = SqliteStore::open(&path).expect("a new file can be opened");
    let keys = semel_stores::sqlite::ApiKeys::open(&path).expect("the file opens again");
    let alice = semel_core::Principal::new("acme", "alice").expect("a principal");
    keys.create(&alice).expect("it writes");
    let (made, _) = keys.create(&alice).expect("it writes");
    keys.revoke(&made.id).expect("it writes");
    let examination = examine(&path, &SqliteOptions::default());
    assert!(examination.checks.iter().all(|check| check.health == Health::Ok), "{:#?}", examination.checks);
    assert_eq!(examination.api_keys, Some(1));
    assert!(check(&examination, "store").found.contains("in its log"), "{:?}", check(&examination, "store"));
    drop(store);
}

#[cfg(unix)]
#[test]
fn a_link_leads_to_the_file_and_to_its_log() {
    let folder = TempDir::new().expect("there is room");
    let (path, link) = (folder.path().join("semel.db"), folder.path().join("link.db"));
    let _store = SqliteStore::open(&path).expect("a new file can be opened");
    std::os::unix::fs::symlink(&path, &link).expect("there is room");
    let keys = semel_stores::sqlite::ApiKeys::open(&path).expect("the file opens again");
    keys.create(&semel_core::Principal::new("acme", "alice").expect("a principal")).expect("it writes");
    assert_eq!(examine(&link, &SqliteOptions::default()).api_keys, Some(1), "it is in the log so far");
}

#[test]
fn examining_a_crashed_file_does_not_roll_back_its_unfinished_change() {
    let folder = TempDir::new().expect("there is room");
    let [path, crashed] = ["semel.db", "crashed.db"].map(|name| folder.path().join(name));
    drop(SqliteStore::open(&path).expect("a new file can be opened"));
    // The state on disk in the middle of a change, as a crash would leave it.
    let file = Connection::open(&path).expect("the file opens");
    file.execute_batch(
        "PRAGMA journal_mode = DELETE; PRAGMA cache_size = 1; PRAGMA cache_spill = 1; BEGIN IMMEDIATE;
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 2000)
         INSERT INTO semel_audit (at, operation_id, who, action, why) SELECT i, x'01', 'w', 'a', hex(zeroblob(99)) FROM n;",
    )
    .expect("it is made");
    let journal = |path: &Path| std::path::PathBuf::from(format!("{}-journal", path.display()));
    std::fs::copy(&path, &crashed).expect("there is room");
    std::fs::copy(journal(&path), journal(&crashed)).expect("the change has begun");
    let read =
        || [std::fs::read(&crashed), std::fs::read(journal(&crashed))].map(|read| read.expect("it is there"));
    let before = read();
    let examination = examine(&crashed, &SqliteOptions::default());
    let Health::Fail(advice) = &check(&examination, "store").health else {
        panic!("it cannot be read as it is: {:#?}", examination.checks)
    };
    assert!(advice.contains("a crash left an unfinished change"), "{advice}");
    assert!(read() == before, "nothing was changed");
    assert!(SqliteStore::open(&crashed).is_ok(), "as the advice says, whoever may write can open it");
}
