//! Protected service on a free port, and clients for it.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::HeaderMap;
use http_body_util::{BodyExt, Full};
use semel_core::quota::Limits;
use semel_core::{Policy, Principal, Records};
use semel_http::{Builder, CloseDelimited, Denied, Execution, IdempotencyLayer, Outcome};
use semel_stores::SqliteStore;
pub(crate) use semel_testkit::client::{KEY, Reply, Send, pay, problem, stripe_error};
use semel_testkit::faulty::{Call, FaultyStore};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// State that the handler and the test share.
pub(crate) struct Effects {
    /// Number of effects.
    pub(crate) count: AtomicUsize,
    /// Permit for each handler that has begun.
    pub(crate) begun: Semaphore,
    /// Permit that lets one waiting handler continue.
    pub(crate) gate: Semaphore,
}

/// Protected service on a free port.
pub(crate) struct Lab {
    pub(crate) address: SocketAddr,
    pub(crate) layer: IdempotencyLayer,
    pub(crate) store: Arc<FaultyStore>,
    pub(crate) sqlite: Arc<SqliteStore>,
    pub(crate) effects: Arc<Effects>,
    folder: TempDir,
}

/// Identifies the caller: `x-user` within `x-tenant`.
pub(crate) fn identify(parts: &http::request::Parts) -> Result<Principal, Denied> {
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    match header("x-user") {
        Some("mallory") => Err(Denied::Forbidden),
        Some(user) => {
            Principal::new(header("x-tenant").unwrap_or("acme"), user).map_err(|_| Denied::unauthenticated())
        }
        None => Err(Denied::anonymous()),
    }
}

impl Lab {
    /// Starts a service with the default policy.
    pub(crate) async fn new() -> Lab {
        Lab::with(|builder| builder).await
    }

    /// Starts a service with a changed default policy.
    pub(crate) async fn policy(change: impl FnOnce(&mut Policy)) -> Lab {
        let mut policy = Policy { wait: Duration::from_secs(5), ..Policy::default() };
        change(&mut policy);
        Lab::with(|builder| builder.defaults(policy)).await
    }

    /// Starts a service with these limits, counted in the store of the records.
    pub(crate) async fn limited(limits: Limits) -> Lab {
        Lab::limited_with(limits, |builder| builder).await
    }

    /// Starts a service with these limits, and with the test's changes to its layer.
    pub(crate) async fn limited_with(limits: Limits, change: impl FnOnce(Builder) -> Builder) -> Lab {
        Lab::on_file(|builder, sqlite| change(builder.usage(sqlite).limits(limits))).await
    }

    /// Starts a second service with these limits.
    pub(crate) async fn second_limited(&self, limits: Limits) -> SocketAddr {
        let usage = Arc::new(SqliteStore::open(self.folder.path().join("semel.db")).expect("it opens again"));
        self.second_with(|builder| builder.usage(usage).limits(limits)).await
    }

    /// Starts a service with the test's changes to its layer.
    pub(crate) async fn with(change: impl FnOnce(Builder) -> Builder) -> Lab {
        Lab::on_file(|builder, _| change(builder)).await
    }

    async fn on_file(change: impl FnOnce(Builder, Arc<SqliteStore>) -> Builder) -> Lab {
        let folder = TempDir::new().expect("there is room for a test");
        let sqlite = SqliteStore::open(folder.path().join("semel.db")).expect("a new file can be opened");
        let sqlite = Arc::new(sqlite);
        let store = Arc::new(FaultyStore::new(sqlite.clone()));
        let layer = change(IdempotencyLayer::builder(store.clone()).identify(identify), sqlite.clone());
        let layer = layer.build().expect("the layer is valid");
        let effects = Arc::new(Effects {
            count: AtomicUsize::new(0),
            begun: Semaphore::new(0),
            gate: Semaphore::new(0),
        });
        let app = app(effects.clone()).layer(layer.clone());
        let address = serve(app).await;
        Lab { address, layer, store, sqlite, effects, folder }
    }

    /// Starts a second service, like another process would: its own layer on the same file.
    pub(crate) async fn second(&self, policy: Policy) -> (SocketAddr, Arc<SqliteStore>) {
        let store = Arc::new(SqliteStore::open(self.folder.path().join("semel.db")).expect("it opens again"));
        let layer = IdempotencyLayer::builder(store.clone()).identify(identify).defaults(policy);
        let layer = layer.build().expect("the layer is valid");
        (serve(app(self.effects.clone()).layer(layer)).await, store)
    }

