//! Signals for operators: metrics, holds and traces of the outbox, of the reconciler and of local commands.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::HeaderMap;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use semel_core::outbox::{MessageFilter, MessageState, RetryTerms};
use semel_core::{
    Claim, Decision, HoldTarget, Note, OperationName, Policy, Principal, Span, SpanRole, StateName,
    TraceContext, Tracer, Transacted,
};
use semel_flow::outbox::{OutboxWorker, OutboxWorkerOptions, Sink};
use semel_flow::phases::CompleterOptions;
use semel_http::{Denied, HoldBoard, IdempotencyLayer, Idempotent, Maintenance, Operation};
use semel_testkit::client::{KEY, Reply, pay, problem};
use semel_testkit::sample;

use crate::lab::{End, Gate, Lab, Sqlite, Step, Work, command, command_with, pays};
use crate::phases::start;
use crate::reconcile::{Provider as Asked, created, reconciler, says, state_of, unknown};
use crate::rides::{Act, Phased, Provider, Ride, until};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Returns the value of this series.
fn value(handle: &PrometheusHandle, series: &str) -> Option<f64> {
    let text = handle.render();
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map(|value| value.parse().expect("a value is a number"))
}

fn note() -> Note {
    Note { who: "alice".to_owned(), action: "hold".to_owned(), why: "the provider is down".to_owned() }
}

/// Tracer that keeps finished spans.
#[derive(Default)]
struct Traced {
    number: AtomicU64,
    spans: Mutex<Vec<Span>>,
}

impl Tracer for Traced {
    fn begin(&self, parent: Option<TraceContext>) -> TraceContext {
        let number = self.number.fetch_add(1, Ordering::SeqCst) + 1;
        let trace = parent.map_or([7; 16], |parent| parent.trace_id());
        TraceContext::new(trace, number.to_be_bytes(), true).expect("no id is zero")
    }

    fn end(&self, span: Span) {
        self.spans.lock().expect("nobody panics").push(span);
    }
}

impl Traced {
    fn take(&self, name: &str) -> Span {
        let mut spans = self.spans.lock().expect("nobody panics");
        let at = spans.iter().position(|span| span.name == name);
        let at = at.unwrap_or_else(|| panic!("there is no span {name} among {}", spans.len()));
        spans.remove(at)
    }
}

#[test]
fn metrics_of_the_outbox_and_the_reconciler_start_at_zero() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        semel_flow::outbox::begin_metrics();
        semel_flow::reconcile::begin_metrics();
    });
    for series in [
        "outbox_pending",
        "outbox_dead",
        "outbox_oldest_seconds",
        r#"outbox_delivered_total{topic="other"}"#,
        r#"outbox_dead_total{topic="other"}"#,
        "idempotency_reconcile_scheduled_total",
        "idempotency_reconcile_failed_total",
        "idempotency_reconcile_contradictions_total",
        "idempotency_reconcile_dead_letters",
        r#"idempotency_reconcile_resolved_total{verdict="executed"}"#,
        r#"idempotency_reconcile_resolved_total{verdict="failed"}"#,
        r#"idempotency_reconcile_resolved_total{verdict="not_executed"}"#,
    ] {
        assert_eq!(value(&handle, series), Some(0.0), "{series}");
    }
}

#[tokio::test]
async fn a_held_reconciler_asks_nobody_and_uses_evidence_that_arrives() {
    let lab = Sqlite::new();
    let (kept, provider) = (lab.kept().await, Arc::new(Asked::default()));
    let (first, second) = (unknown(&kept, "first").await, unknown(&kept, "second").await);
    let held = Arc::new(AtomicBool::new(true));
    let is_held = held.clone();
    let reconciler = reconciler(&kept, provider.clone()).hold_while(move || is_held.load(Ordering::SeqCst));
    says(&kept, "provider", "e1", &first, created()).await;
    let report = reconciler.once().await;
    assert_eq!((report.looks.len(), report.by_evidence, report.trouble), (0, 1, None));
    assert_eq!(state_of(&kept, &first).await, StateName::Succeeded);
    assert_eq!(provider.asked.load(Ordering::SeqCst), 0);
    let asked = reconciler.look(second.operation_id).await.expect("the store answers");
    assert!(asked.is_some_and(|look| look.outcome.is_unknown()), "an operator may ask");
    assert_eq!(provider.asked.load(Ordering::SeqCst), 1);

    held.store(false, Ordering::SeqCst);
    kept.shift_clock(Duration::from_secs(3600));
    assert_eq!(reconciler.once().await.looks.len(), 1);
}

