//! The reasons why there is no answer.

use std::time::Duration;

use crate::tls::TlsError;

/// The reason why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection was made.
    #[error("cannot connect to {0}: {1}")]
    Unreachable(String, String),
    /// The files for TLS cannot be used, so that no connection was tried.
    #[error("cannot connect: {0}")]
    Tls(#[from] TlsError),
    /// The connection ended before an answer began.
    #[error("no answer: {0}")]
    NoAnswer(String),
    /// The answer ended before its end.
    #[error("the answer broke off: {0}")]
    BrokenOff(String),
    /// The answer is larger than the caller reads.
    #[error("the answer is too large: more than {0} bytes")]
    TooLarge(usize),
    /// The time was over before the answer was whole.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
}

impl Error {
    /// Returns whether nothing of the request was sent, so that it certainly had no effect.
    pub fn is_never_sent(&self) -> bool {
        matches!(self, Error::Unreachable(..) | Error::Tls(_))
    }
}
