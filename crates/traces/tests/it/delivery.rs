//! Spans arrive, each once.

use std::future::{pending, ready};
use std::time::Duration;

use semel_core::{SpanRole, SpanValue, TraceContext, Tracer};
use semel_traces::{Sampler, TraceExporterOptions};
use serde_json::json;
use tokio::sync::oneshot;

use crate::receiver::{Export, Metrics, Receiver, Then, end_spans, exporter, options, span};

fn names(exports: &[Export]) -> Vec<String> {
    let taken = exports.iter().filter(|export| export.is_taken);
    taken.flat_map(Export::names).map(str::to_owned).collect()
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

#[tokio::test]
async fn spans_arrive_as_an_export_request_of_the_protocol() {
    let mut receiver = Receiver::start(&[]).await;
    let authorization = Some("Bearer a-secret".parse().expect("it is a value"));
    let options = TraceExporterOptions { service_name: "orders".to_owned(), authorization, ..options() };
    let (exporter, sender) = exporter(&receiver.url, options);
    let client = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let server = exporter.begin(client);
    let mut ended = span(server, "payments.create");
    ended.parent = client;
    ended.role = SpanRole::Server;
    ended.attributes = vec![
        ("semel.decision", SpanValue::Text("executed".into())),
        ("http.response.status_code", SpanValue::Int(201)),
    ];
    exporter.end(ended);
    sender.run(ready(())).await;

    let export = receiver.export().await;
    assert_eq!(export.headers["content-type"], "application/json");
    assert_eq!(export.headers["authorization"], "Bearer a-secret");
    let id = format!("{:016x}", u64::from_be_bytes(server.span_id()));
    let version = env!("CARGO_PKG_VERSION");
    let expected = json!({"resourceSpans": [{
        "resource": {"attributes": [
            {"key": "service.name", "value": {"stringValue": "orders"}},
            {"key": "service.version", "value": {"stringValue": version}},
        ]},
        "scopeSpans": [{"scope": {"name": "semel", "version": version}, "spans": [{
            "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
            "spanId": id,
            "parentSpanId": "00f067aa0ba902b7",
            "flags": 1,
            "name": "payments.create",
            "kind": 2,
            "startTimeUnixNano": "1763200000000000000",
            "endTimeUnixNano": "1763200000002000000",
            "attributes": [
                {"key": "semel.decision", "value": {"stringValue": "executed"}},
                {"key": "http.response.status_code", "value": {"intValue": "201"}},
            ],
            "links": [],
        }]}],
    }]});
    assert_eq!(export.body, expected);
}

#[tokio::test]
async fn a_batch_that_the_collector_cannot_take_now_is_sent_again_and_each_span_arrives_once() {
    for status in [429, 502, 503, 504] {
        let metrics = Metrics::new();
        let _recording = metrics.record();
        let mut receiver = Receiver::start(&[Then::Again(status), Then::Status(status)]).await;
        let (exporter, sender) = exporter(&receiver.url, options());
        end_spans(&exporter, 0..3);
        sender.run(ready(())).await;
        let exports = receiver.rest();
        assert_eq!((exports.len(), names(&exports)), (3, numbers(0..3)), "{status}");
        assert_eq!(metrics.spans(), [3, 0, 0, 0], "{status}");
    }
}

#[tokio::test]
async fn a_collector_that_starts_late_gets_the_batch() {
    let mut receiver = Receiver::start(&[]).await;
    // The first connection is closed without an answer, the second one is led to the collector.
    let front = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("http://{}/v1/traces", front.local_addr().expect("it is bound"));
    let address = receiver.url.strip_prefix("http://").and_then(|rest| rest.split_once('/'));
    let behind = address.expect("it has a path").0.to_owned();
    tokio::spawn(async move {
        drop(front.accept().await);
        let (mut client, _) = front.accept().await.expect("it comes again");
        let mut server = tokio::net::TcpStream::connect(behind).await.expect("it listens");
        tokio::io::copy_bidirectional(&mut client, &mut server).await
    });
    let (exporter, sender) = exporter(&url, options());
    end_spans(&exporter, 0..2);
    sender.run(ready(())).await;
    assert_eq!(names(&receiver.rest()), numbers(0..2));
}

#[tokio::test]
async fn spans_that_are_not_sampled_are_not_sent() {
    let metrics = Metrics::new();
    let _recording = metrics.record();
    let mut receiver = Receiver::start(&[]).await;
    let nothing = TraceExporterOptions { sampler: Sampler::new(0), ..options() };
    let (exporter, sender) = exporter(&receiver.url, nothing);
    let sampled = TraceContext::new([1; 16], [2; 8], true);
    let unsampled = TraceContext::new([1; 16], [2; 8], false);
    for (parent, name) in [(None, "new"), (unsampled, "unsampled"), (sampled, "sampled")] {
        exporter.end(span(exporter.begin(parent), name));
    }
    sender.run(ready(())).await;
    assert_eq!(names(&receiver.rest()), ["sampled"]);
    assert_eq!(metrics.spans(), [1, 0, 0, 0]);
}

#[tokio::test]
async fn a_full_batch_is_sent_at_once_and_the_rest_at_the_end() {
    let mut receiver = Receiver::start(&[]).await;
    let (exporter, sender) = exporter(&receiver.url, options());
    end_spans(&exporter, 0..1000);
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(sender.run(async { drop(stopped.await) }));
    let first = receiver.export().await;
    assert_eq!(first.names(), numbers(0..512));
    end_spans(&exporter, 1000..1010);
    drop(stop);
    running.await.expect("it does not panic");
    assert_eq!(names(&receiver.rest()), numbers(512..1010));
}

#[tokio::test]
async fn a_span_waits_no_longer_than_the_interval_for_its_batch_to_fill() {
    let mut receiver = Receiver::start(&[]).await;
    let often = TraceExporterOptions { interval: Duration::from_millis(1), ..options() };
    let (exporter, sender) = exporter(&receiver.url, often);
    let running = tokio::spawn(sender.run(pending()));
    for number in 0..3 {
        end_spans(&exporter, number..number + 1);
        assert_eq!(receiver.export().await.names(), numbers(number..number + 1));
    }
    running.abort();
}

#[tokio::test]
async fn an_exporter_that_is_dropped_sends_what_it_has() {
    let mut receiver = Receiver::start(&[]).await;
    let (exporter, sender) = exporter(&receiver.url, options());
    end_spans(&exporter, 0..2);
    drop(exporter);
    sender.run(pending()).await;
    assert_eq!(names(&receiver.rest()), numbers(0..2));
}
