//! Executes an acquired command: runs the handler in a task of its own, and renews the lease beside it.
//!
//! Invariant: nothing begins under a lease that has ended. A handler that has begun is never cancelled by its client.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT_ENCODING;
use http::{HeaderValue, Request, StatusCode, response};
use semel_core::problem::ProblemKind;
use semel_core::{Change, Decision, Event, Outcome, Policy, Problem, Reason, StoreAnswer, Terms, Transacted};
use semel_faults::{Point, reached};
use tokio::time::Instant;
use tracing::Instrument;

use crate::acquired::Acquired;
use crate::answer::headers::OUTCOME;
use crate::answer::{self, Answer, AnswerDecision, AnswerFacts, problems};
use crate::body::{self, Body, BoxError, Collected};
use crate::delivery::Delivery;
use crate::executed::{AnswerContent, Executed, HandlerResult, LateCall};
use crate::execution::{AskedAt, CloseDelimited, Execution, Lease, NotExecuted};
use crate::handler::Handler;
use crate::observe::steps;
use crate::operations::CommandRule;
use crate::persist;
use crate::recall;
use crate::shared::Shared;
use crate::shares::{Share, ShareHolder};
use crate::spans::{self, OpenSpan};

/// The bound on the stored body of an answer, and the memory that its caller has for it.
struct KeptLimit {
    bytes: usize,
    room: Share,
}

/// Executes an acquired command: runs the handler and renews the lease beside it. `Err` is the answer of a command that was not
/// begun.
pub(crate) async fn execute<S, R>(
    shared: &Arc<Shared>,
    acquired: &Acquired,
    mut request: Request<Body>,
    inner: S,
) -> Result<Executed, Box<Answer>>
where
    S: Handler<R>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let (record, policy) = (&acquired.record, &*acquired.rule.policy);
    let registered = shared.running.execute(record.id, record.head.fence());
    let lease = Lease::new(acquired.asked, record.head.terms.lease);
    let execution = Execution {
        record_id: record.id,
        operation_id: record.operation_id,
        operation: record.operation.clone(),
        label: acquired.rule.label.clone(),
        principal: record.principal.clone(),
        attempt: record.head.epoch,
        lease: lease.clone(),
        delivery: Delivery::default(),
    };
    let delivery = execution.delivery.clone();
    if execution.check_lease().is_err() {
        return Err(Box::new(not_begun(shared, acquired).await));
    }
    let decision = AnswerDecision::of_attempt(record.head.epoch);
    shared.observer.decision(&acquired.about(), decision, &AnswerFacts::about(record));
    request.extensions_mut().insert(execution);
    // Every retry gets these bytes, and its client may accept other codings than the first one.
    request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let begun = Instant::now();
    let (limit, late_limit) = limits(policy, &record.head.terms);
    let kept = KeptLimit { bytes: policy.max_stored_response, room: shared.answers.of(&record.principal) };
    let may_listen = || {
        let principal = &record.principal;
        let place = shared.listeners.try_take(ShareHolder::new(principal.tenant(), principal.caller()), 1);
        place.filter(|_| !late_limit.is_zero() && delivery.outlive()).map(|place| (place, late_limit))
    };
    let call = acquired.span.as_ref().map(OpenSpan::child);
    if let Some(call) = &call {
        call.name(request.headers_mut());
    }
    steps::call_begun(&acquired.rule, Some(record));
    let (ran, late) = tokio::select! {
        biased;
        ran = run(inner, request, limit, kept, may_listen) => ran,
        never = renew(shared, acquired, &lease) => match never {},
    };
    let end = match &ran {
        HandlerResult::Answered { parts, .. } => Ok(parts.status),
        HandlerResult::NotExecuted => Err(Reason::NotExecuted.as_str()),
        HandlerResult::Failed(reason, _) => Err(reason.as_str()),
    };
    let time = begun.elapsed();
    steps::call_ended(&acquired.rule.label, Some(record), end, time);
    if let Some(call) = &call {
        spans::handled(call, &acquired.rule.label, Some(record.head.epoch), end);
    }
    let ran = without_transaction(ran, &acquired.rule);
    Ok(Executed { ran, decision, time, registered, late })
}

