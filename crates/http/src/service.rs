//! One request from its reading to its answer, top to bottom: read, recall, claim, execute, settle, answer. Every path that a
//! request can take begins in this file, and each stage has a file of its name.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request};
use semel_core::policy::Profile;
use semel_core::{Event, Record};
use semel_faults::{Point, reached};
use tokio::time::Instant;
use tower::Service;
use tracing::Instrument;

use crate::admission;
use crate::answer::coding::Accepted;
use crate::answer::{self, Answer, AnswerDecision, problems};
use crate::body::{Body, BoxError};
use crate::claim::{self, Claimed};
use crate::command::CommandRequest;
use crate::execute;
use crate::fetch;
use crate::handler::Handler;
use crate::holds::HoldState;
use crate::local;
use crate::observe;
use crate::quotas::ReservedKey;
use crate::read::{self, RequestReading};
use crate::recall;
use crate::running::Active;
use crate::settle;
use crate::shared::Shared;
use crate::spans::CommandSpan;
use crate::wait;
use crate::worker::ByWorker;

/// A service whose commands are safe to retry. Made by [`IdempotencyLayer`](crate::IdempotencyLayer).
#[derive(Clone)]
pub struct Idempotency<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> Idempotency<S> {
    pub(crate) fn new(inner: S, shared: Arc<Shared>) -> Idempotency<S> {
        Idempotency { inner, shared }
    }

    /// Returns the profile of requests that match no operation.
    pub fn default_profile(&self) -> Profile {
        self.shared.operations.defaults().profile
    }

    /// Returns the profile of the answers to a request, for a service in front of the layer that answers it.
    pub fn profile(&self, method: &Method, path: &str) -> Profile {
        self.shared.operations.profile(method, path)
    }
}

impl<S, B, R> Service<Request<B>> for Idempotency<S>
where
    S: Service<Request<Body>, Response = http::Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError> + Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = http::Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The clone that was polled ready is the one to call; its successor is polled next time.
        let successor = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, successor);
        let shared = self.shared.clone();
        let is_grpc = answer::is_grpc(request.headers());
        if request.extensions().get().is_some_and(|ByWorker(layer)| Arc::ptr_eq(layer, &shared)) {
            // The layer's own worker was given a service with this layer around it: the command is claimed already.
            let executing = inner.call(request.map(Body::stream));
            return Box::pin(async move { Ok(executing.await?.map(Body::stream)) });
        }
        Box::pin(async move {
            let answer = match read::read(&shared, request).await {
                RequestReading::Command(command) => observed(shared, command, inner).await,
                RequestReading::PassThrough(request) => Answer::unprotected(inner.call(*request).await?),
                RequestReading::Refused(answer, about) => {
                    shared.observer.decision(&about, AnswerDecision::Refused, &answer.facts);
                    answer.decided(AnswerDecision::Refused)
                }
                RequestReading::Answered(mut answer) => {
                    // The stored result of a command is the handler's, at whichever address it is asked for.
                    answer.facts.is_document |= answer.facts.decision != Some(AnswerDecision::Replayed);
                    *answer
                }
            };
            let response = answer.into_response();
            Ok(if is_grpc { answer::as_grpc(response) } else { response })
        })
    }
}

/// Answers a command, and counts the answer. An execution counts itself, since its client may have left.
async fn observed<S, R>(shared: Arc<Shared>, command: Box<CommandRequest>, inner: S) -> Answer
where
    S: Handler<R>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let begun = Instant::now();
    let about = command.about();
    let span = command.span.clone();
    let span = span.map(|span| CommandSpan::new(span, about.operation.clone(), command.parts.method.clone()));
    let asked = fetch::head(&command);
    let accepted = Accepted::of(&command.parts.headers);
    let answer = answer(shared.clone(), command, inner).await.for_codings(&accepted);
    let answer = fetch::present(&shared, asked.as_deref(), answer).await;
    observe::added(&about, begun.elapsed().saturating_sub(answer.facts.handler_time));
    match answer.facts.decision {
        None | Some(AnswerDecision::Executed | AnswerDecision::Reacquired) => {}
        Some(decision) => shared.observer.decision(&about, decision, &answer.facts),
    }
    if let Some(span) = span {
        span.answered(answer.facts, answer.status());
    }
    answer
}

