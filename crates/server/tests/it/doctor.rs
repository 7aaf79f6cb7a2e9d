//! `semel doctor`: its findings in real files and at real sockets. It changes nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;
use std::sync::{Arc, Mutex};

use rusqlite::Connection;
use semel_stores::sqlite::SCHEMA_VERSION;
use serde_json::Value;
use tempfile::TempDir;

use crate::commands::{run, run_newer, text};
use crate::gateway::issuer::{Signer, set};
use crate::gateway::lab::{Site, Upstream, lab, pay, problem, semel};

/// Report of the doctor.
struct Report {
    code: Option<i32>,
    checks: Vec<Value>,
}

impl Report {
    /// Returns the result and the finding of the first check of this name.
    fn check(&self, name: &str) -> (&str, &str) {
        let check = self.find(name);
        (check["result"].as_str().expect("it is text"), check["found"].as_str().expect("it is text"))
    }

    fn advice(&self, name: &str) -> &str {
        self.find(name)["advice"].as_str().unwrap_or("")
    }

    fn find(&self, name: &str) -> &Value {
        let check = self.checks.iter().find(|check| check["check"] == name);
        check.unwrap_or_else(|| panic!("{name} was looked at: {:#?}", self.checks))
    }

    fn failed(&self) -> Vec<&str> {
        let failed = self.checks.iter().filter(|check| check["result"] == "fail");
        failed.filter_map(|check| check["check"].as_str()).collect()
    }
}

fn doctor(folder: &Path, arguments: &[&str]) -> Report {
    report(&run(folder, &[&["doctor", "--json"][..], arguments].concat()))
}

/// Runs the doctor of a program whose schema is one version newer.
fn newer_doctor(folder: &Path, arguments: &[&str]) -> Report {
    report(&run_newer(folder, &[&["doctor", "--json"][..], arguments].concat()))
}

fn report(output: &Output) -> Report {
    let checks = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("it is JSON: {output:?}"));
    let report = Report { code: output.status.code(), checks };
    assert_eq!(report.code, Some(i32::from(!report.failed().is_empty())), "{:#?}", report.checks);
    for check in &report.checks {
        assert_eq!(
            check["advice"].is_null(),
            check["result"] == "ok",
            "what is not ok says what to do: {check}"
        );
    }
    report
}

/// Makes a used store that no process has open.
fn used() -> TempDir {
    let folder = TempDir::new().expect("there is room");
    assert!(
        run(folder.path(), &["keys", "create", "--tenant", "acme", "--caller", "alice"]).status.success()
    );
    assert_eq!(files(folder.path()).len(), 2, "it is closed: there are its file and its marker");
    folder
}

/// Returns every file of the folder with its contents, except the log's index, which is shared memory.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).expect("it is there").flatten();
    let named = entries.map(|entry| (entry.file_name().into_string().expect("it is text"), entry.path()));
    named
        .filter(|(name, _)| !name.ends_with("-shm"))
        .map(|(name, path)| (name, std::fs::read(path).expect("it can be read")))
        .collect()
}

fn sql(folder: &Path, statement: &str) {
    let file = Connection::open(folder.join("semel.db")).expect("the file opens");
    file.execute_batch(statement).expect("the statement is right");
}

