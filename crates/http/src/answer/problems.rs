//! Answers to commands that Semel writes itself: problems, and the document of a command that is in progress.

use http::StatusCode;
use http::header::{HeaderValue, LOCATION, WWW_AUTHENTICATE};
use semel_core::policy::{InProgress, Mode, Policy, Profile};
use semel_core::problem::ProblemKind;
use semel_core::{OperationId, Problem, Reason, Record, TierTooLow};

use super::document::document;
use super::headers::{self, HELD, SOON};
use super::{Answer, AnswerDecision};

/// Answers a command with a problem.
fn told(decision: AnswerDecision, problem: &Problem, policy: &Policy) -> Answer {
    Answer::problem(problem, policy.profile).decided(decision)
}

/// Answers that the store cannot be reached: nothing ran.
pub(crate) fn store_unavailable(policy: &Policy) -> Answer {
    told(AnswerDecision::StoreError, &store_unavailable_problem(), policy)
}

/// Answers that the store has dropped below the tier that the operation needs: nothing ran.
pub(crate) fn tier_too_low(shortfall: TierTooLow, policy: &Policy) -> Answer {
    let TierTooLow { needed, promised } = shortfall;
    let detail = format!(
        "This operation needs a store of {needed}, and the store promises {promised} at this moment, so nothing was run."
    );
    told(
        AnswerDecision::StoreError,
        &Problem::new(ProblemKind::StoreUnavailable, detail).retry_after(SOON),
        policy,
    )
}

/// Returns the problem of a store that cannot be reached.
pub(crate) fn store_unavailable_problem() -> Problem {
    let detail = "The record of this command could not be read or written, so nothing was run.";
    Problem::new(ProblemKind::StoreUnavailable, detail).retry_after(SOON)
}

/// Answers that the caller could not be authorized: nothing ran, and nothing was looked up.
pub(crate) fn authorization_unavailable(profile: Profile) -> Answer {
    let detail = "Whether this caller may do this could not be checked, so nothing was run.";
    Answer::problem(&Problem::new(ProblemKind::AuthorizationUnavailable, detail).retry_after(SOON), profile)
}

/// Answers that the tenant or the caller has used up its quota: nothing ran.
pub(crate) fn quota_exceeded(problem: &Problem, policy: &Policy) -> Answer {
    told(AnswerDecision::Refused, problem, policy)
}

/// Answers that the process is ending: nothing ran.
pub(crate) fn shutting_down(policy: &Policy) -> Answer {
    let detail = "This server is about to stop and takes no new commands.";
    told(AnswerDecision::Refused, &Problem::new(ProblemKind::ShuttingDown, detail).retry_after(SOON), policy)
}

/// Answers that an operator holds the operation or the tenant: nothing ran.
pub(crate) fn held(policy: &Policy) -> Answer {
    told(AnswerDecision::Refused, &held_problem(), policy)
}

/// Returns the problem of a command that an operator holds.
pub(crate) fn held_problem() -> Problem {
    let detail = "The operator of this service has stopped new commands like this one for a while.";
    Problem::new(ProblemKind::Held, detail).retry_after(HELD)
}

/// Answers that the store was restored and may have forgotten the command: nothing ran now.
pub(crate) fn fenced(policy: &Policy) -> Answer {
    let detail = "The records of this service were restored from a backup, and may lack this command: it was not run now, and \
                  may have run before. Send it again with the same key.";
    let problem = Problem::new(ProblemKind::Held, detail).retry_after(HELD);
    told(AnswerDecision::Refused, &problem, policy)
}

/// Answers that the deadline of the client was over before the claim: nothing ran.
pub(crate) fn deadline_exceeded(policy: &Policy) -> Answer {
    let detail = "The time in Semel-Deadline was over before the command was claimed, so nothing was run.";
    told(AnswerDecision::Refused, &Problem::new(ProblemKind::DeadlineExceeded, detail), policy)
}

/// Answers that the key belongs to another request, and tells nothing of that request.
pub(crate) fn mismatch(policy: &Policy) -> Answer {
    let detail = "This key was used before with another method, path, content type or body.";
    told(AnswerDecision::Mismatch, &Problem::new(ProblemKind::KeyReused, detail), policy)
}

/// Answers that another request, or a worker, holds the command. A client that was told to poll is told so again.
pub(crate) fn in_progress(record: &Record, policy: &Policy) -> Answer {
    let told_to_poll = policy.mode == Mode::Async || record.head.reason == Reason::Deferred;
    match policy.in_progress {
        InProgress::Conflict if !told_to_poll => {
            let detail = "The first request with this key has not finished yet.";
            let conflict = Problem::new(ProblemKind::InProgress, detail).about(record.operation_id);
            told(AnswerDecision::InProgress, &conflict.retry_after(SOON), policy).about(record)
        }
        InProgress::Conflict | InProgress::Accepted => {
            let mut answer = document(record, &[], StatusCode::ACCEPTED);
            headers::poll(answer.headers_mut(), record);
            answer.decided(AnswerDecision::InProgress).about(record)
        }
    }
}

/// Answers that the command is claimed for a worker, by this request.
pub(crate) fn accepted(record: &Record, policy: &Policy) -> Answer {
    in_progress(record, policy).decided(AnswerDecision::Accepted)
}

