//! Spans that cannot be sent are dropped and counted, and nobody waits for them.

use std::future::{pending, ready};
use std::time::Duration;

use semel_traces::TraceExporterOptions;

use crate::receiver::{Metrics, Receiver, Then, end_spans, exporter, options};

/// Number of spans that the queue holds, as the documentation says.
const QUEUE: usize = 2048;
/// Number of spans in a full batch.
const BATCH: usize = 512;
/// Number of tries of one batch.
const TRIES: usize = 5;

#[tokio::test]
async fn every_counter_is_there_from_the_start() {
    let metrics = Metrics::new();
    let _recording = metrics.record();
    let _exporter = exporter("http://127.0.0.1:1/v1/traces", options());
    assert_eq!(metrics.spans(), [0, 0, 0, 0]);
}

#[tokio::test]
async fn a_full_queue_drops_and_counts_further_spans() {
    let metrics = Metrics::new();
    let _recording = metrics.record();
    let mut receiver = Receiver::start(&[]).await;
    let (exporter, sender) = exporter(&receiver.url, options());
    end_spans(&exporter, 0..QUEUE + 7);
    assert_eq!(metrics.spans(), [0, 7, 0, 0]);
    sender.run(ready(())).await;
    let arrived: usize = receiver.rest().iter().map(|export| export.spans().len()).sum();
    assert_eq!((arrived, metrics.spans()), (QUEUE, [QUEUE as u64, 7, 0, 0]));
}

#[tokio::test]
async fn a_collector_that_never_answers_does_not_hold_up_the_end_of_spans() {
    let metrics = Metrics::new();
    let _recording = metrics.record();
    let mut receiver = Receiver::start(&[Then::Hang]).await;
    let (exporter, sender) = exporter(&receiver.url, options());
    end_spans(&exporter, 0..BATCH);
    let running = tokio::spawn(sender.run(pending()));
    assert_eq!(receiver.export().await.spans().len(), BATCH, "it has the first batch, and hangs");
    end_spans(&exporter, 0..QUEUE + 3);
    assert_eq!(metrics.spans(), [0, 3, 0, 0]);
    running.abort();
}

#[tokio::test]
async fn the_end_waits_for_a_collector_that_never_answers_within_the_bound_only() {
    let metrics = Metrics::new();
    let _recording = metrics.record();
    let receiver = Receiver::start(&[Then::Hang]).await;
    let bounded = TraceExporterOptions { flush: Duration::from_millis(20), ..options() };
    let (exporter, sender) = exporter(&receiver.url, bounded);
    end_spans(&exporter, 0..BATCH + 5);
    sender.run(ready(())).await;
    assert_eq!(metrics.spans(), [0, 0, 0, BATCH as u64 + 5], "in flight or in the queue, each counts once");
    end_spans(&exporter, 0..2);
    assert_eq!(metrics.spans(), [0, 2, 0, BATCH as u64 + 5], "nobody takes later ones");
}

#[tokio::test]
async fn a_batch_is_tried_a_bounded_number_of_times() {
    let metrics = Metrics::new();
    let _recording = metrics.record();
    let mut receiver = Receiver::start(&[Then::Again(503); TRIES]).await;
    let (first, sender) = exporter(&receiver.url, options());
    end_spans(&first, 0..3);
    sender.run(ready(())).await;
    assert_eq!((receiver.rest().len(), metrics.spans()), (TRIES, [0, 0, 0, 3]));

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let nobody = format!("http://{}/", listener.local_addr().expect("it is bound"));
    drop(listener);
    let (second, sender) = exporter(&nobody, options());
    end_spans(&second, 0..4);
    sender.run(ready(())).await;
    assert_eq!(metrics.spans(), [0, 0, 0, 7]);
}

#[tokio::test]
async fn a_timeout_is_tried_again() {
    let metrics = Metrics::new();
    let _recording = metrics.record();
    let mut receiver = Receiver::start(&[Then::Hang]).await;
    let impatient = TraceExporterOptions { timeout: Duration::from_millis(500), ..options() };
    let (exporter, sender) = exporter(&receiver.url, impatient);
    end_spans(&exporter, 0..1);
    sender.run(ready(())).await;
    assert!(receiver.rest().len() >= 2, "the second request is answered");
    assert_eq!(metrics.spans(), [1, 0, 0, 0]);
}

#[tokio::test]
async fn a_batch_that_the_collector_refuses_is_dropped_at_once() {
    for status in [302, 400, 401, 404, 413, 500, 501] {
        let metrics = Metrics::new();
        let _recording = metrics.record();
        let mut receiver = Receiver::start(&[Then::Again(status)]).await;
        let (exporter, sender) = exporter(&receiver.url, options());
        end_spans(&exporter, 0..3);
        sender.run(ready(())).await;
        assert_eq!((receiver.rest().len(), metrics.spans()), (1, [0, 0, 3, 0]), "{status}");
    }
}

#[tokio::test]
async fn spans_that_the_collector_rejects_from_a_batch_are_counted() {
    let metrics = Metrics::new();
    let _recording = metrics.record();
    let partial = r#"{"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}}"#;
    let mut receiver = Receiver::start(&[Then::Says(partial)]).await;
    let (exporter, sender) = exporter(&receiver.url, options());
    end_spans(&exporter, 0..3);
    sender.run(ready(())).await;
    assert_eq!((receiver.rest().len(), metrics.spans()), (1, [1, 0, 2, 0]));
}
