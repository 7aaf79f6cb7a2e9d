//! One call: it makes the attempts, waits and polls that `decide` asks for. Called by the client.
//!
//! A future that is dropped ends the call at once; nothing is sent after it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method};
use url::Url;

use crate::budget::RetryBudget;
use crate::cancellation::Cancellation;
use crate::classify::AnswerRefusal;
use crate::clock::ClientClock;
use crate::command::{DEADLINE_FIELD, KEY_FIELD, PreparedCommand};
use crate::decide::{CallDecision, CallEnding, CallPhase, CallRules, CallState, RequestResult, decide};
use crate::error::{CallError, RefusedAnswer};
use crate::hook::{AttemptEvent, AttemptHook, tell};
use crate::key::CommandKey;
use crate::options::{ClientProfile, milliseconds};
use crate::outcome::{CommandOutcome, StopReason};
use crate::random::RandomSource;
use crate::transport::{AttemptFault, AttemptRequest, Transport};

/// Needs of a call from its client.
pub(crate) struct CallContext<'a> {
    pub(crate) rules: CallRules,
    pub(crate) attempt_timeout: Duration,
    pub(crate) response_bound: usize,
    pub(crate) budget: &'a RetryBudget,
    pub(crate) budget_return: u32,
    pub(crate) clock: &'a dyn ClientClock,
    pub(crate) random: &'a dyn RandomSource,
    pub(crate) transport: &'a Arc<dyn Transport>,
    pub(crate) hook: &'a AttemptHook,
    pub(crate) cancellation: Cancellation,
}

/// End of a call, and the state in which it ended.
pub(crate) struct CallEnd {
    state: CallState,
    ending: CallEnding,
    key: Option<CommandKey>,
    origin: String,
}

/// Makes the attempts, waits and polls of one command.
pub(crate) async fn call(
    context: &CallContext<'_>,
    command: &PreparedCommand,
    key: Option<CommandKey>,
    resumed: bool,
) -> CallEnd {
    let mut state = CallState::new(resumed);
    let ending = run(context, command, key.as_ref(), &mut state).await;
    if matches!(ending, CallEnding::Final { .. }) && key.is_some() {
        context.budget.put_back(context.budget_return);
    }
    CallEnd { state, ending, key, origin: command.origin.clone() }
}

async fn run(
    context: &CallContext<'_>,
    command: &PreparedCommand,
    key: Option<&CommandKey>,
    state: &mut CallState,
) -> CallEnding {
    if context.cancellation.is_cancelled() {
        return state.give_up(StopReason::Cancelled);
    }
    let began = context.clock.monotonic();
    let elapsed = || milliseconds(context.clock.monotonic().saturating_sub(began));
    let (mut wait, mut previous, mut address) = (0, None, command.url.clone());
    loop {
        let remaining = context.rules.deadline.saturating_sub(elapsed());
        let is_command = state.phase == CallPhase::Command;
        if remaining == 0 {
            // A wait took longer than asked for.
            return if is_command { state.give_up(StopReason::Deadline) } else { state.give_up_polling() };
        }
        let timeout = context.attempt_timeout.min(Duration::from_millis(remaining));
        let request = if is_command {
            state.attempts += 1;
            let (method, origin) = (command.method.clone(), command.origin.clone());
            let waited = Duration::from_millis(wait);
            tell(
                context.hook,
                &AttemptEvent { method, origin, number: state.attempts, wait: waited, previous },
            );
            command_request(context, command, key, remaining, timeout)
        } else {
            poll_request(context, command, &address, timeout)
        };
        let result = exchange(context, request).await;
        state.elapsed = elapsed();
        state.wall = context.clock.wall();
        state.tokens = context.budget.tokens();
        state.cancelled = context.cancellation.is_cancelled();
        let (next, decision) = decide(&context.rules, state.clone(), result, &|| context.random.fraction());
        *state = next;
        wait = match decision {
            CallDecision::Finish(ending) => return ending,
            CallDecision::FetchResult => {
                let result = state.operation.as_ref().and_then(|operation| operation.result_address());
                let Some(result) = result else { return state.give_up_polling() };
                state.phase = CallPhase::Result;
                address = result;
                continue;
            }
            // Another call may have been faster.
            CallDecision::Retry(_) if !context.budget.take(context.rules.budget_cost) => {
                return state.give_up(StopReason::Budget);
            }
            CallDecision::Retry(wait) => {
                previous = state.last.as_ref().map(|last| last.reason);
                wait
            }
            CallDecision::Poll(wait) => {
                if let Some(operation) = &state.operation {
                    address = operation.address().clone();
                }
                wait
            }
        };
        tokio::select! {
            biased;
            () = context.cancellation.cancelled() => {}
            () = context.clock.sleep(Duration::from_millis(wait)) => {}
        }
        if context.cancellation.is_cancelled() {
            return state.give_up(StopReason::Cancelled);
        }
    }
}

