//! Writes what came of a command, durably, before the client hears of it.
//!
//! Invariant: a client is told a handler's final answer only after the record has it; if the record says
//! something else by then, the client gets the record's truth.

use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, StatusCode, response};
use semel_core::problem::Kind;
use semel_core::{
    Answer as StoreAnswer, Change, Claim, Decision, Event, Fence, Policy, Problem, Reason, Record, RecordId,
    Response, Settlement, StoreError, StoredResult, transition,
};
use semel_faults::{Point, reached};
use tokio::time::Instant;
use tracing::Instrument;

use crate::answer::{Answer, headers, problems};
use crate::body::Body;
use crate::execute::{Acquired, Content, Ran};
use crate::layer::Shared;
use crate::observe;
use crate::running::{Active, Registered};
use crate::service;

/// How often a write is tried while the client waits, and how long to pause before each further try.
const PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_millis(50), Duration::from_millis(250)];

/// How long a write is tried after the client was answered without it.
const LAST_TRIES: Duration = Duration::from_secs(120);

/// What is written about a command that provably did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unexecuted {
    /// Its key is free for one fresh request.
    Release,
    /// A worker starts it again, after this time.
    Requeue(Duration),
}

impl Unexecuted {
    fn change(self, fence: Fence, reason: Reason) -> Change {
        match self {
            Unexecuted::Release => Change::release(fence, reason),
            Unexecuted::Requeue(after) => Change::requeue(fence, reason, after),
        }
    }
}

/// Settles the record and answers the one who asked.
pub(crate) async fn settle(
    shared: &Arc<Shared>,
    acquired: &Acquired,
    ran: Ran,
    time: Duration,
    registered: Registered,
) -> Answer {
    let (record, policy, about) = (&acquired.record, &*acquired.rule.policy, &acquired.about());
    let (settlement, kept) = (settlement(policy, &ran), kept(policy, &ran));
    let asked = Instant::now();
    let seen = observation(acquired, &ran);
    let written = write(shared, acquired, settlement, &kept, seen.as_deref()).await;
    match written {
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
            truth(shared, record, &answer, policy)
        }
        Err(_) => {
            registered.done(None);
            match settlement {
                Settlement::Complete | Settlement::Fail(_) => {
                    let detail = "The command ran, but its outcome could not be stored.";
                    let status = StatusCode::INTERNAL_SERVER_ERROR;
                    problems::outcome_unknown(record.operation_id, status, detail, policy)
                }
                Settlement::Release(_) | Settlement::Abandon(_) => {
                    own_answer(record, ran, settlement, policy)
                }
            }
        }
    }
}

/// What is to be written about a command that came to this.
pub(crate) fn settlement(policy: &Policy, ran: &Ran) -> Settlement {
    match ran {
        Ran::Answered { parts, declared, .. } => policy.settle(parts.status, *declared),
        Ran::NotExecuted => Settlement::Release(Reason::NotExecuted),
        Ran::Failed(reason, _) => Settlement::Abandon(*reason),
    }
}

/// What the executor saw of a call whose outcome may be unknown: where an operator looks for its effect. Never a path with a
/// caller's own things in it.
fn observation(acquired: &Acquired, ran: &Ran) -> Option<String> {
    let seen = match ran {
        Ran::Answered { parts, .. } => format!("answered with {}", parts.status),
        Ran::Failed(_, seen) => seen.clone(),
        Ran::NotExecuted => return None,
    };
    Some(format!("{}: {seen}", acquired.rule.route()))
}

/// The part of an answer that is stored.
pub(crate) fn kept(policy: &Policy, ran: &Ran) -> Response {
    match ran {
        Ran::Answered { parts, content, .. } => keep(policy, parts, content),
        Ran::NotExecuted | Ran::Failed(..) => Response::without_body(StatusCode::OK, &HeaderMap::new()),
    }
}

