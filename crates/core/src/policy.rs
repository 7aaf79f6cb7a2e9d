//! What an operation wants: every setting of a configuration's `[defaults]`, with its default.
//!
//! A policy is plain data. What must outlive the process that held it goes with the record, as its
//! [`Terms`](crate::terms::Terms).

use std::time::Duration;

use http::{HeaderName, StatusCode};

use crate::key::KeyRules;
use crate::tier::Tier;

/// When the command is carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// While the client waits for the answer.
    #[default]
    Sync,
    /// Later, by a worker; the client polls.
    Async,
}

/// Whether a command must carry a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeyRequirement {
    /// A command without a key is refused.
    #[default]
    Required,
    /// A command without a key passes unprotected.
    Optional,
    /// Keys mean nothing here: the operation opts out, by name.
    Ignored,
}

/// Whose habits the answers follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Profile {
    /// The IETF draft: 422 for a reused key, `Idempotency-Replayed`.
    #[default]
    Ietf,
    /// Stripe: 400 for a reused key, `Idempotent-Replayed`, errors in Stripe's envelope, keys from 1 character on.
    Stripe,
}

impl Profile {
    /// Returns the fewest characters of a key where no setting says otherwise.
    pub fn key_min_length(self) -> usize {
        match self {
            Profile::Ietf => 16,
            Profile::Stripe => 1,
        }
    }
}

/// What a duplicate gets while the first request still runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InProgress {
    /// 409 with `Retry-After`.
    #[default]
    Conflict,
    /// 202 with the address to poll.
    Accepted,
}

/// What it means that an executor's lease ended without a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnLeaseExpired {
    /// Nobody can prove what happened.
    #[default]
    Unknown,
    /// The command has phases, which say where a worker goes on.
    Resume,
    /// The operation is declared safe to repeat: the next request runs it again.
    Rerun,
}

/// What a server error (408, or any status from 500 on) of the handler means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnServerError {
    /// Nobody can prove whether the effect took place.
    #[default]
    Unknown,
    /// The error is the final answer.
    Replay,
    /// Nothing happened: the key may be used again.
    Retry,
}

/// What a retry after the TTL gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnExpired {
    /// It is a new request.
    #[default]
    Forget,
    /// 410, as long as the tombstone is kept.
    Refuse,
}

/// The meaning of a path that differs from an operation's own by a slash at its end, or by the case of its letters, only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Spelling {
    /// Nobody can say what the service takes it for: it is refused.
    #[default]
    Refuse,
    /// The service takes it for the same path, and gets it as the operation spells it.
    Same,
    /// The service takes it for another path.
    Other,
}

/// What is stored of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StoreResponse {
    /// All of it: retries get the same bytes.
    #[default]
    Full,
    /// Its status and header fields: retries get these, and are told that the body was not kept.
    Headers,
    /// Its status and the address of what the command made: retries get what is found there, as it is by then.
    Reference,
}

/// How long the request of a command is kept for people, beside the time that a worker needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeepRequest {
    /// Not at all.
    #[default]
    Off,
    /// From its claim until its outcome is known, so that whoever looks into an unknown outcome sees what was asked for.
    WhileUnknown,
}

