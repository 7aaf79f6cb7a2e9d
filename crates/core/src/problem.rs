//! Error responses: RFC 9457 problem details, or Stripe's error envelope, for clients that do not get a
//! handler's response.
//!
//! One [`ProblemKind`] for each row of the contract; clients rely on its codes and slugs, so these never
//! change.

mod advice;
mod stripe;

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};

use crate::ids::OperationId;
use crate::outcome::is_server_error;
use crate::policy::Profile;
use crate::retry::RETRY_ADVICE;

/// Field that tells Stripe's SDKs to retry, or not.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");

/// Path prefix of operations that clients look up.
pub const OPERATIONS_PATH: &str = "/.well-known/semel/operations/";

/// Path prefix of the descriptions of problems.
pub const PROBLEMS_PATH: &str = "/.well-known/semel/problems/";

/// A kind of problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProblemKind {
    /// A command has no key.
    MissingKey,
    /// The key cannot be used.
    InvalidKey,
    /// The key belongs to another request.
    KeyReused,
    /// The first request still runs.
    InProgress,
    /// The outcome of the command is unknown.
    OutcomeUnknown,
    /// The command ran, and its response is gone.
    RecordExpired,
    /// The command ran, and its response was never kept.
    ResponseNotRetained,
    /// The response is stored, and cannot be read.
    ResponseUnreadable,
    /// The command ran, and its created resource cannot be fetched now.
    ResultUnavailable,
    /// Another key already holds this business reference.
    DuplicateBusinessReference,
    /// The caller is not authenticated.
    Unauthenticated,
    /// The caller is not authorised.
    Forbidden,
    /// Too many new keys.
    QuotaExceeded,
    /// Too many requests that need a look-up of a record.
    LookupQuotaExceeded,
    /// The request is older than the operation allows.
    RequestTooOld,
    /// The body is over the limit.
    RequestTooLarge,
    /// The body broke off.
    RequestIncomplete,
    /// The authorisation service cannot be reached: nothing ran.
    AuthorizationUnavailable,
    /// The store cannot be reached: nothing ran.
    StoreUnavailable,
    /// This node is shutting down: nothing ran.
    ShuttingDown,
    /// An operator holds the operation or the tenant: nothing ran.
    Held,
    /// The deadline that the client set was over before the claim: nothing ran.
    DeadlineExceeded,
    /// This node is overloaded: nothing ran.
    Overloaded,
    /// The upstream refused the connection: nothing ran.
    UpstreamUnreachable,
    /// The command failed and was rolled back: nothing happened.
    RolledBack,
    /// A bulk request has items that cannot be distinguished, or too many.
    InvalidBulk,
    /// The upstream failed, and its effect is unknown, for a request that is not a command.
    UpstreamFailed,
    /// There is no such operation for this caller.
    OperationNotFound,
    /// The request is ambiguous.
    MalformedRequest,
    /// The request asks for a host that this gateway does not serve.
    MisdirectedRequest,
    /// The head is over the limit.
    RequestHeadTooLarge,
    /// The head did not arrive in time.
    RequestHeadTimeout,
    /// There is nothing at this address of the admin listener.
    NotFound,
    /// An operator's action does not apply in the current state.
    ActionRefused,
}

/// Constants of a kind: its code, slug, usual status, title and advice.
struct ProblemEntry {
    code: &'static str,
    slug: &'static str,
    status: StatusCode,
    title: &'static str,
    advice: &'static str,
}

