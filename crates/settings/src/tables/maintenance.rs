//! `[maintenance]`: background maintenance.

use semel_http::Maintenance;

use crate::engine::setting::{Setting, setting};
use crate::parts::scalar::{Count, Period};

/// `[maintenance]`.
pub(crate) const MAINTENANCE: &[Setting<Maintenance>] = &[
    setting!("sweep_interval", Period, sweep_interval, "How often ended leases are looked for"),
    setting!("reap_interval", Period, reap_interval, "How often expired records are removed"),
    setting!("reap_batch", Count<1, 100_000>, reap_batch, "How many are removed at a time"),
];
