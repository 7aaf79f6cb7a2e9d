//! End to end over HTTP: axum, the layer, the extractor and the transaction together.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{HeaderMap, StatusCode};
use semel_core::policy::{Profile, StoreResponse};
use semel_core::quota::{Allowance, Limits, Rate};
use semel_core::{Command, FingerprintInput, KeyRules, Policy, Principal, Scope};
use semel_http::{CurrentExecution, Denied, IdempotencyLayer, Idempotent, Operation};
use semel_stores::MemoryStore;
use semel_testkit::client::{KEY, Reply, pay, problem, stripe_error};
use tokio::io::AsyncWriteExt;

use crate::lab::{End, Gate, Lab, Step, both, pays, pool};

both!(
    a_payment_is_answered_replayed_and_found,
    another_body_no_key_and_a_taken_reference_are_refused,
    a_duplicate_of_a_running_payment_gets_409,
    a_settled_payment_is_replayed_while_writes_are_blocked,
    a_declined_payment_is_replayed,
    a_payment_that_failed_for_now_may_be_sent_again,
    a_rolled_back_payment_gets_the_error_of_its_operations_profile,
    a_handler_may_refuse_before_it_begins,
    a_handler_that_promised_a_transaction_must_make_one,
    a_handler_that_panics_is_answered_with_500,
    a_replay_needs_no_database,
    a_payment_commits_although_its_client_disconnects,
    a_route_that_is_not_declared_local_is_not_run,
    a_command_made_by_hand_is_not_run_where_its_route_is_not_local,
    an_execution_is_extracted_where_there_is_one,
    a_large_answer_is_given_once,
    a_rolled_back_payment_uses_no_quota,
    a_response_stored_by_its_address_is_fetched_for_a_retry,
);

/// A service on a free port.
struct Service<L> {
    lab: L,
    address: SocketAddr,
    layer: IdempotencyLayer,
    gate: Gate,
}

impl<L: Lab> Service<L> {
    async fn start(lab: L) -> Service<L> {
        Service::with(lab, |_| {}, Limits::default()).await
    }

    async fn limited(lab: L, limits: Limits) -> Service<L> {
        Service::with(lab, |_| {}, limits).await
    }

    async fn storing(lab: L, stored: StoreResponse) -> Service<L> {
        Service::with(lab, |policy| policy.store_response = stored, Limits::default()).await
    }