impl ProblemKind {
    /// Every kind.
    pub const ALL: [ProblemKind; 34] = [
        ProblemKind::MissingKey,
        ProblemKind::InvalidKey,
        ProblemKind::KeyReused,
        ProblemKind::InProgress,
        ProblemKind::OutcomeUnknown,
        ProblemKind::RecordExpired,
        ProblemKind::ResponseNotRetained,
        ProblemKind::ResponseUnreadable,
        ProblemKind::ResultUnavailable,
        ProblemKind::DuplicateBusinessReference,
        ProblemKind::Unauthenticated,
        ProblemKind::Forbidden,
        ProblemKind::QuotaExceeded,
        ProblemKind::LookupQuotaExceeded,
        ProblemKind::RequestTooOld,
        ProblemKind::RequestTooLarge,
        ProblemKind::RequestIncomplete,
        ProblemKind::AuthorizationUnavailable,
        ProblemKind::StoreUnavailable,
        ProblemKind::ShuttingDown,
        ProblemKind::Held,
        ProblemKind::DeadlineExceeded,
        ProblemKind::Overloaded,
        ProblemKind::UpstreamUnreachable,
        ProblemKind::RolledBack,
        ProblemKind::InvalidBulk,
        ProblemKind::UpstreamFailed,
        ProblemKind::OperationNotFound,
        ProblemKind::MalformedRequest,
        ProblemKind::MisdirectedRequest,
        ProblemKind::RequestHeadTooLarge,
        ProblemKind::RequestHeadTimeout,
        ProblemKind::NotFound,
        ProblemKind::ActionRefused,
    ];