#[tokio::test]
async fn a_look_up_has_a_span_that_links_to_the_request() {
    let lab = Sqlite::new();
    let (kept, tracer) = (lab.kept().await, Arc::new(Traced::default()));
    let trace = TraceContext::parse(PARENT);
    let claim = semel_core::Claim { trace, ..sample::claim("key") };
    let claimed = kept.store().claim(&claim).await.expect("the store answers");
    assert_eq!(claimed.decision, Decision::Execute);
    crate::reconcile::lost(&kept, &claimed.record.expect("it was just made")).await;
    let reconciler = reconciler(&kept, Arc::new(Asked::default())).tracer(tracer.clone());
    assert_eq!(reconciler.once().await.looks.len(), 1);
    let span = tracer.take("look-up");
    assert_eq!((span.role, span.parent), (SpanRole::Internal, None));
    assert_eq!(span.links, Vec::from_iter(trace));
    let outcome = span.attributes.iter().find(|(name, _)| *name == "semel.outcome");
    assert_eq!(outcome.map(|(_, value)| value), Some(&semel_core::SpanValue::Text("again".into())));
}

#[tokio::test]
async fn a_run_in_phases_that_is_given_up_counts_an_unknown_command() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let (lab, provider) = (Sqlite::new(), Provider::start(false).await);
    let (kept, gate) = (lab.kept().await, Gate::new());
    let what = Ride::new(&provider).once("after sending", move || Act::Wait(gate.clone()));
    let rides = lab.rides(kept.store(), what);
    let short = command_with("key", |policy| policy.timeout = Duration::from_millis(500));
    start(&rides, &short).await;
    let record = until(&kept, &short.scope.record_id(), |_| true).await;
    assert_eq!(record.head.state.name(), StateName::Unknown);
    let operation = record.operation.as_str();
    let unknown = format!(r#"idempotency_unknown_total{{operation="{operation}",cause="timed_out"}}"#);
    assert_eq!(value(&handle, &unknown), Some(1.0));
}

#[tokio::test]
async fn a_completer_counts_the_commands_that_its_sweeps_make_unknown() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let (lab, provider) = (Sqlite::new(), Provider::start(false).await);
    let kept = lab.kept().await;
    let named = sample::claim("named");
    let operation = OperationName::unmatched("POST", "/payments");
    let unnamed = Claim { scope: sample::scope("unnamed").under(operation), ..sample::claim("unnamed") };
    for claim in [&named, &unnamed] {
        assert_eq!(kept.store().claim(claim).await.expect("it answers").decision, Decision::Execute);
    }
    kept.shift_clock(Policy::default().lease * 2);
    let completer = lab.rides(kept.store(), Ride::new(&provider)).completer(CompleterOptions::default());
    let stop = completer.stopper();
    let running = tokio::spawn(completer.run());
    for claim in [&named, &unnamed] {
        let is_unknown = |record: &semel_core::Record| record.head.state.name() == StateName::Unknown;
        until(&kept, &claim.scope.record_id(), is_unknown).await;
    }
    stop.stop();
    running.await.expect("it ends by itself");
    let lapsed = |operation: &str| {
        let labels = format!(r#"operation="{operation}",cause="lease_expired""#);
        value(&handle, &format!("idempotency_unknown_total{{{labels}}}"))
    };
    assert_eq!((lapsed("payments.create"), lapsed("unmatched")), (Some(1.0), Some(1.0)));
    assert_eq!(handle.render().matches("idempotency_unknown_total{").count(), 2, "a path is never a label");
}

