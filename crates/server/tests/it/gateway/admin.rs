//! Admin listener: roles and their actions, the notes about them, and the protection against foreign pages.

use std::collections::HashMap;
use std::time::Duration;

use semel_core::OperationId;
use semel_operations::admin::{ENDPOINTS, Endpoint, EndpointAccess};
use semel_settings::Role;
use serde_json::{Value, json};

use super::lab::{Gateway, Reply, Send, Site, Upstream, pay, problem};

const VIEWER: (&str, &str) = ("VIEWER_TOKEN", "canary-viewer-0123456789abcdef0123456789");
const OPERATOR: (&str, &str) = ("OPERATOR_TOKEN", "canary-operator-0123456789abcdef01234567");
const WRONG: &str = "canary-wrong-0123456789abcdef0123456789abcdef";

const TOKENS: &str = r#"[[admin.token]]
name = "vera"
role = "viewer"
env = "VIEWER_TOKEN"
[[admin.token]]
name = "otto"
role = "operator"
env = "OPERATOR_TOKEN"
"#;

/// Text that only an operator may see.
const CANARY: &str = "canary-body-5f3a9c1e7b2d4860";

/// Gateway with tokens, and with records and messages of every kind in its store.
struct Office {
    site: Site,
    _upstream: std::sync::Arc<Upstream>,
    gateway: Gateway,
}

impl Office {
    async fn open() -> Office {
        Office::open_with(&[]).await
    }

    async fn open_with(arguments: &[&str]) -> Office {
        let (mut site, upstream) = (Site::new(), Upstream::start().await);
        site.variables = vec![VIEWER, OPERATOR];
        let gateway = site.start_with(upstream.address, TOKENS, arguments);
        Office { site, _upstream: upstream, gateway }
    }

    fn ask(&self, method: &'static str, path: &str, token: &str) -> Send {
        self.gateway.ask(method, path).with("authorization", format!("Bearer {token}"))
    }

    async fn get(&self, path: &str) -> Value {
        let reply = self.ask("GET", path, OPERATOR.1).to(self.gateway.admin).await;
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        reply.json()
    }

    async fn act(&self, path: &str, body: &Value) -> Reply {
        self.ask("POST", path, OPERATOR.1).body(body.to_string()).to(self.gateway.admin).await
    }

