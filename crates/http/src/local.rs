//! Local commands, which their handler executes in one transaction together with the record. The layer has read the request;
//! the handler reports the outcome, and the layer answers the client.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use semel_core::{
    Decision, Fingerprint, Policy, Problem, Reason, Record, RecordId, Response, RetryAdvice, Transacted,
    is_server_error,
};
use tokio::time::Instant;

use crate::answer::{Answer, AnswerDecision, AnswerFacts, headers, problems};
use crate::body::{Body, BoxError};
use crate::command::CommandRequest;
use crate::handler::Handler;
use crate::observe::{self, steps};
use crate::quotas::ReservedKey;
use crate::recall;
use crate::running::Active;
use crate::shared::Shared;
use crate::spans::{self, OpenSpan};

/// Hands a command to its handler, and answers with the outcome that it reports.
pub(crate) async fn answer<S, R>(
    shared: Arc<Shared>,
    command: Box<CommandRequest>,
    mut inner: S,
    _active: Active,
    new_key: ReservedKey,
) -> Answer
where
    S: Handler<R>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let (policy, about) = (command.rule.policy.clone(), command.about());
    let asked = command.command.clone();
    let (principal, label) = (asked.scope.principal().clone(), command.rule.label.clone());
    let (ids, fingerprint) = (asked.record_ids(), asked.fingerprint);
    let _room = command.room.clone();
    let call = command.span.as_ref().map(OpenSpan::child);
    steps::call_begun(&command.rule, None);
    let mut request = command.into_request();
    request.extensions_mut().insert(asked);
    if let Some(call) = &call {
        call.name(request.headers_mut());
    }
    let begun = Instant::now();
    let called = inner.call(request).await.map_err(Into::<BoxError>::into);
    let time = begun.elapsed();
    let end = called.as_ref().map(|response| response.status()).map_err(|_| Reason::BrokeOff.as_str());
    if let Some(call) = &call {
        spans::handled(call, &label, None, end);
    }
    let mut response = match called {
        Ok(response) => response,
        Err(error) => {
            steps::call_ended(&label, None, end, time);
            tracing::error!(%error, operation = &*label, "a handler failed without an answer");
            return problems::cut_off(&policy);
        }
    };
    let transacted = response.extensions_mut().remove::<Transacted>();
    steps::call_ended(&label, transacted.as_ref().and_then(record_of), end, time);
    match &transacted {
        Some(Transacted::Executed { record, .. } | Transacted::Deferred { record, .. }) => {
            shared.stored(record, record.result.as_ref().map_or(0, |result| result.response.bytes.len()));
            if record.head.epoch == 1 {
                new_key.created();
                shared.observer.created(&label, record, ids.iter().copied(), false);
            }
        }
        Some(Transacted::InDoubt) => new_key.created(),
        Some(Transacted::Decided { .. } | Transacted::RolledBack { .. } | Transacted::Unavailable) | None => {
        }
    }
    let mut answer = match transacted {
        Some(Transacted::Executed { record, response, now }) => {
            let decision = AnswerDecision::of_attempt(record.head.epoch);
            shared.observer.decision(&about, decision, &AnswerFacts::about(&record));
            observe::executed(&about, &record, time);
            shared.cache.keep(&record, now, begun);
            executed(&record, *response).decided(decision)
        }
        Some(Transacted::Deferred { record, response }) => {
            let decision = AnswerDecision::of_attempt(record.head.epoch);
            shared.observer.decision(&about, decision, &AnswerFacts::about(&record));
            let mut answer = executed(&record, *response);
            headers::poll(answer.headers_mut(), &record);
            answer.decided(decision)
        }
        Some(Transacted::Decided { decision: Decision::Duplicate, holder, .. }) => {
            let own = holder.filter(|holder| holder.principal == principal);
            problems::duplicate_reference(own.map(|holder| holder.operation_id), &policy)
        }
        Some(Transacted::Decided { decision: Decision::Wait, record: None, .. }) => {
            unseen(&shared, &ids, fingerprint, &policy).await
        }
        Some(Transacted::Decided { decision, record, now, .. }) => {
            let now = now.unwrap_or_else(|| shared.clock.now());
            recall::decided(&shared, decision, record.as_deref(), now, Some(begun), &policy)
        }
        Some(Transacted::RolledBack { response, problem }) => {
            shared.observer.decision(&about, AnswerDecision::Refused, &AnswerFacts::default());
            rolled_back(*response, problem.as_deref(), &policy)
        }
        Some(Transacted::Unavailable) => problems::store_unavailable(&policy),
        Some(Transacted::InDoubt) => problems::cut_off(&policy),
        // The handler refused the request before it began anything.
        None if !response.status().is_success() && !response.status().is_redirection() => {
            let mut answer = Answer::unprotected(response);
            if is_server_error(answer.status()) {
                headers::advise(answer.headers_mut(), Some(RetryAdvice::SameKey));
            }
            answer
        }
        None => {
            tracing::error!(operation = &*label, "a handler answered without the transaction it promised");
            problems::cut_off(&policy)
        }
    };
    answer.facts.handler_time = time;
    answer
}

/// Returns the record that a transaction has written, or that it found.
fn record_of(transacted: &Transacted) -> Option<&Record> {
    match transacted {
        Transacted::Executed { record, .. } | Transacted::Deferred { record, .. } => Some(record),
        Transacted::Decided { record, .. } => record.as_deref(),
        Transacted::RolledBack { .. } | Transacted::Unavailable | Transacted::InDoubt => None,
    }
}

/// Answers a duplicate of a command that another request holds, in a transaction that cannot be read, or that only waits for
/// the database itself. A settled record, and a record of another payload, can be read all the same.
async fn unseen(shared: &Shared, ids: &[RecordId], fingerprint: Fingerprint, policy: &Policy) -> Answer {
    let is_open = |decision| matches!(decision, Decision::Vacant | Decision::Wait);
    // If the store does not answer, nothing has shown that another request holds the command.
    let found = recall::from_store(shared, ids, fingerprint, policy, is_open).await;
    found.unwrap_or_else(|| problems::unseen(policy))
}

/// Returns the handler's own answer.
fn executed(record: &Record, response: Response) -> Answer {
    let mut answer = plain(response);
    headers::mark(answer.headers_mut(), record);
    let advice = RetryAdvice::of_stored(answer.status());
    headers::advise(answer.headers_mut(), advice);
    answer
}

/// Returns the answer to a command that was rolled back: the work's own, or a problem.
fn rolled_back(response: Response, problem: Option<&Problem>, policy: &Policy) -> Answer {
    let mut answer = match problem {
        Some(problem) => Answer::problem(problem, policy.profile),
        None => plain(response),
    };
    headers::advise(answer.headers_mut(), Some(RetryAdvice::SameKey));
    answer
}

/// Returns the response of the work, without the fields that only Semel sets.
fn plain(response: Response) -> Answer {
    let body = Body::with_trailers(response.body.unwrap_or_default(), response.trailers);
    let mut answer = Answer::new(body);
    *answer.response.status_mut() = response.status;
    *answer.headers_mut() = response.headers;
    headers::strip_own(answer.headers_mut());
    // The server that sends the body knows its length.
    answer.headers_mut().remove(CONTENT_LENGTH);
    answer
}
