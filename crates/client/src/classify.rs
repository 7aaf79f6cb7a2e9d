//! Meaning of one whole answer to a command: the table of the shared cases, as a pure function. Called by `decide`.

use http::StatusCode;
use url::Url;

use crate::options::ClientProfile;
use crate::problem::{
    NOT_RETAINED, OPERATION_ID, OPERATIONS_PATH, OperationHandle, ServerProblem, operation_of, problem_of,
};
use crate::response::CommandResponse;

/// Problems after which the same request may be sent again, and that ran nothing themselves.
const NOTHING_RAN: [&str; 12] = [
    "IDEMPOTENCY_KEY_QUOTA_EXCEEDED",
    "LOOKUP_QUOTA_EXCEEDED",
    "REQUEST_INCOMPLETE",
    "AUTHORIZATION_UNAVAILABLE",
    "IDEMPOTENCY_STORE_UNAVAILABLE",
    "SHUTTING_DOWN",
    "IDEMPOTENCY_HELD",
    "OVERLOADED",
    "UPSTREAM_UNREACHABLE",
    "COMMAND_ROLLED_BACK",
    "REQUEST_HEAD_TIMEOUT",
    "DEADLINE_EXCEEDED",
];
/// Problems after which the same request may be sent again, about a command that runs or ran.
const ALREADY_BEGUN: [&str; 2] = ["IDEMPOTENCY_REQUEST_IN_PROGRESS", "IDEMPOTENCY_RESULT_UNAVAILABLE"];

/// Meaning of an answer for the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandMeaning {
    /// The command's own outcome, whatever happened before.
    Outcome,
    /// The command's own outcome, given again.
    Replayed,
    /// The command's own outcome, without the body of its response.
    NotRetained,
    /// Final, unless the command may have run before.
    FinalIfClear,
    /// A typed refusal, unless the command may have run before.
    Refused(AnswerRefusal),
    /// Neither an outcome nor a reason to try again.
    Stop,
    /// Send the same request again.
    Retry,
    /// Ask for the operation.
    Poll,
    /// The command is accepted: ask for the operation, or return it.
    Accepted,
}

/// Refusal of a command, which no retry changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerRefusal {
    BadKey,
    DuplicateBusinessReference,
    KeyReused,
    RecordExpired,
    Redirect,
    ResponseUnreadable,
}

/// Meaning of an answer, and the facts that the decision needs.
pub(crate) struct CommandVerdict {
    pub(crate) meaning: CommandMeaning,
    /// True if the command may have run, as far as this answer tells.
    pub(crate) ambiguous: bool,
    pub(crate) operation: Option<OperationHandle>,
    pub(crate) code: Option<String>,
}

/// Advice of the server, from its field or its code.
enum ServerAdvice {
    Poll,
    SameKey,
    Never,
    None,
}

/// Returns the meaning of an answer to a command that was sent to this address.
pub(crate) fn classify(profile: ClientProfile, url: &Url, response: &CommandResponse) -> CommandVerdict {
    let problem = problem_of(response, profile);
    let mut operation = operation_of(response, problem.as_ref(), url);
    let accepted = match profile {
        ClientProfile::Semel => accepted_operation(response, operation.as_ref(), url),
        ClientProfile::Ietf | ClientProfile::Stripe => None,
    };
    let (meaning, ambiguous) = meaning(profile, response, problem.as_ref(), accepted.is_some());
    if meaning == CommandMeaning::Accepted {
        operation = accepted;
    }
    CommandVerdict { meaning, ambiguous, operation, code: problem.map(|problem| problem.code) }
}

