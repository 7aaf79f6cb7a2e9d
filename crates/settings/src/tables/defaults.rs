//! `[defaults]`: the default policy of operations.

use http::{HeaderName, StatusCode};
use semel_core::key::MAX_FIELD_BYTES;
use semel_core::policy::{
    InProgress, KeepRequest, KeyRequirement, MAX_STORED_RESPONSE, Mode, OnExpired, OnLeaseExpired,
    OnServerError, PolicyError, Profile, Spelling, StoreResponse,
};
use semel_core::{KeySyntax, Policy, Tier};

use crate::engine::findings::Findings;
use crate::engine::kind::{Choice, List, OrOff, Words};
use crate::engine::setting::{Setting, setting};
use crate::engine::source::Origin;
use crate::parts::scalar::{Count, Period, Size, SizeUpTo, Switch, WaitTime};

/// Settings of `[defaults]`; an `[[operation]]` may override each.
pub(crate) const DEFAULTS: &[Setting<Policy>] = &[
    setting!("mode", Choice<Mode>, mode, "Time of execution (while the client waits, or later by a worker)"),
    setting!(
        "start_within",
        Period,
        start_within,
        "With mode async: deadline for a worker to start a command"
    ),
    setting!(
        "store_credentials",
        Switch,
        store_credentials,
        "Storage of every field of a kept request (mode async, keep_request), credentials included"
    ),
    setting!(
        "store_request_headers",
        List<HeaderName>,
        store_request_headers,
        "Additional fields of a kept request (mode async, keep_request), beside those of content, \
         negotiation and tracing"
    ),
    setting!(
        "keep_request",
        Choice<KeepRequest>,
        keep_request,
        "Storage of the request from the claim until the outcome is known, as a help with unknown outcomes"
    ),
    setting!(
        "key",
        Choice<KeyRequirement>,
        key,
        "Commands without an Idempotency-Key are refused (required) or unprotected (optional); ignored protects none"
    ),
    setting!(
        "key_syntax",
        Choice<KeySyntax>,
        key_rules.syntax,
        "Accepted syntax of keys (quoted or bare, or quoted only)"
    ),
    setting!(
        "key_min_length",
        Count<1, MAX_FIELD_BYTES>,
        key_rules.min_length,
        "Shortest key, in characters; with profile stripe the default is 1"
    ),
    setting!("key_max_length", Count<1, MAX_FIELD_BYTES>, key_rules.max_length, "Longest key, in characters"),
    setting!(
        "profile",
        Choice<Profile>,
        profile,
        "Format of error answers (problem documents of the IETF, or errors of Stripe)"
    ),
    setting!("ttl", Period, ttl, "Time for which a settled record is kept, from completion"),
    setting!("lease", Period, lease, "Length of the lease of a claim; renewed while the command runs"),
    setting!("timeout", Period, timeout, "Timeout of one call to the upstream"),
    setting!(
        "late_answer",
        OrOff<Period>,
        late_answer,
        "Time after timeout in which a late answer is still read, if the request was sent whole"
    ),
    setting!("wait", WaitTime, wait, "Longest wait of a concurrent duplicate for the first request's answer"),
    setting!(
        "in_progress",
        Choice<InProgress>,
        in_progress,
        "Answer to a duplicate while the first request still runs"
    ),
    setting!("on_lease_expired", Choice<OnLeaseExpired>, on_lease_expired, "Meaning of an expired lease"),
    setting!(
        "on_server_error",
        Choice<OnServerError>,
        on_server_error,
        "Meaning of a 408 or 5xx of the upstream"
    ),
    setting!("on_expired", Choice<OnExpired>, on_expired, "Treatment of a retry after the ttl"),
    setting!(
        "tombstone_ttl",
        Period,
        tombstone_ttl,
        "Time for which on_expired = \"refuse\" remembers a key"
    ),
    setting!(
        "quarantine_margin",
        WaitTime,
        quarantine_margin,
        "Margin of the quarantine, added to lease, timeout and late_answer before a not-executed verdict \
         may free a key"
    ),
    setting!(
        "not_executed_statuses",
        List<StatusCode>,
        not_executed_statuses,
        "Statuses by which the upstream declares that it did nothing"
    ),
    setting!("max_request", Size<0>, max_request, "The largest body of a command"),
    setting!(
        "max_request_age",
        OrOff<Period>,
        max_request_age,
        "Largest age of a request, by its timestamp_header"
    ),
    setting!(
        "timestamp_header",
        HeaderName,
        timestamp_header,
        "Header with the time at which a request was made"
    ),
    setting!(
        "max_stored_response",
        SizeUpTo<MAX_STORED_RESPONSE>,
        max_stored_response,
        "The largest response kept for replays"
    ),
    setting!(
        "store_response",
        Choice<StoreResponse>,
        store_response,
        "Stored part of a response (all of it, its head, or the address of the created resource)"
    ),
    setting!(
        "store_headers_except",
        List<HeaderName>,
        store_headers_except,
        "Header fields that are never stored, beside credentials"
    ),
    setting!(
        "trailing_slash",
        Choice<Spelling>,
        trailing_slash,
        "Treatment of a path that differs from an operation's only by a slash at the end (refused, the \
         same, or another)"
    ),
    setting!(
        "letter_case",
        Choice<Spelling>,
        letter_case,
        "Treatment of a path that differs from an operation's only by upper and lower case (refused, the \
         same, or another)"
    ),
    setting!("needs_tier", Tier, needs_tier, "The tier that the store must promise for a command to run"),
];

