//! Handler of every Rust peer: one payment, one row, one response.
//!
//! Environment variables set its work, the same for peers in all languages:
//! `PORT`, `WORK` (`insert` or `none`), `DATABASE_URL`, and `SLEEP_BEFORE_MS` and `SLEEP_AFTER_MS` around the INSERT.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use sqlx::postgres::{PgPool, PgPoolOptions};
use uuid::Uuid;

/// Error that keeps a peer from starting.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Database connections of the handler, in every language.
const CONNECTIONS: u32 = 16;
const INSERT: &str = "INSERT INTO payments (id, amount, currency, idempotency_key) VALUES ($1, $2, $3, $4)";

/// Payment that a client requests.
#[derive(Clone, Deserialize)]
pub struct Payment {
    amount: i64,
    currency: String,
}

/// The handler's state.
pub struct Payments {
    pool: Option<PgPool>,
    before: Duration,
    after: Duration,
    runs: AtomicU64,
    inserted: AtomicU64,
}

/// Result of one run of the handler.
pub struct Made {
    /// Location of the payment.
    pub location: String,
    /// Body of the response.
    pub body: Value,
}

impl IntoResponse for Made {
    fn into_response(self) -> Response {
        (StatusCode::CREATED, [(header::LOCATION, self.location)], Json(self.body)).into_response()
    }
}

impl Payments {
    /// Reads the handler's settings from the environment.
    pub async fn from_environment() -> Result<Arc<Payments>, Error> {
        let pool = match required::<String>("WORK")?.as_str() {
            "none" => None,
            "insert" => Some(pool().await?),
            other => return Err(format!("WORK is `{other}`; it must be `insert` or `none`").into()),
        };
        let milliseconds = |name| Ok::<_, Error>(Duration::from_millis(optional(name)?.unwrap_or(0)));
        Ok(Arc::new(Payments {
            pool,
            before: milliseconds("SLEEP_BEFORE_MS")?,
            after: milliseconds("SLEEP_AFTER_MS")?,
            runs: AtomicU64::new(0),
            inserted: AtomicU64::new(0),
        }))
    }

    /// Returns true if the handler inserts a row.
    pub fn inserts(&self) -> bool {
        self.pool.is_some()
    }

    /// Runs the handler once, with the INSERT on a connection of the pool.
    pub async fn run(&self, payment: &Payment, headers: &HeaderMap) -> Result<Made, sqlx::Error> {
        match &self.pool {
            Some(pool) => self.run_on(Some(pool), payment, headers).await,
            None => self.run_on(None::<&PgPool>, payment, headers).await,
        }
    }

    /// Runs the handler once, with the INSERT on the given connection.
    pub async fn run_on<'c>(
        &self,
        executor: Option<impl sqlx::PgExecutor<'c>>,
        payment: &Payment,
        headers: &HeaderMap,
    ) -> Result<Made, sqlx::Error> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        sleep(self.before).await;
        let id = Uuid::new_v4();
        if let Some(executor) = executor {
            let key = headers.get("idempotency-key").and_then(|value| value.to_str().ok());
            let insert = sqlx::query(INSERT).bind(id).bind(payment.amount).bind(&payment.currency);
            insert.bind(key.unwrap_or_default()).execute(executor).await?;
        }
        self.inserted.fetch_add(1, Ordering::SeqCst);
        sleep(self.after).await;
        Ok(Made {
            location: format!("/payments/{id}"),
            body: json!({ "id": id.to_string(), "amount": payment.amount }),
        })
    }
}

async fn sleep(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// Opens the pool that every Rust peer uses. Connections are not tested before use.
pub async fn pool() -> Result<PgPool, Error> {
    let options = PgPoolOptions::new().max_connections(CONNECTIONS).test_before_acquire(false);
    Ok(options.connect(&required::<String>("DATABASE_URL")?).await?)
}

/// Plain handler of `POST /payments`.
pub async fn pay(
    State(payments): State<Arc<Payments>>,
    headers: HeaderMap,
    Json(payment): Json<Payment>,
) -> Result<Made, (StatusCode, String)> {
    payments
        .run(&payment, &headers)
        .await
        .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

/// Returns the route `POST /payments` with the plain handler, for a peer to wrap.
pub fn payments_route(payments: &Arc<Payments>) -> Router {
    Router::new().route("/payments", post(pay)).with_state(payments.clone())
}

/// Serves the protected route, and beside it `/count` and `/inserted`, until the process ends.
pub async fn serve(protected: Router, payments: Arc<Payments>) -> Result<(), Error> {
    let counted = |State(payments): State<Arc<Payments>>| async move {
        payments.runs.load(Ordering::SeqCst).to_string()
    };
    let inserted = |State(payments): State<Arc<Payments>>| async move {
        payments.inserted.load(Ordering::SeqCst).to_string()
    };
    let counters =
        Router::new().route("/count", get(counted)).route("/inserted", get(inserted)).with_state(payments);
    let port: u16 = required("PORT")?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    let listener = listener.tap_io(|stream| {
        // Without it, a response may wait for the client's acknowledgement of the one before.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, protected.merge(counters)).await?;
    Ok(())
}

/// Reads a required environment variable.
pub fn required<T: FromStr<Err: Display>>(name: &str) -> Result<T, Error> {
    optional(name)?.ok_or_else(|| format!("the variable {name} is not set").into())
}

/// Reads an optional environment variable.
pub fn optional<T: FromStr<Err: Display>>(name: &str) -> Result<Option<T>, Error> {
    let Ok(text) = std::env::var(name) else { return Ok(None) };
    text.parse().map(Some).map_err(|error| format!("{name}: {error}").into())
}
