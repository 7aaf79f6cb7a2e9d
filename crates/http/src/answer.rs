//! The answer to one request: the HTTP response, and the facts about it that metrics and logs report.
//!
//! Every stage of a request ends in an [`Answer`]: `problems.rs` makes those that Semel writes, `replay.rs` those that it has
//! stored, `document.rs` the state of an operation. Nothing here asks a store or decides anything.

pub(crate) mod coding;
mod document;
mod elsewhere;
mod facts;
mod grpc;
pub(crate) mod headers;
pub(crate) mod problems;
pub(crate) mod replay;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, HeaderMap, HeaderValue, LINK, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use semel_core::policy::Profile;
use semel_core::problem::PROBLEMS_PATH;
use semel_core::{Problem, Record};

use crate::body::{Body, BoxError};

pub(crate) use self::document::document;
pub(crate) use self::elsewhere::Elsewhere;
pub use self::elsewhere::Refetch;
pub use self::facts::{AnswerDecision, AnswerFacts};
pub use self::grpc::{as_grpc, is_grpc};
use self::replay::CodedReplay;

/// The answer to one request.
pub(crate) struct Answer {
    pub(crate) response: Response<Body>,
    pub(crate) facts: AnswerFacts,
    content: ReplayContent,
}

/// The content of a replay that may have to be replaced before it is sent.
enum ReplayContent {
    /// The response has its final body.
    Final,
    /// The body has a content coding, which the client may not accept.
    Coded(Box<CodedReplay>),
    /// Only the address of the body is stored.
    Elsewhere(Box<Elsewhere>),
}

impl Answer {
    /// Makes an answer that nothing is known of yet.
    pub(crate) fn new(body: Body) -> Answer {
        Answer { response: Response::new(body), facts: AnswerFacts::default(), content: ReplayContent::Final }
    }

    /// Takes over the response of a handler, with the facts that [`problem`] has put into it.
    pub(crate) fn of_handler(mut response: Response<Body>) -> Answer {
        let facts = response.extensions_mut().remove().unwrap_or_default();
        Answer { response, facts, content: ReplayContent::Final }
    }

    /// Takes over the response to a request that is not protected, without the fields that only Semel sets.
    pub(crate) fn unprotected<R>(response: Response<R>) -> Answer
    where
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let mut answer = Answer::of_handler(response.map(Body::stream));
        headers::strip_own(answer.headers_mut());
        answer
    }

    /// Makes the answer that tells a problem in this profile. The document names the operation, and no header field does: that
    /// field marks an answer of the command itself.
    pub(crate) fn problem(problem: &Problem, profile: Profile) -> Answer {
        let mut answer = Answer::new(Body::full(problem.to_json(profile)));
        answer.facts.code = Some(problem.kind.code());
        answer.facts.operation_id = problem.operation_id;
        *answer.response.status_mut() = problem.status(profile);
        let headers = answer.headers_mut();
        headers.extend(problem.header_fields(profile));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        let described_by = format!("<{PROBLEMS_PATH}{}>; rel=\"describedby\"", problem.kind.slug());
        headers.insert(LINK, headers::ascii(&described_by));
        if let Some(delay) = problem.retry_after {
            headers.insert(RETRY_AFTER, headers::retry_after(delay));
        }
        answer
    }

    /// Records the way in which the command was answered.
    pub(crate) fn decided(mut self, decision: AnswerDecision) -> Answer {
        self.facts.decision = Some(decision);
        self
    }

    /// Records the record that the answer was made from.
    pub(crate) fn about(mut self, record: &Record) -> Answer {
        self.facts.tell(record);
        self
    }

    /// Returns the address of the body, if only that is stored. The answer then counts as final.
    pub(crate) fn take_elsewhere(&mut self) -> Option<Box<Elsewhere>> {
        match std::mem::replace(&mut self.content, ReplayContent::Final) {
            ReplayContent::Elsewhere(elsewhere) => Some(elsewhere),
            other @ (ReplayContent::Final | ReplayContent::Coded(_)) => {
                self.content = other;
                None
            }
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    pub(crate) fn headers_mut(&mut self) -> &mut HeaderMap {
        self.response.headers_mut()
    }

    /// Returns the response, with the facts in its extensions.
    pub(crate) fn into_response(self) -> Response<Body> {
        let Answer { mut response, facts, content: _ } = self;
        if facts != AnswerFacts::default() {
            response.extensions_mut().insert(facts);
        }
        response
    }
}

/// Makes the response that tells a problem in this profile, with the header fields that belong to it.
pub fn problem(problem: &Problem, profile: Profile) -> Response<Body> {
    Answer::problem(problem, profile).into_response()
}

#[cfg(test)]
mod tests {
    use semel_core::problem::ProblemKind;
    use semel_core::{Clock, Ids, RandomIds, SystemClock};

    use super::*;

    #[test]
    fn no_problem_is_marked_as_an_answer_of_the_command_itself() {
        let id = RandomIds.operation_id(SystemClock.now());
        for kind in ProblemKind::ALL {
            for profile in [Profile::Ietf, Profile::Stripe] {
                let told = problem(&Problem::new(kind, "why").about(id), profile);
                assert_eq!(told.headers().get(headers::OPERATION_ID), None, "{kind:?}");
            }
        }
    }
}
