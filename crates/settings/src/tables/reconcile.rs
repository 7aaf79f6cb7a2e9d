//! `[reconcile]`: the search for evidence about commands whose outcome is unknown.

use semel_core::reconcile::ReconcilerOptions;

use crate::engine::setting::{Setting, setting};
use crate::parts::scalar::{Count, Period, TryCount};

/// `[reconcile]`.
pub(crate) const RECONCILE: &[Setting<ReconcilerOptions>] = &[
    setting!("interval", Period, interval, "Interval between two searches for commands in state unknown"),
    setting!("first_delay", Period, terms.first_delay, "Delay after the first look-up; it doubles each time"),
    setting!("max_delay", Period, terms.max_delay, "Longest delay between two look-ups"),
    setting!(
        "max_attempts",
        TryCount<1, 10_000>,
        terms.max_attempts,
        "Number of look-ups after which a command is left to an operator"
    ),
    setting!("concurrency", Count<1, 1000>, concurrency, "Number of concurrent look-ups"),
    setting!("retention", Period, retention, "Time for which events are kept, to recognise repeated ones"),
];
