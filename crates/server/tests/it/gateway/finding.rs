//! Finding a command by its id, its business reference or its key, on the command line and at the admin listener.

use std::io::Write;
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use super::admin::refusal;
use super::lab::{Gateway, Send, Site, Upstream, pay, problem};

const RULE: &str =
    "[[operation]]\nname = \"orders.create\"\nmatch = \"POST /orders\"\nbusiness_reference = \"/order\"\n";

/// Rule of the same operation under a new name.
const RENAMED: &str = "[[operation]]\nname = \"orders.make\"\nmatch = \"POST /orders\"\nbusiness_reference = \"/order\"\n\
     aliases = [\"orders.create\"]\n";

const DECLINED: &str = "canary-key-declined-0123456789";
const PAID: &str = "canary-key-paid-0123456789";

/// Returns a command about the order 7.
fn order(key: &str) -> Send {
    pay(r#"{"order":"order-7"}"#).target("/orders").set("idempotency-key", key)
}

/// Runs `semel records find`, with this text at the standard input.
fn find(site: &Site, arguments: &[&str], input: &str) -> Output {
    let mut process = site
        .semel()
        .args(["records", "find"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    // A program that does not want its input may be gone by now.
    let _ = process.stdin.take().expect("it is piped").write_all(input.as_bytes());
    process.wait_with_output().expect("it ends")
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

/// Returns everything that a program printed.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

fn ids(records: &Value) -> Vec<&str> {
    records.as_array().into_iter().flatten().filter_map(|record| record["operationId"].as_str()).collect()
}

/// Makes two commands with one reference: the first is declined and gives it back, the second holds it. Returns
/// their ids.
async fn two_orders(gateway: &Gateway) -> [String; 2] {
    let mut ids = Vec::new();
    for (key, what, status) in [(DECLINED, "status-402", 402), (PAID, "", 201)] {
        let reply = gateway.send(order(key).doing(what)).await;
        assert_eq!(reply.status, status, "{reply:?}");
        ids.push(reply.operation_id().expect("it is named").to_owned());
    }
    ids.try_into().expect("there are two")
}

/// Asserts that each way finds its command under the operation's name in the settings.
fn assert_found_by_command_line(site: &Site, operation: &str, [declined, paid]: &[String; 2]) {
    let by_id = json_of(&find(site, &[paid, "--json"], ""));
    let shown = site.semel().args(["records", "show", paid, "--json"]).output().expect("it runs");
    assert_eq!(by_id, json!([json_of(&shown)]), "as `records show` shows it");

    let scope = ["--tenant", "local", "--operation", operation];
    let reference = [&scope[..], &["--reference", "order-7"]].concat();
    let by_reference = json_of(&find(site, &[&reference[..], &["--json"]].concat(), ""));
    assert_eq!(ids(&by_reference), [paid, declined], "the holder comes first: {by_reference}");
    let holds: Vec<&Value> =
        by_reference.as_array().into_iter().flatten().map(|found| &found["holdsReference"]).collect();
    assert_eq!(holds, [true, false], "{by_reference}");
    let told = find(site, &reference, "");
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let parts: Vec<&str> = told.split("\n\n").collect();
    assert_eq!(parts.len(), 2, "{told}");
    assert!(parts[0].contains("held by this command") && parts[0].contains(paid.as_str()), "{told}");
    assert!(parts[1].contains("given back") && parts[1].contains(declined.as_str()), "{told}");

    let caller = [&scope[..], &["--caller", "local"]].concat();
    for (key, id) in [(DECLINED, declined), (PAID, paid)] {
        let by_key = json_of(&find(site, &[&caller[..], &["--json"]].concat(), key));
        assert_eq!(ids(&by_key), [id], "{by_key}");
        assert!(
            by_key[0].get("holdsReference").is_none() && !by_key.to_string().contains("canary"),
            "{by_key}"
        );
    }
}

/// Asserts that a search with another tenant, caller, operation, key or reference finds nothing, and says so.
fn assert_nothing_else_is_found(site: &Site) {
    let operation = "orders.create";
    for (arguments, key) in [
        (["other", operation, "local", ""], PAID),
        (["local", "orders.delete", "local", ""], PAID),
        (["local", operation, "other", ""], PAID),
        (["local", operation, "local", ""], "canary-key-never-sent-0123456789"),
        (["other", operation, "", "order-7"], ""),
        (["local", "orders.delete", "", "order-7"], ""),
        (["local", operation, "", "order-8"], ""),
    ] {
        let [tenant, operation, caller, reference] = arguments;
        let mut flags = vec!["--tenant", tenant, "--operation", operation];
        flags.extend(if caller.is_empty() { ["--reference", reference] } else { ["--caller", caller] });
        let nothing = find(site, &flags, key);
        assert_eq!((nothing.status.code(), &nothing.stdout[..]), (Some(1), &b""[..]), "{nothing:?}");
        let told = said(&nothing);
        assert!(told.contains(&format!("{tenant:?}")) && told.contains(operation), "{told}");
        assert!(told.contains("Possible reasons") && !told.contains("canary"), "{told}");
    }
    let nobody = find(site, &["01a1df32-caa3-786d-a196-45c465f24292"], "");
    assert_eq!(nobody.status.code(), Some(1), "{nobody:?}");
}

/// Asserts that each way finds its command at the admin listener.
async fn assert_found_by_admin_api(gateway: &Gateway, operation: &str, [declined, paid]: &[String; 2]) {
    let ask = async |terms: &Value| {
        gateway.ask("POST", "/admin/v1/records/find").body(terms.to_string()).to(gateway.admin).await
    };
    let found = async |terms: Value| {
        let reply = ask(&terms).await;
        assert_eq!(reply.status, 200, "{terms}: {reply:?}");
        reply.json()
    };
    let by_id = found(json!({ "operationId": paid })).await;
    assert_eq!(by_id["records"][0], gateway.admin(&format!("/admin/v1/records/{paid}")).await.json());
    let reference = found(json!({ "tenant": "local", "operation": operation, "reference": "order-7" })).await;
    assert_eq!(ids(&reference["records"]), [paid, declined], "{reference}");
    assert_eq!(
        (&reference["records"][1]["holdsReference"], &reference["omitted"]),
        (&json!(false), &json!(0))
    );
    let scope = |caller: &str, key: &str| json!({ "tenant": "local", "operation": operation, "caller": caller, "key": key });
    assert_eq!(ids(&found(scope("local", DECLINED)).await["records"]), [declined]);
    let nothing = ask(&scope("other", DECLINED)).await;
    assert_eq!(refusal(&nothing), problem(404, "OPERATION_NOT_FOUND"));
    let told = String::from_utf8_lossy(&nothing.body).into_owned();
    assert!(told.contains("Possible reasons") && !told.contains("canary"), "{told}");
}

#[tokio::test]
async fn a_command_is_found_by_its_id_its_reference_and_its_key() {
    for site in [Site::new(), Site::on_postgres()] {
        let upstream = Upstream::start().await;
        let mut gateway = site.start_with(upstream.address, RULE, &[]);
        let orders = two_orders(&gateway).await;
        assert_found_by_command_line(&site, "orders.create", &orders);
        assert_found_by_admin_api(&gateway, "orders.create", &orders).await;
        assert_nothing_else_is_found(&site);
        gateway.terminate();
        gateway.ended().await;
        assert!(!gateway.log().contains("canary"), "{}", gateway.log());

        let gateway = site.start_with(upstream.address, RENAMED, &[]);
        for operation in ["orders.make", "orders.create"] {
            assert_found_by_command_line(&site, operation, &orders);
            assert_found_by_admin_api(&gateway, operation, &orders).await;
        }
        assert_eq!(site.column("SELECT action FROM semel_audit"), [""; 0], "a look is no action");
    }
}

#[tokio::test]
async fn a_key_is_read_from_the_standard_input_in_each_spelling() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, RULE, &[]);
    let [_, paid] = two_orders(&gateway).await;
    let flags = ["--tenant", "local", "--caller", "local", "--operation", "orders.create"];
    for input in [format!("{PAID}\n"), format!("\"{PAID}\"\r\n"), format!(" {PAID} ")] {
        let told = find(&site, &flags, &input);
        assert!(told.status.success() && said(&told).contains(&paid), "{input:?}: {told:?}");
        assert!(!said(&told).contains("canary"), "{told:?}");
    }
}

#[tokio::test]
async fn a_reference_outlives_its_record_and_is_still_found() {
    for site in [Site::new(), Site::on_postgres()] {
        let upstream = Upstream::start().await;
        let gateway = site.start_with(upstream.address, RULE, &[]);
        let [declined, paid] = two_orders(&gateway).await;
        site.column("DELETE FROM semel_records RETURNING state");
        let flags = ["--tenant", "local", "--operation", "orders.create", "--reference", "order-7"];
        let found = json_of(&find(&site, &[&flags[..], &["--json"]].concat(), ""));
        assert_eq!(ids(&found), [&paid, &declined], "{found}");
        assert_eq!(
            (&found[0]["holdsReference"], &found[0]["state"]),
            (&json!(true), &Value::Null),
            "{found}"
        );
        let told = said(&find(&site, &flags, ""));
        assert!(told.contains("its record has been deleted") && told.contains(&paid), "{told}");
    }
}

#[tokio::test]
async fn a_single_command_that_gave_its_reference_back_is_marked() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, RULE, &[]);
    let declined = gateway.send(order(DECLINED).doing("status-402")).await;
    assert_eq!(declined.status, 402);
    let flags = ["--tenant", "local", "--operation", "orders.create", "--reference", "order-7", "--json"];
    let found = json_of(&find(&site, &flags, ""));
    assert_eq!(found[0]["holdsReference"], json!(false), "{found}");
    let id = found[0]["operationId"].as_str().expect("it is named").to_owned();
    let purge = site.semel().args(["records", "purge", &id, "--reason", "asked to forget"]).output();
    assert!(purge.expect("it runs").status.success());
    let found = json_of(&find(&site, &flags, ""));
    assert_eq!(
        (&found[0]["state"], &found[0]["holdsReference"]),
        (&json!("expired"), &json!(false)),
        "{found}"
    );
}

