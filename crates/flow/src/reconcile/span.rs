//! The span of one look-up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use semel_core::{Clock, Record, Span, SpanRole, SpanValue, SystemClock, Timestamp, TraceContext, Tracer};

/// A look-up that is traced, in a trace of its own that links to the request that made the command.
pub(super) struct LookUpSpan {
    tracer: Arc<dyn Tracer>,
    context: TraceContext,
    begun_at: Timestamp,
    begun: Instant,
}

impl LookUpSpan {
    pub(super) fn begin(tracer: &Arc<dyn Tracer>) -> LookUpSpan {
        let (context, begun_at) = (tracer.begin(None), SystemClock.now());
        LookUpSpan { tracer: tracer.clone(), context, begun_at, begun: Instant::now() }
    }

    /// Ends the span of a look-up of this command with this outcome.
    pub(super) fn end(self, record: &Record, outcome: &'static str) {
        let text = |text: String| SpanValue::Text(text.into());
        self.tracer.end(Span {
            context: self.context,
            parent: None,
            name: "look-up".into(),
            role: SpanRole::Internal,
            begun_at: self.begun_at,
            offset: Duration::ZERO,
            length: self.begun.elapsed(),
            attributes: vec![
                ("semel.operation", text(record.operation.as_str().to_owned())),
                ("semel.operation_id", text(record.operation_id.to_string())),
                ("semel.epoch", SpanValue::Int(record.head.epoch.into())),
                ("semel.outcome", SpanValue::Text(outcome.into())),
            ],
            links: record.trace.into_iter().collect(),
            error: None,
        });
    }
}
