//! `keep_request = "while-unknown"`: the request of a command is stored while its outcome is unknown, across
//! crashes, and removed with its outcome.

use std::process::Output;

use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::canary::{dump, shows};
use super::encryption::keys;
use super::lab::{Gateway, Site, Upstream, pay, problem};
use super::late_answers::read_head;

const RULE: &str = "[[operation]]\nname = \"orders.pay\"\nmatch = \"POST /orders/{id}/payments\"\nkeep_request = \"while-unknown\"\n";
const CANARY: &str = "canary-5f3a9c1e7b2d4860";
const COUNT: &str = "SELECT CAST(count(*) AS text) FROM semel_requests";

fn request() -> super::lab::Send {
    pay(&format!("{{\"card\":\"{CANARY}\"}}"))
        .target("/orders/4711/payments?dry=1")
        .with("authorization", "Bearer secret-of-the-caller")
        .with("traceparent", "7")
}

fn run(site: &Site, arguments: &[&str]) -> Output {
    site.semel().args(arguments).output().expect("the program runs")
}

fn read(site: &Site, id: &str, more: &[&str]) -> Output {
    run(site, &[&["records", "request", id, "--reason", "ticket 7"], more].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it prints text")
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("it is JSON: {output:?}"))
}

/// Returns the id of the only command.
fn only(site: &Site) -> String {
    let records = json_of(&run(site, &["records", "list", "--json"]));
    records[0]["operationId"].as_str().expect("there is one").to_owned()
}

/// Waits until the only record is in this state.
async fn becomes(site: &Site, state: &str) {
    while site.states() != [state] {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

async fn read_at(gateway: &Gateway, id: &str) -> super::lab::Reply {
    let path = format!("/admin/v1/records/{id}/request");
    gateway.ask("POST", &path).body(json!({ "reason": "ticket 8" }).to_string()).to(gateway.admin).await
}

async fn shown_until_it_is_settled(site: Site) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // It breaks off in the middle: its effect is unknown.
            let _ = read_head(&mut stream).await;
        }
    });
    let gateway = site.start_with(address, RULE, &[]);
    assert_eq!(gateway.send(request()).await.problem(), problem(502, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    assert_eq!(site.column(COUNT), ["1"]);
    let id = only(&site);
    let shown = json_of(&run(&site, &["records", "show", &id, "--json"]));
    assert_eq!(shown["lookFor"]["requestKept"], true);
    assert!(!shown.to_string().contains(CANARY), "not unless it is asked for: {shown}");
    let told = text(&run(&site, &["records", "explain", &id]).stdout);
    assert!(told.contains(&format!("semel records request {id} --reason TEXT")), "{told}");

    let asked = json_of(&read(&site, &id, &["--json"]));
    assert_eq!((&asked["method"], &asked["target"]), (&json!("POST"), &json!("/orders/4711/payments?dry=1")));
    assert_eq!(asked["body"], format!("{{\"card\":\"{CANARY}\"}}"));
    assert_eq!(asked["headers"]["traceparent"], json!(["7"]));
    assert_eq!(asked["headers"]["authorization"], Value::Null, "credentials are not kept");
    let told = text(&read(&site, &id, &[]).stdout);
    assert!(told.starts_with("POST /orders/4711/payments?dry=1\n") && told.contains(CANARY), "{told}");
    let at_listener = read_at(&gateway, &id).await;
    assert_eq!(at_listener.json(), asked, "the admin API says the same");
    let noted = site.column("SELECT action || ' ' || why FROM semel_audit ORDER BY at, id");
    assert_eq!(noted, ["request ticket 7", "request ticket 7", "request ticket 8"]);

    // A retry is refused, and stores nothing.
    assert_eq!(gateway.send(request()).await.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    let verdict =
        ["records", "resolve", &id, "--verdict", "executed", "--status", "201", "--reason", "in the ledger"];
    assert!(run(&site, &verdict).status.success());
    assert_eq!(site.column(COUNT), ["0"], "erased with the verdict");
    let gone = read(&site, &id, &[]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(text(&gone.stderr).contains("it is succeeded, and a request is erased"), "{gone:?}");
    let gone = read_at(&gateway, &id).await;
    assert_eq!((gone.status.as_u16(), &gone.json()["code"]), (404, &json!("NOT_FOUND")), "{gone:?}");
    let absent = read_at(&gateway, "01a1df32-caa3-786d-a196-45c465f24292").await;
    assert_eq!((absent.status.as_u16(), &absent.json()["code"]), (404, &json!("OPERATION_NOT_FOUND")));
    assert_eq!(site.column(COUNT), ["0"]);
    let noted = site.column("SELECT action FROM semel_audit WHERE action = 'request'");
    assert_eq!(noted.len(), 3, "where there is nothing to read, nothing is noted");
    assert!(!shows(gateway.log().as_bytes(), CANARY), "it is in no log: {}", gateway.log());
    assert!(gateway.send(request()).await.replayed());
}

#[tokio::test]
async fn the_request_of_an_unknown_outcome_is_shown_until_it_is_settled() {
    shown_until_it_is_settled(Site::new()).await;
}

#[tokio::test]
async fn the_request_of_an_unknown_outcome_is_shown_until_it_is_settled_on_postgres() {
    shown_until_it_is_settled(Site::on_postgres()).await;
}

async fn survives_its_executor(site: Site) {
    let upstream = Upstream::start().await;
    let arguments = ["--lease", "500ms"];
    let mut first = site.start_with(upstream.address, RULE, &arguments);
    let asked = tokio::spawn(request().doing("gate").to(first.address));
    upstream.begun().await;
    assert_eq!(site.column(COUNT), ["1"], "it is there before the call");
    first.kill();
    drop(asked);
    let second = site.start_with(upstream.address, RULE, &arguments);
    becomes(&site, "unknown").await;
    let id = only(&site);
    let shown = json_of(&read(&site, &id, &["--json"]));
    assert_eq!(shown["body"], format!("{{\"card\":\"{CANARY}\"}}"));
    assert_eq!(second.send(request()).await.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    assert_eq!(upstream.seen(), 1, "no worker takes it up");
    let verdict =
        ["records", "resolve", &id, "--verdict", "executed", "--status", "201", "--reason", "found"];
    assert!(run(&site, &verdict).status.success());
    assert_eq!(site.column(COUNT), ["0"]);
}

#[tokio::test]
async fn the_request_of_a_killed_gateway_is_kept() {
    survives_its_executor(Site::new()).await;
}

#[tokio::test]
async fn the_request_of_a_killed_gateway_is_kept_on_postgres() {
    survives_its_executor(Site::on_postgres()).await;
}

#[tokio::test]
async fn answered_command_keeps_no_request_and_a_new_attempt_keeps_its_own() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, RULE, &[]);
    assert_eq!(gateway.send(request()).await.status, 201);
    assert_eq!(site.column(COUNT), ["0"], "erased with the answer");
    let keyed = |what| request().set("idempotency-key", "another-key-of-its-own").set("x-do", what);
    assert_eq!(gateway.send(keyed("status-503 outcome-not-executed")).await.status, 503);
    assert_eq!(site.column(COUNT), ["0"], "erased with the word that nothing ran");
    let unknown = gateway.send(keyed("status-200 outcome-unknown")).await;
    let id = unknown.operation_id().expect("it is named");
    let shown = json_of(&read(&site, id, &["--json"]));
    assert_eq!(shown["target"], "/orders/4711/payments?dry=1");
    // An operation without the setting stores no request, and gives the reason.
    let plain = gateway.send(pay("{}").set("idempotency-key", "a-plain-key-0001").doing("status-500")).await;
    let id = plain.operation_id().expect("it is named");
    let none = read(&site, id, &[]);
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none.stderr).contains("did not have `keep_request = \"while-unknown\"`"), "{none:?}");
    // Bytes that are no text are escaped for a terminal and for JSON.
    let binary = pay("").body(vec![0xff, 0x1b, b'[']).set("idempotency-key", "a-binary-key-001");
    let binary = binary.target("/orders/1/payments").set("content-type", "application/octet-stream");
    let binary = gateway.send(binary.doing("status-500")).await;
    let id = binary.operation_id().expect("it is named");
    assert_eq!(json_of(&read(&site, id, &["--json"]))["bodyBase64"], "/xtb");
    let told = read(&site, id, &[]).stdout;
    assert!(!told.contains(&0x1b) && text(&told).contains("3 bytes that are no text"), "{told:?}");
}