#[tokio::test]
async fn terms_that_cannot_be_used_are_told_without_the_key() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let file = format!("{RULE}key_min_length = 20\nkey_max_length = 40\nkey_syntax = \"strict\"\n");
    let gateway = site.start_with(upstream.address, &file, &[]);
    let scope = ["--tenant", "local", "--caller", "local", "--operation", "orders.create"];
    let long = format!("\"canary-{}\"", "x".repeat(60));
    for (key, hint) in [
        ("", "is empty"),
        ("\"canary\"", "at least 20 characters (`key_min_length`)"),
        (&long, "at most 40 characters (`key_max_length`)"),
        ("canary-without-quotes-0123", "double quotes"),
        ("\"canary@example.canary.com\"", "an e-mail address"),
        ("\"canary-on-two-lines-01\"\n\"canary\"", "malformed"),
        (&"canary".repeat(2000), "at most 4096 bytes"),
    ] {
        let refused = find(&site, &scope, key);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(said(&refused).contains(hint), "{hint}: {refused:?}");
        assert!(!said(&refused).contains("canary"), "{refused:?}");
        let terms = json!({ "tenant": "local", "caller": "local", "operation": "orders.create", "key": key });
        let ask = gateway.ask("POST", "/admin/v1/records/find").body(terms.to_string());
        let refused = ask.to(gateway.admin).await;
        assert_eq!(refusal(&refused), problem(400, "MALFORMED_REQUEST"), "{hint}");
        let told = String::from_utf8_lossy(&refused.body).into_owned();
        assert!(told.contains(hint) && !told.contains("canary"), "{told}");
    }
    for arguments in [
        &["--key", "canary"][..],
        &["--key=canary"],
        &[],
        &["--tenant", "local", "--operation", "orders.create"],
        &["canary-key-0123456789"],
        &["--caller", "local"],
        &["--reference", "order-7"],
        &["01a1df32-caa3-786d-a196-45c465f24292", "--tenant", "local"],
        &["--tenant", "local", "--operation", "a", "--caller", "b", "--reference", "c"],
        &["--tenant", " local", "--operation", "a", "--caller", "b"],
    ] {
        let refused = find(&site, arguments, "\"canary-key-0123456789\"");
        assert_eq!((refused.status.code(), &refused.stdout[..]), (Some(2), &b""[..]), "{refused:?}");
        assert!(!said(&refused).contains("canary"), "{refused:?}");
    }
    for (terms, hint) in [
        (json!({}), "found by its operation id; or by tenant"),
        (json!({ "operationId": "canary-no-id" }), "not an operation id"),
        (json!({ "tenant": "local", "key": "canary" }), "found by its operation id; or by tenant"),
        (json!({ "keys": "canary" }), "did you mean `key`?"),
        (json!({ "tenant": "local", "operation": "a", "caller": "b", "key": 7 }), "`key` must be a text"),
    ] {
        let ask = gateway.ask("POST", "/admin/v1/records/find").body(terms.to_string());
        let refused = ask.to(gateway.admin).await;
        assert_eq!(refusal(&refused), problem(400, "MALFORMED_REQUEST"), "{terms}");
        assert!(String::from_utf8_lossy(&refused.body).contains(hint), "{terms}: {refused:?}");
    }
    let in_query = gateway.ask("POST", "/admin/v1/records/find?key=canary").body("{}");
    assert_eq!(refusal(&in_query.to(gateway.admin).await), problem(400, "MALFORMED_REQUEST"));
    let argument = find(&site, &["canary-key-0123456789"], "");
    assert!(said(&argument).contains("a key is read from the standard input"), "{argument:?}");
    let mistyped = find(&site, &["--tenant", "a", "--operation", "order.create", "--reference", "b"], "");
    assert!(said(&mistyped).contains("did you mean \"orders.create\"?"), "{mistyped:?}");
    assert!(!gateway.log().contains("canary"), "{}", gateway.log());
}