    fn entry(self) -> ProblemEntry {
        let entry = |code, slug, status, title, advice| ProblemEntry { code, slug, status, title, advice };
        match self {
            ProblemKind::MissingKey => entry(
                "MISSING_IDEMPOTENCY_KEY",
                "missing-idempotency-key",
                StatusCode::BAD_REQUEST,
                "An Idempotency-Key is required",
                "Send the request again with a new Idempotency-Key, for example a UUID. This request ran nothing.",
            ),
            ProblemKind::InvalidKey => entry(
                "INVALID_IDEMPOTENCY_KEY",
                "invalid-idempotency-key",
                StatusCode::BAD_REQUEST,
                "The Idempotency-Key is invalid",
                "Send the request again with one well-formed Idempotency-Key. This request ran nothing.",
            ),
            ProblemKind::KeyReused => entry(
                "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST",
                "idempotency-key-reused-with-different-request",
                StatusCode::UNPROCESSABLE_ENTITY,
                "The Idempotency-Key was used for a different request",
                "Use a new key for a new command; send a retry exactly as the first request. This request ran nothing.",
            ),
            ProblemKind::InProgress => entry(
                "IDEMPOTENCY_REQUEST_IN_PROGRESS",
                "idempotency-request-in-progress",
                StatusCode::CONFLICT,
                "A request with this Idempotency-Key is still in progress",
                "Send the same request again after Retry-After. It will not run twice.",
            ),
            ProblemKind::OutcomeUnknown => entry(
                "IDEMPOTENCY_OUTCOME_UNKNOWN",
                "idempotency-outcome-unknown",
                StatusCode::CONFLICT,
                "The outcome of the request is unknown",
                "Do not send the command under another key: it may have taken effect. Ask for the operation, \
                 or retry with the same key later; the command runs again only once it is proven that it \
                 did not run.",
            ),
            ProblemKind::RecordExpired => entry(
                "IDEMPOTENCY_RECORD_EXPIRED",
                "idempotency-record-expired",
                StatusCode::GONE,
                "The record of this Idempotency-Key has expired",
                "The command ran, and its response is no longer kept. Look the result up where the service \
                 keeps it.",
            ),
            ProblemKind::ResponseNotRetained => entry(
                "IDEMPOTENCY_RESPONSE_NOT_RETAINED",
                "idempotency-response-not-retained",
                StatusCode::OK,
                "The response was not retained",
                "The command ran once, with the status of this answer. The body of its response is not kept, \
                 and cannot be shown again; follow Location where there is one.",
            ),
            ProblemKind::ResponseUnreadable => entry(
                "IDEMPOTENCY_RESPONSE_UNREADABLE",
                "idempotency-response-unreadable",
                StatusCode::INTERNAL_SERVER_ERROR,
                "The stored response cannot be read",
                "The command ran and does not run again. The operator of the service can see why its stored \
                 response cannot be read.",
            ),
            ProblemKind::ResultUnavailable => entry(
                "IDEMPOTENCY_RESULT_UNAVAILABLE",
                "idempotency-result-unavailable",
                StatusCode::SERVICE_UNAVAILABLE,
                "What the command made cannot be fetched at this moment",
                "The command ran and does not run again. Send the same request again after Retry-After, or \
                 follow Location.",
            ),
            ProblemKind::DuplicateBusinessReference => entry(
                "DUPLICATE_BUSINESS_REFERENCE",
                "duplicate-business-reference",
                StatusCode::CONFLICT,
                "The business reference is taken",
                "Another command already holds this reference. Look up the operation that holds it.",
            ),
            ProblemKind::Unauthenticated => entry(
                "UNAUTHENTICATED",
                "unauthenticated",
                StatusCode::UNAUTHORIZED,
                "The caller is not authenticated",
                "Send valid credentials. This request ran nothing.",
            ),
            ProblemKind::Forbidden => entry(
                "FORBIDDEN",
                "forbidden",
                StatusCode::FORBIDDEN,
                "The caller may not do this",
                "Ask for the permission, or use other credentials. This request ran nothing.",
            ),
            ProblemKind::QuotaExceeded => entry(
                "IDEMPOTENCY_KEY_QUOTA_EXCEEDED",
                "idempotency-key-quota-exceeded",
                StatusCode::TOO_MANY_REQUESTS,
                "Too many idempotency keys",
                "Send the same request again after Retry-After. This request ran nothing.",
            ),
            ProblemKind::LookupQuotaExceeded => entry(
                "LOOKUP_QUOTA_EXCEEDED",
                "lookup-quota-exceeded",
                StatusCode::TOO_MANY_REQUESTS,
                "Too many requests",
                "Send the same request again after Retry-After. This request ran nothing, but its key was not looked up: \
                 the command may have run before.",
            ),
            ProblemKind::RequestTooOld => entry(
                "REQUEST_TOO_OLD",
                "request-too-old",
                StatusCode::BAD_REQUEST,
                "The request is too old",
                "Check with the service whether the command is still wanted, then make a new request. \
                 This request ran nothing.",
            ),
            ProblemKind::RequestTooLarge => entry(
                "REQUEST_TOO_LARGE",
                "request-too-large",
                StatusCode::PAYLOAD_TOO_LARGE,
                "The request body is too large",
                "Send a smaller body. This request ran nothing.",
            ),
            ProblemKind::RequestIncomplete => entry(
                "REQUEST_INCOMPLETE",
                "request-incomplete",
                StatusCode::BAD_REQUEST,
                "The request body is incomplete",
                "Send the whole body. This request ran nothing.",
            ),
            ProblemKind::AuthorizationUnavailable => entry(
                "AUTHORIZATION_UNAVAILABLE",
                "authorization-unavailable",
                StatusCode::SERVICE_UNAVAILABLE,
                "It cannot be checked whether the caller may do this",
                "Send the same request again after Retry-After. This request ran nothing.",
            ),
            ProblemKind::StoreUnavailable => entry(
                "IDEMPOTENCY_STORE_UNAVAILABLE",
                "idempotency-store-unavailable",
                StatusCode::SERVICE_UNAVAILABLE,
                "The idempotency store is unavailable",
                "Send the same request again after Retry-After. This request ran nothing.",
            ),
            ProblemKind::ShuttingDown => entry(
                "SHUTTING_DOWN",
                "shutting-down",
                StatusCode::SERVICE_UNAVAILABLE,
                "The service is shutting down",
                "Send the same request again after Retry-After. This request ran nothing.",
            ),
            ProblemKind::Held => entry(
                "IDEMPOTENCY_HELD",
                "idempotency-held",
                StatusCode::SERVICE_UNAVAILABLE,
                "New commands are held",
                "The operator of the service has stopped new commands for a while. Send the same request again after \
                 Retry-After. This request ran nothing.",
            ),
            ProblemKind::DeadlineExceeded => entry(
                "DEADLINE_EXCEEDED",
                "deadline-exceeded",
                StatusCode::SERVICE_UNAVAILABLE,
                "The client's deadline is over",
                "If the command is still wanted, send the same request again with more time in Semel-Deadline. This \
                 request ran nothing.",
            ),
            ProblemKind::Overloaded => entry(
                "OVERLOADED",
                "overloaded",
                StatusCode::SERVICE_UNAVAILABLE,
                "The service has too much to do",
                "Send the same request again after Retry-After. This request ran nothing.",
            ),
            ProblemKind::UpstreamUnreachable => entry(
                "UPSTREAM_UNREACHABLE",
                "upstream-unreachable",
                StatusCode::BAD_GATEWAY,
                "The upstream service cannot be reached",
                "Nothing ran: the same request may be sent again with the same key.",
            ),
            ProblemKind::RolledBack => entry(
                "COMMAND_ROLLED_BACK",
                "command-rolled-back",
                StatusCode::INTERNAL_SERVER_ERROR,
                "The command failed and was rolled back",
                "Nothing happened: the same request may be sent again with the same key.",
            ),
            ProblemKind::InvalidBulk => entry(
                "INVALID_BULK_REQUEST",
                "invalid-bulk-request",
                StatusCode::UNPROCESSABLE_ENTITY,
                "The items of the request cannot be carried out",
                "Nothing ran. Give each item a clientItemId of its own, and send fewer if they are too many.",
            ),
            ProblemKind::UpstreamFailed => entry(
                "UPSTREAM_FAILED",
                "upstream-failed",
                StatusCode::BAD_GATEWAY,
                "The upstream service failed",
                "The request was not a command, so nothing is known about it. Safe methods can be sent again.",
            ),
            ProblemKind::OperationNotFound => entry(
                "OPERATION_NOT_FOUND",
                "operation-not-found",
                StatusCode::NOT_FOUND,
                "There is no such operation",
                "Check the operation's id and the credentials: an operation is shown to its own caller only.",
            ),
            ProblemKind::MalformedRequest => entry(
                "MALFORMED_REQUEST",
                "malformed-request",
                StatusCode::BAD_REQUEST,
                "The request is malformed",
                "Send a request that means the same to everybody who reads it. This request ran nothing.",
            ),
            ProblemKind::MisdirectedRequest => entry(
                "MISDIRECTED_REQUEST",
                "misdirected-request",
                StatusCode::MISDIRECTED_REQUEST,
                "The host is not served here",
                "Send the request to the host that serves it, by its own name. This request ran nothing.",
            ),
            ProblemKind::RequestHeadTooLarge => entry(
                "REQUEST_HEAD_TOO_LARGE",
                "request-head-too-large",
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "The request head is too large",
                "Send fewer or shorter header fields. This request ran nothing.",
            ),
            ProblemKind::RequestHeadTimeout => entry(
                "REQUEST_HEAD_TIMEOUT",
                "request-head-timeout",
                StatusCode::REQUEST_TIMEOUT,
                "The request head took too long",
                "Send the request again. This request ran nothing.",
            ),
            ProblemKind::NotFound => entry(
                "NOT_FOUND",
                "not-found",
                StatusCode::NOT_FOUND,
                "There is no such thing",
                "Check the path and the id in it.",
            ),
            ProblemKind::ActionRefused => entry(
                "ACTION_REFUSED",
                "action-refused",
                StatusCode::CONFLICT,
                "The action does not apply",
                "Nothing was changed. Look at the record or the message as it is now, and decide again.",
            ),
        }
    }

