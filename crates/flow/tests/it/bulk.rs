//! Bulk requests: each item runs once, whatever happens to the request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use http::StatusCode;
use semel_core::policy::OnLeaseExpired;
use semel_core::transition::Proof;
use semel_core::{
    Change, Clock, Command, Decision, Filter, Ids, OperationId, OperationName, Policy, Principal, RandomIds,
    Reason, RecordId, Records, StateName, StepKind, SystemClock,
};
use semel_flow::bulk::{Bulk, BulkAnswer, BulkError, BulkItem, ItemOutcome, Whole};
use semel_flow::{PostgresTransactions, SqliteTransactions};
use semel_http::{Denied, Execution, IdempotencyLayer, Operation};
use semel_stores::MemoryStore;
use semel_testkit::client::pay;
use serde_json::{Value, json};

use crate::killed::{PLACE, Process, TASK, say, stand};
use crate::lab::{
    End, Kept, Lab, Postgres, Sqlite, Step, Work, both, command, on_postgres, on_sqlite, pays, pool,
    referring,
};

both!(
    each_item_is_carried_out_once_however_often_the_request_is_sent,
    a_resent_request_runs_only_its_unexecuted_items_again,
    items_are_shown_with_their_request,
    no_more_items_run_at_a_time_than_allowed,
    an_item_with_a_taken_reference_is_a_duplicate,
    a_request_is_answered_in_parts_until_nothing_is_left,
    a_request_that_is_partly_done_keeps_its_reference,
    a_request_that_broke_off_after_an_item_keeps_its_reference,
);

fn whole() -> Whole {
    let principal = Principal::new("acme", "alice").expect("it has names");
    let record_id = RecordId::from_bytes([7; 32]);
    Whole { record_id, operation_id: OperationId::from_bytes([7; 16]), principal }
}

fn bulk(store: Arc<dyn Records>) -> Bulk {
    Bulk::new(store, OperationName::new("payments.create").expect("it is a name"), Policy::default())
}

/// Returns a request with these items, each with its action.
fn request(items: &[(&str, &str)]) -> Bytes {
    let item = |(id, what): &(&str, &str)| json!({ "clientItemId": id, "do": what });
    json!({ "items": items.iter().map(item).collect::<Vec<_>>() }).to_string().into()
}

fn work(item: &BulkItem) -> Work {
    let body: Value = serde_json::from_slice(&item.body).expect("it was read");
    match body["do"].as_str().expect("it says what") {
        "declined" => pays().ending(End::Final(402)),
        "busy" => pays().ending(End::Retryable(503)),
        "panic" => pays().ending(End::Panic),
        "later" => pays().ending(End::Deferred),
        _ => pays(),
    }
}

/// Sends a request; `instead` replaces the actions of its items.
async fn send(lab: &impl Lab, body: &Bytes, instead: Option<&'static str>) -> BulkAnswer {
    let bulk = bulk(lab.store().await);
    let items = bulk.read(&whole(), body).expect("it can be read");
    let carry_out = |item: BulkItem| {
        let lab = lab.clone();
        async move {
            let work = if instead.is_some() { pays() } else { work(&item) };
            lab.transact(&item.command, work).await
        }
    };
    bulk.carry_out(&whole(), items, carry_out).await.expect("the store is there")
}

fn outcomes(answer: &BulkAnswer) -> Vec<(&str, ItemOutcome, bool)> {
    answer.items.iter().map(|item| (item.client_item_id.as_str(), item.outcome, item.retryable)).collect()
}

