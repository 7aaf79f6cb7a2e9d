//! The metrics of the exporter.

use metrics::counter;

/// Reason why a span was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpanLoss {
    /// Too many spans waited, or the exporter had stopped.
    QueueFull,
    /// The collector refused it.
    Refused,
    /// The collector could not be reached, or took nothing in time.
    Unreachable,
}

impl SpanLoss {
    const ALL: [SpanLoss; 3] = [SpanLoss::QueueFull, SpanLoss::Refused, SpanLoss::Unreachable];

    const fn as_str(self) -> &'static str {
        match self {
            SpanLoss::QueueFull => "queue_full",
            SpanLoss::Refused => "refused",
            SpanLoss::Unreachable => "unreachable",
        }
    }
}

/// Registers every counter at zero.
pub(crate) fn register() {
    exported(0);
    SpanLoss::ALL.into_iter().for_each(|reason| dropped(reason, 0));
}

pub(crate) fn exported(spans: usize) {
    counter!("traces_exported_total").increment(spans as u64);
}

pub(crate) fn dropped(reason: SpanLoss, spans: usize) {
    counter!("traces_dropped_total", "reason" => reason.as_str()).increment(spans as u64);
}