/// The executor's own answer, once nothing speaks against it.
fn own_answer(record: &Record, ran: Ran, settlement: Settlement, policy: &Policy) -> Answer {
    match ran {
        Ran::Answered { parts, content, .. } => {
            let whole = matches!(&content, Content::Whole { .. });
            let body = match content {
                Content::Whole { bytes, trailers, .. } => Body::with_trailers(bytes, trailers),
                Content::Passing(body) => body,
            };
            let mut answer = Answer::of_handler(http::Response::from_parts(*parts, body));
            if whole {
                // The server that sends it knows how long it is; a wrong length would split it in two.
                answer.headers_mut().remove(CONTENT_LENGTH);
            }
            headers::mark(answer.headers_mut(), record);
            let advice = settlement.retry_advice(answer.status());
            headers::advise(answer.headers_mut(), advice);
            answer.about(record)
        }
        Ran::NotExecuted => {
            let detail = "The service that carries out the command could not be reached. Nothing ran.";
            let problem = Problem::new(Kind::UpstreamUnreachable, detail).about(record.operation_id);
            Answer::problem(&problem, policy.profile)
        }
        Ran::Failed(reason, _) => {
            let (status, detail) = match reason {
                Reason::TimedOut => {
                    (StatusCode::GATEWAY_TIMEOUT, "The command was begun and did not answer in time.")
                }
                Reason::Panicked => {
                    (StatusCode::INTERNAL_SERVER_ERROR, "The command was begun and its handler failed.")
                }
                _ => (StatusCode::BAD_GATEWAY, "The command was begun and its answer broke off."),
            };
            problems::outcome_unknown(record.operation_id, status, detail, policy)
        }
    }
}

