//! Admin listener: health, readiness, metrics, and below `/admin/v1` the operator's views and actions as
//! JSON. `endpoints` has the table of endpoints, `access` the tokens and roles, `browser` the checks against
//! foreign pages.
//!
//! Every request passes `answer`: route, identify, authorize, read, execute, log. Nothing is decided here:
//! actions go through `operate` to the store, which asks `transition`.

pub mod access;
mod browser;
mod bulk;
mod call;
mod endpoints;
mod holds;
mod listener;
pub mod log_level;
mod outbox;
mod pages;
mod records;
mod search;
pub mod tls_listener;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::Response;
use axum::serve::Listener;
use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use semel_core::policy::Profile;
use semel_core::problem::ProblemKind;
use semel_core::{AuditLog, Holds, OperationId, Outbox, Problem, StoreError};
use semel_flow::reconcile::Reconciler;
use semel_gateway::entry::head;
use semel_http::WholeBody;
use semel_settings::{Config, Role};
use semel_stores::Breaker;
use serde_json::Value;
use tokio::sync::Semaphore;

use self::access::{AdminTokens, Caller, UnknownCaller};
use self::browser::Hosts;
use self::call::{AdminAnswer, AdminCall, QueryParameters, forbidden, malformed, members};
use self::endpoints::EndpointMatch;
pub use self::endpoints::{ENDPOINTS, Endpoint, EndpointAccess};
use self::listener::{Bounded, CameFrom};
use self::log_level::LogLevel;
use crate::operate::busy::BusySource;
use crate::operate::{Acted, printable};

/// Largest number of concurrent requests.
const MAX_AT_ONCE: usize = 64;
/// Largest number of concurrent exports.
const MAX_EXPORTS: usize = 2;
/// Timeouts for the body of a request, and for the whole answer.
const BODY_TIME: Duration = Duration::from_secs(20);
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// Largest size of a body, without the response that it may hold.
const MAX_BODY: usize = 1 << 20;
/// Factor of the largest size up to which a body is read and discarded.
const MAX_WASTE: usize = 4;
/// Largest logged length of an event id.
const MAX_LOGGED_ID: usize = 200;
/// `Retry-After` for an overload or an unavailable store.
const LATER: Duration = Duration::from_secs(1);

/// Renders the page `/metrics`, in the text format of Prometheus.
pub type MetricsPage = Arc<dyn Fn() -> String + Send + Sync>;

/// Parts of the gateway that the admin listener shows and acts on.
pub struct Admin {
    /// Store of the records.
    pub store: Arc<Breaker>,
    /// Outbox, if the store has one.
    pub outbox: Option<Arc<dyn Outbox>>,
    /// Log of operators' actions.
    pub audit: Arc<dyn AuditLog>,
    /// Holds of the store.
    pub holds: Arc<dyn Holds>,
    /// Busiest callers and most repeated keys of this process.
    pub busy: Arc<dyn BusySource>,
    /// Reconciler, if the settings name a source of evidence.
    pub reconciler: Option<Arc<Reconciler>>,
    /// True once the gateway stops.
    pub closing: Arc<AtomicBool>,
    /// Counters and histograms of this process.
    pub metrics: MetricsPage,
    /// Filter of this process's log, if it can be changed.
    pub log: Option<Arc<LogLevel>>,
    /// Admits callers within limits.
    pub gate: AdminGate,
    /// Settings of the operations.
    pub config: Config,
}

/// Admission: tokens, host names and the limit on concurrent requests.
pub struct AdminGate {
    tokens: AdminTokens,
    hosts: Hosts,
    max_body: usize,
    places: Semaphore,
    /// Limit on concurrent exports, which last longer than their requests.
    exports: Arc<Semaphore>,
}

