//! Entry rules for requests of every HTTP version. The listener applies them before any other code reads the
//! request.

pub mod cors;
pub mod head;
pub mod pass;
mod trace;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Either, Empty};
use semel_core::Problem;
use semel_core::problem::ProblemKind;
use semel_http::{BoxError, WholeBody};
use semel_settings::{Exemption, UpgradeProtocol, has_no_body};
use semel_traces::Sampler;

use self::cors::Cors;
use self::pass::Passes;
use crate::forwarding::Forwarding;
use crate::hosts::ServiceHosts;
use crate::peer::Peer;
use crate::upgrade::Handshake;

/// Body of an admitted request: its own, or none.
pub type EntryBody<B> = Either<Empty<Bytes>, B>;

/// Rules for every request.
pub struct EntryRules {
    /// Names of the service.
    pub hosts: Arc<ServiceHosts>,
    /// Origins whose pages may read the gateway's own answers.
    pub cors: Cors,
    /// Rules that determine the address of the client.
    pub forwarding: Arc<Forwarding>,
    /// Routes with exemptions.
    pub passes: Passes,
    /// Protocols that a connection may switch to.
    pub upgrade: Vec<UpgradeProtocol>,
    /// Timeout for reading a body that must be empty.
    pub body_timeout: Duration,
    /// Sampling decision about traces of untrusted peers, if requests are traced.
    pub sampler: Option<Sampler>,
}

impl EntryRules {
    /// Returns the request in its normal form, if it follows the rules.
    pub async fn admit<B>(&self, request: Request<B>) -> Result<Request<EntryBody<B>>, Problem>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: Into<BoxError>,
    {
        let mut request = head::normalize(request)?;
        self.hosts.check(request.headers())?;
        if let Some(sampler) = self.sampler {
            let peer: Option<&Peer> = request.extensions().get();
            let is_trusted = peer.is_some_and(|peer| self.forwarding.trusts(peer.address()));
            trace::normalize(request.headers_mut(), is_trusted, sampler);
        }
        let handshake = Handshake::read(&request, &self.upgrade)?;
        let (method, path) = (request.method(), request.uri().path());
        let may_have_body = !has_no_body(method)
            || (handshake.is_none() && self.passes.allows(method, path, Exemption::Body));
        if may_have_body {
            return Ok(request.map(Either::Right));
        }
        let mut request = self.without_body(request).await?;
        if let Some(handshake) = handshake {
            request.extensions_mut().insert(handshake);
        }
        Ok(request)
    }

    /// Returns the request without its body, which must be empty: an upstream that leaves a body unread may
    /// take it for the next request. The body is read to its end first, so that an incomplete body is never
    /// passed on as none.
    async fn without_body<B>(&self, request: Request<B>) -> Result<Request<EntryBody<B>>, Problem>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: Into<BoxError>,
    {
        let (mut parts, body) = request.into_parts();
        if body.size_hint().lower() > 0 {
            return Err(unwanted());
        }
        if !body.is_end_stream() {
            let reading = read_nothing(WholeBody::new(parts.version, body));
            tokio::time::timeout(self.body_timeout, reading).await.unwrap_or_else(|_| {
                let detail = "The body did not come to an end in time.";
                let problem = Problem::new(ProblemKind::RequestIncomplete, detail);
                Err(problem.with_status(StatusCode::REQUEST_TIMEOUT))
            })?;
        }
        parts.headers.remove(CONTENT_LENGTH);
        Ok(Request::from_parts(parts, Either::Left(Empty::new())))
    }
}

fn unwanted() -> Problem {
    let detail = "A request of this method must not have a body or trailers, unless the gateway allows them for \
                  its route.";
    Problem::new(ProblemKind::MalformedRequest, detail)
}

