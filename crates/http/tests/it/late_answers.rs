//! Answers after the timeout: still read if the request was sent completely, and settled under the unchanged
//! fence.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use semel_core::reconcile::CONTRADICTION;
use semel_core::{
    Change, Filter, Policy, Principal, Record, Records, SpanRole, SpanValue, Store, StoredResult,
};
use semel_http::{Body, BoxError, Builder, Denied, Execution, IdempotencyLayer, Outcome};
use semel_stores::MemoryStore;
use tokio::sync::Semaphore;
use tower::{Layer, ServiceExt};

use crate::traces::KeptSpans;

/// Stand-in for a proxy: it reports a completely sent request, and then waits for the answer.
#[derive(Default)]
struct Calls {
    alive: AtomicUsize,
}

type Answered = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

/// Call that is waited for.
struct Alive(Arc<Calls>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Body that never ends.
struct Stalled(#[expect(dead_code, reason = "its end is counted")] Alive);

impl http_body::Body for Stalled {
    type Data = bytes::Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, BoxError>>> {
        std::task::Poll::Pending
    }
}

struct Lab {
    layer: IdempotencyLayer,
    store: Arc<MemoryStore>,
    calls: Arc<Calls>,
    gate: Arc<Semaphore>,
}

impl Lab {
    fn new(late_answer: Option<Duration>) -> Lab {
        Lab::with(late_answer, |builder| builder)
    }

    fn with(late_answer: Option<Duration>, change: impl FnOnce(Builder) -> Builder) -> Lab {
        let store = Arc::new(MemoryStore::new());
        let policy = Policy {
            late_answer,
            timeout: Duration::from_millis(200),
            wait: Duration::ZERO,
            ..Policy::default()
        };
        let builder = IdempotencyLayer::builder(store.clone())
            .identify(|parts| {
                let user = parts.headers.get("x-user").and_then(|value| value.to_str().ok());
                Principal::new("acme", user.unwrap_or("alice")).map_err(|_| Denied::unauthenticated())
            })
            .evidence(store.clone())
            .defaults(policy);
        let layer = change(builder).build().expect("it is valid");
        Lab { layer, store, calls: Arc::default(), gate: Arc::new(Semaphore::new(0)) }
    }

    /// Sends a command; `what` instructs the proxy and the upstream.
    async fn send(&self, user: &str, key: &str, what: &'static str) -> Response<Body> {
        let (calls, gate) = (self.calls.clone(), self.gate.clone());
        let proxy = tower::service_fn(move |request: Request<Body>| {
            calls.alive.fetch_add(1, Ordering::SeqCst);
            let (alive, gate) = (Alive(calls.clone()), gate.clone());
            async move {
                let alive = alive;
                let execution = request.extensions().get::<Execution>().expect("it is a command");
                if what != "unsent" {
                    execution.delivery().sent();
                }
                gate.acquire().await.expect("it is never closed").forget();
                let mut response = Response::new(Body::full("made"));
                *response.status_mut() = StatusCode::CREATED;
                match what {
                    "not-executed" => drop(response.extensions_mut().insert(Outcome::NotExecuted)),
                    "broken" => return Err("it broke off".into()),
                    "not-executed, stalls" => {
                        response.extensions_mut().insert(Outcome::NotExecuted);
                        return Ok(response.map(|_| Body::stream(Stalled(alive))));
                    }
                    _ => {}
                }
                Ok::<_, BoxError>(response)
            }
        });
        let request = Request::post("/payments")
            .header("idempotency-key", format!("late-answer-{key}-0123456789"))
            .header("x-user", user)
            .body(Body::full("{}"))
            .expect("it is valid");
        let answered: Answered = Box::pin(self.layer.layer(proxy).oneshot(request));
        answered.await.expect("the layer always answers")
    }

    async fn record(&self) -> Record {
        let records = self.store.list(&Filter::default()).await.expect("it lists").records;
        records.into_iter().next().expect("there is one")
    }

    /// Waits until the record has this state.
    async fn becomes(&self, state: &str) -> Record {
        for _ in 0..400 {
            let record = self.record().await;
            if record.head.state.name().as_str() == state {
                return record;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it is {:?}, and not {state}", self.record().await.head.state);
    }

    /// Waits until this many calls are waited for.
    async fn alive(&self, count: usize) {
        for _ in 0..400 {
            if self.calls.alive.load(Ordering::SeqCst) == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{} calls are alive, and not {count}", self.calls.alive.load(Ordering::SeqCst));
    }
}

const LONG: Option<Duration> = Some(Duration::from_secs(3600));

#[tokio::test]
async fn a_late_answer_settles_its_unknown_record() {
    let lab = Lab::new(LONG);
    assert_eq!(lab.send("alice", "k", "answer").await.status(), StatusCode::GATEWAY_TIMEOUT);
    let unknown = lab.record().await;
    assert_eq!(unknown.head.state.name().as_str(), "unknown", "it is not kept in progress");
    assert_eq!(lab.send("alice", "k", "answer").await.status(), StatusCode::CONFLICT);
    lab.gate.add_permits(1);
    let settled = lab.becomes("succeeded").await;
    assert_eq!(settled.head.fence(), unknown.head.fence(), "by the executor's own fence");
    let replay = lab.send("alice", "k", "answer").await;
    assert_eq!(replay.status(), StatusCode::CREATED);
    assert_eq!(replay.headers()["idempotency-replayed"], "true");
}

#[tokio::test]
async fn a_late_answer_has_a_span_that_links_to_its_request() {
    let tracer = Arc::new(KeptSpans::default());
    let lab = Lab::with(LONG, |builder| builder.tracer(tracer.clone()));
    assert_eq!(lab.send("alice", "k", "answer").await.status(), StatusCode::GATEWAY_TIMEOUT);
    let (server, call) = (tracer.take("unmatched").await, tracer.take("unmatched handler").await);
    assert_eq!((server.error, call.error), (Some("IDEMPOTENCY_OUTCOME_UNKNOWN"), Some("timed_out")));
    lab.gate.add_permits(1);
    let late = tracer.take("unmatched late answer").await;
    assert_eq!((late.role, late.parent, late.links), (SpanRole::Internal, None, vec![server.context]));
    assert!(late.attributes.contains(&("semel.outcome", SpanValue::Text("settled".into()))));
}

#[tokio::test]
async fn a_late_not_executed_response_frees_the_key() {
    let lab = Lab::new(LONG);
    lab.send("alice", "k", "not-executed").await;
    lab.becomes("unknown").await;
    lab.gate.add_permits(1);
    lab.becomes("failed_retryable").await;
    lab.gate.add_permits(1);
    assert_eq!(lab.send("alice", "k", "answer").await.status(), StatusCode::CREATED);
}

#[tokio::test]
async fn a_late_not_executed_response_frees_the_key_before_its_body_ends() {
    let lab = Lab::new(Some(Duration::from_millis(500)));
    lab.send("alice", "k", "not-executed, stalls").await;
    lab.gate.add_permits(1);
    lab.becomes("failed_retryable").await;
    lab.alive(0).await;
}

#[tokio::test]
async fn a_not_executed_response_whose_body_stalls_frees_the_key() {
    let lab = Lab::new(LONG);
    lab.gate.add_permits(1);
    let answer = lab.send("alice", "k", "not-executed, stalls").await;
    assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
    assert_eq!(lab.record().await.head.state.name().as_str(), "failed_retryable");
    lab.alive(0).await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_late_leaves_the_record_unknown() {
    let lab = Lab::new(LONG);
    lab.send("alice", "k", "broken").await;
    lab.gate.add_permits(1);
    lab.alive(0).await;
    assert_eq!(lab.send("alice", "k", "answer").await.status(), StatusCode::CONFLICT);
    assert_eq!(lab.record().await.head.reason.as_str(), "timed_out");
}

#[tokio::test]
async fn a_call_that_was_not_sent_whole_ends_with_its_timeout() {
    for (late_answer, what) in [(LONG, "unsent"), (None, "answer")] {
        let lab = Lab::new(late_answer);
        lab.send("alice", "k", what).await;
        lab.alive(0).await;
        lab.becomes("unknown").await;
    }
}

#[tokio::test]
async fn a_late_answer_is_read_no_longer_than_its_time() {
    let lab = Lab::new(Some(Duration::from_millis(100)));
    lab.send("alice", "k", "answer").await;
    lab.alive(0).await;
    assert_eq!(lab.record().await.head.state.name().as_str(), "unknown");
}

#[tokio::test]
async fn a_late_answer_that_is_fenced_is_noted_as_a_contradiction() {
    let lab = Lab::new(LONG);
    lab.send("alice", "k", "answer").await;
    let unknown = lab.becomes("unknown").await;
    let refused =
        semel_core::Response::without_body(StatusCode::UNPROCESSABLE_ENTITY, &http::HeaderMap::new());
    let verdict = Change::resolve_executed(StoredResult::of(&refused));
    lab.store.apply(&unknown.id, &verdict).await.expect("the store takes it");
    lab.gate.add_permits(1);
    let mut notes = Vec::new();
    for _ in 0..400 {
        notes = lab.store.notes(unknown.operation_id).await.expect("it reads");
        if !notes.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let note = &notes.first().expect("it is noted").note;
    assert_eq!((note.who.as_str(), note.action.as_str()), ("late-answer", CONTRADICTION));
    assert!(note.why.starts_with("executed (attempt 1), but the record is failed_final"), "{}", note.why);
    assert_eq!(lab.record().await.head.state.name().as_str(), "failed_final", "the record stands");
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_a_late_answer() {
    let lab = Lab::new(LONG);
    lab.send("alice", "k", "answer").await;
    let ended = lab.layer.shutdown(Duration::from_secs(600)).await;
    assert!(ended.drained);
    assert_eq!(ended.abandoned, 0, "it was unknown before");
    assert_eq!(lab.calls.alive.load(Ordering::SeqCst), 1, "it is still listened for");
}

#[tokio::test]
async fn one_caller_cannot_take_all_places_for_late_answers() {
    let lab = Arc::new(Lab::new(LONG));
    let send_all = async |user: &'static str, count: usize| {
        let mut sending = tokio::task::JoinSet::new();
        for number in 0..count {
            let lab = lab.clone();
            sending.spawn(async move { lab.send(user, &number.to_string(), "answer").await.status() });
        }
        for status in sending.join_all().await {
            assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
        }
    };
    send_all("greedy", 800).await;
    // Two thirds of 1,024.
    lab.alive(682).await;
    send_all("modest", 10).await;
    lab.alive(692).await;
    lab.gate.add_permits(692);
    lab.alive(0).await;
    let records =
        lab.store.list(&Filter { limit: 1000, ..Filter::default() }).await.expect("it lists").records;
    let settled = records.iter().filter(|record| record.head.state.is_terminal()).count();
    assert!(settled <= 692, "{settled}");
}