    async fn with(lab: L, change: impl FnOnce(&mut Policy), limits: Limits) -> Service<L> {
        let mut policy = Policy { max_stored_response: 1000, ..Policy::default() };
        change(&mut policy);
        let identify = |parts: &http::request::Parts| {
            let user = parts.headers.get("x-user").and_then(|value| value.to_str().ok());
            Principal::new("acme", user.unwrap_or_default()).map_err(|_| Denied::unauthenticated())
        };
        let operation = Operation::new("payments.create", "POST /payments").local();
        let gate = Gate::new();
        let app = Router::new()
            .route("/payments", post(handle::<L>))
            .route("/payments/{id}", get(show::<L>))
            .route("/undeclared", post(handle::<L>))
            .route("/not-local", post(handle::<L>))
            .route("/by-hand", post(transact_by_hand::<L>))
            .route("/execution", post(show_key).get(show_key))
            .route("/maybe", post(show_attempt).get(show_attempt))
            .route("/local-execution", post(show_key))
            .with_state((lab.clone(), gate.clone()));
        let layer = IdempotencyLayer::builder(lab.store().await)
            .identify(identify)
            .defaults(policy)
            .operation(operation.business_reference("/order"))
            .operation(Operation::new("refunds.create", "POST /not-local"))
            .operation(Operation::new("executions.local", "POST /local-execution").local())
            .results_from(app.clone())
            .usage(Arc::new(MemoryStore::new()))
            .limits(limits)
            .build()
            .expect("the layer is valid");
        let app = app.layer(layer.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        tokio::spawn(async move { axum::serve(listener, app).await });
        Service { lab, address, layer, gate }
    }

    async fn pay(&self, what: &str) -> Reply {
        pay(r#"{"amount":5}"#).doing(what).to(self.address).await
    }
}

/// Returns a payment, and the number of payments.
async fn show<L: Lab>(State((lab, _)): State<(L, Gate)>, Path(id): Path<String>) -> String {
    format!("payment {id} of {}", lab.counts().await.0)
}

/// Returns the key of a step.
async fn show_key(CurrentExecution(execution): CurrentExecution) -> String {
    execution.downstream_key("charge")
}

/// Returns the attempt, if there is one.
async fn show_attempt(execution: Option<CurrentExecution>) -> String {
    execution.map_or_else(|| "none".to_owned(), |CurrentExecution(own)| format!("attempt {}", own.attempt()))
}

/// Transacts a command that the handler has built itself.
async fn transact_by_hand<L: Lab>(
    State((lab, _)): State<(L, Gate)>,
    CurrentExecution(execution): CurrentExecution,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let lines = headers.get_all("idempotency-key").iter().map(|value| value.as_bytes());
    let key = KeyRules::default().parse(lines).expect("it is a key").expect("there is one");
    let scope = Scope::new(execution.principal().clone(), execution.operation().clone(), key);
    assert_eq!(scope.record_id(), execution.record_id());
    let input = FingerprintInput {
        method: "POST",
        path: "/by-hand",
        query: None,
        content_type: headers.get("content-type").map(|value| value.as_bytes()),
        content_encoding: None,
        body: &body,
        exclude: &[],
    };
    let command = Command {
        scope,
        fingerprint: input.fingerprint(),
        business_reference: None,
        former: Arc::default(),
        policy: Arc::new(Policy::default()),
        trace: None,
    };
    lab.transact(&command, pays()).await.into_response()
}

/// Does what the header `x-do` says.
async fn handle<L: Lab>(
    State((lab, gate)): State<(L, Gate)>,
    Idempotent(command): Idempotent,
    headers: HeaderMap,
) -> Response {
    let what = headers.get("x-do").and_then(|value| value.to_str().ok()).unwrap_or_default();
    match what {
        "refuse" => return (StatusCode::UNPROCESSABLE_ENTITY, "no such account").into_response(),
        "lie" => return (StatusCode::CREATED, "paid").into_response(),
        "panic" => panic!("a handler that panics"),
        "wait outside" => gate.pass().await,
        _ => {}
    }
    let work = match what {
        "declined" => pays().ending(End::Final(402)),
        "busy" => pays().ending(End::Retryable(503)),
        "panic inside" => pays().ending(End::Panic),
        "wait" => pays().then(Step::Wait(gate)),
        "large" => pays().ending(End::Large(2000)),
        _ => pays(),
    };
    lab.transact(&command, work).await.into_response()
}

async fn a_payment_is_answered_replayed_and_found(lab: impl Lab) {
    let service = Service::start(lab).await;
    let first = service.pay("").await;
    assert_eq!((first.status.as_u16(), first.replayed()), (201, false), "{first:?}");
    let id = first.operation_id().expect("it has an id").to_owned();
    assert_eq!(first.body, format!("answer of {id}"));
    assert_eq!(first.header("location"), Some("/payments/7"));
    let expires = first.header("idempotency-expires").expect("it expires").to_owned();

    let retry = service.pay("").await;
    assert!(retry.replayed());
    assert_eq!((retry.status, &retry.body), (first.status, &first.body));
    assert_eq!(retry.header("idempotency-operation-id"), Some(&*id));
    assert_eq!(retry.header("idempotency-expires"), Some(&*expires));
    assert_eq!(retry.header("location"), Some("/payments/7"));
    assert_eq!(service.lab.counts().await, (1, 1, 1));

    let look = pay("").method("GET").without("idempotency-key");
    let found = look.target(format!("/.well-known/semel/operations/{id}")).to(service.address).await;
    assert_eq!(
        (found.json()["state"].as_str(), found.json()["operation"].as_str()),
        (Some("succeeded"), Some("payments.create"))
    );
}

async fn a_rolled_back_payment_uses_no_quota(lab: impl Lab) {
    let new_keys = Rate::new(2, Duration::from_secs(24 * 3600));
    let caller = Allowance { new_keys, ..Allowance::default() };
    let service = Service::limited(lab, Limits { caller, ..Limits::default() }).await;
    let numbered =
        |number: usize| pay(r#"{"amount":5}"#).set("idempotency-key", format!("a-limited-payment-{number}"));
    for number in 0..5 {
        let busy = numbered(number).doing("busy").to(service.address).await;
        assert_eq!(busy.status, 503);
    }
    for number in 0..2 {
        assert_eq!(numbered(number).to(service.address).await.status, 201);
    }
    let refused = numbered(2).to(service.address).await;
    assert_eq!(refused.problem(), problem(429, "IDEMPOTENCY_KEY_QUOTA_EXCEEDED"));
    assert!(numbered(0).to(service.address).await.replayed());
    assert_eq!(service.lab.counts().await, (2, 2, 2));
}

async fn another_body_no_key_and_a_taken_reference_are_refused(lab: impl Lab) {
    let service = Service::start(lab).await;
    let order = pay(r#"{"amount":5,"order":"A-7"}"#);
    let first = order.clone().to(service.address).await;
    assert_eq!(first.status, 201);
    let other = order.clone().body(r#"{"amount":6,"order":"A-7"}"#).to(service.address).await;
    assert_eq!(other.problem(), problem(422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST"));
    let keyless = order.clone().without("idempotency-key").to(service.address).await;
    assert_eq!(keyless.problem(), problem(400, "MISSING_IDEMPOTENCY_KEY"));
    let nobody = order.clone().without("x-user").to(service.address).await;
    assert_eq!(nobody.problem(), problem(401, "UNAUTHENTICATED"));
    let new_key = KEY.replace("0001", "0002");
    let again = order.set("idempotency-key", new_key).to(service.address).await;
    assert_eq!(again.problem(), problem(409, "DUPLICATE_BUSINESS_REFERENCE"));
    assert_eq!(again.json()["operationId"].as_str(), first.header("idempotency-operation-id"));
    assert_eq!(service.lab.counts().await, (1, 1, 1));
}

async fn a_duplicate_of_a_running_payment_gets_409(lab: impl Lab) {
    let service = Service::start(lab).await;
    let address = service.address;
    let first = tokio::spawn(async move { pay(r#"{"amount":5}"#).doing("wait").to(address).await });
    service.gate.begun().await;
    let second = service.pay("").await;
    assert_eq!(second.problem(), problem(409, "IDEMPOTENCY_REQUEST_IN_PROGRESS"));
    assert_eq!(second.header("retry-after"), Some("1"));
    service.gate.open();
    assert_eq!(first.await.expect("it is answered").status, 201);
    assert!(service.pay("").await.replayed());
    assert_eq!(service.lab.counts().await, (1, 1, 1));
}

/// Blocks all writes of records until it is dropped. Reads still succeed.
enum Blocked {
    File(rusqlite::Connection),
    Server(sqlx::Transaction<'static, sqlx::Postgres>),
}

impl Blocked {
    async fn at(place: &str) -> Blocked {
        if place.starts_with("postgres://") {
            let mut held = pool(place, 1).await.begin().await.expect("the server takes it");
            let lock = sqlx::raw_sql("LOCK TABLE semel_records IN EXCLUSIVE MODE").execute(&mut *held).await;
            lock.expect("nobody writes for long");
            return Blocked::Server(held);
        }
        let file = rusqlite::Connection::open(place).expect("the file opens");
        file.busy_timeout(Duration::from_secs(20)).expect("it can wait");
        file.execute_batch("BEGIN IMMEDIATE").expect("nobody writes for long");
        Blocked::File(file)
    }

    async fn release(self) {
        match self {
            Blocked::File(file) => file.execute_batch("ROLLBACK").expect("it gives the file back"),
            Blocked::Server(held) => held.rollback().await.expect("it gives the table back"),
        }
    }
}

async fn a_settled_payment_is_replayed_while_writes_are_blocked(lab: impl Lab) {
    let first = Service::start(lab).await;
    assert_eq!(first.pay("").await.status, 201);
    // Another process has an empty memory. One of its duplicates gets its turn, and the other one times out in the
    // queue.
    let second = Service::start(first.lab.second().await).await;
    let blocked = Blocked::at(&first.lab.place()).await;
    let send = || tokio::spawn(pay(r#"{"amount":5}"#).to(second.address));
    let (mut one, mut two) = (send(), send());
    let (sooner, other) = tokio::select! {
        reply = &mut one => (reply, two),
        reply = &mut two => (reply, one),
    };
    let sooner = sooner.expect("it is answered");
    assert!(sooner.replayed(), "{sooner:?}");
    blocked.release().await;
    let later = other.await.expect("it is answered");
    assert!(later.replayed(), "{later:?}");
    assert_eq!(first.lab.counts().await, (1, 1, 1));
}

async fn a_declined_payment_is_replayed(lab: impl Lab) {
    let service = Service::start(lab).await;
    let first = service.pay("declined").await;
    assert_eq!((first.status.as_u16(), first.replayed()), (402, false));
    let retry = service.pay("").await;
    assert_eq!((retry.status.as_u16(), retry.replayed(), &retry.body), (402, true, &first.body));
    assert_eq!(service.lab.counts().await, (0, 0, 1));
}

async fn a_payment_that_failed_for_now_may_be_sent_again(lab: impl Lab) {
    let service = Service::start(lab).await;
    let first = service.pay("busy").await;
    assert_eq!((first.status.as_u16(), first.replayed()), (503, false));
    assert_eq!(first.header("idempotency-operation-id"), None, "there is no such operation");
    let panicked = service.pay("panic inside").await;
    assert_eq!(
        panicked.problem(),
        problem(500, "COMMAND_ROLLED_BACK"),
        "the client learns that nothing happened"
    );
    for failed in [&first, &panicked] {
        assert_eq!(failed.header("idempotency-retry"), Some("same-key"));
    }
    let retry = service.pay("").await;
    assert_eq!((retry.status.as_u16(), retry.replayed()), (201, false));
    assert_eq!(service.lab.counts().await, (1, 1, 1));
}

async fn a_rolled_back_payment_gets_the_error_of_its_operations_profile(lab: impl Lab) {
    let service = Service::with(lab, |policy| policy.follow(Profile::Stripe), Limits::default()).await;
    let panicked = service.pay("panic inside").await;
    let expected = stripe_error(500, "api_error", "command_rolled_back", Some("true"));
    assert_eq!(panicked.stripe_error(), expected);
    assert_eq!(service.pay("").await.status, 201);
    assert_eq!(service.pay("").await.header("idempotent-replayed"), Some("true"));
}

async fn a_handler_may_refuse_before_it_begins(lab: impl Lab) {
    let service = Service::start(lab).await;
    let refused = service.pay("refuse").await;
    assert_eq!((refused.status.as_u16(), &refused.body[..]), (422, &b"no such account"[..]));
    assert_eq!(service.lab.counts().await, (0, 0, 0), "nothing is kept of it");
    assert_eq!(service.pay("").await.status, 201);
}

async fn a_handler_that_promised_a_transaction_must_make_one(lab: impl Lab) {
    let log = logged();
    let service = Service::start(lab).await;
    let lied = service.pay("lie").await;
    assert_eq!(lied.problem(), problem(500, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    let log = String::from_utf8(log.lock().expect("nobody panics").clone()).expect("it is text");
    let said = log.lines().find(|line| line.contains("without the transaction it promised"));
    let said = said.expect("somebody is told");
    assert!(said.contains("ERROR") && said.contains("payments.create"), "{said}");
    assert!(!log.contains(KEY), "keys are not logged");
}

async fn a_handler_that_panics_is_answered_with_500(lab: impl Lab) {
    let service = Service::start(lab).await;
    let panicked = service.pay("panic").await;
    assert_eq!(panicked.problem(), problem(500, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    assert_eq!(service.pay("").await.status, 201);
}

async fn a_replay_needs_no_database(lab: impl Lab) {
    let service = Service::start(lab).await;
    let first = service.pay("").await;
    service.lab.run("DROP TABLE semel_records").await;
    let retry = service.pay("").await;
    assert!(retry.replayed() && retry.body == first.body, "{retry:?}");
    let new_key = KEY.replace("0001", "0002");
    let new = pay(r#"{"amount":5}"#).set("idempotency-key", new_key).to(service.address).await;
    assert_eq!(new.problem(), problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE"));
    assert_eq!(service.lab.number("SELECT count(*) FROM payments").await, 1);
}

async fn a_payment_commits_although_its_client_disconnects(lab: impl Lab) {
    let service = Service::start(lab).await;
    let mut stream = tokio::net::TcpStream::connect(service.address).await.expect("it listens");
    let request = pay(r#"{"amount":5}"#).doing("wait outside").into_bytes();
    stream.write_all(&request).await.expect("it is sent");
    service.gate.begun().await;
    drop(stream);
    let ending = {
        let layer = service.layer.clone();
        tokio::spawn(async move { layer.shutdown(Duration::from_secs(30)).await })
    };
    service.gate.open();
    assert!(ending.await.expect("it ends").drained, "a shutdown waits for it");
    assert_eq!(service.lab.counts().await, (1, 1, 1));
    assert!(service.pay("").await.replayed(), "and its answer is in memory");
}

async fn a_route_that_is_not_declared_local_is_not_run(lab: impl Lab) {
    let service = Service::start(lab).await;
    for (target, operation) in [("/undeclared", "POST /undeclared"), ("/not-local", "refunds.create")] {
        let send = async || pay(r#"{"amount":5}"#).target(target).to(service.address).await;
        for attempt in 1..=2 {
            let answer = send().await;
            assert_eq!(answer.problem(), problem(500, "COMMAND_ROLLED_BACK"), "attempt {attempt}");
            let detail = answer.json()["detail"].as_str().unwrap_or_default().to_owned();
            assert!(detail.contains(operation) && detail.contains("is not declared local"), "{detail}");
        }
    }
    assert_eq!(service.lab.number("SELECT count(*) FROM payments").await, 0);
    let unknown = "SELECT count(*) FROM semel_records WHERE state = 'unknown'";
    assert_eq!(service.lab.number(unknown).await, 0, "the claims are released");
    let released = "SELECT count(*) FROM semel_records WHERE state = 'failed_retryable'";
    assert_eq!(service.lab.number(released).await, 2);
}

async fn a_command_made_by_hand_is_not_run_where_its_route_is_not_local(lab: impl Lab) {
    let service = Service::start(lab).await;
    let answer = pay(r#"{"amount":5}"#).target("/by-hand").to(service.address).await;
    assert_eq!(answer.problem(), problem(500, "COMMAND_ROLLED_BACK"));
    let detail = answer.json()["detail"].as_str().unwrap_or_default().to_owned();
    assert!(detail.contains("\"POST /by-hand\" is not declared local"), "{detail}");
    assert_eq!(service.lab.number("SELECT count(*) FROM payments").await, 0);
    let unknown = "SELECT count(*) FROM semel_records WHERE state = 'unknown'";
    assert_eq!(service.lab.number(unknown).await, 0, "the claim is released");
}

async fn an_execution_is_extracted_where_there_is_one(lab: impl Lab) {
    let service = Service::start(lab).await;
    let first = pay("{}").target("/execution").to(service.address).await;
    let id = first.operation_id().expect("it has an id");
    assert_eq!((first.status.as_u16(), &*first.body), (200, format!("{id}:charge").as_bytes()));

    let look = |target: &str| pay("").method("GET").target(target.to_owned()).without("idempotency-key");
    let answer = look("/execution").to(service.address).await;
    assert_eq!(answer.problem(), problem(500, "COMMAND_ROLLED_BACK"));
    assert!(answer.json()["detail"].as_str().unwrap_or_default().contains("no layer executes the request"));
    assert_eq!(look("/maybe").to(service.address).await.body, "none");
    assert_eq!(pay("{}").target("/maybe").to(service.address).await.body, "attempt 1");

    let local = pay("{}").target("/local-execution").to(service.address).await;
    assert_eq!(local.problem(), problem(500, "COMMAND_ROLLED_BACK"));
    let detail = local.json()["detail"].as_str().unwrap_or_default().to_owned();
    assert!(detail.contains("\"executions.local\" is declared local"), "{detail}");
}

async fn a_large_answer_is_given_once(lab: impl Lab) {
    let service = Service::start(lab).await;
    let first = service.pay("large").await;
    assert_eq!((first.status.as_u16(), first.body.len()), (201, 2000));
    let retry = service.pay("large").await;
    let code = retry.json()["code"].as_str().map(str::to_owned);
    assert_eq!((retry.status.as_u16(), code.as_deref()), (201, Some("IDEMPOTENCY_RESPONSE_NOT_RETAINED")));
    assert_eq!(service.lab.counts().await, (1, 1, 1));
}

async fn a_response_stored_by_its_address_is_fetched_for_a_retry(lab: impl Lab) {
    let service = Service::storing(lab, StoreResponse::Reference).await;
    let first = service.pay("").await;
    assert!(first.body.starts_with(b"answer of "), "{first:?}");
    let retry = service.pay("").await;
    assert_eq!(
        (retry.status.as_u16(), retry.replayed(), &retry.body[..]),
        (201, true, &b"payment 7 of 1"[..])
    );
    assert_eq!(retry.header("content-location"), Some("/payments/7"));
    assert_eq!(service.lab.counts().await, (1, 1, 1));
}

/// Captures everything that this process logs from now on.
fn logged() -> Arc<Mutex<Vec<u8>>> {
    static LOG: OnceLock<Arc<Mutex<Vec<u8>>>> = OnceLock::new();
    let log = LOG.get_or_init(|| {
        let log = Arc::new(Mutex::new(Vec::new()));
        let writing = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false);
        subscriber.with_writer(move || Log(writing.clone())).init();
        log
    });
    log.clone()
}

struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