/// Reads a body that must be empty, trailers included.
async fn read_nothing<B>(mut body: WholeBody<B>) -> Result<(), Problem>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) if frame.data_ref().is_some_and(Bytes::is_empty) => {}
            Ok(_) => return Err(unwanted()),
            Err(_) => {
                return Err(Problem::new(
                    ProblemKind::RequestIncomplete,
                    "The body broke off before its end.",
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http::{HeaderMap, Method, Version};
    use http_body::{Body as _, Frame};
    use semel_settings::{ForwardedMode, ProxyRange};

    use super::*;

    /// Frames in order, then the end of the body or silence.
    struct Frames(VecDeque<Option<Frame<Bytes>>>, bool);

    impl http_body::Body for Frames {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            match self.0.pop_front() {
                Some(Some(frame)) => Poll::Ready(Some(Ok(frame))),
                Some(None) => Poll::Ready(Some(Err("broken".into()))),
                None if self.1 => Poll::Pending,
                None => Poll::Ready(None),
            }
        }
    }

    fn rules(trusted: Vec<ProxyRange>, sampler: Option<Sampler>) -> EntryRules {
        let pass = [(&Method::GET, "/search", &[Exemption::Body][..])];
        EntryRules {
            hosts: Arc::default(),
            cors: Cors::default(),
            forwarding: Arc::new(Forwarding::new(ForwardedMode::Set, trusted, Arc::default())),
            passes: Passes::new(pass).expect("it is alone"),
            upgrade: Vec::new(),
            body_timeout: Duration::from_secs(1),
            sampler,
        }
    }

    async fn admitted(
        method: Method,
        frames: Vec<Option<Frame<Bytes>>>,
        stalls: bool,
    ) -> Result<bool, ProblemKind> {
        let rules = rules(Vec::new(), None);
        let uri = if stalls { "/slow" } else { "/" };
        let request = Request::builder().method(method).uri(uri).version(Version::HTTP_11);
        let request = request.body(Frames(frames.into(), stalls)).expect("it is valid");
        rules.admit(request).await.map(|request| request.body().is_end_stream()).map_err(|p| p.kind)
    }

    fn data(bytes: &'static str) -> Option<Frame<Bytes>> {
        Some(Frame::data(Bytes::from_static(bytes.as_bytes())))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_or_trailers_on_get_head_options_or_trace_are_refused() {
        for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE] {
            let with = |frames| admitted(method.clone(), frames, false);
            assert_eq!(with(vec![]).await, Ok(true), "{method}");
            assert_eq!(with(vec![data(""), data("")]).await, Ok(true), "{method}");
            assert_eq!(with(vec![data(""), data("x")]).await, Err(ProblemKind::MalformedRequest), "{method}");
            let trailers = Some(Frame::trailers(HeaderMap::new()));
            assert_eq!(with(vec![trailers]).await, Err(ProblemKind::MalformedRequest), "{method}");
            assert_eq!(with(vec![data(""), None]).await, Err(ProblemKind::RequestIncomplete), "{method}");
            let stalled = admitted(method.clone(), vec![data("")], true).await;
            assert_eq!(stalled, Err(ProblemKind::RequestIncomplete), "{method}");
        }
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            assert_eq!(admitted(method, vec![data("x")], false).await, Ok(false));
        }
    }

    #[tokio::test]
    async fn only_a_trusted_proxy_decides_whether_its_trace_is_recorded() {
        const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        let nothing = Some(Sampler::new(0));
        for (peer, sampler, expected) in [
            (Some([10, 0, 0, 7]), nothing, SAMPLED),
            (Some([192, 0, 2, 1]), nothing, UNSAMPLED),
            (None, nothing, UNSAMPLED),
            (Some([192, 0, 2, 1]), None, SAMPLED),
        ] {
            let rules = rules(vec![ProxyRange::new([10, 0, 0, 0].into(), 8)], sampler);
            let request = Request::builder().uri("/").header("traceparent", SAMPLED);
            let mut request = request.body(Frames(VecDeque::new(), false)).expect("it is valid");
            if let Some(address) = peer {
                request.extensions_mut().insert(Peer::new(address.into()));
            }
            let admitted = rules.admit(request).await.unwrap_or_else(|_| panic!("it follows the rules"));
            assert_eq!(admitted.headers()["traceparent"], expected, "{peer:?} {sampler:?}");
        }
        let request = Request::builder().uri("/").header("traceparent", "x").header("tracestate", "a=b");
        let request = request.body(Frames(VecDeque::new(), false)).expect("it is valid");
        let admitted =
            rules(Vec::new(), None).admit(request).await.unwrap_or_else(|_| panic!("it is admitted"));
        assert_eq!(admitted.headers().len(), 2, "nothing is read if nothing is traced");
    }
}