#[tokio::test]
async fn an_operation_without_business_references_is_told_and_not_guessed() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let file = format!("{RULE}[[operation]]\nname = \"mails.send\"\nmatch = \"POST /mails\"\n");
    let gateway = site.start_with(upstream.address, &file, &[]);
    let told = find(&site, &["--tenant", "local", "--operation", "mails.send", "--reference", "7"], "");
    let why = "operation mails.send has no business references: its rule sets no `business_reference`";
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    assert!(said(&told).contains(why) && !said(&told).contains("Possible reasons"), "{told:?}");
    let terms = json!({ "tenant": "local", "operation": "mails.send", "reference": "7" });
    let ask = gateway.ask("POST", "/admin/v1/records/find").body(terms.to_string());
    let refused = ask.to(gateway.admin).await;
    assert_eq!(refusal(&refused), problem(404, "OPERATION_NOT_FOUND"));
    assert!(refused.json()["detail"].as_str().is_some_and(|detail| detail.contains(why)), "{refused:?}");
}

#[test]
fn a_duration_in_place_of_a_moment_is_refused_with_the_flag_that_takes_one() {
    let site = Site::new();
    for command in ["list", "export"] {
        let refused = site.semel().args(["records", command, "--since", "10m"]).output().expect("it runs");
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let told = said(&refused);
        for part in ["--since: \"10m\" is not a moment such as \"2026-", "only --older-than takes a duration"]
        {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
}

#[tokio::test]
async fn the_admin_api_lists_records_of_a_caller_and_a_window() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, RULE, &[]);
    let [declined, paid] = two_orders(&gateway).await;
    let list = async |query: &str| gateway.admin(&format!("/admin/v1/records?{query}")).await;
    let listed = async |query: &str| {
        let reply = list(query).await;
        assert_eq!(reply.status, 200, "{query}: {reply:?}");
        ids(&reply.json()["records"]).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(listed("caller=local").await, [&*declined, &paid]);
    assert_eq!(listed("caller=other").await, [""; 0]);
    let record = gateway.admin(&format!("/admin/v1/records/{paid}")).await.json();
    let moment = record["stateSince"].as_str().expect("it has one").to_owned();
    assert!(record.get("traceId").is_some_and(Value::is_null), "no trace: {record}");
    assert!(listed(&format!("since={moment}")).await.contains(&paid));
    assert!(!listed(&format!("until={moment}")).await.contains(&paid));
    assert_eq!(listed("since=2000-01-01T00:00:00Z&until=2000-01-02T00:00:00Z").await, [""; 0]);
    for (query, hint) in [
        ("since=yesterday", "not a moment"),
        ("since=2026-11-19T09:00:00Z&until=2026-11-19T08:00:00Z", "not after its beginning"),
        ("callr=local", "did you mean `caller`?"),
        ("until=2026-11-19T09:00:00Z&until=2026-11-19T08:00:00Z", "given twice"),
    ] {
        let refused = list(query).await;
        assert_eq!(refusal(&refused), problem(400, "MALFORMED_REQUEST"), "{query}");
        assert!(String::from_utf8_lossy(&refused.body).contains(hint), "{query}: {refused:?}");
    }
    let told = site.semel().args(["records", "explain", &paid]).output().expect("it runs");
    assert!(said(&told).contains(&format!("succeeded since {moment}")), "{told:?}");
}

#[tokio::test]
async fn the_trace_of_a_command_is_shown() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, RULE, &[]);
    let [_, paid] = two_orders(&gateway).await;
    let trace = format!("00-{TRACE}-00f067aa0ba902b7-01");
    site.column(&format!(
        "UPDATE semel_records SET trace = '{trace}' WHERE state = 'succeeded' RETURNING state"
    ));
    let told = site.semel().args(["records", "explain", &paid]).output().expect("it runs");
    assert!(said(&told).contains(&format!("trace {TRACE}")), "{told:?}");
    let shown = site.semel().args(["records", "show", &paid]).output().expect("it runs");
    assert!(said(&shown).contains(TRACE) && said(&shown).contains("stateSince"), "{shown:?}");
    let listed = gateway.admin("/admin/v1/records?state=succeeded").await.json();
    assert_eq!(listed["records"][0]["traceId"], TRACE, "{listed}");
}
