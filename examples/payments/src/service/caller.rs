//! Extractor of the caller, for requests that are no commands.

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;

use super::identify;
use super::refusal::refusal;

/// Caller of a request that is no command.
pub(super) struct Caller(pub(super) String);

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller, Response> {
        let who =
            identify(parts).map_err(|_| refusal(StatusCode::UNAUTHORIZED, "who is asking? say X-User"))?;
        Ok(Caller(who.caller().to_owned()))
    }
}
