//! The decision after an attempt, as one pure function. The loop in `call` only acts.
//!
//! A call is ambiguous from the first attempt after which the command may have run, and stays so.

use url::Url;

use crate::classify::{AnswerRefusal, CommandMeaning, classify};
use crate::options::{ClientOptions, ClientProfile, MAX_POLLS, OnAccepted, milliseconds};
use crate::origin::origin_of;
use crate::outcome::{LastAttempt, StopReason};
use crate::problem::{OperationHandle, retry_after};
use crate::response::CommandResponse;
use crate::transport::AttemptFault;

/// Terms of a call that do not change. Times are in milliseconds.
pub(crate) struct CallRules {
    pub(crate) profile: ClientProfile,
    /// True if the origin is named and the method is a command's: only then a request is repeated.
    pub(crate) named: bool,
    pub(crate) url: Url,
    pub(crate) base: u64,
    pub(crate) cap: u64,
    pub(crate) deadline: u64,
    pub(crate) attempts: u32,
    pub(crate) retry_after_max: u64,
    pub(crate) budget_cost: u32,
    pub(crate) on_accepted: OnAccepted,
}

impl CallRules {
    /// Returns the rules for a call to this address.
    pub(crate) fn new(options: &ClientOptions, profile: ClientProfile, named: bool, url: Url) -> CallRules {
        CallRules {
            profile,
            named,
            url,
            base: milliseconds(options.base),
            cap: milliseconds(options.cap),
            deadline: milliseconds(options.deadline),
            attempts: options.attempts,
            retry_after_max: milliseconds(options.retry_after_max),
            budget_cost: options.budget_cost,
            on_accepted: options.on_accepted,
        }
    }
}

/// Request whose result is decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallPhase {
    Command,
    Operation,
    Result,
}

/// Answer because of which a call polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolledFor {
    Accepted,
    Unknown,
}

/// Knowledge of a call when an attempt has ended. Times are in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct CallState {
    /// True if the command may have run.
    pub(crate) ambiguous: bool,
    pub(crate) phase: CallPhase,
    pub(crate) attempts: u32,
    pub(crate) polls: u32,
    pub(crate) elapsed: u64,
    pub(crate) wall: u64,
    pub(crate) tokens: u32,
    pub(crate) cancelled: bool,
    pub(crate) operation: Option<OperationHandle>,
    pub(crate) polled_for: PolledFor,
    pub(crate) last: Option<LastAttempt>,
}

impl CallState {
    /// Returns the state before the first attempt. A resumed command may have run.
    pub(crate) fn new(resumed: bool) -> CallState {
        CallState {
            ambiguous: resumed,
            phase: CallPhase::Command,
            attempts: 0,
            polls: 0,
            elapsed: 0,
            wall: 0,
            tokens: 0,
            cancelled: false,
            operation: None,
            polled_for: PolledFor::Unknown,
            last: None,
        }
    }

    /// Returns the end of a call that makes no further attempt.
    pub(crate) fn give_up(&self, stopped: StopReason) -> CallEnding {
        if self.ambiguous { CallEnding::Unresolved(stopped) } else { CallEnding::NotExecuted(stopped) }
    }

    /// Returns the end of a call that makes no further poll.
    pub(crate) fn give_up_polling(&self) -> CallEnding {
        match self.polled_for {
            PolledFor::Accepted => CallEnding::Accepted,
            PolledFor::Unknown => CallEnding::Unknown,
        }
    }

    /// Returns this end if the command has not run; else the call is unresolved.
    fn if_clear(&self, ending: CallEnding, stopped: StopReason) -> CallDecision {
        CallDecision::Finish(if self.ambiguous { CallEnding::Unresolved(stopped) } else { ending })
    }
}

/// End of a call.
#[derive(Clone, Debug)]
pub(crate) enum CallEnding {
    Final { response: CommandResponse, replayed: bool },
    NotRetained(CommandResponse),
    Refused(AnswerRefusal, CommandResponse),
    Unknown,
    Accepted,
    Unresolved(StopReason),
    NotExecuted(StopReason),
    Certificate,
    UnknownHost,
}

/// Next step of a call.
#[derive(Clone, Debug)]
pub(crate) enum CallDecision {
    /// End the call.
    Finish(CallEnding),
    /// Take tokens, wait so many milliseconds, and send the command again with the same key.
    Retry(u64),
    /// Wait so many milliseconds, and ask for the operation.
    Poll(u64),
    /// Ask for the result of the operation at once.
    FetchResult,
}