/// What the record says to an executor whose own word no longer counts.
fn truth(shared: &Shared, record: &Record, answer: &StoreAnswer, policy: &Policy) -> Answer {
    let look = Event::Look { fingerprint: record.head.fingerprint };
    let head = answer.record.as_ref().map(|record| &record.head);
    match transition(head, &look, answer.now).decision {
        Decision::Replay | Decision::Wait | Decision::Reconcile | Decision::Expired => {
            service::looked(shared, answer.record.as_ref(), look, answer.now, None, policy)
        }
        // The record was given up, or is another command's by now; this executor did run.
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

fn keep(policy: &Policy, parts: &response::Parts, content: &Content) -> Response {
    match content {
        Content::Whole { bytes, trailers, .. } => {
            policy.keep(parts.status, &parts.headers, Some(bytes), trailers)
        }
        Content::Passing(_) => policy.keep(parts.status, &parts.headers, None, &HeaderMap::new()),
    }
}

/// Writes the settlement, a few times if need be: its token makes a second time harmless.
pub(crate) async fn write(
    shared: &Arc<Shared>,
    acquired: &Acquired,
    settlement: Settlement,
    kept: &Response,
    seen: Option<&str>,
) -> Result<StoreAnswer, StoreError> {
    let record = &acquired.record;
    let change = |kept: &Response| {
        let change = change(record.head.fence(), settlement, acquired.unexecuted, kept);
        match seen {
            Some(seen) => change.observing(seen),
            None => change,
        }
    };
    let bare = || change(&Response::without_body(kept.status, &kept.headers));
    let mut first = change(kept);
    let mut written = try_to_write(shared, &record.id, &first).await;
    if let (Err(StoreError::Rejected(why)), Some(_)) = (&written, first.result()) {
        // The store can never take this response. The command is settled all the same, without it.
        tracing::warn!(why, operation_id = %record.operation_id, "a response could not be stored");
        first = bare();
        written = try_to_write(shared, &record.id, &first).await;
    }
    if let Err(error) = &written {
        tracing::error!(%error, operation_id = %record.operation_id, "an outcome could not be stored yet");
        let writing = go_on_writing(shared.clone(), record.id, first, bare(), shared.running.hold());
        tokio::spawn(writing.in_current_span());
    }
    written
}

fn change(fence: Fence, settlement: Settlement, unexecuted: Unexecuted, kept: &Response) -> Change {
    let result = || StoredResult::of(kept);
    match settlement {
        Settlement::Complete => Change::complete(fence, result()),
        Settlement::Fail(reason) => Change::fail(fence, reason, result()),
        Settlement::Release(reason) => unexecuted.change(fence, reason),
        Settlement::Abandon(reason) => Change::abandon(fence, reason),
    }
}

/// Sends a change, a few times if need be.
pub(crate) async fn try_to_write(
    shared: &Shared,
    id: &RecordId,
    change: &Change,
) -> Result<StoreAnswer, StoreError> {
    let mut last = StoreError::Unavailable("it was not tried".into());
    for pause in PAUSES {
        // tokio lets even a pause of nothing last a millisecond.
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        match shared.within("apply", shared.store.apply(id, change)).await {
            Err(error @ (StoreError::Unavailable(_) | StoreError::Busy(_) | StoreError::Ambiguous(_))) => {
                last = error;
            }
            settled => return settled,
        }
    }
    Err(last)
}

/// The executor's late word is still evidence: it is offered for a while, though nobody waits for it.
async fn go_on_writing(shared: Arc<Shared>, id: RecordId, mut change: Change, bare: Change, _held: Active) {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(500);
    while begun.elapsed() < LAST_TRIES {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(10));
        match shared.within("apply", shared.store.apply(&id, &change)).await {
            Ok(_) => return,
            Err(StoreError::Rejected(_)) => change = bare.clone(),
            Err(_) => {}
        }
    }
}

/// Gives back a command that was acquired and not begun. `Some`: it was others' by then, and this is what the record says.
pub(crate) async fn give_back(
    shared: &Arc<Shared>,
    record: &Record,
    unexecuted: Unexecuted,
    reason: Reason,
) -> Option<StoreAnswer> {
    let change = unexecuted.change(record.head.fence(), reason);
    match try_to_write(shared, &record.id, &change).await {
        Ok(answer) => (answer.decision != Decision::Applied).then_some(answer),
        Err(_) => {
            let held = shared.running.hold();
            let writing = go_on_writing(shared.clone(), record.id, change.clone(), change, held);
            tokio::spawn(writing.in_current_span());
            None
        }
    }
}

/// Takes back a claim that could not be confirmed, so that no `Unknown` remains where nothing ran. It may yet
/// arrive, so this goes on for a while after the lease it asked for would have ended.
pub(crate) async fn release_unconfirmed(shared: Arc<Shared>, claim: Claim, _held: Active) {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(50);
    while begun.elapsed() < claim.attempt.terms.lease + LAST_TRIES {
        for id in claim.record_ids() {
            if let Ok(snapshot) = shared.within("get", shared.store.get(&id)).await
                && let Some(record) = snapshot.record
            {
                if record.head.token != claim.attempt.token {
                    if record.operation_id == claim.operation_id {
                        // It arrived, and somebody else has the command by now: a worker that was to start it.
                        return;
                    }
                    continue;
                }
                let release = Change::release(record.head.fence(), Reason::ClaimUnconfirmed);
                if shared.within("apply", shared.store.apply(&id, &release)).await.is_ok() {
                    return;
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}

/// Takes back a start that could not be confirmed, so that no `Unknown` remains where nothing ran. It may yet arrive, so
/// this goes on while the command still waits as it did.
pub(crate) async fn requeue_unconfirmed(shared: Arc<Shared>, waiting: Record, own: Fence, _held: Active) {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(50);
    let requeue = Change::requeue(own, Reason::ClaimUnconfirmed, Duration::ZERO);
    while begun.elapsed() < LAST_TRIES {
        if let Ok(answer) = shared.within("apply", shared.store.apply(&waiting.id, &requeue)).await {
            let still_waits = answer.record.is_some_and(|record| record.head.fence() == waiting.head.fence());
            if answer.decision == Decision::Applied || !still_waits {
                return;
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}