/// Returns the time for the handler's answer, and the time after that for a late one. The terms are those of the claim, which
/// others rely on; a worker may have another policy by now.
fn limits(policy: &Policy, terms: &Terms) -> (Duration, Duration) {
    let calls = terms.quarantine.saturating_sub(terms.lease);
    let limit = policy.timeout.min(calls);
    (limit, policy.late_answer.unwrap_or_default().min(calls - limit))
}

/// Gives back a command whose claim took longer than the lease that it asked for: nothing may begin under that lease.
async fn not_begun(shared: &Arc<Shared>, acquired: &Acquired) -> Answer {
    let (record, policy) = (&acquired.record, &*acquired.rule.policy);
    match persist::give_back(shared, record, acquired.unexecuted, Reason::ClaimUnconfirmed).await {
        None => problems::store_unavailable(policy),
        Some(others) => {
            let look = Event::Look { fingerprint: record.head.fingerprint };
            recall::looked(shared, others.record.as_ref(), look, others.now, None, policy)
        }
    }
}

/// Renews the lease until this future is dropped: three times in its length, and sooner after a failure.
async fn renew(shared: &Shared, acquired: &Acquired, lease: &Lease) -> Infallible {
    let record = &acquired.record;
    let length = record.head.terms.lease;
    let third = length / 3;
    let (mut pause, mut extensions) = (third, 0_u64);
    loop {
        tokio::time::sleep(pause).await;
        let asked = AskedAt::now();
        let renewal = Change::renew(record.head.fence());
        // Bounded by the lease and not by the store's patience: one lost answer must not cost the lease.
        let renewed = tokio::time::timeout(third, shared.store.apply(&record.id, &renewal)).await;
        match renewed {
            Ok(Ok(StoreAnswer { decision: Decision::Applied, .. })) => {
                lease.renewed(asked, length);
                pause = third;
                extensions += 1;
                steps::lease_extended(&acquired.rule, record, extensions);
            }
            // The executor is fenced. The handler is not stopped, but its answer may no longer count.
            Ok(Ok(answer)) => {
                shared.applied(&answer, &renewal);
                lease.lost();
                std::future::pending::<()>().await;
            }
            Ok(Err(_)) | Err(_) => {
                tracing::warn!(operation_id = %record.operation_id, "a lease was not renewed yet");
                pause = length / 12;
            }
        }
    }
}

/// Runs the handler within its time, in a task of its own, so that a panic ends only the task. After the timeout, its answer is
/// still read if `may_listen` has a place for it.
async fn run<S, R>(
    inner: S,
    request: Request<Body>,
    time: Duration,
    kept: KeptLimit,
    may_listen: impl FnOnce() -> Option<(Share, Duration)>,
) -> (HandlerResult, Option<LateCall>)
where
    S: Handler<R>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    // The outcome that the head declares stands, even if the body breaks off.
    let declared = Arc::new(OnceLock::new());
    // In a box, since a handler may be large and a task's future is moved several times.
    let mut task = tokio::spawn(Box::pin(call(inner, request, kept, declared.clone())).in_current_span());
    let out_of_time = || format!("no answer within {} ms", time.as_millis());
    let (reason, seen) = match tokio::time::timeout(time, &mut task).await {
        Ok(Ok(Ok(ran))) => return (ran, None),
        Ok(Ok(Err(error))) => (Reason::BrokeOff, error.to_string()),
        Ok(Err(_)) => (Reason::Panicked, "the handler panicked".to_owned()),
        Err(_) if declared.get() == Some(&Outcome::NotExecuted) => {
            task.abort();
            (Reason::TimedOut, out_of_time())
        }
        Err(_) => match may_listen() {
            Some((_place, time)) => {
                let late = LateCall { call: task, declared, time, _place };
                return (HandlerResult::Failed(Reason::TimedOut, out_of_time()), Some(late));
            }
            None => {
                task.abort();
                (Reason::TimedOut, out_of_time())
            }
        },
    };
    let ran = match declared.get() {
        Some(Outcome::NotExecuted) => HandlerResult::NotExecuted,
        Some(Outcome::Final | Outcome::PartlyDone | Outcome::Unknown) | None => {
            HandlerResult::Failed(reason, seen)
        }
    };
    (ran, None)
}

