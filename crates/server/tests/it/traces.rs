//! Traces of the gateway: what a collector of our own gets, and what the upstream sees.
//!
//! A gateway that stops sends its last spans before it ends, so that the tests need not wait for a batch.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use semel_core::TraceContext;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::gateway::lab::{Gateway, Reply, Send, Site, Upstream, pay};
use crate::third_party::python;

/// Trace of a client that is recorded.
const CLIENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// Trace of another client, which is not recorded.
const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

const OPERATION: &str = "[[operation]]\nname = \"payments.create\"\nmatch = \"POST /payments\"\n";

type Exports = Arc<Mutex<Vec<Value>>>;

/// Collector that takes everything.
struct Collector {
    url: String,
    exports: Exports,
}

impl Collector {
    async fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let url = format!("http://{}/v1/traces", listener.local_addr().expect("it is bound"));
        let exports = Exports::default();
        let app = Router::new().route("/v1/traces", post(take)).with_state(exports.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Collector { url, exports }
    }

    /// Returns a configuration file with these lines at its top and in `[traces]`.
    fn file(&self, top: &str, traces: &str) -> String {
        format!("{top}\n[traces]\nendpoint = \"{}\"\n{traces}\n{OPERATION}", self.url)
    }

    /// Stops the gateway, and returns all spans, the oldest first.
    async fn spans(&self, mut gateway: Gateway) -> Vec<SentSpan> {
        gateway.terminate();
        assert!(gateway.ended().await.success(), "{}", gateway.log());
        let exports = self.exports.lock().expect("nobody panics with it");
        let spans = exports.iter().flat_map(|export| {
            let spans = export.pointer("/resourceSpans/0/scopeSpans/0/spans").and_then(Value::as_array);
            spans.expect("there is a list").clone()
        });
        let mut spans: Vec<SentSpan> = spans.map(SentSpan).collect();
        spans.sort_by_key(|span| span.text("startTimeUnixNano").parse::<u64>().expect("it is a number"));
        spans
    }
}

async fn take(State(exports): State<Exports>, axum::Json(export): axum::Json<Value>) -> axum::Json<Value> {
    exports.lock().expect("nobody panics with it").push(export);
    axum::Json(json!({}))
}

/// Kinds of spans in the protocol.
const INTERNAL: u64 = 1;
const SERVER: u64 = 2;
const CLIENT_KIND: u64 = 3;

/// A span as the collector got it.
struct SentSpan(Value);

impl SentSpan {
    fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_else(|| panic!("{name} of {}", self.0))
    }

    fn kind(&self) -> u64 {
        self.0["kind"].as_u64().expect("it is a number")
    }

    /// Returns an attribute; numbers are decimal strings.
    fn attribute(&self, key: &str) -> Option<&str> {
        let attributes = self.0["attributes"].as_array().expect("it is a list");
        let found = attributes.iter().find(|attribute| attribute["key"] == key)?;
        let value = found["value"].as_object().expect("it is an object").values().next();
        value.and_then(Value::as_str)
    }

    /// Returns the trace and the span that each link names.
    fn links(&self) -> Vec<(String, String)> {
        let links = self.0["links"].as_array().expect("it is a list");
        let text = |value: &Value| value.as_str().expect("it is text").to_owned();
        links.iter().map(|link| (text(&link["traceId"]), text(&link["spanId"]))).collect()
    }

    /// Returns its trace and its id.
    fn position(&self) -> (String, String) {
        (self.text("traceId").to_owned(), self.text("spanId").to_owned())
    }
}

/// Returns the spans of one kind.
fn of_kind(spans: &[SentSpan], kind: u64) -> Vec<&SentSpan> {
    spans.iter().filter(|span| span.kind() == kind).collect()
}

fn traced(traceparent: &str) -> Send {
    pay("{}").with("traceparent", traceparent)
}

/// Returns the position that the upstream saw.
fn seen(reply: &Reply) -> TraceContext {
    let seen = reply.header("seen-traceparent").unwrap_or_else(|| panic!("the upstream saw none: {reply:?}"));
    TraceContext::parse(seen).unwrap_or_else(|| panic!("{seen} is no position"))
}

fn span_id(context: TraceContext) -> String {
    format!("{:016x}", u64::from_be_bytes(context.span_id()))
}

