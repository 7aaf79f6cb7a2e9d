//! Lines about the steps of a command, at the level `debug`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use semel_core::{Filter, HoldTarget, Holds, Note, Records};
use semel_http::{HoldBoard, Operation};
use semel_stores::MemoryStore;
use semel_testkit::faulty::{Call, Fault};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::lab::{KEY, Lab, pay};
use crate::seen::Logs;

/// Body of the command, which no line may show.
const BODY: &str = r#"{"amount": 1234567}"#;

/// Fields of one line.
type Line = BTreeMap<&'static str, String>;

/// Collects the lines of the layer up to a level, as `semel_http=debug` does.
struct AtLevel(Logs, Level);

impl Subscriber for AtLevel {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.1 && metadata.target().starts_with("semel_http")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.0.new_span(span)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        self.0.record(span, values);
    }

    fn record_follows_from(&self, span: &Id, follows: &Id) {
        self.0.record_follows_from(span, follows);
    }

    fn event(&self, event: &Event<'_>) {
        self.0.event(event);
    }

    fn enter(&self, span: &Id) {
        self.0.enter(span);
    }

    fn exit(&self, span: &Id) {
        self.0.exit(span);
    }
}

/// Starts a service with the operation `payments`.
async fn lab() -> Lab {
    Lab::with(|builder| builder.operation(Operation::new("payments", "POST /payments"))).await
}

/// Returns each line's event, with the field that tells it from others of its name.
fn told(lines: &[Line]) -> Vec<String> {
    let of = |line: &Line| {
        let detail = ["decision", "error", "status", "failure", "outcome", "extensions", "bytes"];
        let detail = detail.iter().find_map(|name| line.get(name));
        [line.get("event").map_or("", String::as_str), " ", detail.map_or("", String::as_str)]
            .concat()
            .trim()
            .to_owned()
    };
    lines.iter().map(of).collect()
}

#[tokio::test]
async fn a_command_tells_its_steps_at_debug_with_one_operation_id() {
    let (lab, logs) = (lab().await, Logs::default());
    let _logged = tracing::subscriber::set_default(AtLevel(logs.clone(), Level::DEBUG));
    assert_eq!(lab.send(pay(BODY)).await.status, 201);
    let lines = logs.all();
    assert_eq!(
        told(&lines),
        [
            "idempotency_body_read 19",
            "idempotency_store_answered execute",
            "idempotency_claim executed",
            "idempotency_call_begun",
            "idempotency_call_ended 201",
            "idempotency_store_answered applied",
            "idempotency_settled",
        ]
    );
    let record = lab.sqlite.list(&Filter::default()).await.expect("the store lists").records.remove(0);
    for line in &lines {
        assert_eq!(line.get("keyHashPrefix"), Some(&record.key_hash_prefix), "{line:?}");
        assert_eq!(line["operation"], "payments");
    }
    let id = record.operation_id.to_string();
    assert!(lines[1..].iter().all(|line| line["operationId"] == id), "{lines:?}");
    assert_eq!((&*lines[1]["state"], &*lines[5]["state"]), ("processing", "succeeded"));
    assert!(lines[1..].iter().filter_map(|line| line.get("epoch")).all(|epoch| epoch == "1"));
    for timed in [0, 1, 4, 5] {
        assert!(lines[timed]["durationMs"].parse::<f64>().is_ok(), "{:?}", lines[timed]);
    }
}

#[tokio::test]
async fn no_line_has_the_key_or_the_body() {
    let (lab, logs) = (lab().await, Logs::default());
    let _logged = tracing::subscriber::set_default(AtLevel(logs.clone(), Level::TRACE));
    lab.send(pay(BODY).with("authorization", "Bearer canary")).await;
    lab.send(pay(BODY)).await;
    lab.store.always(Fault::Unavailable);
    lab.send(pay(BODY).set("idempotency-key", KEY.replace("0001", "0002"))).await;
    let lines = logs.all();
    assert!(lines.len() > 8, "{lines:?}");
    for value in lines.iter().flat_map(|line| line.values()) {
        let key = KEY.trim_matches('"').replace("0001", "");
        assert!(!value.contains(&key) && !value.contains("1234567") && !value.contains("canary"), "{value}");
    }
}

#[tokio::test]
async fn a_command_tells_no_steps_at_info() {
    let (lab, logs) = (lab().await, Logs::default());
    let _logged = tracing::subscriber::set_default(AtLevel(logs.clone(), Level::INFO));
    lab.send(pay(BODY)).await;
    assert_eq!(told(&logs.all()), ["idempotency_claim executed", "idempotency_settled"]);
}

#[tokio::test]
async fn a_failed_store_call_and_its_retry_have_a_line_each() {
    let (lab, logs) = (lab().await, Logs::default());
    let mut failed = false;
    lab.store.script(move |call| {
        let fails = call == Call::Apply && !std::mem::replace(&mut failed, true);
        fails.then_some(Fault::Busy)
    });
    let _logged = tracing::subscriber::set_default(AtLevel(logs.clone(), Level::DEBUG));
    assert_eq!(lab.send(pay(BODY).doing("panic-after")).await.status, 500);
    let lines = logs.all();
    let steps = told(&lines);
    let failure =
        steps.iter().position(|step| step == "idempotency_store_call_failed busy").expect("it is told");
    assert_eq!(
        steps[failure - 1..=failure + 1].join(", "),
        "idempotency_call_ended panicked, idempotency_store_call_failed busy, idempotency_store_answered applied"
    );
    assert_eq!(lines[failure]["operationId"], lines[failure + 1]["operationId"]);
}

#[tokio::test]
async fn extensions_of_a_lease_are_told_ever_more_rarely() {
    let lab = Lab::policy(|policy| policy.lease = Duration::from_millis(300)).await;
    let (logs, renewals) = (Logs::default(), lab.count_renewals());
    let _logged = tracing::subscriber::set_default(AtLevel(logs.clone(), Level::DEBUG));
    let running = tokio::spawn(pay(BODY).doing("hold").to(lab.address));
    let _ = renewals.acquire_many(6).await.expect("it is never closed");
    lab.open_gate();
    assert_eq!(running.await.expect("it is answered").status, 201);
    let steps = told(&logs.all());
    let told: Vec<_> = steps.iter().filter(|step| step.starts_with("idempotency_lease_extended")).collect();
    assert_eq!(
        told,
        ["1", "2", "4"].map(|n| format!("idempotency_lease_extended {n}")).iter().collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn a_hold_is_told_when_it_refuses_or_lets_pass() {
    let store = Arc::new(MemoryStore::new());
    let board = HoldBoard::new(store.clone());
    let lab = Lab::with(|builder| builder.cache_bytes(0).holds(board.clone())).await;
    let logs = Logs::default();
    let _logged = tracing::subscriber::set_default(AtLevel(logs.clone(), Level::DEBUG));
    lab.send(pay(BODY)).await;
    let note = Note { who: "alice".into(), action: "hold".into(), why: "a test".into() };
    store.hold(&HoldTarget::new("tenant", "acme").expect("it is a target"), &note).await.expect("it writes");
    board.read().await.expect("it reads");
    lab.send(pay(BODY)).await;
    lab.send(pay(BODY).set("idempotency-key", KEY.replace("0001", "0002"))).await;
    lab.send(pay(BODY).without("idempotency-key")).await;
    let held = logs.named("idempotency_held");
    assert_eq!(told(&held), ["allowed", "refused"].map(|outcome| format!("idempotency_held {outcome}")));
    assert!(held.iter().all(|line| line["caller"] == "alice"));
}
