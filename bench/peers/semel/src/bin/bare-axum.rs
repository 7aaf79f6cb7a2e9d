//! Handler of the Rust peers without any layer: their floor.

use peer_handler::{Error, Payments, payments_route, serve};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let payments = Payments::from_environment().await?;
    serve(payments_route(&payments), payments).await
}
