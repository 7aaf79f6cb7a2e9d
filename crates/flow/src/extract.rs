//! The extractor for axum: a request that the layer has read becomes a command.

use axum_core::body::Body;
use axum_core::extract::FromRequestParts;
use axum_core::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;
use semel_core::Command;

use crate::reply::Answered;

/// The command that this request asks for.
///
/// Its route must be declared as an operation with `Operation::local`, in the layer around it.
#[derive(Clone, Debug)]
pub struct Idempotent(pub Command);

impl<S: Sync> FromRequestParts<S> for Idempotent {
    type Rejection = NotRead;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Idempotent, NotRead> {
        parts.extensions.get::<Command>().cloned().map(Idempotent).ok_or(NotRead)
    }
}

/// The request was not read as a command: there is no layer around its route, no local operation that matches it, or
/// the operation lets it through without a key.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the request was not read as a command: declare its route with Operation::local, and require a key")]
pub struct NotRead;

impl IntoResponse for NotRead {
    fn into_response(self) -> Response {
        tracing::error!(error = %self, "a handler that transacts got a request without a command");
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

impl IntoResponse for Answered {
    fn into_response(self) -> Response {
        self.into_response_with(Body::empty())
    }
}
