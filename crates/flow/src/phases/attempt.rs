//! One attempt at a command: its code in a task of its own, the lease renewed beside it, and then what is written about
//! how it ended.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use semel_core::envelope::is_envelope;
use semel_core::outbox::{Next, Tried, after_try};
use semel_core::{
    Answer, BootTime, Change, Decision, Event, Policy, Progress, Reason, Record, RecordId, Store, StoreError,
    Timestamp, Transacted, transition,
};
use tokio::task::JoinSet;

use super::input::Input;
use super::journal::{Ending, Journal};
use super::lease::Lease;
use super::operations::{Operation, PhaseTerms, Phases};
use super::run::Run;
use super::steps::Held;
use crate::outbox::chance;
use crate::settle::{completion, decided, executed, rolled_back};

/// How often a write is tried, and how long to pause before each further try.
const PAUSES: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(50), Duration::from_millis(250), Duration::from_secs(1)];

/// How long one try may take, and how long code may take to go away.
const PATIENCE: Duration = Duration::from_secs(10);

/// A command that is to be carried out here and now.
pub(super) struct Taken {
    pub(super) record: Record,
    pub(super) input: Input,
    pub(super) lease: Lease,
    /// Somebody waits for the answer: the claim was made for them.
    pub(super) attended: bool,
    /// A verdict has it resumed, however many attempts it has had.
    pub(super) resolved: bool,
}

impl<D: Clone + Send + Sync + 'static> Phases<D> {
    /// Carries out a command that was taken, as far as it goes in this attempt.
    pub(super) async fn carry_out(&self, operation: &Operation<D>, taken: Taken) -> Transacted {
        let (ending, rows) = self.run(operation, &taken).await;
        let ending = match ending {
            // Its message may have been delivered long before: nobody would be left to say what it came to.
            Ending::Reply(reply) if reply.deferral().is_some() => {
                let id = taken.record.operation_id;
                tracing::error!(operation_id = %id, "a run cannot leave its outcome to a message: it is unknown");
                Ending::Unsure(Reason::HandlerUnsure)
            }
            ending => ending,
        };
        self.conclude(&operation.terms, &taken, ending, rows).await
    }

    /// Runs the code. Says how that ended, and whether anything is recorded of the command.
    async fn run(&self, operation: &Operation<D>, taken: &Taken) -> (Ending, bool) {
        let Taken { record, input, lease, attended, resolved } = taken;
        let recorded = match self.recorded(taken).await {
            Ok(recorded) => recorded,
            Err(ending) => return (ending, true),
        };
        let (attempt, most) = (record.head.epoch, operation.terms.retry.max_attempts);
        if attempt > most && !attended && !resolved {
            tracing::error!(operation_id = %record.operation_id, most, "a command has had all its attempts");
            // Where nothing is recorded, nothing has run: that is more than that leases have ended.
            let reason = if recorded.is_empty() { Reason::NotExecuted } else { Reason::LeaseExpired };
            return (Ending::Later { reason, reply: None }, !recorded.is_empty());
        }
        let journal = Arc::new(Mutex::new(Journal::new(record.operation_id, recorded)));
        let run = Run {
            database: self.database.clone(),
            steps: self.steps.clone(),
            held: Held::of(record),
            lease: lease.clone(),
            timeout: input.timeout,
            journal: journal.clone(),
        };
        let (code, bytes) = (operation.code.clone(), input.bytes.clone());
        // In a task of its own, so that a panic ends only that; and no longer than this attempt.
        let mut task = JoinSet::new();
        task.spawn(async move { code(run, bytes).await });
        let returned = tokio::select! {
            returned = task.join_next() => returned.and_then(Result::ok),
            () = keep(&*self.store, record, lease, &journal, input.timeout) => None,
        };
        let _ = tokio::time::timeout(PATIENCE, task.shutdown()).await;
        let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
        journal.close(returned)
    }

    /// What is recorded of the command. Nobody adds to it any more but this attempt.
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

    /// Writes how the attempt ended, and says what whoever asked is told.
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
                    // Nothing happened, and somebody is there to be told.
                    _ if !rows && taken.attended && reply.is_some() => Change::release(fence, *reason),
                    Next::Retry { after } => Change::requeue(fence, *reason, after),
                    Next::Delivered | Next::Dead if rows => Change::abandon(fence, *reason),
                    Next::Delivered | Next::Dead => Change::release(fence, *reason),
                }
            }
        };
        let mut settled = settle(&*self.store, &record.id, &change).await;
        if let (Err(StoreError::Rejected(why)), Ending::Reply(reply)) = (&settled, &ending) {
            // The store can never take this response. The command is settled all the same, without it.
            tracing::warn!(why, operation_id = %record.operation_id, "a response could not be stored");
            let bare = Policy { max_stored_response: 0, ..Policy::default() };
            settled = settle(&*self.store, &record.id, &completion(&bare, fence, reply)).await;
        }
        let released = matches!(change.event(), Event::Release { .. });
        match (settled, ending) {
            (
                Ok(Answer { decision: Decision::Applied, record: Some(settled), now, .. }),
                Ending::Reply(reply),
            ) => executed(settled, now, &reply),
            (Ok(Answer { decision: Decision::Applied, .. }), Ending::Later { reply: Some(reply), .. })
                if released =>
            {
                rolled_back(&reply)
            }
            (Ok(answer), _) => told(record, answer.record, answer.now),
            (Err(error), _) => {
                tracing::error!(%error, operation_id = %record.operation_id, "how a run ended could not be stored");
                waits(record)
            }
        }
    }

    /// What the record says.
    async fn truth(&self, record: &Record) -> Transacted {
        match self.store.get(&record.id).await {
            Ok(found) => told(record, found.record, found.now),
            Err(_) => waits(record),
        }
    }
}

