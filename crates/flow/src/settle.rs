//! What is written about work that is done, for either database.

use semel_core::{Answer, Clock, Command, Outcome, SystemClock, Transacted};
use semel_core::{
    Change, Claim, Decision, Fence, Ids, Policy, RandomIds, Response, Settlement, StoredResult,
};

use crate::reply::Reply;

/// A first attempt at a command, under an id of its own.
pub(crate) fn attempt(command: &Command) -> Claim {
    command.claim(RandomIds.operation_id(SystemClock.now()), RandomIds.attempt_token())
}

/// The completion that keeps this reply for retries. Whatever its status, it is final: the work said so.
pub(crate) fn completion(policy: &Policy, fence: Fence, reply: &Reply) -> Change {
    let kept = if reply.body.len() > policy.max_stored_response {
        Response::without_body(reply.status, &reply.headers)
    } else {
        Response::retain(reply.status, &reply.headers, reply.body.clone(), &http::HeaderMap::new())
    };
    let result = StoredResult {
        response: kept.encode(),
        status: kept.status.as_u16(),
        resource: kept.location().map(str::to_owned),
    };
    match policy.settle(reply.status, Some(Outcome::Final)) {
        Settlement::Fail(reason) => Change::fail(fence, reason, result),
        Settlement::Complete | Settlement::Release(_) | Settlement::Abandon(_) => {
            Change::complete(fence, result)
        }
    }
}

/// The answer to a claim that is not to execute.
pub(crate) fn decided(answer: Answer) -> Transacted {
    Transacted::Decided {
        decision: answer.decision,
        record: answer.record.map(Box::new),
        holder: answer.holder.map(Box::new),
        now: Some(answer.now),
    }
}

/// Somebody else has the command in hand, in a transaction that nobody can look into.
pub(crate) fn in_progress() -> Transacted {
    Transacted::Decided { decision: Decision::Wait, record: None, holder: None, now: None }
}
