//! The settings of an operation: every key of a configuration's `[defaults]`, with its default.
//!
//! A policy is plain data. The record carries the part that must outlive the process, as its
//! [`Terms`](crate::terms::Terms).

use std::time::Duration;

use http::{HeaderName, StatusCode};

use crate::key::KeyRules;
use crate::tier::Tier;

/// Time of a command's execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// While the client waits for the response.
    #[default]
    Sync,
    /// Later, by a worker; the client polls.
    Async,
}

/// Requirement of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeyRequirement {
    /// A command without a key is refused.
    #[default]
    Required,
    /// A command without a key passes unprotected.
    Optional,
    /// Keys are ignored: the operation opts out, by name.
    Ignored,
}

/// Conventions of the responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Profile {
    /// The IETF draft: 422 for a reused key, `Idempotency-Replayed`.
    #[default]
    Ietf,
    /// Stripe: 400 for a reused key, `Idempotent-Replayed`, errors in Stripe's envelope, keys from 1 character on.
    Stripe,
}

impl Profile {
    /// Returns the default minimum length of a key, in characters.
    pub fn key_min_length(self) -> usize {
        match self {
            Profile::Ietf => 16,
            Profile::Stripe => 1,
        }
    }
}

/// Response to a duplicate while the first request still runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InProgress {
    /// 409 with `Retry-After`.
    #[default]
    Conflict,
    /// 202 with the address to poll.
    Accepted,
}

/// Meaning of an executor's expired lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnLeaseExpired {
    /// The outcome is unknown.
    #[default]
    Unknown,
    /// The command has phases, which tell a worker where to resume.
    Resume,
    /// The operation is declared safe to repeat: the next request runs it again.
    Rerun,
}

/// Meaning of a handler's server error (408, or any status from 500 on).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnServerError {
    /// The outcome is unknown.
    #[default]
    Unknown,
    /// The error is the final response.
    Replay,
    /// Nothing happened: the key may be used again.
    Retry,
}

/// Answer to a retry after the TTL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnExpired {
    /// The retry counts as a new request.
    #[default]
    Forget,
    /// 410, as long as the tombstone is kept.
    Refuse,
}

/// Meaning of a path that differs from an operation's own only by a trailing slash, or only by letter case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Spelling {
    /// The service's interpretation is unknown: the path is refused.
    #[default]
    Refuse,
    /// The service treats it as the same path, and receives it in the operation's spelling.
    Same,
    /// The service treats it as another path.
    Other,
}

/// Stored part of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StoreResponse {
    /// Everything: retries get the same bytes.
    #[default]
    Full,
    /// Status and header fields: retries get these, and a notice that the body was not kept.
    Headers,
    /// Status and the address of the created resource: retries get its current content.
    Reference,
}

/// Retention of a command's request for people, beside the time that a worker needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeepRequest {
    /// Never.
    #[default]
    Off,
    /// From the claim until the outcome is known, so that an operator who investigates an unknown outcome
    /// sees the request.
    WhileUnknown,
}

