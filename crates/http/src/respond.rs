//! Responses that Semel gives itself: problems, replays, and the headers on everything that is protected.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_LOCATION, HeaderName, HeaderValue, LINK, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, StatusCode};
use semel_core::policy::{InProgress, Mode, Policy, Profile};
use semel_core::problem::{Kind, OPERATIONS_PATH, PROBLEMS_PATH};
use semel_core::retry::RETRY_ADVICE;
use semel_core::{OperationId, Problem, Reason, Record, Response, RetryAdvice, TierTooLow, Timestamp};

use crate::body::{Body, BoxError};
use crate::cache::Settlement;
use crate::coding::{self, Accepted};
use crate::fetch::Elsewhere;
use crate::observe::{Code, Seen};
use crate::resource;

/// What every function here makes.
pub(crate) type Answer = http::Response<Body>;

const OPERATION_ID: HeaderName = HeaderName::from_static("idempotency-operation-id");
const EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");
/// The mark of a replay in the IETF profile; clients cannot set it.
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
const REPLAYED_STRIPE: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The mark of a replay without the body of its response; handlers cannot set it.
const BODY: HeaderName = HeaderName::from_static("idempotency-body");

/// The response header by which a handler says what its answer means; clients do not see it.
pub(crate) const OUTCOME: HeaderName = HeaderName::from_static("semel-outcome");

/// How long a client should wait before it asks again for something that runs.
const SOON: Duration = Duration::from_secs(1);

/// A problem as a response in this profile, with the headers that belong to it.
pub fn problem(problem: &Problem, profile: Profile) -> http::Response<Body> {
    let mut answer = http::Response::new(Body::full(problem.to_json(profile)));
    *answer.status_mut() = problem.status(profile);
    answer.extensions_mut().insert(Code(problem.kind.code()));
    let headers = answer.headers_mut();
    headers.extend(problem.header_fields(profile));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let described_by = format!("<{PROBLEMS_PATH}{}>; rel=\"describedby\"", problem.kind.slug());
    headers.insert(LINK, ascii(&described_by));
    if let Some(delay) = problem.retry_after {
        headers.insert(RETRY_AFTER, retry_after(delay));
    }
    if let Some(id) = problem.operation_id {
        headers.insert(OPERATION_ID, ascii(&id.to_string()));
    }
    answer
}

/// Returns the operation that an answer names.
pub(crate) fn operation_id(answer: &Answer) -> Option<OperationId> {
    answer.headers().get(OPERATION_ID)?.to_str().ok()?.parse().ok()
}

/// A problem that is the answer to a command.
fn told(seen: Seen, document: &Problem, policy: &Policy) -> Answer {
    let mut answer = problem(document, policy.profile);
    answer.extensions_mut().insert(seen);
    answer
}

/// The store cannot be reached: nothing ran.
pub(crate) fn store_unavailable(policy: &Policy) -> Answer {
    told(Seen::StoreError, &store_unavailable_problem(), policy)
}

/// The store has dropped below the tier that the operation needs: nothing ran.
pub(crate) fn tier_too_low(shortfall: TierTooLow, policy: &Policy) -> Answer {
    let TierTooLow { needed, promised } = shortfall;
    let detail = format!(
        "This operation needs a store of {needed}, and the store promises {promised} at this moment, so nothing was run."
    );
    told(Seen::StoreError, &Problem::new(Kind::StoreUnavailable, detail).retry_after(SOON), policy)
}

/// The problem of a store that cannot be reached.
pub(crate) fn store_unavailable_problem() -> Problem {
    let detail = "The record of this command could not be read or written, so nothing was run.";
    Problem::new(Kind::StoreUnavailable, detail).retry_after(SOON)
}

/// Nobody can say whether the caller may: nothing ran, and nothing was looked up.
pub(crate) fn authorization_unavailable(profile: Profile) -> Answer {
    let detail = "Whether this caller may do this could not be checked, so nothing was run.";
    problem(&Problem::new(Kind::AuthorizationUnavailable, detail).retry_after(SOON), profile)
}

/// The tenant or the caller has used up what they may use: nothing ran.
pub(crate) fn quota_exceeded(problem: &Problem, policy: &Policy) -> Answer {
    told(Seen::Refused, problem, policy)
}

/// The process is ending: nothing ran.
pub(crate) fn shutting_down(policy: &Policy) -> Answer {
    let detail = "This server is about to stop and takes no new commands.";
    told(Seen::Refused, &Problem::new(Kind::ShuttingDown, detail).retry_after(SOON), policy)
}

