//! One attempt at a command: runs its code in a task of its own, renews the lease meanwhile, and stores the result.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use semel_core::envelope::is_envelope;
use semel_core::outbox::{Next, Tried, after_try};
use semel_core::{
    BootTime, Change, Decision, Event, Policy, Progress, Reason, Record, RecordId, Store, StoreAnswer,
    StoreError, Transacted,
};
use tokio::task::JoinSet;

use super::input::Input;
use super::journal::{Ending, Journal};
use super::lease::PhaseLease;
use super::operations::{PhaseTerms, PhasedOperation, Phases};
use super::run::Run;
use super::steps::HeldCommand;
use crate::deadline::{CANCEL_DEADLINE, DATABASE_DEADLINE};
use crate::outbox::chance;
use crate::settle::{completion, executed, rolled_back, seen};
use crate::unknown;

/// Pauses before each try of a write.
const PAUSES: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(50), Duration::from_millis(250), Duration::from_secs(1)];

/// A command that this executor has taken.
pub(super) struct Taken {
    pub(super) record: Record,
    pub(super) input: Input,
    pub(super) lease: PhaseLease,
    /// True if the caller of the claim waits for the answer.
    pub(super) attended: bool,
    /// True if a verdict resumed the command, regardless of the number of attempts.
    pub(super) resolved: bool,
}

impl<D: Clone + Send + Sync + 'static> Phases<D> {
    /// Executes a taken command as far as this attempt gets.
    pub(super) async fn carry_out(&self, operation: &PhasedOperation<D>, taken: Taken) -> Transacted {
        let (ending, rows) = self.run(operation, &taken).await;
        let ending = match ending {
            // The message may have been delivered long before: no sink would be left to settle the command.
            Ending::Reply(reply) if reply.deferral().is_some() => {
                let id = taken.record.operation_id;
                tracing::error!(operation_id = %id, "a run cannot leave its outcome to a message: it is unknown");
                Ending::Unsure(Reason::HandlerUnsure)
            }
            ending => ending,
        };
        self.conclude(&operation.terms, &taken, ending, rows).await
    }

    /// Runs the code. Returns how it ended, and true if any phase is recorded.
    async fn run(&self, operation: &PhasedOperation<D>, taken: &Taken) -> (Ending, bool) {
        let Taken { record, input, lease, attended, resolved } = taken;
        let recorded = match self.recorded(taken).await {
            Ok(recorded) => recorded,
            Err(ending) => return (ending, true),
        };
        let (attempt, most) = (record.head.epoch, operation.terms.retry.max_attempts);
        if attempt > most && !attended && !resolved {
            tracing::error!(operation_id = %record.operation_id, most, "a command has had all its attempts");
            // If no phase is recorded, nothing has run: that is a stronger reason than lease expiry.
            let reason = if recorded.is_empty() { Reason::NotExecuted } else { Reason::LeaseExpired };
            return (Ending::Later { reason, reply: None }, !recorded.is_empty());
        }
        let journal = Arc::new(Mutex::new(Journal::new(record.operation_id, recorded)));
        let run = Run {
            database: self.database.clone(),
            steps: self.steps.clone(),
            held: HeldCommand::of(record),
            lease: lease.clone(),
            timeout: input.timeout,
            journal: journal.clone(),
        };
        let (code, bytes) = (operation.code.clone(), input.bytes.clone());
        // In a task of its own, so that a panic ends only this task, which does not outlive the attempt.
        let mut task = JoinSet::new();
        task.spawn(async move { code(run, bytes).await });
        let returned = tokio::select! {
            returned = task.join_next() => returned.and_then(Result::ok),
            () = keep(&*self.store, record, lease, &journal, input.timeout) => None,
        };
        let _ = tokio::time::timeout(CANCEL_DEADLINE, task.shutdown()).await;
        let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
        journal.close(returned)
    }

    /// Returns the recorded phases of the command. Only this attempt adds to them from now on.
    async fn recorded(&self, taken: &Taken) -> Result<Vec<Progress>, Ending> {
        let record = &taken.record;
        let later = |why: String| {
            tracing::warn!(why, operation_id = %record.operation_id, "the phases of a command cannot be read");
            Ending::Later { reason: Reason::NotExecuted, reply: None }
        };
        if taken.attended && record.head.epoch == 1 {
            return Ok(Vec::new());
        }
        let steps =
            self.store.progress(record.operation_id).await.map_err(|error| later(error.to_string()))?;
        match steps.iter().find(|step| step.what.output().is_some_and(|output| is_envelope(output))) {
            Some(step) => Err(later(format!("the output of the phase {} does not open", step.name))),
            None => Ok(steps),
        }
    }

    /// Stores the result of the attempt, and returns the outcome for the caller.
    async fn conclude(&self, terms: &PhaseTerms, taken: &Taken, ending: Ending, rows: bool) -> Transacted {
        let record = &taken.record;
        let fence = record.head.fence();
        let input = &taken.input;
        let (max_stored_response, store_response) = (input.max_stored_response, input.store_response);
        let policy = Policy { max_stored_response, store_response, ..Policy::default() };
        let change = match &ending {
            Ending::Left => return self.truth(record).await,
            Ending::Unsure(reason) => Change::abandon(fence, *reason),
            Ending::Reply(reply) => completion(&policy, fence, reply),
            Ending::Later { reason, reply } => {
                let failed = Tried::Failed { why: String::new(), retry_after: None };
                match after_try(record.head.epoch, &failed, &terms.retry, chance()) {
                    // Nothing happened, and the caller is there to get the reply.
                    _ if !rows && taken.attended && reply.is_some() => Change::release(fence, *reason),
                    Next::Retry { after } => Change::requeue(fence, *reason, after),
                    Next::Delivered | Next::Dead if rows => Change::abandon(fence, *reason),
                    Next::Delivered | Next::Dead => Change::release(fence, *reason),
                }
            }
        };
        let mut settled = settle(&*self.store, record, &change).await;
        if let (Err(StoreError::Rejected(why)), Ending::Reply(reply)) = (&settled, &ending) {
            // The store can never take this response. The command is settled without it.
            tracing::warn!(why, operation_id = %record.operation_id, "a response could not be stored");
            let bare = Policy { max_stored_response: 0, ..Policy::default() };
            settled = settle(&*self.store, record, &completion(&bare, fence, reply)).await;
        }
        let released = matches!(change.event(), Event::Release { .. });
        match (settled, ending) {
            (
                Ok(StoreAnswer { decision: Decision::Applied, record: Some(settled), now, .. }),
                Ending::Reply(reply),
            ) => executed(settled, now, &reply),
            (
                Ok(StoreAnswer { decision: Decision::Applied, .. }),
                Ending::Later { reply: Some(reply), .. },
            ) if released => rolled_back(&reply),
            (Ok(answer), _) => seen(record.head.fingerprint, answer.record, answer.now),
            (Err(error), _) => {
                tracing::error!(%error, operation_id = %record.operation_id, "how a run ended could not be stored");
                waits(record)
            }
        }
    }

    /// Returns the outcome that the record shows.
    async fn truth(&self, record: &Record) -> Transacted {
        match self.store.get(&record.id).await {
            Ok(found) => seen(record.head.fingerprint, found.record, found.now),
            Err(_) => waits(record),
        }
    }
}

