//! Handler behind the layer: forwards requests to the upstream, and reports if they can have been executed.

mod tunnel;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use metrics::counter;
use semel_core::Problem;
use semel_core::policy::Profile;
use semel_core::problem::ProblemKind;
use semel_http::{Body, BoxError, Delivery, Execution, NotExecuted, Refetch, ScreenedBody, Share};
use semel_settings::TunnelLimits;
use tower::Service;

use crate::forward;
use crate::forwarding::Forwarding;
use crate::peer::Peer;
use crate::upgrade::Handshake;
use crate::upstream::{Purpose, SendError, Upstream};

/// `Retry-After` of a request over the limit.
const LATER: Duration = Duration::from_secs(1);

/// Place of a client's connection. It moves to a tunnel, which outlives the connection that it was made of.
#[derive(Clone)]
pub struct ConnectionPlace(pub Arc<Share>);

/// Forwards requests to the upstream.
#[derive(Clone)]
pub struct Proxy {
    upstream: Arc<Upstream>,
    /// Timeout for the response to a request that is no command; commands have their own.
    timeout: Duration,
    /// Writes the forwarding fields.
    forwarding: Arc<Forwarding>,
    tunnels: TunnelLimits,
}

impl Proxy {
    /// Makes a proxy in front of this upstream.
    pub fn new(
        upstream: Arc<Upstream>,
        timeout: Duration,
        forwarding: Arc<Forwarding>,
        tunnels: TunnelLimits,
    ) -> Proxy {
        Proxy { upstream, timeout, forwarding, tunnels }
    }
}

impl Service<Request<Body>> for Proxy {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let proxy = self.clone();
        match request.extensions_mut().remove::<Execution>() {
            Some(execution) => Box::pin(async move { proxy.carry_out(request, execution).await }),
            None => Box::pin(async move { Ok(proxy.pass_on(request).await) }),
        }
    }
}

