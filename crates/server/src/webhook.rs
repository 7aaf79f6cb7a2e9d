//! Where providers send their events: `POST /.well-known/semel/webhooks/NAME`, beside the commands of clients.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use semel_core::Problem;
use semel_core::policy::Profile;
use semel_core::problem::Kind;
use semel_flow::reconcile::webhook::MAX_EVENT;
use semel_flow::reconcile::{Received, Refused, Webhooks};
use semel_http::{Body, WholeBody};
use tokio::sync::Semaphore;

/// The path below which each webhook has its name.
pub const WEBHOOKS_PATH: &str = "/.well-known/semel/webhooks/";

/// How many events are read at a time, and how long each may take to come.
static PLACES: Semaphore = Semaphore::const_new(64);
const BODY_TIME: Duration = Duration::from_secs(20);

/// When a provider is to send again what could not be kept.
const LATER: Duration = Duration::from_secs(5);

/// Answers what was sent to a webhook of this name.
pub async fn answer(webhooks: &Webhooks, name: &str, request: Request<Incoming>) -> Response<Body> {
    if request.method() != Method::POST {
        let problem = Problem::new(Kind::MalformedRequest, "Events are sent with POST.");
        let mut answer = told(&problem.with_status(StatusCode::METHOD_NOT_ALLOWED));
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return answer;
    }
    if !webhooks.knows(name) {
        return told(&problem(&Refused::UnknownSource));
    }
    // Nobody is known before the body is: it has little room, and little time.
    let Ok(_place) = PLACES.try_acquire() else { return told(&problem(&Refused::Unavailable)) };
    let (head, body) = request.into_parts();
    let body = WholeBody::new(head.version, body);
    let body = match tokio::time::timeout(BODY_TIME, read(body)).await {
        Ok(Ok(body)) => body,
        Ok(Err(problem)) => return told(&problem),
        Err(_) => {
            return told(&Problem::new(Kind::RequestIncomplete, "The event did not come to an end in time."));
        }
    };
    match webhooks.receive(name, &head.headers, &body).await {
        Received::Refused(refused) => told(&problem(&refused)),
        received => {
            let mut answer = Response::new(Body::full(received.body()));
            *answer.status_mut() = received.status();
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            answer
        }
    }
}

async fn read(body: WholeBody<Incoming>) -> Result<Bytes, Problem> {
    match Limited::new(body, MAX_EVENT).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(problem(&Refused::TooLarge)),
        Err(_) => Err(Problem::new(Kind::RequestIncomplete, "The event broke off.")),
    }
}

fn told(problem: &Problem) -> Response<Body> {
    semel_http::problem(problem, Profile::Ietf)
}

fn problem(refused: &Refused) -> Problem {
    let kind = match refused {
        Refused::UnknownSource | Refused::UnknownOperation => Kind::OperationNotFound,
        Refused::TooLarge => Kind::RequestTooLarge,
        Refused::NotSigned(_) => Kind::Unauthenticated,
        Refused::Unreadable(_) => Kind::MalformedRequest,
        Refused::Unavailable => Kind::StoreUnavailable,
    };
    let problem = Problem::new(kind, refused.to_string());
    if *refused == Refused::Unavailable { problem.retry_after(LATER) } else { problem }
}
