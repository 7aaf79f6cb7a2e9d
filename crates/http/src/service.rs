//! One command from its request to its answer, top to bottom: read, look in memory, claim, then execute, wait,
//! replay or refuse. Every way that a request can go begins in this file.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use semel_core::event::Refusal;
use semel_core::policy::Profile;
use semel_core::{
    Answer as StoreAnswer, Claim, Decision, Event, Policy, Reason, Record, StoreError, Timestamp, transition,
};
use semel_faults::{Point, reached};
use tokio::time::Instant;
use tower::Service;
use tracing::Instrument;

use crate::answer::coding::Accepted;
use crate::answer::{self, Answer, AnswerDecision, problems, replay};
use crate::body::{Body, BoxError};
use crate::command::CommandRequest;
use crate::execute::{self, Acquired, Handler};
use crate::execution::Asked;
use crate::fetch;
use crate::layer::Shared;
use crate::local;
use crate::observe;
use crate::operations::Rule;
use crate::quotas::{self, Admission};
use crate::request::{self, Reading};
use crate::running::Active;
use crate::settle::{self, Unexecuted};
use crate::shortfall;
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

    /// Returns the profile of what matches no operation.
    pub fn default_profile(&self) -> Profile {
        self.shared.operations.defaults().profile
    }

    /// Returns the profile of the answers to a request, for whoever answers it in front of the layer.
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
            // Our own worker was given a service with this layer around it: what it carries out is claimed already.
            let carried_out = inner.call(request.map(Body::stream));
            return Box::pin(async move { Ok(carried_out.await?.map(Body::stream)) });
        }
        Box::pin(async move {
            let answer = match request::read(&shared, request).await {
                Reading::Command(command) => observed(shared, command, inner).await,
                Reading::PassThrough(request) => Answer::unprotected(inner.call(*request).await?),
                Reading::Refused(answer, about) => {
                    observe::decision(&shared.labels, &about, AnswerDecision::Refused, &answer.facts);
                    answer.decided(AnswerDecision::Refused)
                }
                Reading::Answered(mut answer) => {
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

/// Answers a command, and counts how. What is executed counts itself, since nobody may be left to hear of it.
async fn observed<S, R>(shared: Arc<Shared>, command: Box<CommandRequest>, inner: S) -> Answer
where
    S: Handler<R>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let begun = Instant::now();
    let about = command.about();
    let asked = fetch::head(&command);
    let accepted = Accepted::of(&command.parts.headers);
    let answer = answer(shared.clone(), command, inner).await.for_codings(&accepted);
    let answer = fetch::present(&shared, asked.as_deref(), answer).await;
    observe::added(&about, begun.elapsed().saturating_sub(answer.facts.handler_time));
    match answer.facts.decision {
        None | Some(AnswerDecision::Executed | AnswerDecision::Reacquired) => {}
        Some(decision) => observe::decision(&shared.labels, &about, decision, &answer.facts),
    }
    answer
}

/// Answers a command. If the client goes away, this future ends; the task it spawned does not.
async fn answer<S, R>(shared: Arc<Shared>, command: Box<CommandRequest>, inner: S) -> Answer
where
    S: Handler<R>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let policy = command.rule.policy.clone();
    let (id, fingerprint) = (command.command.scope.record_id(), command.command.fingerprint);
    reached(Point::RequestRead).await;
    match shared.cache.look(&id, fingerprint) {
        Some((Decision::Mismatch, _)) => return problems::mismatch(&policy),
        Some((_, settled)) => return replay::replay_from_memory(&settled, &policy),
        None => {}
    }
    if let Err(shortfall) = shared.store.tier().check(policy.needs_tier) {
        return shortfall::answer(&shared, &command, shortfall).await;
    }
    let Some(active) = shared.running.enter() else { return problems::shutting_down(&policy) };
    let admission = match quotas::admit(&shared, &command).await {
        Ok(admission) => admission,
        Err(answer) => return *answer,
    };
    if command.rule.local {
        let task = tokio::spawn(local::answer(shared, command, inner, active, admission).in_current_span());
        // A handler that panicked outside of its transaction may have done so after it.
        return task.await.unwrap_or_else(|_| problems::cut_off(&policy));
    }
    if command.rule.is_async() {
        let task = tokio::spawn(claim_for_worker(shared, command, active, admission).in_current_span());
        return task.await.unwrap_or_else(|_| problems::cut_off(&policy));
    }
    // In a box: a task is moved on its way to the runtime, and this one is large.
    let executing = Box::pin(claim_and_execute(shared.clone(), command, inner, active, admission));
    let task = tokio::spawn(executing.in_current_span());
    match task.await {
        Ok(AfterClaim::Answered(answer)) => *answer,
        Ok(AfterClaim::Wait(record)) => wait(&shared, &record, Event::Look { fingerprint }, &policy).await,
        // Only a bug of ours ends this task early, and it does not say whether the handler had begun.
        Err(_) => problems::cut_off(&policy),
    }
}

/// What the store answered to a claim. The record is carried through all that follows, and so it is in a box.
struct Claimed {
    decision: Decision,
    record: Option<Box<Record>>,
    now: Timestamp,
}

/// What came of a claim.
enum AfterClaim {
    /// An answer.
    Answered(Box<Answer>),
    /// Somebody else has the command in hand.
    Wait(Box<Record>),
}

/// Claims the command, and carries it out if it is acquired. Runs detached: nobody's leaving cancels it.
async fn claim_and_execute<S, R>(
    shared: Arc<Shared>,
    command: Box<CommandRequest>,
    inner: S,
    _active: Active,
    admission: Admission,
) -> AfterClaim
where
    S: Handler<R>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let policy = command.rule.policy.clone();
    let (id, token) = (shared.ids.operation_id(shared.clock.now()), shared.ids.attempt_token());
    // The lease counts from before the claim was sent, so that it ends here before it ends in the store.
    let asked = Asked::now();
    let sent = {
        let claim = command.command.claim(id, token);
        send_claim(&shared, &claim, &command.rule, admission).await
    };
    let claimed = match sent {
        Ok(claimed) => claimed,
        Err(answer) => return AfterClaim::Answered(answer),
    };
    match (claimed.decision, claimed.record) {
        (Decision::Execute, Some(record)) if shared.running.is_closing() => {
            give_back(&shared, &record, Reason::ShutDown, problems::shutting_down, &policy).await
        }
        (Decision::Execute, Some(record)) => {
            let unexecuted = Unexecuted::Release;
            let acquired = Acquired { record, rule: command.rule.clone(), asked, unexecuted };
            let (room, request) = (command.room.clone(), command.into_request());
            AfterClaim::Answered(Box::new(execute::execute(shared, acquired, request, room, inner).await))
        }
        (Decision::Reconcile | Decision::Vacant, Some(record)) if record.head.token == token => {
            // Our own claim: its answer was lost, and it was found again after its lease had ended. Nobody ran anything.
            give_back(&shared, &record, Reason::ClaimUnconfirmed, problems::store_unavailable, &policy).await
        }
        (Decision::Wait, Some(record)) => AfterClaim::Wait(record),
        (decision, record) => {
            let answer = decided(&shared, decision, record.as_deref(), claimed.now, Some(asked.at), &policy);
            AfterClaim::Answered(Box::new(answer))
        }
    }
}

/// Gives back a command that was claimed and not begun, and says so as `unbegun` does. If it was others' by then, this request
/// is a duplicate of theirs.
async fn give_back(
    shared: &Arc<Shared>,
    record: &Record,
    reason: Reason,
    unbegun: fn(&Policy) -> Answer,
    policy: &Policy,
) -> AfterClaim {
    let Some(others) = settle::give_back(shared, record, Unexecuted::Release, reason).await else {
        return AfterClaim::Answered(Box::new(unbegun(policy)));
    };
    let look = Event::Look { fingerprint: record.head.fingerprint };
    let decision = transition(others.record.as_ref().map(|record| &record.head), &look, others.now).decision;
    match (decision, others.record) {
        (Decision::Wait, Some(record)) => AfterClaim::Wait(Box::new(record)),
        (decision, record) => {
            let answer = decided(shared, decision, record.as_ref(), others.now, None, policy);
            AfterClaim::Answered(Box::new(answer))
        }
    }
}

/// Claims the command for a worker, and says where to ask for it. Runs detached, as every claim.
async fn claim_for_worker(
    shared: Arc<Shared>,
    command: Box<CommandRequest>,
    _active: Active,
    admission: Admission,
) -> Answer {
    let policy = command.rule.policy.clone();
    let request = command.to_keep(&shared.before_keeping);
    let (id, token) = (shared.ids.operation_id(shared.clock.now()), shared.ids.attempt_token());
    let claim = command.command.claim_for_later(id, token, request);
    let asked = Instant::now();
    let claimed = match send_claim(&shared, &claim, &command.rule, admission).await {
        Ok(claimed) => claimed,
        Err(answer) => return *answer,
    };
    match (claimed.decision, claimed.record) {
        (Decision::Wait, Some(record)) if record.head.token == token => {
            shared.stored(&record, claim.request.as_ref().map_or(0, |request| request.bytes.len()));
            shared.wake.notify_one();
            problems::accepted(&record, &policy)
        }
        (decision, record) => {
            decided(&shared, decision, record.as_deref(), claimed.now, Some(asked), &policy)
        }
    }
}

/// Sends a claim. Where the store fails, or somebody else holds the business reference, nothing is run.
async fn send_claim(
    shared: &Arc<Shared>,
    claim: &Claim,
    rule: &Rule,
    admission: Admission,
) -> Result<Claimed, Box<Answer>> {
    let policy = &rule.policy;
    match shared.within("claim", shared.store.claim(claim)).await {
        Ok(claimed) if claimed.decision == Decision::Duplicate => {
            let own = claimed.holder.filter(|holder| holder.principal == claim.scope.principal);
            Err(Box::new(problems::duplicate_reference(own.map(|holder| holder.operation_id), policy)))
        }
        Ok(claimed) => {
            if claimed.record.as_ref().is_some_and(|record| record.is_first_of(claim)) {
                admission.created();
            }
            let StoreAnswer { decision, record, now, holder: _ } = claimed;
            Ok(Claimed { decision, record: record.map(Box::new), now })
        }
        Err(error) => {
            tracing::warn!(%error, operation = &*rule.label, "a claim failed: nothing is run");
            if matches!(error, StoreError::Ambiguous(_)) {
                admission.created();
                if rule.is_async() {
                    // A worker may have it by now: nobody can say that nothing was run.
                    return Err(Box::new(problems::cut_off(policy)));
                }
                let held = shared.running.hold();
                let releasing = settle::release_unconfirmed(shared.clone(), claim.clone(), held);
                tokio::spawn(releasing.in_current_span());
            }
            Err(Box::new(problems::store_unavailable(policy)))
        }
    }
}

/// Waits for whoever has the command in hand, as long as the policy allows, and never runs it.
///
/// An executor in this process says when it is done, and what came of it; for one elsewhere, the store is
/// asked now and then.
async fn wait(shared: &Shared, record: &Record, look: Event, policy: &Policy) -> Answer {
    let deadline = Instant::now() + policy.wait;
    let mut pause = FIRST_PAUSE;
    while Instant::now() < deadline {
        if let Some(mut signal) = shared.running.subscribe(&record.id) {
            match tokio::time::timeout_at(deadline, signal.recv()).await {
                Ok(Ok(Some(settled))) => {
                    let (record, now) = &*settled;
                    return looked(shared, Some(record), look, *now, None, policy);
                }
                Ok(Ok(None) | Err(_)) => {}
                Err(_) => break,
            }
        }
        let asked = Instant::now();
        // A store that does not answer proves nothing: the claim has shown that somebody has the command.
        if let Ok(snapshot) = shared.within("get", shared.store.get(&record.id)).await {
            let current = snapshot.record.as_ref();
            let decision = transition(current.map(|record| &record.head), &look, snapshot.now).decision;
            if decision != Decision::Wait {
                return decided(shared, decision, current, snapshot.now, Some(asked), policy);
            }
        }
        tokio::time::sleep_until(deadline.min(Instant::now() + pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    problems::in_progress(record, policy)
}

/// How soon a waiter asks the store again, at first and at last.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(160);

/// What a request that may not run the command is told about a record.
pub(crate) fn looked(
    shared: &Shared,
    record: Option<&Record>,
    look: Event,
    now: Timestamp,
    asked: Option<Instant>,
    policy: &Policy,
) -> Answer {
    let decision = transition(record.map(|record| &record.head), &look, now).decision;
    decided(shared, decision, record, now, asked, policy)
}

/// The answer to a decision that is not to execute.
pub(crate) fn decided(
    shared: &Shared,
    decision: Decision,
    record: Option<&Record>,
    now: Timestamp,
    asked: Option<Instant>,
    policy: &Policy,
) -> Answer {
    match (decision, record) {
        (Decision::Replay, Some(record)) => shared.replay(record, now, asked, policy),
        (Decision::Wait, Some(record)) => problems::in_progress(record, policy),
        (Decision::Reconcile, Some(record)) => problems::reconcile(record, policy),
        (Decision::Expired, Some(record)) => problems::expired(record, policy),
        (Decision::Mismatch, _) => problems::mismatch(policy),
        (Decision::Vacant, _) => problems::vacant(policy),
        (Decision::Refused(Refusal::FingerprintVersion), Some(record)) => {
            let (operation_id, version) = (record.operation_id, record.head.fingerprint.version().number());
            tracing::error!(%operation_id, version, "a record has a fingerprint of a version that is not known here");
            problems::newer_record(record, policy)
        }
        (Decision::Replay | Decision::Wait | Decision::Reconcile | Decision::Expired, None)
        | (
            Decision::Execute
            | Decision::Duplicate
            | Decision::Applied
            | Decision::Fenced
            | Decision::Refused(_)
            | Decision::Idle,
            _,
        ) => {
            tracing::error!(?decision, "the store broke its contract: nothing is run");
            problems::store_unavailable(policy)
        }
    }
}