impl Proxy {
    /// Executes a command. Its errors say if anything can have happened.
    async fn carry_out(
        &self,
        request: Request<Body>,
        execution: Execution,
    ) -> Result<Response<Body>, BoxError> {
        let (operation, id) = (execution.label().to_owned(), execution.operation_id());
        let mut cut_off = CutOff { operation: &operation, delivery: execution.delivery(), armed: true };
        let label = operation.clone();
        execution.delivery().when_late(move || failed(&label, "timed_out"));
        let (mut parts, body) = request.into_parts();
        forward::request(&mut parts, Some(&execution), None, &self.forwarding);
        let sent = self.upstream.send(Request::from_parts(parts, body), Purpose::Command(&execution)).await;
        cut_off.armed = false;
        match sent {
            // An unrequested switch of protocols gives no response, and its effect is unknown.
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                failed(&operation, "broke_off");
                Err("the upstream switched protocols without being asked".into())
            }
            Ok(response) => Ok(to_client(response)),
            Err(SendError::Overloaded) => {
                failed(&operation, "not_sent");
                Err(Box::new(NotExecuted("this caller has too many commands with the upstream".into())))
            }
            Err(SendError::NeverSent(why)) => {
                failed(&operation, "not_sent");
                tracing::warn!(why, operation, operationId = %id, "the upstream was not reached");
                Err(Box::new(NotExecuted(why)))
            }
            Err(error @ SendError::MaybeSent(_)) => {
                failed(&operation, "broke_off");
                tracing::warn!(%error, operation, operationId = %id, "the upstream broke off");
                Err(Box::new(error))
            }
        }
    }

    /// Forwards a request that is no command, upgrades included. A request for a command's resource is sent
    /// for its caller, and cannot switch protocols: the client's connection is not its own.
    async fn pass_on(&self, mut request: Request<Body>) -> Response<Body> {
        let refetch = request.extensions_mut().remove::<Refetch>();
        let client = request.extensions_mut().remove::<OnUpgrade>();
        let handshake = request.extensions_mut().remove::<Handshake>().filter(|_| refetch.is_none());
        let place = request.extensions_mut().remove::<ConnectionPlace>();
        let profile = request.extensions_mut().remove::<Profile>().unwrap_or_default();
        let answer = |problem: Problem| semel_http::problem(&problem, profile);
        let (mut parts, body) = request.into_parts();
        forward::request(&mut parts, None, handshake.as_ref(), &self.forwarding);
        if let Some(refetch) = &refetch {
            forward::name_caller(&mut parts.headers, refetch.principal());
        }
        let peer = parts.extensions.get::<Peer>().cloned();
        let purpose = match &refetch {
            Some(refetch) => Purpose::Question(refetch.principal()),
            None => Purpose::PassOn(peer.as_ref()),
        };
        let sending = self.upstream.send(Request::from_parts(parts, body), purpose);
        match tokio::time::timeout(self.timeout, sending).await {
            Ok(Ok(response)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                match (client, handshake.filter(|asked| asked.is_answered_by(response.headers()))) {
                    (Some(client), Some(handshake)) => self.switch(client, &handshake, place, response),
                    _ => {
                        failed("unmatched", "broke_off");
                        let detail = "The upstream switched to a protocol that was not requested.";
                        answer(Problem::new(ProblemKind::UpstreamFailed, detail))
                    }
                }
            }
            Ok(Ok(response)) => to_client(response),
            Ok(Err(SendError::Overloaded)) => {
                failed("unmatched", "not_sent");
                let detail = "Too many requests of this client are with the upstream. Nothing ran.";
                answer(Problem::new(ProblemKind::Overloaded, detail).retry_after(LATER))
            }
            Ok(Err(SendError::NeverSent(why))) => {
                failed("unmatched", "not_sent");
                tracing::warn!(why, "the upstream was not reached");
                let detail = "The upstream could not be reached. Nothing ran.";
                answer(Problem::new(ProblemKind::UpstreamUnreachable, detail))
            }
            Ok(Err(error @ SendError::MaybeSent(_))) => {
                failed("unmatched", "broke_off");
                tracing::warn!(%error, "the upstream broke off");
                answer(Problem::new(ProblemKind::UpstreamFailed, "The upstream broke off."))
            }
            Err(_) => {
                failed("unmatched", "timed_out");
                let problem =
                    Problem::new(ProblemKind::UpstreamFailed, "The upstream did not answer in time.");
                answer(problem.with_status(StatusCode::GATEWAY_TIMEOUT))
            }
        }
    }
}

impl Proxy {
    /// Joins the connections of the client and the upstream, once both have switched.
    fn switch(
        &self,
        client: OnUpgrade,
        handshake: &Handshake,
        place: Option<ConnectionPlace>,
        mut response: Response<Body>,
    ) -> Response<Body> {
        let (upstream, limits) = (hyper::upgrade::on(&mut response), self.tunnels);
        tokio::spawn(async move {
            // A tunnel counts as a connection.
            let _place = place;
            if let (Ok(client), Ok(upstream)) = (client.await, upstream.await) {
                tunnel::join(TokioIo::new(client), TokioIo::new(upstream), limits).await;
            }
        });
        let mut answer = Response::new(Body::default());
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *answer.headers_mut() = std::mem::take(response.headers_mut());
        forward::response(answer.headers_mut(), http::Version::HTTP_11, Some(handshake));
        answer
    }
}

/// Counts an abandoned call: its future is dropped at its timeout.
struct CutOff<'a> {
    operation: &'a str,
    delivery: &'a Delivery,
    armed: bool,
}

impl Drop for CutOff<'_> {
    fn drop(&mut self) {
        // A late answer was counted at its timeout.
        if self.armed && !self.delivery.is_late() {
            failed(self.operation, "timed_out");
        }
    }
}

fn failed(operation: &str, kind: &'static str) {
    counter!("upstream_failures_total", "operation" => operation.to_owned(), "kind" => kind).increment(1);
}

fn to_client(mut response: Response<Body>) -> Response<Body> {
    let version = response.version();
    forward::response(response.headers_mut(), version, None);
    // The client is answered in its own version, whatever the upstream speaks.
    *response.version_mut() = http::Version::HTTP_11;
    response.map(|body| Body::stream(ScreenedBody::of_response(body)))
}
