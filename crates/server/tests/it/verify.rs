//! `semel verify`: it finds no fault in Semel, and the one fault of each broken shop.

mod shop;

use std::net::SocketAddr;
use std::process::Output;

use serde_json::Value;
use shop::{Flaw, Shop};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::gateway::authority::{Authority, Shown};
use crate::gateway::lab::{Site, semel};

const PAYMENT: &str = r#"{"amount": 5, "currency": "EUR", "to": {"name": "Zoë", "iban": "x"}}"#;

/// Runs `semel verify` on `/payments` of this server, as alice.
async fn verify(server: SocketAddr, body: &str, arguments: &[String]) -> Output {
    let folder = TempDir::new().expect("there is room");
    std::fs::write(folder.path().join("payment.json"), body).expect("there is room");
    let mut command = semel(folder.path());
    command
        .args(["verify", "--body", "payment.json", "--header", "X-User: alice"])
        .args(["--url", &format!("http://{server}/payments")])
        .args(arguments);
    tokio::task::spawn_blocking(move || {
        let _folder = folder;
        command.output().expect("the program runs")
    })
    .await
    .expect("it does not panic")
}

/// Runs `semel verify` on `/payments` of this port of `localhost`, over TLS.
async fn verify_over_tls(port: u16, arguments: &[String]) -> Output {
    let url = format!("https://localhost:{port}/payments");
    let folder = TempDir::new().expect("there is room");
    std::fs::write(folder.path().join("payment.json"), PAYMENT).expect("there is room");
    let mut command = semel(folder.path());
    command
        .args(["verify", "--body", "payment.json", "--header", "X-User: alice", "--url", &url])
        .args(["--other-header", "X-User: bob", "--count-url", &format!("https://localhost:{port}/count")])
        .args(arguments);
    tokio::task::spawn_blocking(move || {
        let _folder = folder;
        command.output().expect("the program runs")
    })
    .await
    .expect("it does not panic")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shop_is_tried_over_tls_once_it_is_trusted() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    authority.issue("shop", "/CN=shop", &Shown::server("DNS:localhost"));
    let shop = Shop::open(Flaw::None).await;
    let port = authority.encrypt("shop", shop.address).await;
    let ca = |authority: &Authority| ["--ca".to_owned(), authority.certificate().display().to_string()];
    for untrusted in [&[][..], &ca(&stranger)] {
        let output = verify_over_tls(port, untrusted).await;
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains("invalid peer certificate"), "{output:?}");
    }
    assert_eq!(shop.payments(), 0, "nothing was sent");
    let trusted = verify_over_tls(port, &ca(&authority)).await;
    assert!(text(&trusted.stdout).contains("Every must holds.\nEvery should holds."), "{trusted:?}");
    assert!(trusted.stderr.is_empty(), "{trusted:?}");
    let insecure = verify_over_tls(port, &["--insecure".to_owned(), "--json".to_owned()]).await;
    assert!(text(&insecure.stderr).contains("NO CERTIFICATE IS CHECKED"), "{insecure:?}");
    let report = report(&insecure);
    assert!(
        rules(&report, "must", "fail").is_empty() && rules(&report, "must", "pass").len() == 8,
        "{report:#}"
    );
}

/// Returns the arguments with which every rule can be tested.
fn everything(counter: SocketAddr) -> Vec<String> {
    let count = format!("http://{counter}/count");
    ["--other-header", "X-User: bob", "--count-url", &count].map(str::to_owned).to_vec()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("it prints text")
}

/// Returns the report of a run.
fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn rules(report: &Value, level: &str, outcome: &str) -> Vec<String> {
    let rules = report["rules"].as_array().expect("it is a list").iter();
    let wanted = rules.filter(|rule| rule["level"] == level && rule["outcome"] == outcome);
    wanted.map(|rule| rule["rule"].as_str().expect("it is text").to_owned()).collect()
}