/// The settings of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Time of the command's execution.
    pub mode: Mode,
    /// Requirement of a key.
    pub key: KeyRequirement,
    /// Rules of keys (`key_syntax`, `key_min_length`, `key_max_length`).
    pub key_rules: KeyRules,
    /// Conventions of the responses.
    pub profile: Profile,
    /// Retention of a settled record, counted from its settlement.
    pub ttl: Duration,
    /// Lease of a claim. It is renewed while the handler runs, so it may be shorter than `timeout`.
    pub lease: Duration,
    /// Time limit of the handler.
    pub timeout: Duration,
    /// Time after `timeout` in which a late response is still read, if the request was sent whole to another
    /// process; `None` reads no late response. A handler in this process always ends at `timeout`.
    pub late_answer: Option<Duration>,
    /// Time that a concurrent duplicate waits for the first request.
    pub wait: Duration,
    /// Response to the duplicate after that.
    pub in_progress: InProgress,
    /// Meaning of an expired lease.
    pub on_lease_expired: OnLeaseExpired,
    /// Time limit of the wait for a worker, if `mode` is `Async`.
    pub start_within: Duration,
    /// Retention of the request for people.
    pub keep_request: KeepRequest,
    /// True to store every field of a request, credentials included, if `mode` is `Async` or `keep_request`
    /// asks for it.
    pub store_credentials: bool,
    /// Request fields to store beside [those that always are](crate::keep::is_kept_field).
    pub store_request_headers: Vec<HeaderName>,
    /// Meaning of a server error.
    pub on_server_error: OnServerError,
    /// Answer to a retry after the TTL.
    pub on_expired: OnExpired,
    /// Retention of tombstones, if `on_expired` is `Refuse`.
    pub tombstone_ttl: Duration,
    /// Margin that is added to `lease`, `timeout` and `late_answer` before a verdict of "not executed" may
    /// free a key.
    pub quarantine_margin: Duration,
    /// Statuses by which the handler says that it did nothing.
    pub not_executed_statuses: Vec<StatusCode>,
    /// Largest request body, in bytes.
    pub max_request: usize,
    /// Maximum age of a request by its `timestamp_header`; `None` disables the check.
    pub max_request_age: Option<Duration>,
    /// Header with the time at which the client made the request.
    pub timestamp_header: HeaderName,
    /// Largest response body that is stored for replays, in bytes.
    pub max_stored_response: usize,
    /// Stored part of a response.
    pub store_response: StoreResponse,
    /// Header fields that are never stored, in addition to the built-in ones: of responses, and of requests
    /// that are stored for a worker.
    pub store_headers_except: Vec<HeaderName>,
    /// Meaning of a path that differs from the operation's own only by a trailing slash.
    pub trailing_slash: Spelling,
    /// Meaning of a path that differs from the operation's own only by letter case.
    pub letter_case: Spelling,
    /// Tier that the store must promise before a command runs. Every store promises `Tier::Three`.
    pub needs_tier: Tier,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            mode: Mode::Sync,
            key: KeyRequirement::Required,
            key_rules: KeyRules::default(),
            profile: Profile::Ietf,
            ttl: Duration::from_secs(24 * 60 * 60),
            lease: Duration::from_secs(30),
            timeout: Duration::from_secs(25),
            late_answer: None,
            wait: Duration::from_millis(200),
            in_progress: InProgress::Conflict,
            on_lease_expired: OnLeaseExpired::Unknown,
            start_within: Duration::from_secs(15 * 60),
            keep_request: KeepRequest::Off,
            store_credentials: false,
            store_request_headers: Vec::new(),
            on_server_error: OnServerError::Unknown,
            on_expired: OnExpired::Forget,
            tombstone_ttl: Duration::from_secs(7 * 24 * 60 * 60),
            quarantine_margin: Duration::from_secs(5),
            not_executed_statuses: vec![StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS],
            max_request: 1 << 20,
            max_request_age: None,
            timestamp_header: http::header::DATE,
            max_stored_response: 1 << 20,
            store_response: StoreResponse::Full,
            store_headers_except: Vec::new(),
            trailing_slash: Spelling::Refuse,
            letter_case: Spelling::Refuse,
            needs_tier: Tier::Three,
        }
    }
}

/// Reason why a policy is invalid. Each names the setting as a configuration spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A duration is zero.
    #[error("`{0}` must be longer than zero")]
    Zero(&'static str),
    /// A duration is longer than the maximum wait or retention.
    #[error("`{0}` must not be longer than {1} days")]
    TooLong(&'static str, u64),
    /// The lease is shorter than [`MIN_LEASE`]: it would expire before a store answers.
    #[error("`lease` must be at least {} ms", MIN_LEASE.as_millis())]
    LeaseTooShort,
    /// The minimum key length exceeds the maximum.
    #[error("`key_min_length` is larger than `key_max_length`")]
    KeyLengths,
    /// The response limit exceeds [`MAX_STORED_RESPONSE`].
    #[error("`max_stored_response` must not be larger than {} MiB", MAX_STORED_RESPONSE >> 20)]
    ResponseTooLarge,
    /// The policy sets `Resume`. Only commands with phases have a point to resume from, and they set it
    /// themselves.
    #[error(
        "`on_lease_expired = \"resume\"` is for commands with phases, which say so themselves: a handler that was cut off \
         cannot be resumed"
    )]
    OnlyPhasesResume,
}

/// Longest lease, timeout, late answer, wait and margin, in days.
pub const MAX_WAIT_DAYS: u64 = 1;

/// Longest retention, in days: a hundred years.
pub const MAX_KEPT_DAYS: u64 = 36_500;

/// Largest response body that can be stored for replays, in bytes. Each is in memory several times while it
/// is stored.
pub const MAX_STORED_RESPONSE: usize = 64 << 20;

/// Shortest lease.
pub const MIN_LEASE: Duration = Duration::from_millis(100);

impl Policy {
    /// Sets the profile, and its minimum key length.
    pub fn follow(&mut self, profile: Profile) {
        self.profile = profile;
        self.key_rules.min_length = profile.key_min_length();
    }

