//! Fetches the result of a command for a retry, where only the address of the result is stored.
//!
//! The service gets a GET for the caller of the retry, with the credentials of that request, and decides on
//! the caller's access. Invariant: the address is a path and only the service itself is asked, within bounds
//! of time and size; the command never runs again.

use bytes::Bytes;
use http::header::{HOST, HeaderName, RANGE, WWW_AUTHENTICATE};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, StatusCode, Uri, response};
use semel_core::fields::{self, Section, Treatment};
use semel_core::policy::{Policy, StoreResponse};
use semel_core::reference::own_path;
use semel_core::{Response, is_server_error};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::answer::{Answer, Elsewhere, Refetch, problems};
use crate::ask::Asking;
use crate::body::{self, Body, Collected};
use crate::command::{CommandRequest, KEY, remove_connection_fields};
use crate::shared::Shared;

/// Returns the head of a command that a fetch needs; `None` if its operation does not store references.
pub(crate) fn head(command: &CommandRequest) -> Option<Box<Parts>> {
    let wanted = command.rule.policy.store_response == StoreResponse::Reference;
    wanted.then(|| Box::new(command.parts.clone()))
}

/// Completes an answer whose body is elsewhere, for the caller who sent `asked`.
pub(crate) async fn present(shared: &Shared, asked: Option<&Parts>, mut answer: Answer) -> Answer {
    let Some(elsewhere) = answer.take_elsewhere() else { return answer };
    let (Some(ask), Some(asked)) = (&shared.ask, asked) else { return answer };
    let Some(path) = own_path(&elsewhere.address, &hosts(shared, asked)) else { return answer };
    let begun = Instant::now();
    let earlier = answer.facts.handler_time;
    let request = question(asked, path, elsewhere.refetch.clone());
    let fetched = fetch_within(ask(request), &elsewhere.policy).await;
    let mut answer = answered(answer, fetched, &elsewhere);
    answer.facts.handler_time = earlier + begun.elapsed();
    answer
}

/// Returns the names of the service: the host of the request, and those that the service author gave.
fn hosts<'a>(shared: &'a Shared, asked: &'a Parts) -> Vec<&'a str> {
    let field = asked.headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = field.or_else(|| asked.uri.authority().map(|authority| authority.as_str()));
    host.into_iter().chain(shared.origins.iter().map(|authority| authority.as_str())).collect()
}

/// Fields that belong to the command, and mean something else, or nothing, in a fetch of its result.
const NOT_ASKED_WITH: [HeaderName; 5] = [
    KEY,
    RANGE,
    HeaderName::from_static("digest"),
    HeaderName::from_static("signature"),
    HeaderName::from_static("signature-input"),
];

/// Makes the GET for a path, with all the credentials of the caller.
fn question(asked: &Parts, path: PathAndQuery, refetch: Refetch) -> Request<Body> {
    let mut request = Request::new(Body::default());
    *request.method_mut() = Method::GET;
    *request.version_mut() = asked.version;
    let mut target = asked.uri.clone().into_parts();
    target.path_and_query = Some(path.clone());
    *request.uri_mut() = Uri::from_parts(target).unwrap_or_else(|_| Uri::from(path));
    let mut headers = asked.headers.clone();
    remove_connection_fields(&mut headers);
    // A service that obeys one of these takes the GET for a command.
    fields::remove(&mut headers, Section::RequestHead, Treatment::Refuse);
    let of_the_command = |name: &&HeaderName| {
        let text = name.as_str();
        text.starts_with("content-") || text.starts_with("if-") || NOT_ASKED_WITH.contains(name)
    };
    let names: Vec<HeaderName> = headers.keys().filter(of_the_command).cloned().collect();
    for name in names {
        headers.remove(name);
    }
    *request.headers_mut() = headers;
    *request.extensions_mut() = asked.extensions.clone();
    request.extensions_mut().insert(refetch);
    request
}

/// The end of a fetch.
enum Fetched {
    /// The result of the command, as it is now.
    Found { parts: Box<response::Parts>, bytes: Bytes, trailers: HeaderMap },
    /// The result is gone, or cannot be fetched like this.
    Gone,
    /// The service does not show the result to this caller.
    Denied(Box<response::Parts>),
    /// The result cannot be fetched at this moment, for the reason of this status.
    Unavailable(StatusCode),
}