/// The key belongs to another request. Says nothing of that request.
pub(crate) fn mismatch(policy: &Policy) -> Answer {
    let detail = "This key was used before with another method, path, content type or body.";
    told(Seen::Mismatch, &Problem::new(Kind::KeyReused, detail), policy)
}

/// Somebody else has the command in hand, or will have. Who was told to come back later is told so again.
pub(crate) fn in_progress(record: &Record, policy: &Policy) -> Answer {
    let told_to_poll = policy.mode == Mode::Async || record.head.reason == Reason::Deferred;
    match policy.in_progress {
        InProgress::Conflict if !told_to_poll => {
            let detail = "The first request with this key has not finished yet.";
            let conflict = Problem::new(Kind::InProgress, detail).about(record.operation_id);
            told(Seen::InProgress, &conflict.retry_after(SOON), policy)
        }
        InProgress::Conflict | InProgress::Accepted => {
            let mut answer = resource::document(record, &[], StatusCode::ACCEPTED);
            poll(answer.headers_mut(), record);
            answer.extensions_mut().insert(Seen::InProgress);
            answer.extensions_mut().insert(record.head.state.name());
            answer
        }
    }
}

/// The command is claimed for a worker, by this request.
pub(crate) fn accepted(record: &Record, policy: &Policy) -> Answer {
    let mut answer = in_progress(record, policy);
    answer.extensions_mut().insert(Seen::Accepted);
    answer
}

/// Where to ask for an operation that is not at its end, and when.
pub(crate) fn poll(headers: &mut HeaderMap, record: &Record) {
    headers.insert(LOCATION, ascii(&format!("{OPERATIONS_PATH}{}", record.operation_id)));
    headers.entry(RETRY_AFTER).or_insert_with(|| retry_after(SOON));
    headers.insert(OPERATION_ID, ascii(&record.operation_id.to_string()));
}

/// Somebody else has the command in hand, in a transaction that nobody can look into.
pub(crate) fn unseen(policy: &Policy) -> Answer {
    let detail = "The first request with this key has not finished yet.";
    told(Seen::InProgress, &Problem::new(Kind::InProgress, detail).retry_after(SOON), policy)
}

/// The record is in a version that this program cannot compare the request with: nobody can say whether it is the same.
pub(crate) fn newer_record(record: &Record, policy: &Policy) -> Answer {
    let detail = "The record of this key was made by another version of this service, and cannot be compared with the \
                  request here. Nothing was run.";
    let problem = Problem::new(Kind::StoreUnavailable, detail).about(record.operation_id).retry_after(SOON);
    told(Seen::StoreError, &problem, policy)
}

/// Nobody has the command in hand, and this request may not run it either.
pub(crate) fn vacant(policy: &Policy) -> Answer {
    let detail = "The first request with this key ended without running. Send this one again.";
    told(Seen::InProgress, &Problem::new(Kind::InProgress, detail).retry_after(SOON), policy)
}

/// Nobody can prove what happened. The status says how it came to be so.
pub(crate) fn outcome_unknown(id: OperationId, status: StatusCode, detail: &str, policy: &Policy) -> Answer {
    told(Seen::Unknown, &Problem::new(Kind::OutcomeUnknown, detail).about(id).with_status(status), policy)
}

/// The task that carried the command ended early: the record will tell, once its lease has ended.
pub(crate) fn cut_off(policy: &Policy) -> Answer {
    let detail = "The command may have been begun. Send the same request again to learn what became of it.";
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    told(Seen::Unknown, &Problem::new(Kind::OutcomeUnknown, detail).with_status(status), policy)
}

/// A retry of a command whose outcome is unknown.
pub(crate) fn reconcile(record: &Record, policy: &Policy) -> Answer {
    let detail = "An earlier request with this key ended without proof of whether it took effect.";
    outcome_unknown(record.operation_id, StatusCode::CONFLICT, detail, policy)
}

/// The command ran, and its response is gone.
pub(crate) fn expired(record: &Record, policy: &Policy) -> Answer {
    let detail = "The command with this key ran; its response is no longer kept.";
    told(Seen::Expired, &Problem::new(Kind::RecordExpired, detail).about(record.operation_id), policy)
}