#[tokio::test]
async fn a_first_call_has_a_server_span_and_a_client_span_whose_position_the_upstream_gets() {
    let (site, upstream, collector) = (Site::new(), Upstream::start().await, Collector::start().await);
    let gateway = site.start_with(upstream.address, &collector.file("", "service_name = \"orders\""), &[]);
    let reply = gateway.send(traced(CLIENT).with("tracestate", "vendor=1")).await;
    assert_eq!((reply.status.as_u16(), reply.header("seen-tracestate")), (201, Some("vendor=1")));

    let spans = collector.spans(gateway).await;
    let [server] = of_kind(&spans, SERVER)[..] else { panic!("one request is one server span") };
    let [client] = of_kind(&spans, CLIENT_KIND)[..] else { panic!("one call is one client span") };
    let client_trace = TraceContext::parse(CLIENT).expect("it is one");
    assert_eq!(server.text("traceId"), client_trace.trace_id_text());
    assert_eq!(server.text("parentSpanId"), span_id(client_trace));
    assert_eq!(client.text("parentSpanId"), server.text("spanId"));
    let upstream_saw = seen(&reply);
    assert_eq!(client.position(), (upstream_saw.trace_id_text(), span_id(upstream_saw)));
    assert!(upstream_saw.is_sampled());

    assert_eq!(server.text("name"), "payments.create");
    for (key, value) in [
        ("http.request.method", Some("POST")),
        ("http.response.status_code", Some("201")),
        ("semel.operation", Some("payments.create")),
        ("semel.decision", Some("executed")),
        ("semel.epoch", Some("1")),
        ("semel.operation_id", reply.header("idempotency-operation-id")),
    ] {
        assert_eq!(server.attribute(key), value, "{key}");
    }
    assert!(server.attribute("semel.state").is_some());
    assert!(
        server.0.get("status").is_none() && server.links().is_empty(),
        "it is no error, and the first attempt"
    );
    let export = collector.exports.lock().expect("nobody panics with it")[0].to_string();
    assert!(export.contains(r#"{"key":"service.name","value":{"stringValue":"orders"}}"#), "{export}");
    assert!(!export.contains(semel_testkit::client::KEY), "a key is in no trace: {export}");
}

#[tokio::test]
async fn a_replay_links_to_the_first_attempt() {
    let (site, upstream, collector) = (Site::new(), Upstream::start().await, Collector::start().await);
    let gateway = site.start_with(upstream.address, &collector.file("", ""), &[]);
    assert_eq!(gateway.send(traced(CLIENT)).await.status, 201);
    assert!(gateway.send(traced(OTHER)).await.replayed());
    assert_eq!(upstream.effects(), 1);

    let spans = collector.spans(gateway).await;
    let [first, replay] = of_kind(&spans, SERVER)[..] else { panic!("two requests are two server spans") };
    assert_eq!(of_kind(&spans, CLIENT_KIND).len(), 1, "a replay calls nobody");
    let other = TraceContext::parse(OTHER).expect("it is one");
    assert_eq!(replay.text("traceId"), other.trace_id_text(), "it is in the trace of its own request");
    assert_eq!(replay.attribute("semel.decision"), Some("replayed"));
    assert_eq!(replay.attribute("semel.operation_id"), first.attribute("semel.operation_id"));
    assert_eq!(replay.links(), [first.position()]);
}

#[tokio::test]
async fn only_a_trusted_peer_decides_whether_its_trace_is_recorded() {
    const TRUSTED: &str = "forwarded_from = [\"127.0.0.0/8\"]";
    for (top, sample, traceparent, is_recorded) in [
        ("", "sample = 0", CLIENT, false),
        ("", "sample = 1", OTHER, true),
        (TRUSTED, "sample = 0", CLIENT, true),
        (TRUSTED, "sample = 1", OTHER, false),
    ] {
        let (site, upstream, collector) = (Site::new(), Upstream::start().await, Collector::start().await);
        let gateway = site.start_with(upstream.address, &collector.file(top, sample), &[]);
        let upstream_saw = seen(&gateway.send(traced(traceparent)).await);
        let sent = TraceContext::parse(traceparent).expect("it is one");
        assert_eq!(upstream_saw.trace_id(), sent.trace_id(), "{top} {sample}");
        assert_eq!(upstream_saw.is_sampled(), is_recorded, "{top} {sample}");
        assert_eq!(collector.spans(gateway).await.is_empty(), !is_recorded, "{top} {sample}");
    }
}

#[tokio::test]
async fn a_request_without_a_readable_position_begins_a_trace() {
    let (site, upstream, collector) = (Site::new(), Upstream::start().await, Collector::start().await);
    let gateway = site.start_with(upstream.address, &collector.file("", ""), &[]);
    let sent = [
        pay("{}"),
        traced("x").with("tracestate", "vendor=1"),
        traced(CLIENT).with("traceparent", OTHER).with("tracestate", "vendor=1"),
    ];
    let mut traces = Vec::new();
    for (number, request) in sent.into_iter().enumerate() {
        let key = format!("a-key-of-a-trace-{number}");
        let reply = gateway.send(request.set("idempotency-key", key)).await;
        assert_eq!(reply.header("seen-tracestate"), None, "{number}");
        traces.push(seen(&reply).trace_id_text());
    }
    let spans = collector.spans(gateway).await;
    let servers = of_kind(&spans, SERVER);
    assert!(servers.iter().all(|span| span.0.get("parentSpanId").is_none()), "they are roots");
    let begun: Vec<_> = servers.iter().map(|span| span.text("traceId")).collect();
    assert_eq!(begun, traces);
    traces.extend([CLIENT, OTHER].map(|text| TraceContext::parse(text).expect("it is one").trace_id_text()));
    traces.sort();
    traces.dedup();
    assert_eq!(traces.len(), 5, "each is a trace of its own");
}

#[tokio::test]
async fn without_traces_the_upstream_gets_the_fields_of_the_client() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let gateway = site.start_with(upstream.address, OPERATION, &[]);
    for (number, traceparent) in [CLIENT, OTHER, "x"].into_iter().enumerate() {
        let request = traced(traceparent).set("idempotency-key", format!("a-key-of-a-trace-{number}"));
        let reply = gateway.send(request.with("tracestate", "vendor=1")).await;
        assert_eq!(reply.header("seen-traceparent"), Some(traceparent));
        assert_eq!(reply.header("seen-tracestate"), Some("vendor=1"));
    }
    assert_eq!(gateway.counted("traces_exported_total ").await, Some(0), "nothing is traced");
}

#[tokio::test]
async fn a_collector_that_nobody_runs_holds_up_no_request_and_no_shutdown() {
    let (site, upstream) = (Site::new(), Upstream::start().await);
    let file = format!("[traces]\nendpoint = \"http://127.0.0.1:1/v1/traces\"\n{OPERATION}");
    let mut gateway = site.start_with(upstream.address, &file, &[]);
    assert_eq!(gateway.counted("traces_exported_total ").await, Some(0));
    for reason in ["queue_full", "refused", "unreachable"] {
        let counter = format!("traces_dropped_total{{reason=\"{reason}\"}} ");
        assert_eq!(gateway.counted(&counter).await, Some(0), "{reason}");
    }
    assert_eq!(gateway.send(traced(CLIENT)).await.status, 201);
    gateway.terminate();
    assert!(gateway.ended().await.success());
    gateway.logs("spans were dropped").await;
}

#[tokio::test]
async fn exports_are_what_the_definitions_of_opentelemetry_say() {
    let (site, upstream, collector) = (Site::new(), Upstream::start().await, Collector::start().await);
    let gateway = site.start_with(upstream.address, &collector.file("", ""), &[]);
    assert_eq!(gateway.send(traced(CLIENT)).await.status, 201);
    assert!(gateway.send(traced(OTHER)).await.replayed());
    collector.spans(gateway).await;
    let (dark, nobody) = (Site::new(), "127.0.0.1:1".parse().expect("it is an address"));
    let failing = dark.start_with(nobody, &collector.file("", ""), &[]);
    assert!(failing.send(traced(CLIENT)).await.status.is_server_error());
    let spans = collector.spans(failing).await;

    let exports = collector.exports.lock().expect("nobody panics with it").clone();
    let understood = tokio::task::spawn_blocking(move || read_by_opentelemetry(&exports));
    let understood = understood.await.expect("it does not panic");
    assert_eq!(understood.len(), spans.len());
    let mut servers = understood.iter().filter(|span| span["kind"] == SERVER);
    let [Some(first), Some(replay), Some(failure), None] = [(); 4].map(|()| servers.next()) else {
        panic!("three requests are three server spans: {understood:?}")
    };
    assert_eq!(first["attributes"]["semel.decision"], "executed");
    assert_eq!(first["attributes"]["http.response.status_code"], 201, "it is a number");
    assert_eq!((&first["parent"], &first["status"]), (&json!("00f067aa0ba902b7"), &json!(0)));
    assert_eq!((&replay["links"], &replay["status"]), (&json!([first["span"]]), &json!(0)));
    assert_eq!(failure["status"], 2, "an error");
    assert!(understood.iter().all(|span| span["service"] == "semel" && span["kind"] != INTERNAL));
}

/// Returns the spans that OpenTelemetry's own definitions read in these exports.
fn read_by_opentelemetry(exports: &[Value]) -> Vec<Value> {
    use std::io::Write;
    use std::process::Stdio;

    let mut reader = python("otlp_reader.py");
    let reader = reader.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut reader = reader.expect("it starts");
    let mut input = reader.stdin.take().expect("it is piped");
    input.write_all(json!(exports).to_string().as_bytes()).expect("it reads");
    drop(input);
    let output = reader.wait_with_output().expect("it ends");
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("it understands nothing: {error}"))
}
