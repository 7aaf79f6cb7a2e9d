//! Commands of unknown outcome, from the timeout to the retry that gets the answer: a real provider charges,
//! answers look-ups, and sends events.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use semel_core::{Clock, SystemClock};
use semel_flow::outbox::http::signature;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::lab::{Gateway, Reply, Send, Site, pay, problem};

const TOKEN: (&str, &str) = ("PROVIDER_TOKEN", "Bearer of the provider");
pub(super) const SECRET: (&str, &str) = ("PROVIDER_WEBHOOK_SECRET", "a secret of the provider");

/// Provider that charges, follows instructions, and answers look-ups of its charges.
pub(super) struct Bank {
    pub(super) address: SocketAddr,
    /// Charges by operation id.
    charges: Mutex<HashMap<String, Value>>,
    /// Every operation id of a call or a look-up.
    calls: Mutex<Vec<String>>,
    looks: Mutex<Vec<String>>,
    arrived: Semaphore,
    gate: Semaphore,
}

impl Bank {
    pub(super) async fn start() -> Arc<Bank> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let bank = Arc::new(Bank {
            address: listener.local_addr().expect("it is bound"),
            charges: Mutex::default(),
            calls: Mutex::default(),
            looks: Mutex::default(),
            arrived: Semaphore::new(0),
            gate: Semaphore::new(0),
        });
        let app = Router::new()
            .route("/payments", post(charge))
            .route("/charges", get(charges))
            .with_state(bank.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        bank
    }

    pub(super) fn calls(&self) -> Vec<String> {
        self.calls.lock().expect("nobody panics with it").clone()
    }

    pub(super) fn looks(&self) -> Vec<String> {
        self.looks.lock().expect("nobody panics with it").clone()
    }

    fn charged(&self) -> usize {
        self.charges.lock().expect("nobody panics with it").len()
    }

    /// Waits until a call has arrived, and returns its operation id.
    pub(super) async fn arrived(&self) -> String {
        self.arrived.acquire().await.expect("it is never closed").forget();
        self.calls().pop().expect("it has just come")
    }
}