    /// Returns the code, for programs.
    pub fn code(self) -> &'static str {
        self.entry().code
    }

    /// Returns the last segment of the problem's type.
    pub fn slug(self) -> &'static str {
        self.entry().slug
    }

    /// Returns the kind with this slug.
    pub fn from_slug(slug: &str) -> Option<ProblemKind> {
        ProblemKind::ALL.into_iter().find(|kind| kind.slug() == slug)
    }

    /// Returns the title: a sentence that is the same for every problem of this kind.
    pub fn title(self) -> &'static str {
        self.entry().title
    }

    /// Returns the advice for clients.
    pub fn advice(self) -> &'static str {
        self.entry().advice
    }

    /// Returns the status of this kind in this profile.
    pub fn status(self, profile: Profile) -> StatusCode {
        match (self, profile) {
            (ProblemKind::KeyReused, Profile::Stripe) => StatusCode::BAD_REQUEST,
            _ => self.entry().status,
        }
    }
}

/// A problem, ready to be written as `application/problem+json`, or as Stripe's error envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Kind of the problem.
    pub kind: ProblemKind,
    /// Description of this occurrence.
    pub detail: String,
    /// Operation that the problem is about.
    pub operation_id: Option<OperationId>,
    /// Delay before a retry.
    pub retry_after: Option<Duration>,
    /// Status other than the kind's usual one.
    pub status: Option<StatusCode>,
}

