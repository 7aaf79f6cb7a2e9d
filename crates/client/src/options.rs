//! Settings of a client, and the bounds that have no setting.

use std::time::Duration;

/// Most polls of one call.
pub const MAX_POLLS: u32 = 100;
/// Longest time that the begin of a journal entry may be in the future: more means that the wall clock was set back.
pub const CLOCK_TOLERANCE: Duration = Duration::from_secs(300);
/// Longest time of an option. `Semel-Deadline` has at most ten digits.
pub const MAX_TIME: Duration = Duration::from_secs(9_999_999);

/// Dialect of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientProfile {
    /// Semel's own: a key of 16 characters or more, `Semel-Deadline`, and marked outcomes.
    #[default]
    Semel,
    /// The IETF draft of the `Idempotency-Key` field.
    Ietf,
    /// Stripe's API.
    Stripe,
}

/// Reaction of a call to 202 with an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnAccepted {
    /// Polls the operation within the deadline.
    #[default]
    Poll,
    /// Returns the operation at once.
    Return,
}

/// Limits of a call, and of the retry budget that all clones of a client share.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// Upper bound of the first random wait: 100 ms.
    pub base: Duration,
    /// Upper bound of every random wait: 5 s.
    pub cap: Duration,
    /// Total time of a call, with attempts, waits and polls: 30 s.
    pub deadline: Duration,
    /// Time of one attempt: 10 s.
    pub attempt_timeout: Duration,
    /// Most attempts of a call: 8.
    pub attempts: u32,
    /// Longest wait for a `Retry-After`: 30 s.
    pub retry_after_max: Duration,
    /// Tokens of a full retry budget: 500.
    pub budget_tokens: u32,
    /// Tokens that a retry costs: 14.
    pub budget_cost: u32,
    /// Tokens that a final outcome puts back: 1.
    pub budget_return: u32,
    /// Age from which a journal entry is not sent any more: 23 h. It must be below the `ttl` of the server.
    pub max_age: Duration,
    /// Largest body of an answer in bytes: 16 MiB.
    pub response_bound: usize,
    /// Largest stream that is buffered as a request body, in bytes: 16 MiB.
    pub request_bound: usize,
    /// Reaction to 202 with an operation: polls it.
    pub on_accepted: OnAccepted,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            base: Duration::from_millis(100),
            cap: Duration::from_secs(5),
            deadline: Duration::from_secs(30),
            attempt_timeout: Duration::from_secs(10),
            attempts: 8,
            retry_after_max: Duration::from_secs(30),
            budget_tokens: 500,
            budget_cost: 14,
            budget_return: 1,
            max_age: Duration::from_secs(23 * 3600),
            response_bound: 16 << 20,
            request_bound: 16 << 20,
            on_accepted: OnAccepted::Poll,
        }
    }
}

impl ClientOptions {
    /// Returns the name of the first option that is out of its range, and the reason.
    pub(crate) fn fault(&self) -> Option<(&'static str, &'static str)> {
        let shortest = Duration::from_millis(1);
        let positive = [
            ("deadline", self.deadline),
            ("attempt_timeout", self.attempt_timeout),
            ("max_age", self.max_age),
        ];
        if let Some((name, _)) = positive.into_iter().find(|(_, time)| *time < shortest) {
            return Some((name, "it must be at least a millisecond"));
        }
        let others = [("base", self.base), ("cap", self.cap), ("retry_after_max", self.retry_after_max)];
        if let Some((name, _)) = positive.into_iter().chain(others).find(|(_, time)| *time > MAX_TIME) {
            return Some((name, "it must be at most 9,999,999 seconds"));
        }
        (self.attempts == 0).then_some(("attempts", "it must be at least 1"))
    }
}

/// Returns a time in whole milliseconds, rounded down.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_out_of_their_range_are_named() {
        let fault = |change: fn(&mut ClientOptions)| {
            let mut options = ClientOptions::default();
            change(&mut options);
            options.fault().map(|(name, _)| name)
        };
        assert_eq!(fault(|_| {}), None);
        assert_eq!(fault(|options| options.attempts = 0), Some("attempts"));
        assert_eq!(fault(|options| options.deadline = Duration::ZERO), Some("deadline"));
        assert_eq!(
            fault(|options| options.attempt_timeout = Duration::from_nanos(1)),
            Some("attempt_timeout")
        );
        assert_eq!(fault(|options| options.cap = Duration::MAX), Some("cap"));
        assert_eq!(fault(|options| options.base = Duration::ZERO), None);
    }
}