async fn broken_musts(flaw: Flaw) -> Vec<String> {
    let shop = Shop::open(flaw).await;
    let mut arguments = everything(shop.address);
    arguments.push("--json".to_owned());
    let output = verify(shop.address, PAYMENT, &arguments).await;
    let report = report(&output);
    let broken = rules(&report, "must", "fail");
    assert_eq!(output.status.code(), Some(i32::from(!broken.is_empty())), "{report:#}");
    assert_eq!(report["broken"], serde_json::json!(broken));
    broken
}

/// Starts a gateway in front of a shop that ignores keys.
fn protect(site: &Site, shop: &Shop, arguments: &[&str]) -> crate::gateway::lab::Gateway {
    let identity = "[identity]\nsource = \"trusted-headers\"\ntrusted_proxies = [\"127.0.0.1\"]\n\
                    tenant_header = \"X-Tenant\"\ncaller_header = \"X-User\"\n";
    site.start_with(shop.address, identity, arguments)
}

#[tokio::test]
async fn semel_keeps_every_rule() {
    let (site, shop) = (Site::new(), Shop::open(Flaw::IgnoresKeys).await);
    let gateway = protect(&site, &shop, &[]);
    let mut arguments = everything(shop.address);
    arguments.extend(["--header", "X-Tenant: acme"].map(str::to_owned));
    let output = verify(gateway.address, PAYMENT, &arguments).await;
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}{}", text(&output.stderr));
    assert!(said.contains("Every must holds.\nEvery should holds."), "{said}");
    assert!(!said.contains("fail") && !said.contains("not tried"), "{said}");
    assert!(!said.contains('\u{1b}'), "no colour where there is no terminal");
    arguments.push("--json".to_owned());
    let report = report(&verify(gateway.address, PAYMENT, &arguments).await);
    assert_eq!(rules(&report, "must", "pass").len() + rules(&report, "should", "pass").len(), 20);
}

/// Tests a gateway with these settings, which violate no rule.
async fn passes_with(settings: &[&str], extra: &[&str]) {
    let (site, shop) = (Site::new(), Shop::open(Flaw::IgnoresKeys).await);
    let gateway = protect(&site, &shop, settings);
    let mut arguments = everything(shop.address);
    arguments
        .extend(["--header", "X-Tenant: acme", "--json"].iter().chain(extra).map(|text| text.to_string()));
    let report = report(&verify(gateway.address, PAYMENT, &arguments).await);
    assert_eq!(rules(&report, "must", "pass").len(), 8, "{settings:?}: {report:#}");
    assert!(rules(&report, "should", "fail").is_empty(), "{settings:?}: {report:#}");
}

#[tokio::test]
async fn verify_finds_no_broken_rule_in_semel_with_other_settings() {
    tokio::join!(
        passes_with(&["--profile", "stripe"], &["--profile", "stripe"]),
        passes_with(&["--in-progress", "accepted", "--wait", "0s"], &[]),
        passes_with(&["--key-syntax", "strict", "--wait", "0s"], &[]),
    );
}

#[tokio::test]
async fn verify_with_the_stripe_profile_reports_problem_documents_as_failures() {
    let (site, shop) = (Site::new(), Shop::open(Flaw::IgnoresKeys).await);
    let gateway = protect(&site, &shop, &[]);
    let mut arguments = everything(shop.address);
    arguments.extend(["--header", "X-Tenant: acme", "--json", "--profile", "stripe"].map(str::to_owned));
    let report = report(&verify(gateway.address, PAYMENT, &arguments).await);
    let broken = rules(&report, "should", "fail");
    assert_eq!(broken, ["replay-marked", "changed-code", "problem-details"], "{report:#}");
}

#[tokio::test]
async fn a_shop_that_does_it_right_passes() {
    let shop = Shop::open(Flaw::None).await;
    let output = verify(shop.address, PAYMENT, &everything(shop.address)).await;
    assert!(text(&output.stdout).contains("Every must holds.\nEvery should holds."), "{output:?}");
}

#[tokio::test]
async fn keys_that_are_ignored_are_found_everywhere() {
    assert_eq!(
        broken_musts(Flaw::IgnoresKeys).await,
        [
            "retry-runs-once",
            "respelled-runs-once",
            "changed-is-no-retry",
            "duplicates-run-once",
            "disconnect-runs-once"
        ]
    );
}