impl Problem {
    /// Returns a problem of this kind.
    pub fn new(kind: ProblemKind, detail: impl Into<String>) -> Problem {
        Problem { kind, detail: detail.into(), operation_id: None, retry_after: None, status: None }
    }

    /// Sets the operation.
    pub fn about(self, operation_id: OperationId) -> Problem {
        Problem { operation_id: Some(operation_id), ..self }
    }

    /// Sets the delay before a retry.
    pub fn retry_after(self, delay: Duration) -> Problem {
        Problem { retry_after: Some(delay), ..self }
    }

    /// Sets another status than the kind's usual one.
    pub fn with_status(self, status: StatusCode) -> Problem {
        Problem { status: Some(status), ..self }
    }

    /// Returns the status of the response.
    pub fn status(&self, profile: Profile) -> StatusCode {
        self.status.unwrap_or_else(|| self.kind.status(profile))
    }

    /// Returns true if the document is Stripe's envelope. A status below 400 never has one: it is no error.
    fn is_enveloped(&self, profile: Profile) -> bool {
        let status = self.status(profile);
        profile == Profile::Stripe && (status.is_client_error() || is_server_error(status))
    }

    /// Returns the header fields that belong to the document: its media type, and the advice about a retry.
    pub fn header_fields(&self, profile: Profile) -> Vec<(HeaderName, HeaderValue)> {
        let is_enveloped = self.is_enveloped(profile);
        let media_type = if is_enveloped { "application/json" } else { "application/problem+json" };
        let mut fields = vec![
            (CONTENT_TYPE, HeaderValue::from_static(media_type)),
            (RETRY_ADVICE, self.kind.retry_advice().value()),
        ];
        let should_retry = stripe::should_retry(self.kind, self.status(profile).as_u16());
        let should_retry = should_retry.filter(|_| is_enveloped).map(HeaderValue::from_static);
        fields.extend(should_retry.map(|value| (SHOULD_RETRY, value)));
        fields
    }