fn meaning(
    profile: ClientProfile,
    response: &CommandResponse,
    problem: Option<&ServerProblem>,
    is_accepted: bool,
) -> (CommandMeaning, bool) {
    let code = problem.map_or("", |problem| &problem.code);
    if response.word("idempotency-body") == "not-retained" || code == NOT_RETAINED {
        return (CommandMeaning::NotRetained, false);
    }
    let replayed = match profile {
        ClientProfile::Semel | ClientProfile::Ietf => "idempotency-replayed",
        ClientProfile::Stripe => "idempotent-replayed",
    };
    if response.word(replayed) == "true" {
        return (CommandMeaning::Replayed, false);
    }
    if let Some(refusal) = refusal_of(code) {
        return (CommandMeaning::Refused(refusal), false);
    }
    let is_about_a_command = problem.is_some_and(|problem| problem.operation_id.is_some());
    if matches!(code, "UNAUTHENTICATED" | "FORBIDDEN") && is_about_a_command {
        return (CommandMeaning::Stop, true);
    }
    let (status, is_named) = (response.status(), response.headers().contains_key(OPERATION_ID));
    match advice_of(response, code) {
        ServerAdvice::Poll => (CommandMeaning::Poll, true),
        ServerAdvice::SameKey => (CommandMeaning::Retry, !ran_nothing(status, is_named, code)),
        ServerAdvice::Never if is_named => (CommandMeaning::Outcome, false),
        ServerAdvice::Never => (CommandMeaning::FinalIfClear, false),
        ServerAdvice::None if is_accepted => (CommandMeaning::Accepted, true),
        ServerAdvice::None if is_named && status.as_u16() < 500 => (CommandMeaning::Outcome, false),
        ServerAdvice::None => by_status(profile, response),
    }
}

fn refusal_of(code: &str) -> Option<AnswerRefusal> {
    match code {
        "DUPLICATE_BUSINESS_REFERENCE" => Some(AnswerRefusal::DuplicateBusinessReference),
        "IDEMPOTENCY_RECORD_EXPIRED" => Some(AnswerRefusal::RecordExpired),
        "IDEMPOTENCY_RESPONSE_UNREADABLE" => Some(AnswerRefusal::ResponseUnreadable),
        "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST" => Some(AnswerRefusal::KeyReused),
        "INVALID_IDEMPOTENCY_KEY" | "MISSING_IDEMPOTENCY_KEY" => Some(AnswerRefusal::BadKey),
        _ => None,
    }
}

fn advice_of(response: &CommandResponse, code: &str) -> ServerAdvice {
    // No other attempt tells the outcome, whatever the field says.
    if code == "IDEMPOTENCY_OUTCOME_UNKNOWN" {
        return ServerAdvice::Poll;
    }
    match response.word("idempotency-retry").as_str() {
        "poll" => ServerAdvice::Poll,
        "same-key" => ServerAdvice::SameKey,
        "never" => ServerAdvice::Never,
        _ if NOTHING_RAN.contains(&code) || ALREADY_BEGUN.contains(&code) => ServerAdvice::SameKey,
        _ => ServerAdvice::None,
    }
}

/// Returns true if an answer that asks for a retry proves that this attempt ran nothing.
fn ran_nothing(status: StatusCode, is_named: bool, code: &str) -> bool {
    // A handler's answer that has released its key is one of 400 or more; below, a part of the command is done.
    let has_released = is_named && status.as_u16() >= 400;
    NOTHING_RAN.contains(&code) || matches!(status.as_u16(), 425 | 429) || has_released
}

/// Returns the operation of a 202 whose `Location` is an operation of Semel.
fn accepted_operation(
    response: &CommandResponse,
    operation: Option<&OperationHandle>,
    url: &Url,
) -> Option<OperationHandle> {
    let id = operation?.id();
    if response.status() != StatusCode::ACCEPTED || response.field(OPERATION_ID)? != id {
        return None;
    }
    let address = url.join(&response.field("location")?).ok()?;
    (address.path() == format!("{OPERATIONS_PATH}{id}")).then(|| OperationHandle::new(id.to_owned(), address))
}

/// Returns the meaning of an answer without advice, without a known code, and without the mark of an outcome.
fn by_status(profile: ClientProfile, response: &CommandResponse) -> (CommandMeaning, bool) {
    let retry = (CommandMeaning::Retry, true);
    let status = response.status().as_u16();
    let should_retry = match profile {
        ClientProfile::Stripe => response.word("stripe-should-retry"),
        ClientProfile::Semel | ClientProfile::Ietf => String::new(),
    };
    let waits = profile == ClientProfile::Ietf && response.headers().contains_key("retry-after");
    match status {
        300..=399 => (CommandMeaning::Refused(AnswerRefusal::Redirect), false),
        425 | 429 => (CommandMeaning::Retry, false),
        _ if should_retry == "true" => retry,
        500.. if should_retry == "false" => (CommandMeaning::Stop, true),
        409 if waits => retry,
        408 | 500.. => retry,
        // Servers of the other profiles do not mark the outcome of a command.
        ..=299 if profile != ClientProfile::Semel => (CommandMeaning::Outcome, false),
        _ => (CommandMeaning::FinalIfClear, false),
    }
}
