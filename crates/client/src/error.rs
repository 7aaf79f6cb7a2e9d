//! Errors of a call: the command is known not to have run, or its outcome is known and cannot be shown.
//!
//! No message has a key in it.

use std::error::Error;

use crate::outcome::{LastAttempt, StopReason};
use crate::problem::OperationHandle;
use crate::response::CommandResponse;

/// Error of a call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No attempt of this call ran the command, and the call makes no further one.
    #[error(
        "no attempt of this call ran the command: {origin}, {attempts} attempts, last {}, stopped by {}",
        last_reason(.last.as_deref()), .stopped.as_str()
    )]
    #[non_exhaustive]
    NotExecuted {
        /// The origin that the command is for.
        origin: String,
        /// Number of attempts.
        attempts: u32,
        /// End of the last attempt, if there was one.
        last: Option<Box<LastAttempt>>,
        /// Reason for making no further attempt.
        stopped: StopReason,
    },
    /// The server's certificate is not trusted. Nothing was sent.
    #[error("the server's certificate is not trusted")]
    Certificate,
    /// There is no host of this name. Nothing was sent.
    #[error("there is no host of this name")]
    UnknownHost,
    /// The server sends the command elsewhere. Commands follow no redirect.
    #[error("the server redirects the command, which is not followed")]
    Redirect(Box<RefusedAnswer>),
    /// The key is malformed. Nothing was sent.
    #[error("{0}")]
    BadKey(&'static str),
    /// The server refuses the key.
    #[error("the server refuses the idempotency key")]
    KeyRefused(Box<RefusedAnswer>),
    /// The key was used before, for another request.
    #[error("the idempotency key was used before for another request")]
    KeyReused(Box<RefusedAnswer>),
    /// Another command holds the business reference. This one did not run.
    #[error("another command holds the business reference")]
    DuplicateBusinessReference(Box<RefusedAnswer>),
    /// The command ran, and the server no longer keeps its response.
    #[error("the command ran, and its response is no longer kept")]
    RecordExpired(Box<RefusedAnswer>),
    /// The command ran once, with the status of this response. The body of its response is not kept.
    #[error("the command ran once, and the body of its response is not kept")]
    ResponseNotRetained(Box<RefusedAnswer>),
    /// The command ran, and the server cannot read its stored response.
    #[error("the command ran, and its stored response cannot be read")]
    ResponseUnreadable(Box<RefusedAnswer>),
    /// A key or an intent was given for an origin that the client does not name. Nothing was sent.
    #[error("this client sends keys to its origins only, and with commands only")]
    UnnamedOrigin,
    /// The body is a stream that may not be buffered, or cannot be. Nothing was sent.
    #[error("{0}")]
    BodyNotReplayable(&'static str),
    /// The request cannot be made. Nothing was sent.
    #[error("{0}")]
    InvalidCommand(String),
    /// The journal cannot be read or written. Nothing was sent.
    #[error("the journal cannot be used")]
    JournalUnavailable(#[source] Box<dyn Error + Send + Sync>),
    /// The journal has an entry for this intent: resume it. Nothing was sent.
    #[error("the journal has an entry for this intent: resume it")]
    IntentPending,
    /// The journal has no entry for this intent. Nothing was sent.
    #[error("the journal has no entry for this intent")]
    NoSuchEntry,
    /// The journal entry is another caller's. Nothing was sent.
    #[error("the journal entry is another caller's: a person has to look at it")]
    OtherCaller,
    /// The journal entry is too old, or from the future. Nothing was sent.
    #[error(
        "the journal entry is older than a server keeps keys, or from the future: a person has to look at it"
    )]
    EntryExpired,
    /// The request is not the one that the journal entry was made for. Nothing was sent.
    #[error("the request is not the one that the intent was begun with")]
    RequestChanged,
}

/// Returns the end of the last attempt for a message: its reason, or the status and code of its answer.
fn last_reason(last: Option<&LastAttempt>) -> String {
    let Some(last) = last else { return "none".into() };
    let mut text = last.reason.as_str().to_owned();
    if let Some(status) = last.status() {
        text = format!("{text} {}", status.as_u16());
    }
    // A code is the server's text: only one that looks like a code is shown.
    let is_plain = |code: &&String| {
        code.len() <= 64
            && code.bytes().all(|byte| byte.is_ascii_uppercase() || matches!(byte, b'_' | b'0'..=b'9'))
    };
    last.code.as_ref().filter(is_plain).map_or(text.clone(), |code| format!("{text} {code}"))
}

