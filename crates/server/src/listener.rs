//! The listener for clients: accepts, guards, and serves connections, each within its bounds.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, HeaderValue};
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use semel_core::Problem;
use semel_core::policy::Profile;
use semel_flow::reconcile::Webhooks;
use semel_http::{Body, BoxError, Idempotency};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tower::Service;

use crate::client_certificate::Presented;
use crate::config::Server;
use crate::guard::{Guarded, Limits};
use crate::hosts::ServiceHosts;
use crate::paced::paced;
use crate::proxy::{Encrypted, Peer, Place, Proxy};
use crate::tls::server::Acceptor;
use crate::webhook::WEBHOOKS_PATH;
use crate::{head, webhook};

/// How long connections may take to end once nothing runs on them any more.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long a client may read nothing of what it is sent.
const WRITE_TIME: Duration = Duration::from_secs(30);

/// Accepts connections until `stop` says so, then lets those that are open come to their end. With `tls`, each begins
/// with a handshake, in its own task and within the time for a head; the guard is behind it, and sees what was encrypted.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<Acceptor>,
    service: Idempotency<Proxy>,
    webhooks: Option<Arc<Webhooks>>,
    hosts: Arc<ServiceHosts>,
    settings: Server,
    mut stop: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(settings.max_connections));
    let connections = GracefulShutdown::new();
    let builder = Arc::new(builder(&settings));
    loop {
        // No place, no connection: the rest waits in the kernel's queue, which is bounded as well.
        let accepting = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            accepted = accepting => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let watcher = connections.watcher();
                let (service, settings, builder) = (service.clone(), settings.clone(), builder.clone());
                let (webhooks, tls, mut stop) = (webhooks.clone(), tls.clone(), stop.clone());
                let hosts = hosts.clone();
                tokio::spawn(async move {
                    let Ok(place) = place else { return };
                    let _ = stream.set_nodelay(true);
                    let place = Place(Arc::new(place));
                    let service = |client| for_peer(service, webhooks, hosts, client);
                    let Some(tls) = tls else {
                        let service = service(Client { peer, place, tls: None });
                        return converse(&builder, guarded(stream, &settings), service, watcher).await;
                    };
                    let accepted = tokio::select! {
                        accepted = tls.accept(stream) => accepted,
                        _ = stop.wait_for(|stop| *stop) => None,
                    };
                    let Some((stream, shown)) = accepted else { return };
                    let shown = shown.map(|shown| Arc::new(Presented::new(shown, tls)));
                    let service = service(Client { peer, place, tls: Some(shown) });
                    converse(&builder, guarded(stream, &settings), service, watcher).await;
                });
            }
            Err(error) => {
                // Out of file descriptors, say. Others will close theirs; until then, do not spin.
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
        Future = Answering,
    >,
    watcher: Watcher,
) {
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "a client's connection ended badly");
    }
}

/// Who is at the other end of a connection.
struct Client {
    peer: SocketAddr,
    place: Place,
    /// Over TLS: the certificate that it has shown, if any.
    tls: Option<Option<Arc<Presented>>>,
}

/// An answer on its way.
type Answering = Pin<Box<dyn Future<Output = Result<http::Response<Body>, BoxError>> + Send>>;

/// The service as one connection sees it: what it is asked is checked and put into one form, whichever version of
/// HTTP it came in, and knows its client.
fn for_peer(
    service: Idempotency<Proxy>,
    webhooks: Option<Arc<Webhooks>>,
    hosts: Arc<ServiceHosts>,
    client: Client,
) -> impl hyper::service::Service<
    Request<Incoming>,
    Response = http::Response<Body>,
    Error = BoxError,
    Future = Answering,
> + Clone {
    let Client { peer, place, tls } = client;
    let peer = Peer::new(peer.ip().to_canonical());
    hyper::service::service_fn(move |mut request: Request<Incoming>| {
        let mut service = service.clone();
        request.extensions_mut().insert(peer.clone());
        request.extensions_mut().insert(place.clone());
        if let Some(shown) = &tls {
            request.extensions_mut().insert(Encrypted);
            if let Some(shown) = shown {
                request.extensions_mut().insert(shown.clone());
            }
        }
        let version = request.version();
        let answering: Answering =
            match served(request, &hosts) {
                Ok(request) => match (&webhooks, request.uri().path().strip_prefix(WEBHOOKS_PATH)) {
                    (Some(webhooks), Some(name)) => {
                        let (webhooks, name) = (webhooks.clone(), name.to_owned());
                        let peer = peer.address();
                        Box::pin(async move { Ok(webhook::answer(&webhooks, &name, peer, request).await) })
                    }
                    // A stream without a window is no silence that the guard could hear.
                    _ if version == http::Version::HTTP_2 => Box::pin(async move {
                        Ok(service.call(request).await?.map(|body| paced(body, WRITE_TIME)))
                    }),
                    _ => Box::pin(async move { service.call(request).await }),
                },
                Err(problem) => {
                    let mut answer = semel_http::problem(&problem, Profile::Ietf);
                    if version <= http::Version::HTTP_11 {
                        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    }
                    Box::pin(std::future::ready(Ok(answer)))
                }
            };
        answering
    })
}

/// The request in its one form, if it asks for a host that is served.
fn served(request: Request<Incoming>, hosts: &ServiceHosts) -> Result<Request<Incoming>, Problem> {
    let request = head::normalize(request)?;
    hosts.check(request.headers())?;
    Ok(request)
}

fn guarded<S>(stream: S, settings: &Server) -> Guarded<S> {
    let limits = Limits {
        max_head: settings.max_head,
        head_timeout: settings.head_timeout,
        body_timeout: settings.body_timeout,
        idle_timeout: settings.idle_timeout,
        write_timeout: WRITE_TIME,
    };
    Guarded::new(stream, limits)
}

fn builder(settings: &Server) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // The guard has its own patience with heads, which knows when a connection is idle.
        .header_read_timeout(None)
        .max_headers(128)
        .max_buf_size(settings.max_head + 8192);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(64)
        .max_header_list_size(u32::try_from(settings.max_head).unwrap_or(u32::MAX))
        .keep_alive_interval(settings.idle_timeout)
        .keep_alive_timeout(settings.head_timeout);
    builder
}
