//! `axum-idempotent`'s layer around the Rust peers' handler, on the session store that `STORE` names.
//!
//! It keeps responses in the caller's session. A request with `Authorization` gets the session of that caller, like
//! after a login: a fixed session for each token, so that sessions outlive this process where the store does.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use peer_handler::{Error, Payments, payments_route, required, serve};
use ruts::store::SessionStore;
use ruts::store::moka::MokaStoreBuilder;
use ruts::store::postgres::PostgresStoreBuilder;
use ruts::{CookieOptions, SessionLayer};
use sha2::{Digest, Sha256};
use sqlx_08::postgres::PgPoolOptions;
use tower_cookies::CookieManagerLayer;

const DAY: i64 = 24 * 60 * 60;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let payments = Payments::from_environment().await?;
    let routes = payments_route(&payments);
    let protected = match required::<String>("STORE")?.as_str() {
        "memory" => protect(routes, MokaStoreBuilder::new().build()),
        "postgres" => {
            let url: String = required("DATABASE_URL")?;
            let pool =
                PgPoolOptions::new().max_connections(16).test_before_acquire(false).connect(&url).await?;
            protect(routes, PostgresStoreBuilder::new(pool).create_table(true).build().await?)
        }
        other => return Err(format!("STORE is `{other}`").into()),
    };
    serve(protected, payments).await
}

/// Wraps the routes as its documentation shows: the key comes from the header and is required, and the layers are in
/// its order.
fn protect<S: SessionStore + 'static>(routes: Router, store: S) -> Router {
    let options = IdempotentOptions::default()
        .use_idempotency_key_header(Some("Idempotency-Key"), true)
        .expire_after(DAY);
    routes
        .layer(IdempotentLayer::<S>::new(options))
        .layer(SessionLayer::new(Arc::new(store)).with_cookie_options(CookieOptions::build().name("session")))
        .layer(CookieManagerLayer::new())
        .layer(from_fn(log_in))
}

async fn log_in(mut request: Request, next: Next) -> Response {
    if let Some(token) = request.headers().get(header::AUTHORIZATION) {
        let session = URL_SAFE_NO_PAD.encode(&Sha256::digest(token.as_bytes())[..16]);
        if let Ok(cookie) = HeaderValue::try_from(format!("session={session}")) {
            request.headers_mut().insert(header::COOKIE, cookie);
        }
    }
    next.run(request).await
}
