//! The admin API and the console under a path of the service.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::post;
use axum::{Extension, Router};
use semel::admin::{AdminRouter, Role};
use semel::{MemoryStore, Operation, Outcome, Principal, Semel};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const OTTO: &str = "otto-0123456789abcdef0123456789abcdef";
const VERA: &str = "vera-0123456789abcdef0123456789abcdef";

fn semel() -> Semel {
    let builder = Semel::builder(Arc::new(MemoryStore::new()))
        .identify(|head| {
            let user = head.headers.get("x-user").and_then(|value| value.to_str().ok());
            Ok(Principal::new("acme", user.unwrap_or_default())?)
        })
        .operation(Operation::new("payments.create", "POST /payments").alias("payments.new"));
    builder.build().expect("it can be built")
}

/// Service whose payments end without a known outcome, with the admin router below `/ops`.
async fn serve(semel: &Semel) -> SocketAddr {
    let ops = AdminRouter::new(semel).token("otto", Role::Operator, OTTO).token("vera", Role::Viewer, VERA);
    let lost =
        || async { (StatusCode::INTERNAL_SERVER_ERROR, Extension(Outcome::Unknown), "lost").into_response() };
    let app = Router::new()
        .route("/payments", post(lost))
        .layer(semel.layer())
        .nest("/ops", ops.build().expect("the tokens can be used"));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Sends one request over a connection of its own, and returns the whole answer.
async fn send(address: SocketAddr, line: &str, fields: &[(&str, &str)], body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!(
        "{line} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n{fields}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it is answered");
    answer
}

fn bearer(token: &str) -> (&'static str, String) {
    ("authorization", format!("Bearer {token}"))
}

async fn ask(address: SocketAddr, line: &str, token: &str, body: &str) -> String {
    let (name, value) = bearer(token);
    send(address, line, &[(name, &value), ("content-type", "application/json")], body).await
}

async fn pay(address: SocketAddr) -> String {
    send(address, "POST /payments", &[("x-user", "alice"), ("idempotency-key", "the-first-payment-01")], "")
        .await
}

#[tokio::test]
async fn an_operator_settles_an_unknown_under_a_path_of_the_service() {
    let semel = semel();
    let address = serve(&semel).await;
    pay(address).await;
    assert!(pay(address).await.contains("IDEMPOTENCY_OUTCOME_UNKNOWN"));

    let console = send(address, "GET /ops/console/", &[], "").await;
    assert!(console.starts_with("HTTP/1.1 200 ") && console.contains("<html"), "{console}");
    let page = ask(address, "GET /ops/console/fragments/unknown", VERA, "").await;
    assert!(page.starts_with("HTTP/1.1 200 ") && page.contains("payments.create"), "{page}");

    let list = ask(address, "GET /ops/admin/v1/records?state=unknown", VERA, "").await;
    let id = list.split("\"operationId\":\"").nth(1).and_then(|rest| rest.split('"').next());
    let resolve = format!("POST /ops/admin/v1/records/{}/resolve", id.expect("it is listed"));
    let verdict = r#"{"verdict":"executed","status":201,"body":"{\"id\":7}","reason":"charge 7"}"#;
    assert!(ask(address, &resolve, VERA, verdict).await.starts_with("HTTP/1.1 403 "), "a viewer may not");
    let settled = ask(address, &resolve, OTTO, verdict).await;
    assert!(settled.starts_with("HTTP/1.1 200 ") && settled.contains("succeeded"), "{settled}");
    let retry = pay(address).await;
    assert!(retry.starts_with("HTTP/1.1 201 ") && retry.contains(r#"{"id":7}"#), "{retry}");

    // The operations of the layer are known here, with their former names.
    let by_key =
        r#"{"tenant":"acme","caller":"alice","operation":"payments.new","key":"the-first-payment-01"}"#;
    let found = ask(address, "POST /ops/admin/v1/records/find", VERA, by_key).await;
    assert!(found.starts_with("HTTP/1.1 200 ") && found.contains("payments.create"), "{found}");
    let audit = ask(address, "GET /ops/admin/v1/audit", VERA, "").await;
    assert!(audit.contains("token:otto") && audit.contains("charge 7"), "{audit}");
}

#[tokio::test]
async fn a_mounted_router_needs_one_of_its_tokens_and_leaves_the_rest_of_the_service_alone() {
    let semel = semel();
    let address = serve(&semel).await;
    for path in ["/ops/admin/v1/status", "/ops/metrics", "/ops/console/fragments/session"] {
        let line = format!("GET {path}");
        assert!(send(address, &line, &[], "").await.starts_with("HTTP/1.1 401 "), "{path}");
        let wrong = ask(address, &line, "wrong-0123456789abcdef0123456789abcdef", "").await;
        assert!(wrong.starts_with("HTTP/1.1 401 "), "{path}: {wrong}");
        let seen = ask(address, &line, VERA, "").await;
        assert!(seen.starts_with("HTTP/1.1 200 "), "{path}: {seen}");
    }
    for (path, console) in [("/ops", "ops/console/"), ("/ops/console", "console/")] {
        let led = send(address, &format!("GET {path}"), &[], "").await;
        assert!(
            led.starts_with("HTTP/1.1 307 ") && led.contains(&format!("location: {console}\r\n")),
            "{led}"
        );
    }
    assert!(send(address, "GET /ops/healthz", &[], "").await.starts_with("HTTP/1.1 200 "));
    assert!(ask(address, "GET /admin/v1/status", OTTO, "").await.starts_with("HTTP/1.1 404 "));
}

#[test]
fn tokens_that_cannot_be_used_are_refused_with_the_reason() {
    let semel = semel();
    let build = |tokens: &[(&str, &str)]| {
        let router = tokens.iter().fold(AdminRouter::new(&semel), |router, (name, secret)| {
            router.token(*name, Role::Viewer, *secret)
        });
        router.build().map(drop).map_err(|error| error.to_string())
    };
    for (tokens, why) in [
        (&[][..], "there is no token"),
        (&[("otto", "short")], "at least 32"),
        (&[("", OTTO)], "name"),
        (&[("a\nb", OTTO)], "name"),
        (&[("otto", OTTO), ("otto", VERA)], "two tokens have the name"),
        (&[("otto", OTTO), ("vera", OTTO)], "the same token as that of token:otto"),
    ] {
        let said = build(tokens).expect_err("it is refused");
        assert!(said.contains(why) && !said.contains(OTTO), "{why}: {said}");
    }
    assert_eq!(build(&[("otto", OTTO), ("vera", VERA)]), Ok(()));
}
