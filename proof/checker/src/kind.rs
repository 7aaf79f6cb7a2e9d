//! Meaning of an answer, from its status, code and marks alone.

use crate::event::Answered;

/// Meaning of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// This request ran the command, and its answer is stored.
    Executed,
    /// This request ran the command and passes on the service's answer, which is not stored.
    Passed,
    /// This request ran the command or may have had it run, and its outcome is unknown.
    Broken,
    /// This request was to run the command, but the service was unreachable: nothing ran.
    Unreachable,
    /// The stored response is replayed.
    Replayed,
    /// Another executor has the command in progress.
    InProgress,
    /// A worker has the command in progress, or will run it.
    Accepted,
    /// The outcome of the command is unknown.
    Unknown,
    /// The key belongs to another payload.
    Mismatch,
    /// Another command has the business reference.
    Duplicate,
    /// The store is unavailable: nothing ran.
    StoreAway,
    /// The request was refused for another reason: nothing ran.
    Refused,
}

impl Kind {
    pub(crate) fn of(answer: &Answered) -> Kind {
        match (answer.code.as_deref(), answer.status) {
            _ if answer.replayed => Kind::Replayed,
            _ if answer.expires.is_some() => Kind::Executed,
            (Some("IDEMPOTENCY_REQUEST_IN_PROGRESS"), _) => Kind::InProgress,
            (Some("IDEMPOTENCY_OUTCOME_UNKNOWN"), 409) => Kind::Unknown,
            (Some("IDEMPOTENCY_OUTCOME_UNKNOWN"), _) => Kind::Broken,
            (Some("IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST"), _) => Kind::Mismatch,
            (Some("DUPLICATE_BUSINESS_REFERENCE"), _) => Kind::Duplicate,
            (Some("UPSTREAM_UNREACHABLE"), _) => Kind::Unreachable,
            (Some("IDEMPOTENCY_STORE_UNAVAILABLE"), _) => Kind::StoreAway,
            (Some(_), _) => Kind::Refused,
            (None, 202) => Kind::Accepted,
            (None, _) => Kind::Passed,
        }
    }

    /// Returns true for the stored response, which never changes.
    pub(crate) fn is_final(self) -> bool {
        matches!(self, Kind::Executed | Kind::Replayed)
    }

    /// Returns true if the answer says that nothing ran for this request.
    pub(crate) fn nothing_ran(self) -> bool {
        match self {
            Kind::Unreachable | Kind::Mismatch | Kind::Duplicate | Kind::StoreAway | Kind::Refused => true,
            Kind::Executed
            | Kind::Passed
            | Kind::Broken
            | Kind::Replayed
            | Kind::InProgress
            | Kind::Accepted
            | Kind::Unknown => false,
        }
    }

    /// Returns the kind in words.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kind::Executed => "executed",
            Kind::Passed => "passed on",
            Kind::Broken => "begun, outcome unknown",
            Kind::Unreachable => "service unreachable",
            Kind::Replayed => "replayed",
            Kind::InProgress => "in progress",
            Kind::Accepted => "accepted",
            Kind::Unknown => "outcome unknown",
            Kind::Mismatch => "key of another payload",
            Kind::Duplicate => "reference taken",
            Kind::StoreAway => "store away",
            Kind::Refused => "refused",
        }
    }
}
