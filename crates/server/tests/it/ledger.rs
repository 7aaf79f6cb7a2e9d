//! Comparison of ledgers: by hand, and on a schedule inside a gateway.

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::commands::{run, text};
use crate::gateway::authority::{Authority, Shown};
use crate::gateway::lab::{Gateway, Site, Upstream, lab, pay, semel};
use crate::readme::blocks::{blocks, commands, says};
use crate::snapshot::root;

const OURS: &str = "id,amount,currency,status,at\n\
    a,1200.00,EUR,captured,2026-01-01T00:00:00Z\n\
    b,5,EUR,captured,2026-01-01T00:00:00Z\n\
    c,7,EUR,captured,2026-01-01T00:00:00Z\n\
    d,9,EUR,captured,2026-01-01T00:00:00Z\n\
    d,9,EUR,captured,2026-01-01T00:00:00Z\n\
    n,1,EUR,captured,2999-01-01T00:00:00Z\n\
    x,1,EUR,declined,2026-01-01T00:00:00Z\n";

const THEIRS: &str = r#"{"key":"a:charge","charge":{"amount":1200},"cur":"EUR","state":"captured","made":1767225600}
{"key":"c:charge","charge":{"amount":8.0},"cur":"EUR","state":"captured","made":1767225600}
{"key":"d","charge":{"amount":9},"cur":"EUR","state":"captured","made":1767225600}
{"key":"e","charge":{"amount":2},"cur":"EUR","state":"captured","made":1767225600}
"#;

/// Column names for the comparison.
const NAMES: [&str; 18] = [
    "--reference",
    "id",
    "--compare",
    "amount,currency,status",
    "--time",
    "at",
    "--their-reference",
    "key",
    "--their-compare",
    "/charge/amount,cur,state",
    "--their-time",
    "made",
    "--strip-suffix",
    ":",
    "--our-filter",
    "status=captured",
    "--grace",
    "15m",
];

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().expect("there is room");
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("there is room");
    }
    folder
}

fn ledger(folder: &Path, arguments: &[&str]) -> Output {
    run(folder, &[&["reconcile", "ledger"], arguments].concat())
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("it is JSON: {output:?}"))
}

#[test]
fn differences_of_ledgers_are_reported_as_table_and_json() {
    let folder = folder(&[("ours.csv", OURS), ("theirs.ndjson", THEIRS)]);
    let sides = ["--ours", "ours.csv", "--theirs", "theirs.ndjson"];
    let told = ledger(folder.path(), &[&sides[..], &NAMES].concat());
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    assert_eq!(
        text(&told.stdout),
        "\
KIND            REFERENCE                                 WHERE
missing ours    e                                         their line 4
missing theirs  b                                         our line 3
double ours     d                                         our lines 5, 6; their line 3
different       c                                         amount \"7\" is \"8.0\" in theirs; our line 4; their line 2
ours: 6 entries, and 1 that the filter leaves out
theirs: 4 entries
1 agree, 1 missing ours, 1 missing theirs, 1 double ours, 0 double theirs, 1 different, 1 too young, 0 too old
they do not agree
"
    );
    let told = ledger(folder.path(), &[&sides[..], &NAMES, &["--json"]].concat());
    assert_eq!(told.status.code(), Some(1), "{told:?}");
    let nothing = json!({ "total": 0, "first": [] });
    let only = |reference: &str, ours: &[u32], theirs: &[u32]| json!({ "total": 1, "first": [{ "reference": reference, "ourLines": ours, "theirLines": theirs }] });
    let mut different = only("c", &[4], &[2]);
    different["first"][0]["differences"] = json!([{ "name": "amount", "ours": "7", "theirs": "8.0" }]);
    assert_eq!(
        json_of(&told),
        json!({
            "agree": false,
            "ours": { "entries": 6, "leftOut": 1 },
            "theirs": { "entries": 4, "leftOut": 0 },
            "agreeing": 1,
            "tooYoung": 1,
            "tooOld": 0,
            "missingOurs": only("e", &[], &[4]),
            "missingTheirs": only("b", &[3], &[]),
            "doubleOurs": only("d", &[5, 6], &[3]),
            "doubleTheirs": nothing,
            "different": different,
        })
    );
}

