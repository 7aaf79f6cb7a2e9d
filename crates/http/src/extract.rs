//! The extractors for axum: the command of a request whose handler transacts, and the execution of any other.
//!
//! Invariant: a request that an extractor refuses has not been run, and its answer says so to the layer.

use axum_core::body::Body;
use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
use axum_core::response::{IntoResponse, Response};
use http::request::Parts;
use semel_core::policy::Profile;
use semel_core::problem::ProblemKind;
use semel_core::{Command, Outcome, Problem};

use crate::{Execution, problem};

/// The command that this request asks for.
///
/// Its route must be declared as an operation with `Operation::local`, in the layer around it.
#[derive(Clone, Debug)]
pub struct Idempotent(pub Command);

impl<S: Sync> FromRequestParts<S> for Idempotent {
    type Rejection = NotRead;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Idempotent, NotRead> {
        match (parts.extensions.get::<Command>(), parts.extensions.get::<Execution>()) {
            (Some(command), _) => Ok(Idempotent(command.clone())),
            (None, Some(execution)) => Err(NotRead::NotLocal(execution.operation().to_string())),
            (None, None) => Err(NotRead::NoCommand),
        }
    }
}

/// The reason why a request has no command for a handler that transacts. Nothing ran: the layer releases the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRead {
    /// The layer executes this operation itself.
    #[error(
        "the handler transacts, and its operation {0:?} is not declared local: declare its route with `Operation::new(…).local()`"
    )]
    NotLocal(String),
    /// No layer has read the request as a command.
    #[error(
        "the handler transacts, and no layer has read the request as a command: put an `IdempotencyLayer` around the route, and \
         require a key"
    )]
    NoCommand,
}

impl IntoResponse for NotRead {
    fn into_response(self) -> Response {
        tracing::error!(error = %self, "a handler that transacts got a request without a command");
        not_executed(&self.to_string())
    }
}

/// The execution that a handler is part of: its operation id, its attempt, its lease.
///
/// For operations that the layer executes, which are all that are not declared with `Operation::local`. Where a key is optional,
/// take an `Option<CurrentExecution>`: a request without a key has none.
///
/// ```
/// use axum::{Router, http::StatusCode, routing::post};
/// use semel_http::CurrentExecution;
///
/// async fn charge(CurrentExecution(execution): CurrentExecution) -> Result<String, StatusCode> {
///     let key = execution.downstream_key("charge"); // the same in every attempt
///     Ok(format!("charged under {key}"))
/// }
///
/// let app: Router = Router::new().route("/payments", post(charge));
/// ```
#[derive(Clone, Debug)]
pub struct CurrentExecution(pub Execution);

impl<S: Sync> FromRequestParts<S> for CurrentExecution {
    type Rejection = NoExecution;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<CurrentExecution, NoExecution> {
        match (parts.extensions.get::<Execution>(), parts.extensions.get::<Command>()) {
            (Some(execution), _) => Ok(CurrentExecution(execution.clone())),
            (None, Some(command)) => Err(NoExecution::Local(command.scope.operation().to_string())),
            (None, None) => Err(NoExecution::NotProtected),
        }
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for CurrentExecution {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        _: &S,
    ) -> Result<Option<CurrentExecution>, Self::Rejection> {
        Ok(parts.extensions.get::<Execution>().cloned().map(CurrentExecution))
    }
}

/// The reason why a request has no execution. Nothing ran.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoExecution {
    /// Its operation is local: the handler executes it.
    #[error("the operation {0:?} is declared local: its handler takes an `Idempotent`, and transacts")]
    Local(String),
    /// No layer executes the request as a command.
    #[error(
        "no layer executes the request as a command: put an `IdempotencyLayer` around the route, and require a key or take an \
         `Option<CurrentExecution>`"
    )]
    NotProtected,
}

impl IntoResponse for NoExecution {
    fn into_response(self) -> Response {
        tracing::error!(error = %self, "a handler got a request without an execution");
        not_executed(&self.to_string())
    }
}

/// The answer to a request that never reached its handler.
fn not_executed(detail: &str) -> Response {
    let rolled_back = Problem::new(ProblemKind::RolledBack, detail);
    let mut response = problem(&rolled_back, Profile::Ietf).map(Body::new);
    response.extensions_mut().insert(Outcome::NotExecuted);
    response
}
