//! Semel's layer around the Rust peers' handler, on the store that `STORE` names; with `STORE=transact`, the handler
//! inserts in one transaction with the record. `LEASE_MS` sets the lease, `DATA_DIR` the folder of a store's file.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::routing::post;
use axum::{Json, Router};
use peer_handler::{Error, Payment, Payments, optional, payments_route, pool, required, serve};
use semel::flow::{Answered, Idempotent, PostgresTransactions, Reply};
use semel::{Denied, IdempotencyLayer, Maintenance, Operation, Principal};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let payments = Payments::from_environment().await?;
    let kind: String = required("STORE")?;
    let location = match kind.as_str() {
        "memory" => "memory:".to_owned(),
        "sqlite" => format!("sqlite:{}/semel.db", required::<String>("DATA_DIR")?),
        "postgres" | "transact" => required("DATABASE_URL")?,
        other => return Err(format!("STORE is `{other}`").into()),
    };
    let store = semel::open(&location).await?;
    tokio::spawn(Maintenance::default().run(store.clone()));
    let lease: Option<u64> = optional("LEASE_MS")?;
    let mut operation = Operation::new("payments.create", "POST /payments").with(move |policy| {
        if let Some(milliseconds) = lease {
            policy.lease = Duration::from_millis(milliseconds);
        }
    });
    let mut routes = payments_route(&payments);
    if kind == "transact" {
        operation = operation.local();
        let local = Local { semel: PostgresTransactions::new(pool().await?), payments: payments.clone() };
        routes = Router::new().route("/payments", post(pay)).with_state(local);
    }
    let layer = IdempotencyLayer::builder(store).identify(identify).operation(operation).build()?;
    serve(routes.layer(layer), payments).await
}

/// Returns the principal of the bearer token: the peers' clients have one fixed token each.
fn identify(request: &Parts) -> Result<Principal, Denied> {
    let token = request.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let caller = token.and_then(|token| token.strip_prefix("Bearer ")).unwrap_or_default();
    Principal::new("acme", caller).map_err(|_| Denied::unauthenticated())
}

#[derive(Clone)]
struct Local {
    semel: PostgresTransactions,
    payments: Arc<Payments>,
}

async fn pay(
    State(local): State<Local>,
    headers: HeaderMap,
    Idempotent(command): Idempotent,
    Json(payment): Json<Payment>,
) -> Answered {
    let payments = local.payments;
    local
        .semel
        .transact(&command, |mut tx| async move {
            let executor = payments.inserts().then_some(&mut *tx);
            let made = payments.run_on(executor, &payment, &headers).await?;
            let location = HeaderValue::try_from(made.location)?;
            Ok(Reply::json(StatusCode::CREATED, &made.body)?.header(header::LOCATION, location))
        })
        .await
}
