//! Maintenance of a store: what it sweeps and reaps is counted and logged, and the gauges of the census.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use semel_core::outbox::{
    Depth, Intervention, Message, MessageFence, MessageFilter, MessageWrite, Next, Outbox, Take,
};
use semel_core::{Clock, Note, Policy, Store, StoreError, Timestamp, Upkeep};
use semel_http::Maintenance;
use semel_stores::MemoryStore;
use semel_testkit::faulty::{Call, FaultyStore};
use semel_testkit::{ManualClock, sample};
use tokio::sync::Semaphore;

use crate::counted::Counted;
use crate::seen::Logs;

const SECOND: Duration = Duration::from_secs(1);

fn maintenance() -> Maintenance {
    Maintenance { named: vec!["payments.create".to_owned()], ..Maintenance::default() }
}

#[tokio::test]
async fn swept_records_are_counted_and_the_first_of_them_are_named() {
    let (counted, logs) = (Counted::new(), Logs::default());
    let _recording = counted.begin();
    let _logged = tracing::subscriber::set_default(logs.clone());
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(clock.clone());
    for number in 0..25 {
        store.claim(&sample::claim(&format!("key-{number}"))).await.expect("it claims");
    }
    let waiting = sample::for_worker(sample::claim("waits"), SECOND);
    store.claim(&waiting).await.expect("it claims");
    clock.advance(Policy::default().lease + SECOND);
    assert_eq!(maintenance().once(&store).await.expect("it sweeps").swept, 26);

    let swept = |state: &str| {
        counted.value(&format!(r#"idempotency_swept_total{{operation="payments.create",state="{state}"}}"#))
    };
    assert_eq!(["unknown", "failed_retryable"].map(swept), [Some(25.0), Some(1.0)]);
    let unknown = r#"idempotency_unknown_total{operation="payments.create",cause="lease_expired"}"#;
    assert_eq!(counted.value(unknown), Some(25.0));

    let lines = logs.named("idempotency_swept_record");
    assert_eq!(lines.len(), 20, "a pass names no more");
    let known = |line: &std::collections::BTreeMap<&str, String>, field: &str| line[field].clone();
    for line in &lines {
        assert_eq!(known(line, "recordPrefix").len(), 8);
        assert_eq!(known(line, "operationId").len(), 36);
        assert_eq!(
            (known(line, "tenant"), known(line, "operation")),
            ("acme".into(), "payments.create".into())
        );
    }
    let summary = logs.named("idempotency_swept");
    assert_eq!((summary.len(), known(&summary[0], "swept")), (1, "26".to_owned()));
    assert_eq!(maintenance().once(&store).await.expect("it sweeps").swept, 0);
    assert_eq!(logs.named("idempotency_swept").len(), 1, "a pass that sweeps nothing says nothing");
}

#[tokio::test(start_paused = true)]
async fn the_census_shows_how_long_open_commands_are_in_their_state() {
    let counted = Counted::new();
    let _recording = counted.begin();
    let clock = ManualClock::new();
    let store = Arc::new(MemoryStore::with_clock(clock.clone()));
    let claim = sample::claim("key");
    store.claim(&claim).await.expect("it claims");
    clock.advance(SECOND * 7);
    let maintenance = Maintenance { sweep_interval: SECOND * 3600, ..maintenance() };
    let running = tokio::spawn(maintenance.run(store.clone()));
    let oldest = |state: &str| counted.value(&format!(r#"idempotency_oldest_seconds{{state="{state}"}}"#));
    let active = |operation: &str, state: &str| {
        let labels = format!(r#"operation="{operation}",state="{state}""#);
        counted.value(&format!("idempotency_records_active{{{labels}}}"))
    };
    tokio::time::sleep(SECOND).await;
    assert_eq!(["processing", "claimed", "unknown"].map(oldest), [7.0, 0.0, 0.0].map(Some));
    assert_eq!(counted.series("idempotency_oldest_seconds").len(), 3, "settled commands have no age");
    assert_eq!(active("payments.create", "processing"), Some(1.0));
    assert_eq!(active("unmatched", "processing"), Some(0.0));
    let census = counted.value("idempotency_census_timestamp_seconds").expect("there was one");
    assert!((census - clock.now().as_millis() as f64 / 1000.0).abs() < 0.001, "{census}");

    clock.advance(Policy::default().lease + SECOND);
    store.sweep(1).await.expect("it sweeps");
    tokio::time::sleep(SECOND * 16).await;
    assert_eq!(active("payments.create", "processing"), Some(0.0), "the group is gone");
    assert_eq!(active("payments.create", "unknown"), Some(1.0));
    assert_eq!(oldest("processing"), Some(0.0));
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn the_lag_of_the_reaper_rises_while_a_pass_hangs() {
    let counted = Counted::new();
    let _recording = counted.begin();
    let store = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
    let gate = Arc::new(Semaphore::new(0));
    let held = gate.clone();
    store.hold(move |call| {
        let held = held.clone();
        Box::pin(async move {
            if call == Call::Other {
                held.acquire().await.expect("it is never closed").forget();
            }
        })
    });
    let maintenance = Maintenance { reap_interval: SECOND * 10, ..maintenance() };
    let running = tokio::spawn(maintenance.run(store));
    let lag = || counted.value("idempotency_reap_lag_seconds").expect("it is recorded");
    tokio::time::sleep(SECOND).await;
    assert_eq!(lag(), 0.0);
    tokio::time::sleep(SECOND * 120).await;
    assert!(lag() >= 115.0, "{}", lag());
    gate.add_permits(1_000);
    tokio::time::sleep(SECOND * 11).await;
    assert!(lag() <= 15.0, "{}", lag());
    running.abort();
}

/// Outbox that only counts.
struct Counting;

#[async_trait]
impl Outbox for Counting {
    async fn depth(&self) -> Result<Depth, StoreError> {
        let oldest_pending = Some(ManualClock::new().now());
        Ok(Depth { pending: 3, dead: 2, oldest_pending })
    }

    async fn take(&self, _: &Take) -> Result<Vec<Message>, StoreError> {
        Ok(Vec::new())
    }

    async fn accept(&self, _: &MessageFence, _: &str) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn settle(&self, _: &MessageFence, _: Next, _: Option<&str>) -> Result<MessageWrite, StoreError> {
        Ok(MessageWrite::Fenced)
    }

    async fn message(&self, _: &str) -> Result<(Option<Message>, Timestamp), StoreError> {
        Ok((None, Timestamp::from_millis(0)))
    }

    async fn messages(&self, _: &MessageFilter) -> Result<Vec<Message>, StoreError> {
        Ok(Vec::new())
    }

    async fn intervene(&self, _: &str, _: Intervention, _: &Note) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn reap_messages(&self, _: Duration, _: usize) -> Result<usize, StoreError> {
        Ok(0)
    }
}

#[tokio::test(start_paused = true)]
async fn the_maintenance_of_a_layer_records_the_depth_of_an_outbox() {
    let counted = Counted::new();
    let _recording = counted.begin();
    let clock = ManualClock::new();
    let store = Arc::new(MemoryStore::with_clock(clock.clone()));
    clock.advance(SECOND * 9);
    let layer = semel_http::IdempotencyLayer::builder(store.clone())
        .identify(crate::lab::identify)
        .build()
        .expect("it is valid");
    let running = tokio::spawn(layer.maintain(maintenance(), store, Some(Arc::new(Counting))));
    tokio::time::sleep(SECOND).await;
    for (name, value) in [("outbox_pending", 3.0), ("outbox_dead", 2.0), ("outbox_oldest_seconds", 9.0)] {
        assert_eq!(counted.value(name), Some(value), "{name}");
    }
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn the_share_of_the_busiest_caller_is_that_of_the_last_minute() {
    let counted = Counted::new();
    let _recording = counted.begin();
    let store = Arc::new(MemoryStore::new());
    let layer = semel_http::IdempotencyLayer::builder(store.clone())
        .identify(crate::lab::identify)
        .build()
        .expect("it is valid");
    let running = tokio::spawn(layer.maintain(maintenance(), store, None));
    let service = tower::Layer::layer(
        &layer,
        tower::service_fn(|_: http::Request<semel_http::Body>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(http_body_util::Full::new(
                bytes::Bytes::new(),
            )))
        }),
    );
    for (user, number) in [("alice", 1), ("alice", 2), ("alice", 3), ("bob", 4)] {
        let key = crate::lab::KEY.replace("0001", &format!("{number:04}"));
        let request = crate::lab::pay("{}").set("idempotency-key", key).set("x-user", user).into_request();
        tower::ServiceExt::oneshot(service.clone(), request).await.expect("it is answered");
    }
    let share = || counted.value("idempotency_busiest_caller_share");
    assert_eq!(share(), Some(0.0), "the minute has not ended");
    tokio::time::sleep(SECOND * 61).await;
    assert_eq!(share(), Some(0.75));
    tokio::time::sleep(SECOND * 60).await;
    assert_eq!(share(), Some(0.0), "nothing came in the last minute");
    running.abort();
}