#[tokio::test]
async fn a_message_that_is_given_up_counts_an_unknown_command() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let lab = Sqlite::new();
    let work = Work { steps: vec![Step::Push("charge")], end: End::Deferred };
    let answered = lab.transact(&command("key"), work).await;
    assert!(matches!(answered.outcome(), Transacted::Deferred { .. }), "{answered:?}");
    let retry = RetryTerms { max_attempts: 1, ..RetryTerms::default() };
    let options =
        OutboxWorkerOptions { poll: Duration::from_millis(5), retry, ..OutboxWorkerOptions::default() };
    let outbox = lab.kept().await.outbox();
    let running = tokio::spawn(OutboxWorker::new(outbox, Arc::new(Failing), options).run());
    let dead = r#"outbox_dead_total{topic="charge"}"#;
    while value(&handle, dead).is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let unknown = r#"idempotency_unknown_total{operation="payments.create",cause="message_dead"}"#;
    assert_eq!((value(&handle, dead), value(&handle, unknown)), (Some(1.0), Some(1.0)));
    running.abort();
}

/// Sink that fails every time.
struct Failing;

#[async_trait::async_trait]
impl Sink for Failing {
    async fn deliver(&self, _: &semel_core::outbox::Message) -> semel_core::outbox::Tried {
        semel_core::outbox::Tried::Failed { why: "no".to_owned(), retry_after: None }
    }
}

#[tokio::test]
async fn a_worker_shows_the_age_of_the_oldest_message() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let lab = Sqlite::new();
    let saw = lab.see(&command("key"), pays()).await;
    assert!(saw.executed(), "{saw:?}");
    let outbox = lab.kept().await.outbox();
    let options = OutboxWorkerOptions { upkeep: Duration::from_millis(5), ..OutboxWorkerOptions::default() };
    let worker = OutboxWorker::new(outbox, Arc::new(Failing), options);
    let running = tokio::spawn(worker.run());
    let oldest = || value(&handle, "outbox_oldest_seconds");
    while !oldest().is_some_and(|age| age > 0.0) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(value(&handle, "outbox_pending"), Some(1.0));
    running.abort();
}

/// Sink that accepts everything.
struct Accepting;

#[async_trait::async_trait]
impl Sink for Accepting {
    async fn deliver(&self, _: &semel_core::outbox::Message) -> semel_core::outbox::Tried {
        semel_core::outbox::Tried::Accepted { reference: None }
    }
}

