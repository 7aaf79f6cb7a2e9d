//! `[maintenance]`: background maintenance.

use std::time::Duration;

use crate::engine::setting::{Setting, setting};
use crate::parts::scalar::{Count, Period};

/// The work in the background, and its intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaintenanceSettings {
    /// The interval at which expired leases are swept.
    pub sweep_interval: Duration,
    /// The interval at which expired records are removed.
    pub reap_interval: Duration,
    /// The number of records that are removed at a time.
    pub reap_batch: usize,
}

impl Default for MaintenanceSettings {
    fn default() -> MaintenanceSettings {
        MaintenanceSettings {
            sweep_interval: Duration::from_secs(5),
            reap_interval: Duration::from_secs(60),
            reap_batch: 1000,
        }
    }
}

/// `[maintenance]`.
pub(crate) const MAINTENANCE: &[Setting<MaintenanceSettings>] = &[
    setting!("sweep_interval", Period, sweep_interval, "Interval between two sweeps of expired leases"),
    setting!("reap_interval", Period, reap_interval, "Interval between two removals of expired records"),
    setting!("reap_batch", Count<1, 100_000>, reap_batch, "Number of records that are removed at a time"),
];