fn text(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// Charges and answers as instructed.
async fn charge(State(bank): State<Arc<Bank>>, headers: HeaderMap) -> Response {
    let (id, what) = (text(&headers, "semel-operation-id"), text(&headers, "x-do"));
    bank.calls.lock().expect("nobody panics with it").push(id.clone());
    let charge =
        json!({ "reference": id, "status": if what.contains("decline") { "declined" } else { "captured" } });
    if !what.contains("nothing") {
        bank.charges.lock().expect("nobody panics with it").insert(id, charge.clone());
    }
    bank.arrived.add_permits(1);
    if what.contains("hang") {
        bank.gate.acquire().await.expect("it is never closed").forget();
    }
    (StatusCode::CREATED, Json(charge)).into_response()
}

/// Returns the charges under a reference, to callers with the token.
async fn charges(
    State(bank): State<Arc<Bank>>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    if text(&headers, "authorization") != TOKEN.1 {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let id = query.get("reference").cloned().unwrap_or_default();
    bank.looks.lock().expect("nobody panics with it").push(id.clone());
    let found: Vec<Value> =
        bank.charges.lock().expect("nobody panics with it").get(&id).cloned().into_iter().collect();
    Json(found).into_response()
}

/// Returns the settings of a gateway that asks this bank, with these lines in `[operation.reconcile]` and
/// `[reconcile]`.
pub(super) fn settings(bank: &Bank, asked: &str, reconcile: &str) -> String {
    format!(
        r#"[[operation]]
name = "payments.create"
match = "POST /payments"
[operation.reconcile]
url = "http://{}/charges?reference={{operation_id}}"
authorization_env = "PROVIDER_TOKEN"
result = "/0"
reference = "/reference"
status = "/status"
executed = ["captured"]
failed = ["declined"]
response_status = 201
failed_status = 402
timeout = "2s"
{asked}
[[operation]]
name = "refunds.create"
match = "POST /refunds"
[[webhook]]
name = "provider"
secret_env = "PROVIDER_WEBHOOK_SECRET"
operations = ["payments.create"]
event_id = "/id"
operation_id = "/data/reference"
step = "charge"
attempt = "/attempt"
verdict = "/type"
executed = ["charge.captured"]
failed = ["charge.declined"]
response = "/data"
response_status = 201
failed_status = 402
[reconcile]
interval = "20ms"
{reconcile}
"#,
        bank.address
    )
}

pub(super) fn site() -> Site {
    let mut site = Site::new();
    site.variables = vec![TOKEN, SECRET];
    site
}

/// Flags for short timeouts of calls and short leases, without reading of late answers.
pub(super) const SHORT: [&str; 10] = [
    "--timeout",
    "300ms",
    "--lease",
    "600ms",
    "--wait",
    "0s",
    "--quarantine-margin",
    "1s",
    "--late-answer",
    "off",
];

pub(super) fn keyed(key: &str) -> Send {
    pay("{}").set("idempotency-key", format!("{key}-0123456789abcdef"))
}

/// Sends until the answer is no longer "unknown" or "in progress". Fails after a bounded time.
pub(super) async fn settled(gateway: &Gateway, key: &str) -> Reply {
    let mut last = None;
    for _ in 0..1000 {
        let reply = gateway.send(keyed(key)).await;
        if reply.status != StatusCode::CONFLICT {
            return reply;
        }
        last = Some(reply);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it stays {last:?}: {}", gateway.log());
}

/// Returns the JSON output of the program, and its exit code.
pub(super) fn json_of(site: &Site, arguments: &[&str]) -> (Value, i32) {
    let output = site.semel().args(arguments).arg("--json").output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{arguments:?}: {output:?}"));
    (value, output.status.code().expect("no signal ends it"))
}

pub(super) fn event(id: &str, kind: &str, about: &str) -> String {
    json!({ "id": id, "type": kind, "data": { "reference": format!("{about}:charge"), "by": "event" } })
        .to_string()
}

pub(super) fn seconds() -> i64 {
    SystemClock.now().as_millis() / 1000
}

/// Returns an event of the provider, signed at this second.
pub(super) fn signed(secret: &str, at: i64, id: &str, body: &str) -> Send {
    pay(body)
        .target("/.well-known/semel/webhooks/provider")
        .without("idempotency-key")
        .with("semel-event-id", id)
        .with("semel-signature", signature(secret.as_bytes(), at, id, body.as_bytes()))
}

pub(super) fn from_provider(id: &str, kind: &str, about: &str) -> Send {
    signed(SECRET.1, seconds(), id, &event(id, kind, about))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_charge_whose_answer_was_lost_is_found_and_the_retry_gets_it() {
    let (site, bank) = (site(), Bank::start().await);
    let gateway = site.start_with(bank.address, &settings(&bank, "", ""), &SHORT);
    for (key, what, status) in [("captured", "hang", 201), ("declined", "hang decline", 402)] {
        let lost = gateway.send(keyed(key).doing(what)).await;
        assert_eq!(lost.problem(), problem(504, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
        let id = bank.arrived().await;
        let retry = settled(&gateway, key).await;
        assert_eq!((retry.status.as_u16(), retry.replayed()), (status, true), "{retry:?}");
        assert_eq!(retry.json(), json!({ "reference": id, "status": key }), "the provider's own object");
        assert_eq!(retry.header("content-type"), Some("application/json"));
        let (story, _) = json_of(&site, &["records", "explain", &id]);
        let timeline = story["timeline"].to_string();
        assert!(
            timeline.contains("reconciler") && timeline.contains(&format!("its /status is \\\"{key}\\\"")),
            "{timeline}"
        );
    }
    assert_eq!((bank.charged(), bank.calls().len()), (2, 2), "each was called once");
    let metrics = String::from_utf8(gateway.admin("/metrics").await.body.to_vec()).expect("it is text");
    for line in [
        "idempotency_reconcile_resolved_total{verdict=\"executed\"} 1",
        "idempotency_reconcile_resolved_total{verdict=\"failed\"} 1",
        "idempotency_reconcile_dead_letters 0",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    assert!(metrics.contains("idempotency_reconcile_scheduled_total"), "{metrics}");
    let log = gateway.log();
    assert!(log.contains("idempotency_reconciled"), "{log}");
    assert!(!log.contains(TOKEN.1) && !log.contains(SECRET.1), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_that_is_not_found_runs_once_after_the_quarantine() {
    let (site, bank) = (site(), Bank::start().await);
    let file = settings(&bank, "not_found = \"not-executed\"", "first_delay = \"100ms\"");
    let gateway = site.start_with(bank.address, &file, &SHORT);
    let lost = gateway.send(keyed("k").doing("hang nothing")).await;
    assert_eq!(lost.problem(), problem(504, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    let id = bank.arrived().await;
    let (unknown, code) = json_of(&site, &["reconcile", "--list"]);
    assert_eq!((code, &unknown[0]["operationId"]), (0, &json!(id)), "{unknown}");
    let until = unknown[0]["quarantineUntil"].as_str().expect("it has one").to_owned();
    let retry = settled(&gateway, "k").await;
    assert_eq!((retry.status.as_u16(), retry.replayed()), (201, false), "it ran now: {retry:?}");
    assert_eq!(bank.calls(), [id.clone(), id.clone()], "once more, under the same id");
    assert!(!bank.looks().is_empty(), "the provider was asked first");
    let (story, _) = json_of(&site, &["records", "explain", &id]);
    let freed = story["timeline"].as_array().expect("it is a list").iter();
    let freed = freed.filter(|entry| entry["reason"] == "verdict_not_executed");
    let freed: Vec<&str> = freed.filter_map(|entry| entry["at"].as_str()).collect();
    assert!(freed.len() == 1 && freed[0] >= until.as_str(), "{freed:?} is not before {until}: {story}");
    assert!(gateway.send(keyed("k")).await.replayed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_deduplicates_frees_the_key_before_the_quarantine_ends() {
    let (site, bank) = (site(), Bank::start().await);
    let file = settings(&bank, "not_found = \"not-executed\"\ndeduplicates = true", "");
    let long = ["--timeout", "300ms", "--lease", "1h", "--wait", "0s"];
    let gateway = site.start_with(bank.address, &file, &long);
    gateway.send(keyed("k").doing("hang nothing")).await;
    let retry = settled(&gateway, "k").await;
    assert_eq!((retry.status.as_u16(), retry.replayed(), bank.charged()), (201, false, 1), "{retry:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_settles_a_command_whose_provider_cannot_be_reached() {
    let (site, bank) = (site(), Bank::start().await);
    // The provider cannot be reached at its address.
    let file = settings(&bank, "", "").replace(&format!("{}/charges", bank.address), "127.0.0.1:1/charges");
    let gateway = site.start_with(bank.address, &file, &SHORT);
    gateway.send(keyed("after").doing("hang")).await;
    let id = bank.arrived().await;
    let taken = gateway.send(from_provider("e1", "charge.captured", &id)).await;
    assert_eq!((taken.status.as_u16(), taken.json()), (200, json!({ "taken": true })));
    let retry = gateway.send(keyed("after")).await;
    assert_eq!((retry.status.as_u16(), retry.replayed()), (201, true));
    assert_eq!(retry.json(), json!({ "reference": format!("{id}:charge"), "by": "event" }));
    let again = gateway.send(from_provider("e1", "charge.captured", &id)).await;
    assert_eq!((again.status.as_u16(), again.json()), (200, json!({ "seen": true })));
    // A later, contradicting event changes nothing and is recorded.
    let otherwise = gateway.send(from_provider("e2", "charge.declined", &id)).await;
    assert_eq!(otherwise.json(), json!({ "taken": true }));
    assert_eq!(gateway.send(keyed("after")).await.status, StatusCode::CREATED);
    gateway.logs("idempotency_reconcile_contradiction").await;
    let metrics = String::from_utf8(gateway.admin("/metrics").await.body.to_vec()).expect("it is text");
    assert!(metrics.contains("idempotency_reconcile_contradictions_total 1"), "{metrics}");
    let absent = semel_core::Ids::operation_id(&semel_core::RandomIds, semel_core::Timestamp::from_millis(0));
    gateway.send(from_provider("e9", "charge.captured", &absent.to_string())).await;
    let events = async |outcome: &str| {
        let series =
            format!("idempotency_webhook_events_total{{source=\"provider\",outcome=\"{outcome}\"}} ");
        gateway.counted(&series).await
    };
    assert_eq!((events("taken").await, events("seen").await), (Some(2), Some(1)));
    let without = "idempotency_webhook_without_record_total{source=\"provider\"} ";
    assert_eq!(gateway.counted(without).await, Some(1));
    // An event that comes while the command runs is kept until it is needed.
    let running = tokio::spawn(keyed("before").doing("hang").to(gateway.address));
    let id = bank.arrived().await;
    let early = gateway.send(from_provider("e3", "charge.captured", &id)).await;
    assert_eq!(early.json(), json!({ "taken": true }));
    assert_eq!(running.await.expect("it is answered").problem(), problem(504, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    let retry = settled(&gateway, "before").await;
    assert_eq!((retry.status.as_u16(), &retry.json()["by"]), (201, &json!("event")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_is_not_the_providers_own_is_refused() {
    let (site, bank) = (site(), Bank::start().await);
    let file = settings(&bank, "", "").replace(&format!("{}/charges", bank.address), "127.0.0.1:1/charges");
    let gateway = site.start_with(bank.address, &file, &SHORT);
    gateway.send(keyed("k").doing("hang")).await;
    let id = bank.arrived().await;
    let body = event("e1", "charge.captured", &id);
    let refused = async |request: Send| gateway.send(request).await.problem();
    let unauthenticated = problem(401, "UNAUTHENTICATED");
    assert_eq!(refused(signed("somebody else's secret", seconds(), "e1", &body)).await, unauthenticated);
    assert_eq!(refused(signed(SECRET.1, seconds() - 3600, "e1", &body)).await, unauthenticated, "too old");
    assert_eq!(
        refused(from_provider("e1", "charge.captured", &id).without("semel-signature")).await,
        unauthenticated
    );
    let changed = signed(SECRET.1, seconds(), "e1", &body).body(body.replace("event", "thief"));
    assert_eq!(refused(changed).await, unauthenticated);
    let malformed = problem(400, "MALFORMED_REQUEST");
    assert_eq!(refused(signed(SECRET.1, seconds(), "e1", "not JSON")).await, malformed);
    let large = format!("{body}{}", " ".repeat(2 << 20));
    assert_eq!(refused(signed(SECRET.1, seconds(), "e1", &large)).await, problem(413, "REQUEST_TOO_LARGE"));
    let not_found = problem(404, "OPERATION_NOT_FOUND");
    let nobody = "01a1df32-caa3-786d-a196-45c465f24292";
    assert_eq!(refused(from_provider("e1", "charge.captured", nobody)).await, not_found);
    let elsewhere = from_provider("e1", "charge.captured", &id).target("/.well-known/semel/webhooks/nobody");
    assert_eq!(refused(elsewhere).await, not_found);
    let got = from_provider("e1", "charge.captured", &id).method("GET").body("");
    assert_eq!(gateway.send(got).await.status, StatusCode::METHOD_NOT_ALLOWED);
    // An operation that this webhook is not bound to.
    gateway.send(keyed("refund").target("/refunds").set("content-type", "text/plain").doing("outcome")).await;
    let (records, _) = json_of(&site, &["records", "list", "--operation", "refunds.create"]);
    let refund = records[0]["operationId"].as_str().expect("there is one").to_owned();
    assert_eq!(refused(from_provider("e1", "charge.captured", &refund)).await, not_found);
    assert_eq!(gateway.send(keyed("k")).await.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    // None of these events blocks the true one.
    assert_eq!(
        gateway.send(from_provider("e1", "charge.captured", &id)).await.json(),
        json!({ "taken": true })
    );
    assert_eq!(gateway.send(keyed("k")).await.status, StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_on_one_store_look_once_each_time() {
    let (site, bank) = (site(), Bank::start().await);
    // Nothing is found, and the next look-up is an hour away.
    let file = settings(&bank, "", "first_delay = \"1h\"");
    let mut gateways = Vec::new();
    for _ in 0..2 {
        gateways.push(site.start_with(bank.address, &file, &SHORT));
    }
    const COMMANDS: usize = 6;
    let lost = (0..COMMANDS).map(|number| {
        let address = gateways[number % 2].address;
        tokio::spawn(keyed(&format!("k{number}")).doing("hang nothing").to(address))
    });
    for lost in lost.collect::<Vec<_>>() {
        let reply = lost.await.expect("it is answered");
        assert_eq!(reply.problem(), problem(504, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    }
    for _ in 0..1000 {
        if bank.looks().len() >= COMMANDS {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Both go on looking for due commands, and a third process looks, too.
    let pass = json_of(&site, &["reconcile"]);
    assert_eq!((pass.1, &pass.0["looks"]), (1, &json!([])), "nothing is due, and something is unknown");
    let (mut looks, mut calls) = (bank.looks(), bank.calls());
    looks.sort();
    calls.sort();
    assert_eq!(looks, calls, "one look for each command");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_is_given_up_waits_for_an_operator() {
    let (site, bank) = (site(), Bank::start().await);
    let file = settings(&bank, "", "max_attempts = 1");
    let gateway = site.start_with(bank.address, &file, &SHORT);
    gateway.send(keyed("k").doing("hang nothing")).await;
    let id = bank.arrived().await;
    gateway.logs("idempotency_reconcile_dead_letter").await;
    let (unknown, _) = json_of(&site, &["reconcile", "--list"]);
    assert_eq!(
        (&unknown[0]["deadLetter"], &unknown[0]["nextLookAt"]),
        (&json!(true), &Value::Null),
        "{unknown}"
    );
    assert_eq!(gateway.send(keyed("k")).await.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    // An operator requests another look-up, in vain.
    let (look, code) = json_of(&site, &["reconcile", &id]);
    assert_eq!((code, &look["outcome"]), (1, &json!("given_up")), "{look}");
    // The charge appears.
    let charge = json!({ "reference": id, "status": "captured" });
    bank.charges.lock().expect("nobody panics with it").insert(id.clone(), charge);
    let (look, code) = json_of(&site, &["reconcile", &id]);
    assert_eq!(
        (code, &look["outcome"], &look["verdict"]),
        (0, &json!("resolved"), &json!("executed")),
        "{look}"
    );
    assert_eq!(gateway.send(keyed("k")).await.status, StatusCode::CREATED);
    let (look, code) = json_of(&site, &["reconcile", &id]);
    assert_eq!((code, &look["state"]), (0, &json!("succeeded")), "{look}");
    let (pass, code) = json_of(&site, &["reconcile"]);
    assert_eq!((code, &pass["unknown"], &pass["deadLetters"]), (0, &json!(0), &json!(0)), "{pass}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_taken_by_a_killed_gateway_settles_in_the_next_one() {
    let (site, bank) = (site(), Bank::start().await);
    let file = settings(&bank, "", "").replace(&format!("{}/charges", bank.address), "127.0.0.1:1/charges");
    let slow = ["--timeout", "30s", "--lease", "600ms", "--wait", "0s"];
    let mut gateway = site.start_with(bank.address, &file, &slow);
    let cut_off = tokio::spawn(keyed("k").doing("hang").to(gateway.address));
    let id = bank.arrived().await;
    let taken = gateway.send(from_provider("e1", "charge.captured", &id)).await;
    assert_eq!(taken.json(), json!({ "taken": true }));
    gateway.kill();
    assert!(cut_off.await.is_err(), "nobody was left to answer");
    let file = format!("{file}[maintenance]\nsweep_interval = \"50ms\"\n");
    let second = site.start_with(bank.address, &file, &slow);
    let retry = settled(&second, "k").await;
    assert_eq!((retry.status.as_u16(), &retry.json()["by"]), (201, &json!("event")));
    assert_eq!(bank.calls().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn semel_reconcile_settles_unknown_commands_without_a_gateway() {
    let (site, bank) = (site(), Bank::start().await);
    // A gateway without look-ups.
    let mut gateway = site.start(bank.address, &SHORT);
    gateway.send(keyed("k").doing("hang")).await;
    let id = bank.arrived().await;
    gateway.kill();
    let nobody = site.semel().arg("reconcile").output().expect("the program runs");
    assert_eq!(nobody.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("no evidence can be found"), "{nobody:?}");
    let file = site.folder.path().join("other.toml");
    let asks = settings(&bank, "", "").replace("payments.create", "POST /payments");
    std::fs::write(&file, asks).expect("there is room");
    let config = file.to_str().expect("it is text");
    let without = site.semel().env_remove(TOKEN.0).args(["reconcile", "--config", config]).output();
    let without = without.expect("the program runs");
    assert_eq!(without.status.code(), Some(2));
    let said = String::from_utf8_lossy(&without.stderr).into_owned();
    assert!(said.contains("PROVIDER_TOKEN is not set"), "{said}");
    let pass = site.semel().args(["reconcile", "--config", config]).output().expect("the program runs");
    assert_eq!(pass.status.code(), Some(0), "{pass:?}");
    let said = String::from_utf8_lossy(&pass.stdout).into_owned();
    assert!(said.contains(&id) && said.contains("settled: executed"), "{said}");
    let listed = site.semel().args(["reconcile", "--list"]).output().expect("the program runs");
    assert_eq!(listed.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&listed.stderr).contains("0 unknown"), "{listed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_without_its_secret_does_not_start() {
    let (site, bank) = (site(), Bank::start().await);
    std::fs::write(site.folder.path().join("semel.toml"), settings(&bank, "", "")).expect("there is room");
    for (variable, value, told) in [
        (SECRET.0, "", "PROVIDER_WEBHOOK_SECRET is not set, or is empty"),
        (SECRET.0, "short", "at least 16 bytes"),
        (TOKEN.0, "a\nb", "cannot be the value of a header"),
    ] {
        let output = site
            .semel()
            .env(variable, value)
            .args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
            .output()
            .expect("the program runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(told), "{said}");
    }
}

#[test]
fn arguments_of_the_ledger_come_after_it() {
    let site = site();
    std::fs::write(site.folder.path().join("a.csv"), "id\na\n").expect("there is room");
    std::fs::write(site.folder.path().join("other.toml"), "").expect("there is room");
    let ledger = ["ledger", "--ours", "a.csv", "--theirs", "a.csv", "--reference", "id"];
    let run = |first: &[&str]| {
        let arguments = [&["reconcile"], first, &ledger].concat();
        site.semel().args(arguments).output().expect("the program runs")
    };
    assert_eq!(run(&["--config", "other.toml"]).status.code(), Some(0), "a configuration stands anywhere");
    for first in [&["--list"][..], &["--json"], &["--store", "sqlite:semel.db"]] {
        let output = run(first);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("does not go with `ledger`"), "{output:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_has_one_command_looked_for_and_is_noted() {
    let (site, bank) = (site(), Bank::start().await);
    // The gateway's own look-up is an hour away.
    let file = settings(&bank, "", "").replace("20ms", "1h");
    let gateway = site.start_with(bank.address, &file, &SHORT);
    let lost = gateway.send(keyed("captured").doing("hang")).await;
    assert_eq!(lost.problem(), problem(504, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    let id = bank.arrived().await;
    let look = async || {
        let request = gateway.ask("POST", &format!("/admin/v1/records/{id}/reconcile"));
        request.body(r#"{"reason":"the customer asks"}"#).to(gateway.admin).await
    };
    let found = look().await;
    assert_eq!(found.status, 200, "{found:?}");
    let document = found.json();
    assert_eq!((&document["outcome"], &document["operationId"]), (&json!("resolved"), &json!(id)));
    assert!(settled(&gateway, "captured").await.replayed());
    assert_eq!(bank.looks(), [id.as_str()]);
    let again = look().await;
    assert_eq!((again.status.as_u16(), &again.json()["code"]), (409, &json!("ACTION_REFUSED")));
    let noted = site.column("SELECT who || ' ' || action FROM semel_audit ORDER BY who");
    assert_eq!(
        noted,
        ["local reconcile", "reconciler resolve executed"],
        "who wished for it, and what was found"
    );
    let wished = site.column("SELECT why FROM semel_audit WHERE who = 'local'");
    assert_eq!(wished, ["the customer asks"]);
}