    /// Starts a second service with the test's changes to its layer.
    pub(crate) async fn second_with(&self, change: impl FnOnce(Builder) -> Builder) -> SocketAddr {
        let store = Arc::new(SqliteStore::open(self.folder.path().join("semel.db")).expect("it opens again"));
        let layer = change(IdempotencyLayer::builder(store).identify(identify)).build().expect("it is valid");
        serve(app(self.effects.clone()).layer(layer)).await
    }

    /// Changes the file behind the store's back.
    pub(crate) fn damage(&self, sql: &str) {
        let file = rusqlite::Connection::open(self.folder.path().join("semel.db")).expect("the file opens");
        assert_eq!(file.execute(sql, []).expect("the statement runs"), 1, "it changes the one record");
    }

    /// Returns the number of effects.
    pub(crate) fn count(&self) -> usize {
        self.effects.count.load(Ordering::SeqCst)
    }

    /// Waits until a handler has begun.
    pub(crate) async fn begun(&self) {
        self.effects.begun.acquire().await.expect("it is never closed").forget();
    }

    /// Lets one waiting handler continue.
    pub(crate) fn open_gate(&self) {
        self.effects.gate.add_permits(1);
    }

    /// Sends a request on its own connection.
    pub(crate) async fn send(&self, request: Send) -> Reply {
        request.to(self.address).await
    }

    /// Returns a semaphore with a permit for each claim from now on.
    pub(crate) fn count_claims(&self) -> Arc<Semaphore> {
        self.count_calls(Call::Claim)
    }

    /// Holds every claim before it is made, until the gate is opened.
    pub(crate) fn hold_claims(&self) -> CallGate {
        self.hold_calls(&[Call::Claim])
    }

    /// Holds these calls before they are made, until the gate is opened.
    pub(crate) fn hold_calls(&self, held: &'static [Call]) -> CallGate {
        let gate = CallGate { arrived: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) };
        let (arrived, open) = (gate.arrived.clone(), gate.open.clone());
        self.store.hold(move |call| {
            let (arrived, open) = (arrived.clone(), open.clone());
            Box::pin(async move {
                if held.contains(&call) {
                    arrived.add_permits(1);
                    if let Ok(permit) = open.acquire().await {
                        permit.forget();
                    }
                }
            })
        });
        gate
    }

    /// Returns a semaphore with a permit for each renewal from now on.
    pub(crate) fn count_renewals(&self) -> Arc<Semaphore> {
        self.count_calls(Call::Renew)
    }

    fn count_calls(&self, counted: Call) -> Arc<Semaphore> {
        let calls = Arc::new(Semaphore::new(0));
        let counter = calls.clone();
        self.store.script(move |call| {
            counter.add_permits(usize::from(call == counted));
            None
        });
        calls
    }

    /// Returns the state of the only record.
    pub(crate) async fn state(&self) -> String {
        let records =
            self.sqlite.list(&semel_core::Filter::default()).await.expect("the store lists").records;
        assert_eq!(records.len(), 1, "there is one record");
        records[0].head.state.name().to_string()
    }

    /// Returns the number of records.
    pub(crate) async fn records(&self) -> usize {
        self.sqlite.list(&semel_core::Filter::default()).await.expect("the store lists").records.len()
    }
}

