//! Stripe's own SDKs against a gateway with Stripe's profile: they raise the same errors as for Stripe's API,
//! and a charge is made once whatever happens to a connection.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::gateway::lab::{Gateway, Site};
use crate::line::Line;
use crate::third_party::{node, python};

const SETTINGS: &str = "[[operation]]\nname = \"charges.create\"\nmatch = \"POST /v1/charges\"\nprofile = \"stripe\"\n\
                        key = \"optional\"\nwait = \"0s\"\n";

/// SDK, and the names of its errors.
struct Sdk {
    program: fn() -> Command,
    idempotency_error: &'static str,
    api_error: &'static str,
    invalid_request: &'static str,
}

const NODE: Sdk = Sdk {
    program: || node("stripe_client.mjs"),
    idempotency_error: "StripeIdempotencyError",
    api_error: "StripeAPIError",
    invalid_request: "StripeInvalidRequestError",
};

const PYTHON: Sdk = Sdk {
    program: || python("stripe_client.py"),
    idempotency_error: "IdempotencyError",
    api_error: "APIError",
    invalid_request: "InvalidRequestError",
};

/// Call of the SDK: amount, description, key, and the SDK's own number of retries.
struct Charge<'a>(u32, &'a str, Option<&'a str>, u32);

impl Sdk {
    /// Runs a call in its own process, and returns the SDK's result or error.
    async fn charge(
        &self,
        address: SocketAddr,
        Charge(amount, description, key, retries): Charge<'_>,
    ) -> Value {
        let parameters = json!({ "amount": amount, "currency": "eur", "description": description });
        let call = json!({ "parameters": parameters, "key": key, "retries": retries });
        let mut command = (self.program)();
        command.arg(address.to_string()).arg(call.to_string());
        let output = tokio::task::spawn_blocking(move || command.output().expect("it runs"));
        let output = output.await.expect("it does not panic");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        serde_json::from_str(&text)
            .unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
    }
}

/// Upstream with Stripe's path for charges.
struct Charges {
    made: AtomicUsize,
    begun: Semaphore,
    gate: Semaphore,
}

impl Charges {
    fn made(&self) -> usize {
        self.made.load(Ordering::SeqCst)
    }
}

async fn create(State(charges): State<Arc<Charges>>, form: String) -> Response {
    let number = charges.made.fetch_add(1, Ordering::SeqCst) + 1;
    if form.contains("description=gated") {
        charges.begun.add_permits(1);
        charges.gate.acquire().await.expect("it is never closed").forget();
    }
    if form.contains("description=failing") {
        let error = json!({ "error": { "type": "api_error", "message": "The service failed." } });
        return (StatusCode::INTERNAL_SERVER_ERROR, axum::Json(error)).into_response();
    }
    let charge = json!({ "id": format!("ch_{number}"), "object": "charge", "livemode": false });
    axum::Json(charge).into_response()
}

async fn lab() -> (Site, Arc<Charges>, Gateway) {
    let (begun, gate) = (Semaphore::new(0), Semaphore::new(0));
    let charges = Arc::new(Charges { made: AtomicUsize::new(0), begun, gate });
    let app = Router::new().route("/v1/charges", post(create)).with_state(charges.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move { axum::serve(listener, app).await });
    let site = Site::new();
    let gateway = site.start_with(address, SETTINGS, &[]);
    (site, charges, gateway)
}

/// Waits until a counter of the gateway has this value.
async fn counted(gateway: &Gateway, counter: &str, value: u64) {
    for _ in 0..1000 {
        if gateway.counted(counter).await == Some(value) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{counter} never says {value}");
}

fn raised(class: &str, kind: &str, code: &str, status: u16) -> Value {
    json!({ "raised": class, "type": kind, "code": code, "status": status })
}

async fn first_calls_retries_and_mismatches(sdk: &Sdk) {
    let (_site, charges, gateway) = lab().await;
    let first = sdk.charge(gateway.address, Charge(100, "one", Some("k1"), 0)).await;
    assert_eq!(first, json!({ "id": "ch_1", "status": 200, "replayed": null }));
    let again = sdk.charge(gateway.address, Charge(100, "one", Some("k1"), 0)).await;
    assert_eq!(again, json!({ "id": "ch_1", "status": 200, "replayed": "true" }));
    let code = "idempotency_key_reused_with_different_request";
    let mismatch = sdk.charge(gateway.address, Charge(200, "one", Some("k1"), 3)).await;
    assert_eq!(mismatch, raised(sdk.idempotency_error, "idempotency_error", code, 400));
    let bad = sdk.charge(gateway.address, Charge(100, "one", Some("two words"), 3)).await;
    assert_eq!(bad, raised(sdk.invalid_request, "invalid_request_error", "invalid_idempotency_key", 400));
    assert_eq!(charges.made(), 1);
    // The SDK makes the key and retries by itself.
    let line = Line::start(gateway.address, 1).await;
    let cut = sdk.charge(line.address, Charge(300, "cut", None, 2)).await;
    assert_eq!(cut, json!({ "id": "ch_2", "status": 200, "replayed": "true" }));
    assert_eq!((line.cuts(), charges.made()), (0, 2), "one effect");
}

async fn calls_in_progress(sdk: &'static Sdk) {
    let (_site, charges, gateway) = lab().await;
    let address = gateway.address;
    let gated = || Charge(100, "gated", Some("k1"), 0);
    let first = tokio::spawn(sdk.charge(address, gated()));
    charges.begun.acquire().await.expect("it is never closed").forget();
    let busy = sdk.charge(address, gated()).await;
    assert_eq!(busy, raised(sdk.api_error, "invalid_request_error", "idempotency_key_in_use", 409));
    let patient = tokio::spawn(sdk.charge(address, Charge(100, "gated", Some("k1"), 8)));
    counted(&gateway, "idempotency_in_progress_total{operation=\"charges.create\"}", 2).await;
    charges.gate.add_permits(1);
    let first = first.await.expect("it ends");
    assert_eq!(first, json!({ "id": "ch_1", "status": 200, "replayed": null }));
    let patient = patient.await.expect("it ends");
    assert_eq!(patient, json!({ "id": "ch_1", "status": 200, "replayed": "true" }), "its own retry");
    assert_eq!(charges.made(), 1);
}

async fn calls_with_an_unknown_outcome(sdk: &Sdk) {
    let (_site, charges, gateway) = lab().await;
    // The SDK retries a 500 by itself, learns that the outcome is unknown, and stops.
    let unknown = sdk.charge(gateway.address, Charge(100, "failing", Some("k1"), 8)).await;
    assert_eq!(unknown, raised(sdk.api_error, "api_error", "idempotency_outcome_unknown", 409));
    let claims = "idempotency_claims_total{operation=\"charges.create\",outcome=\"unknown\"}";
    assert_eq!(gateway.counted(claims).await, Some(1), "one retry, and no more");
    assert_eq!(charges.made(), 1);
}

#[tokio::test]
async fn stripe_node_makes_one_charge_and_raises_its_own_errors() {
    tokio::join!(
        first_calls_retries_and_mismatches(&NODE),
        calls_in_progress(&NODE),
        calls_with_an_unknown_outcome(&NODE)
    );
}

#[tokio::test]
async fn stripe_python_makes_one_charge_and_raises_its_own_errors() {
    tokio::join!(
        first_calls_retries_and_mismatches(&PYTHON),
        calls_in_progress(&PYTHON),
        calls_with_an_unknown_outcome(&PYTHON)
    );
}