#[tokio::test]
async fn a_check_before_the_act_is_found_by_duplicates() {
    assert_eq!(broken_musts(Flaw::ChecksThenActs).await, ["duplicates-run-once"]);
}

#[tokio::test]
async fn a_missing_fingerprint_is_found_by_a_changed_value() {
    assert_eq!(broken_musts(Flaw::NoFingerprint).await, ["changed-is-no-retry"]);
}

#[tokio::test]
async fn another_spelling_that_runs_is_found() {
    assert_eq!(broken_musts(Flaw::RunsOtherSpellings).await, ["respelled-runs-once"]);
}

#[tokio::test]
async fn a_foreign_answer_is_found_by_a_second_caller() {
    assert_eq!(broken_musts(Flaw::SharesCallers).await, ["callers-are-apart"]);
}

#[tokio::test]
async fn a_replay_that_is_changed_is_found() {
    assert_eq!(broken_musts(Flaw::ChangesBytes).await, ["replay-is-exact"]);
    assert_eq!(broken_musts(Flaw::ChangesHeaders).await, ["replay-is-exact"]);
}

#[tokio::test]
async fn command_that_ends_with_its_client_is_found_by_hanging_up() {
    assert_eq!(broken_musts(Flaw::ForgetsWithItsClient).await, ["disconnect-runs-once"]);
}

#[tokio::test]
async fn a_replay_to_a_get_is_found() {
    assert_eq!(broken_musts(Flaw::ReplaysToGet).await, ["get-is-no-replay"]);
}

#[tokio::test]
async fn a_refused_retry_breaks_no_must() {
    let shop = Shop::open(Flaw::RefusesRetries).await;
    let mut arguments = everything(shop.address);
    arguments.extend(["--timeout", "400ms", "--json"].map(str::to_owned));
    let output = verify(shop.address, PAYMENT, &arguments).await;
    let report = report(&output);
    assert_eq!((output.status.code(), rules(&report, "must", "fail").len()), (Some(0), 0), "{report:#}");
    assert_eq!(rules(&report, "must", "not tried"), ["replay-is-exact"]);
    assert!(rules(&report, "should", "fail").contains(&"replay-given".to_owned()), "{report:#}");
}

#[tokio::test]
async fn without_a_counter_the_answers_themselves_are_compared() {
    let shop = Shop::open(Flaw::ChecksThenActs).await;
    let output = verify(shop.address, PAYMENT, &["--json".to_owned()]).await;
    let report = report(&output);
    assert_eq!(
        (output.status.code(), rules(&report, "must", "fail")),
        (Some(1), vec!["duplicates-run-once".into()])
    );
    assert_eq!(rules(&report, "must", "not tried"), ["disconnect-runs-once", "callers-are-apart"]);
}

#[tokio::test]
async fn rules_that_cannot_be_judged_are_not_tried() {
    let shop = Shop::open(Flaw::SaysNothing).await;
    let output = verify(shop.address, "not JSON", &["--json".to_owned()]).await;
    let report = report(&output);
    assert_eq!(output.status.code(), Some(0));
    let not_tried = rules(&report, "must", "not tried");
    for rule in ["retry-runs-once", "respelled-runs-once", "duplicates-run-once", "disconnect-runs-once"] {
        assert!(not_tried.contains(&rule.to_owned()), "{rule}: {report:#}");
    }
    let said = text(&verify(shop.address, "not JSON", &[]).await.stdout);
    assert!(said.contains("executions cannot be counted") && said.contains("the body is not JSON"), "{said}");
    assert!(said.contains("that could be tried holds; not tried: retry-runs-once, "), "{said}");
}

#[tokio::test]
async fn a_counter_that_does_not_count_is_not_trusted() {
    let (shop, idle) = (Shop::open(Flaw::None).await, Shop::open(Flaw::None).await);
    let mut arguments = everything(idle.address);
    arguments.push("--json".to_owned());
    let report = report(&verify(shop.address, PAYMENT, &arguments).await);
    assert!(report["executions"][0].as_str().expect("text").contains("cannot be trusted"), "{report:#}");
    assert_eq!(rules(&report, "must", "not tried"), ["disconnect-runs-once"]);
    assert_eq!(idle.payments(), 0);
}

