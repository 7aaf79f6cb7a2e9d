//! The state of an operation as a JSON document.

use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use semel_core::{Progress, Record, StepKind, Timestamp};
use serde_json::{Map, Value, json};

use crate::body::Body;

use super::Answer;

/// Makes the document of an operation, with its steps if it has several.
pub(crate) fn document(record: &Record, steps: &[Progress], status: StatusCode) -> Answer {
    let mut members = Map::new();
    members.insert("operationId".into(), json!(record.operation_id.to_string()));
    members.insert("operation".into(), json!(record.operation.as_str()));
    members.insert("state".into(), json!(record.head.state.name().as_str()));
    members.insert("reason".into(), json!(record.head.reason.as_str()));
    members.insert("attempt".into(), json!(record.head.epoch));
    members.insert("createdAt".into(), json!(record.created_at.to_rfc3339()));
    members.insert("updatedAt".into(), json!(record.updated_at.to_rfc3339()));
    let expires_at = record.head.state.expires_at().map(Timestamp::to_rfc3339);
    members.insert("expiresAt".into(), json!(expires_at));
    let result = record.result.as_ref();
    let result = result.map(|result| json!({ "status": result.status, "location": result.resource }));
    members.insert("result".into(), json!(result));
    for step in steps {
        let (list, shown) = shown(step);
        if let Value::Array(list) = members.entry(list).or_insert_with(|| json!([])) {
            list.push(shown);
        }
    }
    let mut answer = Answer::new(Body::full(Value::Object(members).to_string()));
    *answer.response.status_mut() = status;
    answer.facts.is_document = true;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// Returns a step, and the list that it belongs to. The output of a phase is not shown.
fn shown(step: &Progress) -> (&'static str, Value) {
    match &step.what {
        StepKind::Item { operation_id, state, status } => {
            let id = operation_id.map(|id| id.to_string());
            let state = state.map(|state| state.as_str());
            (
                "items",
                json!({ "clientItemId": step.name, "operationId": id, "state": state, "status": status }),
            )
        }
        StepKind::Local { .. } | StepKind::External { .. } => {
            let shown = json!({
                "name": step.name,
                "kind": step.what.as_str(),
                "state": if step.done_at.is_some() { "done" } else { "begun" },
                "beganAt": step.began_at.to_rfc3339(),
                "doneAt": step.done_at.map(Timestamp::to_rfc3339),
            });
            ("phases", shown)
        }
    }
}