/// Result of one request.
pub(crate) type RequestResult = Result<CommandResponse, AttemptFault>;

/// Returns the state after a request, and the next step. `draw` returns a number of at least 0 and below 1; it is
/// called at most once.
pub(crate) fn decide(
    rules: &CallRules,
    state: CallState,
    result: RequestResult,
    draw: &dyn Fn() -> f64,
) -> (CallState, CallDecision) {
    match (state.phase, result) {
        (CallPhase::Command, Err(fault)) => after_fault(rules, state, fault, draw),
        (CallPhase::Command, Ok(response)) => after_answer(rules, state, response, draw),
        (CallPhase::Operation | CallPhase::Result, Err(_)) => poll(rules, state, None, draw),
        (CallPhase::Operation, Ok(response)) => after_poll(rules, state, &response, draw),
        (CallPhase::Result, Ok(response)) => after_result(rules, state, response, draw),
    }
}

fn after_fault(
    rules: &CallRules,
    mut state: CallState,
    fault: AttemptFault,
    draw: &dyn Fn() -> f64,
) -> (CallState, CallDecision) {
    state.last = Some(LastAttempt::fault(fault));
    match fault {
        AttemptFault::Certificate => {
            let decision = state.if_clear(CallEnding::Certificate, StopReason::Certificate);
            return (state, decision);
        }
        AttemptFault::UnknownHost => {
            let decision = state.if_clear(CallEnding::UnknownHost, StopReason::UnknownHost);
            return (state, decision);
        }
        AttemptFault::Connect | AttemptFault::Name => {}
        AttemptFault::Lost | AttemptFault::Timeout | AttemptFault::TooLarge => state.ambiguous = true,
    }
    if !rules.named {
        return finish(state, |state| state.give_up(StopReason::UnnamedOrigin));
    }
    if fault == AttemptFault::TooLarge {
        return finish(state, |state| state.give_up(StopReason::TooLarge));
    }
    retry(rules, state, None, draw)
}

fn after_answer(
    rules: &CallRules,
    mut state: CallState,
    response: CommandResponse,
    draw: &dyn Fn() -> f64,
) -> (CallState, CallDecision) {
    if !rules.named {
        state.last = Some(LastAttempt::answer(response.clone(), None));
        return (state, CallDecision::Finish(CallEnding::Final { response, replayed: false }));
    }
    let verdict = classify(rules.profile, &rules.url, &response);
    let names_operation = verdict.operation.is_some();
    state.ambiguous |= verdict.ambiguous;
    state.operation = verdict.operation.or(state.operation);
    state.last = Some(LastAttempt::answer(response.clone(), verdict.code));
    match verdict.meaning {
        CommandMeaning::Outcome => finish(state, |_| CallEnding::Final { response, replayed: false }),
        CommandMeaning::Replayed => finish(state, |_| CallEnding::Final { response, replayed: true }),
        CommandMeaning::NotRetained => finish(state, |_| CallEnding::NotRetained(response)),
        CommandMeaning::FinalIfClear => {
            let decision =
                state.if_clear(CallEnding::Final { response, replayed: false }, StopReason::Answer);
            (state, decision)
        }
        CommandMeaning::Refused(refusal) => {
            let stopped = match refusal {
                AnswerRefusal::Redirect => StopReason::Redirect,
                AnswerRefusal::BadKey
                | AnswerRefusal::DuplicateBusinessReference
                | AnswerRefusal::KeyReused
                | AnswerRefusal::RecordExpired
                | AnswerRefusal::ResponseUnreadable => StopReason::Answer,
            };
            let decision = state.if_clear(CallEnding::Refused(refusal, response), stopped);
            (state, decision)
        }
        CommandMeaning::Stop => finish(state, |_| CallEnding::Unresolved(StopReason::Answer)),
        CommandMeaning::Retry => retry(rules, state, Some(&response), draw),
        // The operation of an older answer is not the one of this answer.
        CommandMeaning::Poll if !names_operation => retry(rules, state, Some(&response), draw),
        CommandMeaning::Poll => {
            state.polled_for = PolledFor::Unknown;
            poll(rules, state, Some(&response), draw)
        }
        CommandMeaning::Accepted => {
            state.polled_for = PolledFor::Accepted;
            match rules.on_accepted {
                OnAccepted::Return => finish(state, |_| CallEnding::Accepted),
                OnAccepted::Poll => poll(rules, state, Some(&response), draw),
            }
        }
    }
}

