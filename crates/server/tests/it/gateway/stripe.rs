//! Stripe's envelope on answers of the gateway outside the layer, if the operation is known.

use tokio::net::TcpListener;

use super::lab::{Site, Upstream, pay, problem, stripe_error};

/// One operation with Stripe's profile beside the default.
const CHARGES: &str = "[[operation]]\nname = \"charges.create\"\nmatch = \"POST /v1/charges\"\nprofile = \"stripe\"\n\
                       key = \"optional\"\n";

#[tokio::test]
async fn an_unreachable_upstream_gets_the_error_of_the_operations_profile() {
    let (site, listener) = (Site::new(), TcpListener::bind("127.0.0.1:0").await.expect("a port is free"));
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let gateway = site.start_with(address, CHARGES, &[]);
    let unreachable = stripe_error(502, "api_error", "upstream_unreachable", Some("true"));
    let charge = || pay("amount=1").target("/v1/charges");
    assert_eq!(gateway.send(charge()).await.stripe_error(), unreachable, "with a key");
    let keyless = gateway.send(charge().without("idempotency-key")).await;
    assert_eq!(keyless.stripe_error(), unreachable, "a command without a key passes the layer by");
    let other = gateway.send(pay("").without("idempotency-key").method("GET")).await;
    assert_eq!(other.problem(), problem(502, "UPSTREAM_UNREACHABLE"));
}

#[tokio::test]
async fn a_misdirected_or_large_request_gets_the_error_of_its_operations_profile() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let settings = format!("hosts = [\"api.example\"]\n{CHARGES}");
    let gateway = site.start_with(upstream.address, &settings, &[]);
    let elsewhere = |target: &str| pay("amount=1").target(target).set("host", "evil.example");
    let misdirected = gateway.send(elsewhere("/v1/charges")).await;
    let expected = stripe_error(421, "invalid_request_error", "misdirected_request", Some("false"));
    assert_eq!(misdirected.stripe_error(), expected);
    assert_eq!(gateway.send(elsewhere("/payments")).await.problem(), problem(421, "MISDIRECTED_REQUEST"));
    let large = pay("").target("/v1/charges").set("host", "api.example").body(vec![b'x'; 3 << 20]);
    let expected = stripe_error(413, "invalid_request_error", "request_too_large", Some("false"));
    assert_eq!(gateway.send(large).await.stripe_error(), expected);
    assert_eq!(upstream.seen(), 0);
}

#[tokio::test]
async fn a_too_large_head_gets_the_error_of_the_default_profile() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start(upstream.address, &["--profile", "stripe", "--key", "optional"]);
    let large = gateway.send(pay("amount=1").with("x-large", "x".repeat(128 * 1024))).await;
    let expected = stripe_error(431, "invalid_request_error", "request_head_too_large", Some("false"));
    assert_eq!(large.stripe_error(), expected);
    let short = gateway.send(pay("amount=1").set("idempotency-key", "k")).await;
    assert_eq!(short.status, 201, "keys of one character are taken");
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn a_server_error_of_the_upstream_comes_with_advice() {
    for (choice, advice) in [("unknown", "poll"), ("replay", "never"), ("retry", "same-key")] {
        let (_site, _upstream, gateway) = super::lab::lab(&["--on-server-error", choice]).await;
        let failed = gateway.send(pay("{}").doing("status-503")).await;
        assert_eq!(failed.header("idempotency-retry"), Some(advice), "{choice}");
        assert_eq!(&failed.body[..], b"1:{}", "as answered");
    }
}
