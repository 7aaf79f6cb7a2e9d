//! Backups, restores and the fence: a restored store lacks commands, and their retries do not run again.

mod under_load;

use std::fs;
use std::process::Output;

use serde_json::Value;

use super::lab::{Gateway, Send, Site, Upstream, pay, problem};

const OPERATIONS: &str = "witness = \"witness\"\n\
    [[operation]]\nname = \"payments.create\"\nmatch = \"POST /payments\"\n\
    [[operation]]\nname = \"reports.create\"\nmatch = \"POST /reports\"\nmode = \"async\"\n\
    [[operation]]\nname = \"refunds.create\"\nmatch = \"POST /refunds\"\n";
/// Settings of a gateway on a new machine, whose witness has no memory.
const FRESH: &str = "witness = \"another\"\n\
    [[operation]]\nname = \"payments.create\"\nmatch = \"POST /payments\"\n";
const HELD: &str = "IDEMPOTENCY_HELD";

fn keyed(key: &str) -> Send {
    pay("{}").set("idempotency-key", format!("a-key-of-its-own-{key}"))
}

fn run(site: &Site, arguments: &[&str]) -> Output {
    site.semel().args(arguments).output().expect("it runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).replace('\n', " ")
}

/// Runs a command that must do its work.
fn done(site: &Site, arguments: &[&str]) -> String {
    let output = run(site, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    said(&output)
}

/// Runs a command that must be refused with this advice.
fn refused(site: &Site, arguments: &[&str], advice: &str) {
    let output = run(site, arguments);
    assert!(!output.status.success() && said(&output).contains(advice), "{arguments:?}: {output:?}");
}

/// Copies the store. On PostgreSQL, no gateway may run.
fn back_up(site: &Site) {
    if !site.is_postgres() {
        let told = done(site, &["backup", "--to", "backup.db"]);
        assert!(told.contains("records") && told.contains("checked"), "{told}");
        return;
    }
    let database = site.postgres();
    database.terminate_backends().expect("the server ends them");
    let copy = format!("CREATE DATABASE \"{0}_backup\" TEMPLATE \"{0}\"", database.name());
    database.server().sql("postgres", &copy).expect("it is copied");
}

/// Puts the copy into the place of the store, by other means than Semel's own.
fn put_back(site: &Site) {
    if !site.is_postgres() {
        let database = site.database();
        for suffix in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{suffix}", database.display()));
        }
        fs::copy(site.folder.path().join("backup.db"), database).expect("it is put back");
        return;
    }
    let database = site.postgres();
    database.terminate_backends().expect("the server ends them");
    for (from, to) in [("", "_lost"), ("_backup", "")] {
        let name = database.name();
        let rename = format!("ALTER DATABASE \"{name}{from}\" RENAME TO \"{name}{to}\"");
        database.server().sql("postgres", &rename).expect("it is renamed");
    }
}

async fn ends(mut gateway: Gateway) {
    gateway.terminate();
    gateway.ended().await;
}

#[tokio::test]
async fn retries_of_commands_that_a_restore_has_lost_do_not_run_again() {
    let upstream = Upstream::start().await;
    let site = Site::new();
    let gateway = site.start_with(upstream.address, OPERATIONS, &[]);
    let kept = gateway.send(keyed("kept")).await;
    assert_eq!(kept.status, 201);
    ends(gateway).await;
    back_up(&site);
    let gateway = site.start_with(upstream.address, OPERATIONS, &[]);
    assert_eq!(gateway.send(keyed("lost")).await.status, 201);
    ends(gateway).await;
    put_back(&site);

    let gateway = site.start_with(upstream.address, OPERATIONS, &[]);
    gateway.logs("idempotency_store_behind").await;
    let replay = gateway.send(keyed("kept")).await;
    assert!(replay.replayed() && replay.body == kept.body, "{replay:?}");
    let fresh = site.start_with(upstream.address, FRESH, &[]);
    for one in [&gateway, &fresh] {
        for key in ["lost", "never-seen"] {
            let refused = one.send(keyed(key)).await;
            assert_eq!(refused.problem(), problem(503, HELD), "{key}");
            assert_eq!(refused.header("retry-after"), Some("10"));
            assert_eq!(refused.header("idempotency-retry"), Some("same-key"));
            assert!(refused.operation_id().is_none(), "it has no record");
        }
    }
    assert_eq!(upstream.effects(), 2, "each command ran once");
    assert_eq!(gateway.counted("idempotency_store_behind_total").await, Some(1));
    assert_eq!(fresh.counted("idempotency_store_behind_total").await, Some(0), "it cannot tell");
    assert_eq!(gateway.counted("idempotency_holds{kind=\"store\"}").await, Some(1));
    assert_eq!(
        gateway.counted("idempotency_held_total{operation=\"payments.create\"}").await,
        Some(2),
        "as for every hold"
    );
    let holds: Value =
        serde_json::from_slice(&run(&site, &["hold", "list", "--json"]).stdout).expect("a list");
    assert_eq!((&holds[0]["kind"], &holds[0]["who"]), (&"store".into(), &"semel".into()));
    ends(fresh).await;
    let examined = said(&run(&site, &["doctor", "--json"]));
    assert!(examined.contains("the store is fenced since"), "{examined}");

    // The operator knows a provider that can be asked: the lost command is unknown until it was.
    done(&site, &["hold", "add", "--look-up-first", "payments.create", "--reason", "ask the provider"]);
    let unknown = gateway.send(keyed("lost")).await;
    assert_eq!(unknown.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    let told = done(&site, &["records", "list", "--state", "unknown"]);
    assert!(told.contains("store_restored"), "{told}");
    assert_eq!(upstream.effects(), 2);

    let lifted = done(&site, &["hold", "lift", "--store-fence", "--reason", "compared with the provider"]);
    assert!(lifted.contains("even if it ran before the restore"), "{lifted}");
    assert_eq!(gateway.send(keyed("never-seen")).await.status, 201);
    assert_eq!(gateway.send(keyed("lost")).await.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    ends(gateway).await;
    // The witness has accepted it, and so has a new process.
    let gateway = site.start_with(upstream.address, OPERATIONS, &[]);
    assert!(gateway.send(keyed("never-seen")).await.replayed());
    assert!(site.column("SELECT kind FROM semel_holds WHERE kind = 'store'").is_empty());
}

#[tokio::test]
async fn no_worker_starts_a_command_that_the_restored_store_had_waiting() {
    let upstream = Upstream::start().await;
    let site = Site::new();
    let mut gateway = site.start_with(upstream.address, OPERATIONS, &[]);
    let report = || keyed("report").target("/reports").doing("gate");
    assert_eq!(gateway.send(report()).await.status, 202);
    upstream.begun().await;
    // Its lease is in the backup; its end is not.
    gateway.kill();
    back_up(&site);
    put_back(&site);
    done(&site, &["restore", "--fence", "--reason", "the disk was replaced"]);
    refused(&site, &["restore", "--fence", "--reason", "again"], "is held already");
    upstream.open_gate();
    let gateway = site.start_with(upstream.address, OPERATIONS, &[]);
    let unknown = "IDEMPOTENCY_OUTCOME_UNKNOWN";
    assert_eq!(gateway.send(report()).await.problem(), problem(409, unknown), "its end may be forgotten");
    done(&site, &["hold", "lift", "--store-fence", "--reason", "compared"]);
    assert_eq!(gateway.send(report()).await.problem(), problem(409, unknown));
    assert_eq!(site.column("SELECT reason FROM semel_records"), ["store_restored"]);
    assert_eq!(upstream.effects(), 1);
    let notes = done(&site, &["notes"]);
    assert!(notes.contains("hold store") && notes.contains("lift store"), "{notes}");
}

#[tokio::test]
async fn a_sqlite_store_is_copied_beside_its_gateway_and_put_back_fenced() {
    let upstream = Upstream::start().await;
    let site = Site::new();
    if site.is_postgres() {
        let gateway = site.start_with(upstream.address, OPERATIONS, &[]);
        refused(&site, &["backup", "--to", "copy"], "pg_basebackup");
        refused(&site, &["restore", "--fence", "--from", "copy", "--reason", "x"], "by its own tools");
        drop(gateway);
        return;
    }
    let reason = ["--reason", "a test"];
    let restore = |arguments: &[&'static str]| [&["restore"], arguments, &reason[..]].concat();
    refused(&site, &["backup", "--to", "copy.db"], "there is no store at");
    let gateway = site.start_with(upstream.address, OPERATIONS, &[]);
    assert_eq!(gateway.send(keyed("kept")).await.status, 201);
    back_up(&site);
    refused(&site, &["backup", "--to", "backup.db"], "is there already");
    refused(&site, &["backup", "--to", "semel.db"], "is the store itself");
    refused(&site, &["backup", "--to", "nowhere/backup.db"], "No such file");
    assert_eq!(gateway.send(keyed("lost")).await.status, 201, "the gateway goes on");
    refused(&site, &restore(&["--from", "backup.db"]), "say --fence");
    refused(&site, &restore(&["--fence", "--from", "backup.db"]), "say --replace");
    refused(&site, &restore(&["--fence", "--from", "semel.db", "--replace"]), "is the store itself");
    refused(&site, &restore(&["--fence", "--from", "backup.db", "--replace"]), "is in use");
    refused(&site, &restore(&["--fence", "--from", "semel.toml", "--replace"]), "no intact store");
    assert_eq!(gateway.send(keyed("after")).await.status, 201, "nothing of that changed anything");
    ends(gateway).await;

    let told = done(&site, &restore(&["--fence", "--from", "backup.db", "--replace"]));
    assert!(
        told.contains("1 records restored, and fenced") && told.contains("semel.db.replaced-1"),
        "{told}"
    );
    assert_eq!(site.column("SELECT action FROM semel_audit"), ["hold store"]);
    let gateway = site.start_with(upstream.address, FRESH, &[]);
    assert!(gateway.send(keyed("kept")).await.replayed());
    for key in ["lost", "after"] {
        assert_eq!(gateway.send(keyed(key)).await.problem(), problem(503, HELD), "{key}");
    }
    assert_eq!(upstream.effects(), 3);
    ends(gateway).await;
    let old = rusqlite::Connection::open(site.folder.path().join("semel.db.replaced-1")).expect("it is kept");
    let records = old.query_row("SELECT count(*) FROM semel_records", [], |row| row.get::<_, i64>(0));
    assert_eq!(records.expect("it is whole"), 3);
}

#[tokio::test]
async fn a_witness_of_another_store_or_of_no_use_stops_the_start_with_advice() {
    let upstream = Upstream::start().await;
    let site = Site::new();
    ends(site.start_with(upstream.address, OPERATIONS, &[])).await;
    let witness = site.folder.path().join("witness");
    let whole = fs::read_to_string(&witness).expect("it is written at the start");
    let store = whole.lines().nth(1).expect("it names the store").to_owned();
    let other = format!("store {}", "7".repeat(32));
    let upstream = format!("http://{}", upstream.address);
    let serve =
        ["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--upstream", &upstream];
    for (text, advice) in [
        (whole.replace(&store, &other), "open the store that belongs to it"),
        ("beat 7\n".to_owned(), "semel restore --fence"),
    ] {
        fs::write(&witness, &text).expect("it is written");
        refused(&site, &serve, advice);
    }
    let ahead = whole.lines().map(|line| if line.starts_with("beat ") { "beat 999" } else { line });
    fs::write(&witness, ahead.collect::<Vec<_>>().join("\n")).expect("it is written");
    fs::write(site.folder.path().join("semel.toml"), "witness = \"absent/witness\"\n")
        .expect("it is written");
    refused(&site, &serve, "create the folder");
    let gateway = site.start_at(&upstream, OPERATIONS, &[], &[]);
    assert_eq!(gateway.send(keyed("any")).await.problem(), problem(503, HELD), "it is ahead of the store");
}
