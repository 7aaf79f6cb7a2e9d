//! Pages of other origins read the gateway's own answers: with raw requests, and in a real browser.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_REQUEST_HEADERS, ORIGIN,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, options};
use tokio::net::TcpListener;

use super::lab::{Reply, Send, Site, pay, problem};

/// Timeout of a script.
const LIMIT: Duration = Duration::from_secs(90);

const APP: &str = "https://app.example";

/// Serves a router on a free port.
async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Starts an upstream with its own CORS fields for every origin.
async fn upstream() -> SocketAddr {
    async fn preflight(headers: HeaderMap) -> Response {
        let asked = headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
        let mut answer = StatusCode::NO_CONTENT.into_response();
        let fields = answer.headers_mut();
        fields.extend(headers.get(ORIGIN).map(|origin| (ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone())));
        fields.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST"));
        fields.extend(asked.map(|asked| (ACCESS_CONTROL_ALLOW_HEADERS, asked)));
        answer
    }
    async fn made(headers: HeaderMap) -> Response {
        let origin = headers.get(ORIGIN).cloned();
        let mut answer = (StatusCode::CREATED, "made").into_response();
        let fields = answer.headers_mut();
        fields.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
        fields.extend(origin.map(|origin| (ACCESS_CONTROL_ALLOW_ORIGIN, origin)));
        answer
    }
    serve(Router::new().fallback(options(preflight).post(made))).await
}

fn lines<'a>(reply: &'a Reply, name: &str) -> Vec<&'a str> {
    reply.headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect()
}

#[tokio::test]
async fn a_stored_result_of_the_upstream_is_granted_to_no_origin_by_us() {
    let (site, upstream) = (Site::new(), upstream().await);
    let gateway = site.start_with(upstream, "[cors]\norigins = [\"https://app.example\"]\n", &[]);
    let reply = gateway.send(pay("{}")).await;
    let id = reply.operation_id().expect("it has one").to_owned();
    let ask =
        |path: String| pay("").method("GET").target(path).without("idempotency-key").with("origin", APP);
    let document = gateway.send(ask(format!("/.well-known/semel/operations/{id}"))).await;
    assert_eq!(lines(&document, "access-control-allow-origin"), [APP], "the document is ours");
    let result = gateway.send(ask(format!("/.well-known/semel/operations/{id}/result"))).await;
    assert_eq!((result.status.as_u16(), &result.body[..]), (201, &b"made"[..]));
    assert_eq!(lines(&result, "access-control-allow-origin"), [""; 0], "the upstream granted nothing");
}

fn preflight(path: &str, origin: &str) -> Send {
    let request = pay("").method("OPTIONS").target(path).without("idempotency-key").without("content-type");
    let request = request.with("origin", origin).with("access-control-request-method", "GET");
    request.with("access-control-request-headers", "x-api-key")
}

#[tokio::test]
async fn a_listed_origin_reads_our_answers_and_those_of_the_upstream_pass_untouched() {
    let (site, upstream) = (Site::new(), upstream().await);
    let gateway = site.start_with(upstream, "[cors]\norigins = [\"https://app.example\"]\n", &[]);
    for replayed in [false, true] {
        let reply = gateway.send(pay("{}").with("origin", APP)).await;
        assert_eq!((reply.status.as_u16(), reply.replayed()), (201, replayed));
        assert_eq!(lines(&reply, "access-control-allow-origin"), [APP], "once, and the upstream's");
        assert_eq!(lines(&reply, "access-control-expose-headers"), ["*"]);
    }
    let own = [
        (pay("{}").without("idempotency-key"), problem(400, "MISSING_IDEMPOTENCY_KEY")),
        (pay("[]"), problem(422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST")),
        (pay("{}").target("/a//b"), problem(400, "MALFORMED_REQUEST")),
        (
            pay("").method("GET").target("/.well-known/semel/operations/x"),
            problem(404, "OPERATION_NOT_FOUND"),
        ),
    ];
    for (request, expected) in own {
        let reply = gateway.send(request.clone().with("origin", APP)).await;
        assert_eq!(reply.problem(), expected);
        assert_eq!(lines(&reply, "access-control-allow-origin"), [APP], "{expected:?}");
        assert!(lines(&reply, "access-control-expose-headers")[0].contains("Retry-After"));
        assert!(lines(&reply, "vary").contains(&"Origin"));
        let foreign = gateway.send(request.with("origin", "https://evil.example")).await;
        assert_eq!(lines(&foreign, "access-control-allow-origin"), [""; 0], "{expected:?}");
    }

    let own = gateway.send(preflight("/.well-known/semel/operations/x", APP)).await;
    assert_eq!((own.status.as_u16(), lines(&own, "access-control-allow-headers")), (204, vec!["x-api-key"]));
    let passed = gateway.send(preflight("/payments", "https://evil.example")).await;
    assert_eq!(
        lines(&passed, "access-control-allow-origin"),
        ["https://evil.example"],
        "it is the upstream's word"
    );
}

#[tokio::test]
async fn the_gateway_answers_preflights_of_commands_only_where_it_is_told_to() {
    let (site, upstream) = (Site::new(), upstream().await);
    let file = "[cors]\norigins = [\"https://app.example\"]\npreflight = \"gateway\"\nmax_age = \"1m\"\n";
    let gateway = site.start_with(upstream, file, &[]);
    let granted = gateway.send(preflight("/payments", APP)).await;
    assert_eq!((granted.status.as_u16(), lines(&granted, "access-control-allow-origin")), (204, vec![APP]));
    assert_eq!(lines(&granted, "access-control-max-age"), ["60"]);
    let foreign = gateway.send(preflight("/payments", "https://evil.example")).await;
    assert_eq!((foreign.status.as_u16(), lines(&foreign, "access-control-allow-origin")), (204, vec![]));

    let off = Site::new();
    let gateway = off.start(upstream, &[]);
    let missing = gateway.send(pay("{}").without("idempotency-key").with("origin", APP)).await;
    assert_eq!(lines(&missing, "access-control-allow-origin"), [""; 0], "without [cors] nothing is written");
    assert_eq!(gateway.send(preflight("/.well-known/semel/operations/x", APP)).await.status, 405);
}

/// Runs a script of `tests/browser`, and fails with its output unless it succeeds.
fn run(script: &str, arguments: &[&str]) {
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join(script).with_extension("png");
    let picture = picture.display().to_string();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser").join(script);
    let arguments = [&[arguments[0], &picture], &arguments[1..]].concat();
    if let Err(why) = semel_testkit::browser::run(&script, &arguments, LIMIT) {
        panic!("{why}");
    }
}

#[tokio::test]
async fn a_browser_lets_only_a_page_of_a_listed_origin_read_answers() {
    let page =
        serve(Router::new().fallback(get(|| async {
            Html("<!doctype html><title>Shop</title><link rel=icon href=data:,>")
        })))
        .await;
    let (site, upstream) = (Site::new(), upstream().await);
    let origin = format!("http://{page}");
    let gateway = site.start_with(upstream, &format!("[cors]\norigins = [\"{origin}\"]\n"), &[]);
    let address = format!("http://{}", gateway.address);
    // Another host name is another origin, even on the same machine.
    let foreign = format!("http://localhost:{}", page.port());
    let script = tokio::task::spawn_blocking(move || run("cors.mjs", &[&origin, &address, &foreign]));
    script.await.expect("the page behaves");
}
