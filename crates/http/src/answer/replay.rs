//! Replays: a stored response, given again.

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CACHE_CONTROL, CONTENT_LOCATION, HeaderValue, LOCATION};
use semel_core::policy::Policy;
use semel_core::problem::ProblemKind;
use semel_core::{Problem, Record, Response, RetryAdvice};

use crate::body::Body;
use crate::cache::SettledRecord;

use super::coding::{self, Accepted};
use super::headers::{self, BODY, EXPIRES, OPERATION_ID, REPLAYED, REPLAYED_STRIPE};
use super::{Answer, AnswerDecision, Elsewhere, ReplayContent};

/// A replay whose body has a content coding, with what is needed to answer a client that does not accept it.
pub(super) struct CodedReplay {
    record: Record,
    /// The stored response without its body.
    head: Response,
    policy: Policy,
}

/// Replays a stored response.
pub(crate) fn replay(record: &Record, stored: &Response, policy: &Policy) -> Answer {
    match &stored.body {
        Some(body) => with_body(record, stored, body, replay_head(record, stored, policy), policy),
        None => without_body(record, stored, policy),
    }
}

/// Replays a response from memory, where the head is made once.
pub(crate) fn replay_from_memory(settled: &SettledRecord, policy: &Policy) -> Answer {
    let SettledRecord { record, response: stored, head, .. } = settled;
    match &stored.body {
        Some(body) => {
            let head = head.get_or_init(|| replay_head(record, stored, policy));
            with_body(record, stored, body, head.clone(), policy)
        }
        None => without_body(record, stored, policy),
    }
}

/// Makes the head of a replay, which is the same each time.
fn replay_head(record: &Record, stored: &Response, policy: &Policy) -> HeaderMap {
    let mut head = stored.headers.clone();
    if !head.contains_key(CACHE_CONTROL) {
        head.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    headers::mark_replayed(&mut head, record, policy);
    headers::advise(&mut head, RetryAdvice::of_stored(stored.status));
    head
}

fn with_body(record: &Record, stored: &Response, body: &Bytes, head: HeaderMap, policy: &Policy) -> Answer {
    let mut answer = Answer::new(Body::with_trailers(body.clone(), stored.trailers.clone()));
    if coding::is_coded(&head) {
        let (record, policy) = (record.clone(), policy.clone());
        let head = Response::head(stored.status, &stored.headers);
        answer.content = ReplayContent::Coded(Box::new(CodedReplay { record, head, policy }));
    }
    *answer.headers_mut() = head;
    *answer.response.status_mut() = stored.status;
    answer.decided(AnswerDecision::Replayed).about(record)
}

fn without_body(record: &Record, stored: &Response, policy: &Policy) -> Answer {
    let detail = match stored.resource() {
        Some(_) => {
            "The command ran once; the body of its response was not kept. Location says where its result is."
        }
        None => {
            "The command ran once; the body of its response was not kept. Ask the service for its result."
        }
    };
    let mut answer = head_only(record, stored, detail, policy);
    answer.headers_mut().insert(BODY, HeaderValue::from_static("not-retained"));
    answer
}

/// Replays the head of a stored response, with a problem that says why there is no more.
fn head_only(record: &Record, stored: &Response, detail: &str, policy: &Policy) -> Answer {
    let gone = Problem::new(ProblemKind::ResponseNotRetained, detail).about(record.operation_id);
    let mut answer = Answer::problem(&gone.with_status(stored.status), policy.profile);
    for (name, value) in &stored.headers {
        // Beside the fields of the problem itself.
        answer.headers_mut().append(name.clone(), value.clone());
    }
    if let Some(elsewhere) = Elsewhere::of(record, stored, policy) {
        answer.content = ReplayContent::Elsewhere(Box::new(elsewhere));
    }
    *answer.response.status_mut() = stored.status;
    headers::mark_replayed(answer.headers_mut(), record, policy);
    headers::advise(answer.headers_mut(), Some(ProblemKind::ResponseNotRetained.retry_advice()));
    answer.decided(AnswerDecision::Replayed).about(record)
}

impl Answer {
    /// Replaces a stored body whose content coding the client does not accept with a problem.
    pub(crate) fn for_codings(mut self, accepted: &Accepted) -> Answer {
        let ReplayContent::Coded(replay) = self.content else { return self };
        self.content = ReplayContent::Final;
        if !accepted.allows_all(self.headers()) {
            let CodedReplay { record, head, policy } = &*replay;
            let detail =
                "The command ran once; its response has a content coding that this request does not accept.";
            self = head_only(record, head, detail, policy);
        }
        coding::vary(self.headers_mut());
        self
    }

    /// Gives a replay without a body the content that was found at the address of its result, and says so.
    pub(crate) fn refetched(self, found: Response, address: &str) -> Answer {
        let (bare, _) = self.response.into_parts();
        let mut answer = Answer::new(Body::with_trailers(found.body.unwrap_or_default(), found.trailers));
        answer.facts = self.facts;
        answer.facts.code = None;
        *answer.response.status_mut() = bare.status;
        *answer.headers_mut() = found.headers;
        let headers = answer.headers_mut();
        headers::strip_own(headers);
        for name in [LOCATION, OPERATION_ID, EXPIRES, REPLAYED, REPLAYED_STRIPE] {
            match bare.headers.get(&name) {
                Some(value) => headers.insert(name, value.clone()),
                None => headers.remove(name),
            };
        }
        // RFC 9110, section 8.7: the content is the present representation of the resource at this address.
        if let Ok(address) = HeaderValue::from_str(address) {
            headers.insert(CONTENT_LOCATION, address);
        }
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        answer
    }
}
