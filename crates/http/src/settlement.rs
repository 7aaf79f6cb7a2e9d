//! The settlement of an execution: which change its outcome makes, which response is stored, and the write of both.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use semel_core::{
    Change, Fence, Policy, Reason, Response, Settlement, StoreAnswer, StoreError, StoredResult,
};

use crate::acquired::{Acquired, Unexecuted};
use crate::executed::{AnswerContent, HandlerResult};
use crate::persist;
use crate::shared::Shared;

/// Returns the settlement of a command whose handler ended like this.
pub(crate) fn settlement(policy: &Policy, ran: &HandlerResult) -> Settlement {
    match ran {
        HandlerResult::Answered { parts, declared, .. } => policy.settle(parts.status, *declared),
        HandlerResult::NotExecuted => Settlement::Release(Reason::NotExecuted),
        HandlerResult::Failed(reason, _) => Settlement::Abandon(*reason),
    }
}

/// Returns the part of the handler's answer that is stored.
pub(crate) fn kept(policy: &Policy, ran: &HandlerResult) -> Response {
    match ran {
        HandlerResult::Answered { parts, content: AnswerContent::Whole { bytes, trailers, .. }, .. } => {
            policy.keep(parts.status, &parts.headers, Some(bytes), trailers)
        }
        HandlerResult::Answered { parts, content: AnswerContent::Passing(_), .. } => {
            policy.keep(parts.status, &parts.headers, None, &HeaderMap::new())
        }
        HandlerResult::NotExecuted | HandlerResult::Failed(..) => {
            Response::without_body(StatusCode::OK, &HeaderMap::new())
        }
    }
}

/// Returns what the executor saw of a call whose outcome may be unknown, for the operator who looks for its effect. It never
/// holds a path with identifiers.
pub(crate) fn observation(acquired: &Acquired, ran: &HandlerResult) -> Option<String> {
    let seen = match ran {
        HandlerResult::Answered { parts, .. } => format!("answered with {}", parts.status),
        HandlerResult::Failed(_, seen) => seen.clone(),
        HandlerResult::NotExecuted => return None,
    };
    Some(format!("{}: {seen}", acquired.rule.route()))
}

/// Writes the settlement, with retries. After the last one, it is written in the background.
pub(crate) async fn write(
    shared: &Arc<Shared>,
    acquired: &Acquired,
    settlement: Settlement,
    kept: &Response,
    seen: Option<&str>,
) -> Result<StoreAnswer, StoreError> {
    let record = &acquired.record;
    let change = |kept: &Response| {
        let change = change(record.head.fence(), settlement, acquired.unexecuted, kept);
        match seen {
            Some(seen) => change.observing(seen),
            None => change,
        }
    };
    let bare = || change(&Response::without_body(kept.status, &kept.headers));
    let mut first = change(kept);
    let mut written = persist::apply(shared, record, &first).await;
    if let (Err(StoreError::Rejected(why)), Some(_)) = (&written, first.result()) {
        // The store can never take this response. The command is settled without it.
        tracing::warn!(why, operation_id = %record.operation_id, "a response could not be stored");
        first = bare();
        written = persist::apply(shared, record, &first).await;
    }
    if let Err(error) = &written {
        tracing::error!(%error, operation_id = %record.operation_id, "an outcome could not be stored yet");
        persist::apply_later(shared, record, first, bare());
    }
    written
}

fn change(fence: Fence, settlement: Settlement, unexecuted: Unexecuted, kept: &Response) -> Change {
    let result = || StoredResult::of(kept);
    match settlement {
        Settlement::Complete => Change::complete(fence, result()),
        Settlement::Fail(reason) => Change::fail(fence, reason, result()),
        Settlement::Release(reason) => unexecuted.change(fence, reason),
        Settlement::Abandon(reason) => Change::abandon(fence, reason),
    }
}