/// Returns an address without a listener.
async fn nobody() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    listener.local_addr().expect("it is bound")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_gateway_is_found_healthy_and_is_not_disturbed() {
    let (site, upstream, gateway) = lab(&[]).await;
    assert_eq!(gateway.send(pay("{}")).await.status, 201);
    let before = files(site.folder.path());
    assert!(before.contains_key("semel.db-wal"), "the gateway has it open");
    let (listen, admin) = (gateway.address.to_string(), gateway.admin.to_string());
    let at = format!("http://{}", upstream.address);
    let arguments = ["--listen", &listen, "--admin-listen", &admin, "--upstream", &at];
    let report = doctor(site.folder.path(), &arguments);
    assert_eq!(report.code, Some(0), "{:#?}", report.checks);
    for name in
        ["store", "durability", "permissions", "schema", "clock", "indexes", "integrity", "leases", "expiry"]
    {
        assert_eq!(report.check(name).0, "ok", "{:#?}", report.find(name));
    }
    for name in ["configuration", "tier", "upstream", "upstream clock", "identity", "admin"] {
        assert_eq!(report.check(name).0, "ok", "{:#?}", report.find(name));
    }
    assert_eq!(report.check("configuration").1, "semel.toml");
    assert_eq!(report.check("records"), ("ok", "1 succeeded"));
    assert_eq!(report.check("gateway"), ("ok", format!("one runs at {listen}, and is ready").as_str()));
    assert!(report.check("durability").1.contains("synchronous=FULL"), "{:?}", report.check("durability"));
    assert_eq!(files(site.folder.path()), before, "nothing was changed");
    assert_eq!(upstream.seen(), 2, "one command, and one question of the doctor");
    assert!(gateway.send(pay("{}")).await.replayed(), "it goes on as before");
    assert_eq!(gateway.send(pay("{}").set("idempotency-key", "another-0123456789")).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_prints_a_line_for_each_check_and_its_advice_below() {
    let (folder, upstream) = (used(), Upstream::start().await);
    let (upstream, nobody) = (format!("http://{}", upstream.address), nobody().await.to_string());
    let token = "[[admin.token]]\nname = \"a\"\nrole = \"viewer\"\ncommand = [\"print-the-token\"]\n";
    std::fs::write(folder.path().join("semel.toml"), token).expect("there is room");
    let arguments = ["doctor", "--upstream", &upstream, "--listen", &nobody, "--admin-listen", "0.0.0.0:9"];
    let output = run(folder.path(), &arguments);
    let said = text(&output.stdout);
    let failed = said.lines().any(|line| line.starts_with("fail"));
    assert_eq!(output.status.code(), Some(i32::from(failed)), "warnings are no failure: {said}");
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.iter().any(|line| line.starts_with("ok    schema ")), "{said}");
    let admin = lines.iter().position(|line| line.starts_with("warn  admin ")).expect("it is told");
    assert!(lines[admin + 1].contains("-> set `admin_listen` to a loopback address"), "{said}");
    assert!(
        lines.iter().any(|line| line.starts_with("ok    gateway ") && line.contains("none runs at")),
        "{said}"
    );
    assert!(!said.contains('\u{1b}'), "no colours where there is no terminal");
}

#[test]
fn a_file_that_is_not_there_is_not_made() {
    let folder = TempDir::new().expect("there is room");
    let report = doctor(folder.path(), &[]);
    assert_eq!(report.check("store"), ("warn", "there is no file at semel.db yet"));
    assert!(report.advice("store").contains("when it first starts"));
    let nowhere = doctor(folder.path(), &["--store", "sqlite:nowhere/semel.db"]);
    assert_eq!(nowhere.check("store").0, "fail");
    assert!(nowhere.check("store").1.contains("there is no folder nowhere"), "{:?}", nowhere.check("store"));
    let itself = doctor(folder.path(), &["--store", "sqlite:."]);
    assert_eq!(itself.check("store"), ("fail", ". is not a file"));
    assert_eq!(files(folder.path()), BTreeMap::new());
}

#[test]
fn a_file_at_rest_is_left_exactly_as_it_is() {
    let folder = used();
    let before = files(folder.path());
    let report = doctor(folder.path(), &[]);
    assert_eq!(report.check("schema").0, "ok");
    assert_eq!(files(folder.path()), before);
    let names = std::fs::read_dir(folder.path()).expect("it is there").count();
    assert_eq!(names, 2, "there is no file beside it and its marker");
}

#[test]
fn another_schema_is_named_and_never_migrated() {
    let folder = used();
    sql(folder.path(), "UPDATE semel_schema SET version = 99, readable_from = 98");
    let before = files(folder.path());
    let newer = doctor(folder.path(), &[]);
    let expected =
        format!("version 99, newer than this program's version {SCHEMA_VERSION}, readable from 98");
    assert_eq!(newer.check("schema"), ("fail", expected.as_str()));
    assert!(newer.advice("schema").contains("run the version of Semel that wrote it"));
    assert!(!newer.checks.iter().any(|check| check["check"] == "records"), "its tables are not ours to read");
    sql(folder.path(), "UPDATE semel_schema SET version = 1, readable_from = 1");
    assert_ne!(files(folder.path()), before);
    let before = files(folder.path());
    let older = newer_doctor(folder.path(), &[]);
    let expected = format!("version {SCHEMA_VERSION}, older than this program's version 2");
    assert_eq!(older.check("schema"), ("warn", expected.as_str()));
    assert!(older.advice("schema").contains("semel migrate"));
    assert_eq!(older.check("records"), ("ok", "none"));
    assert_eq!(files(folder.path()), before);
    std::fs::write(folder.path().join("semel.db"), "").expect("there is room");
    let empty = doctor(folder.path(), &[]);
    assert_eq!(empty.check("store").0, "fail", "a store was here");
    std::fs::remove_file(folder.path().join("semel.db.id")).expect("it is there");
    let empty = doctor(folder.path(), &[]);
    assert_eq!(empty.check("schema").0, "warn");
    assert_eq!(files(folder.path())["semel.db"], b"");
}

#[test]
fn dropped_indexes_and_triggers_are_reported_and_the_advice_restores_them() {
    let folder = used();
    for (kind, name) in [("INDEX", "semel_records_due"), ("TRIGGER", "semel_audit_is_not_shortened")] {
        sql(folder.path(), &format!("DROP {kind} {name}"));
        let report = doctor(folder.path(), &[]);
        let expected = format!("{} {name} is missing", kind.to_lowercase());
        assert_eq!(report.check("indexes"), ("fail", expected.as_str()));
        let (_, statement) = report.advice("indexes").split_once("sqlite3: ").expect("it says how");
        sql(folder.path(), statement);
        assert_eq!(doctor(folder.path(), &[]).check("indexes").0, "ok");
    }
    let other =
        "DROP INDEX semel_records_expiry; CREATE INDEX semel_records_expiry ON semel_records (tenant);
                 DROP TABLE semel_secrets";
    sql(folder.path(), other);
    let report = doctor(folder.path(), &[]);
    let (result, found) = report.check("indexes");
    assert_eq!(result, "fail");
    for wrong in ["index semel_records_expiry is not as it was made", "table semel_secrets is missing"] {
        assert!(found.contains(wrong), "{found}");
    }
    assert!(report.advice("indexes").contains("restore a backup"));
}

#[test]
fn permissions_are_for_the_owner_only() {
    let folder = used();
    let database = folder.path().join("semel.db");
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("it is ours");
    };
    for (bits, result) in
        [(0o644, "warn"), (0o640, "warn"), (0o666, "fail"), (0o620, "fail"), (0o400, "fail")]
    {
        mode(&database, bits);
        let report = doctor(folder.path(), &[]);
        assert_eq!(report.check("permissions").0, result, "{bits:o}: {}", report.check("permissions").1);
        assert_eq!(report.advice("permissions"), "chmod 600 semel.db");
    }
    mode(&database, 0o600);
    assert_eq!(doctor(folder.path(), &[]).check("permissions").0, "ok");
    mode(folder.path(), 0o777);
    let open = doctor(folder.path(), &[]);
    assert_eq!(open.check("permissions").0, "warn");
    assert!(open.check("permissions").1.contains("put another file in its place"));
    mode(folder.path(), 0o700);
}

