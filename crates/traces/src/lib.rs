//! The exporter of traces: it sends finished spans in batches to a collector, as OTLP over HTTP with JSON.
//!
//! - [`TraceExporter`]: makes spans and takes finished ones, for the layer and the gateway. It never blocks.
//! - [`SpanSender`]: the task behind it, which sends the spans.
//! - [`Sampler`]: decides by the id of a trace whether it is recorded.
//!
//! The queue, a batch, the tries of a batch, the waits between them, and the time at the end are bounded. Spans beyond a bound
//! are dropped and counted in `traces_dropped_total`: requests never wait for a collector.

mod collector;
mod counts;
mod exporter;
mod otlp;
mod sampler;
mod sender;

pub use exporter::{TraceExporter, TraceExporterOptions};
pub use sampler::Sampler;
pub use sender::SpanSender;
