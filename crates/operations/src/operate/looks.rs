//! Results of look-ups, as operators see them.

use semel_core::{OperationId, StoreError, Timestamp};
use semel_flow::reconcile::{LookUpOutcome, LookUpResult};
use serde_json::{Value, json};

use super::records::absent;

/// Action in the audit log for a look-up.
pub const ACTION: &str = "reconcile";

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

/// Returns the result of one look-up among many as JSON. The names are stable.
pub fn one_of_many(id: OperationId, looked: Result<Option<LookUpResult>, StoreError>) -> Value {
    let bare =
        |outcome: &str, why: String| json!({ "operationId": id.to_string(), "outcome": outcome, "why": why });
    match looked {
        Ok(Some(look)) => shown(&look),
        Ok(None) => bare("absent", absent(id)),
        Err(error) => bare("failed", error.to_string()),
    }
}

/// Returns the result of a command that was not looked up. The names are stable.
pub fn not_tried(id: OperationId) -> Value {
    let why = "the time of the request was over, or the store failed before: ask again";
    json!({ "operationId": id.to_string(), "outcome": "not_tried", "why": why })
}

/// Numbers of look-ups by their outcomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookCounts {
    /// Commands that evidence settled.
    pub resolved: usize,
    /// Commands that were looked up, and whose outcome is still unknown.
    pub unknown: usize,
    /// Commands that were not looked up: absent, not unknown, in another look-up, failed, or not tried.
    pub others: usize,
}

impl LookCounts {
    /// Counts a result.
    pub fn count(&mut self, result: &Value) {
        let counted = match result["outcome"].as_str() {
            Some("resolved") => &mut self.resolved,
            Some("again" | "given_up") => &mut self.unknown,
            _ => &mut self.others,
        };
        *counted += 1;
    }

    /// Returns the numbers and the results as JSON. The names are stable.
    pub fn to_json(&self, results: &[Value]) -> Value {
        json!({ "resolved": self.resolved, "unknown": self.unknown, "others": self.others, "results": results })
    }
}
