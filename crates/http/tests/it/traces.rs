//! Traces: spans of commands and of their handlers, and links from retries to the first attempt.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel_core::{Filter, Records, Span, SpanRole, SpanValue, TraceContext, Tracer};
use semel_http::Operation;

use crate::lab::{KEY, Lab, pay};
use crate::later_lab::{Later, later};
use crate::seen::Logs;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Tracer that keeps finished spans.
#[derive(Default)]
pub(crate) struct KeptSpans {
    number: AtomicU64,
    spans: Mutex<Vec<Span>>,
}

impl Tracer for KeptSpans {
    fn begin(&self, parent: Option<TraceContext>) -> TraceContext {
        let number = self.number.fetch_add(1, Ordering::SeqCst) + 1;
        let trace = parent.map_or([u8::try_from(number).unwrap_or(255); 16], |parent| parent.trace_id());
        TraceContext::new(trace, number.to_be_bytes(), true).expect("no id is zero")
    }

    fn end(&self, span: Span) {
        self.spans.lock().expect("nobody panics").push(span);
    }
}

impl KeptSpans {
    /// Waits for the span of this name, and takes it.
    pub(crate) async fn take(&self, name: &str) -> Span {
        loop {
            {
                let mut spans = self.spans.lock().expect("nobody panics");
                if let Some(at) = spans.iter().position(|span| span.name == name) {
                    return spans.remove(at);
                }
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn count(&self) -> usize {
        self.spans.lock().expect("nobody panics").len()
    }
}

fn text(span: &Span, name: &str) -> Option<String> {
    span.attributes.iter().find(|(found, _)| *found == name).map(|(_, value)| match value {
        SpanValue::Text(text) => text.to_string(),
        SpanValue::Int(number) => number.to_string(),
    })
}

async fn lab(tracer: &Arc<KeptSpans>) -> Lab {
    Lab::with(|builder| {
        builder.operation(Operation::new("payments", "POST /payments")).tracer(tracer.clone())
    })
    .await
}

#[tokio::test]
async fn a_command_and_its_handler_have_spans_in_the_clients_trace() {
    let tracer = Arc::new(KeptSpans::default());
    let lab = lab(&tracer).await;
    let first = lab.send(pay("{}").with("traceparent", PARENT).with("tracestate", "a=1")).await;
    let (server, call) = (tracer.take("payments").await, tracer.take("payments handler").await);
    assert_eq!((server.role, server.parent), (SpanRole::Server, TraceContext::parse(PARENT)));
    assert_eq!(server.context.trace_id_text(), TRACE);
    assert_eq!((call.role, call.parent), (SpanRole::Client, Some(server.context)));
    assert_eq!(first.header("x-traceparent"), Some(&*call.context.to_string()));
    assert_eq!(first.header("x-tracestate"), Some("a=1"));
    let record = &lab.sqlite.list(&Filter::default()).await.expect("it lists").records[0];
    assert_eq!(record.trace, Some(server.context));
    let attributes = [
        ("http.request.method", "POST"),
        ("http.response.status_code", "201"),
        ("semel.operation", "payments"),
        ("semel.decision", "executed"),
        ("semel.state", "succeeded"),
        ("semel.operation_id", &record.operation_id.to_string()),
        ("semel.epoch", "1"),
    ];
    for (name, value) in attributes {
        assert_eq!(text(&server, name).as_deref(), Some(value), "{name}");
    }
    assert_eq!((server.links.len(), server.error), (0, None));
    assert_eq!(call.begun_at, server.begun_at, "a child counts from the beginning of its parent");
    assert!(call.offset <= server.length && call.length <= server.length);
    assert!(!format!("{server:?}{call:?}").contains(KEY), "no span tells a key");
}

#[tokio::test]
async fn a_retry_links_to_the_trace_of_the_first_request() {
    let tracer = Arc::new(KeptSpans::default());
    let lab = lab(&tracer).await;
    lab.send(pay("{}").with("traceparent", PARENT)).await;
    let first = tracer.take("payments").await;
    tracer.take("payments handler").await;
    let replay = lab.send(pay("{}")).await;
    assert!(replay.replayed());
    let second = tracer.take("payments").await;
    assert_eq!((text(&second, "semel.decision").as_deref(), second.parent), (Some("replayed"), None));
    assert_eq!(second.links, [first.context]);
    assert_ne!(second.context.trace_id(), first.context.trace_id());
    assert_eq!(tracer.count(), 0, "no handler ran");

    let other = || pay("{}").set("idempotency-key", KEY.replace("0001", "0002"));
    lab.send(other().doing("outcome-unknown")).await;
    let unknown = tracer.take("payments").await;
    assert_eq!(text(&unknown, "semel.state").as_deref(), Some("unknown"));
    lab.send(other()).await;
    let again = tracer.take("payments").await;
    assert_eq!((again.links, again.error), (vec![unknown.context], None));
}

#[tokio::test]
async fn a_new_trace_drops_the_state_of_another() {
    let tracer = Arc::new(KeptSpans::default());
    let lab = lab(&tracer).await;
    let sent = pay("{}").with("traceparent", "not one").with("tracestate", "a=1");
    let answer = lab.send(sent).await;
    assert_eq!(answer.header("x-tracestate"), Some("none"));
    let call = tracer.take("payments handler").await;
    assert_eq!(answer.header("x-traceparent"), Some(&*call.context.to_string()));
}

#[tokio::test]
async fn the_headers_of_a_trace_pass_unchanged_without_a_tracer() {
    let lab = Lab::new().await;
    let answer = lab.send(pay("{}").with("traceparent", PARENT).with("tracestate", "a=1")).await;
    assert_eq!((answer.header("x-traceparent"), answer.header("x-tracestate")), (Some(PARENT), Some("a=1")));
    assert_eq!(lab.sqlite.list(&Filter::default()).await.expect("it lists").records[0].trace, None);
}

#[tokio::test]
async fn requests_that_are_no_commands_keep_their_trace() {
    let tracer = Arc::new(KeptSpans::default());
    let lab = lab(&tracer).await;
    let asked = pay("").method("GET").without("idempotency-key").with("traceparent", PARENT);
    assert_eq!(lab.send(asked).await.header("x-traceparent"), Some(PARENT));
    assert_eq!(tracer.count(), 0);
}

#[tokio::test]
async fn a_span_tells_the_problem_of_a_failed_command() {
    let tracer = Arc::new(KeptSpans::default());
    let lab = lab(&tracer).await;
    assert_eq!(lab.send(pay("{}").doing("panic-after")).await.status, 500);
    assert_eq!(tracer.take("payments").await.error, Some("IDEMPOTENCY_OUTCOME_UNKNOWN"));
    assert_eq!(tracer.take("payments handler").await.error, Some("panicked"));
}

#[tokio::test]
async fn the_span_of_a_client_that_leaves_is_ended() {
    let tracer = Arc::new(KeptSpans::default());
    let lab = lab(&tracer).await;
    let leaving = tokio::spawn(pay("{}").doing("gate").to(lab.address));
    lab.begun().await;
    leaving.abort();
    let left = tracer.take("payments").await;
    assert_eq!(text(&left, "semel.decision").as_deref(), Some("client_left"));
    lab.open_gate();
    assert_eq!(tracer.take("payments handler").await.parent, Some(left.context));
}

#[tokio::test]
async fn the_execution_by_a_worker_links_to_the_request() {
    let tracer = Arc::new(KeptSpans::default());
    let lab = Later::with(Later::in_a_file(), |builder| {
        builder
            .defaults(later())
            .operation(Operation::new("payments", "POST /payments"))
            .tracer(tracer.clone())
    })
    .await;
    let accepted = lab.send(pay("{}").with("traceparent", PARENT)).await;
    assert_eq!(accepted.status, 202);
    let server = tracer.take("payments").await;
    assert_eq!(text(&server, "semel.decision").as_deref(), Some("accepted"));
    let (stop, worker) = lab.work();
    lab.becomes(&accepted, "succeeded").await;
    let (executed, call) = (tracer.take("payments execution").await, tracer.take("payments handler").await);
    assert_eq!((executed.role, executed.links), (SpanRole::Internal, vec![server.context]));
    assert_eq!((call.parent, call.role), (Some(executed.context), SpanRole::Client));
    stop.stop();
    worker.await.expect("it ends");
}

#[tokio::test]
async fn a_decision_is_logged_with_its_operation_and_its_trace() {
    let (tracer, logs) = (Arc::new(KeptSpans::default()), Logs::default());
    let _logged = tracing::subscriber::set_default(logs.clone());
    let lab = lab(&tracer).await;
    lab.send(pay("{}").with("traceparent", PARENT)).await;
    lab.send(pay("{}").with("traceparent", PARENT)).await;
    let record = &lab.sqlite.list(&Filter::default()).await.expect("it lists").records[0];
    let id = record.operation_id.to_string();
    for event in ["idempotency_claim", "idempotency_settled", "idempotency_replay"] {
        let lines = logs.named(event);
        assert_eq!(lines.len(), 1, "{event}");
        assert_eq!(
            (lines[0].get("operationId"), lines[0]["traceId"].as_str()),
            (Some(&id), TRACE),
            "{event}"
        );
    }
}
