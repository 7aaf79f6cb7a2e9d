//! Outcomes of a command, and the parts that outcomes and errors share. Made by `call`.

use http::StatusCode;

use crate::key::CommandKey;
use crate::problem::OperationHandle;
use crate::response::CommandResponse;
use crate::transport::AttemptFault;

/// Outcome of a command.
#[derive(Clone, Debug)]
#[must_use = "an unresolved command may have run"]
pub enum CommandOutcome {
    /// The command's own outcome: it is settled, and every later attempt would be answered like this.
    #[non_exhaustive]
    Final {
        /// The answer, of any status: a final outcome is no success.
        response: CommandResponse,
        /// True if the command ran before this answer was asked for.
        replayed: bool,
        /// The operation's id, if the server named it.
        operation_id: Option<String>,
        /// The date until which the server keeps the answer, as it was sent.
        expires: Option<String>,
        /// Number of attempts.
        attempts: u32,
    },
    /// The server does not know whether the command took effect. Never send it under another key.
    #[non_exhaustive]
    Unknown {
        /// The key to go on with.
        key: Option<CommandKey>,
        /// The operation to ask for later.
        operation: OperationHandle,
        /// Number of attempts.
        attempts: u32,
    },
    /// The server has accepted the command, and has not finished it yet.
    #[non_exhaustive]
    Accepted {
        /// The key to go on with.
        key: Option<CommandKey>,
        /// The operation to ask for later.
        operation: OperationHandle,
        /// Number of attempts.
        attempts: u32,
    },
    /// The command may have run, and the client could not find out. Resume it with the same key; never use another.
    #[non_exhaustive]
    Unresolved {
        /// The key to go on with; `None` at an origin that is not named.
        key: Option<CommandKey>,
        /// The operation, if an answer named it.
        operation: Option<OperationHandle>,
        /// Number of attempts.
        attempts: u32,
        /// End of the last attempt, if there was one.
        last: Option<Box<LastAttempt>>,
        /// Reason for making no further attempt.
        stopped: StopReason,
    },
}

impl CommandOutcome {
    /// Returns the outcome's name in logs and in the shared cases: `final`, `unknown`, `accepted` or `unresolved`.
    pub fn kind(&self) -> &'static str {
        match self {
            CommandOutcome::Final { .. } => "final",
            CommandOutcome::Unknown { .. } => "unknown",
            CommandOutcome::Accepted { .. } => "accepted",
            CommandOutcome::Unresolved { .. } => "unresolved",
        }
    }

    /// Returns the number of times that the command was sent, or was tried to.
    pub fn attempts(&self) -> u32 {
        match self {
            CommandOutcome::Final { attempts, .. }
            | CommandOutcome::Unknown { attempts, .. }
            | CommandOutcome::Accepted { attempts, .. }
            | CommandOutcome::Unresolved { attempts, .. } => *attempts,
        }
    }
}

/// End of the last attempt of a call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LastAttempt {
    /// The way it ended.
    pub reason: AttemptReason,
    /// The code of the server's problem, if it answered with one.
    pub code: Option<String>,
    /// The answer, if there was a whole one.
    pub response: Option<CommandResponse>,
}

impl LastAttempt {
    pub(crate) fn fault(reason: AttemptFault) -> LastAttempt {
        LastAttempt { reason: reason.into(), code: None, response: None }
    }

    pub(crate) fn answer(response: CommandResponse, code: Option<String>) -> LastAttempt {
        LastAttempt { reason: AttemptReason::Answer, code, response: Some(response) }
    }

    /// Returns the status of the answer, if there was one.
    pub fn status(&self) -> Option<StatusCode> {
        self.response.as_ref().map(CommandResponse::status)
    }
}

/// The way an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttemptReason {
    /// A whole answer.
    Answer,
    /// No connection.
    Connect,
    /// The name cannot be resolved now.
    Name,
    /// There is no such name.
    UnknownHost,
    /// The certificate was refused.
    Certificate,
    /// The connection was lost after it was made.
    Lost,
    /// The time of the attempt was over.
    Timeout,
    /// The answer is larger than its bound.
    TooLarge,
}

impl AttemptReason {
    /// Returns the reason's name in logs and in the shared cases.
    pub fn as_str(self) -> &'static str {
        match self {
            AttemptReason::Answer => "answer",
            AttemptReason::Connect => "connect",
            AttemptReason::Name => "name",
            AttemptReason::UnknownHost => "unknown_host",
            AttemptReason::Certificate => "certificate",
            AttemptReason::Lost => "lost",
            AttemptReason::Timeout => "timeout",
            AttemptReason::TooLarge => "too_large",
        }
    }
}

impl From<AttemptFault> for AttemptReason {
    fn from(fault: AttemptFault) -> AttemptReason {
        match fault {
            AttemptFault::Connect => AttemptReason::Connect,
            AttemptFault::Name => AttemptReason::Name,
            AttemptFault::UnknownHost => AttemptReason::UnknownHost,
            AttemptFault::Certificate => AttemptReason::Certificate,
            AttemptFault::Lost => AttemptReason::Lost,
            AttemptFault::Timeout => AttemptReason::Timeout,
            AttemptFault::TooLarge => AttemptReason::TooLarge,
        }
    }
}

/// Reason for making no further attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// All attempts were made.
    Attempts,
    /// The next wait would reach the deadline.
    Deadline,
    /// The retry budget is empty.
    Budget,
    /// The caller cancelled the call.
    Cancelled,
    /// The answer neither tells the outcome nor asks for a retry.
    Answer,
    /// The server redirects, which is not followed.
    Redirect,
    /// The certificate was refused.
    Certificate,
    /// There is no such host.
    UnknownHost,
    /// The answer is larger than its bound.
    TooLarge,
    /// The server no longer keeps the operation's result.
    Expired,
    /// The origin is not named, or the method is no command's.
    UnnamedOrigin,
}

impl StopReason {
    /// Returns the reason's name in logs and in the shared cases.
    pub fn as_str(self) -> &'static str {
        match self {
            StopReason::Attempts => "attempts",
            StopReason::Deadline => "deadline",
            StopReason::Budget => "budget",
            StopReason::Cancelled => "cancelled",
            StopReason::Answer => "answer",
            StopReason::Redirect => "redirect",
            StopReason::Certificate => "certificate",
            StopReason::UnknownHost => "unknown_host",
            StopReason::TooLarge => "too_large",
            StopReason::Expired => "expired",
            StopReason::UnnamedOrigin => "unnamed_origin",
        }
    }
}
