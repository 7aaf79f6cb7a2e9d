//! Log lines name their request: its id, its client, its caller, and the refusal.

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::lab::{Gateway, Site, Upstream, lab, pay, problem};

/// Returns the events of a log, once the last one is there.
async fn events(gateway: &Gateway, last: &str) -> Vec<Value> {
    gateway.logs(last).await;
    gateway.log().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Returns the first event with this code.
fn with_code<'a>(events: &'a [Value], code: &str) -> &'a Value {
    events.iter().find(|event| event["code"] == code).unwrap_or_else(|| panic!("no {code} in {events:#?}"))
}

#[tokio::test]
async fn the_log_of_a_refusal_names_the_operation_the_path_and_the_caller() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let file = "hosts = [\"lab\"]\n[identity]\nsource = \"trusted-headers\"\ntrusted_proxies = [\"127.0.0.1\"]\n\
                tenant_header = \"X-Tenant\"\ncaller_header = \"X-User\"\n\
                [[operation]]\nname = \"accounts.pay\"\nmatch = \"POST /accounts/{account}/payments\"\n";
    let gateway = site.start_with(upstream.address, file, &[]);
    let ask = |target: &str| {
        let request = pay("{}").target(target).with("x-tenant", "acme");
        request.with("x-forwarded-for", "6.6.6.6, 198.51.100.7")
    };
    gateway.send(ask("/accounts/alice@example.com/payments").without("idempotency-key")).await;
    gateway
        .send(ask("/refunds/0190d1f0-7c5e-7000-8000-000000000001?card=4242").set("idempotency-key", "short"))
        .await;
    gateway.send(ask("/who").without("x-tenant")).await;
    gateway.send(ask("/misdirected/77").with("host", "evil.example")).await;
    let first = gateway.send(ask("/accounts/1/payments")).await;
    let id = first.operation_id().expect("it is named").to_owned();
    gateway
        .send(
            ask("/accounts/1/payments")
                .doing("status-500")
                .set("idempotency-key", "one-that-becomes-unknown"),
        )
        .await;
    gateway
        .send(
            ask("/accounts/1/payments")
                .doing("status-500")
                .set("idempotency-key", "one-that-becomes-unknown"),
        )
        .await;
    let events = events(&gateway, "\"event\":\"idempotency_unknown\"").await;

    let missing = with_code(&events, "MISSING_IDEMPOTENCY_KEY");
    assert_eq!(missing["event"], "idempotency_refused");
    assert_eq!(
        (&missing["method"], &missing["path"]),
        (&"POST".into(), &"/accounts/{account}/payments".into())
    );
    assert_eq!((&missing["operation"], &missing["tenant"]), (&"accounts.pay".into(), &"acme".into()));
    assert_eq!(missing["caller"], "alice");
    assert_eq!(missing["span"]["client"], "198.51.100.7", "it came through a proxy that is trusted");
    let invalid = with_code(&events, "INVALID_IDEMPOTENCY_KEY");
    assert_eq!((&invalid["operation"], &invalid["path"]), (&"unmatched".into(), &"/refunds/{id}".into()));
    let unknown_caller = with_code(&events, "UNAUTHENTICATED");
    assert_eq!((&unknown_caller["path"], &unknown_caller["caller"]), (&"/who".into(), &Value::Null));
    let misdirected = with_code(&events, "MISDIRECTED_REQUEST");
    assert_eq!((&misdirected["event"], &misdirected["status"]), (&"request_refused".into(), &421.into()));
    assert_eq!((&misdirected["method"], &misdirected["path"]), (&"POST".into(), &"/misdirected/{id}".into()));
    let claimed = events.iter().find(|event| event["event"] == "idempotency_claim").expect("it is logged");
    assert_eq!(claimed["operationId"], id.as_str());
    let unknown = with_code(&events, "IDEMPOTENCY_OUTCOME_UNKNOWN");
    assert!(
        unknown["operationId"].is_string() && unknown["path"] == "/accounts/{account}/payments",
        "{unknown}"
    );
    let log = gateway.log();
    assert!(!log.contains("alice@example.com") && !log.contains("4242"), "{log}");
    for event in events.iter().filter(|event| event["event"].is_string()) {
        assert_eq!(event["span"]["requestId"].as_str().map(str::len), Some(32), "{event}");
    }
}