/// Sends one request, until its timeout or the cancellation at most.
async fn exchange(context: &CallContext<'_>, request: AttemptRequest) -> RequestResult {
    let timeout = request.timeout;
    tokio::select! {
        biased;
        result = context.transport.send(request) => result,
        () = context.cancellation.cancelled() => Err(AttemptFault::Lost),
        () = context.clock.expire(timeout) => Err(AttemptFault::Timeout),
    }
}

fn command_request(
    context: &CallContext<'_>,
    command: &PreparedCommand,
    key: Option<&CommandKey>,
    remaining: u64,
    timeout: Duration,
) -> AttemptRequest {
    let mut headers = command.headers.clone();
    let profile = context.rules.profile;
    if let Some(value) = key.and_then(|key| key.spelled(profile)) {
        headers.insert(KEY_FIELD, value);
        if profile == ClientProfile::Semel {
            headers.insert(DEADLINE_FIELD, HeaderValue::from(remaining));
        }
    }
    let (method, url, body) = (command.method.clone(), command.url.clone(), command.body.clone());
    AttemptRequest { method, url, headers, body, response_bound: context.response_bound, timeout }
}

fn poll_request(
    context: &CallContext<'_>,
    command: &PreparedCommand,
    address: &Url,
    timeout: Duration,
) -> AttemptRequest {
    AttemptRequest {
        method: Method::GET,
        url: address.clone(),
        headers: command.poll_headers(),
        body: Bytes::new(),
        response_bound: context.response_bound,
        timeout,
    }
}

impl CallEnd {
    /// Returns true if it is known what became of the command: the journal needs its entry no longer.
    pub(crate) fn settles(&self) -> bool {
        match &self.ending {
            CallEnding::Final { .. } | CallEnding::NotRetained(_) => true,
            CallEnding::Refused(refusal, _) => *refusal == AnswerRefusal::DuplicateBusinessReference,
            CallEnding::Unknown
            | CallEnding::Accepted
            | CallEnding::Unresolved(_)
            | CallEnding::NotExecuted(_)
            | CallEnding::Certificate
            | CallEnding::UnknownHost => false,
        }
    }

    /// Returns the number of attempts.
    pub(crate) fn attempts(&self) -> u32 {
        self.state.attempts
    }

    /// Returns the outcome or the error.
    pub(crate) fn outcome(self) -> Result<CommandOutcome, CallError> {
        let CallEnd { state, ending, key, origin } = self;
        let CallState { attempts, operation, last, .. } = state;
        let last = last.map(Box::new);
        match (ending, operation) {
            (CallEnding::Final { response, replayed }, operation) => {
                let operation_id = operation.map(|operation| operation.id().to_owned());
                let expires = response.field("idempotency-expires");
                Ok(CommandOutcome::Final { response, replayed, operation_id, expires, attempts })
            }
            (CallEnding::Unknown, Some(operation)) => {
                Ok(CommandOutcome::Unknown { key, operation, attempts })
            }
            (CallEnding::Accepted, Some(operation)) => {
                Ok(CommandOutcome::Accepted { key, operation, attempts })
            }
            // A call polls only an operation that it knows.
            (CallEnding::Unknown | CallEnding::Accepted, None) => {
                let stopped = StopReason::Answer;
                Ok(CommandOutcome::Unresolved { key, operation: None, attempts, last, stopped })
            }
            (CallEnding::Unresolved(stopped), operation) => {
                Ok(CommandOutcome::Unresolved { key, operation, attempts, last, stopped })
            }
            (CallEnding::NotExecuted(stopped), _) => {
                Err(CallError::NotExecuted { origin, attempts, last, stopped })
            }
            (CallEnding::Certificate, _) => Err(CallError::Certificate),
            (CallEnding::UnknownHost, _) => Err(CallError::UnknownHost),
            (CallEnding::NotRetained(response), operation) => {
                Err(CallError::ResponseNotRetained(RefusedAnswer::new(response, operation)))
            }
            (CallEnding::Refused(refusal, response), operation) => {
                let answer = RefusedAnswer::new(response, operation);
                Err(match refusal {
                    AnswerRefusal::BadKey => CallError::KeyRefused(answer),
                    AnswerRefusal::DuplicateBusinessReference => {
                        CallError::DuplicateBusinessReference(answer)
                    }
                    AnswerRefusal::KeyReused => CallError::KeyReused(answer),
                    AnswerRefusal::RecordExpired => CallError::RecordExpired(answer),
                    AnswerRefusal::Redirect => CallError::Redirect(answer),
                    AnswerRefusal::ResponseUnreadable => CallError::ResponseUnreadable(answer),
                })
            }
        }
    }
}
