//! Stored parts of a response, and the answers to retries if only a part is stored.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use http::HeaderMap;
use semel_core::policy::{Mode, Profile, StoreResponse};
use semel_core::{Filter, Policy, Record, Records};
use semel_http::{Builder, IdempotencyLayer, Operation, Refetch, WorkerOptions};
use semel_stores::MemoryStore;
use tokio::sync::Semaphore;

use crate::lab::{Reply, Send, identify, pay, problem, serve};

const CANARY: &str = "canary-of-the-body";

/// Current answer to a request for a payment.
#[derive(Clone, Copy, PartialEq)]
enum Show {
    /// The payment as it was made.
    New,
    /// A changed payment.
    Changed,
    /// An answer with this status.
    Status(u16),
    /// More bytes than are stored.
    Large,
    /// No answer.
    Hangs,
    /// A panic of the handler.
    Panics,
    /// A stream of events.
    Events,
}

/// Service with payments that have an address each.
struct Bank {
    paid: AtomicUsize,
    shown: AtomicUsize,
    show: Mutex<Show>,
    asked: Mutex<Vec<(HeaderMap, Option<Refetch>)>>,
    gate: Semaphore,
}

impl Bank {
    fn show(&self, show: Show) {
        *self.show.lock().expect("nobody panics with it") = show;
    }

    fn paid(&self) -> usize {
        self.paid.load(Ordering::SeqCst)
    }

    fn shown(&self) -> usize {
        self.shown.load(Ordering::SeqCst)
    }

    fn asked(&self) -> (HeaderMap, Option<Refetch>) {
        self.asked.lock().expect("nobody panics with it").pop().expect("it was asked")
    }
}

/// Makes a payment, at the address in `x-location`, or else at its own.
async fn make(State(bank): State<Arc<Bank>>, headers: HeaderMap) -> Response {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let what = header("x-do").unwrap_or("");
    if what.contains("gate") {
        bank.gate.acquire().await.expect("it is never closed").forget();
    }
    let number = bank.paid.fetch_add(1, Ordering::SeqCst) + 1;
    let mut response = Response::builder()
        .status(what.split("status-").nth(1).unwrap_or("201"))
        .header("content-type", "application/json")
        .header("etag", "\"made\"")
        .header("content-digest", "sha-256=:bWFkZQ==:")
        .header("cache-control", "max-age=60")
        .header("link", "</terms>; rel=\"terms\"")
        .header("set-cookie", "session=canary")
        .header("x-auth-token", "canary")
        .header("x-cost", "7");
    match header("x-location").unwrap_or("own") {
        "none" => {}
        "content" => response = response.header("content-location", format!("/payments/{number}")),
        "own" => response = response.header("location", format!("/payments/{number}")),
        other => response = response.header("location", other),
    }
    let body = if what.contains("empty") { String::new() } else { format!("{{\"made\":\"{CANARY}\"}}") };
    response.body(Body::from(body)).expect("it is valid")
}

/// Shows a payment in its current version.
async fn find(State(bank): State<Arc<Bank>>, request: Request) -> Response {
    bank.shown.fetch_add(1, Ordering::SeqCst);
    let refetch = request.extensions().get().cloned();
    bank.asked.lock().expect("nobody panics with it").push((request.headers().clone(), refetch));
    let show = *bank.show.lock().expect("nobody panics with it");
    let response = Response::builder().header("content-type", "application/json").header("etag", "\"now\"");
    let body = match show {
        Show::New => format!("{{\"made\":\"{CANARY}\"}}"),
        Show::Changed => "{\"now\":\"changed\"}".to_owned(),
        Show::Large => "x".repeat(3000),
        Show::Hangs => std::future::pending().await,
        Show::Panics => panic!("a handler that panics"),
        Show::Events => {
            let events = Response::builder().header("content-type", "text/event-stream");
            return events.body(Body::from("data: 1\n\n")).expect("it is valid");
        }
        Show::Status(status) => {
            let response = response.status(status).header("www-authenticate", "Bearer realm=\"bank\"");
            return response
                .header("location", "/elsewhere")
                .body(Body::from("a secret"))
                .expect("it is valid");
        }
    };
    let response =
        response.header("set-cookie", "session=canary").header("x-content-type-options", "nosniff");
    response.body(Body::from(body)).expect("it is valid")
}

/// Bank behind a layer that stores only the parts that a test configures.
struct Lab {
    bank: Arc<Bank>,
    store: Arc<MemoryStore>,
    address: SocketAddr,
    layer: IdempotencyLayer,
    app: Router,
}

