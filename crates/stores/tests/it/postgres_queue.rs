//! The metrics of the queue in front of the lanes: changes that wait are seen while they wait, even if no lane takes any.

use std::sync::{Arc, Mutex, PoisonError};

use metrics::{
    Counter, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use semel_core::{Decision, Store};
use semel_testkit::proxy::Matching;
use semel_testkit::sample;

use crate::postgres_faults::one_lane;

/// Last length of the queue, and all waits, as the store has recorded them.
#[derive(Default)]
struct QueueRecorder {
    length: Arc<LastLength>,
    waits: Arc<Waits>,
}

#[derive(Default)]
struct LastLength(Mutex<f64>);

#[derive(Default)]
struct Waits(Mutex<Vec<f64>>);

impl GaugeFn for LastLength {
    fn increment(&self, _: f64) {}

    fn decrement(&self, _: f64) {}

    fn set(&self, value: f64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = value;
    }
}

impl HistogramFn for Waits {
    fn record(&self, value: f64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(value);
    }
}

impl Recorder for QueueRecorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        match key.name() {
            "idempotency_store_queue_length" => Gauge::from_arc(self.length.clone()),
            _ => Gauge::noop(),
        }
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match key.name() {
            "idempotency_store_queue_seconds" => Histogram::from_arc(self.waits.clone()),
            _ => Histogram::noop(),
        }
    }
}

impl QueueRecorder {
    fn length(&self) -> f64 {
        *self.length.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waits(&self) -> Vec<f64> {
        self.waits.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

// One thread: the recorder is that of the thread.
#[tokio::test]
async fn changes_that_wait_for_a_lane_are_counted_and_timed() {
    let recorder = QueueRecorder::default();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let bed = one_lane().await;
    let held = bed.proxy.hold_answer(Matching::statement("INSERT INTO semel_records"));
    let claim = |number: usize| {
        let (store, claim) = (bed.store.clone(), sample::claim(&format!("key-{number}")));
        tokio::spawn(async move { store.claim(&claim).await })
    };
    let mut claims = vec![claim(0)];
    held.reached().await;
    assert_eq!((recorder.length(), recorder.waits().len()), (0.0, 1), "the lane was idle, and took it");
    for number in 1..=3 {
        claims.push(claim(number));
        tokio::task::yield_now().await;
        assert_eq!(recorder.length(), number as f64, "the lane is busy");
    }
    assert_eq!(recorder.waits().len(), 1);
    held.release();
    for task in claims {
        let answer = task.await.expect("it does not panic").expect("it is decided");
        assert_eq!(answer.decision, Decision::Execute);
    }
    assert_eq!(recorder.length(), 0.0);
    let waits = recorder.waits();
    assert_eq!(waits.len(), 4);
    assert!(waits[1..].iter().all(|wait| *wait > 0.0), "{waits:?}");
}
