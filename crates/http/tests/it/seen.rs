//! Facts in a response about the way in which its command was answered, for the service around the layer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use semel_core::{Filter, Records};
use semel_http::{AnswerDecision, AnswerFacts};
use tower::ServiceExt;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::lab::{Lab, Send, app, pay};

impl Lab {
    /// Returns the decision on a request, from a layer that is called without a socket.
    async fn seen(&self, request: Send) -> Option<AnswerDecision> {
        let service = app(self.effects.clone()).layer(self.layer.clone());
        let response = service.oneshot(request.into_request().map(Body::new)).await.expect("it is answered");
        AnswerFacts::of(&response).decision
    }
}

#[tokio::test]
async fn the_answer_decision_tells_an_execution_from_a_reacquisition() {
    let lab = Lab::new().await;
    assert_eq!(lab.seen(pay("{}")).await, Some(AnswerDecision::Executed));
    assert_eq!(lab.seen(pay("{}")).await, Some(AnswerDecision::Replayed));
    assert_eq!(lab.seen(pay("[]")).await, Some(AnswerDecision::Mismatch));

    let lab = Lab::new().await;
    assert_eq!(lab.seen(pay("{}").doing("not-executed")).await, Some(AnswerDecision::Executed));
    assert_eq!(lab.seen(pay("{}").doing("not-executed")).await, Some(AnswerDecision::Reacquired));
    assert_eq!(lab.seen(pay("{}")).await, Some(AnswerDecision::Reacquired));

    let lab = Lab::new().await;
    assert_eq!(lab.seen(pay("{}").doing("outcome-unknown")).await, Some(AnswerDecision::Executed));
    assert_eq!(lab.seen(pay("{}")).await, Some(AnswerDecision::Unknown));
    assert_eq!(lab.count(), 1);
}

/// Collects the fields of log events.
#[derive(Clone, Default)]
pub(crate) struct Logs(Arc<Mutex<Vec<BTreeMap<&'static str, String>>>>);

impl Logs {
    /// Returns the fields of the events of this name.
    pub(crate) fn named(&self, name: &str) -> Vec<BTreeMap<&'static str, String>> {
        let events = self.0.lock().expect("nobody panics");
        let is_named = |event: &&BTreeMap<_, String>| event.get("event").is_some_and(|event| event == name);
        events.iter().filter(is_named).cloned().collect()
    }

    /// Returns the fields of every event.
    pub(crate) fn all(&self) -> Vec<BTreeMap<&'static str, String>> {
        self.0.lock().expect("nobody panics").clone()
    }

    /// The values of these fields in the event of this outcome.
    fn of(&self, outcome: &str, fields: [&str; 3]) -> [Option<String>; 3] {
        let events = self.0.lock().expect("nobody panics");
        let event = events.iter().find(|event| event.get("outcome").is_some_and(|found| found == outcome));
        fields.map(|field| event.expect("it is logged").get(field).cloned())
    }
}

impl Subscriber for Logs {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.lock().expect("nobody panics").push(fields.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

#[tokio::test]
async fn a_decision_is_logged_with_its_caller_and_the_prefix_of_its_keys_hash() {
    let (lab, logs) = (Lab::new().await, Logs::default());
    let _logged = tracing::subscriber::set_default(logs.clone());
    for body in ["{}", "{}", "[]"] {
        lab.seen(pay(body)).await;
    }
    let refused = pay("").body(vec![b'x'; 2 << 20]).set("idempotency-key", "another-key-of-hers");
    lab.seen(refused).await;
    let records = lab.sqlite.list(&Filter::default()).await.expect("the store lists").records;
    let expected = ["acme", "alice", &records[0].key_hash_prefix].map(|value| Some(value.to_owned()));
    for outcome in ["executed", "replayed", "mismatch"] {
        assert_eq!(logs.of(outcome, ["tenant", "caller", "keyHashPrefix"]), expected, "{outcome}");
    }
    let [tenant, caller, prefix] = logs.of("refused", ["tenant", "caller", "keyHashPrefix"]);
    assert_eq!((tenant.as_deref(), caller.as_deref()), (Some("acme"), Some("alice")));
    assert!(prefix.is_some_and(|prefix| prefix.len() == 8 && prefix != records[0].key_hash_prefix));
}
