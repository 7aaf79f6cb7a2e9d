//! Answers a retry with what its command made, as it is now, where only the address of that was kept.
//!
//! The service is asked for it with GET, as the caller who asks, and with the credentials of this very request: whether the
//! caller may see it is the service's to say. Invariant: the address is a path, asked of the service itself and of nobody
//! else, within bounds of time and size; whatever comes of it, the command is not run again.

use std::future::Future;
use std::pin::Pin;

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
use tower::Service;

use crate::answer::{Answer, Elsewhere, Refetch, problems};
use crate::body::{self, Body, BoxError, Collected};
use crate::command::{CommandRequest, KEY, remove_connection_fields};
use crate::execute;
use crate::layer::Shared;

/// Asks the service for something.
pub(crate) type Ask = dyn Fn(Request<Body>) -> Asking + Send + Sync;

/// What the service answers.
type Asking = Pin<Box<dyn Future<Output = Result<http::Response<Body>, BoxError>> + Send>>;

/// What can be asked for anything by a request. Any number of such questions may be asked at a time.
pub(crate) fn asking<S, R>(service: S) -> Box<Ask>
where
    S: Service<Request<Body>, Response = http::Response<R>> + Clone + Send + Sync + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    Box::new(move |request| {
        let mut service = service.clone();
        Box::pin(async move {
            std::future::poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
            let answer = service.call(request).await.map_err(Into::into)?;
            Ok(Answer::unprotected(answer).into_response())
        })
    })
}

/// What of a command is needed to ask for what it made; `None` if its operation does not want that.
pub(crate) fn head(command: &CommandRequest) -> Option<Box<Parts>> {
    let wanted = command.rule.policy.store_response == StoreResponse::Reference;
    wanted.then(|| Box::new(command.parts.clone()))
}

/// The answer, with its body if that is elsewhere and can be had for the one who sent `asked`.
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

/// What the service is called: by the one who asks, and by whoever has put the layer around it.
fn hosts<'a>(shared: &'a Shared, asked: &'a Parts) -> Vec<&'a str> {
    let field = asked.headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = field.or_else(|| asked.uri.authority().map(|authority| authority.as_str()));
    host.into_iter().chain(shared.origins.iter().map(|authority| authority.as_str())).collect()
}

/// Fields that belong to the command and mean something else, or nothing, in a question for what it made.
const NOT_ASKED_WITH: [HeaderName; 5] = [
    KEY,
    RANGE,
    HeaderName::from_static("digest"),
    HeaderName::from_static("signature"),
    HeaderName::from_static("signature-input"),
];

/// The question for what is at this path: as the caller, with everything that says who that is.
fn question(asked: &Parts, path: PathAndQuery, refetch: Refetch) -> Request<Body> {
    let mut request = Request::new(Body::default());
    *request.method_mut() = Method::GET;
    *request.version_mut() = asked.version;
    let mut target = asked.uri.clone().into_parts();
    target.path_and_query = Some(path.clone());
    *request.uri_mut() = Uri::from_parts(target).unwrap_or_else(|_| Uri::from(path));
    let mut headers = asked.headers.clone();
    remove_connection_fields(&mut headers);
    // A service that obeys one of these takes the question for a command.
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

/// What came of a question.
enum Fetched {
    /// What the command made, as it is now.
    Found { parts: Box<response::Parts>, bytes: Bytes, trailers: HeaderMap },
    /// It is not there any more, or cannot be had like this.
    Gone,
    /// The service does not show it to this caller.
    Denied(Box<response::Parts>),
    /// Nobody can say at this moment; this is the status that says why.
    Unavailable(StatusCode),
}

/// Asks in a task of its own, so that a panic ends only the task. It ends with the one who asks, and with the time.
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
    if execute::is_stream(&parts.headers) {
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

/// What a retry is told. `bare` is the replay without a body.
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
    fn a_question_is_the_callers_own_and_no_command() {
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