/// Answers that another request holds the command in a transaction that cannot be read.
pub(crate) fn unseen(policy: &Policy) -> Answer {
    let detail = "The first request with this key has not finished yet.";
    told(AnswerDecision::InProgress, &Problem::new(ProblemKind::InProgress, detail).retry_after(SOON), policy)
}

/// Answers that the record has a fingerprint of a version that this program cannot compare: nothing ran.
pub(crate) fn newer_record(record: &Record, policy: &Policy) -> Answer {
    let detail = "The record of this key was made by another version of this service, and cannot be compared with the \
                  request here. Nothing was run.";
    let problem =
        Problem::new(ProblemKind::StoreUnavailable, detail).about(record.operation_id).retry_after(SOON);
    told(AnswerDecision::StoreError, &problem, policy)
}

/// Answers that no request holds the command any more, and that this one may not run it either.
pub(crate) fn vacant(policy: &Policy) -> Answer {
    let detail = "The first request with this key ended without running. Send this one again.";
    told(AnswerDecision::InProgress, &Problem::new(ProblemKind::InProgress, detail).retry_after(SOON), policy)
}

/// Answers that the outcome is unknown. The status says how it became so.
pub(crate) fn outcome_unknown(id: OperationId, status: StatusCode, detail: &str, policy: &Policy) -> Answer {
    told(
        AnswerDecision::Unknown,
        &Problem::new(ProblemKind::OutcomeUnknown, detail).about(id).with_status(status),
        policy,
    )
}

/// Answers that the command ran, and that its outcome is not stored yet: it is offered to the store until it takes it.
pub(crate) fn outcome_not_stored(id: OperationId, policy: &Policy) -> Answer {
    let detail = "The command ran, but its outcome could not be stored.";
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    let problem = Problem::new(ProblemKind::OutcomeUnknown, detail).about(id).with_status(status);
    told(AnswerDecision::Unknown, &problem.retry_after(SOON), policy)
}

/// Answers that the task of the command ended early: the record will tell, once its lease has ended.
pub(crate) fn cut_off(policy: &Policy) -> Answer {
    let detail = "The command may have been begun. Send the same request again to learn what became of it.";
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    told(
        AnswerDecision::Unknown,
        &Problem::new(ProblemKind::OutcomeUnknown, detail).with_status(status).retry_after(SOON),
        policy,
    )
}

/// Answers a retry of a command whose outcome is unknown.
pub(crate) fn reconcile(record: &Record, policy: &Policy) -> Answer {
    let detail = "An earlier request with this key ended without proof of whether it took effect.";
    outcome_unknown(record.operation_id, StatusCode::CONFLICT, detail, policy).about(record)
}

/// Answers that the command ran, and that its response is no longer stored.
pub(crate) fn expired(record: &Record, policy: &Policy) -> Answer {
    let detail = "The command with this key ran; its response is no longer kept.";
    told(
        AnswerDecision::Expired,
        &Problem::new(ProblemKind::RecordExpired, detail).about(record.operation_id),
        policy,
    )
    .about(record)
}

/// Answers that another command holds the business reference. Only its own caller is told which.
pub(crate) fn duplicate_reference(holder: Option<OperationId>, policy: &Policy) -> Answer {
    let detail = "Another command of this operation already has this business reference. Nothing ran.";
    let duplicate = Problem::new(ProblemKind::DuplicateBusinessReference, detail);
    let duplicate = holder.into_iter().fold(duplicate, Problem::about);
    told(AnswerDecision::Refused, &duplicate, policy)
}

/// Answers that the command ran, and that the service does not show its result to this caller.
pub(crate) fn result_denied(
    id: OperationId,
    status: StatusCode,
    challenge: Option<HeaderValue>,
    policy: &Policy,
) -> Answer {
    let kind = if status == StatusCode::UNAUTHORIZED {
        ProblemKind::Unauthenticated
    } else {
        ProblemKind::Forbidden
    };
    let detail =
        "The command ran before, and did not run again. The service does not show this caller what it made.";
    let mut answer = told(AnswerDecision::Refused, &Problem::new(kind, detail).about(id), policy);
    if let Some(challenge) = challenge {
        answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    }
    answer
}

/// Answers that the command ran, and that its result cannot be fetched now. `bare` has its address.
pub(crate) fn result_unavailable(
    bare: &Answer,
    id: OperationId,
    status: StatusCode,
    policy: &Policy,
) -> Answer {
    let detail =
        "The command ran before, and did not run again. What it made cannot be fetched at this moment.";
    let unavailable = Problem::new(ProblemKind::ResultUnavailable, detail).about(id).with_status(status);
    let mut answer = told(AnswerDecision::Refused, &unavailable.retry_after(SOON), policy);
    if let Some(location) = bare.headers().get(LOCATION) {
        answer.headers_mut().insert(LOCATION, location.clone());
    }
    answer
}

/// Answers that the stored response cannot be read. The command does not run again for that.
pub(crate) fn unreadable(record: &Record, policy: &Policy) -> Answer {
    let detail = "The command ran; its stored response cannot be read.";
    let problem = Problem::new(ProblemKind::ResponseUnreadable, detail).about(record.operation_id);
    told(AnswerDecision::StoreError, &problem, policy)
}
