//! The pages below `/.well-known/semel/`: operations, for their own caller only, and the meaning of problems.

use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use semel_core::path::RESERVED_PATH;
use semel_core::problem::{OPERATIONS_PATH, PROBLEMS_PATH, ProblemKind};
use semel_core::transition::age;
use semel_core::{Decision, Event, OperationId, Policy, Principal, Problem, Record};
use tokio::time::Instant;

use crate::answer::coding::Accepted;
use crate::answer::{Answer, document, problems, replay};
use crate::body::Body;
use crate::fetch;
use crate::recall;
use crate::shared::Shared;

/// Answers a request for one of Semel's own paths; `None` if the path is not one.
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
        let nothing = Problem::new(ProblemKind::OperationNotFound, "There is nothing at this path.");
        return Some(Answer::problem(&nothing, policy.profile));
    };
    Some(match (shared.identify)(parts).principal().await {
        Ok(principal) => match shared.look_up(&principal).await {
            // In a box, so that other requests do not carry its state around.
            Ok(()) => Box::pin(operation(shared, &principal, wanted, parts, policy)).await,
            Err(problem) => Answer::problem(&problem, policy.profile),
        },
        Err(denied) => denied.answer(policy.profile),
    })
}

/// Answers with the document of an operation, or with its stored result.
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
        return problems::store_unavailable(policy);
    };
    // Absent, foreign and forgotten records get the same answer, in the same time.
    let Some(record) = found.record else { return not_found(policy) };
    let Some(head) = age(record.head, found.now) else { return not_found(policy) };
    let record = Record { head, ..record };
    // Only the record names the operation. A caller who may not use it learns nothing more about it.
    if let Err(denied) = (shared.authorize)(principal, &record.operation, parts).await {
        return denied.answer(shared.operations.policy(&record.operation).profile);
    }
    if !result {
        let Ok(steps) = shared.within("progress", shared.store.progress(id)).await else {
            return problems::store_unavailable(policy);
        };
        return document(&record, &steps, StatusCode::OK);
    }
    let look = Event::Look { fingerprint: record.head.fingerprint };
    let policy = shared.operations.policy(&record.operation);
    // From memory if possible: its bytes are there once, however many requests ask for it at a time.
    let answer = match shared.cache.look(&record.id, record.head.fingerprint) {
        Some((Decision::Replay, settled)) => replay::replay_from_memory(&settled, policy),
        Some(_) | None => recall::looked(shared, Some(&record), look, found.now, Some(asked), policy),
    };
    let answer = answer.for_codings(&Accepted::of(&parts.headers));
    let mut answer = fetch::present(shared, Some(parts), answer).await;
    shield(answer.headers_mut());
    answer
}

/// Shields a stored response at an address of its own: caches keep answers to GET, and browsers can be led to them. The
/// handler's fields for caches were meant for another method, and the content must run nothing with the rights of this origin.
fn shield(headers: &mut HeaderMap) {
    for for_caches in ["cdn-cache-control", "surrogate-control", "expires"] {
        headers.remove(for_caches);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Beside the handler's own policy, if it has one: browsers obey all of them.
    headers.append(CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));
}

fn problem_page(slug: &str, policy: &Policy) -> Answer {
    let Some(kind) = ProblemKind::from_slug(slug) else {
        let unknown = Problem::new(ProblemKind::OperationNotFound, "There is no problem of this name.");
        return Answer::problem(&unknown, policy.profile);
    };
    let page = format!("{}\n\n{}\n\n{}\n", kind.code(), kind.title(), kind.advice());
    let mut answer = Answer::new(Body::full(page));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

fn not_found(policy: &Policy) -> Answer {
    let detail = "No operation of this caller has this id, or it has been forgotten.";
    Answer::problem(&Problem::new(ProblemKind::OperationNotFound, detail), policy.profile)
}

fn method_not_allowed(policy: &Policy) -> Answer {
    let problem = Problem::new(ProblemKind::OperationNotFound, "Only GET is answered here.");
    let mut answer = Answer::problem(&problem.with_status(StatusCode::METHOD_NOT_ALLOWED), policy.profile);
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    answer
}