impl AdminGate {
    /// Makes the gate of a listener at this address. Fetches the tokens.
    ///
    /// # Errors
    /// Fails if the tokens cannot be used.
    pub async fn new(config: &Config) -> anyhow::Result<AdminGate> {
        let policies = config.operations.iter().map(|operation| &operation.policy).chain([&config.defaults]);
        let largest = policies.map(|policy| policy.max_stored_response).max().unwrap_or(0);
        Ok(AdminGate {
            tokens: AdminTokens::fetch(config).await?,
            hosts: Hosts::new(config.admin_listen.ip(), config.admin_hosts.clone()),
            max_body: largest.saturating_add(MAX_BODY),
            places: Semaphore::new(MAX_AT_ONCE),
            exports: Arc::new(Semaphore::new(MAX_EXPORTS)),
        })
    }
}

/// Serves connections until it is dropped.
pub async fn serve(listener: impl Listener<Addr = SocketAddr>, admin: Admin) {
    let router = Router::new().fallback(bounded).with_state(Arc::new(admin));
    let service = router.into_make_service_with_connect_info::<CameFrom>();
    if let Err(error) = axum::serve(Bounded::new(listener), service).await {
        tracing::error!(%error, "the admin listener ended");
    }
}

async fn bounded(State(admin): State<Arc<Admin>>, request: Request) -> Response {
    // A begun request is completed and logged, even if its client leaves.
    let version = request.version();
    let request = request.map(|body| Body::new(WholeBody::new(version, body)));
    let answering = tokio::spawn(answer(admin, request));
    let mut answer = match tokio::time::timeout(ANSWER_TIME, answering).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => problem(
            &Problem::new(ProblemKind::StoreUnavailable, "There is no answer; the log says why.")
                .with_status(StatusCode::INTERNAL_SERVER_ERROR),
        ),
        Err(_) => problem(&Problem::new(
            ProblemKind::StoreUnavailable,
            "There is no answer yet. An action continues in the background: look at its record or message \
             before you retry.",
        )),
    };
    secure(answer.headers_mut());
    answer
}

