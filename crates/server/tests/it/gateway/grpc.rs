//! gRPC through the gateway, with a third-party service and client: all four kinds of calls pass, and clients
//! understand the gateway's own answers.

use serde_json::Value;

use super::lab::{Gateway, Site, Upstream, pay};
use crate::third_party::{Program, node};

const PASS: &str =
    "upstream_protocol = \"h2c\"\n[[pass]]\nmatch = \"POST /shop.Orders/{call}\"\nallow = [\"grpc\"]\n";

/// Makes one call, and returns the client's result.
fn call(gateway: &Gateway, kind: &str, item: &str, key: Option<&str>) -> Value {
    let mut client = node("grpc_client.mjs");
    client.args([&gateway.address.to_string(), kind, item]).args(key);
    let output = client.output().expect("it runs");
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(&told).unwrap_or_else(|_| panic!("{told}{errors}"))
}

fn code(told: &Value) -> &str {
    told["code"].as_str().expect("it has a code")
}

#[tokio::test]
async fn calls_of_every_kind_pass() {
    let (site, service) = (Site::new(), Program::start(&mut node("grpc_service.mjs")));
    let gateway = site.start_with(service.address, PASS, &[]);
    for (kind, receipts) in [
        ("unary", vec!["1 apples"]),
        ("server", vec!["3 apples"; 3]),
        ("client", vec!["10 in all"]),
        ("both", vec!["1 apples", "2 apples", "3 apples", "4 apples", "5 apples"]),
    ] {
        let told = call(&gateway, kind, "apples", None);
        assert_eq!((code(&told), &told["receipts"]), ("OK", &receipts.into()), "{kind}: {told}");
    }
    let told = call(&gateway, "unary", "apples", None);
    assert_eq!(told["trailers"]["seen-operation"], "0", "it is no command, and its trailers arrive: {told}");
    let refused = call(&gateway, "unary", "nothing", None);
    assert_eq!(code(&refused), "NOT_FOUND");
    assert_eq!(refused["details"], "there is no such item: 100 %");
    assert_eq!(refused["trailers"]["reason"], "sold out");
    assert_eq!(site.states(), [""; 0], "nothing was claimed");
}

#[tokio::test]
async fn a_call_with_a_key_is_a_command_whose_trailers_are_replayed() {
    let (site, service) = (Site::new(), Program::start(&mut node("grpc_service.mjs")));
    let gateway = site.start_with(service.address, PASS, &[]);
    let key = Some("grpc-key-0123456789");
    let first = call(&gateway, "unary", "apples", key);
    let second = call(&gateway, "unary", "apples", key);
    assert_eq!(code(&first), "OK", "{first}");
    assert_eq!(first["trailers"]["seen-key"], "grpc-key-0123456789");
    assert_eq!(first["trailers"]["seen-operation"], "1");
    assert_eq!((&second["number"], &second["trailers"]), (&first["number"], &first["trailers"]));
    let reused = call(&gateway, "unary", "pears", key);
    assert_eq!(code(&reused), "FAILED_PRECONDITION");
    let details = reused["details"].as_str().expect("it is a text");
    assert!(details.starts_with("IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST: "), "{details}");
}

#[tokio::test]
async fn a_grpc_call_without_a_pass_rule_gets_invalid_argument() {
    let (site, service) = (Site::new(), Program::start(&mut node("grpc_service.mjs")));
    let protected =
        format!("{PASS}[[operation]]\nname = \"orders.place\"\nmatch = \"POST /shop.Orders/Place\"\n");
    for file in ["upstream_protocol = \"h2c\"\n", protected.as_str()] {
        let gateway = site.start_with(service.address, file, &[]);
        let refused = call(&gateway, "unary", "apples", None);
        assert_eq!(code(&refused), "INVALID_ARGUMENT", "{refused}");
        let details = refused["details"].as_str().expect("it is a text");
        assert!(details.starts_with("MISSING_IDEMPOTENCY_KEY: "), "{details}");
    }
    let strangers = format!("{PASS}[identity]\nsource = \"api-key\"\n");
    let gateway = site.start_with(service.address, &strangers, &[]);
    let refused = call(&gateway, "unary", "apples", Some("grpc-key-0123456789"));
    assert_eq!(code(&refused), "UNAUTHENTICATED", "{refused}");
    assert_eq!(site.states(), [""; 0], "nothing was claimed");
}

#[tokio::test]
async fn another_content_type_on_the_route_of_calls_is_a_command() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, PASS, &[]);
    let request = || pay("{}").target("/shop.Orders/Place").without("idempotency-key");
    assert_eq!(gateway.send(request()).await.status, 400);
    let grpc = || request().set("content-type", "application/grpc+proto");
    assert_eq!(gateway.send(grpc()).await.status, 201);
    assert_eq!(gateway.send(grpc().target("/shop.Others/Place")).await.status, 200, "grpc-status says no");
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn a_service_that_cannot_be_reached_leaves_nothing_unknown() {
    let (site, service) = (Site::new(), Program::start(&mut node("grpc_service.mjs")));
    // An HTTP/2 service that gets HTTP/1.1 cannot read the request, and says so by its first bytes.
    let gateway = site.start(service.address, &[]);
    for round in 0..10 {
        let key = format!("grpc-key-0123456789-{round}");
        let refused = call(&gateway, "unary", "apples", Some(&key));
        assert_eq!(code(&refused), "UNAVAILABLE", "{refused}");
    }
    assert!(site.states().iter().all(|state| state == "failed_retryable"), "{:?}", site.states());
    gateway.logs("set `upstream_protocol` to \\\"h2c\\\"").await;
    drop(gateway);
    let address = service.address;
    drop(service);
    let gateway = site.start_with(address, PASS, &[]);
    let refused = call(&gateway, "unary", "apples", None);
    assert_eq!(code(&refused), "UNAVAILABLE", "{refused}");
}

#[tokio::test]
async fn an_upstream_of_http2_is_told_that_trailers_are_welcome() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, "upstream_protocol = \"h2c\"\n", &[]);
    let reply = gateway.send(pay("{}").with("te", "trailers").with("connection", "te")).await;
    assert_eq!(reply.headers["seen-te"], "trailers");
    assert!(!reply.headers.contains_key("seen-connection"));
}
