//! The tracer of a process: it draws ids, samples new traces, and hands finished spans to the sender's queue.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use semel_core::{Ids, Span, TraceContext, Tracer};
use semel_outgoing::{Address, Client, TlsError, TlsSettings};
use tokio::sync::mpsc;

use crate::collector::Collector;
use crate::counts::{self, SpanLoss};
use crate::sampler::Sampler;
use crate::sender::SpanSender;

/// Largest number of finished spans that wait for the sender.
const MAX_WAITING: usize = 2048;
/// Longest time that a span waits for its batch to fill, unless the options say otherwise.
const INTERVAL: Duration = Duration::from_secs(5);
/// Timeout of one request to the collector, unless the options say otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Wait before the second try of a batch, unless the options say otherwise.
const BACKOFF: Duration = Duration::from_secs(1);
/// Time for sending the spans that are left at the end, unless the options say otherwise.
const FLUSH_TIME: Duration = Duration::from_secs(5);

/// Settings of an exporter.
#[derive(Clone, Debug)]
pub struct TraceExporterOptions {
    /// Name of the service in its spans, `service.name`.
    pub service_name: String,
    /// Share of new traces that are recorded.
    pub sampler: Sampler,
    /// Value of the header `Authorization` for the collector.
    pub authorization: Option<HeaderValue>,
    /// TLS with the collector.
    pub tls: TlsSettings,
    /// Longest time that a span waits for its batch to fill.
    pub interval: Duration,
    /// Timeout of one request to the collector.
    pub timeout: Duration,
    /// Wait before the second try of a batch. It doubles with each further try.
    pub backoff: Duration,
    /// Time for sending the spans that are left when the sender is told to stop.
    pub flush: Duration,
}

impl Default for TraceExporterOptions {
    fn default() -> TraceExporterOptions {
        TraceExporterOptions {
            service_name: "semel".to_owned(),
            sampler: Sampler::new(1_000_000),
            authorization: None,
            tls: TlsSettings::default(),
            interval: INTERVAL,
            timeout: TIMEOUT,
            backoff: BACKOFF,
            flush: FLUSH_TIME,
        }
    }
}

/// Makes spans, and queues finished ones for its [`SpanSender`].
pub struct TraceExporter {
    ids: Arc<dyn Ids>,
    sampler: Sampler,
    queue: mpsc::Sender<Span>,
}

impl TraceExporter {
    /// Makes an exporter to the collector at this address, and the sender of its spans, which has to run.
    ///
    /// # Errors
    /// If the settings for TLS cannot be used. Their files are read here. Blocks.
    pub fn new(
        address: Address,
        ids: Arc<dyn Ids>,
        options: TraceExporterOptions,
    ) -> Result<(TraceExporter, SpanSender), TlsError> {
        let TraceExporterOptions {
            service_name,
            sampler,
            authorization,
            tls,
            interval,
            timeout,
            backoff,
            flush,
        } = options;
        let client = Client::new(address, tls)?.timeout(timeout);
        client.check()?;
        counts::register();
        let (queue, spans) = mpsc::channel(MAX_WAITING);
        let collector = Collector::new(client, service_name, authorization, backoff, ids.clone());
        let sender = SpanSender::new(spans, collector, interval, flush);
        Ok((TraceExporter { ids, sampler, queue }, sender))
    }

    /// Returns random bytes, of which neither all nor the last eight are zero.
    fn random(&self) -> [u8; 16] {
        // A token is 16 bytes of the same randomness that ids of traces need.
        let mut bytes = *self.ids.attempt_token().as_bytes();
        bytes[15] = bytes[15].max(u8::from(bytes[8..] == [0; 8]));
        bytes
    }
}

impl Tracer for TraceExporter {
    fn begin(&self, parent: Option<TraceContext>) -> TraceContext {
        let mut span_id = [0; 8];
        span_id.copy_from_slice(&self.random()[8..]);
        let (trace_id, sampled) = match parent {
            Some(parent) => (parent.trace_id(), parent.is_sampled()),
            None => {
                let trace_id = self.random();
                (trace_id, self.sampler.samples(trace_id))
            }
        };
        TraceContext::new(trace_id, span_id, sampled).expect("no id is zero")
    }

    fn end(&self, span: Span) {
        if span.context.is_sampled() && self.queue.try_send(span).is_err() {
            counts::dropped(SpanLoss::QueueFull, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use semel_core::{AttemptToken, OperationId, RandomIds, Timestamp};

    use super::*;

    /// Draws the same token each time.
    struct SameToken([u8; 16]);

    impl Ids for SameToken {
        fn operation_id(&self, _: Timestamp) -> OperationId {
            OperationId::from_bytes(self.0)
        }

        fn attempt_token(&self) -> AttemptToken {
            AttemptToken::from_bytes(self.0)
        }
    }

    fn exporter(ids: impl Ids, millionths: u32) -> TraceExporter {
        let options =
            TraceExporterOptions { sampler: Sampler::new(millionths), ..TraceExporterOptions::default() };
        let address = "http://127.0.0.1:1/v1/traces".parse().expect("it is an address");
        TraceExporter::new(address, Arc::new(ids), options).expect("it is plain").0
    }

    #[test]
    fn a_child_is_in_the_trace_of_its_parent_and_has_its_decision() {
        let exporter = exporter(RandomIds, 0);
        for sampled in [true, false] {
            let parent = TraceContext::new([7; 16], [9; 8], sampled).expect("no id is zero");
            let [one, other] = [exporter.begin(Some(parent)), exporter.begin(Some(parent))];
            assert_eq!((one.trace_id(), one.is_sampled()), ([7; 16], sampled));
            assert!(one.span_id() != other.span_id() && one.span_id() != parent.span_id());
        }
    }

    #[test]
    fn a_new_trace_is_sampled_by_its_own_id() {
        for (millionths, sampled) in [(0, false), (1_000_000, true)] {
            let exporter = exporter(RandomIds, millionths);
            let [one, other] = [exporter.begin(None), exporter.begin(None)];
            assert!(one.trace_id() != other.trace_id() && one.span_id() != other.span_id());
            assert_eq!((one.is_sampled(), other.is_sampled()), (sampled, sampled));
        }
        let half = Sampler::new(500_000);
        for last in [0x00, 0xff] {
            let id = [last; 16];
            let begun = exporter(SameToken(id), 500_000).begin(None);
            assert_eq!(begun.is_sampled(), half.samples(begun.trace_id()), "{last}");
        }
    }

    #[test]
    fn an_id_of_zeros_is_never_drawn() {
        let begun = exporter(SameToken([0; 16]), 1_000_000).begin(None);
        assert_eq!((begun.trace_id()[15], begun.span_id()), (1, [0, 0, 0, 0, 0, 0, 0, 1]));
    }
}