    /// Checks that this policy is valid.
    pub fn validate(&self) -> Result<(), PolicyError> {
        if self.on_lease_expired == OnLeaseExpired::Resume {
            return Err(PolicyError::OnlyPhasesResume);
        }
        let durations = [
            ("ttl", self.ttl),
            ("timeout", self.timeout),
            ("tombstone_ttl", self.tombstone_ttl),
            ("start_within", self.start_within),
            ("late_answer", self.late_answer.unwrap_or(Duration::MAX)),
        ];
        if let Some((name, _)) = durations.into_iter().find(|(_, duration)| duration.is_zero()) {
            return Err(PolicyError::Zero(name));
        }
        let bounded = [
            ("lease", self.lease, MAX_WAIT_DAYS),
            ("timeout", self.timeout, MAX_WAIT_DAYS),
            ("late_answer", self.late_answer.unwrap_or_default(), MAX_WAIT_DAYS),
            ("wait", self.wait, MAX_WAIT_DAYS),
            ("quarantine_margin", self.quarantine_margin, MAX_WAIT_DAYS),
            ("start_within", self.start_within, MAX_KEPT_DAYS),
            ("ttl", self.ttl, MAX_KEPT_DAYS),
            ("tombstone_ttl", self.tombstone_ttl, MAX_KEPT_DAYS),
        ];
        let too_long = |days: u64, duration: Duration| duration.as_secs() > days * 24 * 60 * 60;
        if let Some((name, _, days)) = bounded.into_iter().find(|(_, time, days)| too_long(*days, *time)) {
            return Err(PolicyError::TooLong(name, days));
        }
        if self.lease < MIN_LEASE {
            return Err(PolicyError::LeaseTooShort);
        }
        if self.max_stored_response > MAX_STORED_RESPONSE {
            return Err(PolicyError::ResponseTooLarge);
        }
        if self.key_rules.min_length > self.key_rules.max_length {
            return Err(PolicyError::KeyLengths);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_policy_is_valid() {
        assert_eq!(Policy::default().validate(), Ok(()));
    }

    #[test]
    fn invalid_policies_name_their_setting() {
        let refuse = |change: fn(&mut Policy)| {
            let mut policy = Policy::default();
            change(&mut policy);
            policy.validate().expect_err("the change makes it invalid").to_string()
        };
        assert_eq!(refuse(|p| p.ttl = Duration::ZERO), "`ttl` must be longer than zero");
        assert_eq!(refuse(|p| p.timeout = Duration::ZERO), "`timeout` must be longer than zero");
        assert_eq!(
            refuse(|p| p.late_answer = Some(Duration::ZERO)),
            "`late_answer` must be longer than zero"
        );
        assert_eq!(
            refuse(|p| p.late_answer = Some(Duration::MAX)),
            "`late_answer` must not be longer than 1 days"
        );
        assert_eq!(refuse(|p| p.wait = Duration::MAX), "`wait` must not be longer than 1 days");
        assert_eq!(refuse(|p| p.lease = Duration::MAX), "`lease` must not be longer than 1 days");
        assert_eq!(refuse(|p| p.lease = Duration::from_millis(99)), "`lease` must be at least 100 ms");
        assert_eq!(
            refuse(|p| p.key_rules.min_length = 256),
            "`key_min_length` is larger than `key_max_length`"
        );
        assert_eq!(refuse(|p| p.start_within = Duration::ZERO), "`start_within` must be longer than zero");
        assert_eq!(
            refuse(|p| p.max_stored_response = (64 << 20) + 1),
            "`max_stored_response` must not be larger than 64 MiB"
        );
        let resume = refuse(|p| p.on_lease_expired = OnLeaseExpired::Resume);
        assert!(
            resume.starts_with("`on_lease_expired = \"resume\"` is for commands with phases"),
            "{resume}"
        );
    }

    #[test]
    fn stripes_profile_takes_keys_of_one_to_255_characters() {
        let mut policy = Policy::default();
        assert_eq!(policy.key_rules.min_length, policy.profile.key_min_length());
        policy.follow(Profile::Stripe);
        assert_eq!((policy.key_rules.min_length, policy.key_rules.max_length), (1, 255));
        policy.follow(Profile::Ietf);
        assert_eq!(policy, Policy::default());
    }

    #[test]
    fn each_bound_is_still_allowed_and_a_step_beyond_it_is_not() {
        let is_allowed = |change: &dyn Fn(&mut Policy)| {
            let mut policy = Policy::default();
            change(&mut policy);
            policy.validate().is_ok()
        };
        let (day, second) = (Duration::from_secs(86_400), Duration::from_secs(1));
        let waits: [fn(&mut Policy) -> &mut Duration; 4] =
            [|p| &mut p.lease, |p| &mut p.timeout, |p| &mut p.wait, |p| &mut p.quarantine_margin];
        let kept: [fn(&mut Policy) -> &mut Duration; 3] =
            [|p| &mut p.start_within, |p| &mut p.ttl, |p| &mut p.tombstone_ttl];
        let waits = waits.map(|field| (field, MAX_WAIT_DAYS as u32));
        let kept = kept.map(|field| (field, MAX_KEPT_DAYS as u32));
        for (field, days) in waits.into_iter().chain(kept) {
            assert!(is_allowed(&|policy| *field(policy) = day * days), "{days} days");
            assert!(!is_allowed(&|policy| *field(policy) = day * days + second), "{days} days and a second");
        }
        assert!(is_allowed(&|policy| policy.lease = MIN_LEASE));
        assert!(is_allowed(&|policy| policy.max_stored_response = MAX_STORED_RESPONSE));
        assert!(is_allowed(&|policy| policy.key_rules.min_length = policy.key_rules.max_length));
    }
}