#[test]
fn another_journal_mode_is_noticed_and_left_alone() {
    let folder = used();
    sql(folder.path(), "PRAGMA journal_mode = DELETE");
    let before = files(folder.path());
    let report = doctor(folder.path(), &[]);
    assert_eq!(report.check("durability").0, "warn");
    assert!(report.check("durability").1.contains("not in WAL mode"), "{:?}", report.check("durability"));
    assert_eq!(files(folder.path()), before);
    assert!(run(folder.path(), &["migrate"]).status.success());
    assert_eq!(
        doctor(folder.path(), &[]).check("durability").0,
        "ok",
        "as the advice says, opening it changes it back"
    );
}

#[test]
fn file_that_is_no_database_is_not_touched() {
    let folder = TempDir::new().expect("there is room");
    let database = folder.path().join("semel.db");
    std::fs::write(&database, "not a database at all, but long enough to look like one".repeat(20))
        .expect("there is room");
    let before = files(folder.path());
    let report = doctor(folder.path(), &[]);
    assert_eq!(report.check("store").0, "fail");
    assert!(report.advice("store").contains("restore it from a backup, and do not delete it"));
    assert_eq!(files(folder.path()), before);
}

#[test]
fn a_damaged_index_is_found() {
    let folder = used();
    // Equal records under another index, like after a lost write.
    sql(
        folder.path(),
        "PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'semel_audit_operation')
         WHERE name = 'semel_references_holder';",
    );
    let before = files(folder.path());
    let report = doctor(folder.path(), &[]);
    assert_eq!(report.check("integrity").0, "ok", "two empty indexes are alike");
    let write =
        "INSERT INTO semel_audit (at, operation_id, who, action, why) VALUES (1, x'01', 'w', 'a', 'y')";
    sql(folder.path(), write);
    assert_ne!(files(folder.path()), before);
    let report = doctor(folder.path(), &[]);
    assert_eq!(report.check("integrity").0, "fail", "{:#?}", report.checks);
    assert!(report.advice("integrity").contains("do not delete the file"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_upstream_fails_the_check_and_a_silent_one_warns() {
    let folder = used();
    let refusing = nobody().await;
    let refused = doctor(folder.path(), &["--upstream", &format!("http://{refusing}")]);
    assert_eq!(refused.check("upstream"), ("fail", format!("{refusing} refuses connections").as_str()));
    assert!(refused.advice("upstream").contains("start the service"));
    let nameless = doctor(folder.path(), &["--upstream", "http://nowhere.invalid:80"]);
    assert_eq!(nameless.check("upstream").0, "fail");
    assert!(
        nameless.check("upstream").1.contains("the name nowhere.invalid"),
        "{:?}",
        nameless.check("upstream")
    );

    let mute = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = mute.local_addr().expect("it is bound");
    let hanging_up = std::thread::spawn(move || {
        // One connection for the check of reachability, one for the request.
        for _ in 0..2 {
            drop(mute.accept().expect("it is connected to"));
        }
    });
    let silent = doctor(folder.path(), &["--upstream", &format!("http://{address}")]);
    assert_eq!(silent.check("upstream").0, "warn");
    assert!(silent.check("upstream").1.contains("does not answer HEAD /"), "{:?}", silent.check("upstream"));
    assert!(silent.advice("upstream").contains("upstream_protocol"));
    hanging_up.join().expect("it was connected to twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_of_http_2_is_asked_in_http_2() {
    let (folder, upstream) = (used(), Upstream::start().await);
    let at = format!("http://{}", upstream.address);
    let report = doctor(folder.path(), &["--upstream", &at, "--upstream-protocol", "h2c"]);
    assert_eq!(report.check("upstream").0, "ok", "{:?}", report.check("upstream"));
    assert_eq!(upstream.seen(), 1);
}

#[test]
fn missing_api_keys_are_a_failure() {
    let folder = TempDir::new().expect("there is room");
    std::fs::write(folder.path().join("semel.toml"), "[identity]\nsource = \"api-key\"\n")
        .expect("there is room");
    let before_any = doctor(folder.path(), &[]);
    assert_eq!(before_any.check("identity").0, "fail", "a file that is not there holds no key");
    let create = ["keys", "create", "--tenant", "acme", "--caller", "alice", "--json"];
    let made: Value = serde_json::from_slice(&run(folder.path(), &create).stdout).expect("it is JSON");
    assert_eq!(doctor(folder.path(), &[]).check("identity"), ("ok", "api-key, with one live key"));
    let id = made["id"].as_str().expect("it has an id");
    assert!(run(folder.path(), &["keys", "revoke", id]).status.success());
    let report = doctor(folder.path(), &[]);
    assert_eq!(
        report.check("identity"),
        ("fail", "api-key, and there are no keys: no caller can be identified")
    );
    assert!(report.advice("identity").contains("semel keys create"));
    let memory = doctor(folder.path(), &["--store", "memory:"]);
    assert_eq!(memory.check("identity").0, "fail");
}

#[test]
fn keys_for_tokens_are_read() {
    let folder = TempDir::new().expect("there is room");
    let file =
        "[identity]\nsource = \"jwt\"\njwks = \"keys.json\"\nissuer = \"us\"\naudience = \"payments\"\n";
    std::fs::write(folder.path().join("semel.toml"), file).expect("there is room");
    let report = doctor(folder.path(), &[]);
    let (result, found) = report.check("identity");
    assert!(result == "fail" && found.contains("keys.json: cannot open the file"), "{found}");
    assert!(report.advice("identity").contains("`jwks`"));
    let keys = set(&[Signer::ed().jwk("a")]);
    std::fs::write(folder.path().join("keys.json"), keys).expect("there is room");
    assert_eq!(
        doctor(folder.path(), &[]).check("identity"),
        ("ok", "jwt of us, with one key from keys.json")
    );
}

#[test]
fn proxies_that_are_everybody_and_a_store_in_memory_are_warned_of() {
    let folder = TempDir::new().expect("there is room");
    let file = "[identity]\nsource = \"trusted-headers\"\ntrusted_proxies = [\"10.0.0.2\", \"0.0.0.0/0\"]\n\
                tenant_header = \"X-Tenant\"\ncaller_header = \"X-Caller\"\n[defaults]\nttl = \"5m\"\n";
    std::fs::write(folder.path().join("semel.toml"), file).expect("there is room");
    let report = doctor(folder.path(), &["--store", "memory:"]);
    let (result, found) = report.check("identity");
    assert_eq!(result, "warn");
    assert!(found.contains("x-tenant and x-caller, from 10.0.0.2, 0.0.0.0/0"), "{found}");
    assert_eq!((report.check("store").0, report.check("tier").0), ("warn", "warn"));
    let warnings =
        report.checks.iter().filter(|check| check["check"] == "configuration" && check["result"] == "warn");
    let warnings: Vec<&Value> = warnings.collect();
    assert_eq!(warnings.len(), 1, "the others have checks of their own: {warnings:?}");
    assert!(
        warnings[0]["found"].as_str().expect("it is text").contains("`defaults.ttl`, semel.toml:7"),
        "{warnings:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_warns_of_unknown_and_overdue_records_after_a_crash() {
    let (site, upstream, mut gateway) = lab(&["--timeout", "300ms"]).await;
    let folder = site.folder.path();
    let lost = gateway.send(pay("{}").doing("gate")).await;
    assert_eq!(lost.problem(), problem(504, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    let report = doctor(folder, &[]);
    assert_eq!(report.check("records").0, "warn");
    assert!(
        report.check("records").1.starts_with("1 unknown, the oldest for "),
        "{:?}",
        report.check("records")
    );
    assert!(report.advice("records").contains("semel records list --state unknown"));

    upstream.begun().await;
    let address = gateway.address;
    let running = tokio::spawn(async move {
        let second = pay("{}").set("idempotency-key", "cut-off-0123456789").doing("gate");
        let _ = tokio::spawn(second.to(address)).await;
    });
    upstream.begun().await;
    gateway.kill();
    running.await.expect("the client notices");
    let before = files(folder);
    assert!(before.contains_key("semel.db-wal"), "nobody closed it");
    let crashed = doctor(folder, &[]);
    assert_eq!(crashed.check("store").0, "ok");
    assert_eq!(crashed.check("records").0, "warn", "the log is read, too");
    assert_eq!(files(folder), before, "the log is where the crash left it");

    // Time passes without a sweep or a reap.
    sql(folder, "UPDATE semel_records SET due_at = 1000 WHERE due_at IS NOT NULL");
    let left = doctor(folder, &[]);
    assert_eq!(left.check("leases").0, "warn", "{:?}", left.check("leases"));
    assert!(left.check("leases").1.starts_with("1 expired without a sweep"), "{:?}", left.check("leases"));
    assert!(left.advice("leases").contains("semel sweep"));
    assert!(run(folder, &["sweep"]).status.success());
    assert_eq!(doctor(folder, &[]).check("leases").0, "ok");
    assert_eq!(doctor(folder, &[]).check("expiry").0, "ok");
    sql(folder, "UPDATE semel_records SET expires_at = 1000");
    assert_eq!(doctor(folder, &[]).check("expiry").0, "warn");
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_server_at_the_gateways_address_is_reported() {
    let (folder, other) = (used(), Upstream::start().await);
    let (taken, free) = (other.address.to_string(), nobody().await.to_string());
    let report = doctor(folder.path(), &["--listen", &taken, "--admin-listen", &free]);
    assert_eq!(report.check("gateway").0, "warn");
    assert!(report.check("gateway").1.contains("no gateway answers"), "{:?}", report.check("gateway"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_says_when_a_request_last_matched_each_rule() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let rules = "[[operation]]\nname = \"payments.create\"\nmatch = \"POST /payments\"\n\
                 [[operation]]\nname = \"never.used\"\nmatch = \"POST /never\"\nkey = \"ignored\"\n";
    let gateway = site.start_with(upstream.address, rules, &[]);
    let last = |metrics: &str, rule: &str| -> f64 {
        let start = format!("idempotency_rule_last_matched_seconds{{operation=\"{rule}\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("{rule} is not in {metrics}")).parse().expect("it is a number")
    };
    let metrics =
        async || String::from_utf8(gateway.admin("/metrics").await.body.to_vec()).expect("it is text");
    let before = metrics().await;
    assert!(before.contains("# HELP idempotency_rule_last_matched_seconds UNIX time"), "{before}");
    assert_eq!(last(&before, "payments.create"), last(&before, "never.used"), "the start of the gateway");
    assert_eq!(gateway.send(pay("{}")).await.status, 201);
    let after = metrics().await;
    assert!(last(&after, "payments.create") > last(&after, "never.used"), "{after}");
    assert_eq!(last(&after, "never.used"), last(&before, "never.used"));

    std::fs::write(site.folder.path().join("semel.toml"), rules).expect("there is room");
    let (listen, admin) = (gateway.address.to_string(), gateway.admin.to_string());
    let report = doctor(site.folder.path(), &["--listen", &listen, "--admin-listen", &admin]);
    assert_eq!(report.check("rules").0, "ok", "{:?}", report.check("rules"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_cannot_be_made_says_so_and_is_not_ok() {
    let (folder, free) = (used(), nobody().await.to_string());
    let rule = "[[operation]]\nname = \"payments.create\"\nmatch = \"POST /payments\"\n";
    let token = "[[admin.token]]\nname = \"a\"\nrole = \"viewer\"\ncommand = [\"print-the-token\"]\n";
    let with = |file: &str, arguments: &[&str]| {
        std::fs::write(folder.path().join("semel.toml"), file).expect("there is room");
        doctor(folder.path(), arguments)
    };
    let at = ["--admin-listen", &free];
    let report = with(&format!("{token}{rule}"), &at);
    let why = "not checked: the admin listener needs a token, and this command has none";
    assert_eq!(report.check("rules"), ("skip", why));
    let programs = report.checks.iter().find(|check| check["check"] == "admin" && check["result"] == "skip");
    assert!(
        programs.is_some_and(|check| check["found"].to_string().contains("1 of 1 tokens from programs")),
        "{:#?}",
        report.checks
    );
    let report = with(rule, &at);
    let why = format!("not checked: no gateway answers at {free}");
    assert_eq!(report.check("rules"), ("skip", why.as_str()));
    let report = with(rule, &["--admin-listen", "127.0.0.1:0"]);
    assert_eq!((report.check("rules").0, report.check("gateway").0), ("skip", "skip"));
    assert!(!with("", &at).checks.iter().any(|check| check["check"] == "rules"), "there is none to check");
}

/// Starts a collector that answers with this status, and returns its address and the bodies that it got.
async fn collector(status: u16) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("http://{}/v1/traces", listener.local_addr().expect("it is bound"));
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let kept = bodies.clone();
    let take = move |body: String| {
        kept.lock().expect("nobody panics with it").push(body);
        async move { axum::http::StatusCode::from_u16(status).expect("it is a status") }
    };
    let app = axum::Router::new().route("/v1/traces", axum::routing::post(take));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, bodies)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_collector_of_traces_is_sent_an_export_without_spans() {
    let folder = used();
    let with = |endpoint: &str, more: &str| {
        let file = format!("[traces]\nendpoint = \"{endpoint}\"\n{more}");
        std::fs::write(folder.path().join("semel.toml"), file).expect("there is room");
        doctor(folder.path(), &[])
    };
    let (url, bodies) = collector(200).await;
    let report = with(&url, "");
    assert_eq!(report.check("traces").0, "ok", "{:?}", report.check("traces"));
    let expected = [r#"{"resourceSpans":[]}"#];
    assert_eq!(*bodies.lock().expect("nobody panics with it"), expected, "one export, and no span");

    for (status, advice) in [(401, "`authorization_env`"), (404, "`endpoint`")] {
        let (url, _) = collector(status).await;
        let report = with(&url, "");
        let (result, found) = report.check("traces");
        assert!(
            result == "warn" && found.contains(&format!("refuses an empty export with {status}")),
            "{found}"
        );
        assert!(report.advice("traces").contains(advice), "{status}: {}", report.advice("traces"));
    }
    let away = with(&format!("http://{}/v1/traces", nobody().await), "");
    let (result, found) = away.check("traces");
    assert!(
        result == "warn" && found.contains("cannot connect") && found.contains("commands go on"),
        "{found}"
    );
    let mute = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let silent = with(&format!("http://{}/v1/traces", mute.local_addr().expect("it is bound")), "");
    assert!(silent.check("traces").1.contains("does not answer within 5 s"), "{:?}", silent.check("traces"));
    let secret = with(&url, "authorization_env = \"NO_SUCH_VARIABLE\"\n");
    assert_eq!(secret.check("traces").0, "fail", "a gateway does not start without it");
    std::fs::write(folder.path().join("semel.toml"), "").expect("there is room");
    let without = doctor(folder.path(), &[]);
    assert!(!without.checks.iter().any(|check| check["check"] == "traces"), "only where it is configured");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_not_ready_is_a_failure() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start(upstream.address, &[]);
    let running = tokio::spawn(pay("{}").doing("gate").to(gateway.address));
    upstream.begun().await;
    gateway.terminate();
    while gateway.admin("/readyz").await.status != 503 {
        tokio::task::yield_now().await;
    }
    let (listen, admin) = (gateway.address.to_string(), gateway.admin.to_string());
    let folder = TempDir::new().expect("there is room");
    let report = doctor(folder.path(), &["--listen", &listen, "--admin-listen", &admin]);
    assert_eq!(report.check("gateway"), ("fail", "one runs, and is not ready: shutting down"));
    upstream.open_gate();
    assert_eq!(running.await.expect("it is answered").status, 201);
}

#[test]
fn a_database_is_looked_at_as_a_file_is() {
    let server = semel_testkit::postgres::shared().expect("there is a server");
    let (folder, database) =
        (TempDir::new().expect("there is room"), server.create_database().expect("there is room"));
    let store = ["--store", &database.url()];
    let empty = doctor(folder.path(), &store);
    assert_eq!((empty.check("store").0, empty.check("schema").0), ("ok", "warn"));
    assert!(run(folder.path(), &[&["migrate"][..], &store].concat()).status.success(), "as the advice says");
    let report = doctor(folder.path(), &store);
    for name in [
        "store",
        "durability",
        "clock",
        "schema",
        "permissions",
        "indexes",
        "records",
        "leases",
        "expiry",
        "tier",
    ] {
        assert_eq!(report.check(name).0, "ok", "{:#?}", report.find(name));
    }
}

#[test]
fn a_configuration_that_cannot_be_used_is_wrong_use() {
    let folder = TempDir::new().expect("there is room");
    std::fs::write(folder.path().join("semel.toml"), "[defaults]\ntll = \"7d\"\n").expect("there is room");
    let wrong = run(folder.path(), &["doctor"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("did you mean `ttl`?"), "{wrong:?}");
    assert_eq!(
        semel(folder.path()).args(["doctor", "--no-such-flag"]).output().expect("it runs").status.code(),
        Some(2)
    );
}