/// Sets headers that forbid caching, type sniffing, framing and loading of resources.
fn secure(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

async fn answer(admin: Arc<Admin>, request: Request) -> Response {
    let peer =
        request.extensions().get::<ConnectInfo<CameFrom>>().map(|ConnectInfo(CameFrom(peer))| peer.ip());
    let (head, body) = match head::normalize(request) {
        Ok(request) => request.into_parts(),
        Err(refused) => return problem(&refused),
    };
    let found = endpoints::find(&head.method, head.uri.path());
    let peer = peer.map(|peer| peer.to_canonical().to_string());
    let caller = match (&found, identify(&admin.gate, &head.headers)) {
        (EndpointMatch::Endpoint(Endpoint { access: EndpointAccess::Open, .. }, _), _) => {
            Caller { who: String::new(), role: Role::Viewer }
        }
        (_, Ok(caller)) => caller,
        (found, Err(denied)) => {
            log_denied(&admin.gate, found, &denied, peer.as_deref());
            return denied.answer();
        }
    };
    let (endpoint, id) = match found {
        EndpointMatch::Endpoint(endpoint, id) => (endpoint, id),
        EndpointMatch::OtherMethods(methods) => {
            let refused = malformed("This path needs another method.");
            let mut answer = problem(&refused.with_status(StatusCode::METHOD_NOT_ALLOWED));
            let allowed = HeaderValue::from_str(&methods.join(", "));
            allowed.into_iter().for_each(|allowed| drop(answer.headers_mut().insert(header::ALLOW, allowed)));
            return answer;
        }
        EndpointMatch::Nothing => {
            let detail = "There is nothing at this path; GET /admin/v1/openapi.json lists all paths.";
            return problem(&Problem::new(ProblemKind::NotFound, detail));
        }
    };
    let query = QueryParameters::read(&head.uri, endpoint.query);
    let reads_body = query.as_ref().is_ok_and(QueryParameters::asks_for_body);
    let what = endpoint.action.or_else(|| reads_body.then_some("read body"));
    let what = what.or_else(|| endpoint.is_export().then_some("export"));
    let (who, named) = (caller.who.clone(), id.clone());
    let mut target = ActionTarget::default();
    let carried_out = carry_out(&admin, endpoint, caller, id, query, &head, body, &mut target).await;
    if let Some(what) = what {
        let result = carried_out.as_ref().map_or_else(|refused| refused.kind.code(), |answer| answer.result);
        log_action(&who, what, &named, target, result, peer.as_deref());
    }
    carried_out.map_or_else(|refused| problem(&refused), respond)
}

/// Reason for denying a caller.
enum AdminDenied {
    Token(UnknownCaller),
    Host(Problem),
}

impl AdminDenied {
    fn answer(self) -> Response {
        match self {
            AdminDenied::Host(refused) => problem(&refused),
            AdminDenied::Token(_) => {
                let detail = "The admin listener needs `Authorization: Bearer` and a token that it knows.";
                let mut answer = problem(&Problem::new(ProblemKind::Unauthenticated, detail));
                answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                answer
            }
        }
    }
}

/// Identifies the caller. Without tokens, a browser must address this listener by its own name.
fn identify(gate: &AdminGate, headers: &HeaderMap) -> Result<Caller, AdminDenied> {
    if !gate.tokens.asks() {
        gate.hosts.check(headers).map_err(AdminDenied::Host)?;
    }
    gate.tokens.identify(headers).map_err(AdminDenied::Token)
}

#[expect(clippy::too_many_arguments, reason = "the parts of one request, and its target for the log")]
async fn carry_out(
    admin: &Arc<Admin>,
    endpoint: &'static Endpoint,
    caller: Caller,
    id: String,
    query: Result<QueryParameters, Problem>,
    head: &Parts,
    body: Body,
    target: &mut ActionTarget,
) -> Result<AdminAnswer, Problem> {
    if matches!(endpoint.access, EndpointAccess::Needs(role) if caller.role < role) {
        return Err(forbidden());
    }
    let changes = head.method != Method::GET && head.method != Method::HEAD;
    if changes {
        browser::check_change(&head.headers)?;
    }
    let query = query?;
    // The health endpoint answers under any load.
    let _place = match endpoint.access {
        EndpointAccess::Open => None,
        EndpointAccess::Needs(_) => Some(admin.gate.places.try_acquire().map_err(|_| {
            Problem::new(ProblemKind::Overloaded, "There are too many requests at the same time.")
                .retry_after(LATER)
        })?),
    };
    let members = match changes {
        true => members(&read(body, admin.gate.max_body).await?, endpoint.members)?,
        false => serde_json::Map::new(),
    };
    *target = ActionTarget::of(&members);
    (endpoint.answer)(AdminCall { admin: admin.clone(), caller, id, query, members }).await
}

async fn read(body: Body, max: usize) -> Result<Bytes, Problem> {
    let late = |_| Problem::new(ProblemKind::RequestIncomplete, "The body did not come to an end in time.");
    tokio::time::timeout(BODY_TIME, read_all(body, max)).await.map_err(late)?
}

/// Reads a body. One over `max` is read to a bound and discarded: a client that still sends does not read an
/// answer.
async fn read_all(mut body: Body, max: usize) -> Result<Bytes, Problem> {
    let (mut bytes, mut length) = (BytesMut::new(), 0_usize);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::new(ProblemKind::RequestIncomplete, "The body broke off."))?;
        let data = frame.into_data().unwrap_or_default();
        length = length.saturating_add(data.len());
        if length <= max {
            bytes.extend_from_slice(&data);
        } else if length > max.saturating_mul(MAX_WASTE) {
            break;
        }
    }
    if length > max {
        return Err(Problem::new(
            ProblemKind::RequestTooLarge,
            format!("The body has more than {max} bytes."),
        ));
    }
    Ok(bytes.freeze())
}

