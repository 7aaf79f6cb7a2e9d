//! Normal form of a path in the layer: its matching, storing and forwarding to the handler.

use semel_core::Filter;
use semel_core::Records;
use semel_core::path::PathException;
use semel_core::policy::{Mode, Spelling};
use semel_http::{IdempotencyLayer, Operation};

use crate::lab::{Lab, identify, pay, problem};

#[tokio::test]
async fn two_spellings_of_a_path_are_one_command_and_the_second_is_replayed() {
    let lab = Lab::new().await;
    assert_eq!(lab.send(pay("{}").target("/p%61yments/%37")).await.status, 201);
    let again = lab.send(pay("{}").target("/payments/7")).await;
    assert!(again.replayed());
    assert_eq!(lab.count(), 1);
    let names: Vec<_> = lab.store.list(&Filter::default()).await.expect("it lists").records;
    assert_eq!(
        names.iter().map(|record| record.operation.as_str()).collect::<Vec<_>>(),
        ["POST /payments/{id}"]
    );
}

#[tokio::test]
async fn path_without_a_canonical_form_runs_nothing() {
    let lab = Lab::with(|builder| {
        builder
            .operation(Operation::new("payments.create", "POST /payments"))
            .operation(Operation::new("payments.replace", "PUT /payments/{id}"))
    })
    .await;
    for (method, target) in [
        ("POST", "/payments/"),
        ("POST", "/PAYMENTS"),
        ("POST", "//payments"),
        ("POST", "/payments%2F"),
        ("PUT", "/payments%2F7"),
        ("PUT", "/payments/7/"),
        ("PUT", "/pa%2579ments/7"),
        ("GET", "/a/%2e%2e/b"),
        ("DELETE", "/a;b"),
    ] {
        let reply = lab.send(pay("{}").method(method).target(target)).await;
        assert_eq!(reply.problem(), problem(400, "MALFORMED_REQUEST"), "{method} {target}");
    }
    assert_eq!(lab.count(), 0);
}

#[tokio::test]
async fn operations_and_passes_set_the_spellings_and_path_exceptions_they_admit() {
    let lab = Lab::with(|builder| {
        let spelled = |policy: &mut semel_core::Policy| {
            policy.trailing_slash = Spelling::Same;
            policy.letter_case = Spelling::Same;
        };
        builder
            .operation(Operation::new("payments.create", "POST /payments").with(spelled))
            .operation(Operation::new("files.put", "PUT /files/{name}").allow(PathException::EncodedSlash))
            .pass("GET /files/{*name}", [PathException::EncodedSlash, PathException::EmptySegment])
    })
    .await;
    assert_eq!(lab.send(pay("{}").target("/Payments/")).await.status, 201);
    assert!(lab.send(pay("{}")).await.replayed());
    assert_eq!(lab.send(pay("{}").method("PUT").target("/files/a%2fb")).await.status, 201);
    assert!(lab.send(pay("{}").method("PUT").target("/files/a%2Fb")).await.replayed());
    assert_eq!(lab.count(), 2);
    for (target, status) in
        [("/files/a%2Fb//c", 201), ("/files/a;b", 400), ("/files/..%2Fb", 400), ("/a%2Fb", 400)]
    {
        let reply = lab.send(pay("").method("GET").target(target)).await;
        assert_eq!(reply.status, status, "{target}");
    }
}

#[test]
fn routes_with_the_same_normalized_path_are_refused() {
    let refused = |operations: Vec<Operation>| {
        let store = std::sync::Arc::new(semel_stores::MemoryStore::new());
        let builder = IdempotencyLayer::builder(store).identify(identify);
        let builder = operations.into_iter().fold(builder, semel_http::Builder::operation);
        builder.build().err().map(|error| error.to_string())
    };
    let op = Operation::new;
    let apart = |policy: &mut semel_core::Policy| policy.letter_case = Spelling::Other;
    for (one, other) in
        [("POST /p%61y", "POST /pay"), ("POST /pay", "POST /Pay"), ("POST /pay", "POST /pay/")]
    {
        let error = refused(vec![op("one", one), op("other", other)]).unwrap_or_default();
        assert!(error.starts_with("operation \"other\": "), "{one} {other}: {error}");
    }
    assert_eq!(refused(vec![op("one", "POST /pay").with(apart), op("other", "POST /Pay").with(apart)]), None);
    assert_eq!(refused(vec![op("one", "POST /pay"), op("other", "PUT /Pay")]), None);
    for route in ["POST /a/../b", "POST /a%2Fb", "POST /.well-known/semel/x", "POST /%zz"] {
        assert!(refused(vec![op("one", route)]).is_some(), "{route}");
    }
    let twice =
        refused(vec![op("one", "POST /a").alias("POST /p%61y"), op("other", "POST /b").alias("POST /pay")]);
    assert!(twice.unwrap_or_default().contains("former name"), "two aliases that become one");
}

#[tokio::test]
async fn two_spellings_of_an_async_command_share_one_record() {
    let later = |policy: &mut semel_core::Policy| {
        policy.mode = Mode::Async;
        policy.letter_case = Spelling::Same;
    };
    let lab = Lab::with(|builder| {
        builder.operation(Operation::new("reports.create", "POST /reports/{id}").with(later))
    })
    .await;
    let reply = lab.send(pay("{}").target("/REPORTS/%37")).await;
    assert_eq!(reply.status, 202);
    let waiting = lab.store.list(&Filter::default()).await.expect("it lists").records;
    let [record] = &waiting[..] else { panic!("one is kept: {waiting:?}") };
    assert_eq!(record.operation.as_str(), "reports.create");
    assert_eq!(lab.send(pay("{}").target("/reports/7")).await.status, 202, "the same command");
    assert_eq!(lab.store.list(&Filter::default()).await.expect("it lists").records.len(), 1);
}
