//! Identity of callers: the builder requires it, and a service may name callers by a type of its own.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::post;
use semel_core::{Filter, Principal, Records};
use semel_http::{Authenticated, ConfigError, Denied, IdempotencyLayer, Operation};
use semel_stores::MemoryStore;

use crate::lab::{identify, pay, problem, serve};

/// User type of a service.
#[derive(Clone)]
struct User {
    company: &'static str,
    id: String,
}

impl Authenticated for User {
    fn principal(&self) -> Result<Principal, Denied> {
        if self.id == "mallory" {
            return Err(Denied::Forbidden);
        }
        Principal::new(self.company, &self.id).map_err(|_| Denied::unauthenticated())
    }
}

/// Puts the user of `x-user` into the extensions, if the header is there.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let user = request.headers().get("x-user").and_then(|value| value.to_str().ok()).map(str::to_owned);
    if let Some(id) = user {
        request.extensions_mut().insert(User { company: "acme", id });
    }
    next.run(request).await
}

#[tokio::test]
async fn an_extension_of_the_authentication_layer_names_the_caller() {
    let store = Arc::new(MemoryStore::new());
    let layer = IdempotencyLayer::builder(store.clone()).identify_extension::<User>();
    let layer = layer.build().expect("the layer is valid");
    let app = Router::new().route("/payments", post(|| async { "paid" }));
    let address = serve(app.layer(layer).layer(from_fn(authenticate))).await;

    assert_eq!(pay("{}").to(address).await.status, 200);
    assert!(pay("{}").to(address).await.replayed());
    assert!(!pay("{}").set("x-user", "bob").to(address).await.replayed(), "another caller, another scope");
    assert_eq!(pay("{}").without("x-user").to(address).await.problem(), problem(401, "UNAUTHENTICATED"));
    assert_eq!(pay("{}").set("x-user", "mallory").to(address).await.problem(), problem(403, "FORBIDDEN"));
    let records = store.list(&Filter::default()).await.expect("it lists").records;
    let mut callers: Vec<_> = records.iter().map(|record| record.principal.clone()).collect();
    callers.sort_by(|one, other| one.caller().cmp(other.caller()));
    let principal = |user| Principal::new("acme", user).expect("it is valid");
    assert_eq!(callers, [principal("alice"), principal("bob")]);
}

#[test]
fn a_layer_without_an_identity_is_not_built() {
    let builder = || IdempotencyLayer::builder(Arc::new(MemoryStore::new()));
    let error = builder().build().err().expect("it is refused");
    assert!(matches!(error, ConfigError::NoIdentity));
    assert!(error.to_string().contains("`identify`"), "{error}");
    assert!(error.to_string().contains("`identify_extension`"), "{error}");
    assert!(builder().identify(identify).build().is_ok());
    assert!(builder().identify_extension::<User>().build().is_ok());
}

#[test]
fn an_error_of_the_builder_explains_itself_where_it_is_unwrapped() {
    let refused = |operations: Vec<Operation>| {
        let builder = IdempotencyLayer::builder(Arc::new(MemoryStore::new())).identify(identify);
        let builder = operations.into_iter().fold(builder, semel_http::Builder::operation);
        builder.build().err().expect("it is refused")
    };
    let op = Operation::new;
    for error in [
        refused(vec![op("payments.create", "/payments")]),
        refused(vec![op("payments.create", "GET /payments")]),
        refused(vec![op("payments.create", "POST /a%2Fb")]),
        refused(vec![op("a", "POST /{x}"), op("payments.create", "POST /{y}")]),
    ] {
        let debug = format!("{error:?}");
        assert_eq!(debug, error.to_string());
        assert!(debug.starts_with("operation \"payments.create\": "), "{debug}");
    }
}
