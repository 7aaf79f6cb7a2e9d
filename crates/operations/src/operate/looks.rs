//! Result of a look-up for one command, as operators see it.

use semel_core::Timestamp;
use semel_flow::reconcile::{Look, Outcome};
use serde_json::{Value, json};

/// Returns a look-up's result as JSON. The names are stable.
pub fn shown(look: &Look) -> Value {
    let (outcome, verdict, at, why) = match &look.outcome {
        Outcome::Resolved(verdict) => ("resolved", Some(verdict.as_str()), None, None),
        Outcome::Again { at, why } => ("again", None, Some(*at), Some(why)),
        Outcome::GivenUp { why } => ("given_up", None, None, Some(why)),
        Outcome::Overtaken => ("overtaken", None, None, None),
        Outcome::NotUnknown(_) => ("not_unknown", None, None, None),
        Outcome::Failed { why } => ("failed", None, None, Some(why)),
    };
    let state = match &look.outcome {
        Outcome::NotUnknown(state) => Some(state.as_str()),
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