/// Setting for the shortest key of every operation that does not set its own.
pub(crate) const MIN_LENGTH: &str = "defaults.key_min_length";

/// Gives a policy the shortest key of its profile, unless one of these settings is set.
pub(crate) fn follow_profile(findings: &Findings, paths: &[&str], policy: &mut Policy) {
    if !paths.iter().any(|path| findings.is_set(path)) {
        policy.follow(policy.profile);
    }
}

/// Checks that the policy under `prefix` is consistent.
pub(crate) fn check(findings: &mut Findings, prefix: &str, policy: &Policy) {
    let Err(error) = policy.validate() else { return };
    let names: &[&str] = match &error {
        PolicyError::Zero(name) | PolicyError::TooLong(name, _) => &[*name],
        PolicyError::OnlyPhasesResume => &["on_lease_expired"],
        PolicyError::LeaseTooShort => &["lease"],
        PolicyError::KeyLengths => &["key_min_length", "key_max_length"],
        PolicyError::ResponseTooLarge => &["max_stored_response"],
    };
    let paths: Vec<_> = names.iter().map(|name| format!("{prefix}.{name}")).collect();
    match paths.iter().find(|path| findings.is_set(path)) {
        Some(path) => findings.error(findings.origin(path), path, error.to_string()),
        // Settings that an operation has from the defaults were checked there.
        None if prefix != "defaults" => {}
        None => findings.error(Origin::Default, prefix, error.to_string()),
    }
}

impl Words for Mode {
    const WORDS: &'static [(&'static str, Self)] = &[("sync", Mode::Sync), ("async", Mode::Async)];
}

impl Words for KeepRequest {
    const WORDS: &'static [(&'static str, Self)] =
        &[("off", KeepRequest::Off), ("while-unknown", KeepRequest::WhileUnknown)];
}

impl Words for KeyRequirement {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("required", KeyRequirement::Required),
        ("optional", KeyRequirement::Optional),
        ("ignored", KeyRequirement::Ignored),
    ];
}

impl Words for KeySyntax {
    const WORDS: &'static [(&'static str, Self)] =
        &[("lenient", KeySyntax::Lenient), ("strict", KeySyntax::Strict)];
}

impl Words for Profile {
    const WORDS: &'static [(&'static str, Self)] = &[("ietf", Profile::Ietf), ("stripe", Profile::Stripe)];
}

impl Words for InProgress {
    const WORDS: &'static [(&'static str, Self)] =
        &[("conflict", InProgress::Conflict), ("accepted", InProgress::Accepted)];
}

impl Words for OnLeaseExpired {
    const WORDS: &'static [(&'static str, Self)] =
        &[("unknown", OnLeaseExpired::Unknown), ("rerun", OnLeaseExpired::Rerun)];
    const UNLISTED: &'static [(&'static str, Self)] = &[("resume", OnLeaseExpired::Resume)];
}

impl Words for OnServerError {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("unknown", OnServerError::Unknown),
        ("replay", OnServerError::Replay),
        ("retry", OnServerError::Retry),
    ];
}

impl Words for OnExpired {
    const WORDS: &'static [(&'static str, Self)] =
        &[("forget", OnExpired::Forget), ("refuse", OnExpired::Refuse)];
}

impl Words for Spelling {
    const WORDS: &'static [(&'static str, Self)] =
        &[("refuse", Spelling::Refuse), ("same", Spelling::Same), ("other", Spelling::Other)];
}

impl Words for StoreResponse {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("full", StoreResponse::Full),
        ("headers", StoreResponse::Headers),
        ("reference", StoreResponse::Reference),
    ];
}
