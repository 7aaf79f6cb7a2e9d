//! The result of an execution, which `execute.rs` hands to `settle.rs`.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, response};
use semel_core::{Outcome, Reason};
use tokio::task::JoinHandle;

use crate::answer::AnswerDecision;
use crate::body::{Body, BoxError};
use crate::running::Registered;
use crate::shares::Share;

/// A command whose handler has run, or has run out of time.
pub(crate) struct Executed {
    pub(crate) ran: HandlerResult,
    /// The decision that the execution was counted under.
    pub(crate) decision: AnswerDecision,
    /// The time that the handler took.
    pub(crate) time: Duration,
    /// The place among the executions of this process.
    pub(crate) registered: Registered,
    /// The call that goes on after its timeout.
    pub(crate) late: Option<LateCall>,
}

/// The end of a handler's run.
pub(crate) enum HandlerResult {
    /// The handler answered.
    Answered { parts: Box<response::Parts>, content: AnswerContent, declared: Option<Outcome> },
    /// The handler proved that nothing ran, and has no answer.
    NotExecuted,
    /// The handler has no answer, for this reason; the text describes what the executor saw.
    Failed(Reason, String),
}

/// The body of a handler's answer.
pub(crate) enum AnswerContent {
    /// The whole body, with its part of the memory for answers.
    Whole { bytes: Bytes, trailers: HeaderMap, _room: Share },
    /// A body that passes through to the client: it is too large to store, a stream, or its end cannot be proved.
    Passing(Body),
}

/// A call that is past its timeout, and whose answer is still read.
pub(crate) struct LateCall {
    pub(crate) call: JoinHandle<Result<HandlerResult, BoxError>>,
    /// The outcome that the head of the answer declared.
    pub(crate) declared: Arc<OnceLock<Outcome>>,
    /// The time for which it is read.
    pub(crate) time: Duration,
    /// The place that it takes among all late calls.
    pub(crate) _place: Share,
}
