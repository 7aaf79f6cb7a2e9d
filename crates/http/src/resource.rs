//! What is served below `/.well-known/semel/`: operations, to their own caller only, and what problems mean.

use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use semel_core::path::RESERVED_PATH;
use semel_core::problem::{Kind, OPERATIONS_PATH, PROBLEMS_PATH};
use semel_core::transition::age;
use semel_core::{
    Decision, Event, OperationId, Policy, Principal, Problem, Progress, Record, StepKind, Timestamp,
};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::body::Body;
use crate::coding::Accepted;
use crate::fetch;
use crate::layer::Shared;
use crate::observe::OwnDocument;
use crate::respond::{self, Answer};
use crate::service;

/// Answers a request for one of our own paths; `None` if the path is not ours.
pub(crate) async fn answer(shared: &Shared, parts: &Parts) -> Option<Answer> {
    let path = parts.uri.path();
    let policy = shared.operations.defaults();
    if !path.starts_with(RESERVED_PATH) {
        return None;
    }
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return Some(method_not_allowed(policy));
    }
    if let Some(slug) = path.strip_prefix(PROBLEMS_PATH) {
        return Some(problem_page(slug, policy));
    }
    let Some(wanted) = path.strip_prefix(OPERATIONS_PATH) else {
        let nothing = Problem::new(Kind::OperationNotFound, "There is nothing at this path.");
        return Some(respond::problem(&nothing, policy.profile));
    };
    Some(match (shared.identify)(parts).principal().await {
        Ok(principal) => match shared.look_up(&principal).await {
            // Apart, so that the requests that ask for something else do not carry its state around.
            Ok(()) => Box::pin(operation(shared, &principal, wanted, parts, policy)).await,
            Err(problem) => respond::problem(&problem, policy.profile),
        },
        Err(denied) => denied.answer(policy.profile),
    })
}

async fn operation(
    shared: &Shared,
    principal: &Principal,
    wanted: &str,
    parts: &Parts,
    policy: &Policy,
) -> Answer {
    let (id, result) = match wanted.strip_suffix("/result") {
        Some(id) => (id, true),
        None => (wanted, false),
    };
    let Ok(id) = id.parse::<OperationId>() else { return not_found(policy) };
    let asked = Instant::now();
    let Ok(found) = shared.within("find", shared.store.find_own(id, principal)).await else {
        return respond::store_unavailable(policy);
    };
    // Absent, foreign and forgotten records answer alike, and in the same time.
    let Some(record) = found.record else { return not_found(policy) };
    let Some(head) = age(record.head, found.now) else { return not_found(policy) };
    let record = Record { head, ..record };
    // Only the record says which operation it is, and who may not use that one learns nothing more about it.
    if let Err(denied) = (shared.authorize)(principal, &record.operation, parts).await {
        return denied.answer(shared.operations.policy(&record.operation).profile);
    }
    if !result {
        let Ok(steps) = shared.within("progress", shared.store.progress(id)).await else {
            return respond::store_unavailable(policy);
        };
        return document(&record, &steps, StatusCode::OK);
    }
    let look = Event::Look { fingerprint: record.head.fingerprint };
    let policy = shared.operations.policy(&record.operation);
    // From memory where it is there: however many ask for it at a time, its bytes are there once.
    let answer = match shared.cache.look(&record.id, record.head.fingerprint) {
        Some((Decision::Replay, settled)) => respond::replay_from_memory(&settled, policy),
        Some(_) | None => service::looked(shared, Some(&record), look, found.now, Some(asked), policy),
    };
    let answer = respond::as_accepted(&Accepted::of(&parts.headers), answer);
    let mut answer = fetch::present(shared, Some(parts), answer).await;
    shield(answer.headers_mut());
    answer
}

/// A stored response at an address of its own: caches keep answers to GET, and browsers can be led to them. What its
/// handler said about caching was said about another method; what it holds runs nothing with the rights of this origin.
fn shield(headers: &mut HeaderMap) {
    for for_caches in ["cdn-cache-control", "surrogate-control", "expires"] {
        headers.remove(for_caches);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Beside the handler's own, if it has one: browsers obey all of them.
    headers.append(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));
}

/// The operation as JSON, with how far it has come if it has several steps.
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
    let mut answer = http::Response::new(Body::full(Value::Object(members).to_string()));
    *answer.status_mut() = status;
    answer.extensions_mut().insert(OwnDocument);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// A step, and the list that it belongs to. What a phase came to is the service's own affair, and not shown.
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

fn problem_page(slug: &str, policy: &Policy) -> Answer {
    let Some(kind) = Kind::from_slug(slug) else {
        let unknown = Problem::new(Kind::OperationNotFound, "There is no problem of this name.");
        return respond::problem(&unknown, policy.profile);
    };
    let page = format!("{}\n\n{}\n\n{}\n", kind.code(), kind.title(), kind.advice());
    let mut answer = http::Response::new(Body::full(page));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

fn not_found(policy: &Policy) -> Answer {
    let detail = "No operation of this caller has this id, or it has been forgotten.";
    respond::problem(&Problem::new(Kind::OperationNotFound, detail), policy.profile)
}

fn method_not_allowed(policy: &Policy) -> Answer {
    let problem = Problem::new(Kind::OperationNotFound, "Only GET is answered here.");
    let mut answer = respond::problem(&problem.with_status(StatusCode::METHOD_NOT_ALLOWED), policy.profile);
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    answer
}
