//! The transport over a `tower` service that sends one request, such as the client of `hyper-util`.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use tower::Service;

use crate::body::read_whole;
use crate::fault::fault_of;
use crate::response::CommandResponse;
use crate::transport::{AttemptFault, AttemptRequest, ClientFuture, Transport};

/// Function that reads the errors of a service.
type FaultReader<E> = Arc<dyn Fn(&E) -> AttemptFault + Send + Sync>;

/// Transport over a service, which is cloned for each attempt. The service must follow no redirect, and repeat nothing.
pub struct TowerTransport<S, E> {
    service: S,
    fault: FaultReader<E>,
}

impl<S, E> TowerTransport<S, E>
where
    E: Error + 'static,
{
    /// Makes a transport over the client of `hyper-util`, or over a service whose errors have its error as a source.
    /// Any other error counts as lost after sending.
    pub fn new(service: S) -> TowerTransport<S, E> {
        TowerTransport::with_fault(service, |error: &E| fault_of(error, was_connected(error)))
    }
}

impl<S, E> TowerTransport<S, E> {
    /// Makes a transport over a service with errors of its own. The function must say [`AttemptFault::Lost`] unless it
    /// is sure that nothing was sent.
    pub fn with_fault(
        service: S,
        fault: impl Fn(&E) -> AttemptFault + Send + Sync + 'static,
    ) -> TowerTransport<S, E> {
        TowerTransport { service, fault: Arc::new(fault) }
    }
}

/// Returns false if hyper's client says that it had no connection.
fn was_connected(error: &(dyn Error + 'static)) -> bool {
    let mut current = Some(error);
    while let Some(error) = current {
        if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
            return !error.is_connect();
        }
        current = error.source();
    }
    true
}

impl<S, E, B> Transport for TowerTransport<S, E>
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = E> + Clone + Send + Sync + 'static,
    S::Future: Send,
    E: Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    fn send(&self, request: AttemptRequest) -> ClientFuture<'_, Result<CommandResponse, AttemptFault>> {
        let mut service = self.service.clone();
        Box::pin(async move {
            let AttemptRequest { method, url, headers, body, response_bound, .. } = request;
            let mut built = Request::new(Full::new(body));
            *built.method_mut() = method;
            // An address that hyper cannot read is not sent.
            *built.uri_mut() = url.as_str().parse().map_err(|_| AttemptFault::Connect)?;
            *built.headers_mut() = headers;
            poll_fn(|context| service.poll_ready(context)).await.map_err(|error| (self.fault)(&error))?;
            let answer = service.call(built).await.map_err(|error| (self.fault)(&error))?;
            let (head, body) = answer.into_parts();
            read_whole(head, body, response_bound).await
        })
    }
}

impl<S, E> fmt::Debug for TowerTransport<S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TowerTransport").finish_non_exhaustive()
    }
}
