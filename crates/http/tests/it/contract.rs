//! Answers to a client, case by case.

use std::time::Duration;

use semel_core::policy::{InProgress, KeyRequirement, OnExpired};
use semel_core::{KeySyntax, Policy};
use semel_http::Operation;

use crate::lab::{KEY, Lab, pay, problem};

const A_DAY: Duration = Duration::from_secs(24 * 60 * 60 + 1);

#[tokio::test]
async fn a_missing_key_is_refused() {
    let lab = Lab::new().await;
    let reply = lab.send(pay("{}").without("idempotency-key")).await;
    assert_eq!(reply.problem(), problem(400, "MISSING_IDEMPOTENCY_KEY"));
    assert_eq!((lab.count(), lab.records().await), (0, 0));
}

#[tokio::test]
async fn an_invalid_key_is_refused_also_where_keys_are_optional() {
    for requirement in [KeyRequirement::Required, KeyRequirement::Optional] {
        let lab = Lab::policy(|policy| policy.key = requirement).await;
        for key in
            ["", "\"\"", "short", "has space in the middle", "\"unclosed-string-item", "ü-0123456789012345"]
        {
            let reply = lab.send(pay("{}").set("idempotency-key", key)).await;
            assert_eq!(reply.problem(), problem(400, "INVALID_IDEMPOTENCY_KEY"), "{key:?}");
        }
        let long = "k".repeat(256);
        let twice = pay("{}").with("idempotency-key", KEY);
        let mail = pay("{}").set("idempotency-key", "\"alice.cooper@example.com\"");
        let card = pay("{}").set("idempotency-key", "4111-1111-1111-1111");
        for request in [pay("{}").set("idempotency-key", &long), twice, mail, card] {
            assert_eq!(lab.send(request).await.problem(), problem(400, "INVALID_IDEMPOTENCY_KEY"));
        }
        assert_eq!((lab.count(), lab.records().await), (0, 0));
    }
}

#[tokio::test]
async fn a_problem_never_repeats_the_key() {
    let lab = Lab::new().await;
    let reply = lab.send(pay("{}").set("idempotency-key", "canary key with spaces")).await;
    assert!(!String::from_utf8_lossy(&reply.body).contains("canary"));
}

