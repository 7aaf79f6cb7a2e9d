//! The advice about a retry that goes with each kind of problem.

use super::ProblemKind;
use crate::retry::RetryAdvice;

impl ProblemKind {
    /// Returns the advice for a problem of this kind.
    pub fn retry_advice(self) -> RetryAdvice {
        match self {
            ProblemKind::OutcomeUnknown => RetryAdvice::Poll,
            ProblemKind::InProgress
            | ProblemKind::ResultUnavailable
            | ProblemKind::QuotaExceeded
            | ProblemKind::LookupQuotaExceeded
            | ProblemKind::RequestIncomplete
            | ProblemKind::AuthorizationUnavailable
            | ProblemKind::StoreUnavailable
            | ProblemKind::ShuttingDown
            | ProblemKind::Held
            | ProblemKind::DeadlineExceeded
            | ProblemKind::Overloaded
            | ProblemKind::UpstreamUnreachable
            | ProblemKind::RolledBack
            | ProblemKind::RequestHeadTimeout => RetryAdvice::SameKey,
            // Without a key, a retry of `UpstreamFailed` may run a second time.
            ProblemKind::UpstreamFailed
            | ProblemKind::MissingKey
            | ProblemKind::InvalidKey
            | ProblemKind::KeyReused
            | ProblemKind::RecordExpired
            | ProblemKind::ResponseNotRetained
            | ProblemKind::ResponseUnreadable
            | ProblemKind::DuplicateBusinessReference
            | ProblemKind::Unauthenticated
            | ProblemKind::Forbidden
            | ProblemKind::RequestTooOld
            | ProblemKind::RequestTooLarge
            | ProblemKind::InvalidBulk
            | ProblemKind::OperationNotFound
            | ProblemKind::MalformedRequest
            | ProblemKind::MisdirectedRequest
            | ProblemKind::RequestHeadTooLarge
            | ProblemKind::NotFound
            | ProblemKind::ActionRefused => RetryAdvice::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_unknown_outcome_advises_the_client_to_poll() {
        for kind in ProblemKind::ALL {
            let is_polled = kind.retry_advice() == RetryAdvice::Poll;
            assert_eq!(is_polled, kind == ProblemKind::OutcomeUnknown, "{kind:?}");
        }
    }

    #[test]
    fn problems_that_advise_the_same_request_advise_the_same_key() {
        for kind in ProblemKind::ALL.into_iter().filter(|kind| kind.advice().contains("same request")) {
            assert_eq!(kind.retry_advice(), RetryAdvice::SameKey, "{kind:?}");
        }
    }
}