/// Gate that holds calls of the store.
pub(crate) struct CallGate {
    arrived: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl CallGate {
    /// Waits until a call is held.
    pub(crate) async fn arrived(&self) {
        self.arrived.acquire().await.expect("it is never closed").forget();
    }

    /// Lets one call continue.
    pub(crate) fn let_one_go(&self) {
        self.open.add_permits(1);
    }

    /// Lets all calls continue.
    pub(crate) fn open(&self) {
        self.open.close();
    }
}

/// Serves on a free port, HTTP/1.1 and HTTP/2.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Makes a service that does what `x-do` says, and counts.
pub(crate) fn app(effects: Arc<Effects>) -> Router {
    Router::new().fallback(handle).with_state(effects)
}

async fn handle(State(effects): State<Arc<Effects>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.expect("the body is in hand").to_bytes();
    let what = parts.headers.get("x-do").and_then(|value| value.to_str().ok()).unwrap_or("").to_owned();
    effects.begun.add_permits(1);
    if what.contains("gate") {
        effects.gate.acquire().await.expect("it is never closed").forget();
    }
    if what.contains("check-lease")
        && let Some(execution) = parts.extensions.get::<Execution>()
        && execution.check_lease().is_err()
    {
        return Response::builder()
            .status(503)
            .extension(Outcome::NotExecuted)
            .body(Body::empty())
            .expect("valid");
    }
    if what.contains("not-executed") {
        return Response::builder()
            .status(503)
            .extension(Outcome::NotExecuted)
            .body(if what.contains("panicking-body") { panicking_body() } else { Body::from("nothing ran") })
            .expect("valid");
    }
    assert!(!what.contains("panic-before"), "a handler that panics before its effect");
    let number = effects.count.fetch_add(1, Ordering::SeqCst) + 1;
    assert!(!what.contains("panic-after"), "a handler that panics after its effect");
    if what.contains("hold") {
        effects.gate.acquire().await.expect("it is never closed").forget();
    }
    respond(&what, number, &parts, body)
}

fn respond(what: &str, number: usize, parts: &http::request::Parts, body: Bytes) -> Response {
    let status = what.split("status-").nth(1).and_then(|rest| rest.get(..3)).unwrap_or("201");
    let execution = parts.extensions.get::<Execution>();
    let mut response = Response::builder()
        .status(status.parse::<u16>().expect("tests ask for real statuses"))
        .header("location", format!("/payments/{number}"))
        .header("link", "</a>; rel=\"x, y\", </b>")
        .header("link", "</c>")
        .header("set-cookie", "session=secret")
        .header("x-number", number)
        .header(
            "x-semel-seen",
            parts.headers.keys().filter(|k| k.as_str().replace('_', "-").starts_with("semel-")).count(),
        )
        .header(
            "x-traceparent",
            parts
                .headers
                .get("traceparent")
                .cloned()
                .unwrap_or_else(|| "none".parse().expect("it is a value")),
        )
        .header(
            "x-tracestate",
            parts
                .headers
                .get("tracestate")
                .cloned()
                .unwrap_or_else(|| "none".parse().expect("it is a value")),
        )
        .header("x-attempt", execution.map_or(0, Execution::attempt))
        .header("x-downstream-key", execution.map_or(String::new(), |e| e.downstream_key("charge")));
    for outcome in ["final", "unknown", "typo", "twice"] {
        if what.contains(&format!("outcome-{outcome}")) {
            response = response.header("semel-outcome", outcome.replace("twice", "final"));
        }
    }
    if what.contains("outcome-twice") {
        response = response.header("semel-outcome", "final");
    }
    if what.contains("trailers") {
        response = response.header("trailer", "grpc-status");
    }
    if what.contains("close-delimited") {
        response = response.extension(CloseDelimited);
    }
    if what.contains("forged") {
        response = response.header("semel-outcome", "final").header("idempotency-replayed", "true");
        response = response.header("idempotency-retry", "same-key");
    }
    let body = match what {
        what if what.contains("big") => Body::from(vec![b'x'; 3 << 20]),
        what if what.contains("event-stream") => {
            response = response.header("content-type", "text/event-stream; charset=utf-8");
            Body::from("data: 1\n\n")
        }
        what if what.contains("broken-body") => broken_body(),
        what if what.contains("panicking-body") => panicking_body(),
        what if what.contains("binary") => Body::from((0..=255).collect::<Vec<u8>>()),
        what if what.contains("trailers") => {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().expect("valid"));
            let trailers = std::future::ready(Some(Ok::<_, std::convert::Infallible>(trailers)));
            Body::new(Full::new(body).with_trailers(trailers))
        }
        _ => Body::from([format!("{number}:").as_bytes(), &body].concat()),
    };
    response.body(body).expect("valid")
}

fn broken_body() -> Body {
    Body::new(Breaking { frames: 1, panics: false })
}

fn panicking_body() -> Body {
    Body::new(Breaking { frames: 1, panics: true })
}

/// Body that breaks off after a few frames.
struct Breaking {
    frames: usize,
    panics: bool,
}

impl http_body::Body for Breaking {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, std::io::Error>>> {
        assert!(self.frames > 0 || !self.panics, "a body that panics");
        let frame = match self.frames {
            0 => Err(std::io::Error::other("a body that breaks off")),
            _ => Ok(http_body::Frame::data(Bytes::from_static(b"half"))),
        };
        self.frames = self.frames.saturating_sub(1);
        Poll::Ready(Some(frame))
    }
}