/// Calls the handler and reads its answer, as far as it is stored.
async fn call<S, R>(
    mut inner: S,
    request: Request<Body>,
    mut kept: KeptLimit,
    declared: Arc<OnceLock<Outcome>>,
) -> Result<HandlerResult, BoxError>
where
    S: Handler<R>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    reached(Point::HandlerCalled).await;
    let response = match inner.call(request).await.map_err(Into::into) {
        Ok(response) => response,
        Err(error) if error.is::<NotExecuted>() => return Ok(HandlerResult::NotExecuted),
        Err(error) => return Err(error),
    };
    let (mut parts, body) = response.into_parts();
    let outcome = take_outcome(&mut parts);
    if let Some(outcome) = outcome {
        let _ = declared.set(outcome);
    }
    let is_close_delimited = parts.extensions.remove::<CloseDelimited>().is_some();
    let content = if body::is_stream(&parts.headers) {
        AnswerContent::Passing(Body::stream(body))
    } else {
        match body::collect(Box::pin(body), kept.bytes, Some(&mut kept.room)).await? {
            Collected::Whole { bytes, .. } if is_close_delimited => AnswerContent::Passing(Body::full(bytes)),
            Collected::Whole { bytes, trailers } => {
                AnswerContent::Whole { bytes, trailers, _room: kept.room }
            }
            Collected::TooLarge(body) => AnswerContent::Passing(Body::stream(body)),
            Collected::NoRoom(body) => AnswerContent::Passing(Body::stream(body)),
        }
    };
    reached(Point::HandlerAnswered).await;
    Ok(HandlerResult::Answered { parts: Box::new(parts), content, declared: outcome })
}

/// Turns the answer of a handler that transacted, although its operation is not local, into an error that says so. The layer
/// holds the record, so a transaction of the same command has run nothing, and the key is released.
fn without_transaction(ran: HandlerResult, rule: &CommandRule) -> HandlerResult {
    let HandlerResult::Answered { mut parts, content, declared } = ran else { return ran };
    let Some(transacted) = parts.extensions.remove::<Transacted>() else {
        return HandlerResult::Answered { parts, content, declared };
    };
    let name = &rule.name;
    let detail = format!(
        "The handler transacts, and its operation \"{name}\" is not declared local: declare its route with \
         `Operation::new(…).local()`."
    );
    tracing::error!(operation = &*rule.label, "{detail}");
    let (outcome, kind) = match transacted {
        Transacted::Decided { .. } | Transacted::RolledBack { .. } | Transacted::Unavailable => {
            (Outcome::NotExecuted, ProblemKind::RolledBack)
        }
        // A command of another scope, which the service made: it has a record of its own.
        Transacted::Executed { .. } | Transacted::Deferred { .. } | Transacted::InDoubt => {
            (Outcome::Unknown, ProblemKind::OutcomeUnknown)
        }
    };
    let problem = Problem::new(kind, detail).with_status(StatusCode::INTERNAL_SERVER_ERROR);
    let (parts, body) = answer::problem(&problem, rule.policy.profile).into_parts();
    HandlerResult::Answered {
        parts: Box::new(parts),
        content: AnswerContent::Passing(body),
        declared: Some(outcome),
    }
}

/// Takes the outcome that the handler declared: in the extensions, or in a header field that clients do not see. A field that
/// cannot be read counts as unknown.
fn take_outcome(parts: &mut response::Parts) -> Option<Outcome> {
    let said = parts.extensions.remove::<Outcome>();
    let lines: Vec<_> = parts.headers.get_all(OUTCOME).iter().cloned().collect();
    parts.headers.remove(OUTCOME);
    let header = match &lines[..] {
        [] => None,
        [line] => Some(line.to_str().ok().and_then(Outcome::parse).unwrap_or(Outcome::Unknown)),
        _ => Some(Outcome::Unknown),
    };
    said.or(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_of_a_call_is_cut_to_the_quarantine_of_its_claim() {
        let seconds = Duration::from_secs;
        let late_answer = Some(seconds(60));
        let policy = Policy { timeout: seconds(10), late_answer, ..Policy::default() };
        assert_eq!(limits(&policy, &policy.terms()), (seconds(10), seconds(60)));
        for (calls, expected) in [(15, (10, 5)), (10, (10, 0)), (4, (4, 0))] {
            let terms = Terms { quarantine: policy.lease + seconds(calls), ..policy.terms() };
            assert_eq!(limits(&policy, &terms), (seconds(expected.0), seconds(expected.1)), "{calls}");
        }
    }
}