#[test]
fn a_ledger_agrees_with_itself_from_the_standard_input() {
    let folder = folder(&[("ours.csv", "id,amount\na,1\nb,2\n")]);
    let arguments = ["--ours", "-", "--theirs", "ours.csv", "--format", "csv", "--reference", "id"];
    let mut process = semel(folder.path())
        .args([&["reconcile", "ledger", "--compare", "amount"], &arguments[..]].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut input = process.stdin.take().expect("it is piped");
    input.write_all(b"amount,id\n2.0,b\n1.00,a\n").expect("it reads");
    drop(input);
    let told = process.wait_with_output().expect("it ends");
    assert_eq!(told.status.code(), Some(0), "{told:?}");
    assert!(text(&told.stdout).ends_with("they agree\n"), "{told:?}");
}

#[test]
fn ledgers_that_cannot_be_compared_are_refused_with_their_place() {
    let folder = folder(&[
        ("good.csv", "id,at\na,1\n"),
        ("short.csv", "id,at\na,1\nb\n"),
        ("cut.json", "[{\"id\": \"a\"},\n"),
        ("late.csv", "id,at\na,soon\n"),
        ("steering.csv", "id\n\u{1b}[31mred\n"),
        ("unnamed", ""),
        ("semel.toml", "store = \"sqlite:nowhere.db\"\n"),
    ]);
    let by = |ours: &str, theirs: &str, more: &[&str]| {
        ledger(folder.path(), &[&["--ours", ours, "--theirs", theirs, "--reference", "id"], more].concat())
    };
    for (output, why) in [
        (
            by("good.csv", "short.csv", &[]),
            "semel: their ledger: short.csv: line 3: the header has 2 fields, and this has 1",
        ),
        (
            by("cut.json", "good.csv", &[]),
            "semel: our ledger: cut.json: line 2: the list does not end: something is cut off",
        ),
        (
            by("good.csv", "late.csv", &["--time", "at"]),
            "late.csv: line 2: \"soon\" is no time: expected one of RFC 3339",
        ),
        (by("good.csv", "nowhere.csv", &[]), "their ledger: cannot open nowhere.csv: No such file"),
        (
            by("good.csv", "unnamed", &[]),
            "--their-format: missing: the name \"unnamed\" does not show the format",
        ),
        (by("-", "-", &["--format", "csv"]), "--theirs: only one of the two can be the standard input"),
        (
            by("good.csv", "good.csv", &["--compare", "amount"]),
            "good.csv: line 1: there is no column \"amount\"",
        ),
        (by("good.csv", "good.csv", &["--grace", "1h"]), "--grace: needs the age of entries"),
        (by("good.csv", "good.csv", &["--grace", "soon"]), "--grace: \"soon\" is not a duration"),
        (
            by("good.csv", "good.csv", &["--our-filter", "status"]),
            "--our-filter: \"status\" is not a name and its value",
        ),
        (by("store", "good.csv", &["--compare", "at"]), "--compare: our ledger is the store"),
        (by("store", "good.csv", &[]), "there is no store at nowhere.db"),
        (by("good.csv", "ftp://provider.test/x.csv", &[]), "--theirs: expected an address such as"),
        (
            by("good.csv", "http://127.0.0.1:1/x.csv", &["--ca", "ca.crt"]),
            "--ca: has no effect unless the address begins with https://",
        ),
        (by("good.csv", "https://127.0.0.1:1/x.csv", &["--key", "a.key"]), "--key: also needs `certificate`"),
        (
            by("good.csv", "https://127.0.0.1:1/x.csv", &["--ca", "none.crt"]),
            "none.crt: cannot open the file",
        ),
        (
            by("good.csv", "http://127.0.0.1:1/x.csv", &[]),
            "http://127.0.0.1:1/x.csv: cannot connect to 127.0.0.1:1: Connection refused",
        ),
        (ledger(folder.path(), &[]), "name two ledgers with `--ours` and `--theirs`"),
        (ledger(folder.path(), &["--theirs", "good.csv"]), "--ours <LEDGER>"),
    ] {
        assert_eq!(output.status.code(), Some(2), "{why}: {output:?}");
        assert!(text(&output.stderr).contains(why), "{why}: {output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
    let steering = by("good.csv", "steering.csv", &[]);
    assert_eq!(steering.status.code(), Some(1), "{steering:?}");
    assert!(!text(&steering.stdout).contains('\u{1b}'), "it steers no terminal: {steering:?}");
}

/// Starts a gateway with two succeeded payments, a declined one and one of unknown outcome; returns their
/// ids, too.
async fn payments() -> (Site, Arc<Upstream>, Gateway, [String; 4]) {
    let (site, upstream, gateway) = lab(&["--timeout", "300ms"]).await;
    let ids = payments_of(&gateway).await;
    (site, upstream, gateway, ids)
}

async fn payments_of(gateway: &Gateway) -> [String; 4] {
    let mut ids = Vec::new();
    for (key, does) in [("first", ""), ("second", ""), ("declined", "status-402"), ("lost", "gate")] {
        let reply = gateway
            .send(pay("{}").set("idempotency-key", format!("{key}-0123456789abcdef")).doing(does))
            .await;
        let header = reply.headers.get("idempotency-operation-id").and_then(|id| id.to_str().ok());
        let id = header.map_or_else(
            || reply.json()["operationId"].as_str().map(str::to_owned),
            |id| Some(id.to_owned()),
        );
        ids.push(id.expect("it is named"));
    }
    ids.try_into().expect("there are four")
}

#[tokio::test]
async fn reconcile_ledger_compares_the_store_with_the_file_of_the_provider() {
    let (site, _upstream, _gateway, [first, second, declined, lost]) = payments().await;
    let write = |name: &str, text: String| {
        std::fs::write(site.folder.path().join(name), text).expect("there is room");
    };
    let compare_within = |grace: &str, more: &[&str]| {
        let arguments = ["reconcile", "ledger", "--ours", "store", "--theirs", "provider.csv", "--json"];
        let names = ["--their-reference", "key", "--strip-suffix", ":", "--grace", grace];
        let output =
            site.semel().args([&arguments[..], &names, more].concat()).output().expect("the program runs");
        (output.status.code(), json_of(&output))
    };
    let compare = |more: &[&str]| compare_within("0s", more);
    write("provider.csv", format!("key\n{second}:charge\n{first}:charge\n"));
    let (code, told) = compare(&[]);
    assert_eq!((code, &told["agree"], &told["agreeing"]), (Some(0), &json!(true), &json!(2)), "{told}");

    write("provider.csv", format!("key\n{first}:charge\n{lost}:charge\n{declined}:charge\nnobody:charge\n"));
    let (code, told) = compare(&[]);
    assert_eq!(code, Some(1), "{told}");
    assert_eq!(told["missingTheirs"]["first"][0]["reference"], json!(second));
    let missing: Vec<(&Value, &Value)> = told["missingOurs"]["first"]
        .as_array()
        .expect("it is a list")
        .iter()
        .map(|finding| (&finding["reference"], &finding["ourState"]))
        .collect();
    let expected = [
        (&json!(declined), &json!("failed_final")),
        (&json!(lost), &json!("unknown")),
        (&json!("nobody"), &Value::Null),
    ];
    assert_eq!(missing, expected, "{told}");

    let (code, told) = compare_within("1h", &[]);
    assert_eq!(
        (code, &told["tooYoung"]),
        (Some(1), &json!(1)),
        "what we did a moment ago is not missed: {told}"
    );
    let (_, told) = compare(&["--operation", "no.such.operation"]);
    assert_eq!(told["ours"]["entries"], json!(0));
}

/// Provider that answers with its ledger.
#[derive(Clone, Default)]
struct Provider {
    ledger: Arc<Mutex<String>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Provider {
    async fn start(&self) -> std::net::SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let app = Router::new().fallback(answer).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        address
    }

    fn says(&self, ledger: String) {
        *self.ledger.lock().expect("nobody panics with it") = ledger;
    }
}

async fn answer(State(provider): State<Provider>, headers: HeaderMap, uri: axum::http::Uri) -> Response {
    let credential = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or("");
    provider.asked.lock().expect("nobody panics with it").push(format!("{uri} {credential}"));
    let ledger = provider.ledger.lock().expect("nobody panics with it").clone();
    match uri.path() {
        "/charges" if credential == "Bearer canary-credential" => {
            ([("content-type", "application/x-ndjson; charset=utf-8")], ledger).into_response()
        }
        "/charges" => StatusCode::UNAUTHORIZED.into_response(),
        "/page" => ([("content-type", "text/html")], "<p>").into_response(),
        "/packed" => ([("content-type", "text/csv"), ("content-encoding", "gzip")], "x").into_response(),
        _ => (StatusCode::FOUND, [("location", "/charges")]).into_response(),
    }
}

#[tokio::test]
async fn a_ledger_url_without_a_ledger_is_refused_with_the_reason() {
    let provider = Provider::default();
    let address = provider.start().await;
    let folder = folder(&[("ours.csv", "id\na\n")]);
    for (path, why) in [
        ("/charges?token=canary", "/charges: it answers 401 Unauthorized, and 200 is expected"),
        ("/elsewhere", "it answers 302 Found, and 200 is expected"),
        ("/page", "its Content-Type \"text/html\" is not a known one: set `their_format`"),
        ("/packed", "it is sent with \"gzip\" as Content-Encoding"),
    ] {
        let theirs = format!("http://{address}{path}");
        let (folder, arguments) =
            (folder.path().to_owned(), ["--ours", "ours.csv", "--reference", "id", "--theirs"]);
        let told =
            tokio::task::spawn_blocking(move || ledger(&folder, &[&arguments[..], &[&theirs]].concat()));
        let told = told.await.expect("it ends");
        assert_eq!(told.status.code(), Some(2), "{told:?}");
        assert!(text(&told.stderr).contains(why), "{why}: {told:?}");
        assert!(!text(&told.stderr).contains("canary"), "a query is nobody's business: {told:?}");
    }
    assert_eq!(
        provider.asked.lock().expect("nobody panics with it").len(),
        4,
        "nothing is followed or repeated"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_is_read_over_tls_from_a_provider_that_proves_its_name() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    authority.issue("provider", "/CN=provider", &Shown::server("DNS:localhost"));
    authority.issue("semel", "/CN=semel", &Shown::client());
    let provider = Provider::default();
    provider.says("{\"id\": \"a\"}\n".to_owned());
    let port = authority.encrypt_for("provider", provider.start().await, Some(&authority)).await;
    let compared = async |ca: &Authority| {
        let folder = folder(&[("ours.csv", "id\na\n")]);
        let path = |path: std::path::PathBuf| path.display().to_string();
        let files =
            [path(ca.certificate()), path(authority.path("semel.crt")), path(authority.path("semel.key"))];
        let mut command = semel(folder.path());
        command
            .args(["reconcile", "ledger", "--ours", "ours.csv", "--reference", "id"])
            .args([
                "--theirs",
                &format!("https://localhost:{port}/charges"),
                "--authorization-env",
                "CREDENTIAL",
            ])
            .args(["--ca", &files[0], "--certificate", &files[1], "--key", &files[2]])
            .env("CREDENTIAL", "Bearer canary-credential");
        let run = move || {
            let _folder = folder;
            command.output().expect("the program runs")
        };
        tokio::task::spawn_blocking(run).await.expect("it ends")
    };
    let untrusted = compared(&stranger).await;
    assert_eq!(untrusted.status.code(), Some(2), "{untrusted:?}");
    assert!(text(&untrusted.stderr).contains("invalid peer certificate"), "{untrusted:?}");
    assert!(provider.asked.lock().expect("nobody panics with it").is_empty(), "it was told nothing");
    let trusted = compared(&authority).await;
    assert!(text(&trusted.stdout).ends_with("they agree\n"), "{trusted:?}");
    assert!(trusted.stderr.is_empty(), "{trusted:?}");
}

#[tokio::test]
async fn a_ledger_without_content_length_or_chunks_is_refused() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let answer = "HTTP/1.1 200 OK\r\ncontent-type: text/csv\r\n\r\nid\na\n";
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let folder = folder(&[("ours.csv", "id\na\n")]);
    let theirs = format!("http://{address}/charges");
    let path = folder.path().to_owned();
    let told = tokio::task::spawn_blocking(move || {
        ledger(&path, &["--ours", "ours.csv", "--reference", "id", "--theirs", &theirs])
    });
    let told = told.await.expect("it ends");
    assert_eq!(told.status.code(), Some(2), "{told:?}");
    assert!(text(&told.stderr).contains("neither a Content-Length nor chunks"), "{told:?}");
}

/// Returns a gateway's metric of this name and label.
async fn metric(gateway: &Gateway, name: &str) -> Option<f64> {
    let metrics = gateway.admin("/metrics").await.body;
    let metrics = String::from_utf8_lossy(&metrics).into_owned();
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    Some(line.parse().expect("it is a number"))
}

/// Waits until a gateway's metric is over this value.
async fn more_than(gateway: &Gateway, name: &str, least: f64) {
    while metric(gateway, name).await.is_none_or(|value| value <= least) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const RUNS: &str = "idempotency_ledger_runs_total";

#[tokio::test]
async fn a_gateway_compares_ledgers_on_a_schedule_and_reports_findings() {
    let provider = Provider::default();
    let theirs = provider.start().await;
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let file = format!(
        "[ledger]\ntheirs = \"http://{theirs}/charges\"\nauthorization_env = \"LEDGER_TEST_CREDENTIAL\"\n\
         their_reference = \"key\"\nstrip_suffix = \":\"\ntheir_filter = [\"state=captured\"]\ngrace = \"0s\"\n\
         interval = \"100ms\"\nfirst_after = \"0s\"\n"
    );
    // Without its credential, the gateway does not start.
    std::fs::write(site.folder.path().join("semel.toml"), &file).expect("there is room");
    let refused =
        site.semel().args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]).output();
    let refused = refused.expect("the program runs");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("the variable LEDGER_TEST_CREDENTIAL"), "{refused:?}");

    let variables = [("LEDGER_TEST_CREDENTIAL", "Bearer canary-credential")];
    let gateway = site.start_in(upstream.address, &file, &["--timeout", "300ms"], &variables);
    let runs = |outcome: &str| format!("{RUNS}{{outcome=\"{outcome}\"}}");
    let findings = |kind: &str| format!("idempotency_ledger_findings{{kind=\"{kind}\"}}");
    more_than(&gateway, &runs("agree"), 0.0).await;
    let [first, second, declined, lost] = payments_of(&gateway).await;
    let charge = |id: &str, state: &str| {
        format!("{{\"key\": \"{id}:charge\", \"state\": \"{state}\", \"card\": \"canary-card\"}}\n")
    };
    let captured = [&first, &lost, &lost].map(|id| charge(id, "captured")).concat();
    provider.says(captured + &charge(&declined, "declined"));
    // One run may have begun before; the next but one has seen everything.
    let differ = metric(&gateway, &runs("differ")).await.unwrap_or(0.0);
    more_than(&gateway, &runs("differ"), differ + 1.0).await;
    for (kind, expected) in [
        ("missing_ours", 1.0),
        ("missing_theirs", 1.0),
        ("double_ours", 0.0),
        ("double_theirs", 1.0),
        ("different", 0.0),
    ] {
        assert_eq!(metric(&gateway, &findings(kind)).await, Some(expected), "{kind}");
    }
    assert!(
        metric(&gateway, "idempotency_ledger_last_run_timestamp_seconds").await.is_some_and(|at| at > 1.7e9)
    );

    provider.says("{\"key\": 1\n".to_owned());
    more_than(&gateway, &runs("failed"), 0.0).await;
    while !gateway.log().contains("idempotency_ledger_failed") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let log = gateway.log();
    let events: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let has = |event: &str, kind: Value, reference: &str, state: Value| {
        events.iter().any(|found| {
            found["event"] == event
                && found["kind"] == kind
                && found["reference"] == reference
                && found.get("state").unwrap_or(&Value::Null) == &state
        })
    };
    assert!(has("idempotency_ledger_finding", json!("missing_theirs"), &second, Value::Null), "{log}");
    assert!(has("idempotency_ledger_finding", json!("missing_ours"), &lost, json!("unknown")), "{log}");
    let is_summary =
        |event: &&Value| event["event"] == "idempotency_ledger_compared" && event["agree"] == json!(false);
    let summary = events.iter().rfind(is_summary).expect("it is summed up");
    assert_eq!((&summary["missing_ours"], &summary["theirs"]), (&json!(1), &json!(3)), "{summary}");
    let failed =
        events.iter().find(|event| event["event"] == "idempotency_ledger_failed").expect("it is told");
    let why = failed["error"].as_str().expect("it says why");
    assert!(why.contains("/charges: line 1: not JSON"), "{why}");
    assert!(!log.contains("canary"), "{log}");

    // By hand, with the same result.
    provider.says(charge(&first, "captured") + &charge(&second, "captured"));
    let mut by_hand = site.semel();
    by_hand.args(["reconcile", "ledger"]).env(variables[0].0, variables[0].1);
    let told =
        tokio::task::spawn_blocking(move || by_hand.output()).await.expect("it ends").expect("it runs");
    assert_eq!(told.status.code(), Some(0), "{told:?}");
}

#[tokio::test]
async fn a_ledger_that_is_too_large_or_too_slow_is_not_waited_for() {
    let provider = Provider::default();
    let theirs = provider.start().await;
    provider.says("{\"key\": \"a\"}\n".repeat(1000));
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let silence = silent.local_addr().expect("it is bound");
    for (settings, why) in [
        (
            format!(
                "theirs = \"http://{theirs}/charges\"\nmax_size = \"4KiB\"\nauthorization_env = \"LEDGER_TEST_CREDENTIAL\"\n"
            ),
            "it is larger than 4096 bytes",
        ),
        (
            format!("theirs = \"http://{silence}/charges\"\ntimeout = \"100ms\"\n"),
            "not all of it arrived within 100ms",
        ),
    ] {
        let site = Site::new();
        // A store that exists, and has no records.
        let made = site.semel().args(["keys", "create", "--tenant", "acme", "--caller", "shop"]).output();
        let made = made.expect("the program runs");
        assert!(made.status.success(), "{made:?}");
        let file = format!("[ledger]\nreference = \"key\"\n{settings}");
        std::fs::write(site.folder.path().join("semel.toml"), file).expect("there is room");
        let mut command = site.semel();
        command.args(["reconcile", "ledger"]).env("LEDGER_TEST_CREDENTIAL", "Bearer canary-credential");
        let told =
            tokio::task::spawn_blocking(move || command.output()).await.expect("it ends").expect("it runs");
        assert_eq!(told.status.code(), Some(2), "{told:?}");
        assert!(text(&told.stderr).contains(why), "{why}: {told:?}");
    }
}

/// Runs the examples on ledgers in `docs/src/how-to/ledger.md`. Those about the store are tested above.
#[test]
fn the_examples_of_the_ledger_page_work_as_shown() {
    let page = std::fs::read_to_string(root().join("docs/src/how-to/ledger.md")).expect("it is there");
    let folder = TempDir::new().expect("there is room");
    let write =
        |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("there is room");
    let mut said = String::new();
    let mut tried = Vec::new();
    for block in blocks(&page) {
        match block.language.as_str() {
            "csv" => write("charges.csv", &block.text),
            "json" => write("provider.ndjson", &block.text),
            "toml" => {
                write("semel.toml", &block.text);
                let checked = run(folder.path(), &["config", "check"]);
                assert_eq!(checked.status.code(), Some(0), "{checked:?}");
            }
            "sh" => {
                for command in
                    commands(&block.text).iter().filter(|command| !command.line.contains("--ours store"))
                {
                    let words: Vec<&str> = command.line.split(' ').skip(1).collect();
                    let output = run(folder.path(), &words);
                    assert_eq!(output.status.code(), Some(command.code), "{}: {output:?}", command.line);
                    said = text(&output.stdout);
                }
            }
            "text" => says(&said, &block.text).unwrap_or_else(|why| panic!("{why}\nIt said:\n{said}")),
            other => panic!("nobody tries a block of {other:?}"),
        }
        tried.push(block.language);
    }
    assert_eq!(tried, ["csv", "json", "sh", "text", "sh", "toml"], "the blocks are found");
}
