//! Forms of real clients: a retry with a new boundary is still a retry; a changed part makes another request.

use std::net::SocketAddr;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::gateway::lab::lab;
use crate::line::Line;
use crate::third_party::{node, python};

/// Runs a third-party program, and returns its output.
async fn run(mut command: Command) -> Output {
    let output = tokio::task::spawn_blocking(move || command.output().expect("it runs"));
    output.await.expect("it does not panic")
}

/// Runs a program that prints JSON.
async fn printed(command: Command) -> Value {
    let output = run(command).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    serde_json::from_str(&text)
        .unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
}

/// Sends a form with a client, and returns its answer.
async fn send(client: &str, address: SocketAddr, key: &str, note: &str) -> Value {
    let mut program = match client.split('-').next() {
        Some("curl") => return curl(client, address, key, note).await,
        Some("fetch" | "axios") => node("form_client.mjs"),
        Some("browser") => node("browser_form.mjs"),
        _ => python("form_client.py"),
    };
    program.args([client, &address.to_string(), key, note]);
    printed(program).await
}

async fn curl(client: &str, address: SocketAddr, key: &str, note: &str) -> Value {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-i", "-H", &format!("Idempotency-Key: {key}")]);
    if client == "curl-multipart" {
        curl.args(["-F", &format!("note={note}"), "-F", "file=@-;filename=ledger.csv;type=text/csv"]);
        curl.stdin(std::process::Stdio::null());
    } else {
        curl.args(["-d", &format!("note={note}"), "-d", "amount=5"]);
    }
    curl.arg(format!("http://{address}/payments"));
    let output = run(curl).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (head, body) = text.rsplit_once("\r\n\r\n").unwrap_or_else(|| panic!("{text}{output:?}"));
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
    let status: u16 = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let code = serde_json::from_str::<Value>(body).map_or(Value::Null, |document| document["code"].clone());
    json!({ "status": status, "replayed": field("idempotency-replayed: "), "code": code })
}

/// Sends a form, sends it again, and sends a changed one under the same key.
async fn retried_and_changed(client: &str) {
    let (_site, upstream, gateway) = lab(&[]).await;
    let line = Line::start(gateway.address, 0).await;
    let key = "order/1234/2026-11-16";
    let first = send(client, line.address, key, "two spaces").await;
    assert_eq!(first, json!({ "status": 201, "replayed": null, "code": null }), "{client}");
    let again = send(client, line.address, key, "two spaces").await;
    assert_eq!(again, json!({ "status": 201, "replayed": "true", "code": null }), "{client}");
    let changed = send(client, line.address, key, "three spaces").await;
    let code = "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST";
    assert_eq!(changed, json!({ "status": 422, "replayed": null, "code": code }), "{client}");
    assert_eq!(upstream.seen(), 1, "{client}");
    let mut boundaries = line.boundaries();
    let count = boundaries.len();
    boundaries.sort_unstable();
    boundaries.dedup();
    let expected = if client.ends_with("multipart") { 3 } else { 0 };
    assert_eq!((count, boundaries.len()), (expected, expected), "{client}: a new boundary each time");
}

#[tokio::test]
async fn forms_of_curl_are_retried_with_a_new_boundary() {
    tokio::join!(retried_and_changed("curl-multipart"), retried_and_changed("curl-urlencoded"));
}

#[tokio::test]
async fn forms_of_fetch_and_axios_are_retried_with_a_new_boundary() {
    tokio::join!(
        retried_and_changed("fetch-multipart"),
        retried_and_changed("fetch-urlencoded"),
        retried_and_changed("axios-multipart"),
        retried_and_changed("axios-urlencoded"),
    );
}

#[tokio::test]
async fn forms_of_requests_and_httpx_are_retried_with_a_new_boundary() {
    tokio::join!(
        retried_and_changed("requests-multipart"),
        retried_and_changed("requests-urlencoded"),
        retried_and_changed("httpx-multipart"),
        retried_and_changed("httpx-urlencoded"),
    );
}

#[tokio::test]
async fn forms_of_a_browser_are_retried_with_a_new_boundary() {
    let advice = "SEMEL_TEST_BROWSER is not set: run eval \"$(cargo xtask browser)\"";
    assert!(std::env::var_os("SEMEL_TEST_BROWSER").is_some(), "{advice}");
    retried_and_changed("browser-multipart").await;
    retried_and_changed("browser-urlencoded").await;
}

/// Sends a payment whose first answers are lost.
async fn answered_after_cuts(program: fn(&str) -> Command, name: &str, form: &str) {
    let (_site, upstream, gateway) = lab(&[]).await;
    let line = Line::start(gateway.address, 2).await;
    let mut command = program(name);
    command.args([&line.address.to_string(), form]);
    let answer = printed(command).await;
    assert_eq!(
        (&answer["status"], &answer["replayed"]),
        (&json!(201), &json!("true")),
        "{name} {form}: {answer}"
    );
    assert_eq!(answer["retries"], 2, "{name} {form}");
    assert!(answer["body"].as_str().is_some_and(|body| body.starts_with("1:")), "{name} {form}: {answer}");
    assert_eq!((line.cuts(), upstream.effects()), (0, 1), "{name} {form}: one effect");
}

#[tokio::test]
async fn axios_retry_gets_the_one_answer_after_cut_connections() {
    tokio::join!(
        answered_after_cuts(node, "retrying_client.mjs", "json"),
        answered_after_cuts(node, "retrying_client.mjs", "urlencoded"),
        answered_after_cuts(node, "retrying_client.mjs", "multipart"),
    );
}

#[tokio::test]
async fn httpx_gets_the_one_answer_after_cut_connections() {
    tokio::join!(
        answered_after_cuts(python, "retrying_client.py", "json"),
        answered_after_cuts(python, "retrying_client.py", "urlencoded"),
        answered_after_cuts(python, "retrying_client.py", "multipart"),
    );
}
