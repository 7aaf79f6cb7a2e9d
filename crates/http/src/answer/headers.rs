//! The response header fields that only Semel sets.

use std::time::Duration;

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use semel_core::policy::{Policy, Profile};
use semel_core::problem::OPERATIONS_PATH;
use semel_core::retry::RETRY_ADVICE;
use semel_core::{OperationId, Record, RetryAdvice, Timestamp};

pub(crate) const OPERATION_ID: HeaderName = HeaderName::from_static("idempotency-operation-id");
pub(super) const EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");
/// The mark of a replay in the IETF profile.
pub(super) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// The mark of a replay in the Stripe profile.
pub(super) const REPLAYED_STRIPE: HeaderName = HeaderName::from_static("idempotent-replayed");
/// The mark of a replay without the body of its response.
pub(super) const BODY: HeaderName = HeaderName::from_static("idempotency-body");

/// The field in which a handler declares its outcome; clients do not see it.
pub(crate) const OUTCOME: HeaderName = HeaderName::from_static("semel-outcome");

/// The `Retry-After` of a command that runs, or of a failure that passes.
pub(crate) const SOON: Duration = Duration::from_secs(1);

/// The `Retry-After` of a command that is held: a hold is lifted by a person.
pub(crate) const HELD: Duration = Duration::from_secs(10);

/// Removes from a handler's response the fields that only Semel sets.
pub(crate) fn strip_own(headers: &mut HeaderMap) {
    for name in [REPLAYED, REPLAYED_STRIPE, OUTCOME, BODY] {
        headers.remove(name);
    }
}

/// Sets the operation's id and its expiry, and removes what the handler set in their place.
pub(crate) fn mark(headers: &mut HeaderMap, record: &Record) {
    headers.remove(REPLAYED);
    headers.remove(REPLAYED_STRIPE);
    headers.remove(BODY);
    name_operation(headers, record.operation_id);
    match record.head.state.expires_at().filter(|_| record.head.state.is_terminal()) {
        Some(expiry) => headers.insert(EXPIRES, ascii(&Timestamp::to_http_date(expiry))),
        None => headers.remove(EXPIRES),
    };
}

/// Marks a replay in the profile of its operation.
pub(super) fn mark_replayed(headers: &mut HeaderMap, record: &Record, policy: &Policy) {
    mark(headers, record);
    let replayed = match policy.profile {
        Profile::Ietf => REPLAYED,
        Profile::Stripe => REPLAYED_STRIPE,
    };
    headers.insert(replayed, HeaderValue::from_static("true"));
}

/// Sets the retry advice, or removes the handler's own.
pub(crate) fn advise(headers: &mut HeaderMap, advice: Option<RetryAdvice>) {
    match advice {
        Some(advice) => headers.insert(RETRY_ADVICE, advice.value()),
        None => headers.remove(RETRY_ADVICE),
    };
}

/// Sets the address at which an open operation can be polled, and the time to wait before.
pub(crate) fn poll(headers: &mut HeaderMap, record: &Record) {
    headers.insert(LOCATION, ascii(&format!("{OPERATIONS_PATH}{}", record.operation_id)));
    headers.entry(RETRY_AFTER).or_insert_with(|| retry_after(SOON));
    name_operation(headers, record.operation_id);
}

pub(super) fn name_operation(headers: &mut HeaderMap, id: OperationId) {
    headers.insert(OPERATION_ID, ascii(&id.to_string()));
}

pub(super) fn retry_after(delay: Duration) -> HeaderValue {
    HeaderValue::from(delay.as_secs().max(1))
}

pub(super) fn ascii(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("ids, dates and paths of ours are printable ASCII")
}