/// Answer that ends a command, and that no retry changes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RefusedAnswer {
    /// The answer.
    pub response: CommandResponse,
    /// The operation, if an answer of the call named one.
    pub operation: Option<OperationHandle>,
}

impl RefusedAnswer {
    pub(crate) fn new(response: CommandResponse, operation: Option<OperationHandle>) -> Box<RefusedAnswer> {
        Box::new(RefusedAnswer { response, operation })
    }
}

impl CallError {
    /// Returns the error's name in logs, the same in every language.
    pub fn kind(&self) -> &'static str {
        match self {
            CallError::NotExecuted { .. } => "not_executed",
            CallError::Certificate => "certificate",
            CallError::UnknownHost => "unknown_host",
            CallError::Redirect(_) => "redirect",
            CallError::BadKey(_) | CallError::KeyRefused(_) => "bad_key",
            CallError::KeyReused(_) => "key_reused",
            CallError::DuplicateBusinessReference(_) => "duplicate_business_reference",
            CallError::RecordExpired(_) => "record_expired",
            CallError::ResponseNotRetained(_) => "response_not_retained",
            CallError::ResponseUnreadable(_) => "response_unreadable",
            CallError::UnnamedOrigin => "unnamed_origin",
            CallError::BodyNotReplayable(_) => "body_not_replayable",
            CallError::InvalidCommand(_) => "invalid_command",
            CallError::JournalUnavailable(_) => "journal_unavailable",
            CallError::IntentPending => "intent_pending",
            CallError::NoSuchEntry => "no_such_entry",
            CallError::OtherCaller => "other_caller",
            CallError::EntryExpired => "entry_expired",
            CallError::RequestChanged => "request_changed",
        }
    }

    /// Returns the answer behind the error, if there was one.
    pub fn answer(&self) -> Option<&RefusedAnswer> {
        match self {
            CallError::Redirect(answer)
            | CallError::KeyRefused(answer)
            | CallError::KeyReused(answer)
            | CallError::DuplicateBusinessReference(answer)
            | CallError::RecordExpired(answer)
            | CallError::ResponseNotRetained(answer)
            | CallError::ResponseUnreadable(answer) => Some(answer),
            CallError::NotExecuted { .. }
            | CallError::Certificate
            | CallError::UnknownHost
            | CallError::BadKey(_)
            | CallError::UnnamedOrigin
            | CallError::BodyNotReplayable(_)
            | CallError::InvalidCommand(_)
            | CallError::JournalUnavailable(_)
            | CallError::IntentPending
            | CallError::NoSuchEntry
            | CallError::OtherCaller
            | CallError::EntryExpired
            | CallError::RequestChanged => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};

    use super::*;
    use crate::transport::AttemptFault;

    fn message(last: Option<LastAttempt>) -> String {
        let (origin, last) = ("https://pay.example:443".to_owned(), last.map(Box::new));
        CallError::NotExecuted { origin, attempts: 8, last, stopped: StopReason::Attempts }.to_string()
    }

    #[test]
    fn a_command_that_no_attempt_ran_says_where_and_why() {
        let says = "no attempt of this call ran the command: https://pay.example:443, 8 attempts, last";
        let fault = LastAttempt::fault(AttemptFault::Connect);
        assert_eq!(message(Some(fault)), format!("{says} connect, stopped by attempts"));
        assert_eq!(message(None), format!("{says} none, stopped by attempts"));
        let answer = |code: &str| {
            let response =
                CommandResponse::new(StatusCode::SERVICE_UNAVAILABLE, HeaderMap::new(), Bytes::new());
            message(Some(LastAttempt::answer(response, Some(code.to_owned()))))
        };
        assert_eq!(answer("SHUTTING_DOWN"), format!("{says} answer 503 SHUTTING_DOWN, stopped by attempts"));
        assert_eq!(answer("a key\n"), format!("{says} answer 503, stopped by attempts"));
    }
}
