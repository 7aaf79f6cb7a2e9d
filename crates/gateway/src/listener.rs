//! Listener for clients: accepts, guards and serves connections, each within its limits.

mod paced;
pub mod request_id;

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, HeaderValue};
use hyper::body::Incoming;
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use metrics::counter;
use semel_core::policy::Profile;
use semel_core::problem::ProblemKind;
use semel_core::{OperationName, Problem};
use semel_flow::reconcile::Webhooks;
use semel_http::{AnswerDecision, AnswerFacts, Body, BoxError, Idempotency, ShareHolder, Shares};
use semel_settings::Server;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tower::Service;
use tracing::Instrument;

use self::paced::{counted, paced};
use self::request_id::RequestId;
use crate::entry::EntryRules;
use crate::guard::{ClientLimits, Guarded};
use crate::identity::client_certificate::Presented;
use crate::peer::{OverTls, Peer};
use crate::proxy::{ConnectionPlace, Proxy};
use crate::tls::server::Acceptor;
use crate::webhook::{self, WEBHOOKS_PATH};

/// Timeout for connections to end after their last request.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Timeout for a client that reads nothing of its answer.
const WRITE_TIME: Duration = Duration::from_secs(30);
/// Largest number of unwritten answer bytes, shared by the client's address and connection.
const MAX_RESPONSES: usize = 512 << 20;
/// Largest number of bytes of one HTTP/2 answer that wait to be written.
const MAX_SEND_BUFFER: usize = 64 * 1024;
/// Largest number of concurrent requests on one HTTP/2 connection.
const MAX_STREAMS: u32 = 64;
/// Largest number of unread bytes that a client may send over HTTP/2, per stream and per connection.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 512 * 1024;

/// Accepts connections until `stop`, then drains the open ones. With `tls`, each begins with a handshake in
/// its own task and within the timeout for a head; the guard is behind it and sees the decrypted bytes.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Acceptor>,
    service: Idempotency<Proxy>,
    webhooks: Option<Arc<Webhooks>>,
    rules: Arc<EntryRules>,
    settings: Server,
    mut stop: watch::Receiver<bool>,
) {
    let places = Shares::new(settings.max_connections);
    let responses = Shares::new(MAX_RESPONSES);
    let connections = GracefulShutdown::new();
    let builder = Arc::new(builder(&settings));
    // A request that the guard refuses has no operation yet.
    let profile = service.default_profile();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let address = peer.ip().to_canonical();
                let peer = Peer::new(address);
                // A refused client retries at once; a client in the kernel's queue would hold up others.
                let Some(place) = places.try_take(peer.holder(), 1) else {
                    counter!("connections_refused_total").increment(1);
                    continue;
                };
                let responses = responses.clone();
                let watcher = connections.watcher();
                let (service, settings, builder) = (service.clone(), settings.clone(), builder.clone());
                let (webhooks, tls, mut stop) = (webhooks.clone(), tls.clone(), stop.clone());
                let rules = rules.clone();
                tokio::spawn(async move {
                    let _ = stream.set_nodelay(true);
                    let place = ConnectionPlace(Arc::new(place));
                    let service = |client| for_peer(service, webhooks, rules, client);
                    let Some(tls) = tls else {
                        let service = service(ConnectedClient { peer, place, responses, tls: None });
                        return converse(
                            &builder,
                            guarded(stream, &settings, profile),
                            service,
                            watcher,
                            address,
                        )
                        .await;
                    };
                    let accepted = tokio::select! {
                        accepted = tls.accept(stream) => accepted,
                        _ = stop.wait_for(|stop| *stop) => None,
                    };
                    let Some((stream, shown)) = accepted else { return };
                    let shown = shown.map(|shown| Arc::new(Presented::new(shown, tls)));
                    let service = service(ConnectedClient { peer, place, responses, tls: Some(shown) });
                    converse(&builder, guarded(stream, &settings, profile), service, watcher, address).await;
                });
            }
            Err(error) => {
                // For example, no file descriptor is left. Others will close; until then, do not spin.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    let _ = tokio::time::timeout(LAST_WORDS, connections.shutdown()).await;
}

/// Serves one connection to its end.
async fn converse<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    builder: &auto::Builder<TokioExecutor>,
    stream: Guarded<S>,
    service: impl hyper::service::Service<
        Request<Incoming>,
        Response = http::Response<Body>,
        Error = BoxError,
        Future = PendingResponse,
    >,
    watcher: Watcher,
    peer: IpAddr,
) {
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let span = tracing::error_span!("connection", client = %peer);
    if let Err(error) = watcher.watch(connection).instrument(span).await {
        tracing::debug!(%error, "a client's connection ended badly");
    }
}

/// Client of a connection.
struct ConnectedClient {
    peer: Peer,
    place: ConnectionPlace,
    responses: Shares,
    /// Set for TLS, with the client's certificate if it presented one.
    tls: Option<Option<Arc<Presented>>>,
}

/// Pending answer.
type PendingResponse = Pin<Box<dyn Future<Output = Result<http::Response<Body>, BoxError>> + Send>>;

/// Makes the service of one connection: it normalizes and checks requests of every HTTP version, and adds
/// their client.
fn for_peer(
    service: Idempotency<Proxy>,
    webhooks: Option<Arc<Webhooks>>,
    rules: Arc<EntryRules>,
    client: ConnectedClient,
) -> impl hyper::service::Service<
    Request<Incoming>,
    Response = http::Response<Body>,
    Error = BoxError,
    Future = PendingResponse,
