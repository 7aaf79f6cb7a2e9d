//! Answers to a client of the gateway, row by row of the contract.

use std::sync::atomic::Ordering;

use http::StatusCode;
use tokio::net::TcpListener;

use super::lab::{KEY, Site, Upstream, lab, pay, problem};

#[tokio::test]
async fn a_first_call_a_replay_and_a_mismatch() {
    let (_site, upstream, gateway) = lab(&[]).await;
    let first = gateway.send(pay(r#"{"amount":1}"#)).await;
    assert_eq!((first.status.as_u16(), &first.body[..]), (201, &br#"1:{"amount":1}"#[..]));
    assert!(
        first.header("idempotency-operation-id").is_some() && first.header("idempotency-expires").is_some()
    );
    let again = gateway.send(pay(r#"{ "amount": 1.0 }"#)).await;
    assert!(again.replayed());
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    assert_eq!((again.header("set-cookie"), again.header("location")), (None, Some("/payments/1")));
    let mismatch = gateway.send(pay(r#"{"amount":2}"#)).await;
    assert_eq!(mismatch.problem(), problem(422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST"));
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn keys_are_needed_by_commands_only() {
    let (_site, upstream, gateway) = lab(&[]).await;
    let missing = gateway.send(pay("{}").without("idempotency-key")).await;
    assert_eq!(missing.problem(), problem(400, "MISSING_IDEMPOTENCY_KEY"));
    let short = gateway.send(pay("{}").set("idempotency-key", "short")).await;
    assert_eq!(short.problem(), problem(400, "INVALID_IDEMPOTENCY_KEY"));
    assert_eq!(upstream.seen(), 0);
    for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
        let reply = gateway.send(pay("").method(method).without("idempotency-key")).await;
        assert_eq!(reply.status, 201, "{method}");
    }
    assert_eq!(upstream.seen(), 4);
}

#[tokio::test]
async fn a_clients_deadline_is_kept_before_a_claim_and_not_passed_on() {
    let (_site, upstream, gateway) = lab(&[]).await;
    let over = gateway.send(pay("{}").with("semel-deadline", "0")).await;
    assert_eq!(over.problem(), problem(503, "DEADLINE_EXCEEDED"));
    assert_eq!(over.header("idempotency-retry"), Some("same-key"));
    let malformed = gateway.send(pay("{}").with("semel-deadline", "soon")).await;
    assert_eq!(malformed.problem(), problem(400, "MALFORMED_REQUEST"));
    assert_eq!(upstream.seen(), 0);
    let first = gateway.send(pay("{}").with("semel-deadline", "9999999999")).await;
    assert_eq!((first.status.as_u16(), first.header("seen-semel-deadline")), (201, None));
    let replay = gateway.send(pay("{}").with("semel-deadline", "0")).await;
    assert!(replay.replayed() && replay.body == first.body, "{replay:?}");
    let passed = pay("").method("GET").without("idempotency-key").with("semel-deadline", "soon");
    let passed = gateway.send(passed).await;
    assert_eq!((passed.status.as_u16(), passed.header("seen-semel-deadline")), (201, None));
}

#[tokio::test]
async fn without_waiting_there_is_one_success_and_conflicts() {
    let (_site, upstream, gateway) = lab(&["--wait", "0s"]).await;
    let address = gateway.address;
    let first = tokio::spawn(pay("{}").doing("gate").to(address));
    upstream.begun().await;
    for _ in 0..10 {
        let reply = gateway.send(pay("{}")).await;
        assert_eq!(reply.problem(), problem(409, "IDEMPOTENCY_REQUEST_IN_PROGRESS"));
        assert!(reply.header("retry-after").is_some());
    }
    upstream.open_gate();
    assert_eq!(first.await.expect("it is answered").status, 201);
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn an_accepted_duplicate_polls_the_operation() {
    let (_site, upstream, gateway) = lab(&["--wait", "0s", "--in-progress", "accepted"]).await;
    let first = tokio::spawn(pay("{}").doing("gate").to(gateway.address));
    upstream.begun().await;
    let accepted = gateway.send(pay("{}")).await;
    assert_eq!(accepted.status, 202);
    let location = accepted.header("location").expect("it says where").to_owned();
    let ask = |path: String| pay("").method("GET").target(path);
    assert_eq!(gateway.send(ask(location.clone())).await.json()["state"], "processing");
    upstream.open_gate();
    let first = first.await.expect("it is answered");
    assert_eq!(gateway.send(ask(location.clone())).await.json()["state"], "succeeded");
    assert_eq!(gateway.send(ask(format!("{location}/result"))).await.body, first.body);
    assert_eq!(upstream.seen(), 1, "operations are answered by the gateway itself");
}

#[tokio::test]
async fn an_upstream_that_refuses_connections_has_run_nothing() {
    let (site, listener) = (Site::new(), TcpListener::bind("127.0.0.1:0").await.expect("a port is free"));
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let gateway = site.start(address, &[]);
    for _ in 0..3 {
        assert_eq!(gateway.send(pay("{}")).await.problem(), problem(502, "UPSTREAM_UNREACHABLE"));
    }
    let upstream = Upstream::start_on(TcpListener::bind(address).await.expect("the port is free again"));
    let reply = gateway.send(pay("{}")).await;
    assert_eq!((reply.status.as_u16(), reply.header("seen-semel-attempt")), (201, Some("4")));
    assert!(gateway.send(pay("{}")).await.replayed());
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn an_upstream_that_times_out_leaves_an_unknown() {
    let (_site, upstream, gateway) = lab(&["--timeout", "200ms"]).await;
    let reply = gateway.send(pay("{}").doing("gate")).await;
    assert_eq!(reply.problem(), problem(504, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    assert_eq!(gateway.send(pay("{}")).await.problem(), problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn the_outcome_header_of_the_upstream_decides_over_its_status() {
    let (_site, upstream, gateway) = lab(&[]).await;
    let with = |key: &str| pay("{}").set("idempotency-key", format!("{key}-0123456789ab"));
    let released = gateway.send(with("released").doing("status-503 outcome-not-executed")).await;
    assert_eq!((released.status.as_u16(), released.header("semel-outcome")), (503, None));
    assert_eq!(gateway.send(with("released")).await.status, 201, "it may run again");
    gateway.send(with("final").doing("status-500 outcome-final")).await;
    assert_eq!(gateway.send(with("final")).await.status, 500, "replayed");
    gateway.send(with("unsure").doing("status-200 outcome-unknown")).await;
    assert_eq!(gateway.send(with("unsure")).await.problem().0, 409);
    gateway.send(with("busy").doing("status-429")).await;
    assert_eq!(gateway.send(with("busy")).await.status, 201);
    assert_eq!(upstream.seen(), 6);
}

#[tokio::test]
async fn a_server_error_follows_the_policy() {
    for (choice, state, calls) in [("unknown", 409, 1), ("replay", 500, 1), ("retry", 201, 2)] {
        let (_site, upstream, gateway) = lab(&["--on-server-error", choice]).await;
        assert_eq!(gateway.send(pay("{}").doing("status-500")).await.status, 500, "as answered");
        assert_eq!(gateway.send(pay("{}")).await.status, state, "{choice}");
        assert_eq!(upstream.seen(), calls, "{choice}");
    }
}

#[tokio::test]
async fn large_requests_and_responses_have_their_bounds() {
    let (_site, upstream, gateway) = lab(&["--max-request", "1KiB"]).await;
    let large = gateway.send(pay("").body(vec![b'x'; 3 << 20])).await;
    assert_eq!(large.problem(), problem(413, "REQUEST_TOO_LARGE"));
    assert_eq!(upstream.seen(), 0);
    let first = gateway.send(pay("{}").doing("large")).await;
    assert_eq!(first.body.len(), 3 << 20);
    let again = gateway.send(pay("{}")).await;
    assert_eq!(again.json()["code"], "IDEMPOTENCY_RESPONSE_NOT_RETAINED");
    assert_eq!(again.status, first.status, "an error would invite a new key");
    assert_eq!(again.header("idempotency-body"), Some("not-retained"));
    assert_eq!(again.header("location"), Some("/payments/1"));
    assert_eq!(again.header("seen-idempotency-key"), first.header("seen-idempotency-key"));
    let of_the_body = ["content-length", "content-type"].map(|name| again.header(name) == first.header(name));
    assert_eq!(of_the_body, [false, false]);
    assert_eq!(upstream.seen(), 1);
}

#[tokio::test]
async fn the_largest_response_is_stored_and_replayed() {
    let (_site, upstream, gateway) = lab(&["--max-stored-response", "64MiB"]).await;
    let before = gateway.memory();
    let mut most = before;
    for round in 0..3 {
        let large = || pay("{}").set("idempotency-key", format!("{KEY}-{round}")).doing("large-64");
        let first = gateway.send(large()).await;
        assert_eq!((first.status.as_u16(), first.body.len()), (201, 64 << 20));
        assert!(!first.replayed());
        most = most.max(gateway.memory());
        let again = gateway.send(large()).await;
        assert!(again.replayed() && again.body == first.body, "{:?}", again.headers);
        most = most.max(gateway.memory());
    }
    assert_eq!(upstream.seen(), 3);
    println!("from {before} MiB to {most} MiB");
    // About 270 MiB with SQLite, and 560 with PostgreSQL.
    assert!(most - before < 12 * 64, "it took {most} MiB");
    let more = gateway.send(pay("{}").doing("large-65")).await;
    assert_eq!(more.body.len(), 65 << 20);
    let again = gateway.send(pay("{}").doing("large-65")).await;
    assert_eq!(again.header("idempotency-body"), Some("not-retained"));
}

#[tokio::test]
async fn operations_come_from_the_configuration() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let file = r#"
        [[operation]]
        name = "orders.create"
        match = "POST /orders"
        business_reference = "/order"
        fingerprint_exclude = ["/sentAt"]

        [[operation]]
        name = "ping"
        match = "POST /ping"
        key = "ignored"

        [[operation]]
        name = "payments.create"
        match = "POST /payments"
        aliases = ["POST /payments"]
    "#;
    let before = site.start(upstream.address, &[]);
    let first = before.send(pay("{}")).await;
    drop(before);
    let gateway = site.start_with(upstream.address, file, &[]);
    let renamed = gateway.send(pay("{}")).await;
    assert!(renamed.replayed(), "records under the former name still count");
    assert_eq!(renamed.header("idempotency-operation-id"), first.header("idempotency-operation-id"));

    let order =
        |key: &str, body: &str| pay(body).target("/orders").set("idempotency-key", format!("{key}-{KEY}"));
    assert_eq!(gateway.send(order("a", r#"{"order":1,"sentAt":1}"#)).await.status, 201);
    assert!(gateway.send(order("a", r#"{"order":1,"sentAt":2}"#)).await.replayed());
    let duplicate = gateway.send(order("b", r#"{"order":1}"#)).await;
    assert_eq!(duplicate.problem(), problem(409, "DUPLICATE_BUSINESS_REFERENCE"));
    let long = gateway.send(order("c", r#"{"order":9007199254740993}"#)).await;
    assert_eq!(long.status, 201);
    let spelled = gateway.send(order("d", r#"{"order":9007199254740993.0}"#)).await;
    assert_eq!(spelled.problem(), problem(409, "DUPLICATE_BUSINESS_REFERENCE"));
    for _ in 0..2 {
        assert!(!gateway.send(pay("{}").target("/ping")).await.replayed());
    }
    assert_eq!(upstream.seen(), 5);
}

#[tokio::test]
async fn two_gateways_on_one_store_make_one_call() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateways = [0, 1].map(|_| site.start(upstream.address, &["--wait", "5s"]));
    let requests: Vec<_> =
        (0..20).map(|n| tokio::spawn(pay("{}").doing("gate").to(gateways[n % 2].address))).collect();
    upstream.begun().await;
    upstream.open_gate();
    for request in requests {
        let reply = request.await.expect("it is answered");
        assert_eq!((reply.status.as_u16(), &reply.body[..]), (201, &b"1:{}"[..]));
    }
    assert_eq!(upstream.effects.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_store_that_is_gone_fails_closed_and_comes_back_by_itself() {
    let (site, upstream, gateway) = lab(&[]).await;
    assert_eq!(gateway.send(pay("{}")).await.status, 201);
    assert_eq!(gateway.admin("/readyz").await.status, 200);
    let blocked = site.block_store();
    let fresh = |number: usize| pay("{}").set("idempotency-key", format!("fresh-key-{number:08}"));
    // Claims wait for the file; after a few failures, further ones fail at once.
    let waiting: Vec<_> = (0..8).map(|number| tokio::spawn(fresh(number).to(gateway.address))).collect();
    for reply in waiting {
        let reply = reply.await.expect("it is answered");
        assert_eq!(reply.problem(), problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE"));
        assert!(reply.header("retry-after").is_some());
    }
    for number in 100..150 {
        assert_eq!(gateway.send(fresh(number)).await.problem().0, 503);
    }
    assert_eq!(upstream.seen(), 1, "not one call upstream");
    assert_eq!(gateway.admin("/readyz").await.status, 503);
    assert_eq!(gateway.admin("/healthz").await.status, 200);
    assert!(gateway.send(pay("{}")).await.replayed(), "what is in memory is still replayed");
    drop(blocked);
    let recovered = loop {
        let reply = gateway.send(fresh(999)).await;
        if reply.status != 503 {
            break reply;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert_eq!(recovered.status, 201);
    assert_eq!(gateway.admin("/readyz").await.status, 200);
}

#[tokio::test]
async fn a_member_that_is_excluded_later_makes_retries_of_live_records_other_requests() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let rule = "[[operation]]\nname = \"payments.create\"\nmatch = \"POST /payments\"\n";
    let mut gateway = site.start_with(upstream.address, rule, &[]);
    let with = || pay(r#"{"amount":1,"sentAt":7}"#);
    let without = || pay(r#"{"amount":1}"#).set("idempotency-key", "without-that-member-0001");
    assert_eq!(
        (gateway.send(with()).await.status, gateway.send(without()).await.status),
        (StatusCode::CREATED, StatusCode::CREATED)
    );
    gateway.kill();
    let rule = format!("{rule}fingerprint_exclude = [\"/sentAt\"]\n");
    let gateway = site.start_with(upstream.address, &rule, &[]);
    let other = problem(422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST");
    assert_eq!(gateway.send(with()).await.problem(), other, "the very same request");
    assert!(gateway.send(without()).await.replayed(), "it has no such member");
    assert_eq!(upstream.seen(), 2, "nothing ran again");
}
