//! Samples of a store's arguments.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use semel_core::fingerprint::FingerprintVersion;
use semel_core::policy::{OnExpired, OnLeaseExpired};
use semel_core::{
    Attempt, Claim, ClaimFence, Clock, Fingerprint, FingerprintInput, Ids, KeyRules, OperationName, Policy,
    Principal, RandomIds, RecordId, Reference, Response, Scope, Start, StoredResult, SystemClock, Terms,
};

/// Returns the scope of `key`, of tenant `acme` and caller `alice`.
pub fn scope(key: &str) -> Scope {
    scope_of("acme", "alice", "payments.create", key)
}

/// Returns a scope with all its parts.
pub fn scope_of(tenant: &str, caller: &str, operation: &str, key: &str) -> Scope {
    let rules = KeyRules { min_length: 1, ..KeyRules::default() };
    Scope::new(
        Principal::new(tenant, caller).expect("samples have names"),
        OperationName::new(operation).expect("samples have names"),
        rules.parse([key.as_bytes()]).expect("samples are valid keys").expect("one line was given"),
    )
}

/// Returns the fingerprint of a request with this body.
pub fn fingerprint(body: &str) -> Fingerprint {
    let input = FingerprintInput {
        method: "POST",
        path: "/payments",
        query: None,
        content_type: Some(b"application/json"),
        content_encoding: None,
        body: body.as_bytes(),
        exclude: &[],
    };
    input.fingerprint()
}

/// Returns the fingerprint of a request with this body in a later version, which only tests have.
pub fn later_fingerprint(body: &str) -> Fingerprint {
    let version = FingerprintVersion::from_number(2).expect("it is a version");
    let mut digest = *fingerprint(body).digest();
    digest.iter_mut().for_each(|byte| *byte = !*byte);
    Fingerprint::from_parts(version, digest)
}

/// Returns the default terms: a lease of 30 s, a TTL of 24 h, no tombstones.
pub fn terms() -> Terms {
    Policy::default().terms()
}

/// Returns terms under which expired records leave a tombstone for 7 days.
pub fn terms_with_tombstones() -> Terms {
    Policy { on_expired: OnExpired::Refuse, ..Policy::default() }.terms()
}

/// Returns terms under which an expired lease frees the key, since the operation is declared safe to repeat.
pub fn terms_with_rerun() -> Terms {
    Policy { on_lease_expired: OnLeaseExpired::Rerun, ..Policy::default() }.terms()
}

/// Returns a claim on `key` under the default terms, with a token of its own.
pub fn claim(key: &str) -> Claim {
    claim_on(scope(key))
}

/// Returns a claim on this scope under the default terms, with a token of its own.
pub fn claim_on(scope: Scope) -> Claim {
    Claim {
        scope,
        operation_id: RandomIds.operation_id(SystemClock.now()),
        attempt: Attempt {
            fingerprint: fingerprint(r#"{"amount":1}"#),
            token: RandomIds.attempt_token(),
            terms: terms(),
            start: Start::Now,
            reference: Reference::None,
            fence: ClaimFence::Open,
        },
        business_reference: None,
        former: Vec::new(),
        request: None,
        trace: None,
    }
}

/// Sets other terms for a claim.
pub fn under(claim: Claim, terms: Terms) -> Claim {
    Claim { attempt: Attempt { terms, ..claim.attempt }, ..claim }
}

/// Sets another request body for a claim.
pub fn for_body(claim: Claim, body: &str) -> Claim {
    Claim { attempt: Attempt { fingerprint: fingerprint(body), ..claim.attempt }, ..claim }
}

/// Leaves a claim to a worker that must start within this time.
pub fn for_worker(claim: Claim, within: Duration) -> Claim {
    Claim { attempt: Attempt { start: Start::Within(within), ..claim.attempt }, ..claim }
}

/// Adds a business reference to a claim.
pub fn with_reference(claim: Claim, reference: &str) -> Claim {
    let attempt = Attempt { reference: Reference::Free, ..claim.attempt };
    Claim { attempt, business_reference: Some(reference.into()), ..claim }
}

/// Returns the id of the claim's record.
pub fn id(claim: &Claim) -> RecordId {
    claim.scope.record_id()
}

/// Returns a response with this status and body, with repeated header lines that contain commas.
pub fn response(status: u16, body: impl Into<Bytes>) -> Response {
    let mut headers = HeaderMap::new();
    headers.insert("location", HeaderValue::from_static("/payments/7"));
    for link in ["</a>; rel=\"x, y\", </b>", "</c>"] {
        headers.append("link", HeaderValue::from_static(link));
    }
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    let status = StatusCode::from_u16(status).expect("samples have real statuses");
    Response::retain(status, &headers, body.into(), &HeaderMap::new())
}

/// Returns the stored result of a response.
pub fn result(response: &Response) -> StoredResult {
    StoredResult::of(response)
}

/// Returns a result of status 201 with this body.
pub fn created(body: &str) -> StoredResult {
    result(&response(201, body.to_owned()))
}
