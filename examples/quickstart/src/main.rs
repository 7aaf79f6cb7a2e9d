//! A payment service that charges once. Run it, then try the `curl` lines it prints.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::routing::post;
use axum::{Json, Router, http::StatusCode};
use semel::{Operation, Principal, Semel};
use serde_json::{Value, json};

static CHARGES: AtomicU64 = AtomicU64::new(0);

/// Takes a second, like a card network on a bad day, and has an effect that must not happen twice.
async fn pay(Json(payment): Json<Value>) -> (StatusCode, Json<Value>) {
    tokio::time::sleep(Duration::from_secs(1)).await;
    let number = CHARGES.fetch_add(1, Ordering::SeqCst) + 1;
    (StatusCode::CREATED, Json(json!({ "charge": number, "amount": payment["amount"] })))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "quickstart.db".into());
    let semel = Semel::builder(semel::open(&format!("sqlite:{path}")).await?)
        // A real service takes the caller from its authentication; this one believes a header.
        .identify(|head| {
            let user = head.headers.get("x-user").and_then(|value| value.to_str().ok());
            Ok(Principal::new("acme", user.unwrap_or_default())?)
        })
        .operation(Operation::new("payments.create", "POST /payments"))
        .build()?;
    let app = Router::new().route("/payments", post(pay)).layer(semel.layer());

    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".into());
    let listener = tokio::net::TcpListener::bind(address).await?;
    let curl = format!("curl -si http://{}/payments -H 'X-User: alice' ", listener.local_addr()?)
        + "-H 'Content-Type: application/json' -H 'Idempotency-Key: my-first-payment-0001'";
    print_lines(&curl);
    // Until Ctrl-C or SIGTERM: claims nothing any more, lets running commands end, then stops.
    Ok(semel.serve(listener, app).await?)
}

#[allow(clippy::print_stdout, reason = "it is what this program is for")]
fn print_lines(curl: &str) {
    println!("first call:   {curl} -d '{{\"amount\": 5}}'");
    println!("replay:       the same again");
    println!("mismatch 422: {curl} -d '{{\"amount\": 6}}'");
    println!("in progress:  the first call with a new key, twice at once: one gets 409");
}
