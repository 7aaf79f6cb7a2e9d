//! The gRPC form of answers.
//!
//! Invariant: an answer has a status that clients retry by themselves only if nothing ran. gRPC's own retries send the same
//! metadata, and so the same key, but a caller above them may draw a new key.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use semel_core::problem::ProblemKind;

use crate::body::Body;

use super::{AnswerDecision, AnswerFacts, headers};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// The gRPC status codes of Semel's own answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Unavailable = 14,
    Unauthenticated = 16,
}

/// Returns true for a request with the content type of gRPC (`application/grpc`, `application/grpc+proto`, …).
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(CONTENT_TYPE).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else { return false };
    // A list names several types, and another reader may take another one of them.
    let Some(media_type) = line.to_str().ok().filter(|text| !text.contains(',')) else { return false };
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.strip_prefix("application/grpc").is_some_and(|rest| rest.is_empty() || rest.starts_with('+'))
}

/// Turns an answer to a gRPC call into its gRPC form: one of Semel's own gets a head and nothing else ("Trailers-Only"), every
/// other stays as it is.
pub fn as_grpc(answer: Response<Body>) -> Response<Body> {
    let facts = AnswerFacts::of(&answer);
    let told = match (facts.code, facts.decision) {
        (Some(code), _) => code,
        (None, Some(AnswerDecision::InProgress | AnswerDecision::Accepted)) => ProblemKind::InProgress.code(),
        (None, _) => return answer,
    };
    if is_grpc(answer.headers()) {
        return answer;
    }
    let status = status(told, answer.status());
    let (mut parts, body) = answer.into_parts();
    let message = match detail(body) {
        Some(detail) => format!("{told}: {detail}"),
        None => told.to_owned(),
    };
    parts.status = StatusCode::OK;
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    parts.headers.insert(GRPC_STATUS, HeaderValue::from(status as u16));
    if let Ok(message) = HeaderValue::from_str(&percent_encoded(&message)) {
        parts.headers.insert(GRPC_MESSAGE, message);
    }
    // There is no document here that could name it.
    if let Some(id) = facts.operation_id {
        headers::name_operation(&mut parts.headers, id);
    }
    Response::from_parts(parts, Body::default())
}

/// Returns the gRPC status of an answer with this code.
fn status(code: &str, http: StatusCode) -> Status {
    match ProblemKind::ALL.into_iter().find(|kind| kind.code() == code) {
        // The command ran, runs, or may have run: another key could have a second effect. `ABORTED` would invite one.
        Some(
            ProblemKind::OutcomeUnknown
            | ProblemKind::InProgress
            | ProblemKind::KeyReused
            | ProblemKind::RecordExpired
            | ProblemKind::ResponseNotRetained,
        ) => Status::FailedPrecondition,
        Some(ProblemKind::DuplicateBusinessReference) => Status::AlreadyExists,
        // The call was not protected, and may have run: clients retry `UNAVAILABLE` by themselves.
        Some(ProblemKind::UpstreamFailed) if http == StatusCode::GATEWAY_TIMEOUT => Status::DeadlineExceeded,
        Some(ProblemKind::UpstreamFailed) => Status::Unknown,
        // Nothing ran.
        Some(ProblemKind::UpstreamUnreachable) => Status::Unavailable,
        Some(_) | None => match http {
            StatusCode::UNAUTHORIZED => Status::Unauthenticated,
            StatusCode::FORBIDDEN => Status::PermissionDenied,
            StatusCode::NOT_FOUND => Status::NotFound,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::PAYLOAD_TOO_LARGE => Status::ResourceExhausted,
            StatusCode::SERVICE_UNAVAILABLE => Status::Unavailable,
            other if other.is_client_error() => Status::InvalidArgument,
            _ => Status::FailedPrecondition,
        },
    }
}

/// Returns the sentence of a problem, in either profile.
fn detail(body: Body) -> Option<String> {
    let document: serde_json::Value = serde_json::from_slice(&body.into_bytes().ok()?).ok()?;
    let told = document.get("detail").or_else(|| document.get("error")?.get("message"));
    told?.as_str().map(str::to_owned)
}

/// Encodes `grpc-message`: printable ASCII except `%` stays.
fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b' '..=b'~' if byte != b'%' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use semel_core::Problem;
    use semel_core::policy::Profile;

    use super::*;
    use crate::answer::problem as told;

    #[test]
    fn content_types_of_grpc_are_known() {
        let is = |media_type: &'static str| {
            is_grpc(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(media_type))]))
        };
        for grpc in ["application/grpc", "application/grpc+proto", "Application/gRPC; charset=utf-8"] {
            assert!(is(grpc), "{grpc}");
        }
        for other in ["application/grpc-web", "application/json", "application/grpcx", ""] {
            assert!(!is(other), "{other}");
        }
        let mut two = HeaderMap::new();
        two.append(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        two.append(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        assert!(!is_grpc(&two) && !is("application/grpc;, application/json"), "one type only");
        assert!(!is_grpc(&HeaderMap::new()));
    }

    #[test]
    fn grpc_unavailable_is_only_used_if_the_command_did_not_run() {
        for kind in ProblemKind::ALL {
            let usual = kind.status(Profile::Ietf);
            let given = status(kind.code(), usual);
            if given == Status::Unavailable {
                let nothing_ran =
                    usual == StatusCode::SERVICE_UNAVAILABLE || kind == ProblemKind::UpstreamUnreachable;
                assert!(nothing_ran, "{}", kind.code());
            }
        }
        assert_eq!(
            status("IDEMPOTENCY_OUTCOME_UNKNOWN", StatusCode::BAD_GATEWAY),
            Status::FailedPrecondition
        );
        assert_eq!(status("UPSTREAM_FAILED", StatusCode::GATEWAY_TIMEOUT), Status::DeadlineExceeded);
        assert_eq!(status("UNAUTHENTICATED", StatusCode::UNAUTHORIZED), Status::Unauthenticated);
        assert_eq!(status("FORBIDDEN", StatusCode::FORBIDDEN), Status::PermissionDenied);
    }

    #[test]
    fn a_problem_becomes_a_grpc_status_without_a_body() {
        let problem = Problem::new(ProblemKind::MissingKey, "100 % of calls need a key \u{fc}");
        let answer = as_grpc(told(&problem, Profile::Ietf));
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["grpc-status"], "3");
        let message = "MISSING_IDEMPOTENCY_KEY: 100 %25 of calls need a key %C3%BC";
        assert_eq!(answer.headers()["grpc-message"], message);
        assert!(answer.body().is_end_stream());
        let again = as_grpc(answer);
        assert_eq!(again.headers()["grpc-message"], message, "it is so once and for all");
    }

    #[test]
    fn answers_of_the_service_are_not_converted_to_grpc() {
        let mut answer = Response::new(Body::full("bytes"));
        *answer.status_mut() = StatusCode::BAD_GATEWAY;
        assert_eq!(as_grpc(answer).status(), StatusCode::BAD_GATEWAY);
    }
}