/// Fetches in a task of its own, so that a panic ends only the task. The task ends with its client, and with the timeout.
async fn fetch_within(asking: Asking, policy: &Policy) -> Fetched {
    let mut task = JoinSet::new();
    task.spawn(fetch(asking, policy.max_stored_response));
    match tokio::time::timeout(policy.timeout, task.join_next()).await {
        Ok(Some(Ok(fetched))) => fetched,
        Ok(_) => Fetched::Unavailable(StatusCode::SERVICE_UNAVAILABLE),
        Err(_) => Fetched::Unavailable(StatusCode::GATEWAY_TIMEOUT),
    }
}

async fn fetch(asking: Asking, limit: usize) -> Fetched {
    let (parts, body) = match asking.await {
        Ok(answer) => answer.into_parts(),
        Err(error) => {
            tracing::warn!(%error, "the result of a command could not be asked for");
            return Fetched::Unavailable(StatusCode::SERVICE_UNAVAILABLE);
        }
    };
    let parts = Box::new(parts);
    match parts.status {
        StatusCode::OK | StatusCode::NON_AUTHORITATIVE_INFORMATION | StatusCode::NO_CONTENT => {}
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Fetched::Denied(parts),
        StatusCode::GATEWAY_TIMEOUT => return Fetched::Unavailable(StatusCode::GATEWAY_TIMEOUT),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            return Fetched::Unavailable(StatusCode::SERVICE_UNAVAILABLE);
        }
        status if is_server_error(status) || status.is_informational() => {
            return Fetched::Unavailable(StatusCode::SERVICE_UNAVAILABLE);
        }
        _ => return Fetched::Gone,
    }
    if body::is_stream(&parts.headers) {
        return Fetched::Gone;
    }
    match body::collect(Box::pin(body), limit, None).await {
        Ok(Collected::Whole { bytes, trailers }) => Fetched::Found { parts, bytes, trailers },
        Ok(Collected::TooLarge(_) | Collected::NoRoom(_)) => Fetched::Gone,
        Err(error) => {
            tracing::warn!(%error, "the result of a command broke off");
            Fetched::Unavailable(StatusCode::SERVICE_UNAVAILABLE)
        }
    }
}

/// Answers a retry. `bare` is the replay without a body.
fn answered(bare: Answer, fetched: Fetched, elsewhere: &Elsewhere) -> Answer {
    let (id, policy) = (elsewhere.refetch.operation_id, &elsewhere.policy);
    match fetched {
        Fetched::Found { parts, bytes, trailers } => {
            let found = Response::retain(parts.status, &parts.headers, bytes, &trailers);
            bare.refetched(found, &elsewhere.address)
        }
        Fetched::Gone => bare,
        Fetched::Denied(parts) => {
            let challenge = parts.headers.get(WWW_AUTHENTICATE).cloned();
            problems::result_denied(id, parts.status, challenge, policy)
        }
        Fetched::Unavailable(status) => problems::result_unavailable(&bare, id, status, policy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use semel_core::{OperationId, Principal};

    #[test]
    fn a_refetch_is_a_get_with_the_callers_credentials_and_no_key() {
        let lines = [
            ("host", "api.example"),
            ("authorization", "Bearer token"),
            ("cookie", "session=1"),
            ("accept", "application/json"),
            ("x-trace", "7"),
            ("idempotency-key", "k"),
            ("content-type", "application/json"),
            ("content-length", "2"),
            ("transfer-encoding", "chunked"),
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("expect", "100-continue"),
            ("if-none-match", "*"),
            ("range", "bytes=0-1"),
            ("x-http-method-override", "POST"),
        ];
        let mut command = Request::builder().method("POST").uri("/payments?dry=1");
        for (name, value) in lines {
            command = command.header(name, value);
        }
        let (asked, ()) = command.extension("from in front").body(()).expect("it is valid").into_parts();
        let principal = Principal::new("acme", "alice").expect("it is valid");
        let refetch = Refetch { operation_id: OperationId::from_bytes([1; 16]), principal };
        let question = question(&asked, PathAndQuery::from_static("/payments/1?full=1"), refetch);
        assert_eq!(
            (question.method(), question.uri().to_string().as_str()),
            (&Method::GET, "/payments/1?full=1")
        );
        let mut left: Vec<&str> = question.headers().keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "authorization", "cookie", "host", "x-trace"]);
        assert_eq!(question.headers()["authorization"], HeaderValue::from_static("Bearer token"));
        assert_eq!(question.extensions().get(), Some(&"from in front"));
        assert!(question.extensions().get::<Refetch>().is_some());
    }
}
