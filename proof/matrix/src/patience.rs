//! Waiting for a state, never for a fixed time: a slow machine makes a run longer, and cannot make it pass.

use std::time::{Duration, Instant};

/// Timeout of a state. Far more than any needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(45);

/// Waits until `is_so` holds.
pub(crate) async fn until(what: &str, pause: Duration, is_so: impl Fn() -> bool) -> Result<(), String> {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > PATIENCE {
            return Err(format!("{what}, although there were {} s", PATIENCE.as_secs()));
        }
        tokio::time::sleep(pause).await;
    }
    Ok(())
}
