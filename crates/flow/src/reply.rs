//! What the service's own work comes to.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use semel_core::policy::{Profile, StoreResponse};
use semel_core::problem::Kind;
use semel_core::{Policy, Problem, Response, Transacted};
use serde::Serialize;

/// A response: to the one who asked now, and to every retry.
#[derive(Clone, Debug)]
pub struct Reply {
    response: Box<Response>,
    deferral: Option<Duration>,
    stored: Option<StoreResponse>,
    problem: Option<Box<Problem>>,
}

impl Reply {
    /// A response without a body.
    pub fn new(status: StatusCode) -> Reply {
        let response = Response {
            status,
            headers: HeaderMap::new(),
            body: Some(Bytes::new()),
            trailers: HeaderMap::new(),
        };
        Reply { response: Box::new(response), deferral: None, stored: None, problem: None }
    }

    /// A response with a body of JSON. One that cannot be written as JSON becomes a failure that rolls everything
    /// back.
    pub fn json(status: StatusCode, value: &impl Serialize) -> Result<Reply, Failure> {
        let body = serde_json::to_vec(value)?;
        Ok(Reply::new(status).header(CONTENT_TYPE, HeaderValue::from_static("application/json")).body(body))
    }

    /// The same with one more header field.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Reply {
        self.response.headers.append(name, value);
        self.problem = None;
        self
    }

    /// The same with this body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Reply {
        self.response.body = Some(body.into());
        self.problem = None;
        self
    }

    /// The same for now only: what the command comes to is left to a message that its work has pushed. Whoever delivers
    /// that calls `settle` with the final response, within this time. Until then retries get 202 and an address to ask at;
    /// after it the outcome is unknown, and `settle` may still say it.
    pub fn deferred(self, time: Duration) -> Reply {
        Reply { deferral: Some(time), ..self }
    }

    /// The same, of which this much is stored, whatever its operation wants. The one who asks now gets all of it.
    ///
    /// A response that settles a command later, by `settle` or `resolve`, needs this: what its operation wants is with the
    /// layer, and not with the record.
    pub fn stored_as(self, stored: StoreResponse) -> Reply {
        Reply { stored: Some(stored), ..self }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.response.status
    }

    pub(crate) fn deferral(&self) -> Option<Duration> {
        self.deferral
    }

    /// As retries get it: without what is not to be kept, or would be too large.
    pub(crate) fn kept(&self, policy: &Policy) -> Response {
        let Response { status, headers, body, trailers } = &*self.response;
        let stored = self.stored.unwrap_or(policy.store_response);
        policy.keep_as(stored, *status, headers, Some(body.as_ref().unwrap_or(&Bytes::new())), trailers)
    }

    /// Nothing happened, and it is not the client's fault.
    pub(crate) fn rolled_back() -> Reply {
        let detail = "The command failed before it took effect. Nothing happened.";
        let problem = Problem::new(Kind::RolledBack, detail);
        let reply = Reply::new(problem.status(Profile::Ietf)).body(problem.to_json(Profile::Ietf));
        let fields = problem.header_fields(Profile::Ietf);
        let reply = fields.into_iter().fold(reply, |reply, (name, value)| reply.header(name, value));
        Reply { problem: Some(Box::new(problem)), ..reply }
    }

    /// Returns the problem that this reply tells in place of an answer of the service.
    pub(crate) fn problem(&self) -> Option<Box<Problem>> {
        self.problem.clone()
    }

    /// As the one who asked gets it.
    pub(crate) fn whole(&self) -> Box<Response> {
        self.response.clone()
    }
}

impl From<http::Response<Bytes>> for Reply {
    fn from(response: http::Response<Bytes>) -> Reply {
        let (parts, body) = response.into_parts();
        let mut reply = Reply::new(parts.status).body(body);
        reply.response.headers = parts.headers;
        reply
    }
}

/// Work that failed. Either way its writes are taken back.
#[derive(Debug)]
pub enum Failure {
    /// For good: the answer is kept, and retries get it. A declined card, an account without funds.
    Final(Reply),
    /// For now: nothing is kept, and the same key may be sent again. A lost connection, a deadlock.
    Retryable(Reply),
}

impl Failure {
    /// For good, with a body of JSON.
    pub fn refuse(status: StatusCode, value: &impl Serialize) -> Failure {
        match Reply::json(status, value) {
            Ok(reply) => Failure::Final(reply),
            Err(failure) => failure,
        }
    }
}

/// An error is a failure for now: it is logged, and the client is told 500 and no more.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        tracing::error!(%error, "a command failed and was rolled back");
        Failure::Retryable(Reply::rolled_back())
    }
}

/// What became of a command. The layer around the handler makes the client's answer of it.
#[derive(Clone, Debug)]
pub struct Answered(Transacted);

impl Answered {
    pub(crate) fn new(transacted: Transacted) -> Answered {
        Answered(transacted)
    }

    /// What became of it, for code that is no HTTP handler.
    pub fn outcome(&self) -> &Transacted {
        &self.0
    }

    /// A response that carries it to the layer, which replaces everything else about it.
    pub fn into_response_with<B>(self, body: B) -> http::Response<B> {
        let mut response = http::Response::new(body);
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response.extensions_mut().insert(self.0);
        response
    }
}

#[cfg(feature = "axum")]
impl axum_core::response::IntoResponse for Answered {
    fn into_response(self) -> axum_core::response::Response {
        self.into_response_with(axum_core::body::Body::empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_may_say_itself_how_much_of_it_is_stored() {
        let reply = Reply::new(StatusCode::CREATED).body("all of it");
        let location = (http::header::LOCATION, HeaderValue::from_static("/payments/7"));
        let reply = reply.header(location.0, location.1);
        let policy = Policy::default();
        assert_eq!(reply.kept(&policy).body.as_deref(), Some(&b"all of it"[..]));
        let reply = reply.stored_as(StoreResponse::Reference);
        assert_eq!((reply.kept(&policy).body, reply.kept(&policy).resource()), (None, Some("/payments/7")));
        assert_eq!(reply.whole().body.as_deref(), Some(&b"all of it"[..]), "whoever asks now gets all of it");
    }
}