#[tokio::test]
async fn a_first_call_gets_the_handlers_answer() {
    let lab = Lab::new().await;
    let reply = lab.send(pay(r#"{"amount":1}"#)).await;
    assert_eq!(reply.status, 201);
    assert_eq!(&reply.body[..], br#"1:{"amount":1}"#);
    assert_eq!(reply.header("set-cookie"), Some("session=secret"), "the first caller gets all of it");
    assert!(!reply.replayed());
    assert!(reply.header("idempotency-operation-id").is_some());
    let expires = reply.header("idempotency-expires").expect("its expiry is published");
    assert!(semel_core::Timestamp::from_http_date(expires).is_some(), "{expires}");
}

#[tokio::test]
async fn a_second_request_replays_the_first_response() {
    let lab = Lab::new().await;
    let first = lab.send(pay(r#"{"amount":1}"#)).await;
    for _ in 0..3 {
        let again = lab.send(pay(r#"{"amount":1}"#)).await;
        assert!(again.replayed());
        assert_eq!((again.status, &again.body), (first.status, &first.body));
        for header in ["idempotency-operation-id", "idempotency-expires", "location", "x-number"] {
            assert_eq!(again.header(header), first.header(header), "{header}");
        }
    }
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn a_quoted_key_and_a_bare_key_are_the_same_key() {
    let lab = Lab::new().await;
    lab.send(pay("{}")).await;
    for spelling in [format!("\"{KEY}\""), format!("\"{KEY}\";v=1"), format!("  {KEY}\t")] {
        assert!(lab.send(pay("{}").set("idempotency-key", &spelling)).await.replayed(), "{spelling}");
    }
    let strict = Lab::policy(|policy| policy.key_rules.syntax = KeySyntax::Strict).await;
    assert_eq!(strict.send(pay("{}")).await.problem(), problem(400, "INVALID_IDEMPOTENCY_KEY"));
    let quoted = pay("{}").set("idempotency-key", format!("\"{KEY}\""));
    assert_eq!(strict.send(quoted).await.status, 201);
}

#[tokio::test]
async fn a_changed_request_is_a_mismatch() {
    let lab = Lab::new().await;
    lab.send(pay(r#"{"amount":1}"#)).await;
    let original = || pay(r#"{"amount":1}"#);
    let changed = [
        pay(r#"{"amount":2}"#),
        pay(r#"{"amount":1,"amount":1}"#),
        pay(""),
        original().target("/payments?dry=1"),
        original().set("content-type", "text/plain"),
        original().with("content-encoding", "br"),
    ];
    for request in changed {
        let reply = lab.send(request).await;
        assert_eq!(reply.problem(), problem(422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST"));
        assert_eq!(reply.header("location"), None, "nothing of the first response shows");
    }
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn equal_json_in_another_spelling_is_replayed() {
    let lab = Lab::new().await;
    let first = lab.send(pay(r#"{"amount":1,"to":"ä"}"#)).await;
    for body in ["{ \"to\" : \"\\u00e4\", \"amount\" : 1.0 }\n", r#"{"to":"ä","amount":10e-1}"#] {
        let again = lab.send(pay(body)).await;
        assert!(again.replayed(), "{body}");
        assert_eq!(again.body, first.body);
    }
    let with_charset = pay(r#"{"amount":1,"to":"ä"}"#).set("content-type", "Application/JSON; charset=utf-8");
    assert!(lab.send(with_charset).await.replayed());
}

#[tokio::test]
async fn a_changed_request_gets_422_while_the_first_still_runs() {
    let lab = Lab::policy(|policy| policy.wait = Duration::ZERO).await;
    let address = lab.address;
    let first = tokio::spawn(pay("{}").doing("gate").to(address));
    lab.begun().await;
    assert_eq!(lab.send(pay("[]")).await.problem().0, 422);
    let reply = lab.send(pay("{}").doing("gate")).await;
    assert_eq!(reply.problem(), problem(409, "IDEMPOTENCY_REQUEST_IN_PROGRESS"));
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert!(reply.json()["operationId"].is_string());
    lab.open_gate();
    assert_eq!(first.await.expect("it is answered").status, 201);
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn concurrent_requests_with_the_same_key_run_once() {
    let lab = Lab::policy(|_| {}).await;
    let requests: Vec<_> = (0..50).map(|_| tokio::spawn(pay("{}").doing("gate").to(lab.address))).collect();
    lab.begun().await;
    lab.open_gate();
    let mut replayed = 0;
    for request in requests {
        let reply = request.await.expect("it is answered");
        assert_eq!((reply.status.as_u16(), &reply.body[..]), (201, &b"1:{}"[..]));
        replayed += usize::from(reply.replayed());
    }
    assert_eq!((lab.count(), replayed), (1, 49));
}

#[tokio::test]
async fn requests_at_two_processes_run_once() {
    let lab = Lab::policy(|_| {}).await;
    let policy = Policy { wait: Duration::from_secs(5), ..Policy::default() };
    let (second, _) = lab.second(policy).await;
    let addresses = [lab.address, second];
    let requests: Vec<_> =
        (0..20).map(|n| tokio::spawn(pay("{}").doing("gate").to(addresses[n % 2]))).collect();
    lab.begun().await;
    lab.open_gate();
    for request in requests {
        let reply = request.await.expect("it is answered");
        assert_eq!((reply.status.as_u16(), &reply.body[..]), (201, &b"1:{}"[..]));
    }
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn a_waiter_never_executes() {
    let lab = Lab::policy(|_| {}).await;
    let claims = lab.count_claims();
    let first = tokio::spawn(pay("{}").doing("gate not-executed").to(lab.address));
    lab.begun().await;
    let waiters: Vec<_> =
        (0..8).map(|_| tokio::spawn(pay("{}").doing("gate not-executed").to(lab.address))).collect();
    // A claim after the release would be a fresh request; these claims come before it.
    let _ = claims.acquire_many(9).await.expect("it is never closed");
    lab.open_gate();
    assert_eq!(first.await.expect("it is answered").status, 503);
    for waiter in waiters {
        let reply = waiter.await.expect("it is answered");
        assert_eq!(reply.problem(), problem(409, "IDEMPOTENCY_REQUEST_IN_PROGRESS"));
    }
    let fresh = lab.send(pay("{}")).await;
    assert_eq!((fresh.status.as_u16(), fresh.header("x-attempt")), (201, Some("2")));
}

#[tokio::test]
async fn an_accepted_duplicate_gets_202_with_the_operation_address() {
    let lab = Lab::policy(|policy| {
        policy.wait = Duration::ZERO;
        policy.in_progress = InProgress::Accepted;
    })
    .await;
    let first = tokio::spawn(pay("{}").doing("gate").to(lab.address));
    lab.begun().await;
    let reply = lab.send(pay("{}").doing("gate")).await;
    assert_eq!(reply.status, 202);
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(reply.json()["state"], "processing");
    let location = reply.header("location").expect("it says where").to_owned();
    assert!(location.starts_with("/.well-known/semel/operations/"), "{location}");
    let ask = || pay("").method("GET").target(location.clone());
    assert_eq!(lab.send(ask()).await.json()["state"], "processing");
    lab.open_gate();
    let first = first.await.expect("it is answered");
    let done = lab.send(ask()).await.json();
    assert_eq!((&done["state"], &done["result"]["status"]), (&"succeeded".into(), &201.into()));
    let result = lab.send(pay("").method("GET").target(format!("{location}/result"))).await;
    assert_eq!((result.status, result.body), (first.status, first.body));
}

#[tokio::test]
async fn an_expired_key_is_a_new_request() {
    let lab = Lab::new().await;
    let first = lab.send(pay("{}")).await;
    // A layer that has not seen the record: caches use their own clock, not the test's.
    lab.sqlite.shift_clock(A_DAY);
    let (second, store) = lab.second(Policy::default()).await;
    store.shift_clock(A_DAY);
    let again = pay("{}").to(second).await;
    assert!(!again.replayed());
    assert_ne!(again.header("idempotency-operation-id"), first.header("idempotency-operation-id"));
    assert_eq!(lab.count(), 2);
}

#[tokio::test]
async fn an_expired_key_is_refused_where_tombstones_are_kept() {
    let policy = Policy { on_expired: OnExpired::Refuse, ..Policy::default() };
    let lab = Lab::with(|builder| builder.defaults(policy.clone())).await;
    lab.send(pay("{}")).await;
    let (second, store) = lab.second(policy).await;
    store.shift_clock(A_DAY);
    let again = pay("{}").to(second).await;
    assert_eq!(again.problem(), problem(410, "IDEMPOTENCY_RECORD_EXPIRED"));
    assert_eq!(pay("[]").to(second).await.problem().0, 422);
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn no_caller_gets_another_callers_replay() {
    let lab = Lab::new().await;
    let alice = lab.send(pay("{}")).await;
    let others =
        [pay("{}").set("x-user", "bob"), pay("{}").with("x-tenant", "globex"), pay("{}").target("/refunds")];
    for (number, other) in others.into_iter().enumerate() {
        let reply = lab.send(other).await;
        assert!(!reply.replayed(), "another scope's record does not exist for it");
        assert_ne!(reply.body, alice.body);
        assert_eq!(lab.count(), number + 2);
    }
    assert!(lab.send(pay("{}")).await.replayed());
}

#[tokio::test]
async fn request_without_a_caller_is_refused() {
    let lab = Lab::new().await;
    lab.send(pay("{}")).await;
    let reply = lab.send(pay("{}").without("x-user")).await;
    assert_eq!(reply.problem(), problem(401, "UNAUTHENTICATED"));
    let reply = lab.send(pay("{}").set("x-user", "mallory")).await;
    assert_eq!(reply.problem(), problem(403, "FORBIDDEN"));
    let reply = lab.send(pay("{}").without("x-user").without("idempotency-key")).await;
    assert_eq!(reply.problem().0, 401, "who asks comes before what is asked");
    assert_eq!(lab.count(), 1);
}

#[tokio::test]
async fn requests_that_are_not_commands_pass_without_a_record() {
    let lab =
        Lab::with(|builder| builder.operation(Operation::new("payments.replace", "PUT /payments/{id}")))
            .await;
    for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
        for _ in 0..2 {
            let request = pay("as it came").method(method).without("x-user").set("idempotency-key", "!");
            let reply = lab.send(request).await;
            assert_eq!(reply.status, 201, "{method}");
            assert_eq!(reply.header("idempotency-operation-id"), None);
        }
    }
    assert_eq!((lab.count(), lab.records().await), (8, 0));
    let opted_in = pay("{}").method("PUT").target("/payments/7");
    lab.send(opted_in.clone()).await;
    assert!(lab.send(opted_in).await.replayed(), "an operation may opt in");
}

#[tokio::test]
async fn an_operation_may_opt_out_by_name_only() {
    let lab = Lab::with(|builder| {
        builder
            .operation(
                Operation::new("ping", "POST /ping").with(|policy| policy.key = KeyRequirement::Ignored),
            )
            .operation(
                Operation::new("note", "POST /note").with(|policy| policy.key = KeyRequirement::Optional),
            )
    })
    .await;
    for _ in 0..2 {
        assert!(!lab.send(pay("{}").target("/ping")).await.replayed());
        assert_eq!(lab.send(pay("{}").target("/note").without("idempotency-key")).await.status, 201);
    }
    assert_eq!(lab.count(), 4);
    lab.send(pay("{}").target("/note")).await;
    assert!(lab.send(pay("{}").target("/note")).await.replayed(), "a key that is sent counts");
    let reply = lab.send(pay("{}").target("/ping/").without("idempotency-key")).await;
    assert_eq!(reply.problem().0, 400, "what is not named is protected");
}

#[tokio::test]
async fn members_left_out_of_the_fingerprint_may_change() {
    let lab = Lab::with(|builder| {
        builder.operation(Operation::new("payments.create", "POST /payments").exclude("/clientTimestamp"))
    })
    .await;
    lab.send(pay(r#"{"amount":1,"clientTimestamp":1}"#)).await;
    assert!(lab.send(pay(r#"{"amount":1,"clientTimestamp":2}"#)).await.replayed());
    assert!(lab.send(pay(r#"{"amount":1}"#)).await.replayed());
    assert_eq!(lab.send(pay(r#"{"amount":2,"clientTimestamp":1}"#)).await.problem().0, 422);
}

#[tokio::test]
async fn a_request_that_is_too_old_is_refused() {
    let lab = Lab::policy(|policy| policy.max_request_age = Some(Duration::from_secs(300))).await;
    let old = pay("{}").with("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(lab.send(old).await.problem(), problem(400, "REQUEST_TOO_OLD"));
    assert_eq!(lab.send(pay("{}")).await.problem(), problem(400, "REQUEST_TOO_OLD"));
    let now = semel_core::Clock::now(&semel_core::SystemClock);
    assert_eq!(lab.send(pay("{}").with("date", now.to_http_date())).await.status, 201);
}

#[tokio::test]
async fn a_handler_sees_its_operation_id_and_forged_semel_fields_are_removed() {
    let lab = Lab::new().await;
    let reply = lab
        .send(
            pay("{}")
                .with("semel-operation-id", "forged")
                .with("semel-tenant", "other")
                .with("semel_caller", "other"),
        )
        .await;
    assert_eq!(reply.header("x-semel-seen"), Some("0"), "client-sent fields of ours are stripped");
    assert_eq!(reply.header("x-attempt"), Some("1"));
    let id = reply.operation_id().expect("it is named");
    assert_eq!(reply.header("x-downstream-key"), Some(format!("{id}:charge").as_str()));
}

#[tokio::test]
async fn an_unprotected_response_loses_forged_semel_fields() {
    let lab = Lab::new().await;
    let reply = lab.send(pay("").method("GET").doing("forged")).await;
    assert_eq!((reply.header("semel-outcome"), reply.header("idempotency-replayed")), (None, None));
}

#[tokio::test]
async fn a_business_reference_is_held_by_one_command() {
    let lab = Lab::with(|builder| {
        builder.operation(Operation::new("orders", "POST /payments").business_reference("/order"))
    })
    .await;
    let order = |key: &str, body: &str| pay(body).set("idempotency-key", format!("{key}-0123456789"));
    let first = lab.send(order("first", r#"{"order":7}"#)).await;
    assert_eq!(first.status, 201);
    let second = lab.send(order("second", r#"{"order":7,"note":"again"}"#)).await;
    assert_eq!(second.problem(), problem(409, "DUPLICATE_BUSINESS_REFERENCE"));
    assert_eq!(second.json()["operationId"].as_str(), first.header("idempotency-operation-id"));
    let colleague = lab.send(order("third", r#"{"order":7}"#).set("x-user", "bob")).await;
    assert_eq!(colleague.problem(), problem(409, "DUPLICATE_BUSINESS_REFERENCE"));
    assert!(colleague.json()["operationId"].is_null(), "only the holder's own caller is told");
    assert!(lab.send(order("first", r#"{"order":7}"#)).await.replayed());
    assert_eq!(lab.send(order("fourth", r#"{"order":8}"#)).await.status, 201);
    assert_eq!(lab.send(order("fifth", "{}")).await.status, 201, "a request without one has none");
    let ambiguous = lab.send(order("ambiguous", r#"{"order":7,"order":7}"#)).await;
    assert_eq!(ambiguous.problem(), problem(400, "MALFORMED_REQUEST"), "it would slip past");
    let long = |length| format!(r#"{{"order":"{}"}}"#, "7".repeat(length));
    assert_eq!(lab.send(order("sixth", &long(256))).await.problem(), problem(413, "REQUEST_TOO_LARGE"));
    assert_eq!(lab.count(), 3);
    assert_eq!(lab.send(order("seventh", &long(255))).await.status, 201, "the longest");
}

#[tokio::test]
async fn no_spelling_of_a_number_evades_a_business_reference() {
    let lab = Lab::with(|builder| {
        builder.operation(Operation::new("orders", "POST /payments").business_reference("/order"))
    })
    .await;
    let order = |key: usize, order: &str| {
        pay(&format!(r#"{{"order":{order}}}"#)).set("idempotency-key", format!("{key:0>16}"))
    };
    let spellings = [
        &["7", "7.0", "70e-1", r#""7""#][..],
        &[
            "9007199254740993",
            "9007199254740993.0",
            "9007199254740993e0",
            "900719925474099300E-2",
            r#""9007199254740993""#,
        ],
        &["1e400", "10e399", "0.01E+402"],
    ];
    for (row, spellings) in spellings.iter().enumerate() {
        assert_eq!(lab.send(order(row * 10, spellings[0])).await.status, 201);
        for (index, spelling) in spellings.iter().enumerate().skip(1) {
            let again = lab.send(order(row * 10 + index, spelling)).await;
            assert_eq!(again.problem(), problem(409, "DUPLICATE_BUSINESS_REFERENCE"), "{spelling}");
        }
    }
    assert_eq!(lab.send(order(90, "9007199254740992")).await.status, 201, "another number");
    assert_eq!(lab.send(order(91, r#""7.0""#)).await.status, 201, "a string stays the string it is");
    assert_eq!(lab.count(), 5);
}

#[tokio::test]
async fn a_renamed_operation_keeps_its_live_records() {
    let lab = Lab::new().await;
    let first = lab.send(pay("{}")).await;
    let renamed = |builder: semel_http::Builder| {
        builder.operation(Operation::new("payments.create", "POST /payments").alias("POST /payments"))
    };
    let second = lab.second_with(renamed).await;
    let again = pay("{}").to(second).await;
    assert!(again.replayed());
    assert_eq!(again.header("idempotency-operation-id"), first.header("idempotency-operation-id"));
    let fresh = || pay("{}").set("idempotency-key", "another-key-0123456789");
    fresh().to(second).await;
    assert!(fresh().to(second).await.replayed());
    assert_eq!(lab.count(), 2);
}

#[tokio::test]
async fn callers_without_credentials_pass_an_anonymous_operation_if_they_send_no_key() {
    let operation = Operation::new("payments", "POST /payments").anonymous();
    let lab = Lab::with(|builder| builder.operation(operation)).await;
    let unknown = || pay("{}").without("x-user").without("idempotency-key");
    for _ in 0..2 {
        let reply = lab.send(unknown()).await;
        assert_eq!(reply.status, 201);
        assert_eq!(reply.header("idempotency-operation-id"), None, "it is not protected");
    }
    assert_eq!((lab.count(), lab.records().await), (2, 0));
    for refused in [
        pay("{}").without("x-user"),
        unknown().with("idempotency-key", ""),
        unknown().with("authorization", "Bearer unknown"),
        unknown().with("x-api-key", "unknown"),
        unknown().target("/other"),
    ] {
        assert_eq!(lab.send(refused).await.problem(), problem(401, "UNAUTHENTICATED"));
    }
    let known = lab.send(pay("{}").without("idempotency-key")).await;
    assert_eq!(known.problem(), problem(400, "MISSING_IDEMPOTENCY_KEY"), "a known caller has a key");
    assert_eq!(lab.send(pay("{}")).await.status, 201);
    assert_eq!((lab.count(), lab.records().await), (3, 1));
}
