//! Health of a database: what a run waits for after each fault.

use std::time::{Duration, Instant};

use crate::network::Seat;

const POLL: Duration = Duration::from_millis(300);

/// A database without faults: it has a leader, and its standbys follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) leader: Seat,
    /// Rises by one with each failover.
    pub(crate) timeline: u64,
    /// Standby that may take over without a loss.
    pub(crate) synchronous: Option<Seat>,
}

/// Waits until a database has recovered.
pub(crate) fn wait(patience: Duration, health: impl Fn() -> Option<Health>) -> Result<Health, String> {
    let deadline = Instant::now() + patience;
    loop {
        match health() {
            Some(health) => return Ok(health),
            None if Instant::now() > deadline => {
                return Err(format!("the database has not recovered in {} s", patience.as_secs()));
            }
            None => std::thread::sleep(POLL),
        }
    }
}
