//! Advice to a client about a retry, for the response field `Idempotency-Retry`.
//!
//! A problem has the advice of its kind (`problem`), a handler's response that of its settlement (`outcome`).

use http::{HeaderName, HeaderValue};

/// The response field that carries the advice.
pub const RETRY_ADVICE: HeaderName = HeaderName::from_static("idempotency-retry");

/// Advice about a retry of the request that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetryAdvice {
    /// Send the request again with the same key: it runs at most once.
    SameKey,
    /// Poll the operation, or retry with the same key later: the command may have run, so a new key may run it twice.
    Poll,
    /// Do not send the request again as it is: the answer stays the same.
    Never,
}

impl RetryAdvice {
    /// Every advice.
    pub const ALL: [RetryAdvice; 3] = [RetryAdvice::SameKey, RetryAdvice::Poll, RetryAdvice::Never];

    /// Returns the word for the response field.
    pub fn as_str(self) -> &'static str {
        match self {
            RetryAdvice::SameKey => "same-key",
            RetryAdvice::Poll => "poll",
            RetryAdvice::Never => "never",
        }
    }

    /// Returns the value of the response field.
    pub fn value(self) -> HeaderValue {
        HeaderValue::from_static(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_advice_is_same_key_poll_or_never() {
        assert_eq!(RetryAdvice::ALL.map(RetryAdvice::as_str), ["same-key", "poll", "never"]);
        assert_eq!(RetryAdvice::Poll.value(), "poll");
    }
}