/// Another command holds the business reference. Only its own caller is told which.
pub(crate) fn duplicate_reference(holder: Option<OperationId>, policy: &Policy) -> Answer {
    let detail = "Another command of this operation already has this business reference. Nothing ran.";
    let duplicate = Problem::new(Kind::DuplicateBusinessReference, detail);
    let duplicate = holder.into_iter().fold(duplicate, Problem::about);
    told(Seen::Refused, &duplicate, policy)
}

/// A response to a request that is not protected: as it came, but for what only Semel may say.
pub(crate) fn unprotected<R>(response: http::Response<R>) -> Answer
where
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let mut answer = response.map(Body::stream);
    strip_own(answer.headers_mut());
    answer
}

/// A handler cannot speak as Semel.
pub(crate) fn strip_own(headers: &mut HeaderMap) {
    for name in [REPLAYED, REPLAYED_STRIPE, OUTCOME, BODY] {
        headers.remove(name);
    }
}

/// The stored response, as it was.
pub(crate) fn replay(record: &Record, stored: &Response, policy: &Policy) -> Answer {
    match &stored.body {
        Some(body) => replayed(record, stored, body, replay_head(record, stored, policy), policy),
        None => replay_without_body(record, stored, policy),
    }
}

/// The same from memory, where the head is made once.
pub(crate) fn replay_from_memory(settled: &Settlement, policy: &Policy) -> Answer {
    let Settlement { record, response: stored, head, .. } = settled;
    match &stored.body {
        Some(body) => {
            let head = head.get_or_init(|| replay_head(record, stored, policy));
            replayed(record, stored, body, head.clone(), policy)
        }
        None => replay_without_body(record, stored, policy),
    }
}

