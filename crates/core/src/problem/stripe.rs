//! Problems in the format of Stripe's API: the envelope `{"error": {"type", "code", "message"}}`, from which
//! Stripe's SDKs make their exceptions. An SDK takes a response without `error` for a success, whatever its
//! status.

use serde_json::{Map, Value, json};

use super::{OPERATIONS_PATH, Problem, ProblemKind};
use crate::retry::RetryAdvice;

/// Returns the `type` of the error with this kind and status.
pub(super) fn error_type(kind: ProblemKind, status: u16) -> &'static str {
    match (kind, status) {
        (ProblemKind::KeyReused, _) => "idempotency_error",
        (ProblemKind::OutcomeUnknown, _) | (_, 500..) => "api_error",
        _ => "invalid_request_error",
    }
}

/// Returns the `code` of the error: Stripe's own if it has one, otherwise ours in Stripe's spelling.
pub(super) fn error_code(kind: ProblemKind) -> String {
    if kind == ProblemKind::InProgress {
        return "idempotency_key_in_use".to_owned();
    }
    let is_rate = matches!(kind, ProblemKind::QuotaExceeded | ProblemKind::LookupQuotaExceeded);
    if is_rate { "rate_limit".to_owned() } else { kind.code().to_ascii_lowercase() }
}

/// Returns the value of `Stripe-Should-Retry`. Stripe's SDKs retry every 409 and 5xx that does not say `false`, and no 429 that
/// does not say `true`: they do not wait as long as `Retry-After` asks.
pub(super) fn should_retry(kind: ProblemKind, status: u16) -> Option<&'static str> {
    match (kind.retry_advice(), status) {
        (_, 429) => None,
        (RetryAdvice::SameKey, _) => Some("true"),
        (RetryAdvice::Poll | RetryAdvice::Never, _) => Some("false"),
    }
}

/// Returns the envelope of a problem with this status.
pub(super) fn envelope(problem: &Problem, status: u16) -> Value {
    let mut error = Map::new();
    error.insert("type".into(), json!(error_type(problem.kind, status)));
    error.insert("code".into(), json!(error_code(problem.kind)));
    error.insert("message".into(), json!(problem.detail));
    if let Some(id) = problem.operation_id {
        error.insert("operationId".into(), json!(id.to_string()));
        error.insert("operationUrl".into(), json!(format!("{OPERATIONS_PATH}{id}")));
    }
    json!({ "error": error })
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::ids::OperationId;
    use crate::policy::Profile;

    /// Returns the status, type and code of an error, and its `Stripe-Should-Retry`.
    fn told(problem: &Problem) -> (u16, String, String, Option<String>) {
        let document: Value = serde_json::from_str(&problem.to_json(Profile::Stripe)).expect("it is JSON");
        let member = |name: &str| document["error"][name].as_str().expect("it is text").to_owned();
        let fields = problem.header_fields(Profile::Stripe);
        let retry = fields.iter().find(|(name, _)| name == "stripe-should-retry");
        let retry = retry.map(|(_, value)| value.to_str().expect("it is text").to_owned());
        (problem.status(Profile::Stripe).as_u16(), member("type"), member("code"), retry)
    }

    #[test]
    fn each_problem_has_the_type_that_stripes_sdks_expect() {
        let cases = [
            (
                ProblemKind::KeyReused,
                400,
                "idempotency_error",
                "idempotency_key_reused_with_different_request",
                Some("false"),
            ),
            (ProblemKind::InProgress, 409, "invalid_request_error", "idempotency_key_in_use", Some("true")),
            (ProblemKind::MissingKey, 400, "invalid_request_error", "missing_idempotency_key", Some("false")),
            (ProblemKind::InvalidKey, 400, "invalid_request_error", "invalid_idempotency_key", Some("false")),
            (ProblemKind::OutcomeUnknown, 409, "api_error", "idempotency_outcome_unknown", Some("false")),
            (ProblemKind::Unauthenticated, 401, "invalid_request_error", "unauthenticated", Some("false")),
            (ProblemKind::Forbidden, 403, "invalid_request_error", "forbidden", Some("false")),
            (ProblemKind::QuotaExceeded, 429, "invalid_request_error", "rate_limit", None),
            (ProblemKind::StoreUnavailable, 503, "api_error", "idempotency_store_unavailable", Some("true")),
            (ProblemKind::Held, 503, "api_error", "idempotency_held", Some("true")),
            (ProblemKind::DeadlineExceeded, 503, "api_error", "deadline_exceeded", Some("true")),
            (ProblemKind::UpstreamUnreachable, 502, "api_error", "upstream_unreachable", Some("true")),
            (ProblemKind::UpstreamFailed, 502, "api_error", "upstream_failed", Some("false")),
            (
                ProblemKind::DuplicateBusinessReference,
                409,
                "invalid_request_error",
                "duplicate_business_reference",
                Some("false"),
            ),
        ];
        for (kind, status, error_type, code, retry) in cases {
            let expected = (status, error_type.to_owned(), code.to_owned(), retry.map(str::to_owned));
            assert_eq!(told(&Problem::new(kind, "Why.")), expected, "{kind:?}");
        }
    }

    #[test]
    fn the_envelope_has_the_members_of_stripes_and_the_operation() {
        let id = OperationId::from_bytes([7; 16]);
        let problem = Problem::new(ProblemKind::OutcomeUnknown, "It broke off.").about(id);
        let problem = problem.with_status(StatusCode::GATEWAY_TIMEOUT);
        let document: Value = serde_json::from_str(&problem.to_json(Profile::Stripe)).expect("it is JSON");
        let error = json!({
            "type": "api_error",
            "code": "idempotency_outcome_unknown",
            "message": "It broke off.",
            "operationId": id.to_string(),
            "operationUrl": format!("/.well-known/semel/operations/{id}"),
        });
        assert_eq!(document, json!({ "error": error }));
    }

    #[test]
    fn a_success_has_no_error() {
        for kind in ProblemKind::ALL {
            for status in [StatusCode::OK, StatusCode::CREATED, StatusCode::SEE_OTHER] {
                let problem = Problem::new(kind, "Why.").with_status(status);
                let document: Value =
                    serde_json::from_str(&problem.to_json(Profile::Stripe)).expect("it is JSON");
                assert_eq!(document.get("error"), None, "{kind:?} {status}");
                assert_eq!(document["code"], kind.code());
                let fields = problem.header_fields(Profile::Stripe);
                assert!(fields.iter().any(|(_, value)| value == "application/problem+json"), "{fields:?}");
                assert!(fields.iter().all(|(name, _)| name != "stripe-should-retry"), "{fields:?}");
            }
        }
    }
}