#[tokio::test]
async fn a_workers_command_keeps_its_request_while_it_is_unknown() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, &format!("{RULE}mode = \"async\"\n"), &[]);
    assert_eq!(gateway.send(request().doing("status-500")).await.status, 202);
    becomes(&site, "unknown").await;
    let id = only(&site);
    assert_eq!(json_of(&read(&site, &id, &["--json"]))["body"], format!("{{\"card\":\"{CANARY}\"}}"));
    assert_eq!(upstream.seen(), 1, "it is not started again");
    let verdict =
        ["records", "resolve", &id, "--verdict", "executed", "--status", "201", "--reason", "found"];
    assert!(run(&site, &verdict).status.success());
    assert_eq!(site.column(COUNT), ["0"]);
}

#[tokio::test]
async fn a_kept_request_is_sealed_and_follows_a_rotation() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let refuse = |text: String| text.replacen("current", "plaintext = \"refuse\"\ncurrent", 1);
    let mut gateway =
        site.start_with(upstream.address, &format!("{RULE}{}", refuse(keys(&site, &["old"]))), &[]);
    gateway.send(request().doing("status-500")).await;
    let id = only(&site);
    let sealed_under = "SELECT coalesce(encryption_key_id, 'none') FROM semel_requests";
    assert_eq!(site.column(sealed_under), ["old"]);
    assert!(!shows(&dump(&site), CANARY), "nothing of it shows");
    let body = format!("{{\"card\":\"{CANARY}\"}}");
    assert_eq!(json_of(&read(&site, &id, &["--json"]))["body"], body);
    gateway.kill();
    drop(gateway);

    let gateway =
        site.start_with(upstream.address, &format!("{RULE}{}", refuse(keys(&site, &["new", "old"]))), &[]);
    let rotated = run(&site, &["keys", "rotate"]);
    assert!(rotated.status.success(), "{rotated:?}");
    assert_eq!(site.column(sealed_under), ["new"], "the request of an unknown is sealed anew");
    assert_eq!(read_at(&gateway, &id).await.json()["body"], body);

    // Without its key, or as refused plain text, it is not shown.
    std::fs::write(site.folder.path().join("without.toml"), RULE).expect("there is room");
    let without = read(&site, &id, &["--config", "without.toml"]);
    assert_eq!(without.status.code(), Some(1), "{without:?}");
    assert!(text(&without.stderr).contains("it is encrypted"), "{without:?}");
    assert!(!shows(&without.stdout, CANARY));
    site.column("UPDATE semel_requests SET encryption_key_id = NULL RETURNING 'done'");
    let in_the_clear = read(&site, &id, &[]);
    assert_eq!(in_the_clear.status.code(), Some(1), "{in_the_clear:?}");
}
