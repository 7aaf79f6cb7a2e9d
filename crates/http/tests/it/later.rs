//! Asynchronous operations, as a client sees them.

use std::time::Duration;

use semel_core::policy::Mode;
use semel_core::{Policy, Store, Upkeep, WaitingFilter};
use semel_http::{Operation, WorkerOptions};
use semel_testkit::client::{Reply, pay, problem};

use crate::later_lab::{Kept, Later, get, later};

fn operation_id(reply: &Reply) -> &str {
    reply.operation_id().expect("every answer names its operation")
}

#[tokio::test]
async fn the_first_answer_is_202_and_the_last_is_the_handlers() {
    for lab in [Later::memory().await, Later::sqlite().await] {
        let first = lab.send(pay("{}").target("/payments?dry=1")).await;
        assert_eq!(first.status, 202);
        assert_eq!(first.header("retry-after"), Some("1"));
        let address = format!("/.well-known/semel/operations/{}", operation_id(&first));
        assert_eq!(first.header("location"), Some(&*address));
        assert_eq!((&first.json()["state"], &first.json()["attempt"]), (&"claimed".into(), &1.into()));

        let again = lab.send(pay("{}").target("/payments?dry=1")).await;
        assert_eq!((again.status, again.body), (first.status, first.body.clone()), "the same while it waits");
        assert_eq!(lab.send(get(&format!("{address}/result"))).await.status, 202);
        let other = lab.send(pay("[]").target("/payments?dry=1")).await;
        assert_eq!(other.problem(), problem(422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST"));
        assert_eq!(lab.send(get(&address).set("x-user", "bob")).await.status, 404, "it is alice's");
        assert_eq!(lab.count(), 0);

        lab.work();
        let done = lab.becomes(&first, "succeeded").await;
        assert_eq!((&done["result"]["status"], &done["attempt"]), (&201.into(), &1.into()));
        let last = lab.send(pay("{}").target("/payments?dry=1")).await;
        assert_eq!((last.status.as_u16(), &last.body[..]), (201, &b"1:{}"[..]));
        assert!(last.replayed());
        assert_eq!(last.header("x-semel-seen"), Some("0"));
        assert_eq!(operation_id(&last), operation_id(&first));
        let result = lab.send(get(&format!("{address}/result"))).await;
        assert_eq!((result.status, result.body), (last.status, last.body));
        assert_eq!(lab.count(), 1);
    }
}

#[tokio::test]
async fn hundreds_of_duplicates_run_once() {
    for lab in [Later::memory().await, Later::sqlite().await] {
        let (stop, ended) = lab.work();
        let racing: Vec<_> =
            (0..300).map(|_| tokio::spawn(pay("{}").doing("gate").to(lab.address))).collect();
        lab.begun().await;
        let mut ids = std::collections::HashSet::new();
        for reply in racing {
            let reply = reply.await.expect("it is answered");
            assert_eq!(reply.status, 202);
            ids.insert(operation_id(&reply).to_owned());
        }
        assert_eq!(ids.len(), 1);
        let running = lab.send(pay("{}")).await;
        assert_eq!((running.status.as_u16(), &running.json()["state"]), (202, &"processing".into()));
        lab.open_gate();
        lab.becomes(&running, "succeeded").await;
        assert!(lab.send(pay("{}")).await.replayed());
        stop.stop();
        ended.await.expect("it ends by itself");
        assert_eq!(lab.count(), 1);
    }
}

#[tokio::test]
async fn an_accepted_command_counts_once_for_its_caller_although_a_worker_executes_it() {
    let lab = Later::memory().await;
    let accepted = lab.send(pay("{}")).await;
    lab.work();
    lab.becomes(&accepted, "succeeded").await;
    let new_keys = lab.layer.busy().callers().current.new_keys;
    assert_eq!((new_keys.total, new_keys.callers[0].count), (1, 1));
}

#[tokio::test]
async fn a_claim_wakes_the_worker_of_its_process() {
    let lab = Later::memory().await;
    lab.work_with(WorkerOptions { concurrency: 1, poll: Duration::from_secs(3600) });
    for number in 0..20 {
        let accepted = lab.send(pay("{}").set("idempotency-key", format!("a-key-of-its-own-{number}"))).await;
        lab.becomes(&accepted, "succeeded").await;
    }
    assert_eq!(lab.count(), 20);
}

#[tokio::test]
async fn a_command_that_no_worker_starts_in_time_is_free_again() {
    for lab in [Later::memory().await, Later::sqlite().await] {
        let accepted = lab.send(pay("{}")).await;
        lab.advance(later().start_within);
        let given_up = lab.poll(&accepted).await;
        assert_eq!(given_up["state"], "failed_retryable");
        assert_eq!(given_up["reason"], "never_started");
        let (stop, ended) = lab.work();
        assert_eq!(lab.records().await.len(), 1);
        let again = lab.send(pay("{}")).await;
        assert_eq!((again.status.as_u16(), operation_id(&again)), (202, operation_id(&accepted)));
        lab.becomes(&again, "succeeded").await;
        let last = lab.send(pay("{}")).await;
        assert_eq!((last.status.as_u16(), last.header("x-attempt")), (201, Some("2")));
        stop.stop();
        ended.await.expect("it ends by itself");
        assert_eq!(lab.count(), 1);
    }
}

#[tokio::test]
async fn other_operations_are_carried_out_at_once() {
    let operation =
        Operation::new("reports.create", "POST /reports").with(|policy| policy.mode = Mode::Async);
    let lab = Later::with(Later::in_memory(), |builder| builder.operation(operation)).await;
    lab.work();
    assert_eq!(lab.send(pay("{}")).await.status, 201);
    let accepted = lab.send(pay("{}").target("/reports")).await;
    assert_eq!(accepted.status, 202);
    lab.becomes(&accepted, "succeeded").await;
    assert_eq!(lab.count(), 2);
}

#[tokio::test]
async fn a_business_reference_is_taken_with_the_claim() {
    let orders = || Operation::new("orders.create", "POST /payments").business_reference("/order");
    let lab = Later::with(Later::in_memory(), |builder| builder.defaults(later()).operation(orders())).await;
    let accepted = lab.send(pay(r#"{"order": "A-1"}"#)).await;
    assert_eq!(accepted.status, 202);
    let other = lab.send(pay(r#"{"order": "A-1"}"#).set("idempotency-key", "another-key-entirely")).await;
    assert_eq!(other.problem(), problem(409, "DUPLICATE_BUSINESS_REFERENCE"));
    lab.advance(later().start_within);
    lab.store.sweep(10).await.expect("the store sweeps");
    let other = lab.send(pay(r#"{"order": "A-1"}"#).set("idempotency-key", "another-key-entirely")).await;
    assert_eq!(other.status, 202, "what never ran gives it back");
    assert_eq!(lab.send(pay(r#"{"order": "A-1"}"#)).await.problem().0, 409);
}

#[tokio::test]
async fn refused_requests_are_not_stored() {
    let policy = Policy { max_request: 8, ..later() };
    let lab = Later::with(Later::in_memory(), |builder| builder.defaults(policy)).await;
    let refused = [
        (pay("{}").without("idempotency-key"), 400),
        (pay("{}").without("x-user"), 401),
        (pay("{}").set("x-user", "mallory"), 403),
        (pay(r#"{"amount": 12345}"#), 413),
    ];
    for (request, status) in refused {
        assert_eq!(lab.send(request).await.problem().0, status);
    }
    assert!(lab.records().await.is_empty());
}

/// Returns the header of the only stored request, as it would be sent, and all of its bytes.
async fn kept(lab: &Later) -> (http::HeaderMap, Vec<u8>) {
    let mut waiting = lab.store.waiting(&WaitingFilter::default()).await.expect("the store reads").found;
    assert_eq!(waiting.len(), 1);
    let request = waiting.remove(0).request;
    (request.decode().expect("it can be read").headers, request.bytes.to_vec())
}

fn with_secrets() -> semel_testkit::client::Send {
    pay("{}")
        .with("authorization", "Bearer canary")
        .with("cookie", "session=canary")
        .with("x-api-key", "canary")
        .with("x-own-secret", "canary")
        .with("cf-access-jwt-assertion", "canary")
        .with("x-goog-iap-jwt-assertion", "canary")
        .with("x-amzn-oidc-accesstoken", "canary")
        .with("ocp-apim-subscription-key", "canary")
        .with("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .with("connection", "x-hop, idempotency-key")
        .with("x-hop", "1")
        .with("te", "trailers")
        .with("semel-tenant", "forged")
        .with("x-kept", "one")
        .with("x-kept", "two")
}

#[tokio::test]
async fn credentials_and_connection_fields_are_not_stored() {
    let own = |headers: &mut http::HeaderMap| {
        headers.remove("x-own-secret");
    };
    for wanted in [false, true] {
        let named = vec![http::HeaderName::from_static("x-kept")];
        let policy = Policy { store_credentials: wanted, store_request_headers: named, ..later() };
        let change = |builder: semel_http::Builder| builder.defaults(policy).before_keeping(own);
        let lab = Later::with(Later::in_a_file(), change).await;
        let accepted = lab.send(with_secrets()).await;
        let (headers, bytes) = kept(&lab).await;
        for name in
            ["authorization", "cookie", "x-api-key", "cf-access-jwt-assertion", "ocp-apim-subscription-key"]
        {
            assert_eq!(headers.contains_key(name), wanted, "{name}");
        }
        assert!(headers.contains_key("traceparent") && headers.contains_key("content-type"));
        assert_eq!(bytes.windows(6).any(|window| window == b"canary"), wanted);
        for name in ["connection", "x-hop", "te", "semel-tenant", "x-own-secret"] {
            assert!(!headers.contains_key(name), "{name}");
        }
        assert_eq!(headers.get_all("x-kept").iter().count(), 2);
        assert!(headers.contains_key("idempotency-key"), "no connection may claim it");
        assert_eq!(headers["host"], "lab");
        let Kept::Sqlite(_, folder) = &lab.kept else { panic!("it is a file") };
        let in_the_file = |what: &[u8]| {
            let files = std::fs::read_dir(folder.path()).expect("it can be listed");
            let mut contents = files.map(|file| std::fs::read(file.expect("it is there").path()));
            contents.any(|bytes| bytes.expect("it reads").windows(what.len()).any(|window| window == what))
        };
        assert!(in_the_file(b"x-kept"), "the look finds what is there");
        assert_eq!(in_the_file(b"canary"), wanted);
        lab.work();
        lab.becomes(&accepted, "succeeded").await;
        let file = rusqlite::Connection::open(folder.path().join("semel.db")).expect("the file opens");
        let left: i64 =
            file.query_row("SELECT count(*) FROM semel_requests", [], |row| row.get(0)).expect("it reads");
        assert_eq!(left, 0, "no worker needs it any more");
    }
}

#[tokio::test]
async fn a_host_that_came_with_http2_is_kept() {
    let lab = Later::memory().await;
    assert_eq!(pay("{}").over_http2(lab.address).await.status, 202);
    assert_eq!(kept(&lab).await.0["host"], "lab");
}

#[tokio::test]
async fn a_worker_gets_no_field_that_the_operation_leaves_out_but_all_that_the_command_needs() {
    let except = vec![http::HeaderName::from_static("x-do"), http::header::CONTENT_TYPE];
    let policy = Policy { store_headers_except: except, ..later() };
    let lab = Later::with(Later::in_a_file(), |builder| builder.defaults(policy)).await;
    let first = lab.send(pay("{}").doing("status-402")).await;
    assert_eq!(first.status, 202);
    lab.work();
    let done = lab.becomes(&first, "succeeded").await;
    assert_eq!(
        done["result"]["status"], 201,
        "what it was to do is left out; its content type is part of it"
    );
}