/// The head of a replay, which is the same each time.
fn replay_head(record: &Record, stored: &Response, policy: &Policy) -> HeaderMap {
    let mut head = stored.headers.clone();
    if !head.contains_key(CACHE_CONTROL) {
        head.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    mark_replayed(&mut head, record, policy);
    advise(&mut head, RetryAdvice::of_stored(stored.status));
    head
}

fn replayed(record: &Record, stored: &Response, body: &Bytes, head: HeaderMap, policy: &Policy) -> Answer {
    let mut answer = http::Response::new(Body::with_trailers(body.clone(), stored.trailers.clone()));
    if coding::is_coded(&head) {
        let head = Response::head(stored.status, &stored.headers);
        answer.extensions_mut().insert(Coded(Arc::new((record.clone(), head, policy.clone()))));
    }
    *answer.headers_mut() = head;
    *answer.status_mut() = stored.status;
    seen_replayed(answer, record)
}

/// Says, in the extensions of a replay, that its body has a content coding. Holds the record, the head without that body,
/// and the policy of the operation.
#[derive(Clone)]
struct Coded(Arc<(Record, Response, Policy)>);

/// The answer, with a document in place of a stored body whose content coding the client does not accept.
pub(crate) fn as_accepted(accepted: &Accepted, mut answer: Answer) -> Answer {
    let Some(Coded(replay)) = answer.extensions_mut().remove() else { return answer };
    if !accepted.allows_all(answer.headers()) {
        let (record, head, policy) = &*replay;
        let detail =
            "The command ran once; its response has a content coding that this request does not accept.";
        answer = replay_head_only(record, head, detail, policy);
    }
    coding::vary(answer.headers_mut());
    answer
}

fn replay_without_body(record: &Record, stored: &Response, policy: &Policy) -> Answer {
    let detail = match stored.resource() {
        Some(_) => {
            "The command ran once; the body of its response was not kept. Location says where its result is."
        }
        None => {
            "The command ran once; the body of its response was not kept. Ask the service for its result."
        }
    };
    let mut answer = replay_head_only(record, stored, detail, policy);
    answer.headers_mut().insert(BODY, HeaderValue::from_static("not-retained"));
    answer
}

/// The head of a stored response, with a document that says why there is no more.
fn replay_head_only(record: &Record, stored: &Response, detail: &str, policy: &Policy) -> Answer {
    let gone = Problem::new(Kind::ResponseNotRetained, detail).about(record.operation_id);
    let mut answer = problem(&gone.with_status(stored.status), policy.profile);
    for (name, value) in &stored.headers {
        // Beside what the problem says of itself.
        answer.headers_mut().append(name.clone(), value.clone());
    }
    if let Some(elsewhere) = Elsewhere::of(record, stored, policy) {
        answer.extensions_mut().insert(elsewhere);
    }
    *answer.status_mut() = stored.status;
    mark_replayed(answer.headers_mut(), record, policy);
    advise(answer.headers_mut(), Some(Kind::ResponseNotRetained.retry_advice()));
    seen_replayed(answer, record)
}

fn mark_replayed(headers: &mut HeaderMap, record: &Record, policy: &Policy) {
    mark(headers, record);
    let replayed = match policy.profile {
        Profile::Ietf => REPLAYED,
        Profile::Stripe => REPLAYED_STRIPE,
    };
    headers.insert(replayed, HeaderValue::from_static("true"));
}

fn seen_replayed(mut answer: Answer, record: &Record) -> Answer {
    answer.extensions_mut().insert(Seen::Replayed);
    answer.extensions_mut().insert(record.head.state.name());
    answer
}

/// A replay without a body, with what is found at the address of its result. It says that it is that.
pub(crate) fn refetched(bare: Answer, found: Response, address: &str) -> Answer {
    let (bare, _) = bare.into_parts();
    let mut answer = http::Response::new(Body::with_trailers(found.body.unwrap_or_default(), found.trailers));
    *answer.status_mut() = bare.status;
    *answer.headers_mut() = found.headers;
    *answer.extensions_mut() = bare.extensions;
    answer.extensions_mut().remove::<Code>();
    let headers = answer.headers_mut();
    strip_own(headers);
    for name in [LOCATION, OPERATION_ID, EXPIRES, REPLAYED, REPLAYED_STRIPE] {
        match bare.headers.get(&name) {
            Some(value) => headers.insert(name, value.clone()),
            None => headers.remove(name),
        };
    }
    // RFC 9110, section 8.7: the content is the present representation of what is there.
    if let Ok(address) = HeaderValue::from_str(address) {
        headers.insert(CONTENT_LOCATION, address);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// The command ran, and the service does not show this caller what it made.
pub(crate) fn result_denied(
    id: OperationId,
    status: StatusCode,
    challenge: Option<HeaderValue>,
    policy: &Policy,
) -> Answer {
    let kind = if status == StatusCode::UNAUTHORIZED { Kind::Unauthenticated } else { Kind::Forbidden };
    let detail =
        "The command ran before, and did not run again. The service does not show this caller what it made.";
    let mut answer = told(Seen::Refused, &Problem::new(kind, detail).about(id), policy);
    if let Some(challenge) = challenge {
        answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    answer
}

/// The command ran, and what it made cannot be fetched now. `bare` says where it is.
pub(crate) fn result_unavailable(
    bare: &Answer,
    id: OperationId,
    status: StatusCode,
    policy: &Policy,
) -> Answer {
    let detail =
        "The command ran before, and did not run again. What it made cannot be fetched at this moment.";
    let unavailable = Problem::new(Kind::ResultUnavailable, detail).about(id).with_status(status);
    let mut answer = told(Seen::Refused, &unavailable.retry_after(SOON), policy);
    if let Some(location) = bare.headers().get(LOCATION) {
        answer.headers_mut().insert(LOCATION, location.clone());
    }
    answer
}

/// The response is kept, and cannot be read. The command is not run again for that.
pub(crate) fn unreadable(record: &Record, policy: &Policy) -> Answer {
    let detail = "The command ran; its stored response cannot be read.";
    let problem = Problem::new(Kind::ResponseUnreadable, detail).about(record.operation_id);
    told(Seen::StoreError, &problem, policy)
}

/// Sets the advice about a retry. A handler cannot give it itself.
pub(crate) fn advise(headers: &mut HeaderMap, advice: Option<RetryAdvice>) {
    match advice {
        Some(advice) => headers.insert(RETRY_ADVICE, advice.value()),
        None => headers.remove(RETRY_ADVICE),
    };
}

/// Names the operation and its expiry. A handler cannot say these things itself.
pub(crate) fn mark(headers: &mut HeaderMap, record: &Record) {
    headers.remove(REPLAYED);
    headers.remove(REPLAYED_STRIPE);
    headers.remove(BODY);
    headers.insert(OPERATION_ID, ascii(&record.operation_id.to_string()));
    match record.head.state.expires_at().filter(|_| record.head.state.is_terminal()) {
        Some(expiry) => headers.insert(EXPIRES, ascii(&Timestamp::to_http_date(expiry))),
        None => headers.remove(EXPIRES),
    };
}

fn retry_after(delay: Duration) -> HeaderValue {
    HeaderValue::from(delay.as_secs().max(1))
}

fn ascii(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("ids, dates and paths of ours are printable ASCII")
}
