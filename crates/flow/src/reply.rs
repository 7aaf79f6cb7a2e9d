//! Results of the service's own work: replies and failures.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use semel_core::policy::{Profile, StoreResponse};
use semel_core::problem::ProblemKind;
use semel_core::{OperationId, Policy, Problem, Response, Transacted};
#[cfg(feature = "axum")]
use semel_core::{Outcome, is_server_error};
use serde::Serialize;

/// A response: to the current request, and to every retry.
#[derive(Clone, Debug)]
pub struct Reply {
    response: Box<Response>,
    deferral: Option<Duration>,
    stored: Option<StoreResponse>,
    problem: Option<Box<Problem>>,
}

impl Reply {
    /// Creates a response without a body.
    pub fn new(status: StatusCode) -> Reply {
        let response = Response {
            status,
            headers: HeaderMap::new(),
            body: Some(Bytes::new()),
            trailers: HeaderMap::new(),
        };
        Reply { response: Box::new(response), deferral: None, stored: None, problem: None }
    }

    /// Creates a response with a JSON body. A value that cannot be serialized becomes a failure that rolls everything
    /// back.
    pub fn json(status: StatusCode, value: &impl Serialize) -> Result<Reply, Failure> {
        let body = serde_json::to_vec(value)?;
        Ok(Reply::new(status).header(CONTENT_TYPE, HeaderValue::from_static("application/json")).body(body))
    }

    /// Adds a header field.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Reply {
        self.response.headers.append(name, value);
        self.problem = None;
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Reply {
        self.response.body = Some(body.into());
        self.problem = None;
        self
    }

    /// Defers the outcome to a message that the work has pushed; this reply is the answer for now. The sink of the
    /// message calls `settle` with the final response, within `time`. Until then retries get 202 and a status address;
    /// after it the outcome is unknown, and `settle` may still set it.
    pub fn deferred(self, time: Duration) -> Reply {
        Reply { deferral: Some(time), ..self }
    }

    /// Sets how much of this reply is stored, in place of its operation's setting. The current request gets the whole
    /// reply.
    ///
    /// A response that settles a command later, by `settle` or `resolve`, needs this: the layer holds the operation's
    /// setting, and the record does not.
    pub fn stored_as(self, stored: StoreResponse) -> Reply {
        Reply { stored: Some(stored), ..self }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.response.status
    }

    pub(crate) fn deferral(&self) -> Option<Duration> {
        self.deferral
    }

    /// Returns the reply as it is stored for retries: without the parts that the policy drops, or a body that is too
    /// large.
    pub(crate) fn kept(&self, policy: &Policy) -> Response {
        let Response { status, headers, body, trailers } = &*self.response;
        let stored = self.stored.unwrap_or(policy.store_response);
        policy.keep_as(stored, *status, headers, Some(body.as_ref().unwrap_or(&Bytes::new())), trailers)
    }

    /// Returns the reply for a command that was rolled back by an internal failure.
    pub(crate) fn rolled_back() -> Reply {
        let detail = "The command failed before it took effect. Nothing happened.";
        let problem = Problem::new(ProblemKind::RolledBack, detail);
        let reply = Reply::new(problem.status(Profile::Ietf)).body(problem.to_json(Profile::Ietf));
        let fields = problem.header_fields(Profile::Ietf);
        let reply = fields.into_iter().fold(reply, |reply, (name, value)| reply.header(name, value));
        Reply { problem: Some(Box::new(problem)), ..reply }
    }

    /// Returns the problem document that this reply carries, if any.
    pub(crate) fn problem(&self) -> Option<Box<Problem>> {
        self.problem.clone()
    }

