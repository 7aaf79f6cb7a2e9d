//! The client as a `tower` layer: commands in, outcomes out, over a service that sends one request.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use tower::{Layer, Service};

use crate::client::{ClientCore, CommandClient};
use crate::command::ClientCommand;
use crate::error::CallError;
use crate::outcome::CommandOutcome;
use crate::tower_transport::TowerTransport;
use crate::transport::ClientFuture;

/// Layer that turns a service which sends one request into a client. All its clients share one retry budget.
///
/// The errors of the service must have the error of hyper's client as a source; for others, there is
/// [`TowerTransport::with_fault`].
#[derive(Clone)]
pub struct CommandLayer {
    core: Arc<ClientCore>,
}

impl CommandLayer {
    pub(crate) fn new(core: Arc<ClientCore>) -> CommandLayer {
        CommandLayer { core }
    }
}

impl<S, B> Layer<S> for CommandLayer
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send,
    S::Error: Error + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Service = CommandClient;

    fn layer(&self, inner: S) -> CommandClient {
        CommandClient::new_over(Arc::clone(&self.core), Arc::new(TowerTransport::new(inner)))
    }
}

impl Service<ClientCommand> for CommandClient {
    type Response = CommandOutcome;
    type Error = CallError;
    type Future = ClientFuture<'static, Result<CommandOutcome, CallError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, command: ClientCommand) -> Self::Future {
        let client = self.clone();
        Box::pin(async move { client.send(command).await })
    }
}

impl<B: Into<Bytes>> Service<Request<B>> for CommandClient {
    type Response = CommandOutcome;
    type Error = CallError;
    type Future = ClientFuture<'static, Result<CommandOutcome, CallError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        Service::call(self, ClientCommand::from_request(request))
    }
}

impl fmt::Debug for CommandLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandLayer").finish_non_exhaustive()
    }
}