fn respond(answer: AdminAnswer) -> Response {
    let mut response = Response::new(answer.body);
    *response.status_mut() = answer.status;
    let content_type = HeaderValue::from_static(answer.content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// Returns a problem document. It has no link, since the other listener serves the description.
fn problem(problem: &Problem) -> Response {
    let mut answer = semel_http::problem(problem, Profile::Ietf).map(Body::new);
    answer.headers_mut().remove(header::LINK);
    answer
}

/// Target of an action that is not in the path: that of a hold, or the filter of the log.
#[derive(Default)]
struct ActionTarget {
    kind: Option<String>,
    name: Option<String>,
    filter: Option<String>,
}

impl ActionTarget {
    fn of(members: &serde_json::Map<String, Value>) -> ActionTarget {
        let text = |name: &str| {
            let given = members.get(name)?.as_str()?;
            Some(printable(given).chars().take(MAX_LOGGED_ID).collect::<String>())
        };
        ActionTarget { kind: text("kind"), name: text("name"), filter: text("filter") }
    }
}

/// Logs every action and every view of a body, with its result.
fn log_action(who: &str, what: &str, id: &str, target: ActionTarget, result: &str, peer: Option<&str>) {
    let ActionTarget { kind, name, filter } = target;
    let command = id.split(':').next().and_then(|id| id.parse::<OperationId>().ok());
    let event = id.contains(':').then(|| printable(id).chars().take(MAX_LOGGED_ID).collect::<String>());
    tracing::info!(
        event = "admin_action",
        who,
        what,
        operationId = command.map(|id| id.to_string()),
        eventId = event,
        kind,
        name,
        filter,
        result,
        peer,
    );
}

/// Logs denied callers: a few by line, the rest by number.
fn log_denied(gate: &AdminGate, found: &EndpointMatch, denied: &AdminDenied, peer: Option<&str>) {
    let Some(unlogged) = gate.tokens.attempt() else { return };
    let what = match found {
        EndpointMatch::Endpoint(endpoint, _) => format!("{} {}", endpoint.method, endpoint.path),
        EndpointMatch::OtherMethods(_) | EndpointMatch::Nothing => "an unknown endpoint".to_owned(),
    };
    let (result, why) = match denied {
        AdminDenied::Token(denied) => (ProblemKind::Unauthenticated.code(), denied.as_str()),
        AdminDenied::Host(refused) => (refused.kind.code(), "host"),
    };
    tracing::warn!(event = "admin_denied", what, result, why, peer, unlogged);
}

/// Returns the problem for a store that is unavailable, or cannot do this.
fn unavailable(error: StoreError) -> Problem {
    tracing::warn!(%error, "the admin listener cannot use the store");
    match error {
        StoreError::Unavailable(_) | StoreError::Busy(_) => {
            Problem::new(ProblemKind::StoreUnavailable, "Nothing was changed.").retry_after(LATER)
        }
        StoreError::Ambiguous(_) => Problem::new(
            ProblemKind::StoreUnavailable,
            "The action may or may not have been done: look at its record or message before you retry.",
        ),
        StoreError::Rejected(why) => refused(&why),
        StoreError::Corrupt(_) | StoreError::Damaged(_) => {
            let detail = "The stored data cannot be read; the log says why.";
            Problem::new(ProblemKind::StoreUnavailable, detail).with_status(StatusCode::INTERNAL_SERVER_ERROR)
        }
    }
}

/// Returns the problem for an action that does not apply.
fn refused(why: &str) -> Problem {
    Problem::new(ProblemKind::ActionRefused, why)
}

/// Returns the answer for the result of an action.
fn told<S>(
    acted: Acted<S>,
    absent: ProblemKind,
    done: impl FnOnce(Option<S>) -> Value,
) -> Result<AdminAnswer, Problem> {
    match acted {
        Acted::Done(state) => Ok(AdminAnswer::json(&done(state))),
        Acted::Refused(why) => Err(refused(&why)),
        Acted::Absent(why) => Err(Problem::new(absent, why)),
    }
}
