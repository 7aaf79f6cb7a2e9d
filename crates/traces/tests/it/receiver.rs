//! Collector that answers as a test says, and the spans that it took.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use semel_core::{RandomIds, Span, SpanRole, Timestamp, TraceContext, Tracer};
use semel_traces::{SpanSender, TraceExporter, TraceExporterOptions};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Longer than any test.
pub(crate) const NEVER: Duration = Duration::from_secs(3600);

/// Answer to one request.
#[derive(Clone, Copy)]
pub(crate) enum Then {
    /// The status, and nothing of the request is taken unless it is 200.
    Status(u16),
    /// The status with `Retry-After: 0`.
    Again(u16),
    /// 200 with this body.
    Says(&'static str),
    /// No answer.
    Hang,
}

/// A request as it arrived.
pub(crate) struct Export {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    pub(crate) is_taken: bool,
}

impl Export {
    /// Returns its spans.
    pub(crate) fn spans(&self) -> &[Value] {
        let spans = self.body.pointer("/resourceSpans/0/scopeSpans/0/spans").and_then(Value::as_array);
        spans.expect("there is a list")
    }

    /// Returns the names of its spans.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.spans().iter().map(|span| span["name"].as_str().expect("it is text")).collect()
    }
}

/// Collector on a port of its own.
pub(crate) struct Receiver {
    pub(crate) url: String,
    pub(crate) exports: mpsc::UnboundedReceiver<Export>,
}

struct Shared {
    answers: Mutex<VecDeque<Then>>,
    exports: mpsc::UnboundedSender<Export>,
}

impl Receiver {
    /// Starts a collector that answers requests in this way, and further ones with 200.
    pub(crate) async fn start(answers: &[Then]) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let url = format!("http://{}/v1/traces", listener.local_addr().expect("it is bound"));
        let (sender, exports) = mpsc::unbounded_channel();
        let answers = Mutex::new(answers.iter().copied().collect());
        let shared = Arc::new(Shared { answers, exports: sender });
        let app = Router::new().route("/v1/traces", post(take)).with_state(shared);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Receiver { url, exports }
    }

    /// Waits for the next request.
    pub(crate) async fn export(&mut self) -> Export {
        self.exports.recv().await.expect("the collector runs")
    }

    /// Returns the requests that have arrived.
    pub(crate) fn rest(&mut self) -> Vec<Export> {
        std::iter::from_fn(|| self.exports.try_recv().ok()).collect()
    }
}

async fn take(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, HeaderMap, String) {
    let then = shared.answers.lock().expect("nobody panics with it").pop_front();
    let then = then.unwrap_or(Then::Status(200));
    let is_taken = matches!(then, Then::Status(200) | Then::Says(_));
    let body = serde_json::from_slice(&body).expect("it is JSON");
    shared.exports.send(Export { headers, body, is_taken }).expect("the test reads");
    let mut fields = HeaderMap::new();
    let (status, text) = match then {
        Then::Status(status) => (status, "{}"),
        Then::Again(status) => {
            fields.insert(RETRY_AFTER, "0".parse().expect("it is a value"));
            (status, "")
        }
        Then::Says(text) => (200, text),
        Then::Hang => std::future::pending().await,
    };
    (StatusCode::from_u16(status).expect("tests send real statuses"), fields, text.to_owned())
}

/// Metrics of one test. Tests run on one thread each, so that the recorder sees everything of theirs.
pub(crate) struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        Metrics { recorder, handle }
    }

    /// Records the metrics of this thread until the result is dropped.
    pub(crate) fn record(&self) -> metrics::LocalRecorderGuard<'_> {
        metrics::set_default_local_recorder(&self.recorder)
    }

    /// Returns the counted spans: exported, and dropped because of a full queue, a refusal, an unreachable collector.
    pub(crate) fn spans(&self) -> [u64; 4] {
        let text = self.handle.render();
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let line = line.unwrap_or_else(|| panic!("{name} is not there:\n{text}"));
            line.trim().parse().expect("it is a number")
        };
        let dropped = |reason: &str| value(&format!("traces_dropped_total{{reason=\"{reason}\"}} "));
        [value("traces_exported_total "), dropped("queue_full"), dropped("refused"), dropped("unreachable")]
    }
}

/// Returns options without waits between tries, and without an interval: a batch is sent when it is full, or at the end.
pub(crate) fn options() -> TraceExporterOptions {
    TraceExporterOptions {
        interval: NEVER,
        timeout: NEVER,
        backoff: Duration::ZERO,
        flush: NEVER,
        ..TraceExporterOptions::default()
    }
}

/// Makes an exporter to a collector at this address.
pub(crate) fn exporter(url: &str, options: TraceExporterOptions) -> (TraceExporter, SpanSender) {
    let address = url.parse().expect("it is an address");
    TraceExporter::new(address, Arc::new(RandomIds), options).expect("it is plain")
}

/// Returns a finished span at this position.
pub(crate) fn span(context: TraceContext, name: impl Into<String>) -> Span {
    Span {
        context,
        parent: None,
        name: name.into().into(),
        role: SpanRole::Server,
        begun_at: Timestamp::from_millis(1_763_200_000_000),
        offset: Duration::ZERO,
        length: Duration::from_millis(2),
        attributes: Vec::new(),
        links: Vec::new(),
        error: None,
    }
}

/// Ends this number of spans, named by their number.
pub(crate) fn end_spans(exporter: &TraceExporter, numbers: std::ops::Range<usize>) {
    for number in numbers {
        exporter.end(span(exporter.begin(None), number.to_string()));
    }
}