    /// Runs a command, and returns its operation id.
    async fn command(&self, key: &str, what: &str) -> String {
        let request = pay(&format!(r#"{{"card":"{CANARY}"}}"#));
        let reply = self.gateway.send(request.set("idempotency-key", key).doing(what)).await;
        reply.operation_id().unwrap_or_else(|| panic!("{reply:?}")).to_owned()
    }

    async fn settled(&self) -> String {
        self.command("a-settled-command", "").await
    }

    /// Makes a command with an unknown outcome.
    async fn unknown(&self) -> String {
        self.command("an-unknown-command", "status-200 outcome-unknown").await
    }

    /// Makes a command that provably did not run.
    async fn released(&self) -> String {
        self.command("a-released-command", "status-503 outcome-not-executed").await
    }

    /// Makes a dead message that contains [`CANARY`].
    fn dead_message(&self, operation_id: &str, position: u32, kind: &str) -> String {
        let event_id = format!("{operation_id}:{kind}");
        let (id, payload) = match self.site.is_postgres() {
            true => (format!("'{operation_id}'"), format!("'{CANARY}'::bytea")),
            false => (format!("X'{}'", operation_id.replace('-', "")), format!("CAST('{CANARY}' AS BLOB)")),
        };
        self.site.column(&format!(
            "INSERT INTO semel_outbox (event_id, operation_id, position, kind, payload, state, created_at)
             VALUES ('{event_id}', {id}, {position}, '{kind}', {payload}, 'dead', 1000) RETURNING event_id"
        ));
        event_id
    }

    /// Returns the notes in the store, the newest first: operator, action and reason.
    fn noted(&self) -> Vec<String> {
        self.site
            .column("SELECT who || '|' || action || '|' || why FROM semel_audit ORDER BY at DESC, id DESC")
    }

    /// Returns the actions in the log, once there are this many: operator, action and result.
    async fn actions(&self, count: usize) -> Vec<(String, String, String)> {
        for _ in 0..400 {
            let actions = self.logged();
            if actions.len() >= count {
                return actions;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("there are not {count} actions in the log: {}", self.gateway.log());
    }

    fn logged(&self) -> Vec<(String, String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let log = self.gateway.log();
        let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let actions = events.filter(|event| event["event"] == "admin_action");
        actions.map(|event| (text(&event["who"]), text(&event["what"]), text(&event["result"]))).collect()
    }
}

/// Request to an endpoint, with the status that an operator gets.
struct Case {
    id: String,
    body: Value,
    operator_gets: u16,
}

/// Returns a case for each endpoint, by method and path. A new endpoint needs one here.
async fn cases(office: &Office) -> HashMap<(&'static str, &'static str), Case> {
    let (settled, released, unknown) =
        (office.settled().await, office.released().await, office.unknown().await);
    let (retried, discarded) =
        (office.dead_message(&settled, 0, "made"), office.dead_message(&settled, 1, "paid"));
    let reason = json!({ "reason": "ticket 7" });
    let verdict =
        json!({ "reason": "ticket 7", "verdict": "executed", "status": 201, "body": "{\"found\":1}" });
    let case =
        |id: &str, body: &Value, operator_gets| Case { id: id.to_owned(), body: body.clone(), operator_gets };
    let nothing = || case("", &Value::Null, 200);
    let found = json!({ "operationId": settled });
    let hold = json!({ "kind": "reconciler", "reason": "ticket 7" });
    let other = office.command("another-unknown-command", "status-200 outcome-unknown").await;
    let verdicts = json!({
        "reason": "ticket 7",
        "verdicts": [{ "operationId": other, "verdict": "executed", "status": 201 }],
    });
    let looks = json!({ "reason": "ticket 7", "operationIds": [unknown] });
    let cases = [
        ("/healthz", nothing()),
        ("/readyz", nothing()),
        ("/metrics", nothing()),
        ("/admin/v1/openapi.json", nothing()),
        ("/admin/v1/status", nothing()),
        ("/admin/v1/audit", nothing()),
        ("/admin/v1/records", nothing()),
        ("/admin/v1/records/export", nothing()),
        ("/admin/v1/records/settle", case("", &verdicts, 200)),
        ("/admin/v1/records/find", case("", &found, 200)),
        ("/admin/v1/records/{operationId}", case(&settled, &Value::Null, 200)),
        ("/admin/v1/records/{operationId}/history", case(&settled, &Value::Null, 200)),
        ("/admin/v1/records/{operationId}/request", case(&unknown, &reason, 200)),
        ("/admin/v1/records/{operationId}/response", case(&settled, &reason, 200)),
        ("/admin/v1/records/{operationId}/resolve", case(&unknown, &verdict, 200)),
        ("/admin/v1/records/{operationId}/release", case(&released, &reason, 200)),
        ("/admin/v1/records/{operationId}/purge", case(&settled, &reason, 200)),
        // This configuration names no provider.
        ("/admin/v1/records/{operationId}/reconcile", case(&unknown, &reason, 409)),
        ("/admin/v1/records/reconcile", case("", &looks, 409)),
        ("/admin/v1/outbox", nothing()),
        ("/admin/v1/outbox/{eventId}", case(&retried, &Value::Null, 200)),
        ("/admin/v1/outbox/{eventId}/payload", case(&retried, &reason, 200)),
        ("/admin/v1/outbox/{eventId}/retry", case(&retried, &reason, 200)),
        ("/admin/v1/outbox/{eventId}/discard", case(&discarded, &reason, 200)),
        ("/admin/v1/holds", nothing()),
        ("/admin/v1/holds", case("", &hold, 200)),
        ("/admin/v1/holds/lift", case("", &hold, 200)),
        ("/admin/v1/log-level", nothing()),
        ("/admin/v1/log-level", case("", &json!({ "reason": "ticket 7", "filter": "info" }), 200)),
        ("/admin/v1/callers", nothing()),
        ("/admin/v1/hot-keys", nothing()),
    ];
    let method = |case: &Case| if case.body.is_null() { "GET" } else { "POST" };
    cases.into_iter().map(|(path, case)| ((method(&case), path), case)).collect()
}

fn path(endpoint: &Endpoint, id: &str) -> String {
    endpoint.path.replace("{operationId}", id).replace("{eventId}", id)
}

fn method(endpoint: &Endpoint) -> &'static str {
    if endpoint.method == "GET" { "GET" } else { "POST" }
}

fn is_secured(reply: &Reply, what: &str) {
    for (name, value) in [
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        (
            "content-security-policy",
            "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox",
        ),
        ("x-frame-options", "DENY"),
    ] {
        assert_eq!(reply.header(name), Some(value), "{what}: {name}");
    }
    let cors = reply.headers.keys().find(|name| name.as_str().starts_with("access-control-"));
    assert_eq!(cors, None, "{what}");
}

/// Returns the status and the code of a problem at the admin listener.
pub(super) fn refusal(reply: &Reply) -> (u16, String) {
    assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{reply:?}");
    let document = reply.json();
    assert_eq!(document["status"], reply.status.as_u16(), "{reply:?}");
    assert!(document["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{reply:?}");
    (reply.status.as_u16(), document["code"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn every_admin_endpoint_answers_only_roles_that_may_use_it() {
    let office = Office::open_with(&["--keep-request", "while-unknown"]).await;
    let mut cases = cases(&office).await;
    let send = async |endpoint: &Endpoint, case: &Case, token: Option<&str>| {
        let mut request = office.gateway.ask(method(endpoint), &path(endpoint, &case.id));
        if let Some(token) = token {
            request = request.with("authorization", format!("Bearer {token}"));
        }
        if !case.body.is_null() {
            request = request.body(case.body.to_string());
        }
        let reply = request.to(office.gateway.admin).await;
        is_secured(&reply, endpoint.path);
        reply
    };
    let mut kept = Vec::new();
    for endpoint in &ENDPOINTS {
        let case = cases.remove(&(method(endpoint), endpoint.path));
        let case = case.unwrap_or_else(|| panic!("{} has a case", endpoint.path));
        for token in [None, Some(WRONG)] {
            let reply = send(endpoint, &case, token).await;
            match endpoint.access {
                EndpointAccess::Open => assert_eq!(reply.status, 200, "{}", endpoint.path),
                EndpointAccess::Needs(_) => {
                    assert_eq!(refusal(&reply), problem(401, "UNAUTHENTICATED"), "{}", endpoint.path);
                    assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
                }
            }
        }
        let reply = send(endpoint, &case, Some(VIEWER.1)).await;
        match endpoint.access {
            EndpointAccess::Needs(Role::Operator) => {
                assert_eq!(refusal(&reply), problem(403, "FORBIDDEN"), "{}", endpoint.path);
            }
            EndpointAccess::Open | EndpointAccess::Needs(Role::Viewer) => {
                assert_eq!(reply.status, 200, "{}: {reply:?}", endpoint.path);
            }
        }
        kept.push((endpoint, case));
    }
    assert!(cases.is_empty(), "these are no endpoints any more: {:?}", cases.keys());
    assert_eq!(office.noted(), [""; 0], "nobody who may not has changed anything");
    // Views of a record come before actions on it, like in the table; reconciling comes before the verdict.
    kept.sort_by_key(|(endpoint, _)| (endpoint.action.is_some(), endpoint.action != Some("reconcile")));
    let mut changed = 0;
    for (endpoint, case) in &kept {
        let reply = send(endpoint, case, Some(OPERATOR.1)).await;
        assert_eq!(reply.status, case.operator_gets, "{}: {reply:?}", endpoint.path);
        // The log level is not in the store, and neither is a note about it.
        if endpoint.action.is_some_and(|action| action != "log level") && reply.status == 200 {
            changed += 1;
            let noted = office.noted();
            assert_eq!(noted.len(), changed, "{}: one note: {noted:?}", endpoint.path);
            let what = match endpoint.action.unwrap_or_default() {
                "resolve" | "settle" => "resolve executed",
                "hold" => "hold reconciler",
                "lift" => "lift reconciler",
                what => what,
            };
            let what = match case.id.split_once(':') {
                Some((_, kind)) => format!("{what} {kind}"),
                None => what.to_owned(),
            };
            assert!(noted.contains(&format!("token:otto|{what}|ticket 7")), "{noted:?}");
        }
    }
    let actions: Vec<&str> = kept.iter().filter_map(|(endpoint, _)| endpoint.action).collect();
    let expected: Vec<_> = actions
        .iter()
        .map(|what| {
            let result = if *what == "reconcile" { "ACTION_REFUSED" } else { "done" };
            ("token:otto".to_owned(), (*what).to_owned(), result.to_owned())
        })
        .collect();
    // Exports are logged, too.
    let logged = office.actions(2 * actions.len() + 2).await;
    let (exports, logged): (Vec<_>, Vec<_>) = logged.into_iter().partition(|(_, what, _)| what == "export");
    assert_eq!(exports.len(), 2, "{exports:?}");
    let (by_viewer, by_operator): (Vec<_>, Vec<_>) =
        logged.into_iter().partition(|(who, _, _)| who == "token:vera");
    assert_eq!(by_operator, expected);
    assert_eq!(by_viewer.len(), actions.len(), "what a viewer may not is logged, too: {by_viewer:?}");
    assert!(by_viewer.iter().all(|(_, _, result)| result == "FORBIDDEN"), "{by_viewer:?}");
}

#[tokio::test]
async fn a_viewer_never_sees_request_or_response_bodies() {
    let office = Office::open().await;
    let settled = office.settled().await;
    let message = office.dead_message(&settled, 0, "made");
    office.unknown().await;
    for endpoint in ENDPOINTS.iter().filter(|endpoint| endpoint.method == "GET") {
        let id = if endpoint.path.contains("eventId") { &message } else { &settled };
        let path = path(endpoint, id);
        let reply = office.ask("GET", &path, VIEWER.1).to(office.gateway.admin).await;
        assert_eq!(reply.status, 200, "{path}");
        assert!(!String::from_utf8_lossy(&reply.body).contains("canary"), "{path}: {reply:?}");
        let shown = office.ask("GET", &path, OPERATOR.1).to(office.gateway.admin).await;
        assert!(!String::from_utf8_lossy(&shown.body).contains(CANARY), "{path}: a view shows no content");
    }
}

#[tokio::test]
async fn an_operator_reads_stored_content_with_a_reason_that_is_noted() {
    let office = Office::open().await;
    let (settled, unknown) = (office.settled().await, office.unknown().await);
    let message = office.dead_message(&settled, 0, "made");
    let response = format!("/admin/v1/records/{settled}/response");
    let payload = format!("/admin/v1/outbox/{message}/payload");
    for path in [&response, &payload] {
        let body = json!({ "reason": "ticket 7" }).to_string();
        let reply = office.ask("POST", path, VIEWER.1).body(body).to(office.gateway.admin).await;
        assert_eq!(refusal(&reply), problem(403, "FORBIDDEN"), "{path}");
        let silent = office.act(path, &json!({})).await;
        assert_eq!(refusal(&silent), problem(400, "MALFORMED_REQUEST"), "{path}: without a reason");
        assert!(!String::from_utf8_lossy(&silent.body).contains("canary"), "{silent:?}");
    }
    let reason = json!({ "reason": "ticket 7" });
    let open = office.act(&format!("/admin/v1/records/{unknown}/response"), &reason).await;
    assert_eq!(refusal(&open), problem(404, "NOT_FOUND"), "it has none");
    let nobody = OperationId::from_bytes([7; 16]);
    let absent = office.act(&format!("/admin/v1/records/{nobody}/response"), &reason).await;
    assert_eq!(refusal(&absent), problem(404, "OPERATION_NOT_FOUND"));
    let absent = office.act(&format!("/admin/v1/outbox/{nobody}:made/payload"), &reason).await;
    assert_eq!(refusal(&absent), problem(404, "NOT_FOUND"));
    assert_eq!(office.noted(), [""; 0], "nothing was read, and nothing is noted");

    let shown = office.act(&response, &reason).await.json();
    assert_eq!((&shown["operationId"], &shown["status"]), (&json!(settled), &json!(201)), "{shown}");
    assert_eq!(shown["headers"]["link"], json!(["</a>; rel=\"x, y\", </b>", "</c>"]));
    assert!(shown["body"].as_str().is_some_and(|body| body.contains(CANARY)), "{shown}");
    let shown = office.act(&payload, &reason).await.json();
    assert_eq!(shown, json!({ "eventId": message, "payload": CANARY }));
    let mut noted = office.noted();
    noted.sort();
    assert_eq!(noted, ["token:otto|outbox payload made|ticket 7", "token:otto|response|ticket 7"]);
    let logged = office.actions(9).await;
    let done = logged.iter().filter(|(_, _, result)| result == "done").count();
    assert_eq!(done, 2, "each look is logged, refused ones included: {logged:?}");
    assert!(!office.gateway.log().contains(CANARY), "no content is in the log");
}

#[tokio::test]
async fn an_unknown_that_is_resolved_is_replayed_to_its_client() {
    let office = Office::open().await;
    let unknown = office.unknown().await;
    let retry = || pay(&format!(r#"{{"card":"{CANARY}"}}"#)).set("idempotency-key", "an-unknown-command");
    let before = office.gateway.send(retry()).await;
    assert_eq!(before.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    let status = office.get("/admin/v1/status").await;
    assert_eq!((&status["records"]["unknown"], &status["tier"]), (&json!(1), &json!(1)), "{status}");
    assert!(status["oldestUnknown"].is_string(), "{status}");

    let resolve = format!("/admin/v1/records/{unknown}/resolve");
    let early = office.act(&resolve, &json!({ "reason": "not there", "verdict": "not-executed" })).await;
    assert_eq!(refusal(&early), problem(409, "ACTION_REFUSED"), "a call may still be in flight");
    assert!(early.json()["detail"].as_str().is_some_and(|detail| detail.contains("in flight")), "{early:?}");
    assert_eq!(office.noted(), [""; 0], "what is refused is not noted");
    let verdict = json!({
        "reason": "found in the ledger", "verdict": "executed", "status": 201,
        "headers": { "Location": "/payments/7", "Link": ["</a>", "</b>"] }, "body": "{\"id\":7}",
    });
    let settled = office.act(&resolve, &verdict).await;
    assert_eq!(settled.json(), json!({ "operationId": unknown, "state": "succeeded" }));
    let after = office.gateway.send(retry()).await;
    assert!(after.replayed(), "{after:?}");
    assert_eq!((after.status.as_u16(), &after.body[..]), (201, &b"{\"id\":7}"[..]));
    assert_eq!(after.header("location"), Some("/payments/7"));
    assert_eq!(after.header("content-type"), Some("application/json"));
    assert_eq!(after.headers.get_all("link").iter().count(), 2);
    assert_eq!(office.noted(), ["token:otto|resolve executed|found in the ledger"]);

    let again = office.act(&resolve, &verdict).await;
    assert_eq!(refusal(&again), problem(409, "ACTION_REFUSED"));
    let detail = again.json()["detail"].as_str().expect("it is a text").to_owned();
    let told = format!(
        "{unknown}: it is settled already: succeeded; the last action was resolve executed, by token:otto at "
    );
    assert!(detail.starts_with(&told), "{detail}");
    let history = office.get(&format!("/admin/v1/records/{unknown}/history")).await;
    let told: Vec<_> = history["timeline"].as_array().into_iter().flatten().collect();
    assert!(
        told.iter().any(|entry| entry["who"] == "token:otto" && entry["why"] == "found in the ledger"),
        "{history}"
    );
    let audit = office.get("/admin/v1/audit").await;
    assert_eq!(audit["notes"][0]["operationId"], unknown, "{audit}");
    assert_eq!(audit["notes"][0]["action"], "resolve executed", "{audit}");
}

#[tokio::test]
async fn an_operator_hears_that_a_body_is_not_stored() {
    let office = Office::open_with(&["--store-response", "headers"]).await;
    let unknown = office.unknown().await;
    let verdict = json!({ "reason": "ticket 7", "verdict": "executed", "status": 201, "body": CANARY });
    let settled = office.act(&format!("/admin/v1/records/{unknown}/resolve"), &verdict).await;
    assert_eq!(settled.json(), json!({ "operationId": unknown, "state": "succeeded", "bodyStored": false }));
    let record = office.get(&format!("/admin/v1/records/{unknown}")).await;
    assert_eq!(record["bodyStored"], json!(false));
    let reason = json!({ "reason": "ticket 8" });
    let response = office.act(&format!("/admin/v1/records/{unknown}/response"), &reason).await.json();
    assert_eq!((&response["status"], &response["body"]), (&json!(201), &Value::Null), "{response}");
}

#[tokio::test]
async fn the_command_line_and_the_admin_api_return_the_same_json() {
    let office = Office::open().await;
    let settled = office.settled().await;
    let message = office.dead_message(&settled, 0, "made");
    let printed = |arguments: &[&str]| -> Value {
        let output = office.site.semel().args(arguments).arg("--json").output().expect("it runs");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    };
    let record = format!("/admin/v1/records/{settled}");
    assert_eq!(office.get(&record).await, printed(&["records", "show", &settled]));
    assert_eq!(office.get(&format!("{record}/history")).await, printed(&["records", "explain", &settled]));
    let listed = office.get("/admin/v1/records?state=succeeded&tenant=local&limit=5").await;
    assert_eq!(listed["records"], printed(&["records", "list", "--state", "succeeded"]));
    assert_eq!(listed["next"], Value::Null);
    let shown = office.get(&format!("/admin/v1/outbox/{message}")).await;
    assert_eq!(shown, printed(&["outbox", "show", &message]));
    let dead = office.get("/admin/v1/outbox?state=dead&olderThan=5m").await;
    assert_eq!(dead["messages"], printed(&["outbox", "list", "--state", "dead"]));
}

#[tokio::test]
async fn lists_come_in_pages() {
    let office = Office::open().await;
    let mut ids = Vec::new();
    for number in 0..5 {
        let id = office.command(&format!("a-key-of-its-own-{number}"), "").await;
        office.dead_message(&id, 0, "made");
        let reason = json!({ "reason": number.to_string() });
        let purged = office.act(&format!("/admin/v1/records/{id}/purge"), &reason).await;
        assert_eq!(purged.status, 200);
        ids.push(id);
    }
    ids.sort();
    for (path, list, parameter) in [
        ("/admin/v1/records", "records", "after"),
        ("/admin/v1/outbox", "messages", "after"),
        ("/admin/v1/audit", "notes", "before"),
    ] {
        let (mut found, mut next) = (Vec::new(), String::new());
        for _ in 0..10 {
            let page = office.get(&format!("{path}?limit=2{next}")).await;
            let entries = page[list].as_array().cloned().unwrap_or_default();
            assert!(entries.len() <= 2, "{page}");
            let id = |entry: &Value| entry["operationId"].as_str().unwrap_or_default().to_owned();
            found.extend(entries.iter().map(id));
            match page["next"].as_str() {
                Some(last) => next = format!("&{parameter}={}", last.replace(':', "%3A")),
                None => break,
            }
        }
        found.sort();
        assert_eq!(found, ids, "{path}: each once");
    }
    let why: Vec<Value> = office.get("/admin/v1/audit").await["notes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|note| note["why"].clone())
        .collect();
    assert_eq!(why, ["4", "3", "2", "1", "0"], "the newest first");
}

#[tokio::test]
async fn malformed_admin_requests_get_a_problem_document() {
    let office = Office::open().await;
    let settled = office.settled().await;
    let get = async |path: &str| office.ask("GET", path, OPERATOR.1).to(office.gateway.admin).await;
    assert_eq!(refusal(&get("/nowhere").await), problem(404, "NOT_FOUND"));
    assert_eq!(refusal(&get("/admin").await), problem(404, "NOT_FOUND"));
    let nobody = "01a1df32-caa3-786d-a196-45c465f24292";
    for path in [format!("/admin/v1/records/{nobody}"), format!("/admin/v1/records/{nobody}/history")] {
        assert_eq!(refusal(&get(&path).await), problem(404, "OPERATION_NOT_FOUND"));
    }
    assert_eq!(refusal(&get(&format!("/admin/v1/outbox/{nobody}:made")).await), problem(404, "NOT_FOUND"));
    for (path, hint) in [
        ("/admin/v1/records?stat=unknown", "`state`"),
        ("/admin/v1/records?state=lost", "failed_final"),
        ("/admin/v1/records?olderThan=soon", "`olderThan`: \"soon\" is not a duration"),
        ("/admin/v1/records?since=10m", "only `olderThan` takes a duration"),
        ("/admin/v1/outbox?olderThan=soon", "`olderThan`: \"soon\" is not a duration"),
        ("/admin/v1/records?limit=501", "1 to 500"),
        ("/admin/v1/records?limit=0", "1 to 500"),
        ("/admin/v1/records?limit=1&limit=2", "twice"),
        ("/admin/v1/records?after=x", "operation id"),
        ("/admin/v1/records/x", "operation id"),
        ("/admin/v1/audit?before=x", "id of a note"),
        ("/admin/v1/status?body=true", "none here"),
        (&format!("/admin/v1/records/{settled}?body=true"), "none here"),
    ] {
        let reply = get(path).await;
        assert_eq!(refusal(&reply), problem(400, "MALFORMED_REQUEST"), "{path}");
        let detail = reply.json()["detail"].as_str().unwrap_or_default().to_owned();
        assert!(detail.contains(hint), "{path}: {detail}");
    }
    let purge = format!("/admin/v1/records/{settled}/purge");
    let other = get(&purge).await;
    assert_eq!((other.status.as_u16(), other.header("allow")), (405, Some("POST")));
    assert_eq!(refusal(&other).1, "MALFORMED_REQUEST");
    let other = office.act("/admin/v1/records", &json!({})).await;
    assert_eq!((other.status.as_u16(), other.header("allow")), (405, Some("GET, HEAD")));
    let resolve = format!("/admin/v1/records/{settled}/resolve");
    for (path, body, hint) in [
        (&purge, "", "not JSON"),
        (&purge, "{", "not JSON"),
        (&purge, "[]", "object"),
        (&purge, "{}", "`reason` is missing"),
        (&purge, r#"{"reason":"why","reason":"why"}"#, "two members of the same name"),
        (&purge, r#"{"reason":" "}"#, "must not be empty"),
        (&purge, r#"{"reason":"a\nb"}"#, "one line"),
        (&purge, r#"{"reason":7}"#, "must be a text"),
        (&purge, r#"{"reson":"why"}"#, "did you mean `reason`?"),
        (&resolve, r#"{"reason":"why"}"#, "`verdict`"),
        (&resolve, r#"{"reason":"why","verdict":"maybe"}"#, "`verdict`"),
        (&resolve, r#"{"reason":"why","verdict":"executed"}"#, "`status`"),
        (&resolve, r#"{"reason":"why","verdict":"executed","status":100}"#, "200 to 599"),
        (&resolve, r#"{"reason":"why","verdict":"executed","status":"201"}"#, "200 to 599"),
        (&resolve, r#"{"reason":"why","verdict":"not-executed","status":201}"#, "go with"),
        (&resolve, r#"{"reason":"why","verdict":"executed","status":201,"bodyBase64":"?"}"#, "base64"),
        (
            &resolve,
            r#"{"reason":"why","verdict":"executed","status":201,"headers":{"a b":"c"}}"#,
            "header name",
        ),
    ] {
        let request = office.ask("POST", path, OPERATOR.1).body(body.to_owned());
        let reply = request.to(office.gateway.admin).await;
        assert_eq!(refusal(&reply), problem(400, "MALFORMED_REQUEST"), "{body}");
        let detail = reply.json()["detail"].as_str().unwrap_or_default().to_owned();
        assert!(detail.contains(hint), "{body}: {detail}");
    }
    let large = json!({ "reason": "x".repeat(4 << 20) });
    assert_eq!(refusal(&office.act(&purge, &large).await), problem(413, "REQUEST_TOO_LARGE"));
    let absent = office.act(&format!("/admin/v1/records/{nobody}/purge"), &json!({ "reason": "why" })).await;
    assert_eq!(refusal(&absent), problem(404, "OPERATION_NOT_FOUND"));
    assert_eq!(office.noted(), [""; 0], "nothing was changed");
    assert_eq!(office.get(&format!("/admin/v1/records/{settled}")).await["state"], "succeeded");
}

#[tokio::test]
async fn foreign_hosts_and_pages_cannot_read_or_change_through_the_admin_listener() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let file = "admin_hosts = [\"admin.internal\"]\n";
    let gateway = site.start_with(upstream.address, file, &[]);
    gateway.send(pay("{}")).await;
    let id = gateway.admin("/admin/v1/records").await.json()["records"][0]["operationId"].clone();
    let id: OperationId = id.as_str().unwrap_or_default().parse().expect("it is listed without a token");
    let purge = format!("/admin/v1/records/{id}/purge");
    let act = || gateway.ask("POST", &purge).body(r#"{"reason":"ticket 7"}"#);

    let port = gateway.admin.port();
    for host in ["evil.example".to_owned(), format!("evil.example:{port}"), "lab".to_owned()] {
        for endpoint in &ENDPOINTS {
            let path = path(endpoint, &id.to_string());
            let request = gateway.ask(method(endpoint), &path).set("host", &*host);
            let reply = request.body(r#"{"reason":"ticket 7"}"#).to(gateway.admin).await;
            is_secured(&reply, endpoint.path);
            match endpoint.access {
                EndpointAccess::Open => assert_eq!(reply.status, 200, "{host} {path}"),
                EndpointAccess::Needs(_) => {
                    assert_eq!(refusal(&reply), problem(403, "FORBIDDEN"), "{host} {path}");
                }
            }
        }
    }
    for host in [format!("localhost:{port}"), "[::1]".to_owned(), "admin.internal".to_owned()] {
        let reply = gateway.ask("GET", "/metrics").set("host", &*host).to(gateway.admin).await;
        assert_eq!(reply.status, 200, "{host}");
    }
    for request in [
        act().set("content-type", "text/plain"),
        act().set("content-type", "application/x-www-form-urlencoded"),
        act().without("content-type"),
        act().with("origin", "http://evil.example"),
        act().with("origin", "null"),
        act().with("sec-fetch-site", "cross-site"),
        act().with("sec-fetch-site", "same-site"),
    ] {
        let reply = request.to(gateway.admin).await;
        assert!(matches!(reply.status.as_u16(), 403 | 415), "{reply:?}");
        is_secured(&reply, &purge);
        refusal(&reply);
    }
    let preflight = gateway.ask("GET", &purge).method("OPTIONS").with("origin", "http://evil.example");
    let preflight = preflight.with("access-control-request-method", "POST").to(gateway.admin).await;
    assert_eq!(preflight.status, 403);
    is_secured(&preflight, "preflight");
    assert_eq!(site.states(), ["succeeded"], "nothing was changed");

    let own = act().with("origin", format!("http://{}", gateway.admin)).with("sec-fetch-site", "same-origin");
    assert_eq!(own.to(gateway.admin).await.status, 200, "our own page may");
    let noted = site.column("SELECT who || '|' || action || '|' || why FROM semel_audit");
    assert_eq!(noted, ["local|purge|ticket 7"]);
}

#[tokio::test]
async fn tokens_are_shown_nowhere_and_failed_attempts_are_few_lines() {
    let office = Office::open().await;
    for _ in 0..50 {
        let reply = office.ask("GET", "/admin/v1/records", WRONG).to(office.gateway.admin).await;
        assert_eq!(reply.status, 401);
        assert!(!format!("{reply:?}").contains("canary"), "{reply:?}");
    }
    let id = office.settled().await;
    let done = office.act(&format!("/admin/v1/records/{id}/purge"), &json!({ "reason": "ticket 7" })).await;
    assert_eq!(done.status, 200);
    office.gateway.logs("\"event\":\"admin_action\"").await;
    let log = office.gateway.log();
    assert!(!log.contains("canary"), "{log}");
    let denied = log.lines().filter(|line| line.contains("\"event\":\"admin_denied\"")).count();
    assert!((1..=10).contains(&denied), "{denied} of 50");
    let action: Value = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .find(|event: &Value| event["event"] == "admin_action")
        .expect("it is logged");
    let text = |name: &str| action[name].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        (text("who"), text("operationId"), text("peer")),
        ("token:otto".into(), id, "127.0.0.1".into())
    );
    let shown = office.site.semel().args(["config", "show", "--json"]).output().expect("it runs");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("admin.token.vera.role") && shown.contains("OPERATOR_TOKEN"), "{shown}");
    assert!(!shown.contains("canary"), "{shown}");
}

#[test]
fn tokens_that_cannot_be_used_keep_the_gateway_from_starting() {
    let site = Site::new();
    let token = |name: &str, variable: &str| {
        format!("[[admin.token]]\nname = \"{name}\"\nrole = \"viewer\"\nenv = \"{variable}\"\n")
    };
    for (file, why) in [
        ("admin_listen = \"0.0.0.0:0\"\n".to_owned(), "[[admin.token]]"),
        (token("a", "SHORT_TOKEN"), "has 12 characters, and needs at least 32"),
        (token("a", "NO_TOKEN"), "the variable NO_TOKEN is not set"),
        (token("a", "GOOD_TOKEN") + &token("b", "SAME_TOKEN"), "the same token as that of token:a"),
    ] {
        std::fs::write(site.folder.path().join("semel.toml"), file).expect("there is room");
        for (arguments, code) in [(&["config", "check"][..], 1), (&["serve", "--listen", "127.0.0.1:0"], 2)] {
            let output = site
                .semel()
                .args(arguments)
                .env("SHORT_TOKEN", "canary-short")
                .env("GOOD_TOKEN", "canary-good-0123456789abcdef0123456789")
                .env("SAME_TOKEN", "canary-good-0123456789abcdef0123456789")
                .output()
                .expect("it runs");
            let said = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
            assert_eq!(output.status.code(), Some(code), "{said}");
            assert!(said.contains(why) && !said.contains("canary"), "{said}");
        }
    }
}

#[test]
fn the_admin_page_lists_each_endpoint_with_the_roles_that_may_use_it() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/how-to/admin.md");
    let page = std::fs::read_to_string(page).expect("it is there");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(rows.len(), ENDPOINTS.len());
    for (endpoint, row) in ENDPOINTS.iter().zip(rows) {
        let columns = match endpoint.access {
            EndpointAccess::Open => "| yes | yes | yes |",
            EndpointAccess::Needs(Role::Viewer) => "| 401 | yes | yes |",
            EndpointAccess::Needs(Role::Operator) => "| 401 | 403 | yes |",
        };
        let begin = format!("| `{} {}` |", endpoint.method, endpoint.path);
        assert!(row.starts_with(&begin) && row.ends_with(columns), "{begin} … {columns}: {row}");
    }
}
