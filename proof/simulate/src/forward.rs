//! Service behind a node's layer: forwards commands to the provider and looks them up there. Like the gateway, it
//! checks its lease right before the call.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use http_body_util::BodyExt as _;
use semel_checker::event::Command;
use semel_core::Record;
use semel_flow::reconcile::{Finding, LookUp};
use semel_http::{Body, BoxError, Execution, NotExecuted};

use crate::broken::Broken;
use crate::port::{Answer, Call, Port, Question, Reply};
use crate::settings::millis;

/// Forwards commands to the provider.
#[derive(Clone)]
pub(crate) struct Forward {
    pub(crate) port: Arc<Port>,
    pub(crate) broken: Option<Broken>,
}

impl tower::Service<http::Request<Body>> for Forward {
    type Response = http::Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(forward(self.clone(), request))
    }
}

async fn forward(forward: Forward, request: http::Request<Body>) -> Result<http::Response<Body>, BoxError> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let document: serde_json::Value = serde_json::from_slice(&body)?;
    let text = |name: &str| document[name].as_str().map(str::to_owned);
    let execution = parts.extensions.get::<Execution>().ok_or("nobody has claimed this")?;
    let key = parts.headers.get("idempotency-key").and_then(|value| value.to_str().ok());
    let call = Call {
        operation_id: execution.operation_id().to_string(),
        attempt: execution.attempt(),
        command: Command {
            tenant: execution.principal().tenant().to_owned(),
            caller: execution.principal().caller().to_owned(),
            operation: execution.operation().to_string(),
            key: key.unwrap_or_default().to_owned(),
        },
        canary: text("canary").unwrap_or_default(),
        reference: text("reference"),
    };
    execution.check_lease()?;
    let mut answer = ask(&forward, &call).await;
    if forward.broken == Some(Broken::SecondCall) && matches!(answer, Answer::Broken) {
        answer = ask(&forward, &call).await;
    }
    match answer {
        Answer::Provider(Reply { status, headers, body }) => {
            let mut response = http::Response::new(Body::full(body));
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            Ok(response)
        }
        Answer::Refused => Err(Box::new(NotExecuted("the provider is not there".into()))),
        Answer::Store(_) | Answer::Found(_) | Answer::Broken => Err("the provider broke off".into()),
    }
}

async fn ask(forward: &Forward, call: &Call) -> Answer {
    let asking = forward.port.ask(Question::Provider(call.clone()));
    match forward.broken {
        Some(Broken::SecondCall) => tokio::time::timeout(millis(500), asking).await.unwrap_or(Answer::Broken),
        _ => asking.await,
    }
}

/// Looks up the outcome of a command at the provider.
pub(crate) struct AskProvider(pub(crate) Arc<Port>);

#[async_trait]
impl LookUp for AskProvider {
    async fn look_up(&self, record: &Record) -> Finding {
        match self.0.ask(Question::LookUp(Box::new(record.clone()))).await {
            Answer::Found(found) => Finding::new(found, "the provider's ledger"),
            Answer::Store(_) | Answer::Provider(_) | Answer::Refused | Answer::Broken => {
                Finding::no_answer("no connection")
            }
        }
    }
}
