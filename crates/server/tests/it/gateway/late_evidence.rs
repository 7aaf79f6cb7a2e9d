//! Evidence that comes late, twice or from the wrong side, at a real gateway with a real provider.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::Html;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::lab::{Gateway, Site, problem};
use super::reconciling::{
    Bank, SECRET, SHORT, event, from_provider, json_of, keyed, seconds, settings, settled, signed, site,
};

/// Returns settings without a look-up: evidence comes by webhook or from an operator.
fn told_only(bank: &Bank) -> String {
    settings(bank, "", "").replace(&format!("{}/charges", bank.address), "127.0.0.1:1/charges")
}

/// Resolves this attempt as not executed, as soon as that is allowed.
async fn say_not_executed(site: &Site, id: &str, attempt: &str) {
    let verdict = ["--verdict", "not-executed", "--attempt", attempt, "--reason", "not in the ledger"];
    for _ in 0..1000 {
        let output = site.semel().args(["records", "resolve", id]).args(verdict).output();
        let output = output.expect("the program runs");
        if output.status.success() {
            return;
        }
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(why.contains("could still be in flight"), "{why}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{id} is never free");
}

async fn metrics(gateway: &Gateway) -> String {
    String::from_utf8(gateway.admin("/metrics").await.body.to_vec()).expect("it is text")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_after_not_executed_settles_the_command_and_the_retry_does_not_run() {
    let (site, bank) = (site(), Bank::start().await);
    let gateway = site.start_with(bank.address, &told_only(&bank), &SHORT);
    gateway.send(keyed("k").doing("hang")).await;
    let id = bank.arrived().await;
    say_not_executed(&site, &id, "1").await;
    let late = gateway.send(from_provider("e1", "charge.captured", &id)).await;
    assert_eq!(late.json(), json!({ "taken": true }));
    let retry = gateway.send(keyed("k")).await;
    assert_eq!((retry.status.as_u16(), retry.replayed()), (201, true), "{retry:?}");
    assert_eq!((&retry.json()["by"], bank.calls().len()), (&json!("event"), 1), "it was called once");
    let (story, _) = json_of(&site, &["records", "explain", &id]);
    let actions: Vec<_> =
        story["timeline"].as_array().into_iter().flatten().map(|entry| &entry["action"]).collect();
    assert!(actions.contains(&&json!("resolve not_executed")), "{story}");
    assert!(actions.contains(&&json!("resolve executed")), "{story}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_about_an_earlier_attempt_is_reported_as_a_contradiction() {
    let (site, bank) = (site(), Bank::start().await);
    let gateway = site.start_with(bank.address, &told_only(&bank), &SHORT);
    gateway.send(keyed("k").doing("hang")).await;
    let id = bank.arrived().await;
    say_not_executed(&site, &id, "1").await;
    assert_eq!(gateway.send(keyed("k")).await.status, StatusCode::CREATED, "it runs again");
    let body = event("e1", "charge.captured", &id).replacen('{', "{\"attempt\":1,", 1);
    let late = gateway.send(signed(SECRET.1, seconds(), "e1", &body)).await;
    assert_eq!(late.json(), json!({ "taken": true }));
    gateway.logs("idempotency_reconcile_contradiction").await;
    let metrics = metrics(&gateway).await;
    assert!(metrics.contains("idempotency_reconcile_contradictions_total 1"), "{metrics}");
    let told = site.semel().args(["records", "explain", &id]).output().expect("the program runs");
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("CONTRADICTION"), "{told}");
    let (shown, _) = json_of(&site, &["records", "show", &id]);
    assert!(shown["notes"].to_string().contains("\"contradiction\""), "{shown}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verdict_without_the_number_of_the_current_attempt_is_refused() {
    let (site, bank) = (site(), Bank::start().await);
    let gateway = site.start_with(bank.address, &told_only(&bank), &SHORT);
    gateway.send(keyed("k").doing("hang nothing")).await;
    let id = bank.arrived().await;
    say_not_executed(&site, &id, "1").await;
    gateway.send(keyed("k").doing("hang")).await;
    bank.arrived().await;
    // The operator looked before the second attempt.
    for verdict in [&["--verdict", "executed", "--status", "201"][..], &["--verdict", "not-executed"]] {
        for attempt in [&[][..], &["--attempt", "1"], &["--attempt", "3"]] {
            let resolve = site
                .semel()
                .args(["records", "resolve", &id, "--reason", "r"])
                .args(verdict)
                .args(attempt)
                .output();
            let resolve = resolve.expect("the program runs");
            let why = String::from_utf8_lossy(&resolve.stderr).into_owned();
            assert_eq!(resolve.status.code(), Some(1), "{verdict:?} {attempt:?}: {why}");
            assert!(why.contains("is at attempt 2") && why.contains("--attempt 2"), "{why}");
        }
    }
    let told = site.semel().args(["records", "explain", &id]).output().expect("the program runs");
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains(&format!("semel records resolve {id} --attempt 2 --verdict executed")), "{told}");
    let executed = ["records", "resolve", &id, "--attempt", "2", "--verdict", "executed", "--status", "201"];
    let resolve = site.semel().args(executed).args(["--reason", "in the ledger"]).output();
    assert!(resolve.expect("the program runs").status.success());
    assert_eq!(gateway.send(keyed("k")).await.status, StatusCode::CREATED);
}

/// Starts a server in the provider's place: every path is gone, and the answer is an HTML page.
async fn retired() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let page = || async { (StatusCode::GONE, Html("<html>this version was retired</html>")) };
    let app = Router::new().fallback(page);
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_says_gone_frees_no_key() {
    let (site, bank) = (site(), Bank::start().await);
    for gone in ["", "gone = \"tombstone\""] {
        let file = settings(&bank, gone, "max_attempts = 1")
            .replace(&format!("{}/charges", bank.address), &format!("{}/charges", retired().await));
        let gateway = site.start_with(bank.address, &file, &SHORT);
        let key = format!("k{}", gone.len());
        gateway.send(keyed(&key).doing("hang")).await;
        let id = bank.arrived().await;
        gateway.logs("idempotency_reconcile_dead_letter").await;
        assert_eq!(gateway.send(keyed(&key)).await.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
        assert_eq!(bank.calls().iter().filter(|call| **call == id).count(), 1, "it was called once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_id_that_comes_again_with_something_else_is_a_conflict() {
    let (site, bank) = (site(), Bank::start().await);
    let gateway = site.start_with(bank.address, &told_only(&bank), &SHORT);
    let mut ids = Vec::new();
    for key in ["one", "other"] {
        gateway.send(keyed(key).doing("hang")).await;
        ids.push(bank.arrived().await);
    }
    let first = || from_provider("e1", "charge.captured", &ids[0]);
    assert_eq!(gateway.send(first()).await.json(), json!({ "taken": true }));
    assert_eq!(gateway.send(first()).await.json(), json!({ "seen": true }), "the same again");
    let body = event("e1", "charge.captured", &ids[0]).replace("\"event\"", "\"another amount\"");
    let others = [
        from_provider("e1", "charge.captured", &ids[1]),
        from_provider("e1", "charge.declined", &ids[0]),
        signed(SECRET.1, seconds(), "e1", &body),
    ];
    for other in others {
        assert_eq!(gateway.send(other).await.problem(), problem(409, "ACTION_REFUSED"));
    }
    assert_eq!(gateway.send(keyed("other")).await.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_settles_commands_of_its_own_tenants_only() {
    let (site, bank) = (site(), Bank::start().await);
    let tenants = |names: &str| {
        told_only(&bank).replace("event_id = \"/id\"", &format!("event_id = \"/id\"\ntenants = [{names}]"))
    };
    let gateway = site.start_with(bank.address, &tenants("\"somebody-else\""), &SHORT);
    gateway.send(keyed("k").doing("hang")).await;
    let id = bank.arrived().await;
    let refused = gateway.send(from_provider("e1", "charge.captured", &id)).await;
    assert_eq!(refused.problem(), problem(404, "OPERATION_NOT_FOUND"));
    assert_eq!(gateway.send(keyed("k")).await.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    drop(gateway);
    let (record, _) = json_of(&site, &["records", "show", &id]);
    let own = record["tenant"].to_string();
    let gateway = site.start_with(bank.address, &tenants(&own), &SHORT);
    assert_eq!(
        gateway.send(from_provider("e1", "charge.captured", &id)).await.json(),
        json!({ "taken": true })
    );
    assert_eq!(settled(&gateway, "k").await.status, StatusCode::CREATED);
}

/// Begins an event with these signature fields, and does not complete it.
async fn dribble(gateway: SocketAddr, head: &str) -> TcpStream {
    let mut stream = TcpStream::connect(gateway).await.expect("it listens");
    let head = format!(
        "POST /.well-known/semel/webhooks/provider HTTP/1.1\r\nhost: gateway\r\ncontent-length: 100\r\n{head}\r\n{{"
    );
    stream.write_all(head.as_bytes()).await.expect("it is sent");
    stream
}

async fn status_line(stream: &mut TcpStream) -> String {
    let mut line = vec![0; 12];
    stream.read_exact(&mut line).await.expect("it is answered");
    String::from_utf8_lossy(&line).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_events_of_one_peer_do_not_block_events_of_another() {
    let (site, bank) = (site(), Bank::start().await);
    let gateway = site.start_with(bank.address, &told_only(&bank), &SHORT);
    gateway.send(keyed("k").doing("hang")).await;
    let id = bank.arrived().await;
    // Without signature fields the gateway does not wait for the rest.
    let mut unsigned = Vec::new();
    for _ in 0..80 {
        unsigned.push(dribble(gateway.address, "").await);
    }
    for stream in &mut unsigned {
        assert_eq!(status_line(stream).await, "HTTP/1.1 401");
    }
    // With plausible fields, a peer has its share and no more. The provider comes from another address.
    let forged = format!("semel-event-id: x\r\nsemel-signature: t={},v1=00\r\n", seconds());
    let mut held = tokio::task::JoinSet::new();
    for _ in 0..9 {
        let mut stream = dribble(gateway.address, &forged).await;
        held.spawn(async move { status_line(&mut stream).await });
    }
    let refused = held.join_next().await.expect("there are some").expect("it does not panic");
    assert_eq!(refused, "HTTP/1.1 503", "one of them is too many");
    let provider = tokio::net::TcpSocket::new_v4().expect("there is one");
    provider.bind("127.0.0.2:0".parse().expect("it is an address")).expect("it is this machine's");
    let mut provider = provider.connect(gateway.address).await.expect("it listens");
    let body = event("e1", "charge.captured", &id);
    let signature =
        semel_flow::outbox::http::signature(SECRET.1.as_bytes(), seconds(), "e1", body.as_bytes());
    let request = format!(
        "POST /.well-known/semel/webhooks/provider HTTP/1.1\r\nhost: gateway\r\ncontent-length: {}\r\nsemel-event-id: e1\r\n\
         semel-signature: {signature}\r\n\r\n{body}",
        body.len()
    );
    provider.write_all(request.as_bytes()).await.expect("it is sent");
    assert_eq!(status_line(&mut provider).await, "HTTP/1.1 200");
    assert_eq!(settled(&gateway, "k").await.status, StatusCode::CREATED);
    drop(held);
}
