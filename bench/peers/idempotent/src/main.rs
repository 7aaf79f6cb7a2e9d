//! `idempotent`'s layer around the Rust peers' handler, on the store that `STORE` names.
//! `LEASE_MS` sets the processing lease.

use std::time::Duration;

use axum::Router;
use axum::http::header;
use idempotent::IdempotencyStore;
use idempotent::memory::MemoryStore;
use idempotent::middleware::IdempotencyLayer;
use idempotent::valkey::ValkeyStore;
use peer_handler::{Error, Payments, optional, payments_route, required, serve};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let payments = Payments::from_environment().await?;
    let routes = payments_route(&payments);
    let protected = match required::<String>("STORE")?.as_str() {
        "memory" => protect(routes, MemoryStore::builder().try_build()?)?,
        "valkey" => {
            let url: String = required("REDIS_URL")?;
            protect(routes, ValkeyStore::with_url(url).prefix("peer").try_build().await?)?
        }
        other => return Err(format!("STORE is `{other}`").into()),
    };
    serve(protected, payments).await
}

/// Wraps the routes as its documentation asks: keys are scoped by the caller, and a command needs one.
fn protect<S>(routes: Router, store: S) -> Result<Router, Error>
where
    S: IdempotencyStore + Clone + Send + Sync + 'static,
{
    let mut layer = IdempotencyLayer::new(store).require_key(true).scope(|parts| {
        let caller = parts.headers.get(header::AUTHORIZATION)?;
        caller.to_str().ok().map(String::from)
    });
    if let Some(milliseconds) = optional("LEASE_MS")? {
        layer = layer.processing_ttl(Duration::from_millis(milliseconds));
    }
    Ok(routes.layer(layer))
}
