//! Reads the answer of a handler after its timeout. The record is `Unknown` by then, the lease is not renewed, and the client
//! was told so. The answer is read for a while, and settles the record if it still can.
//!
//! Invariant: the settlement carries the unchanged fence. A fenced answer that contradicts the record is raised as a
//! contradiction.

use std::sync::Arc;

use semel_core::reconcile::{Bearing, CONTRADICTION, bearing_of_fenced};
use semel_core::transition::{Proof, Verdict};
use semel_core::{
    Decision, LookUpAnswer, Note, Outcome, Record, Response, Settlement, Statement, StoreError, StoredResult,
};
use tokio::time::Instant;

use crate::acquired::Acquired;
use crate::answer::AnswerFacts;
use crate::executed::{HandlerResult, LateCall};
use crate::observe::{self, Late};
use crate::settlement;
use crate::shared::Shared;
use crate::spans::{self, OpenSpan};

/// The number of late answers that are waited for at a time, shared by tenant and caller.
pub(crate) const MAX_LISTENERS: usize = 1024;

/// The source of a statement that a late answer makes.
const LATE_ANSWER: &str = "late-answer";

/// Reads a late answer, and settles the record with it. Runs detached; a drain does not wait for it.
pub(crate) async fn listen(shared: Arc<Shared>, acquired: Box<Acquired>, late: LateCall) {
    let span = shared.tracer.as_ref().map(|tracer| OpenSpan::alone(tracer, &*shared.clock));
    let (outcome, settled) = settle(&shared, &acquired, late).await;
    let record = settled.as_ref().unwrap_or(&acquired.record);
    observe::late(&acquired.about(), record, outcome);
    if let Some(span) = span {
        let facts = AnswerFacts::about(record);
        spans::worked(&span, "late answer", &acquired.rule.label, &facts, Some(outcome.as_str()));
    }
}

/// Settles the record with a late answer. Returns the result, and the record if it was read again.
async fn settle(shared: &Arc<Shared>, acquired: &Acquired, mut late: LateCall) -> (Late, Option<Record>) {
    let ran = match tokio::time::timeout(late.time, &mut late.call).await {
        Ok(Ok(Ok(ran))) => ran,
        Ok(Ok(Err(_)) | Err(_)) | Err(_) if late.declared.get() == Some(&Outcome::NotExecuted) => {
            // The head has declared the outcome: the rest is not read.
            late.call.abort();
            HandlerResult::NotExecuted
        }
        Ok(Ok(Err(_)) | Err(_)) | Err(_) => {
            late.call.abort();
            return (Late::Silent, None);
        }
    };
    let policy = &*acquired.rule.policy;
    let settlement = settlement::settlement(policy, &ran);
    if let Settlement::Abandon(_) = settlement {
        return (Late::StillUnknown, None);
    }
    // A drain waits for the write, and not for the answer.
    let _held = shared.running.hold();
    let kept = settlement::kept(policy, &ran);
    // A body that is not stored is not read on.
    drop(ran);
    let asked = Instant::now();
    match settlement::write(shared, acquired, settlement, &kept, None).await {
        Ok(answer) if answer.decision == Decision::Applied => {
            let record = answer.record.as_ref().unwrap_or(&acquired.record);
            if let Some(result) = &record.result {
                shared.cache.keep(record, answer.now, asked);
                shared.stored(record, result.response.bytes.len());
            }
            (Late::Settled, answer.record)
        }
        Ok(answer) => {
            observe::zombie(&acquired.about());
            if let Err(error) = compare(shared, acquired, settlement, &kept, answer.record.as_ref()).await {
                tracing::error!(%error, operation_id = %acquired.record.operation_id, "a contradiction could not be noted");
            }
            (Late::Fenced, answer.record)
        }
        // `write` retries it in the background.
        Err(_) => (Late::NotStored, None),
    }
}

/// Compares a fenced answer with the record, and raises a contradiction: in the audit log, in the log and as a metric.
async fn compare(
    shared: &Shared,
    acquired: &Acquired,
    settlement: Settlement,
    kept: &Response,
    record: Option<&Record>,
) -> Result<(), StoreError> {
    let (id, epoch) = (acquired.record.operation_id, acquired.record.head.epoch);
    let found = match settlement {
        Settlement::Complete => LookUpAnswer::Executed(StoredResult::of(kept)),
        Settlement::Fail(_) => LookUpAnswer::Failed(StoredResult::of(kept)),
        // The executor's own proof: nothing of this attempt can follow.
        Settlement::Release(_) => LookUpAnswer::NotExecuted(Proof::ProviderTombstone),
        Settlement::Abandon(_) => return Ok(()),
    };
    let verdict = found.verdict().unwrap_or(Verdict::FailedFinal);
    let bearing = bearing_of_fenced(record, verdict, epoch);
    if bearing != Bearing::Contradicts {
        return Ok(());
    }
    let state = record.map_or("gone".to_owned(), |record| {
        format!("{} in attempt {}", record.head.state.name(), record.head.epoch)
    });
    let seen = format!("the upstream answered attempt {epoch} after its timeout, with {}", kept.status);
    let why = format!("{} (attempt {epoch}), but the record is {state}: {seen}", verdict.as_str());
    observe::contradiction(&acquired.record, verdict, &why);
    let Some(evidence) = &shared.evidence else { return Ok(()) };
    let event_id = format!("{id}:{epoch}");
    let Some(said) = Statement::new(LATE_ANSWER.to_owned(), event_id, id, found, seen) else {
        return Ok(());
    };
    let said = said.of_attempt(Some(epoch));
    shared.within("take_in", evidence.take_in(&said)).await?;
    let note = Note { who: LATE_ANSWER.to_owned(), action: CONTRADICTION.to_owned(), why };
    let contradict = evidence.contradict(&said.source, &said.event_id, &note, bearing.reference(verdict));
    shared.within("contradict", contradict).await?;
    Ok(())
}