    /// Returns the document as JSON text.
    pub fn to_json(&self, profile: Profile) -> String {
        if self.is_enveloped(profile) {
            return stripe::envelope(self, self.status(profile).as_u16()).to_string();
        }
        let mut members = Map::new();
        members.insert("type".into(), json!(format!("urn:semel:problem:{}", self.kind.slug())));
        members.insert("title".into(), json!(self.kind.title()));
        members.insert("status".into(), json!(self.status(profile).as_u16()));
        members.insert("detail".into(), json!(self.detail));
        members.insert("code".into(), json!(self.kind.code()));
        if let Some(id) = self.operation_id {
            members.insert("operationId".into(), json!(id.to_string()));
            members.insert("operationUrl".into(), json!(format!("{OPERATIONS_PATH}{id}")));
        }
        Value::Object(members).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_list_of_kinds_has_every_kind() {
        /// Returns these kinds, which are all of them: with one left out, the match does not compile.
        macro_rules! every {
            ($($kind:ident)*) => {{
                let _ = |kind: ProblemKind| match kind { $(ProblemKind::$kind => ()),* };
                [$(ProblemKind::$kind),*]
            }};
        }
        let every = every!(
            MissingKey InvalidKey KeyReused InProgress OutcomeUnknown RecordExpired ResponseNotRetained
            ResponseUnreadable ResultUnavailable DuplicateBusinessReference Unauthenticated Forbidden QuotaExceeded
            LookupQuotaExceeded RequestTooOld RequestTooLarge RequestIncomplete AuthorizationUnavailable
            StoreUnavailable ShuttingDown Held DeadlineExceeded Overloaded UpstreamUnreachable RolledBack InvalidBulk
            UpstreamFailed OperationNotFound MalformedRequest MisdirectedRequest RequestHeadTooLarge RequestHeadTimeout NotFound
            ActionRefused
        );
        assert_eq!(every, ProblemKind::ALL);
    }

    #[test]
    fn codes_and_slugs_are_unique_and_agree() {
        let codes: HashSet<_> = ProblemKind::ALL.map(ProblemKind::code).into();
        assert_eq!(codes.len(), ProblemKind::ALL.len());
        for kind in ProblemKind::ALL {
            assert_eq!(kind.slug(), kind.code().to_ascii_lowercase().replace('_', "-"));
            assert_eq!(ProblemKind::from_slug(kind.slug()), Some(kind));
        }
    }

    #[test]
    fn each_problem_code_has_the_status_of_the_contract() {
        let contract = [
            ("MISSING_IDEMPOTENCY_KEY", 400),
            ("INVALID_IDEMPOTENCY_KEY", 400),
            ("IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST", 422),
            ("IDEMPOTENCY_REQUEST_IN_PROGRESS", 409),
            ("IDEMPOTENCY_OUTCOME_UNKNOWN", 409),
            ("IDEMPOTENCY_RECORD_EXPIRED", 410),
            ("IDEMPOTENCY_RESULT_UNAVAILABLE", 503),
            ("DUPLICATE_BUSINESS_REFERENCE", 409),
            ("UNAUTHENTICATED", 401),
            ("FORBIDDEN", 403),
            ("IDEMPOTENCY_KEY_QUOTA_EXCEEDED", 429),
            ("LOOKUP_QUOTA_EXCEEDED", 429),
            ("REQUEST_TOO_OLD", 400),
            ("REQUEST_TOO_LARGE", 413),
            ("AUTHORIZATION_UNAVAILABLE", 503),
            ("IDEMPOTENCY_STORE_UNAVAILABLE", 503),
            ("DEADLINE_EXCEEDED", 503),
            ("UPSTREAM_UNREACHABLE", 502),
        ];
        for (code, status) in contract {
            let kind = ProblemKind::ALL.into_iter().find(|kind| kind.code() == code).expect(code);
            assert_eq!(kind.status(Profile::Ietf).as_u16(), status, "{code}");
            let stripe = if kind == ProblemKind::KeyReused { 400 } else { status };
            assert_eq!(kind.status(Profile::Stripe).as_u16(), stripe, "{code}");
        }
    }

    #[test]
    fn a_problem_document_has_the_members_of_rfc_9457_and_ours() {
        let id = OperationId::from_bytes([7; 16]);
        let problem = Problem::new(ProblemKind::OutcomeUnknown, "Its lease \"ended\".").about(id);
        let document: Value = serde_json::from_str(&problem.to_json(Profile::Ietf)).expect("it is JSON");
        assert_eq!(
            document,
            json!({
                "type": "urn:semel:problem:idempotency-outcome-unknown",
                "title": "The outcome of the request is unknown",
                "status": 409,
                "detail": "Its lease \"ended\".",
                "code": "IDEMPOTENCY_OUTCOME_UNKNOWN",
                "operationId": id.to_string(),
                "operationUrl": format!("/.well-known/semel/operations/{id}"),
            })
        );
    }

    #[test]
    fn a_problem_with_another_status_shows_it_in_its_document() {
        let problem = Problem::new(ProblemKind::OutcomeUnknown, "").with_status(StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(problem.status(Profile::Ietf), StatusCode::GATEWAY_TIMEOUT);
        assert!(problem.to_json(Profile::Ietf).contains("\"status\":504"));
    }

    #[test]
    fn every_problem_kind_has_a_unique_title_and_advice() {
        let titles: HashSet<_> = ProblemKind::ALL.map(ProblemKind::title).into();
        assert_eq!(titles.len(), ProblemKind::ALL.len());
        for kind in ProblemKind::ALL {
            let words = kind.advice().split_whitespace().count();
            assert!(words >= 3, "{kind:?} says {:?}", kind.advice());
        }
        assert!(
            ProblemKind::OutcomeUnknown.advice().contains("same key"),
            "{}",
            ProblemKind::OutcomeUnknown.advice()
        );
    }

    #[test]
    fn a_problem_says_when_to_try_again() {
        let problem = Problem::new(ProblemKind::InProgress, "");
        assert_eq!(problem.retry_after, None);
        let delay = Duration::from_secs(3);
        assert_eq!(problem.retry_after(delay).retry_after, Some(delay));
    }
}