fn after_poll(
    rules: &CallRules,
    mut state: CallState,
    response: &CommandResponse,
    draw: &dyn Fn() -> f64,
) -> (CallState, CallDecision) {
    if matches!(response.status().as_u16(), 408 | 425 | 429 | 500..) {
        return poll(rules, state, Some(response), draw);
    }
    let document = if response.status() == http::StatusCode::OK { response.document() } else { None };
    let Some(document) = document else {
        return finish(state, CallState::give_up_polling);
    };
    match document.get("state").and_then(|state| state.as_str()) {
        Some("succeeded" | "failed_final") => (state, CallDecision::FetchResult),
        Some("failed_retryable") => {
            state.phase = CallPhase::Command;
            retry(rules, state, Some(response), draw)
        }
        Some("expired") => finish(state, |_| CallEnding::Unresolved(StopReason::Expired)),
        _ => poll(rules, state, Some(response), draw),
    }
}

fn after_result(
    rules: &CallRules,
    state: CallState,
    response: CommandResponse,
    draw: &dyn Fn() -> f64,
) -> (CallState, CallDecision) {
    match classify(rules.profile, &rules.url, &response).meaning {
        CommandMeaning::Outcome => finish(state, |_| CallEnding::Final { response, replayed: false }),
        CommandMeaning::Replayed => finish(state, |_| CallEnding::Final { response, replayed: true }),
        CommandMeaning::NotRetained => finish(state, |_| CallEnding::NotRetained(response)),
        CommandMeaning::Retry | CommandMeaning::Poll | CommandMeaning::Accepted => {
            poll(rules, state, Some(&response), draw)
        }
        CommandMeaning::FinalIfClear | CommandMeaning::Refused(_) | CommandMeaning::Stop => {
            finish(state, CallState::give_up_polling)
        }
    }
}

fn finish(state: CallState, ending: impl FnOnce(&CallState) -> CallEnding) -> (CallState, CallDecision) {
    let ending = ending(&state);
    (state, CallDecision::Finish(ending))
}

fn retry(
    rules: &CallRules,
    state: CallState,
    response: Option<&CommandResponse>,
    draw: &dyn Fn() -> f64,
) -> (CallState, CallDecision) {
    if state.cancelled {
        return finish(state, |state| state.give_up(StopReason::Cancelled));
    }
    if state.attempts >= rules.attempts {
        return finish(state, |state| state.give_up(StopReason::Attempts));
    }
    let wait = wait(rules, state.wall, response, state.attempts.saturating_sub(1), draw());
    if state.elapsed.saturating_add(wait) >= rules.deadline {
        return finish(state, |state| state.give_up(StopReason::Deadline));
    }
    if state.tokens < rules.budget_cost {
        return finish(state, |state| state.give_up(StopReason::Budget));
    }
    (state, CallDecision::Retry(wait))
}

fn poll(
    rules: &CallRules,
    mut state: CallState,
    response: Option<&CommandResponse>,
    draw: &dyn Fn() -> f64,
) -> (CallState, CallDecision) {
    let origin = state.operation.as_ref().and_then(|operation| origin_of(operation.address()));
    if origin.is_none() || origin != origin_of(&rules.url) || state.polls >= MAX_POLLS {
        return finish(state, CallState::give_up_polling);
    }
    if state.cancelled {
        return finish(state, |_| CallEnding::Unresolved(StopReason::Cancelled));
    }
    let wait = wait(rules, state.wall, response, state.polls, draw());
    if state.elapsed.saturating_add(wait) >= rules.deadline {
        return finish(state, CallState::give_up_polling);
    }
    state.phase = CallPhase::Operation;
    state.polls += 1;
    (state, CallDecision::Poll(wait))
}

/// Returns `Retry-After` plus a random time below the exponential backoff, in milliseconds.
fn wait(rules: &CallRules, wall: u64, response: Option<&CommandResponse>, n: u32, draw: f64) -> u64 {
    let asked = response.and_then(|response| retry_after(response, wall)).unwrap_or(0);
    let backoff = rules.base.saturating_mul(1 << n.min(32)).min(rules.cap);
    // Both are below 2^53: the product is exact enough, and the cast rounds down.
    let jitter = (draw.clamp(0.0, 1.0) * backoff as f64) as u64;
    asked.min(rules.retry_after_max) + jitter
}

#[cfg(test)]
mod tests;