/// What the record says to one whose own word does not count.
fn told(record: &Record, found: Option<Record>, now: Timestamp) -> Transacted {
    let look = Event::Look { fingerprint: record.head.fingerprint };
    let decision = transition(found.as_ref().map(|found| &found.head), &look, now).decision;
    decided(Answer { decision, record: found, now, holder: None })
}

/// It is in progress: somebody goes on with it when its lease has ended.
fn waits(record: &Record) -> Transacted {
    let record = Some(Box::new(record.clone()));
    Transacted::Decided { decision: Decision::Wait, record, holder: None, now: None }
}

/// Writes, a few times if need be: the fence makes a second time harmless.
pub(super) async fn settle(store: &dyn Store, id: &RecordId, change: &Change) -> Result<Answer, StoreError> {
    let mut last = StoreError::Unavailable("it was not tried".to_owned());
    for pause in PAUSES {
        // tokio lets even a pause of nothing last a millisecond.
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        match tokio::time::timeout(PATIENCE, store.apply(id, change)).await {
            Ok(Err(
                error @ (StoreError::Unavailable(_) | StoreError::Busy(_) | StoreError::Ambiguous(_)),
            )) => last = error,
            Ok(settled) => return settled,
            Err(_) => last = StoreError::Ambiguous("no answer in time".to_owned()),
        }
    }
    Err(last)
}

/// Renews the lease, three times in its length, and sooner after a failure. It comes back only if the run is overdue.
async fn keep(store: &dyn Store, record: &Record, lease: &Lease, journal: &Mutex<Journal>, idle: Duration) {
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
        // Bounded by the lease and not by the store's patience: one lost answer must not cost the lease.
        let renewed = tokio::time::timeout(third, store.apply(&record.id, &renewal)).await;
        match renewed.map(|answer| answer.map(|answer| answer.decision)) {
            Ok(Ok(Decision::Applied)) => {
                lease.renewed(asked, length);
                pause = third;
            }
            // Somebody else's truth stands now: nothing of this run counts any more.
            Ok(Ok(_)) => {
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
