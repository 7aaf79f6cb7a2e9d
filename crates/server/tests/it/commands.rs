//! The command line as a person uses it.

use std::path::Path;
use std::process::Output;

use tempfile::TempDir;

use crate::gateway::lab::semel;

pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Output {
    semel(folder).args(arguments).output().expect("the program runs")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it prints text")
}

#[test]
fn wrong_arguments_exit_with_2_and_the_message_names_the_right_ones() {
    let folder = TempDir::new().expect("there is room");
    let wrong = run(folder.path(), &["serve", "--ttl", "5x"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("expected a duration such as"), "{wrong:?}");
    let unknown = run(folder.path(), &["serve", "--tll", "5s"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("--ttl"), "{unknown:?}");
    let open = run(folder.path(), &["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(open.status.code(), Some(2));
    assert!(text(&open.stderr).contains("loopback"), "{open:?}");
    assert_eq!(run(folder.path(), &[]).status.code(), Some(2));
}

#[test]
fn a_store_that_cannot_be_used_is_named() {
    let folder = TempDir::new().expect("there is room");
    let ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let missing =
        run(folder.path(), &[&["serve", "--store", "sqlite:nowhere/semel.db"][..], &ports].concat());
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("cannot open nowhere/semel.db"), "{missing:?}");
    std::fs::write(folder.path().join("semel.db"), "not a database at all, but long enough to look like one")
        .expect("there is room");
    let damaged = run(folder.path(), &["keys", "list"]);
    assert_eq!(damaged.status.code(), Some(2));
    assert!(text(&damaged.stderr).contains("not an intact SQLite database"), "{damaged:?}");
}

#[test]
fn a_configuration_is_checked_and_shown_with_its_sources() {
    let folder = TempDir::new().expect("there is room");
    std::fs::write(
        folder.path().join("semel.toml"),
        "[defaults]\nttl = \"7d\"\non_server_error = \"retry\"\n",
    )
    .expect("there is room");
    let check = run(folder.path(), &["config", "check"]);
    assert_eq!(check.status.code(), Some(0));
    let said = text(&check.stdout);
    assert!(said.contains("warning") && said.contains("on_server_error"), "{said}");
    let show = run(folder.path(), &["config", "show", "--json", "--wait", "1s"]);
    let rows: serde_json::Value = serde_json::from_slice(&show.stdout).expect("it is JSON");
    let source = |name: &str| {
        let rows = rows.as_array().expect("it is a list");
        rows.iter().find(|row| row["name"] == name).expect("it is there")["source"]
            .as_str()
            .expect("text")
            .to_owned()
    };
    assert_eq!(source("defaults.ttl"), "semel.toml:2");
    assert_eq!((source("defaults.wait").as_str(), source("defaults.lease").as_str()), ("--wait", "default"));
    let value = |name: &str| {
        let rows = rows.as_array().expect("it is a list");
        rows.iter().find(|row| row["name"] == name).expect("it is there")["value"].clone()
    };
    assert_eq!(value("defaults.ttl"), "7d");
    assert_eq!(value("defaults.key_min_length"), 16, "a number");
    assert_eq!(value("defaults.not_executed_statuses"), serde_json::json!([425, 429]), "a list");
    assert_eq!(value("defaults.store_credentials"), false, "a boolean");
    for row in rows.as_array().expect("it is a list") {
        let in_quotes = row["value"].as_str().is_some_and(|text| text.starts_with(['"', '[', '{']));
        assert!(!in_quotes, "TOML in a text: {row}");
    }

    std::fs::write(folder.path().join("semel.toml"), "[defaults]\ntll = \"7d\"\n").expect("there is room");
    let wrong = run(folder.path(), &["config", "check"]);
    assert_eq!(wrong.status.code(), Some(1), "the answer is no");
    assert!(text(&wrong.stderr).contains("semel.toml:2:1: error"), "{wrong:?}");
    assert!(text(&wrong.stderr).contains("did you mean `ttl`?"), "{wrong:?}");
}

#[test]
fn config_check_with_json_reports_errors_and_warnings_with_their_place() {
    let folder = TempDir::new().expect("there is room");
    let check = |file: &str| {
        std::fs::write(folder.path().join("semel.toml"), file).expect("there is room");
        let checked = run(folder.path(), &["config", "check", "--json"]);
        assert!(checked.stderr.is_empty(), "{checked:?}");
        let report: serde_json::Value = serde_json::from_slice(&checked.stdout).expect("it is JSON");
        (checked.status.code(), report)
    };
    let (code, fine) = check("[defaults]\non_server_error = \"retry\"\n");
    assert_eq!((code, &fine["ok"], &fine["errors"]), (Some(0), &true.into(), &serde_json::json!([])));
    let warning = &fine["warnings"][0];
    assert_eq!((&warning["setting"], &warning["line"]), (&"defaults.on_server_error".into(), &2.into()));
    assert_eq!(warning["source"], "semel.toml:2");
    let (code, wrong) =
        check("[defaults]\ntll = \"7d\"\n[[operation]]\nname = \"a\"\nmatch = \"POST /a/:id\"\n");
    assert_eq!((code, &wrong["ok"]), (Some(1), &false.into()));
    assert_eq!(wrong["errors"].as_array().map(Vec::len), Some(2), "{wrong}");
    assert_eq!((&wrong["errors"][0]["line"], &wrong["errors"][0]["column"]), (&2.into(), &1.into()));
    assert!(wrong["errors"][1]["message"].to_string().contains("{id}"), "{wrong}");
    let (code, elsewhere) = check("store = \"sqlite:nowhere/semel.db\"\n");
    assert_eq!((code, &elsewhere["errors"][0]["setting"]), (Some(1), &serde_json::Value::Null));
    let missing = run(folder.path(), &["config", "check", "--json", "--config", "missing.toml"]);
    assert_eq!(missing.status.code(), Some(1), "{missing:?}");
    let missing: serde_json::Value = serde_json::from_slice(&missing.stdout).expect("it is JSON");
    assert!(missing["errors"][0]["message"].to_string().contains("missing.toml"), "{missing}");
}

#[test]
fn a_new_configuration_can_be_used_as_it_is() {
    let folder = TempDir::new().expect("there is room");
    let init = run(folder.path(), &["config", "init"]);
    assert_eq!(init.status.code(), Some(0));
    std::fs::write(folder.path().join("semel.toml"), init.stdout).expect("there is room");
    assert_eq!(run(folder.path(), &["config", "check"]).status.code(), Some(0));
}

#[test]
fn keys_are_listed_without_the_keys() {
    let folder = TempDir::new().expect("there is room");
    let made = run(folder.path(), &["keys", "create", "--tenant", "acme", "--caller", "alice"]);
    let key = text(&made.stdout);
    assert!(made.status.success() && key.starts_with("semel_"), "{made:?}");
    assert!(text(&made.stderr).contains("It is shown once."));
    let list = text(&run(folder.path(), &["keys", "list"]).stdout);
    assert!(list.contains("alice") && !list.contains(key.trim()), "{list}");
    let missing = run(folder.path(), &["keys", "create", "--tenant", "acme"]);
    assert_eq!(missing.status.code(), Some(2));
}

#[tokio::test]
async fn an_operator_settles_an_unknown_beside_a_running_gateway() {
    use crate::gateway::lab::{lab, pay, problem};
    let quick = ["--timeout", "100ms", "--lease", "200ms", "--quarantine-margin", "0s"];
    let (site, upstream, gateway) = lab(&quick).await;
    let folder = site.folder.path();
    let key = |name: &str| pay("{}").set("idempotency-key", format!("{name}-0123456789"));
    let lose = async |name: &str| {
        let reply = gateway.send(key(name).doing("gate")).await;
        assert_eq!(reply.problem(), problem(504, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
        reply.json()["operationId"].as_str().expect("it is named").to_owned()
    };
    let (charged, lost) = (lose("charged").await, lose("not-charged").await);

    let list = run(folder, &["records", "list", "--state", "unknown", "--json"]);
    let records: serde_json::Value = serde_json::from_slice(&list.stdout).expect("it is JSON");
    assert_eq!(records.as_array().map(Vec::len), Some(2), "{list:?}");
    for name in ["operationId", "operation", "tenant", "caller", "state", "epoch", "createdAt", "expiresAt"] {
        assert!(records[0].get(name).is_some(), "{name}");
    }
    assert_eq!(records[0]["keyHashPrefix"].as_str().map(str::len), Some(8));
    let listed = text(&run(folder, &["records", "list", "--state", "unknown"]).stdout);
    assert!(
        listed.lines().all(|line| line.ends_with("  REASON") || line.ends_with("  timed_out")),
        "{listed}"
    );
    let looks = text(&run(folder, &["reconcile", "--list"]).stdout);
    assert_eq!(looks.matches("  never  ").count(), 2, "nothing looks them up: {looks}");
    let none = run(folder, &["records", "list", "--older-than", "1h", "--json"]);
    assert_eq!(text(&none.stdout).trim(), "[]");
    let mistyped = run(folder, &["records", "list", "--operation", "POST /payment"]);
    assert_eq!(mistyped.status.code(), Some(0), "{mistyped:?}");
    assert!(text(&mistyped.stderr).contains("did you mean \"POST /payments\"?"), "{mistyped:?}");

    std::fs::write(folder.join("answer.json"), "{\"charge\":1}").expect("there is room");
    let executed =
        ["--verdict", "executed", "--status", "201", "--body", "answer.json", "--header", "Location: /p/1"];
    let without_reason = run(folder, &[&["records", "resolve", &charged][..], &executed].concat());
    assert_eq!(without_reason.status.code(), Some(2), "a person settles an unknown only with a reason");
    let nonsense =
        ["records", "resolve", &charged, "--verdict", "executed", "--reason", "r", "--status", "100"];
    let nonsense = run(folder, &nonsense);
    assert_eq!(nonsense.status.code(), Some(2), "no client can be given that: {nonsense:?}");
    assert!(text(&nonsense.stderr).contains("from 200 to 599"), "{nonsense:?}");
    let resolve =
        [&["records", "resolve", &charged, "--reason", "found in the ledger"][..], &executed].concat();
    let resolved = run(folder, &resolve);
    assert_eq!(resolved.status.code(), Some(0), "{resolved:?}");
    let replay = gateway.send(key("charged")).await;
    assert!(replay.replayed());
    assert_eq!((&replay.body[..], replay.header("location")), (&b"{\"charge\":1}"[..], Some("/p/1")));
    assert_eq!(replay.header("content-type"), Some("application/json"), "JSON is said to be JSON");
    assert_eq!(run(folder, &resolve).status.code(), Some(1), "it is settled already");

    let not_executed =
        ["records", "resolve", &lost, "--verdict", "not-executed", "--reason", "nothing in the ledger"];
    let settled = loop {
        let answer = run(folder, &not_executed);
        if answer.status.code() == Some(0) {
            break answer;
        }
        assert_eq!(answer.status.code(), Some(1));
        assert!(text(&answer.stderr).contains("could still be in flight"), "{answer:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    };
    assert!(text(&settled.stdout).contains("failed_retryable"));
    assert_eq!(gateway.send(key("not-charged")).await.status, 201);

    let purged = run(folder, &["records", "purge", &charged, "--reason", "asked to forget"]);
    assert_eq!(purged.status.code(), Some(0), "{purged:?}");
    let shown = run(folder, &["records", "show", &charged, "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("it is JSON");
    let notes: Vec<&str> = shown["notes"]
        .as_array()
        .expect("it has notes")
        .iter()
        .filter_map(|note| note["action"].as_str())
        .collect();
    assert_eq!((notes, &shown["state"]), (vec!["resolve executed", "purge"], &"expired".into()));
    let told = text(&run(folder, &["records", "explain", &lost, "--store", "sqlite:semel.db"]).stdout);
    assert!(told.contains("now: settled"), "{told}");
    let told = text(&run(folder, &["records", "explain", &charged]).stdout);
    let order = [
        "claimed, as epoch 1",
        "no answer in time",
        "resolve executed by",
        "found in the ledger",
        "executed: succeeded",
    ];
    let places: Vec<_> = order.iter().map(|words| told.find(words)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{told}");
    assert!(told.contains("asked to forget") && told.contains("now: a tombstone"), "{told}");
    assert!(told.contains("After that, a request with this key runs the command again"), "{told}");
    let told = run(folder, &["records", "explain", &lost, "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).expect("it is JSON");
    let epochs: Vec<_> =
        told["timeline"].as_array().expect("it is a list").iter().map(|step| &step["epoch"]).collect();
    assert_eq!(epochs.last(), Some(&&2.into()), "the retry ran in an epoch of its own: {told}");
    let file = rusqlite::Connection::open(site.database()).expect("the file opens");
    assert!(file.execute("DELETE FROM semel_audit", []).is_err(), "the audit log is append-only");
    assert!(file.execute("UPDATE semel_audit SET why = ''", []).is_err(), "the audit log is append-only");
    let running = run(folder, &["records", "release", &lost, "--reason", "to try"]);
    assert_eq!(running.status.code(), Some(1), "what succeeded is not released: {running:?}");
    assert_eq!(run(folder, &["records", "show", "nonsense"]).status.code(), Some(2));
    drop(upstream);
}

#[tokio::test]
async fn a_list_shows_records_that_cannot_be_read() {
    use crate::gateway::lab::{lab, pay};
    let (site, _upstream, gateway) = lab(&[]).await;
    let mut ids = Vec::new();
    for key in ["one", "two", "three"] {
        let reply = gateway.send(pay("{}").set("idempotency-key", format!("{key}-0123456789abcdef"))).await;
        ids.push(reply.operation_id().expect("it is named").to_owned());
    }
    let folder = site.folder.path();
    assert_eq!(run(folder, &["records", "list"]).status.code(), Some(0));
    let file = rusqlite::Connection::open(site.database()).expect("the file opens");
    let poison = "UPDATE semel_records SET reason = 'nonsense' WHERE operation_id =
        (SELECT max(operation_id) FROM semel_records)";
    assert_eq!(file.execute(poison, []).expect("it runs"), 1);
    let list = run(folder, &["records", "list", "--json"]);
    assert_eq!(list.status.code(), Some(1), "{list:?}");
    let records: serde_json::Value = serde_json::from_slice(&list.stdout).expect("it is JSON");
    let unreadable: Vec<_> =
        records.as_array().into_iter().flatten().filter(|record| record["state"] == "unreadable").collect();
    assert_eq!(records.as_array().map(Vec::len), Some(3), "{records}");
    assert_eq!((unreadable.len(), &unreadable[0]["operationId"]), (1, &ids[2].clone().into()), "{records}");
    assert!(unreadable[0]["why"].as_str().is_some_and(|why| why.contains("reason")), "{records}");
    let told = run(folder, &["records", "list"]);
    assert_eq!(told.status.code(), Some(1));
    assert!(text(&told.stdout).contains(&format!("{}  unreadable", ids[2])), "{told:?}");
    assert!(text(&told.stderr).contains("1 of them cannot be read"), "{told:?}");
}

#[test]
fn a_fingerprint_tells_why_two_requests_differ() {
    let folder = TempDir::new().expect("there is room");
    let write =
        |name: &str, body: &str| std::fs::write(folder.path().join(name), body).expect("there is room");
    write("a.json", r#"{"amount": 1.0, "to": "ä"}"#);
    write("b.json", "{\"to\":\"\\u00e4\",\"amount\":1}");
    let print = |file: &str, more: &[&str]| {
        let fixed = ["fingerprint", "--path", "/payments", "--content-type", "application/json", file];
        text(&run(folder.path(), &[&fixed[..], more].concat()).stdout)
    };
    assert_eq!(print("a.json", &[]), print("b.json", &[]));
    assert!(print("a.json", &[]).starts_with("v1:"));
    assert_eq!(print("a.json", &["--canonical"]), "{\"amount\":1,\"to\":\"ä\"}");
    assert_ne!(print("a.json", &[]), print("a.json", &["--method", "PATCH"]));
    assert_eq!(print("a.json", &["--exclude", "/to", "--canonical"]), "{\"amount\":1}");
}

#[test]
fn the_fingerprint_command_applies_exclusions_of_the_configuration() {
    let folder = TempDir::new().expect("there is room");
    let write =
        |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("there is room");
    write("one.json", r#"{"amount": 1, "sentAt": 1}"#);
    write("two.json", r#"{"amount": 1, "sentAt": 2}"#);
    let same = |path: &str| {
        let fixed =
            ["fingerprint", "--content-type", "application/json", "one.json", "--against", "two.json"];
        run(folder.path(), &[&fixed[..], &["--path", path]].concat()).status.code()
    };
    assert_eq!(same("/accounts/7/payments?x=1"), Some(1));
    write(
        "semel.toml",
        "[[operation]]\nname = \"payments.create\"\nmatch = \"POST /accounts/{id}/payments\"\nfingerprint_exclude = [\"/sentAt\"]\n",
    );
    assert_eq!(same("/accounts/7/payments?x=1"), Some(0), "as the gateway does");
    assert_eq!(same("/accounts/7/refunds"), Some(1), "of another operation");
    assert_eq!(same("accounts"), Some(2), "a path begins with a slash");
}

#[test]
fn looking_at_a_database_without_records_makes_none() {
    let folder = TempDir::new().expect("there is room");
    let database = semel_testkit::postgres::shared().expect("there is a server").create_database();
    let database = database.expect("a database can be made");
    let url = database.url();
    for command in [&["records", "list"][..], &["sweep"], &["keys", "list"]] {
        let looked = run(folder.path(), &[command, &["--store", &url]].concat());
        assert_eq!(looked.status.code(), Some(2), "{looked:?}");
        assert!(text(&looked.stderr).contains("there is no store at"), "{looked:?}");
        assert!(!text(&looked.stderr).contains(url.split('@').next().expect("it has one")), "{looked:?}");
    }
    let tables = "SELECT count(*) FROM pg_class WHERE relname LIKE 'semel%'";
    assert_eq!(database.sql(tables).expect("it reads").trim(), "0");
    assert_eq!(run(folder.path(), &["migrate", "--store", &url]).status.code(), Some(0));
    assert_eq!(run(folder.path(), &["records", "list", "--store", &url]).status.code(), Some(0));
}

#[test]
fn upkeep_works_by_hand() {
    let folder = TempDir::new().expect("there is room");
    let missing = run(folder.path(), &["sweep"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("there is no store at semel.db"), "{missing:?}");
    run(folder.path(), &["keys", "create", "--tenant", "t", "--caller", "c"]);
    assert_eq!(text(&run(folder.path(), &["sweep"]).stdout), "0 leases had expired\n");
    assert_eq!(text(&run(folder.path(), &["reap", "--json"]).stdout), "{\"records\":0}\n");
    assert!(text(&run(folder.path(), &["migrate"]).stdout).contains("schema version"));
    let file = rusqlite::Connection::open(folder.path().join("semel.db")).expect("the file opens");
    file.execute("UPDATE semel_schema SET version = 99, readable_from = 98", []).expect("it is there");
    let newer = run(folder.path(), &["records", "list"]);
    assert_eq!(newer.status.code(), Some(2));
    assert!(text(&newer.stderr).contains("run the version of Semel that wrote it"), "{newer:?}");
}

/// Commands that only read and must not migrate the store.
const LOOKS: [&[&str]; 12] = [
    &["records", "list"],
    &["records", "show", "01a1df32-caa3-786d-a196-45c465f24292"],
    &["records", "explain", "01a1df32-caa3-786d-a196-45c465f24292"],
    &["records", "find", "01a1df32-caa3-786d-a196-45c465f24292"],
    &["hold", "list"],
    &["notes"],
    &["outbox", "list"],
    &["outbox", "show", "01a1df32-caa3-786d-a196-45c465f24292/0"],
    &["quotas", "list"],
    &["reconcile", "--list"],
    &["keys", "list"],
    &["keys", "encryption"],
];

/// Runs a program whose schema is one version newer than the store's.
pub(crate) fn run_newer(folder: &Path, arguments: &[&str]) -> Output {
    let mut newer = semel(folder);
    newer.env(semel_faults::NEXT_VERSION, "1").args(arguments).output().expect("the program runs")
}

#[test]
fn commands_that_only_look_leave_an_older_store_as_it_is() {
    let folder = TempDir::new().expect("there is room");
    let upstream = ["--upstream", "http://127.0.0.1:1"];
    run(folder.path(), &["keys", "create", "--tenant", "t", "--caller", "c"]);
    let path = folder.path().join("semel.db");
    let before = std::fs::read(&path).expect("it is there");
    for look in LOOKS {
        let looked = run_newer(folder.path(), look);
        assert_eq!(looked.status.code(), Some(2), "{look:?}: {looked:?}");
        let said = text(&looked.stderr);
        assert!(said.contains("schema version 1") && said.contains("semel migrate"), "{look:?}: {said}");
    }
    let checked = run_newer(folder.path(), &[&["config", "check"], &upstream[..]].concat());
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    assert!(text(&checked.stdout).contains("the records could not be read"), "{checked:?}");
    let examined = run_newer(folder.path(), &[&["doctor"], &upstream[..]].concat());
    assert!(text(&examined.stdout).contains("version 1, older than"), "{examined:?}");
    assert_eq!(std::fs::read(&path).expect("it is there"), before, "nothing was written");
    assert!(run_newer(folder.path(), &["migrate"]).status.success());
    for look in LOOKS.iter().filter(|look| look.len() < 3) {
        let looked = run_newer(folder.path(), look);
        assert_eq!(looked.status.code(), Some(0), "{look:?}: {looked:?}");
        let before = run(folder.path(), look);
        assert_eq!(before.status.code(), Some(0), "a program of the version before it: {look:?}: {before:?}");
    }
    assert!(run_newer(folder.path(), &["migrate", "--finish"]).status.success());
    for look in LOOKS.iter().filter(|look| look.len() < 3) {
        let refused = run(folder.path(), look);
        assert_eq!(refused.status.code(), Some(2), "{look:?}: {refused:?}");
    }
}

#[test]
fn commands_that_only_look_leave_an_older_database_as_it_is() {
    let folder = TempDir::new().expect("there is room");
    let database = semel_testkit::postgres::shared().expect("there is a server").create_database();
    let database = database.expect("a database can be made");
    let url = database.url();
    assert!(run(folder.path(), &["migrate", "--store", &url]).status.success());
    for look in LOOKS {
        let looked = run_newer(folder.path(), &[look, &["--store", &url]].concat());
        assert_eq!(looked.status.code(), Some(2), "{look:?}: {looked:?}");
        let said = text(&looked.stderr);
        assert!(said.contains("schema version 1") && said.contains("semel migrate"), "{look:?}: {said}");
    }
    let checked = run_newer(folder.path(), &["config", "check", "--store", &url]);
    assert!(text(&checked.stdout).contains("the records could not be read"), "{checked:?}");
    let examined = run_newer(folder.path(), &["doctor", "--store", &url]);
    assert!(text(&examined.stdout).contains("version 1, older than"), "{examined:?}");
    let version = database.sql("SELECT max(version) FROM semel_schema").expect("it reads");
    assert_eq!(version.trim(), "1", "nothing was written");
    assert!(run_newer(folder.path(), &["migrate", "--store", &url]).status.success());
    assert_eq!(run_newer(folder.path(), &["records", "list", "--store", &url]).status.code(), Some(0));
    assert_eq!(run(folder.path(), &["records", "list", "--store", &url]).status.code(), Some(0));
    assert!(run_newer(folder.path(), &["migrate", "--finish", "--store", &url]).status.success());
    assert_eq!(run(folder.path(), &["records", "list", "--store", &url]).status.code(), Some(2));
}

#[test]
fn the_demo_proves_what_it_claims() {
    let folder = TempDir::new().expect("there is room");
    let demo = run(folder.path(), &["demo", "--once"]);
    let said = text(&demo.stdout);
    assert_eq!(demo.status.code(), Some(0), "{said}\n{}", text(&demo.stderr));
    assert!(said.contains("The ledger proves every claim above."), "{said}");
    assert_eq!(said.matches('✓').count(), 8, "{said}");
    assert!(!said.contains("Now you.") && !said.contains("/console/"), "nothing is left to do: {said}");
    assert!(
        !said.contains("NOT SO") && !said.contains('\u{1b}'),
        "no colours where there is no terminal: {said}"
    );
}

#[test]
fn an_occupied_port_exits_with_2_and_advises_another_port() {
    let folder = TempDir::new().expect("there is room");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it is bound").to_string();
    for (setting, flag, other) in
        [("listen", "--listen", "--admin-listen"), ("admin_listen", "--admin-listen", "--listen")]
    {
        let refused = run(folder.path(), &["serve", flag, &address, other, "127.0.0.1:0"]);
        assert_eq!(refused.status.code(), Some(2));
        let said = text(&refused.stderr);
        assert!(said.contains(&format!("cannot listen on {address}, which `{setting}` names")), "{said}");
        assert!(
            said.contains("another program has it") && said.contains(&format!("`{flag} 127.0.0.1:PORT`"))
        );
    }
    assert!(!folder.path().join("semel.db").exists(), "nothing was made");
}

#[test]
fn a_demo_whose_ports_are_taken_says_which_it_uses() {
    let folder = TempDir::new().expect("there is room");
    // Demos of other tests use these ports, too: free ones are taken here.
    let usual = ["127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:9090"];
    let taken = loop {
        let taken: Vec<_> =
            usual.iter().filter_map(|usual| std::net::TcpListener::bind(usual).ok()).collect();
        if !taken.is_empty() {
            break taken;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    let demo = run(folder.path(), &["demo", "--once"]);
    let said = text(&demo.stdout);
    assert_eq!(demo.status.code(), Some(0), "{said}");
    for address in taken.iter().map(|taken| taken.local_addr().expect("it is bound")) {
        assert!(said.contains(&format!("{address} is taken by another program")), "{said}");
        assert!(!said.contains(&format!("on {address}.")), "it is not used: {said}");
    }
}

#[test]
fn a_demo_listens_where_it_is_told_to_on_this_machine() {
    let folder = TempDir::new().expect("there is room");
    let demo = |address: &str| run(folder.path(), &["demo", "--once", "--listen", address]);
    let held = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let taken = held.local_addr().expect("it is bound").to_string();
    let refused = demo(&taken);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains(&taken), "{refused:?}");
    drop(held);
    let told = demo(&taken);
    assert_eq!(told.status.code(), Some(0), "{told:?}");
    assert!(text(&told.stdout).contains(&format!("in front of it on {taken}.")), "{told:?}");
    let open = demo("0.0.0.0:8080");
    assert_eq!(open.status.code(), Some(2));
    assert!(text(&open.stderr).contains("on this machine only"), "{open:?}");
}

/// A stopped demo leaves neither its service nor, if it could still clean up, its folder.
#[test]
fn a_demo_that_is_stopped_leaves_nothing_behind() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;
    for (signal, files) in [("-TERM", 0), ("-INT", 0), ("-KILL", 1)] {
        let folder = TempDir::new().expect("there is room");
        let demo =
            semel(folder.path()).arg("demo").env("TMPDIR", folder.path()).stdout(Stdio::piped()).spawn();
        let mut demo = demo.expect("the program runs");
        let lines = BufReader::new(demo.stdout.take().expect("it is piped")).lines().map_while(Result::ok);
        let mut lines = lines.skip_while(|line| !line.starts_with("Now you."));
        assert!(lines.next().is_some(), "it tells its story");
        assert!(has_process(folder.path()), "its service runs");
        let asked = std::process::Command::new("kill").args([signal, &demo.id().to_string()]).status();
        assert!(asked.expect("kill runs").success());
        demo.wait().expect("it ends");
        while has_process(folder.path()) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), files, "{signal}");
    }
}

/// Returns true if a running program has this folder among its arguments.
fn has_process(folder: &Path) -> bool {
    let folder = folder.to_str().expect("it is text");
    let processes = std::fs::read_dir("/proc").expect("Linux has it").flatten();
    let mut commands = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    commands.any(|command| String::from_utf8_lossy(&command).contains(folder))
}

#[tokio::test]
async fn a_check_warns_of_records_that_no_rule_names_any_more() {
    use crate::gateway::lab::{Site, Upstream, pay};
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let named = "[[operation]]\nname = \"payments.create\"\nmatch = \"POST /payments\"\n";
    let gateway = site.start_with(upstream.address, named, &[]);
    assert_eq!(gateway.send(pay("{}")).await.status, 201);
    let check = |file: &str| {
        std::fs::write(site.folder.path().join("semel.toml"), file).expect("there is room");
        text(&run(site.folder.path(), &["config", "check"]).stdout)
    };
    assert!(!check(named).contains("no rule names any more"));
    let renamed = named.replace("payments.create", "payments.make");
    assert!(check(&renamed).contains("\"payments.create\", which no rule names any more"));
    let aliased = format!("{renamed}aliases = [\"payments.create\"]\n");
    assert!(!check(&aliased).contains("no rule names any more"));
}

#[test]
fn an_operator_retries_and_discards_messages() {
    let folder = TempDir::new().expect("there is room");
    run(
        folder.path(),
        &["keys", "create", "--tenant", "acme", "--caller", "alice", "--store", "sqlite:semel.db"],
    );
    let file = rusqlite::Connection::open(folder.path().join("semel.db")).expect("it opens");
    let command = "01a1df32-caa3-786d-a196-45c465f24292";
    for (position, kind, state) in [(0, "made", "delivered"), (1, "paid", "dead"), (2, "sent", "pending")] {
        let sql = "INSERT INTO semel_outbox (event_id, operation_id, position, kind, payload, state, created_at, last_error)
                   VALUES (?1 || ':' || ?2, unhex(replace(?1, '-', '')), ?3, ?2, x'7b7d', ?4, 1000, 'status 500')";
        file.execute(sql, rusqlite::params![command, kind, position, state]).expect("it can be written");
    }
    let outbox = |arguments: &[&str]| {
        let store = ["--store", "sqlite:semel.db"];
        run(folder.path(), &[&["outbox"][..], arguments, &store].concat())
    };
    let listed = |arguments: &[&str]| -> serde_json::Value {
        let output = outbox(&[&["list", "--json"][..], arguments].concat());
        serde_json::from_slice(&output.stdout).expect("it is JSON")
    };
    let (made, paid, sent) =
        (format!("{command}:made"), format!("{command}:paid"), format!("{command}:sent"));
    assert_eq!(listed(&[]).as_array().map(Vec::len), Some(3));
    let dead = listed(&["--state", "dead", "--older-than", "5m"]);
    assert_eq!((dead[0]["eventId"].as_str(), dead.as_array().map(Vec::len)), (Some(&*paid), Some(1)));
    assert_eq!(listed(&["--kind", "sent"])[0]["payloadBytes"], 2);
    assert_eq!(outbox(&["list", "--state", "lost"]).status.code(), Some(2));
    assert!(text(&outbox(&["list"]).stdout).contains("status 500"));

    let shown = outbox(&["show", &paid]);
    assert!(
        shown.status.success() && text(&shown.stdout).contains("lastError          status 500"),
        "{shown:?}"
    );
    assert_eq!(outbox(&["show", "nobody:knows"]).status.code(), Some(1));

    assert_eq!(outbox(&["retry", &paid]).status.code(), Some(2), "it wants a reason");
    assert_eq!(outbox(&["retry", &paid, "--reason", " "]).status.code(), Some(2), "a real one");
    let retried = outbox(&["retry", &paid, "--reason", "repaired"]);
    assert!(retried.status.success() && text(&retried.stdout).contains("pending now"), "{retried:?}");
    assert_eq!(listed(&["--state", "dead"]).as_array().map(Vec::len), Some(0));
    let delivered = outbox(&["discard", &made, "--reason", "to try"]);
    assert_eq!(delivered.status.code(), Some(1));
    assert!(text(&delivered.stderr).contains("is delivered: discard does not apply"), "{delivered:?}");
    assert!(outbox(&["discard", &sent, "--reason", "the receiver is gone"]).status.success());
    assert_eq!(outbox(&["discard", &sent, "--reason", "again"]).status.code(), Some(1));

    let hold = "UPDATE semel_outbox SET token = randomblob(16), due_at = 99999999999999 WHERE kind = 'paid'";
    file.execute(hold, []).expect("it can be written");
    let held = outbox(&["retry", &paid, "--reason", "now"]);
    assert_eq!(held.status.code(), Some(1));
    assert!(text(&held.stderr).contains("a worker holds "), "{held:?}");
    assert!(text(&outbox(&["show", &paid]).stdout).contains("inHandUntil"));

    let notes = run(folder.path(), &["records", "show", command, "--store", "sqlite:semel.db"]);
    let notes = text(&notes.stdout);
    assert!(notes.contains("outbox retry paid by") && notes.contains("outbox discard sent by"), "{notes}");
}

#[tokio::test]
async fn an_operator_sees_how_far_a_command_with_phases_has_come() {
    use semel_core::{Command, Ids, Policy, RandomIds, Store, StoredRequest, SystemClock};
    let folder = TempDir::new().expect("there is room");
    let store = semel_stores::SqliteStore::open(folder.path().join("semel.db")).expect("it opens");
    let command = Command {
        scope: semel_testkit::sample::scope("key"),
        fingerprint: semel_testkit::sample::fingerprint("{}"),
        business_reference: None,
        former: [].into(),
        policy: Policy::default().into(),
        trace: None,
    };
    let id = RandomIds.operation_id(semel_core::Clock::now(&SystemClock));
    let input = StoredRequest::input("canary".into());
    let claim =
        command.claim_in_phases(id, RandomIds.attempt_token(), input, std::time::Duration::from_secs(60));
    let record = store.claim(&claim).await.expect("it is claimed").record.expect("it has a record");
    let file = rusqlite::Connection::open(folder.path().join("semel.db")).expect("it opens");
    let sql =
        "INSERT INTO semel_phases (operation_id, position, name, kind, output, item_id, began_at, done_at)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let at = record.created_at.as_millis() + 1000;
    let none = None::<&[u8]>;
    let write =
        |place: i64, name: &str, kind: &str, output: Option<&[u8]>, item: Option<&[u8]>, done: bool| {
            let (began, done) = (at + 10 * place, done.then_some(at + 10 * place + 5));
            let values = rusqlite::params![id.as_bytes(), place, name, kind, output, item, began, done];
            file.execute(sql, values).expect("it can be written");
        };
    write(0, "ride_created", "local", Some(b"canary"), none, true);
    write(1, "charge_created", "external", none, none, false);
    write(2, "item-1", "item", none, Some(record.id.as_bytes()), false);
    let run = |arguments: &[&str]| {
        let id = id.to_string();
        let output =
            run(folder.path(), &[&["records"], arguments, &[&id, "--store", "sqlite:semel.db"]].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let said = text(&output.stdout);
        assert!(!said.contains("canary"), "neither inputs nor outputs are shown: {said}");
        said
    };
    let told = run(&["explain"]);
    let order = [
        "claimed, as epoch 1",
        "phase ride_created: done",
        "phase charge_created: its call is begun; the receiver does not deduplicate",
        "now: runs",
    ];
    let places: Vec<_> = order.iter().map(|words| told.find(words)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{told}");
    let shown = run(&["show"]);
    for words in ["ride_created (local), done at", "charge_created (external), not done", "item-1: "] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let shown: serde_json::Value = serde_json::from_str(&run(&["show", "--json"])).expect("it is JSON");
    assert_eq!(shown["phases"][0]["name"], "ride_created");
    assert_eq!(
        (&shown["phases"][1]["deduplicated"], &shown["phases"][1]["doneAt"]),
        (&false.into(), &().into())
    );
    assert_eq!(shown["items"][0]["state"], "processing");
    let told: serde_json::Value = serde_json::from_str(&run(&["explain", "--json"])).expect("it is JSON");
    assert_eq!(told["timeline"][1]["phase"], "ride_created");
}

/// Makes a command in phases in this file, with a finished phase and a call of unknown outcome.
async fn in_phases(file: &Path) -> semel_core::Record {
    use semel_core::policy::OnLeaseExpired;
    use semel_core::{Change, Mark, Reason, Start, Store, StoredRequest};
    use semel_stores::sqlite::{SqliteStore, mark, now, open_connection};
    use semel_testkit::sample;

    let store = SqliteStore::open(file).expect("the file opens");
    let mut claim = sample::claim("ride");
    claim.attempt.terms.on_lease_expired = OnLeaseExpired::Resume;
    claim.attempt.start = Start::Resumable(std::time::Duration::from_secs(3600));
    claim.request = Some(StoredRequest::input(bytes::Bytes::from_static(b"ride 7")));
    let claimed = store.claim(&claim).await.expect("it is decided").record.expect("it is acquired");
    let connection = open_connection(file, &Default::default()).expect("the file opens");
    let at = now(&connection).expect("there is a time");
    let local = Mark::Local { position: 0, name: "ride".to_owned(), output: bytes::Bytes::from_static(b"1") };
    let begun = Mark::Begun { position: 1, name: "charge".to_owned(), deduplicated: false };
    for phase in [local, begun] {
        assert!(mark(&connection, claimed.operation_id, &phase, at).expect("it is written"));
    }
    let abandon = Change::abandon(claimed.head.fence(), Reason::TimedOut);
    store.apply(&claimed.id, &abandon).await.expect("it is written").record.expect("it is there")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_settles_the_open_call_of_a_command_in_phases() {
    let folder = TempDir::new().expect("there is room");
    let folder = folder.path();
    let open = in_phases(&folder.join("semel.db")).await;
    let id = open.operation_id.to_string();
    let attempt = open.head.epoch.to_string();
    let why = ["--reason", "charge 17 is captured"];
    let resolve = |more: &[&str]| run(folder, &[&["records", "resolve", &id][..], &why, more].concat());

    let explained = text(&run(folder, &["records", "explain", &id]).stdout);
    assert!(explained.contains("--attempt 1 --phase NAME --verdict executed"), "{explained}");
    for whole in [&["--verdict", "executed", "--status", "201"][..], &["--verdict", "not-executed"]] {
        let refused = resolve(whole);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        assert!(text(&refused.stderr).contains("runs in phases"), "{refused:?}");
    }
    std::fs::write(folder.join("output.json"), "17").expect("there is room");
    std::fs::write(folder.join("broken.json"), "{").expect("there is room");
    let said = |attempt: &str, phase: &str, file: &str| {
        let call = ["--attempt", attempt, "--phase", phase, "--verdict", "executed", "--output", file];
        resolve(&call).status.code()
    };
    assert_eq!(said(&attempt, "charge", "broken.json"), Some(2), "no run could read it");
    assert_eq!(said("7", "charge", "output.json"), Some(1), "nobody looked at that attempt");
    assert_eq!(said(&attempt, "ride", "output.json"), Some(1), "that phase is done");
    let without_output = resolve(&["--attempt", &attempt, "--phase", "charge", "--verdict", "executed"]);
    assert_eq!(without_output.status.code(), Some(2), "{without_output:?}");
    assert_eq!(said(&attempt, "charge", "output.json"), Some(0));
    let shown = run(folder, &["records", "show", &id, "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).expect("it is JSON");
    assert_eq!((&shown["state"], &shown["epoch"]), (&"claimed".into(), &2.into()), "it waits to be resumed");
    assert!(shown["phases"][1]["doneAt"].is_string(), "{shown}");
    assert_eq!(said(&attempt, "charge", "output.json"), Some(1), "once is enough");
}
