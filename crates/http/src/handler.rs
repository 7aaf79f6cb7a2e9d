//! The service behind the layer, as the stages of a request see it.

use http::Request;
use tower::Service;

use crate::body::{Body, BoxError};

/// A service that can execute commands.
pub(crate) trait Handler<R>:
    Service<Request<Body>, Response = http::Response<R>, Future: Send, Error: Into<BoxError>> + Send + 'static
{
}

impl<S, R> Handler<R> for S where
    S: Service<Request<Body>, Response = http::Response<R>, Future: Send, Error: Into<BoxError>>
        + Send
        + 'static
{
}
