//! Result of a look-up for one command, as operators see it.

use semel_core::Timestamp;
use semel_flow::reconcile::{LookUpOutcome, LookUpResult};
use serde_json::{Value, json};

/// Returns a look-up's result as JSON. The names are stable.
pub fn shown(look: &LookUpResult) -> Value {
    let (outcome, verdict, at, why) = match &look.outcome {
        LookUpOutcome::Resolved(verdict) => ("resolved", Some(verdict.as_str()), None, None),
        LookUpOutcome::Again { at, why } => ("again", None, Some(*at), Some(why)),
        LookUpOutcome::GivenUp { why } => ("given_up", None, None, Some(why)),
        LookUpOutcome::Overtaken => ("overtaken", None, None, None),
        LookUpOutcome::NotUnknown(_) => ("not_unknown", None, None, None),
        LookUpOutcome::Failed { why } => ("failed", None, None, Some(why)),
    };
    let state = match &look.outcome {
        LookUpOutcome::NotUnknown(state) => Some(state.as_str()),
        _ => None,
    };
    json!({
        "operationId": look.operation_id.to_string(),
        "operation": look.operation.as_str(),
        "outcome": outcome,
        "verdict": verdict,
        "state": state,
        "nextLookAt": at.map(Timestamp::to_rfc3339),
        "why": why,
    })
}
