//! Commands in phases end to end over HTTP: axum, the layer, the extractor and the phases together.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use bytes::Bytes;
use semel_core::policy::InProgress;
use semel_core::{Policy, Principal};
use semel_flow::Answered;
use semel_flow::phases::Phases;
use semel_http::{Denied, IdempotencyLayer, Idempotent, Operation};
use semel_testkit::client::{Reply, pay, problem};

use crate::lab::{Kept, both, stored};
use crate::rides::{Act, Phased, Provider, Ride, resumed, written};

both!(
    a_ride_is_answered_replayed_and_shown_with_its_phases,
    a_ride_that_is_resumed_is_accepted_and_shown_as_far_as_it_is,
    a_ride_without_a_certain_outcome_is_answered_as_unknown,
);

/// A service on a free port.
struct Service<L: Phased> {
    address: SocketAddr,
    rides: Phases<L::Transactions>,
    kept: Kept,
}

impl<L: Phased> Service<L> {
    async fn start(lab: &L, what: Ride) -> Service<L> {
        let kept = lab.kept().await;
        let rides = lab.rides(kept.store(), what);
        let layer = IdempotencyLayer::builder(kept.store())
            .identify(|_| Principal::new("acme", "alice").map_err(|_| Denied::unauthenticated()))
            .defaults(Policy { in_progress: InProgress::Accepted, ..Policy::default() })
            .operation(Operation::new("payments.create", "POST /payments").local())
            .build()
            .expect("the layer is valid");
        let app = Router::new()
            .route("/payments", post(handle::<L>))
            .with_state(Arc::new(rides.clone()))
            .layer(layer);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        tokio::spawn(async move { axum::serve(listener, app).await });
        Service { address, rides, kept }
    }

    async fn pay(&self) -> Reply {
        pay("ride 7").set("content-type", "text/plain").to(self.address).await
    }

    async fn look(&self, id: &str) -> serde_json::Value {
        let look = pay("").method("GET").without("idempotency-key");
        look.target(format!("/.well-known/semel/operations/{id}")).to(self.address).await.json()
    }
}

async fn handle<L: Phased>(
    State(rides): State<Arc<Phases<L::Transactions>>>,
    Idempotent(command): Idempotent,
    body: Bytes,
) -> Answered {
    rides.start(&command, body).await
}

/// Returns name, kind and state of each phase.
fn phases(document: &serde_json::Value) -> Vec<(&str, &str, &str)> {
    let phases = document["phases"].as_array().expect("it has phases");
    phases
        .iter()
        .map(|phase| {
            let word = |name: &str| phase[name].as_str().expect("it is a word");
            assert!(semel_core::Timestamp::from_rfc3339(word("beganAt")).is_some(), "{phase}");
            assert_eq!(phase["doneAt"].is_string(), phase["state"] == "done", "{phase}");
            assert_eq!(phase.as_object().map(serde_json::Map::len), Some(5), "and nothing more: {phase}");
            (word("name"), word("kind"), word("state"))
        })
        .collect()
}

async fn a_ride_is_answered_replayed_and_shown_with_its_phases(lab: impl Phased) {
    let provider = Provider::start(false).await;
    let service = Service::start(&lab, Ride::new(&provider)).await;
    let first = service.pay().await;
    assert_eq!((first.status.as_u16(), first.replayed()), (201, false), "{first:?}");
    let retry = service.pay().await;
    assert!(retry.replayed() && retry.body == first.body, "{retry:?}");
    let id = first.operation_id().expect("it has an id").to_owned();
    let document = service.look(&id).await;
    assert_eq!((&document["state"], &document["result"]["status"]), (&"succeeded".into(), &201.into()));
    let expected = [
        ("ride_created", "local", "done"),
        ("charge_created", "external", "done"),
        ("receipt_sent", "local", "done"),
    ];
    assert_eq!(phases(&document), expected);
    assert!(document.get("items").is_none(), "{document}");
    let item = "INSERT INTO semel_phases (operation_id, position, name, kind, began_at, item_id)
                SELECT operation_id, 9, 'item-1', 'item', 1, id FROM semel_records";
    lab.run(item).await;
    let shown = serde_json::json!([
        { "clientItemId": "item-1", "operationId": id, "state": "succeeded", "status": 201 }
    ]);
    let document = service.look(&id).await;
    assert_eq!((&document["items"], phases(&document).len()), (&shown, 3));
    assert_eq!((written(&lab).await, provider.counts()), ((1, 1, 1), (1, 1)));
}

async fn a_ride_that_is_resumed_is_accepted_and_shown_as_far_as_it_is(lab: impl Phased) {
    let provider = Provider::start(true).await;
    let service = Service::start(&lab, Ride::new(&provider).once("after sending", || Act::Panic)).await;
    let first = service.pay().await;
    assert_eq!(first.status, 202, "{first:?}");
    let id = first.json()["operationId"].as_str().expect("it has an id").to_owned();
    let document = service.look(&id).await;
    assert_eq!((&document["state"], &document["reason"]), (&"claimed".into(), &"panicked".into()));
    assert_eq!(
        phases(&document),
        [("ride_created", "local", "done"), ("charge_created", "external", "begun")]
    );
    service.kept.shift_clock(Duration::from_secs(3600));
    let found = service.kept.store().find(id.parse().expect("it is an id")).await.expect("it can be read");
    let record = found.record.expect("there is a record").id;
    let record = resumed(&[&service.rides], &service.kept, &record).await;
    assert_eq!(stored(&record).0, 201);
    let retry = service.pay().await;
    assert_eq!((retry.status.as_u16(), retry.replayed()), (201, true), "{retry:?}");
    assert_eq!((written(&lab).await, provider.counts()), ((1, 1, 1), (2, 1)));
}

async fn a_ride_without_a_certain_outcome_is_answered_as_unknown(lab: impl Phased) {
    let provider = Provider::start(false).await;
    let service = Service::start(&lab, Ride::new(&provider).once("after sending", || Act::Panic)).await;
    let unknown = problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN");
    assert_eq!(service.pay().await.problem(), unknown);
    assert_eq!(service.pay().await.problem(), unknown);
    assert_eq!(provider.counts(), (1, 1));
}
