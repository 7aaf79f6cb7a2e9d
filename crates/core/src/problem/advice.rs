//! The advice about a retry that goes with each kind of problem.

use super::Kind;
use crate::retry::RetryAdvice;

impl Kind {
    /// Returns the advice for a problem of this kind.
    pub fn retry_advice(self) -> RetryAdvice {
        match self {
            Kind::OutcomeUnknown => RetryAdvice::Poll,
            Kind::InProgress
            | Kind::ResultUnavailable
            | Kind::QuotaExceeded
            | Kind::LookupQuotaExceeded
            | Kind::RequestIncomplete
            | Kind::AuthorizationUnavailable
            | Kind::StoreUnavailable
            | Kind::ShuttingDown
            | Kind::Overloaded
            | Kind::UpstreamUnreachable
            | Kind::RolledBack
            | Kind::RequestHeadTimeout => RetryAdvice::SameKey,
            // Without a key, a retry of `UpstreamFailed` may run a second time.
            Kind::UpstreamFailed
            | Kind::MissingKey
            | Kind::InvalidKey
            | Kind::KeyReused
            | Kind::RecordExpired
            | Kind::ResponseNotRetained
            | Kind::ResponseUnreadable
            | Kind::DuplicateBusinessReference
            | Kind::Unauthenticated
            | Kind::Forbidden
            | Kind::RequestTooOld
            | Kind::RequestTooLarge
            | Kind::InvalidBulk
            | Kind::OperationNotFound
            | Kind::MalformedRequest
            | Kind::MisdirectedRequest
            | Kind::RequestHeadTooLarge
            | Kind::NotFound
            | Kind::ActionRefused => RetryAdvice::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unknown_outcome_is_polled_for() {
        for kind in Kind::ALL {
            let is_polled = kind.retry_advice() == RetryAdvice::Poll;
            assert_eq!(is_polled, kind == Kind::OutcomeUnknown, "{kind:?}");
        }
    }

    #[test]
    fn a_text_that_asks_for_the_same_request_goes_with_the_same_key() {
        for kind in Kind::ALL.into_iter().filter(|kind| kind.advice().contains("same request")) {
            assert_eq!(kind.retry_advice(), RetryAdvice::SameKey, "{kind:?}");
        }
    }
}