#[test]
fn a_request_is_taken_whole_or_refused_whole() {
    let bulk = bulk(Arc::new(MemoryStore::new())).max_items(3);
    let refused = |body: &str| {
        bulk.read(&whole(), &Bytes::from(body.to_owned())).map(|_| ()).expect_err("it is refused").to_string()
    };
    let item = |id: &str| format!(r#"{{"clientItemId": {id}}}"#);
    let items = |ids: &[&str]| {
        let items: Vec<String> = ids.iter().map(|id| item(id)).collect();
        format!(r#"{{"items": [{}]}}"#, items.join(","))
    };
    assert!(bulk.read(&whole(), &items(&[r#""a""#, r#""b""#, r#""c""#]).into()).is_ok());
    assert!(refused("[1]").contains("a list of `items`"));
    assert!(refused("{").contains("a list of `items`"));
    assert_eq!(refused(r#"{"items": []}"#), "there are no items");
    let four = items(&[r#""a""#, r#""b""#, r#""c""#, r#""d""#]);
    assert_eq!(refused(&four), "there are 4 items, and at most 3 are taken in one request");
    assert!(
        refused(&items(&[r#""a""#, r#""b""#, r#""a""#]))
            .starts_with("item 2: its clientItemId \"a\" is that")
    );
    let long = format!("\"{}\"", "x".repeat(129));
    for wrong in ["7", "null", r#""""#, r#""a b""#, r#""ä""#, &long, r#""a", "clientItemId": "b""#] {
        assert!(refused(&items(&[r#""ok""#, wrong])).starts_with("item 1: its clientItemId must"), "{wrong}");
    }
    let twice = BulkError::Twice { position: 2, name: "a".into() }.into_response::<Bytes>();
    assert_eq!(twice.status(), StatusCode::UNPROCESSABLE_ENTITY);
    let problem: Value = serde_json::from_slice(twice.body()).expect("it is JSON");
    assert_eq!(problem["code"], "INVALID_BULK_REQUEST");
}

async fn each_item_is_carried_out_once_however_often_the_request_is_sent(lab: impl Lab) {
    let body = request(&[("one", "pay"), ("two", "declined"), ("three", "pay")]);
    let first = send(&lab, &body, None).await;
    let expected = [
        ("one", ItemOutcome::Succeeded, false),
        ("two", ItemOutcome::Failed, false),
        ("three", ItemOutcome::Succeeded, false),
    ];
    assert_eq!(outcomes(&first), expected);
    assert_eq!((first.items[0].status, first.items[1].status), (Some(201), Some(402)));
    assert!(first.is_complete());
    for _ in 0..3 {
        let again = send(&lab, &body, None).await;
        assert_eq!(outcomes(&again), expected);
        assert_eq!(again.items[0].operation_id, first.items[0].operation_id);
    }
    assert_eq!(lab.counts().await.0, 2, "a payment for each that succeeded");
    let other = Whole { record_id: RecordId::from_bytes([8; 32]), ..whole() };
    let bulk = bulk(lab.store().await);
    let (own, foreign) = (bulk.read(&whole(), &body), bulk.read(&other, &body));
    let id = |items: Result<Vec<BulkItem>, _>| items.expect("it can be read")[0].command.scope.record_id();
    let anew = Whole { operation_id: OperationId::from_bytes([9; 16]), ..whole() };
    let forgotten = bulk.read(&anew, &body);
    let own = id(own);
    assert_ne!(own, id(foreign), "items of another request are others");
    assert_eq!(own, id(forgotten), "those of one that was forgotten meanwhile are not");
}

async fn a_resent_request_runs_only_its_unexecuted_items_again(lab: impl Lab) {
    let body = request(&[("one", "pay"), ("two", "busy"), ("three", "panic"), ("four", "later")]);
    let first = send(&lab, &body, None).await;
    let told = [
        ("one", ItemOutcome::Succeeded, false),
        ("two", ItemOutcome::NotExecuted, true),
        ("three", ItemOutcome::NotExecuted, true),
        ("four", ItemOutcome::Accepted, true),
    ];
    assert_eq!(outcomes(&first), told);
    assert!(!first.is_complete());
    let second = send(&lab, &body, Some("pay")).await;
    let outcomes: Vec<_> = second.items.iter().map(|item| item.outcome).collect();
    let done = ItemOutcome::Succeeded;
    assert_eq!(outcomes, [done, done, done, ItemOutcome::InProgress], "its message settles the last");
    assert_eq!(lab.counts().await.0, 4, "each once");
}

async fn items_are_shown_with_their_request(lab: impl Lab) {
    send(&lab, &request(&[("one", "pay"), ("two", "busy")]), None).await;
    let shown = lab.store().await.progress(whole().operation_id).await.expect("it can be read");
    let states: Vec<_> = shown
        .iter()
        .map(|step| match &step.what {
            StepKind::Item { state, status, .. } => (step.name.as_str(), *state, *status),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(states, [("one", Some(StateName::Succeeded), Some(201)), ("two", None, None)]);
}

async fn no_more_items_run_at_a_time_than_allowed(lab: impl Lab) {
    let names: Vec<String> = (0..20).map(|number| format!("item-{number}")).collect();
    let body = request(&names.iter().map(|name| (name.as_str(), "pay")).collect::<Vec<_>>());
    let bulk = bulk(lab.store().await).parallel(3);
    let items = bulk.read(&whole(), &body).expect("it can be read");
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let carry_out = |item: BulkItem| {
        let (lab, running, most) = (lab.clone(), running.clone(), most.clone());
        async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let answered = lab.transact(&item.command, pays()).await;
            running.fetch_sub(1, Ordering::SeqCst);
            answered
        }
    };
    let answer = bulk.carry_out(&whole(), items, carry_out).await.expect("the store is there");
    assert!(answer.items.iter().all(|item| item.outcome == ItemOutcome::Succeeded));
    assert!((1..=3).contains(&most.load(Ordering::SeqCst)), "{most:?}");
}

async fn an_item_with_a_taken_reference_is_a_duplicate(lab: impl Lab) {
    let bulk = bulk(lab.store().await);
    let items = bulk.read(&whole(), &request(&[("one", "pay"), ("two", "pay")])).expect("it can be read");
    let lab_of = lab.clone();
    let carry_out = move |mut item: BulkItem| {
        item.command.business_reference = Some("order 7".into());
        let lab = lab_of.clone();
        async move { lab.transact(&item.command, pays()).await }
    };
    let answer = bulk.parallel(1).carry_out(&whole(), items, carry_out).await.expect("the store is there");
    let outcomes: Vec<_> = answer.items.iter().map(|item| (item.outcome, item.retryable)).collect();
    assert_eq!(outcomes, [(ItemOutcome::Succeeded, false), (ItemOutcome::Duplicate, false)]);
    assert_eq!(lab.counts().await.0, 1);
}

/// Handler behind the layer: the request is an ordinary command.
async fn handle<L: Lab>(
    State((lab, fails)): State<(L, Arc<AtomicUsize>)>,
    axum::Extension(execution): axum::Extension<Execution>,
    body: Bytes,
) -> Response {
    let whole = Whole {
        record_id: execution.record_id(),
        operation_id: execution.operation_id(),
        principal: execution.principal().clone(),
    };
    let bulk = bulk(lab.store().await);
    let items = match bulk.read(&whole, &body) {
        Ok(items) => items,
        Err(error) => return error.into_response::<Body>(),
    };
    let carry_out = |item: BulkItem| {
        let (lab, fails) = (lab.clone(), fails.clone());
        async move {
            let unlucky = fails.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            let end = if unlucky.is_ok() { End::Retryable(503) } else { End::Created };
            lab.transact(&item.command, pays().ending(end)).await
        }
    };
    match bulk.carry_out(&whole, items, carry_out).await {
        Ok(answer) => answer.into_response::<Body>(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// Starts a service in which this number of items fail temporarily, with one business reference for each request.
async fn service(lab: &impl Lab, fails: usize) -> std::net::SocketAddr {
    let identify =
        |_: &http::request::Parts| Principal::new("acme", "alice").map_err(|_| Denied::unauthenticated());
    let policy = Policy { on_lease_expired: OnLeaseExpired::Rerun, ..Policy::default() };
    let layer = IdempotencyLayer::builder(lab.store().await)
        .identify(identify)
        .defaults(policy)
        .operation(Operation::new("payments.batch", "POST /payments").business_reference("/order"))
        .build()
        .expect("the layer is valid");
    let app = Router::new()
        .route("/payments", post(handle))
        .with_state((lab.clone(), Arc::new(AtomicUsize::new(fails))))
        .layer(layer);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Returns a request for an order.
fn ordered(items: &[(&str, &str)]) -> String {
    let mut body: Value = serde_json::from_slice(&request(items)).expect("it is JSON");
    body["order"] = "order-7".into();
    body.to_string()
}

async fn a_request_that_is_partly_done_keeps_its_reference(lab: impl Lab) {
    let address = service(&lab, 2).await;
    let body = ordered(&[("a", "pay"), ("b", "pay"), ("c", "pay"), ("d", "pay"), ("e", "pay")]);
    assert_eq!(pay(&body).to(address).await.status, StatusCode::MULTI_STATUS);
    assert_eq!(lab.counts().await.0, 3);
    let records = lab.store().await.list(&Filter::default()).await.expect("they can be read").records;
    let whole = records.iter().find(|record| record.operation.as_str() == "payments.batch");
    let head = whole.expect("it is there").head;
    assert_eq!((head.state.name(), head.reason), (StateName::FailedRetryable, Reason::PartlyDone));
    let other =
        pay(&body).set("idempotency-key", "\"7c4a8d09-ca3c-4b5a-9f3e-0242ac120002\"").to(address).await;
    assert_eq!(other.status, StatusCode::CONFLICT, "another key would pay everything again");
    assert_eq!(lab.counts().await.0, 3);
    let second = pay(&body).to(address).await;
    assert_eq!((second.status, second.replayed()), (StatusCode::OK, false));
    assert_eq!(lab.counts().await.0, 5, "the rest, and nothing twice");
}

async fn a_request_that_broke_off_after_an_item_keeps_its_reference(lab: impl Lab) {
    let store = lab.store().await;
    let policy = Policy { on_lease_expired: OnLeaseExpired::Unknown, ..Policy::default() };
    let batch = |key: &str| {
        let scope = command(key).scope.under(OperationName::new("payments.batch").expect("it is a name"));
        referring(Command { scope, policy: Arc::new(policy.clone()), ..command(key) }, "order-7")
    };
    let claim =
        |key: &str| batch(key).claim(RandomIds.operation_id(SystemClock.now()), RandomIds.attempt_token());
    let claimed = store.claim(&claim("k")).await.expect("it is decided").record.expect("it is acquired");
    let whole = Whole {
        record_id: claimed.id,
        operation_id: claimed.operation_id,
        principal: claimed.principal.clone(),
    };
    let bulk = bulk(store.clone());
    let items = bulk.read(&whole, &request(&[("one", "pay")])).expect("it can be read");
    let lab_of = lab.clone();
    let carry_out = move |item: BulkItem| {
        let lab = lab_of.clone();
        async move { lab.transact(&item.command, pays()).await }
    };
    bulk.carry_out(&whole, items, carry_out).await.expect("the store is there");
    // The handler dies, and a search at the provider finds no request as a whole.
    let abandon = Change::abandon(claimed.head.fence(), Reason::Panicked);
    assert_eq!(store.apply(&claimed.id, &abandon).await.expect("it answers").decision, Decision::Applied);
    let verdict = Change::resolve_not_executed(Proof::ProviderTombstone);
    let free = store.apply(&claimed.id, &verdict).await.expect("it answers");
    assert_eq!(free.decision, Decision::Applied, "the same key does the rest");
    let other = store.claim(&claim("other")).await.expect("it is decided");
    assert_eq!(other.decision, Decision::Duplicate);
    assert_eq!(store.claim(&claim("k")).await.expect("it is decided").decision, Decision::Execute);
}

async fn a_request_is_answered_in_parts_until_nothing_is_left(lab: impl Lab) {
    let address = service(&lab, 2).await;
    let body = request(&[("a", "pay"), ("b", "pay"), ("c", "pay"), ("d", "pay"), ("e", "pay")]);
    let body = std::str::from_utf8(&body).expect("it is text");
    let first = pay(body).to(address).await;
    assert_eq!(first.status, StatusCode::MULTI_STATUS);
    assert_eq!(lab.counts().await.0, 3);
    let second = pay(body).to(address).await;
    assert_eq!((second.status, second.replayed()), (StatusCode::OK, false));
    assert_eq!(lab.counts().await.0, 5, "the rest, and nothing twice");
    let third = pay(body).to(address).await;
    assert_eq!((third.status, third.replayed()), (StatusCode::OK, true));
    assert_eq!(third.body, second.body);
    assert_eq!(lab.counts().await.0, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_carries_out_a_bulk_request() {
    let (Ok(place), Ok(_)) = (std::env::var(PLACE), std::env::var(TASK)) else { return };
    say("\nready");
    let bulk = bulk(Kept::at(&place).await.store()).parallel(1);
    let items = bulk.read(&whole(), &five()).expect("it can be read");
    let work = |item: &BulkItem| match item.client_item_id.as_str() {
        "c" => pays().then(Step::Call(stand)),
        _ => pays(),
    };
    if place.starts_with("postgres://") {
        let transactions = PostgresTransactions::new(pool(&place, 2).await);
        let carry_out = |item: BulkItem| {
            let (transactions, work) = (transactions.clone(), work(&item));
            async move { on_postgres(&transactions, &item.command, work).await }
        };
        let _ = bulk.carry_out(&whole(), items, carry_out).await;
    } else {
        let transactions = SqliteTransactions::open(&place).expect("the file opens");
        let carry_out = |item: BulkItem| {
            let (transactions, work) = (transactions.clone(), work(&item));
            async move { on_sqlite(&transactions, &item.command, work).await }
        };
        let _ = bulk.carry_out(&whole(), items, carry_out).await;
    }
}

fn five() -> Bytes {
    request(&[("a", "pay"), ("b", "pay"), ("c", "pay"), ("d", "pay"), ("e", "pay")])
}

async fn killed_in_the_middle(lab: impl Lab) {
    let mut process =
        Process::running("bulk::a_process_that_carries_out_a_bulk_request", &lab.place(), "bulk");
    process.until("here");
    process.kill();
    assert_eq!(lab.counts().await.0, 2, "two were carried out, the third was not");
    let answer = send(&lab, &five(), None).await;
    assert!(answer.is_complete());
    assert_eq!(lab.counts().await.0, 5, "the rest, and nothing twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_killed_in_the_middle_goes_on_with_the_rest() {
    killed_in_the_middle(Postgres::new().await).await;
    killed_in_the_middle(Sqlite::new()).await;
}
