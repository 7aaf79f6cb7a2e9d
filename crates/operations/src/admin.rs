//! Admin listener: health, readiness, metrics, and below `/admin/v1` the operator's views and actions as
//! JSON. `endpoints` has the table of endpoints; `gate` admits callers by their tokens (`access`) or the proxy that has signed them
//! in (`sso`), and not for foreign pages (`browser`); `console` has the pages. A service can mount it as a [`router`].
//!
//! Every request passes `answer`: route, identify, authorize, read, execute, log. Nothing is decided here:
//! actions go through `operate` to the store, which asks `transition`.

pub mod access;
mod browser;
mod bulk;
mod call;
mod caller;
mod console;
mod counted;
mod endpoint;
mod endpoints;
mod export;
mod gate;
pub mod history;
mod holds;
mod listener;
pub mod log_level;
mod outbox;
mod pages;
mod places;
mod reconcile;
mod records;
mod search;
mod sso;
#[cfg(test)]
mod tests;
pub mod tls_listener;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, OriginalUri, Request, State};
use axum::response::Response;
use axum::serve::Listener;
use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{HeaderName, Method, StatusCode};
use http_body_util::BodyExt;
use semel_core::policy::Profile;
use semel_core::problem::ProblemKind;
use semel_core::{AuditLog, Holds, OperationId, Outbox, Problem, StoreError};
use semel_flow::reconcile::Reconciler;
use semel_gateway::entry::head;
use semel_http::WholeBody;
use semel_settings::{Config, EffectiveSetting, Role};
use semel_stores::Breaker;
use serde_json::Value;

pub use self::access::GivenToken;
pub use self::browser::is_from_elsewhere;
use self::call::{AdminAnswer, AdminCall, QueryParameters, forbidden, malformed, members};
use self::caller::Caller;
pub use self::endpoint::{Endpoint, EndpointAccess};
pub use self::endpoints::ENDPOINTS;
use self::endpoints::EndpointMatch;
pub use self::gate::AdminGate;
use self::gate::{identify, log_denied};
use self::history::MetricsHistory;
use self::listener::{Bounded, CameFrom};
use self::log_level::LogLevel;
use crate::ledger::LedgerBoard;
use crate::operate::busy::BusySource;
use crate::operate::{Acted, printable};

/// Largest number of concurrent requests.
const MAX_AT_ONCE: usize = 64;
/// Timeouts for the body of a request, and for the whole answer.
const BODY_TIME: Duration = Duration::from_secs(20);
const ANSWER_TIME: Duration = Duration::from_secs(60);
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
    /// Every setting in force, as `semel config show` has it; empty in a service that uses the library.
    pub settings: Vec<EffectiveSetting>,
    /// Last hour of the counters.
    pub history: Arc<MetricsHistory>,
    /// Last results of the scheduled comparison of ledgers, if there is one.
    pub ledger: Option<Arc<LedgerBoard>>,
}

/// Returns the whole listener as a router, which a service can nest under a path of its own. Limits on connections are those of
/// the service then.
pub fn router(admin: Admin) -> Router {
    Router::new().fallback(bounded).with_state(Arc::new(admin))
}

/// Serves connections until it is dropped.
pub async fn serve(listener: impl Listener<Addr = SocketAddr>, admin: Admin) {
    let service = router(admin).into_make_service_with_connect_info::<CameFrom>();
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

/// Policy of an answer that is no page: whoever opens it as one loads nothing and sends nothing.
const NOTHING: &str =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox";

/// Sets headers that forbid caching, type sniffing, framing and loading of resources, unless the answer has its own.
fn secure(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, NOTHING),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

/// Returns the address of the peer. A service that mounts the router may not tell it.
fn peer(request: &Request) -> Option<IpAddr> {
    let own = request.extensions().get::<ConnectInfo<CameFrom>>().map(|ConnectInfo(CameFrom(peer))| peer);
    let of_service = || request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer);
    own.or_else(of_service).map(SocketAddr::ip)
}

async fn answer(admin: Arc<Admin>, request: Request) -> Response {
    let peer = peer(&request);
    let (head, body) = match head::normalize(request) {
        Ok(request) => request.into_parts(),
        Err(refused) => return problem(&refused),
    };
    let found = endpoints::find(&head.method, head.uri.path());
    let peer = peer.map(|peer| peer.to_canonical());
    let identified = identify(&admin.gate, &head.headers, peer);
    let peer = peer.map(|peer| peer.to_string());
    let caller = match (&found, identified) {
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
    let what = endpoint.action.or_else(|| endpoint.is_export().then_some("export"));
    let (who, named) = (caller.who.clone(), id.clone());
    let mut target = ActionTarget::default();
    let carried_out = carry_out(&admin, endpoint, caller, id, query, &head, body, &mut target).await;
    if let Some(what) = what {
        let result = carried_out.as_ref().map_or_else(|refused| refused.kind.code(), |answer| answer.result);
        log_action(&who, what, &named, target, result, peer.as_deref());
    }
    carried_out.map_or_else(|refused| problem(&refused), respond)
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
    // Before a place is taken: a slow body keeps nobody else out.
    let members = match changes {
        true => members(&read(body, admin.gate.max_body(endpoint)).await?, endpoint.members)?,
        false => serde_json::Map::new(),
    };
    // The health endpoint answers under any load.
    let _place = match endpoint.access {
        EndpointAccess::Open => None,
        EndpointAccess::Needs(_) => Some(admin.gate.enter(endpoint, &caller.who).ok_or_else(|| {
            Problem::new(ProblemKind::Overloaded, "There are too many requests at the same time.")
                .retry_after(LATER)
        })?),
    };
    *target = ActionTarget::of(&members);
    let path =
        head.extensions.get::<OriginalUri>().map_or(&head.uri, |OriginalUri(uri)| uri).path().to_owned();
    (endpoint.answer)(AdminCall { admin: admin.clone(), caller, path, id, query, members }).await
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
    answer.headers.into_iter().for_each(|(name, value)| drop(response.headers_mut().insert(name, value)));
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