/// Returns the outcome "in progress": another executor resumes the command when its lease has expired.
fn waits(record: &Record) -> Transacted {
    let record = Some(Box::new(record.clone()));
    Transacted::Decided { decision: Decision::Wait, record, holder: None, now: None }
}

/// Writes, with a few retries: the fence makes a repeated write harmless. A command that the write makes unknown is counted.
pub(super) async fn settle(
    store: &dyn Store,
    record: &Record,
    change: &Change,
) -> Result<StoreAnswer, StoreError> {
    let written = write(store, &record.id, change).await;
    if let Ok(answer) = &written {
        unknown::observe(&record.operation, answer, Some(change));
    }
    written
}

async fn write(store: &dyn Store, id: &RecordId, change: &Change) -> Result<StoreAnswer, StoreError> {
    let mut last = StoreError::Unavailable("it was not tried".to_owned());
    for pause in PAUSES {
        // In tokio even a zero pause lasts a millisecond.
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        match tokio::time::timeout(DATABASE_DEADLINE, store.apply(id, change)).await {
            Ok(Err(
                error @ (StoreError::Unavailable(_) | StoreError::Busy(_) | StoreError::Ambiguous(_)),
            )) => last = error,
            Ok(settled) => return settled,
            Err(_) => last = StoreError::Ambiguous("no answer in time".to_owned()),
        }
    }
    Err(last)
}

/// Renews the lease three times per lease length, and sooner after a failure. Returns only if the run is overdue.
async fn keep(
    store: &dyn Store,
    record: &Record,
    lease: &PhaseLease,
    journal: &Mutex<Journal>,
    idle: Duration,
) {
    let length = record.head.terms.lease;
    let third = length / 3;
    let mut pause = third;
    let mut is_ours = true;
    loop {
        tokio::time::sleep(pause).await;
        if journal.lock().unwrap_or_else(PoisonError::into_inner).is_overdue(idle) {
            return;
        }
        if !is_ours {
            continue;
        }
        let asked = BootTime::now();
        let renewal = Change::renew(record.head.fence());
        // Bounded by the lease and not by the store's own timeout: one lost answer must not cost the lease.
        let renewed = tokio::time::timeout(third, store.apply(&record.id, &renewal)).await;
        match renewed {
            Ok(Ok(StoreAnswer { decision: Decision::Applied, .. })) => {
                lease.renewed(asked, length);
                pause = third;
            }
            // Another executor has the command: no write of this run counts any more.
            Ok(Ok(answer)) => {
                unknown::observe(&record.operation, &answer, None);
                lease.lost();
                is_ours = false;
            }
            Ok(Err(_)) | Err(_) => {
                tracing::warn!(operation_id = %record.operation_id, "a lease was not renewed yet");
                pause = length / 12;
            }
        }
    }
}