impl Lab {
    async fn new(stored: StoreResponse) -> Lab {
        Lab::with(stored, |_| {}, |builder| builder).await
    }

    async fn with(
        stored: StoreResponse,
        change: impl FnOnce(&mut Policy),
        build: impl FnOnce(Builder) -> Builder,
    ) -> Lab {
        let bank = Arc::new(Bank {
            paid: AtomicUsize::new(0),
            shown: AtomicUsize::new(0),
            show: Mutex::new(Show::New),
            asked: Mutex::default(),
            gate: Semaphore::new(0),
        });
        let app = Router::new()
            .route("/payments", post(make))
            .route("/payments/{id}", get(find))
            .with_state(bank.clone());
        let store = Arc::new(MemoryStore::new());
        let mut policy = Policy { store_response: stored, max_stored_response: 2000, ..Policy::default() };
        policy.wait = Duration::from_secs(5);
        change(&mut policy);
        let builder = IdempotencyLayer::builder(store.clone()).identify(identify).defaults(policy);
        let layer = build(builder.results_from(app.clone())).build().expect("the layer is valid");
        let address = serve(app.clone().layer(layer.clone())).await;
        Lab { bank, store, address, layer, app }
    }

    async fn send(&self, request: Send) -> Reply {
        request.to(self.address).await
    }

    /// Starts a second service on the same store with another policy.
    async fn beside(&self, policy: Policy) -> SocketAddr {
        let builder = IdempotencyLayer::builder(self.store.clone()).identify(identify).defaults(policy);
        let layer = builder.results_from(self.app.clone()).build().expect("the layer is valid");
        serve(self.app.clone().layer(layer)).await
    }

    async fn record(&self) -> Record {
        let records = self.store.list(&Filter::default()).await.expect("the store lists").records;
        let [record] = &records[..] else { panic!("there is one record: {records:?}") };
        record.clone()
    }

    /// Returns true if the only record contains a text that must not be stored.
    async fn stores_canaries(&self) -> bool {
        let result = self.record().await.result.expect("it is settled");
        result.response.bytes.windows(6).any(|window| window == b"canary")
    }
}

fn from(address: &str) -> Send {
    pay("{}").with("x-location", address)
}

fn result_of(reply: &Reply) -> Send {
    let id = reply.operation_id().expect("it is named");
    pay("")
        .method("GET")
        .target(format!("/.well-known/semel/operations/{id}/result"))
        .without("idempotency-key")
}

fn not_retained(status: u16) -> (u16, String) {
    problem(status, "IDEMPOTENCY_RESPONSE_NOT_RETAINED")
}

#[tokio::test]
async fn credentials_of_a_response_are_not_stored() {
    let lab = Lab::new(StoreResponse::Full).await;
    let first = lab.send(pay("{}")).await;
    assert!(first.header("set-cookie").is_some() && first.header("x-auth-token").is_some());
    let again = lab.send(pay("{}")).await;
    assert!(again.replayed() && again.body == first.body);
    assert!(again.header("set-cookie").is_none() && again.header("x-auth-token").is_none());
    let stored = lab.record().await.result.expect("it is settled").response.bytes;
    let text = String::from_utf8_lossy(&stored).into_owned();
    assert!(
        text.contains(CANARY) && !text.contains("session=canary") && !text.contains("x-auth-token"),
        "{text}"
    );
}

#[tokio::test]
async fn retries_get_a_stored_head_and_a_problem_in_place_of_the_body() {
    let lab = Lab::new(StoreResponse::Headers).await;
    let first = lab.send(pay("{}")).await;
    assert_eq!((first.status.as_u16(), first.body.is_empty()), (201, false));
    for _ in 0..2 {
        let again = lab.send(pay("{}")).await;
        assert!(again.replayed());
        assert_eq!(again.problem(), not_retained(201));
        assert_eq!((again.header("location"), again.header("x-cost")), (Some("/payments/1"), Some("7")));
        let links: Vec<_> = again.headers.get_all("link").iter().collect();
        assert_eq!(links.len(), 2, "its own, and the problem's: {links:?}");
        for name in ["etag", "content-digest", "set-cookie", "x-auth-token"] {
            assert_eq!(again.header(name), None, "{name}");
        }
        assert_eq!(again.header("cache-control"), Some("no-store"));
        for name in ["idempotency-operation-id", "idempotency-expires"] {
            assert_eq!(again.header(name), first.header(name), "{name}");
        }
    }
    assert!(!lab.stores_canaries().await);
    assert_eq!((lab.bank.paid(), lab.bank.shown()), (1, 0));
}