#[tokio::test]
async fn a_failure_is_shown_with_its_evidence_and_without_credentials() {
    let shop = Shop::open(Flaw::ChangesHeaders).await;
    let arguments = ["--header", "Authorization: Bearer hush-hush"].map(str::to_owned);
    let output = verify(shop.address, PAYMENT, &arguments).await;
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    for shown in [
        "fail       replay-is-exact",
        r#"the field x-note was "thanks", then "thanks again""#,
        "> the same again: POST /payments Idempotency-Key: \"verify-",
        "< 201",
        "location: /payments/1",
        "A must is broken: replay-is-exact.",
    ] {
        assert!(said.contains(shown), "{shown}: {said}");
    }
    assert!(!said.contains("hush-hush"), "{said}");
}

#[tokio::test]
async fn endpoint_that_cannot_be_tried_exits_with_2() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let nobody = listener.local_addr().expect("it is bound");
    drop(listener);
    let unreachable = verify(nobody, PAYMENT, &[]).await;
    assert_eq!(unreachable.status.code(), Some(2));
    assert!(text(&unreachable.stderr).contains("cannot connect"), "{unreachable:?}");

    let shop = Shop::open(Flaw::None).await;
    let wrong = [
        (vec!["--timeout", "1h"], "from 100 ms to 60 s"),
        (vec!["--header", "no colon"], "Name: value"),
        (vec!["--header", "Idempotency-Key: mine"], "sets idempotency-key itself"),
        (vec!["--count-url", "ftp://127.0.0.1/"], "it does not begin with http:// or https://"),
        (vec!["--insecure"], "--insecure goes with an https:// URL only"),
        (vec!["--ca", "ca.crt"], "--ca goes with an https:// URL only"),
        (vec!["--count-url", "https://127.0.0.1/", "--ca", "none.crt"], "none.crt: cannot open the file"),
        (vec!["--profile", "other"], "ietf"),
        (vec!["--other-header", "X-User: alice"], "another caller"),
    ];
    for (arguments, said) in wrong {
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        let output = verify(shop.address, PAYMENT, &arguments).await;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(said), "{output:?}");
    }
    assert_eq!(shop.payments(), 0);

    let (site, shop) = (Site::new(), Shop::open(Flaw::IgnoresKeys).await);
    let gateway = protect(&site, &shop, &[]);
    let refused = verify(gateway.address, PAYMENT, &[]).await;
    assert_eq!(refused.status.code(), Some(2), "it has no tenant");
    assert!(
        text(&refused.stderr).contains("401") && text(&refused.stderr).contains("--header"),
        "{refused:?}"
    );
}

/// Answers every connection with these bytes.
async fn answering(bytes: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let bytes = bytes.clone();
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(&bytes).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn verify_never_panics_on_a_malformed_answer() {
    let mut endless = b"HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n".to_vec();
    endless.resize(3 << 20, b'x');
    let head =
        |field: &str| format!("HTTP/1.1 200 OK\r\n{field}\r\ncontent-length: 2\r\n\r\n{{}}").into_bytes();
    let mut binary = head("location: x");
    binary.splice(26..27, [0xff, 0x80]);
    for (bytes, code) in [
        (endless, 2),
        (Vec::new(), 2),
        (b"\x00\xff garbage".to_vec(), 2),
        (b"HTTP/1.1 999 What\r\n\r\n".to_vec(), 2),
        (head(&"x: y\r\n".repeat(300)), 2),
        (head(&format!("x: {}", "y".repeat(200_000))), 2),
        (head("idempotency-expires: \u{1}"), 2),
        (head("idempotency-expires: soon"), 1),
        (binary, 1),
    ] {
        let output = verify(answering(bytes.clone()).await, PAYMENT, &["--timeout=300ms".to_owned()]).await;
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        assert_eq!(output.status.code(), Some(code), "{shown}: {output:?}");
        assert!(!text(&output.stderr).contains("panicked"), "{shown}: {output:?}");
    }
}