#[tokio::test]
async fn one_id_is_in_every_line_goes_to_the_upstream_and_comes_back() {
    let (_site, _upstream, gateway) = lab(&[]).await;
    let first = gateway.send(pay("{}").with("x-request-id", "from-the-client.1")).await;
    assert_eq!(first.header("seen-x-request-id"), Some("from-the-client.1"));
    assert_eq!(first.header("x-request-id"), Some("from-the-client.1"));
    let again = gateway.send(pay("{}").with("x-request-id", "from-the-client.2")).await;
    assert_eq!(again.header("x-request-id"), Some("from-the-client.2"), "of this request");
    let events = events(&gateway, "\"event\":\"idempotency_replay\"").await;
    let lines: Vec<_> =
        events.iter().map(|event| (event["event"].as_str(), event["span"]["requestId"].as_str())).collect();
    let expected = [
        (Some("idempotency_claim"), Some("from-the-client.1")),
        (Some("idempotency_settled"), Some("from-the-client.1")),
        (Some("idempotency_replay"), Some("from-the-client.2")),
    ];
    assert_eq!(lines, expected);

    let forged = gateway.send(pay("{}").with("x-request-id", "a\" b")).await;
    let made = forged.header("x-request-id").expect("it has one").to_owned();
    assert!(made.len() == 32 && made.bytes().all(|byte| byte.is_ascii_hexdigit()), "{made}");
    let passed = gateway.send(pay("").method("GET")).await;
    assert_eq!(passed.header("seen-x-request-id"), passed.header("x-request-id"));
    assert_ne!(passed.header("x-request-id"), None);
    let refused = gateway.send(pay("{}").target("/a//b").with("x-request-id", "refused.1")).await;
    assert_eq!(
        (refused.problem(), refused.header("x-request-id")),
        (problem(400, "MALFORMED_REQUEST"), Some("refused.1"))
    );
    let key = pay("{}").set("idempotency-key", "one-name-for-both-of-them");
    let same = gateway.send(key.with("x-request-id", "one-name-for-both-of-them")).await;
    assert_ne!(same.header("x-request-id"), Some("one-name-for-both-of-them"));
    gateway.logs(same.header("x-request-id").expect("it has one")).await;
    assert!(!gateway.log().contains("one-name-for-both"), "a key is never logged");
}

#[tokio::test]
async fn failures_on_the_way_have_the_id_of_their_request() {
    let site = Site::new();
    let gateway = site.start(std::net::SocketAddr::from(([127, 0, 0, 1], 1)), &[]);
    let reply = gateway.send(pay("{}").with("x-request-id", "command.1")).await;
    assert_eq!(reply.problem(), problem(502, "UPSTREAM_UNREACHABLE"));
    let reply =
        gateway.send(pay("").method("GET").target("/a/1?b").with("x-request-id", "passed-on.1")).await;
    assert_eq!(reply.problem(), problem(502, "UPSTREAM_UNREACHABLE"));
    let events = events(&gateway, "\"event\":\"request_refused\"").await;
    let unreached = events.iter().filter(|event| event["message"] == "the upstream was not reached");
    let ids: Vec<_> = unreached.map(|event| event["span"]["requestId"].as_str()).collect();
    assert_eq!(ids, [Some("command.1"), Some("passed-on.1")]);
    let passed = events.iter().find(|event| event["event"] == "request_refused").expect("it is logged");
    let named = [&passed["method"], &passed["path"], &passed["code"], &passed["span"]["client"]];
    assert_eq!(named, ["GET", "/a/{id}", "UPSTREAM_UNREACHABLE", "127.0.0.1"]);
}

#[tokio::test]
async fn malformed_request_is_logged_with_its_client_and_without_its_content() {
    let (_site, _upstream, gateway) = lab(&[]).await;
    let mut client = TcpStream::connect(gateway.address).await.expect("it listens");
    client
        .write_all(b"POST /secret-canary HTTP/1.1\r\nHost: lab\r\nbad name: x\r\n\r\n")
        .await
        .expect("it is sent");
    let events = events(&gateway, "\"event\":\"request_refused\"").await;
    let refused = with_code(&events, "MALFORMED_REQUEST");
    assert_eq!(refused["span"]["client"], "127.0.0.1");
    assert!(!gateway.log().contains("canary"));
}

#[tokio::test]
async fn text_log_lines_have_the_request_id() {
    let (_site, _upstream, gateway) = lab(&["--log-format", "text"]).await;
    gateway.send(pay("{}").without("idempotency-key").with("x-request-id", "for-people.1")).await;
    gateway.logs("requestId=\"for-people.1\" client=127.0.0.1").await;
    gateway.logs("method=\"POST\" path=\"/payments\"").await;
}