    /// Returns the reply as the current request gets it.
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

/// Response type of work: a [`Reply`] or, with the feature `axum`, every `IntoResponse`.
pub trait IntoReply {
    /// Returns the reply.
    ///
    /// # Errors
    /// If the body is not complete in memory: a stream cannot be stored in the transaction.
    fn into_reply(self) -> Result<Reply, Failure>;
}

#[cfg(not(feature = "axum"))]
impl IntoReply for Reply {
    fn into_reply(self) -> Result<Reply, Failure> {
        Ok(self)
    }
}

/// A [`Reply`] keeps its deferral and its stored form. Any other response that is a server error, or says with an `Outcome` that
/// nothing is final, is a failure: its writes are rolled back.
#[cfg(feature = "axum")]
impl<T: axum_core::response::IntoResponse> IntoReply for T {
    fn into_reply(self) -> Result<Reply, Failure> {
        use http_body_util::BodyExt;

        let (mut parts, body) = self.into_response().into_parts();
        if parts.extensions.get::<Outcome>().is_some() || parts.extensions.get::<Transacted>().is_some() {
            return Err(Failure::unexpected("work returned a response about another execution"));
        }
        let terms = parts.extensions.remove::<ReplyTerms>();
        let mut collecting = std::pin::pin!(body.collect());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let std::task::Poll::Ready(body) = collecting.as_mut().poll(&mut context) else {
            return Err(Failure::unexpected("the body of a stored response is a stream"));
        };
        let body = body.map_err(Failure::unexpected)?.to_bytes();
        let reply = Reply::from(http::Response::from_parts(parts, body));
        match terms {
            Some(ReplyTerms { deferral, stored }) => Ok(Reply { deferral, stored, ..reply }),
            None if is_server_error(reply.status()) => Err(Failure::Retryable(reply)),
            None => Ok(reply),
        }
    }
}

/// The parts of a [`Reply`] that an HTTP response does not have, in its extensions.
#[cfg(feature = "axum")]
#[derive(Clone, Debug)]
struct ReplyTerms {
    deferral: Option<Duration>,
    stored: Option<StoreResponse>,
}

#[cfg(feature = "axum")]
impl axum_core::response::IntoResponse for Reply {
    fn into_response(self) -> axum_core::response::Response {
        let Response { status, headers, body, .. } = *self.response;
        let mut response = axum_core::response::Response::new(body.unwrap_or_default().into());
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response.extensions_mut().insert(ReplyTerms { deferral: self.deferral, stored: self.stored });
        response
    }
}

/// Failure of the work. Its writes are rolled back in every case.
#[derive(Debug)]
#[non_exhaustive]
pub enum Failure {
    /// A permanent refusal, such as a declined card: the reply is stored, and retries get it.
    Final(Reply),
    /// A temporary failure: nothing is stored, and the same key may be sent again.
    Retryable(Reply),
    /// An error: it is logged, nothing is stored, and the client gets a bare 500.
    Unexpected(Box<dyn std::error::Error + Send + Sync>),
}

impl Failure {
    /// Refuses permanently, with a JSON body.
    pub fn refuse(status: StatusCode, value: &impl Serialize) -> Failure {
        match Reply::json(status, value) {
            Ok(reply) => Failure::Final(reply),
            Err(failure) => failure,
        }
    }

    /// Fails with an error that does not implement `std::error::Error`, such as a text.
    pub fn unexpected(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
        Failure::Unexpected(error.into())
    }

    /// Logs an unexpected error of this command's work, and returns the reply.
    pub(crate) fn logged(self, operation_id: OperationId) -> FailedReply {
        match self {
            Failure::Final(reply) => FailedReply { reply, is_final: true },
            Failure::Retryable(reply) => FailedReply { reply, is_final: false },
            Failure::Unexpected(error) => {
                tracing::error!(%operation_id, %error, "a command failed and was rolled back");
                FailedReply { reply: Reply::rolled_back(), is_final: false }
            }
        }
    }
}

/// The reply of work that failed.
#[derive(Debug)]
pub(crate) struct FailedReply {
    pub(crate) reply: Reply,
    /// True if the reply is stored for retries.
    pub(crate) is_final: bool,
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::Unexpected(Box::new(error))
    }
}

/// Outcome of a command. The layer around the handler turns it into the client's response.
#[derive(Clone, Debug)]
pub struct Answered(Transacted);

impl Answered {
    pub(crate) fn new(transacted: Transacted) -> Answered {
        Answered(transacted)
    }

    /// Returns the outcome, for code that is no HTTP handler.
    pub fn outcome(&self) -> &Transacted {
        &self.0
    }

    /// Returns a response that carries the outcome to the layer, which replaces everything else in it.
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
    fn reply_overrides_how_much_of_it_is_stored() {
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
