//! A way to ask the service behind the layer for anything, whatever its type.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use http::Request;
use tower::Service;

use crate::answer::Answer;
use crate::body::{Body, BoxError};

/// Asks the service.
pub(crate) type Ask = dyn Fn(Request<Body>) -> Asking + Send + Sync;

/// The response of the service, once it is there.
pub(crate) type Asking = Pin<Box<dyn Future<Output = Result<http::Response<Body>, BoxError>> + Send>>;

/// Returns a function that asks this service. Any number of requests may be asked at a time.
pub(crate) fn asking<S, R>(service: S) -> Box<Ask>
where
    S: Service<Request<Body>, Response = http::Response<R>> + Clone + Send + Sync + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    Box::new(move |request| {
        let mut service = service.clone();
        Box::pin(async move {
            std::future::poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
            let response = service.call(request).await.map_err(Into::into)?;
            Ok(Answer::unprotected(response).into_response())
        })
    })
}