/// What an operation wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// When the command is carried out.
    pub mode: Mode,
    /// Whether a command must carry a key.
    pub key: KeyRequirement,
    /// How keys are spelled (`key_syntax`, `key_min_length`, `key_max_length`).
    pub key_rules: KeyRules,
    /// Whose habits the answers follow.
    pub profile: Profile,
    /// How long a settled record is kept, from when it settled.
    pub ttl: Duration,
    /// How long a claim holds; renewed while the handler runs, so it may be shorter than `timeout`.
    pub lease: Duration,
    /// How long the handler may take.
    pub timeout: Duration,
    /// How long a response is still read after `timeout`, where its request was sent whole to another process; `None` does
    /// not read it. A handler in this process always ends at `timeout`.
    pub late_answer: Option<Duration>,
    /// How long a concurrent duplicate waits for the winner.
    pub wait: Duration,
    /// What it gets after that.
    pub in_progress: InProgress,
    /// What an ended lease means.
    pub on_lease_expired: OnLeaseExpired,
    /// How long a command may wait for a worker, where `mode` is `Async`.
    pub start_within: Duration,
    /// How long the request is kept for people.
    pub keep_request: KeepRequest,
    /// Whether every field of a request is kept with it, credentials included, where `mode` is `Async` or `keep_request` says so.
    pub store_credentials: bool,
    /// Fields of a request that are kept with it, beside [those that always are](crate::keep::is_kept_field).
    pub store_request_headers: Vec<HeaderName>,
    /// What a server error means.
    pub on_server_error: OnServerError,
    /// What a retry after the TTL gets.
    pub on_expired: OnExpired,
    /// How long tombstones are kept, where `on_expired` is `Refuse`.
    pub tombstone_ttl: Duration,
    /// Added to `lease`, `timeout` and `late_answer` before a verdict of "not executed" may free a key.
    pub quarantine_margin: Duration,
    /// Answers by which the handler says that it did nothing.
    pub not_executed_statuses: Vec<StatusCode>,
    /// The largest request body, in bytes.
    pub max_request: usize,
    /// How old a request may be, by its `timestamp_header`; `None` does not look.
    pub max_request_age: Option<Duration>,
    /// The header that says when the client made the request.
    pub timestamp_header: HeaderName,
    /// The largest response body that is kept for replays, in bytes.
    pub max_stored_response: usize,
    /// What is stored of a response.
    pub store_response: StoreResponse,
    /// Header fields that are never stored, beside those that are never stored anyway: of responses, and of requests that
    /// are kept for a worker.
    pub store_headers_except: Vec<HeaderName>,
    /// The meaning of a path that differs from the operation's own by a slash at its end only.
    pub trailing_slash: Spelling,
    /// The meaning of a path that differs from the operation's own by upper and lower case only.
    pub letter_case: Spelling,
    /// The tier that a store must promise for a command to run. Every store promises `Tier::Three`.
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

/// Why a policy cannot be followed. Each names the setting as a configuration spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A duration of zero would end before it began.
    #[error("`{0}` must be longer than zero")]
    Zero(&'static str),
    /// Longer than anything can be waited for or kept.
    #[error("`{0}` must not be longer than {1} days")]
    TooLong(&'static str, u64),
    /// A lease shorter than this is over before a store has answered.
    #[error("`lease` must be at least {} ms", MIN_LEASE.as_millis())]
    LeaseTooShort,
    /// No key could be long enough and short enough.
    #[error("`key_min_length` is larger than `key_max_length`")]
    KeyLengths,
    /// More than any store takes.
    #[error("`max_stored_response` must not be larger than {} MiB", MAX_STORED_RESPONSE >> 20)]
    ResponseTooLarge,
    /// Only commands with phases know where to go on.
    #[error(
        "`on_lease_expired = \"resume\"` is for commands with phases, which say so themselves: a handler that was cut off \
         cannot be resumed"
    )]
    OnlyPhasesResume,
}

/// The longest lease, timeout, late answer, wait and margin, in days.
pub const MAX_WAIT_DAYS: u64 = 1;

/// The longest time that anything is kept, in days: a hundred years.
pub const MAX_KEPT_DAYS: u64 = 36_500;

/// The largest response body that can be kept for replays, in bytes. Each is in memory several times while it is stored.
pub const MAX_STORED_RESPONSE: usize = 64 << 20;

/// The shortest lease.
pub const MIN_LEASE: Duration = Duration::from_millis(100);

impl Policy {
    /// Sets the profile, and the shortest key that goes with it.
    pub fn follow(&mut self, profile: Profile) {
        self.profile = profile;
        self.key_rules.min_length = profile.key_min_length();
    }

    /// Whether this policy can be followed.
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
    fn the_defaults_can_be_followed() {
        assert_eq!(Policy::default().validate(), Ok(()));
    }

    #[test]
    fn what_cannot_be_followed_is_named() {
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