/// Answers a command: from memory, or after a claim. If the client leaves, this future ends; the task that it spawned does not.
async fn answer<S, R>(shared: Arc<Shared>, command: Box<CommandRequest>, inner: S) -> Answer
where
    S: Handler<R>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let policy = command.rule.policy.clone();
    let (id, fingerprint) = (command.command.scope.record_id(), command.command.fingerprint);
    reached(Point::RequestRead).await;
    if let Some(answer) = recall::from_memory(&shared, &id, fingerprint, &policy) {
        return answer;
    }
    if let Err(shortfall) = shared.store.tier().check(policy.needs_tier) {
        return recall::below_tier(&shared, &command, shortfall).await;
    }
    match shared.hold_on(&command.rule, Some(command.command.scope.principal())).await {
        HoldState::Free => {}
        HoldState::Held => return recall::held(&shared, &command).await,
        HoldState::NotKnown => return recall::holds_not_known(&shared, &command).await,
    }
    let Some(active) = shared.running.enter() else { return problems::shutting_down(&policy) };
    let new_key = match admission::admit(&shared, &command).await {
        Ok(new_key) => new_key,
        Err(answer) => return *answer,
    };
    // Last before the claim: the checks above may have waited for the store.
    if command.deadline.is_over() {
        return recall::overdue(&shared, &command).await;
    }
    if command.rule.local {
        let task = tokio::spawn(local::answer(shared, command, inner, active, new_key).in_current_span());
        // A handler that panicked outside of its transaction may have done so after it.
        return task.await.unwrap_or_else(|_| problems::cut_off(&policy));
    }
    if command.rule.is_async() {
        let task = tokio::spawn(claim_for_worker(shared, command, active, new_key).in_current_span());
        return task.await.unwrap_or_else(|_| problems::cut_off(&policy));
    }
    // In a box: a task is moved on its way to the runtime, and this one is large.
    let executing = Box::pin(claim_and_execute(shared.clone(), command, inner, active, new_key));
    match tokio::spawn(executing.in_current_span()).await {
        Ok(ClaimEnd::Answered(answer)) => *answer,
        Ok(ClaimEnd::Taken(record)) => {
            wait::wait(&shared, &record, Event::Look { fingerprint }, &policy).await
        }
        // Only a bug of Semel ends this task early, and it does not say whether the handler had begun.
        Err(_) => problems::cut_off(&policy),
    }
}

/// The end of a claim and what followed it.
enum ClaimEnd {
    /// The command is answered.
    Answered(Box<Answer>),
    /// Another request holds the command, in this record.
    Taken(Box<Record>),
}

/// Claims a command, and executes and settles it if it is acquired. Runs detached: a client that leaves cancels nothing.
async fn claim_and_execute<S, R>(
    shared: Arc<Shared>,
    command: Box<CommandRequest>,
    inner: S,
    _active: Active,
    new_key: ReservedKey,
) -> ClaimEnd
where
    S: Handler<R>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let acquired = match claim::claim(&shared, &command, new_key).await {
        Claimed::Acquired(acquired) => acquired,
        Claimed::Taken(record) => return ClaimEnd::Taken(record),
        Claimed::Answered(answer) => return ClaimEnd::Answered(answer),
    };
    let (_room, request) = (command.room.clone(), command.into_request());
    match execute::execute(&shared, &acquired, request, inner).await {
        Ok(executed) => ClaimEnd::Answered(Box::new(settle::settle(shared, acquired, executed).await)),
        Err(answer) => ClaimEnd::Answered(answer),
    }
}

/// Claims a command for a worker. Runs detached, like every claim.
async fn claim_for_worker(
    shared: Arc<Shared>,
    command: Box<CommandRequest>,
    _active: Active,
    new_key: ReservedKey,
) -> Answer {
    claim::claim_for_worker(&shared, &command, new_key).await
}