#[tokio::test]
async fn messages_of_a_held_sink_wait_without_using_up_tries() {
    let lab = Sqlite::new();
    let saw = lab.see(&command("key"), pays()).await;
    assert!(saw.executed(), "{saw:?}");
    let (outbox, asked) = (lab.kept().await.outbox(), Arc::new(AtomicU64::new(0)));
    let held = Arc::new(AtomicBool::new(true));
    let (is_held, times) = (held.clone(), asked.clone());
    let options = OutboxWorkerOptions { poll: Duration::from_millis(2), ..OutboxWorkerOptions::default() };
    let worker = OutboxWorker::new(outbox.clone(), Arc::new(Accepting), options).hold_sinks(move || {
        times.fetch_add(1, Ordering::SeqCst);
        if is_held.load(Ordering::SeqCst) { vec!["payment.created".to_owned()] } else { Vec::new() }
    });
    let running = tokio::spawn(worker.run());
    while asked.load(Ordering::SeqCst) < 5 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let message = || async {
        let all = outbox.messages(&MessageFilter::default()).await.expect("they can be read");
        (all[0].state, all[0].attempts)
    };
    assert_eq!(message().await, (MessageState::Pending, 0));
    held.store(false, Ordering::SeqCst);
    while message().await.0 != MessageState::Delivered {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(message().await, (MessageState::Delivered, 1));
    running.abort();
}

/// A service with a local operation.
struct Service {
    lab: Sqlite,
    layer: IdempotencyLayer,
    address: SocketAddr,
    tracer: Arc<Traced>,
    board: Arc<HoldBoard>,
    seen: SeenTraces,
}

/// Values of `traceparent` that the handler got.
type SeenTraces = Arc<Mutex<Vec<String>>>;

impl Service {
    async fn start() -> Service {
        let (lab, tracer) = (Sqlite::new(), Arc::new(Traced::default()));
        let board = HoldBoard::new(lab.kept().await.store());
        let layer = IdempotencyLayer::builder(lab.store().await)
            .identify(|_| Principal::new("acme", "alice").map_err(|_| Denied::unauthenticated()))
            .operation(Operation::new("payments.create", "POST /payments").local())
            .cache_bytes(0)
            .tracer(tracer.clone())
            .holds(board.clone())
            .build()
            .expect("the layer is valid");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let app = Router::new().route("/payments", post(handle)).with_state((lab.clone(), seen.clone()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let app = app.layer(layer.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Service { lab, layer, address, tracer, board, seen }
    }

    async fn pay(&self, number: usize) -> Reply {
        let key = KEY.replace("0001", &format!("{number:04}"));
        let request = pay("{}").set("idempotency-key", key).with("traceparent", PARENT);
        request.to(self.address).await
    }
}

/// Pays in one transaction, and notes the trace that the request came with.
async fn handle(
    State((lab, seen)): State<(Sqlite, SeenTraces)>,
    Idempotent(command): Idempotent,
    headers: HeaderMap,
) -> Response {
    let trace = headers["traceparent"].to_str().expect("it is text").to_owned();
    seen.lock().expect("nobody panics").push(trace);
    lab.transact(&command, pays()).await.into_response()
}

#[tokio::test]
async fn a_local_command_has_spans_and_keeps_its_trace() {
    let service = Service::start().await;
    let answer = service.pay(1).await;
    assert_eq!(answer.status, 201);
    let call = service.tracer.take("payments.create handler");
    assert_eq!(*service.seen.lock().expect("nobody panics"), [call.context.to_string()]);
    let server = service.tracer.take("payments.create");
    assert_eq!((call.parent, server.parent), (Some(server.context), TraceContext::parse(PARENT)));
    assert!(service.pay(1).await.replayed());
    assert_eq!(service.tracer.take("payments.create").links, [server.context], "the record has its trace");
}

#[tokio::test]
async fn a_held_local_command_is_not_handed_to_its_handler() {
    let service = Service::start().await;
    assert_eq!(service.pay(1).await.status, 201);
    let (store, target) =
        (service.lab.kept().await.store(), HoldTarget::Operation("payments.create".to_owned()));
    store.hold(&target, &note()).await.expect("it is written");
    service.board.read().await.expect("it reads");
    assert_eq!(service.pay(2).await.problem(), problem(503, "IDEMPOTENCY_HELD"));
    assert!(service.pay(1).await.replayed());
    assert_eq!(service.lab.counts().await.0, 1);
    store.lift(&target, &note()).await.expect("it is written");
    service.board.read().await.expect("it reads");
    assert_eq!(service.pay(2).await.status, 201);
}

#[tokio::test]
async fn a_late_retry_of_a_local_command_is_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let service = Service::start().await;
    service.pay(1).await;
    let kept = service.lab.kept().await;
    kept.shift_clock(Policy::default().ttl + Duration::from_secs(1));
    let store = kept.store();
    let reaped = service.layer.maintain_once(&Maintenance::default(), &*store).await.expect("it reaps");
    assert_eq!(reaped.reaped, 1);
    assert_eq!(service.pay(1).await.status, 201);
    let late = r#"idempotency_late_retries_total{operation="payments.create"}"#;
    assert_eq!(value(&handle, late), Some(1.0));
}
