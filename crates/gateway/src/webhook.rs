//! Webhooks, to which providers send events: `POST /.well-known/semel/webhooks/NAME`, beside the commands of
//! clients.

mod places;

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use semel_core::Problem;
use semel_core::policy::Profile;
use semel_core::problem::ProblemKind;
use semel_flow::reconcile::webhook::MAX_EVENT;
use semel_flow::reconcile::{Received, Refused, Webhooks};
use semel_http::{Body, WholeBody};

use self::places::PLACES;
use crate::entry::EntryBody;

/// Path prefix of all webhooks.
pub const WEBHOOKS_PATH: &str = "/.well-known/semel/webhooks/";

/// Timeout for the body of an event. Providers send a few kilobytes at once.
const BODY_TIME: Duration = Duration::from_secs(10);

/// `Retry-After` for a provider whose event could not be stored.
const LATER: Duration = Duration::from_secs(5);

/// Answers a request to the webhook of this name.
pub async fn answer(
    webhooks: &Webhooks,
    name: &str,
    peer: IpAddr,
    request: Request<EntryBody<Incoming>>,
) -> Response<Body> {
    if request.method() != Method::POST {
        let problem = Problem::new(ProblemKind::MalformedRequest, "Events are sent with POST.");
        let mut answer = told(&problem.with_status(StatusCode::METHOD_NOT_ALLOWED));
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return answer;
    }
    if let Err(refused) = webhooks.greet(name, request.headers()) {
        return last(told(&problem(&refused)), &request);
    }
    // The sender is unauthenticated until the body is read: it gets little room, little time, and its own
    // share of both.
    let Some(_place) = PLACES.take(name, peer) else {
        return last(told(&problem(&Refused::Unavailable)), &request);
    };
    let (head, body) = request.into_parts();
    let body = WholeBody::new(head.version, body);
    let body = match tokio::time::timeout(BODY_TIME, read(body)).await {
        Ok(Ok(body)) => body,
        Ok(Err(problem)) => return told(&problem),
        Err(_) => {
            return told(&Problem::new(
                ProblemKind::RequestIncomplete,
                "The event did not come to an end in time.",
            ));
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

/// Returns the answer as the last one on its connection: the body of the request is not read.
fn last(mut answer: Response<Body>, request: &Request<EntryBody<Incoming>>) -> Response<Body> {
    if request.version() <= Version::HTTP_11 {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

async fn read(body: WholeBody<EntryBody<Incoming>>) -> Result<Bytes, Problem> {
    match Limited::new(body, MAX_EVENT).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(problem(&Refused::TooLarge)),
        Err(_) => Err(Problem::new(ProblemKind::RequestIncomplete, "The event broke off.")),
    }
}

fn told(problem: &Problem) -> Response<Body> {
    semel_http::problem(problem, Profile::Ietf)
}

fn problem(refused: &Refused) -> Problem {
    let kind = match refused {
        Refused::UnknownSource | Refused::UnknownOperation => ProblemKind::OperationNotFound,
        Refused::TooLarge => ProblemKind::RequestTooLarge,
        Refused::NotSigned(_) => ProblemKind::Unauthenticated,
        Refused::Unreadable(_) => ProblemKind::MalformedRequest,
        Refused::OtherEvent => ProblemKind::ActionRefused,
        Refused::Unavailable => ProblemKind::StoreUnavailable,
    };
    let problem = Problem::new(kind, refused.to_string());
    if *refused == Refused::Unavailable { problem.retry_after(LATER) } else { problem }
}
