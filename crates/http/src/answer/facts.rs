//! The facts about one answer, for metrics and logs: a plain struct that travels with the answer through the layer, and in the
//! extensions of the response that leaves it.

use std::time::Duration;

use semel_core::{Epoch, OperationId, Record, StateName, TraceContext};

/// The way in which a command was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerDecision {
    /// The command is accepted, and left to a worker.
    Accepted,
    /// The command was executed, for the first time.
    Executed,
    /// The command was executed again, after an attempt that provably did not run.
    Reacquired,
    /// The stored response was given.
    Replayed,
    /// The key belongs to another request.
    Mismatch,
    /// Another request holds the command.
    InProgress,
    /// The outcome of the command is unknown.
    Unknown,
    /// The command was executed, and its response is no longer stored.
    Expired,
    /// The request was refused.
    Refused,
    /// The store failed.
    StoreError,
}

impl AnswerDecision {
    /// Every decision.
    pub(crate) const ALL: [AnswerDecision; 10] = [
        AnswerDecision::Accepted,
        AnswerDecision::Executed,
        AnswerDecision::Reacquired,
        AnswerDecision::Replayed,
        AnswerDecision::Mismatch,
        AnswerDecision::InProgress,
        AnswerDecision::Unknown,
        AnswerDecision::Expired,
        AnswerDecision::Refused,
        AnswerDecision::StoreError,
    ];

    /// Returns the decision of an attempt that runs.
    pub(crate) const fn of_attempt(epoch: Epoch) -> AnswerDecision {
        if epoch > 1 { AnswerDecision::Reacquired } else { AnswerDecision::Executed }
    }

    /// Returns the value of the label `outcome`.
    pub const fn as_str(self) -> &'static str {
        match self {
            AnswerDecision::Accepted => "accepted",
            AnswerDecision::Executed => "executed",
            AnswerDecision::Reacquired => "reacquired",
            AnswerDecision::Replayed => "replayed",
            AnswerDecision::Mismatch => "mismatch",
            AnswerDecision::InProgress => "in_progress",
            AnswerDecision::Unknown => "unknown",
            AnswerDecision::Expired => "expired",
            AnswerDecision::Refused => "refused",
            AnswerDecision::StoreError => "store_error",
        }
    }

    /// Returns the state of the record, if the decision implies one.
    pub(crate) const fn state(self) -> Option<StateName> {
        match self {
            AnswerDecision::Accepted => Some(StateName::Claimed),
            AnswerDecision::Executed | AnswerDecision::Reacquired | AnswerDecision::InProgress => {
                Some(StateName::Processing)
            }
            AnswerDecision::Unknown => Some(StateName::Unknown),
            AnswerDecision::Expired => Some(StateName::Expired),
            AnswerDecision::Replayed
            | AnswerDecision::Mismatch
            | AnswerDecision::Refused
            | AnswerDecision::StoreError => None,
        }
    }

    /// Returns the name of the log event.
    pub(crate) const fn event(self) -> &'static str {
        match self {
            AnswerDecision::Accepted | AnswerDecision::Executed | AnswerDecision::Reacquired => {
                "idempotency_claim"
            }
            AnswerDecision::Replayed => "idempotency_replay",
            AnswerDecision::Mismatch => "idempotency_mismatch",
            AnswerDecision::InProgress => "idempotency_in_progress",
            AnswerDecision::Unknown => "idempotency_unknown",
            AnswerDecision::Expired => "idempotency_expired",
            AnswerDecision::Refused => "idempotency_refused",
            AnswerDecision::StoreError => "idempotency_store_error",
        }
    }
}

/// The facts about one answer. The extensions of every response to a command hold them, and those of every response that
/// Semel wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AnswerFacts {
    /// The way in which the command was answered; `None` for a request that is no command.
    pub decision: Option<AnswerDecision>,
    /// The state of the record, if the answer was made from one.
    pub state: Option<StateName>,
    /// The code of the problem that the answer tells.
    pub code: Option<&'static str>,
    /// The operation that the answer names.
    pub operation_id: Option<OperationId>,
    /// The time that the handler took.
    pub handler_time: Duration,
    /// The attempt that the record is in, if the answer was made from one.
    pub(crate) epoch: Option<Epoch>,
    /// The trace of the request that made the record.
    pub(crate) first_trace: Option<TraceContext>,
    /// True for the document of an operation, and for an answer at one of the layer's own paths.
    pub(crate) is_document: bool,
}

impl AnswerFacts {
    /// Returns the facts about a response; without any, nothing is known of it.
    pub fn of<B>(response: &http::Response<B>) -> AnswerFacts {
        response.extensions().get().copied().unwrap_or_default()
    }

    /// Returns the facts that a record tells.
    pub(crate) fn about(record: &Record) -> AnswerFacts {
        let mut facts = AnswerFacts::default();
        facts.tell(record);
        facts
    }

    /// Takes over what a record tells.
    pub(crate) fn tell(&mut self, record: &Record) {
        self.state = Some(record.head.state.name());
        self.operation_id = Some(record.operation_id);
        self.epoch = Some(record.head.epoch);
        self.first_trace = record.trace;
    }

    /// Returns true for an answer of the layer itself: a problem, the document of an operation, or an answer at one of its own
    /// paths. Answers of the handler are not its own, nor are replays of them.
    pub fn is_own(&self) -> bool {
        self.code.is_some() || self.is_document
    }

    /// Returns the state of the record, as far as the answer tells.
    pub(crate) fn known_state(&self) -> Option<StateName> {
        self.state.or_else(|| self.decision?.state())
    }
}