> + Clone {
    let ConnectedClient { peer, place, responses, tls } = client;
    hyper::service::service_fn(move |mut request: Request<Incoming>| {
        let mut service = service.clone();
        request.extensions_mut().insert(peer.clone());
        request.extensions_mut().insert(place.clone());
        if let Some(shown) = &tls {
            request.extensions_mut().insert(OverTls);
            if let Some(shown) = shown {
                request.extensions_mut().insert(shown.clone());
            }
        }
        let (rules, webhooks, peer) = (rules.clone(), webhooks.clone(), peer.clone());
        let responses = responses.clone();
        let (version, is_grpc) = (request.version(), semel_http::is_grpc(request.headers()));
        let id = RequestId::of(request.headers());
        let client = rules.forwarding.client(&peer, request.headers());
        // Error level, so that log lines of a request have its id at every log level.
        let span = tracing::error_span!("request", requestId = id.as_str(), %client);
        let answering = async move {
            let grant = rules.cors.grant(request.headers());
            let (method, uri) = (request.method().clone(), request.uri().clone());
            let answered =
                answer(&mut service, &rules, webhooks.as_deref(), peer.address(), request, &id).await?;
            let tell = |problem: &Problem| semel_http::problem(problem, service.profile(&method, uri.path()));
            let answered = answered.unwrap_or_else(|problem| {
                let mut refused = tell(&problem);
                if version <= http::Version::HTTP_11 {
                    refused.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                refused
            });
            let in_hand = in_hand(answered, version, &responses, peer.holder());
            let mut answer = in_hand.unwrap_or_else(|problem| tell(&problem));
            log_refusal(&method, uri.path(), &answer);
            rules.cors.apply(&mut answer, grant);
            id.answer(answer.headers_mut());
            Ok(if is_grpc { semel_http::as_grpc(answer) } else { answer })
        };
        let answering: PendingResponse = Box::pin(answering.instrument(span));
        answering
    })
}

/// Logs a refusal of the gateway itself. The layer logs refusals of commands.
fn log_refusal(method: &Method, path: &str, answer: &http::Response<Body>) {
    let AnswerFacts { code: Some(code), decision: None, .. } = AnswerFacts::of(answer) else { return };
    // The name has no query and no identifiers, and is bounded.
    let name = OperationName::unmatched(method.as_str(), path);
    let (method, path) = name.as_str().split_once(' ').unwrap_or((name.as_str(), ""));
    tracing::info!(event = "request_refused", method, path, status = answer.status().as_u16(), code);
}

/// Answers a request that is admitted; returns a problem for any other.
async fn answer(
    service: &mut Idempotency<Proxy>,
    rules: &EntryRules,
    webhooks: Option<&Webhooks>,
    peer: IpAddr,
    request: Request<Incoming>,
    id: &RequestId,
) -> Result<Result<http::Response<Body>, Problem>, BoxError> {
    let mut request = match rules.admit(request).await {
        Ok(request) => request,
        Err(problem) => return Ok(Err(problem)),
    };
    id.name(request.headers_mut());
    if let Some(answer) = rules.cors.preflight(&request) {
        return Ok(Ok(answer));
    }
    if let (Some(webhooks), Some(name)) = (webhooks, request.uri().path().strip_prefix(WEBHOOKS_PATH)) {
        let name = name.to_owned();
        return Ok(Ok(webhook::answer(webhooks, &name, peer, request).await));
    }
    service.call(request).await.map(Ok)
}

/// Counts the bytes of an answer until they are written. A replay without room becomes a problem, since the
/// client can retry it; every other answer passes.
fn in_hand(
    answer: http::Response<Body>,
    version: http::Version,
    responses: &Shares,
    holder: ShareHolder,
) -> Result<http::Response<Body>, Problem> {
    let (parts, body) = answer.into_parts();
    let body = match body.into_bytes() {
        Err(stream) => stream,
        Ok(bytes) if bytes.is_empty() => Body::default(),
        Ok(bytes) => {
            let facts: Option<&AnswerFacts> = parts.extensions.get();
            let is_replay = facts.is_some_and(|facts| facts.decision == Some(AnswerDecision::Replayed));
            let share = responses.try_take(holder, bytes.len());
            if is_replay && share.is_none() {
                let detail = "This client leaves too many answers unread. The answer is stored: ask again.";
                return Err(Problem::new(ProblemKind::Overloaded, detail).retry_after(Duration::from_secs(1)));
            }
            let share = share.unwrap_or_else(|| responses.charge(holder, bytes.len()));
            Body::full(counted(bytes, share))
        }
    };
    // The guard cannot detect a stream without a window.
    let body = match version {
        http::Version::HTTP_2 => paced(body, WRITE_TIME, responses, holder),
        _ => body,
    };
    Ok(http::Response::from_parts(parts, body))
}

fn guarded<S>(stream: S, settings: &Server, profile: Profile) -> Guarded<S> {
    let limits = ClientLimits {
        max_head: settings.max_head,
        head_timeout: settings.head_timeout,
        body_timeout: settings.body_timeout,
        idle_timeout: settings.idle_timeout,
        write_timeout: WRITE_TIME,
    };
    Guarded::new(stream, limits).with_profile(profile)
}

fn builder(settings: &Server) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // The guard has its own timeout for heads, which considers idle connections.
        .header_read_timeout(None)
        .max_headers(128)
        // A client that has closed its side may still read the answer.
        .half_close(true)
        .max_buf_size(settings.max_head + 8192);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_send_buf_size(MAX_SEND_BUFFER)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(u32::try_from(settings.max_head).unwrap_or(u32::MAX))
        .keep_alive_interval(settings.idle_timeout)
        .keep_alive_timeout(settings.head_timeout);
    builder
}
