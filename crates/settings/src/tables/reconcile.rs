//! `[reconcile]`: the search for evidence about commands whose outcome is unknown.

use semel_core::reconcile::ReconcilerOptions;

use crate::engine::setting::{Setting, setting};
use crate::parts::scalar::{Count, Period, TryCount};

/// `[reconcile]`.
pub(crate) const RECONCILE: &[Setting<ReconcilerOptions>] = &[
    setting!("interval", Period, interval, "How often commands are looked for whose outcome is unknown"),
    setting!("first_delay", Period, terms.first_delay, "The wait after the first look; it doubles each time"),
    setting!("max_delay", Period, terms.max_delay, "The longest wait between two looks"),
    setting!(
        "max_attempts",
        TryCount<1, 10_000>,
        terms.max_attempts,
        "After so many, a command is left to an operator"
    ),
    setting!("concurrency", Count<1, 1000>, concurrency, "How many look-ups are made at the same time"),
    setting!(
        "retention",
        Period,
        retention,
        "How long events are kept, to be recognised when they come again"
    ),
];
