//! Settles an executed command: writes its outcome, durably, and answers the client after that.
//!
//! Invariant: the client gets a handler's final answer only after the record has it. If the record says something else by
//! then, the client gets what the record says.

use std::sync::Arc;

use http::StatusCode;
use http::header::CONTENT_LENGTH;
use semel_core::problem::ProblemKind;
use semel_core::{Decision, Event, Policy, Problem, Reason, Record, Settlement, StoreAnswer, transition};
use semel_faults::{Point, reached};
use tokio::time::Instant;

use crate::acquired::Acquired;
use crate::answer::{Answer, headers, problems};
use crate::body::Body;
use crate::executed::{AnswerContent, Executed, HandlerResult};
use crate::late;
use crate::observe;
use crate::recall;
use crate::settlement::{kept, observation, settlement, write};
use crate::shared::Shared;

/// Settles the record, and answers the client. A late answer of the handler is read in the background.
pub(crate) async fn settle(shared: Arc<Shared>, acquired: Box<Acquired>, executed: Executed) -> Answer {
    let Executed { ran, decision, time, registered, late } = executed;
    let (record, policy, about) = (&acquired.record, &*acquired.rule.policy, &acquired.about());
    let (settlement, kept) = (settlement(policy, &ran), kept(policy, &ran));
    let asked = Instant::now();
    let seen = observation(&acquired, &ran);
    let mut answer = match write(&shared, &acquired, settlement, &kept, seen.as_deref()).await {
        Ok(answer) if answer.decision == Decision::Applied => {
            let settled = Arc::new((answer.record.unwrap_or_else(|| (**record).clone()), answer.now));
            let (record, now) = &*settled;
            if record.result.is_some() {
                reached(Point::CacheFilled).await;
                shared.cache.keep(record, *now, asked);
            }
            shared.stored(record, record.result.as_ref().map_or(0, |result| result.response.bytes.len()));
            observe::executed(about, record, time);
            registered.done(Some(settled.clone()));
            own_answer(record, ran, settlement, policy)
        }
        Ok(answer) => {
            registered.done(None);
            observe::zombie(about);
            tracing::warn!(operation_id = %record.operation_id, "an executor was fenced: the record stands");
            fenced_answer(&shared, record, &answer, policy)
        }
        Err(_) => {
            registered.done(None);
            match settlement {
                Settlement::Complete | Settlement::Fail(_) => {
                    problems::outcome_not_stored(record.operation_id, policy)
                }
                Settlement::Release(_) | Settlement::Abandon(_) => {
                    own_answer(record, ran, settlement, policy)
                }
            }
        }
    };
    answer.facts.decision = Some(decision);
    answer.facts.epoch = Some(record.head.epoch);
    answer.facts.handler_time = time;
    if let Some(late) = late {
        tokio::spawn(late::listen(shared, acquired, late));
    }
    reached(Point::ResponseOut).await;
    answer
}

/// Returns the executor's own answer, which nothing contradicts.
fn own_answer(record: &Record, ran: HandlerResult, settlement: Settlement, policy: &Policy) -> Answer {
    match ran {
        HandlerResult::Answered { parts, content, .. } => {
            let whole = matches!(&content, AnswerContent::Whole { .. });
            let body = match content {
                AnswerContent::Whole { bytes, trailers, .. } => Body::with_trailers(bytes, trailers),
                AnswerContent::Passing(body) => body,
            };
            let mut answer = Answer::of_handler(http::Response::from_parts(*parts, body));
            if whole {
                // The server that sends the body knows its length; a wrong length would split it in two.
                answer.headers_mut().remove(CONTENT_LENGTH);
            }
            headers::mark(answer.headers_mut(), record);
            let advice = settlement.retry_advice(answer.status());
            headers::advise(answer.headers_mut(), advice);
            answer.about(record)
        }
        HandlerResult::NotExecuted => {
            let detail = "The service that carries out the command could not be reached. Nothing ran.";
            let problem = Problem::new(ProblemKind::UpstreamUnreachable, detail).about(record.operation_id);
            Answer::problem(&problem, policy.profile).about(record)
        }
        HandlerResult::Failed(reason, _) => {
            let (status, detail) = match reason {
                Reason::TimedOut => {
                    (StatusCode::GATEWAY_TIMEOUT, "The command was begun and did not answer in time.")
                }
                Reason::Panicked => {
                    (StatusCode::INTERNAL_SERVER_ERROR, "The command was begun and its handler failed.")
                }
                _ => (StatusCode::BAD_GATEWAY, "The command was begun and its answer broke off."),
            };
            problems::outcome_unknown(record.operation_id, status, detail, policy).about(record)
        }
    }
}

/// Returns what the record says to the client of an executor that was fenced.
fn fenced_answer(shared: &Shared, record: &Record, answer: &StoreAnswer, policy: &Policy) -> Answer {
    let look = Event::Look { fingerprint: record.head.fingerprint };
    let head = answer.record.as_ref().map(|record| &record.head);
    match transition(head, &look, answer.now).decision {
        Decision::Replay | Decision::Wait | Decision::Reconcile | Decision::Expired => {
            recall::looked(shared, answer.record.as_ref(), look, answer.now, None, policy)
        }
        // The record was given up, or belongs to another command by now; this executor did run.
        Decision::Vacant
        | Decision::Mismatch
        | Decision::Duplicate
        | Decision::Execute
        | Decision::Applied
        | Decision::Fenced
        | Decision::Refused(_)
        | Decision::Idle => {
            let detail = "The command ran, but its record had been given up by then.";
            problems::outcome_unknown(record.operation_id, StatusCode::INTERNAL_SERVER_ERROR, detail, policy)
        }
    }
}
