//! Meaning of a handler's response for its command. Pure: the layer calls it and applies the result.

use http::StatusCode;

use crate::policy::{OnServerError, Policy};
use crate::retry::RetryAdvice;
use crate::state::Reason;

/// A handler's statement about its own response, for cases that the status alone does not decide.
///
/// Put it into the response's extensions, or into the header `Semel-Outcome` as `final`, `not-executed`, `partly-done`
/// or `unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The response is final: retries get it.
    Final,
    /// Nothing happened: the key may be used again.
    NotExecuted,
    /// A part of the command is done and stays; a retry of the same request under the same key does the rest.
    PartlyDone,
    /// The effect is unknown.
    Unknown,
}

impl Outcome {
    /// Returns the outcome of that name.
    pub fn parse(text: &str) -> Option<Outcome> {
        match text {
            "final" => Some(Outcome::Final),
            "not-executed" => Some(Outcome::NotExecuted),
            "partly-done" => Some(Outcome::PartlyDone),
            "unknown" => Some(Outcome::Unknown),
            _ => None,
        }
    }
}

/// Returns true if a status means a failure of the server: 500 to 599, and every status from 600 on, which a
/// recipient treats as one of that class (RFC 9110, section 15).
pub fn is_server_error(status: StatusCode) -> bool {
    status.as_u16() >= 500
}

/// Settlement of a command that was run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settlement {
    /// A final success.
    Complete,
    /// A final failure.
    Fail(Reason),
    /// Nothing ran; or, by its reason, the rest waits for the same request.
    Release(Reason),
    /// The outcome is unknown.
    Abandon(Reason),
}

impl RetryAdvice {
    /// Returns the advice for a stored response: a server error is replayed as it is.
    pub fn of_stored(status: StatusCode) -> Option<RetryAdvice> {
        is_server_error(status).then_some(RetryAdvice::Never)
    }
}

impl Settlement {
    /// Returns the advice for a handler's answer with this status. A final answer below 500 needs none.
    pub fn retry_advice(self, status: StatusCode) -> Option<RetryAdvice> {
        match self {
            Settlement::Complete | Settlement::Fail(_) => RetryAdvice::of_stored(status),
            Settlement::Release(_) => Some(RetryAdvice::SameKey),
            Settlement::Abandon(_) => Some(RetryAdvice::Poll),
        }
    }
}

impl Policy {
    /// Returns the settlement for a response with this status and the handler's own statement.
    pub fn settle(&self, status: StatusCode, declared: Option<Outcome>) -> Settlement {
        let answered = || match status.as_u16() {
            // Not a final response.
            ..200 => Settlement::Abandon(Reason::BrokeOff),
            200..400 => Settlement::Complete,
            400..500 => Settlement::Fail(Reason::Answered),
            500.. => Settlement::Fail(Reason::ServerError),
        };
        match declared {
            Some(Outcome::Final) => answered(),
            Some(Outcome::NotExecuted) => Settlement::Release(Reason::NotExecuted),
            Some(Outcome::PartlyDone) => Settlement::Release(Reason::PartlyDone),
            Some(Outcome::Unknown) => Settlement::Abandon(Reason::HandlerUnsure),
            None if self.not_executed_statuses.contains(&status) => Settlement::Release(Reason::NotExecuted),
            None if status == StatusCode::REQUEST_TIMEOUT || is_server_error(status) => {
                match self.on_server_error {
                    OnServerError::Unknown => Settlement::Abandon(Reason::ServerError),
                    OnServerError::Replay => Settlement::Fail(Reason::ServerError),
                    OnServerError::Retry => Settlement::Release(Reason::ServerError),
                }
            }
            None => answered(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(status: u16, on_server_error: OnServerError, declared: Option<Outcome>) -> Settlement {
        let policy = Policy { on_server_error, ..Policy::default() };
        policy.settle(StatusCode::from_u16(status).expect("tests use real statuses"), declared)
    }

    #[test]
    fn without_a_declared_outcome_the_status_decides_the_settlement() {
        for status in [200, 201, 204, 302] {
            assert_eq!(settle(status, OnServerError::Unknown, None), Settlement::Complete, "{status}");
        }
        for status in [400, 402, 404, 409, 422] {
            let expected = Settlement::Fail(Reason::Answered);
            assert_eq!(settle(status, OnServerError::Unknown, None), expected, "{status}");
        }
        for status in [425, 429] {
            let expected = Settlement::Release(Reason::NotExecuted);
            assert_eq!(settle(status, OnServerError::Unknown, None), expected, "{status}");
        }
    }

    #[test]
    fn a_server_error_settles_as_on_server_error_declares() {
        for status in [408, 500, 502, 503, 599, 600, 700, 999] {
            for (choice, expected) in [
                (OnServerError::Unknown, Settlement::Abandon(Reason::ServerError)),
                (OnServerError::Replay, Settlement::Fail(Reason::ServerError)),
                (OnServerError::Retry, Settlement::Release(Reason::ServerError)),
            ] {
                assert_eq!(settle(status, choice, None), expected, "{status}");
            }
        }
    }

    #[test]
    fn a_handlers_declared_outcome_overrides_the_status() {
        let retry = OnServerError::Retry;
        assert_eq!(settle(500, retry, Some(Outcome::Final)), Settlement::Fail(Reason::ServerError));
        assert_eq!(settle(429, retry, Some(Outcome::Final)), Settlement::Fail(Reason::Answered));
        assert_eq!(settle(201, retry, Some(Outcome::Final)), Settlement::Complete);
        assert_eq!(settle(503, retry, Some(Outcome::NotExecuted)), Settlement::Release(Reason::NotExecuted));
        assert_eq!(settle(207, retry, Some(Outcome::PartlyDone)), Settlement::Release(Reason::PartlyDone));
        assert_eq!(settle(200, retry, Some(Outcome::Unknown)), Settlement::Abandon(Reason::HandlerUnsure));
    }

    #[test]
    fn outcomes_parse_from_their_lowercase_header_values() {
        assert_eq!(Outcome::parse("final"), Some(Outcome::Final));
        assert_eq!(Outcome::parse("not-executed"), Some(Outcome::NotExecuted));
        assert_eq!(Outcome::parse("partly-done"), Some(Outcome::PartlyDone));
        assert_eq!(Outcome::parse("unknown"), Some(Outcome::Unknown));
        assert_eq!(Outcome::parse("FINAL"), None);
    }

    #[test]
    fn the_retry_advice_for_a_server_error_follows_its_settlement() {
        let advice = |status: u16, on_server_error| {
            let policy = Policy { on_server_error, ..Policy::default() };
            let status = StatusCode::from_u16(status).expect("tests use real statuses");
            policy.settle(status, None).retry_advice(status)
        };
        for status in [500, 503, 599, 999] {
            assert_eq!(advice(status, OnServerError::Unknown), Some(RetryAdvice::Poll), "{status}");
            assert_eq!(advice(status, OnServerError::Retry), Some(RetryAdvice::SameKey), "{status}");
            assert_eq!(advice(status, OnServerError::Replay), Some(RetryAdvice::Never), "{status}");
        }
        assert_eq!(advice(429, OnServerError::Unknown), Some(RetryAdvice::SameKey), "nothing ran");
        for status in [200, 201, 302, 400, 402, 422] {
            assert_eq!(advice(status, OnServerError::Unknown), None, "{status}");
        }
    }
}