#[tokio::test]
async fn a_response_without_a_body_is_stored_whole() {
    for stored in [StoreResponse::Headers, StoreResponse::Reference] {
        let lab = Lab::new(stored).await;
        for (number, what) in ["empty", "empty status-204"].into_iter().enumerate() {
            let request =
                || pay("{}").set("idempotency-key", format!("a-key-of-its-own-{number}")).doing(what);
            let (first, again) = (lab.send(request()).await, lab.send(request()).await);
            assert!(again.replayed());
            assert_eq!((again.status, again.body.len()), (first.status, 0));
            assert_eq!(again.header("etag"), Some("\"made\""));
        }
        assert_eq!((lab.bank.paid(), lab.bank.shown()), (2, 0));
    }
}

#[tokio::test]
async fn a_retry_fetches_the_current_representation_of_a_referenced_result() {
    let lab = Lab::new(StoreResponse::Reference).await;
    let first = lab.send(pay("{}")).await;
    assert!(!lab.stores_canaries().await);
    for (show, body) in [(Show::New, &first.body[..]), (Show::Changed, b"{\"now\":\"changed\"}")] {
        lab.bank.show(show);
        let again = lab.send(pay("{}")).await;
        assert!(again.replayed());
        assert_eq!((again.status.as_u16(), &again.body[..]), (201, body));
        for (name, value) in [
            ("location", "/payments/1"),
            ("content-location", "/payments/1"),
            ("content-type", "application/json"),
            ("etag", "\"now\""),
            ("x-content-type-options", "nosniff"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(again.header(name), Some(value), "{name}");
        }
        for name in ["idempotency-operation-id", "idempotency-expires"] {
            assert_eq!(again.header(name), first.header(name), "{name}");
        }
        assert_eq!(
            (again.header("set-cookie"), again.header("x-cost"), again.header("link")),
            (None, None, None)
        );
    }
    assert_eq!((lab.bank.paid(), lab.bank.shown()), (1, 2));
}

#[tokio::test]
async fn a_fetch_has_the_credentials_of_the_retry() {
    let lab = Lab::new(StoreResponse::Reference).await;
    lab.send(pay("{}").with("authorization", "Bearer first")).await;
    let again = lab.send(pay("{}").with("authorization", "Bearer second").with("cookie", "a=b")).await;
    assert!(again.replayed());
    let (headers, refetch) = lab.bank.asked();
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    assert_eq!((header("authorization"), header("cookie")), (Some("Bearer second"), Some("a=b")));
    assert_eq!(
        (header("idempotency-key"), header("content-type"), header("content-length")),
        (None, None, None)
    );
    let refetch = refetch.expect("it says what it is for");
    assert_eq!(refetch.principal().caller(), "alice");
    assert_eq!(Some(refetch.operation_id().to_string().as_str()), again.header("idempotency-operation-id"));
}

#[tokio::test]
async fn another_caller_has_a_command_of_its_own() {
    let lab = Lab::new(StoreResponse::Reference).await;
    lab.send(pay("{}")).await;
    let other = lab.send(pay("{}").set("x-user", "bob")).await;
    assert!(!other.replayed());
    assert_eq!((lab.bank.paid(), lab.bank.shown()), (2, 0));
    let again = lab.send(pay("{}").set("x-user", "bob")).await;
    assert_eq!((again.replayed(), again.header("location")), (true, Some("/payments/2")));
}

#[tokio::test]
async fn another_request_under_the_key_is_refused_before_anything_is_fetched() {
    let lab = Lab::new(StoreResponse::Reference).await;
    lab.send(pay("{}")).await;
    let other = lab.send(pay("{\"amount\":6}")).await;
    assert_eq!(other.problem(), problem(422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST"));
    assert_eq!((lab.bank.paid(), lab.bank.shown()), (1, 0));
}

#[tokio::test]
async fn a_stored_foreign_or_odd_address_is_returned_and_never_fetched() {
    for address in [
        "http://evil.example/payments/1",
        "//evil.example/payments/1",
        "http://lab@evil.example/payments/1",
        "http://lab:81/payments/1",
        "payments/1",
        "/x/../payments/1",
        "/.well-known/semel/operations/1",
    ] {
        let lab = Lab::new(StoreResponse::Reference).await;
        lab.send(from(address)).await;
        let again = lab.send(from(address)).await;
        assert!(again.replayed());
        assert_eq!(again.problem(), not_retained(201), "{address}");
        assert_eq!(again.header("location"), Some(address));
        assert_eq!((lab.bank.paid(), lab.bank.shown()), (1, 0), "{address}");
    }
}

#[tokio::test]
async fn an_address_of_its_own_is_fetched_in_every_spelling() {
    for address in ["/payments/1", "http://lab/payments/1", "https://LAB:443/payments/1#top", "content"] {
        let lab = Lab::new(StoreResponse::Reference).await;
        let first = lab.send(from(address)).await;
        let again = lab.send(from(address)).await;
        assert_eq!((again.replayed(), &again.body), (true, &first.body), "{address}");
        let given = if address == "content" { "/payments/1" } else { address };
        assert_eq!(again.header("content-location"), Some(given), "{address}");
        assert_eq!(again.header("location"), first.header("location"), "{address}");
    }
    let known = |builder: Builder| builder.origin("bank.internal:3000".parse().expect("it is valid"));
    let lab = Lab::with(StoreResponse::Reference, |_| {}, known).await;
    let address = "http://bank.internal:3000/payments/1";
    let first = lab.send(from(address)).await;
    assert_eq!(lab.send(from(address)).await.body, first.body);
}

#[tokio::test]
async fn a_response_without_an_address_is_stored_as_a_head() {
    let lab = Lab::new(StoreResponse::Reference).await;
    lab.send(from("none")).await;
    let again = lab.send(from("none")).await;
    assert_eq!((again.problem(), again.header("x-cost")), (not_retained(201), Some("7")));
    let declined = || pay("{}").set("idempotency-key", "another-key-0001").doing("status-409");
    lab.send(declined()).await;
    let again = lab.send(declined()).await;
    assert_eq!((again.problem(), again.header("location")), (not_retained(409), Some("/payments/2")));
    assert_eq!((lab.bank.paid(), lab.bank.shown()), (2, 0));
}

#[tokio::test]
async fn unfetchable_result_is_reported_and_nothing_runs_again() {
    let lab = Lab::new(StoreResponse::Reference).await;
    let first = lab.send(pay("{}")).await;
    let gone = [Show::Large, Show::Events].into_iter();
    for show in gone.chain([404, 410, 302, 405, 406, 206].map(Show::Status)) {
        lab.bank.show(show);
        let again = lab.send(pay("{}")).await;
        assert_eq!((again.problem(), again.replayed()), (not_retained(201), true));
        assert_eq!(again.header("location"), Some("/payments/1"));
    }
    for (status, code) in [(401, "UNAUTHENTICATED"), (403, "FORBIDDEN")] {
        lab.bank.show(Show::Status(status));
        let again = lab.send(pay("{}")).await;
        assert_eq!((again.problem(), again.replayed()), (problem(status, code), false));
        assert_eq!(again.header("location"), None, "nothing is shown of what it made");
        assert_eq!(again.header("www-authenticate").is_some(), status == 401 || status == 403);
        assert_eq!(again.operation_id(), first.operation_id());
    }
    let statuses = [500, 502, 503, 429, 408].map(|status| (Show::Status(status), 503));
    let others = [(Show::Status(504), 504), (Show::Panics, 503)];
    for (show, status) in statuses.into_iter().chain(others) {
        lab.bank.show(show);
        let again = lab.send(pay("{}")).await;
        assert_eq!(again.problem(), problem(status, "IDEMPOTENCY_RESULT_UNAVAILABLE"));
        assert_eq!((again.header("retry-after"), again.header("location")), (Some("1"), Some("/payments/1")));
    }
    lab.bank.show(Show::New);
    assert_eq!(lab.send(pay("{}")).await.body, first.body, "and it heals");
    assert_eq!(lab.bank.paid(), 1);
}

#[tokio::test]
async fn duplicates_that_wait_get_the_same() {
    for (stored, status) in
        [(StoreResponse::Headers, not_retained(201)), (StoreResponse::Reference, (201, "".into()))]
    {
        let lab = Lab::new(stored).await;
        let (address, request) = (lab.address, || pay("{}").doing("gate"));
        let both = [tokio::spawn(request().to(address)), tokio::spawn(request().to(address))];
        lab.bank.gate.add_permits(1);
        let mut replies = Vec::new();
        for reply in both {
            replies.push(reply.await.expect("it is answered"));
        }
        replies.sort_by_key(Reply::replayed);
        assert!(!replies[0].replayed() && replies[1].replayed());
        match stored {
            StoreResponse::Reference => assert_eq!(replies[0].body, replies[1].body),
            _ => assert_eq!(replies[1].problem(), status),
        }
        assert_eq!(lab.bank.paid(), 1);
    }
}

#[tokio::test]
async fn an_asynchronous_result_is_fetched_or_reported_as_not_retained() {
    for stored in [StoreResponse::Headers, StoreResponse::Reference] {
        let lab = Lab::with(stored, |policy| policy.mode = Mode::Async, |builder| builder).await;
        let options = WorkerOptions { poll: Duration::from_millis(5), ..WorkerOptions::default() };
        let working = tokio::spawn(lab.layer.worker(lab.app.clone(), options).run());
        let accepted = lab.send(pay("{}")).await;
        assert_eq!(accepted.status, 202);
        while !lab.record().await.head.state.is_terminal() {
            tokio::task::yield_now().await;
        }
        for request in [pay("{}"), result_of(&accepted)] {
            let again = lab.send(request).await;
            assert!(again.replayed(), "{again:?}");
            match stored {
                StoreResponse::Reference => assert_eq!(again.json()["made"], CANARY),
                _ => assert_eq!(again.problem(), not_retained(201)),
            }
        }
        let foreign = lab.send(result_of(&accepted).set("x-user", "bob")).await;
        assert_eq!(foreign.problem(), problem(404, "OPERATION_NOT_FOUND"));
        assert!(!lab.stores_canaries().await);
        assert_eq!(lab.bank.paid(), 1);
        working.abort();
    }
}

#[tokio::test]
async fn the_current_policy_decides_on_fetching_a_missing_body() {
    let lab = Lab::new(StoreResponse::Headers).await;
    lab.send(pay("{}")).await;
    let now = lab.beside(Policy { store_response: StoreResponse::Reference, ..Policy::default() }).await;
    assert_eq!(pay("{}").to(now).await.json()["made"], CANARY);
    assert_eq!(lab.send(pay("{}")).await.problem(), not_retained(201));
    assert_eq!(lab.bank.paid(), 1);
}

#[tokio::test]
async fn a_service_that_does_not_answer_is_not_waited_for() {
    let lab = Lab::new(StoreResponse::Reference).await;
    lab.send(pay("{}")).await;
    lab.bank.show(Show::Hangs);
    let timeout = Duration::from_millis(100);
    let hasty =
        lab.beside(Policy { store_response: StoreResponse::Reference, timeout, ..Policy::default() }).await;
    let again = pay("{}").to(hasty).await;
    assert_eq!(again.problem(), problem(504, "IDEMPOTENCY_RESULT_UNAVAILABLE"));
    assert_eq!((again.header("retry-after"), again.header("location")), (Some("1"), Some("/payments/1")));
    assert_eq!(lab.bank.paid(), 1);
}

#[tokio::test]
async fn a_fetched_replay_in_the_stripe_profile_has_its_replay_header() {
    let lab = Lab::with(StoreResponse::Reference, |policy| policy.profile = Profile::Stripe, |b| b).await;
    lab.send(pay("{}")).await;
    let again = lab.send(pay("{}")).await;
    assert_eq!(
        (again.header("idempotent-replayed"), again.json()["made"].as_str()),
        (Some("true"), Some(CANARY))
    );
}

#[tokio::test]
async fn fields_that_an_operation_names_are_not_stored() {
    let except =
        |policy: &mut Policy| policy.store_headers_except = vec!["x-cost".parse().expect("it is valid")];
    let lab = Lab::with(StoreResponse::Full, except, |builder| builder).await;
    let (first, again) = (lab.send(pay("{}")).await, lab.send(pay("{}")).await);
    assert_eq!((first.header("x-cost"), again.header("x-cost")), (Some("7"), None));
    assert!(again.replayed() && again.header("etag").is_some());
}

#[test]
fn a_layer_that_cannot_fetch_says_so_at_once() {
    let build = |defaults: Policy, operation: Operation| {
        let builder = IdempotencyLayer::builder(Arc::new(MemoryStore::new())).identify(identify);
        builder.defaults(defaults).operation(operation).build().err().map(|error| error.to_string())
    };
    let reference = |policy: &mut Policy| policy.store_response = StoreResponse::Reference;
    let payments = || Operation::new("payments.create", "POST /payments");
    let told = build(Policy::default(), payments().with(reference)).expect("it is refused");
    assert!(told.starts_with("payments.create: `store_response` is \"reference\""), "{told}");
    assert!(told.contains("results_from"), "{told}");
    let defaults = Policy { store_response: StoreResponse::Reference, ..Policy::default() };
    let told = build(defaults, payments()).expect("it is refused");
    assert!(told.starts_with("defaults: "), "{told}");
    assert_eq!(build(Policy::default(), payments()), None);
}
